/* Forward in one thread, backward in another, as autograd engines do: the thread that plans and
 * executes the forward is not the one that executes the adjoint. With MPI_THREAD_SERIALIZED the two
 * take turns; with MPI_THREAD_MULTIPLE two contexts are used at the same time, too. Skips what the
 * MPI does not provide. The communicator comes as a Fortran handle. */
#include "mpi/common.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW = 24, STEPS = 20 };

typedef struct worker {
    lierne_context *context;
    lierne_plan *plan;
    float *in, *out, *back;
    int wrong;
    lierne_status status;
    char message[512];
} worker;

static size_t all_elements(void) {
    return (size_t)(ROW * test_world);
}

static int world_as_integer(void) {
#ifdef MPI_ABI_VERSION
    return MPI_Comm_toint(MPI_COMM_WORLD);
#else
    return MPI_Comm_c2f(MPI_COMM_WORLD);
#endif
}

static void open_worker(worker *l) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = PATIENT};
    bridge_case c = case_of_samples(test_world, ROW / 4, mesh_of("tcd", 1, test_world, 1));
    memset(l, 0, sizeof *l);
    CHECK_OK(lierne_context_create_mpi_fortran(&l->context, world_as_integer(), &spec));
    CHECK_OK(case_plan(&l->plan, l->context, &c));
    l->in = malloc(ROW * sizeof(float)), l->back = malloc(ROW * sizeof(float));
    l->out = malloc(all_elements() * sizeof(float));
}

static void close_worker(worker *l) {
    CHECK_OK(lierne_context_destroy_all(l->context));
    free(l->in), free(l->out), free(l->back);
}

static void keep(worker *l, lierne_status status) {
    if (status != LIERNE_OK && l->status == LIERNE_OK) {
        l->status = status;
        snprintf(l->message, sizeof l->message, "%s", lierne_last_error());
    }
}

static void forward(worker *l, int step) {
    for (int i = 0; i < ROW; i++) {
        l->in[i] = (float)(ROW * test_rank + i + 1 + step);
    }
    memset(l->out, 0xa5, all_elements() * sizeof *l->out);
    keep(l, lierne_plan_forward(l->plan, l->out, l->in, NULL));
    for (int i = 0; i < ROW * test_world; i++) {
        l->wrong += l->out[i] != (float)(i + 1 + step);
    }
}

/* Every cp rank gives the output as its contribution: the sum is the world times the input. */
static void *backward(void *arg) {
    worker *l = arg;
    memset(l->back, 0xa5, ROW * sizeof *l->back);
    keep(l, lierne_plan_adjoint(l->plan, l->back, l->out, NULL));
    for (int i = 0; i < ROW; i++) {
        l->wrong += l->back[i] != (float)test_world * l->in[i];
    }
    return NULL;
}

static void in_another_thread(void *(*work)(void *), void *arg) {
    pthread_t thread;
    pthread_create(&thread, NULL, work, arg);
    pthread_join(thread, NULL);
}

static void check(const worker *l, const char *what) {
    CHECK(l->status == LIERNE_OK, "%s: %s", what, l->message);
    CHECK(l->wrong == 0, "%s: %d wrong elements", what, l->wrong);
}

static void *many_steps(void *arg) {
    for (int step = 0; step < STEPS; step++) {
        forward(arg, step);
        backward(arg);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int provided = test_start_threads(&argc, &argv);
    worker first, second;
    open_worker(&first);
    if (provided >= MPI_THREAD_SERIALIZED) {
        for (int step = 0; step < STEPS; step++) {
            forward(&first, step);
            in_another_thread(backward, &first);
        }
        check(&first, "the adjoint in another thread");
    }
    if (provided >= MPI_THREAD_MULTIPLE) {
        pthread_t thread;
        open_worker(&second);
        pthread_create(&thread, NULL, many_steps, &second);
        many_steps(&first);
        pthread_join(thread, NULL);
        check(&first, "one context, beside another thread");
        check(&second, "another context in another thread");
        close_worker(&second);
    }
    CHECK(provided >= MPI_THREAD_FUNNELED, "MPI provides %d", provided);
    close_worker(&first);
    return test_finish();
}
