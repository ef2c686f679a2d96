/* Rounds leak nothing: no memory, file descriptor, thread, group or communicator. Usage: soak
 * [CONTEXTS PLANS CALLS], 1000 contexts and plans and no calls without; prints what they took. */
#include "mpi/common.h"
#include "mpi/state.h"

#include <stdio.h>
#include <stdlib.h>

#define WARM_UP 200 /* rounds: MPI and malloc grow to their size first */
#define PARTS   100 /* of the calls, each of which is timed */

/* The rows of every dp rank to every rank, with cp: messages, staging, sums and, with COLLECTIVE,
 * groups. */
static lierne_status plan_of(lierne_plan **plan, lierne_context *context, int round) {
    bridge_case c = {.src = mesh_of("tcd", 1, 1, test_world),
                     .dst = mesh_of("tcd", 1, test_world, 1),
                     .world = test_world,
                     .batch = 2 * test_world,
                     .sequence = 4,
                     .hidden = 64,
                     .axis_b = 1,
                     .axis_s = 0,
                     .axis_h = 2,
                     .dtype = LIERNE_DTYPE_F32,
                     .algorithm = (test_algorithm)(round % 2)};
    return case_plan(plan, context, &c);
}

static void use(lierne_context *context, int round, float *buffers) {
    float *in = buffers, *out = in + 2 * 4 * 64, *back = out + test_world * 2 * 4 * 64;
    lierne_plan *plan;
    CHECK_OK(plan_of(&plan, context, round));
    in[7] = (float)(round + test_rank);
    CHECK_OK(lierne_plan_forward(plan, out, in, NULL));
    CHECK_OK(lierne_plan_adjoint(plan, back, out, NULL));
    CHECK(back[7] == (float)test_world * in[7], "round %d: %g of %g", round, (double)back[7],
          (double)in[7]);
    CHECK_OK(lierne_plan_destroy(plan));
    CHECK(lierne_context_get_ngroups(context) == 0, "%d groups alive",
          lierne_context_get_ngroups(context));
}

static void report(const char *what, long rounds, const state *before) {
    if (test_rank == 0) {
        state now = state_now();
        printf("%ld %s: %ld bytes resident more, %d files, %d threads\n", rounds, what,
               now.bytes - before->bytes, now.files - before->files, now.threads - before->threads);
    }
    state_check(before, what);
}

static void of_contexts(float *buffers, int rounds) {
    state before = {0};
    for (int i = 0; i < WARM_UP + rounds; i++) {
        lierne_context *context;
        if (i == WARM_UP) {
            before = state_now();
        }
        CHECK_OK(test_context_create(&context, MPI_COMM_WORLD, NULL));
        use(context, i, buffers);
        CHECK_OK(lierne_context_destroy(context));
    }
    CHECK(state_now().communicators == 0, "%d communicators alive", state_now().communicators);
    report("contexts", rounds, &before);
}

static void of_plans(float *buffers, int rounds) {
    lierne_context *context;
    state before = {0};
    CHECK_OK(test_context_create(&context, MPI_COMM_WORLD, NULL));
    CHECK(state_now().communicators == 1, "%d communicators of one context",
          state_now().communicators);
    for (int i = 0; i < WARM_UP + rounds; i++) {
        if (i == WARM_UP) {
            before = state_now();
        }
        use(context, i, buffers);
    }
    report("plans", rounds, &before);
    CHECK_OK(lierne_context_destroy(context));
}

/* Seconds of n forward and as many adjoint calls. */
static double time_calls(lierne_plan *plan, float *buffers, long n) {
    float *in = buffers, *out = in + 2 * 4 * 64, *back = out + test_world * 2 * 4 * 64;
    lierne_status status = LIERNE_OK;
    double start = MPI_Wtime();
    for (long i = 0; i < n && status == LIERNE_OK; i++) {
        in[7] = (float)(i % 1000 + test_rank);
        status = lierne_plan_forward(plan, out, in, NULL);
        status = status == LIERNE_OK ? lierne_plan_adjoint(plan, back, out, NULL) : status;
    }
    CHECK_OK(status);
    CHECK(back[7] == (float)test_world * in[7], "%g of %g", (double)back[7], (double)in[7]);
    return MPI_Wtime() - start;
}

/* The quickest part of the first or last tenth, which a busy machine delays least. */
static double quickest(const double *seconds) {
    double least = seconds[0];
    for (int i = 1; i < PARTS / 10; i++) {
        least = seconds[i] < least ? seconds[i] : least;
    }
    return least;
}

static void of_calls(float *buffers, long calls) {
    double seconds[PARTS];
    long each = calls / PARTS / 2;
    lierne_context *context;
    lierne_plan *plan;
    CHECK_OK(test_context_create(&context, MPI_COMM_WORLD, NULL));
    CHECK_OK(plan_of(&plan, context, 0));
    time_calls(plan, buffers, WARM_UP);
    state before = state_now();
    for (int i = 0; i < PARTS; i++) {
        seconds[i] = time_calls(plan, buffers, each);
    }
    report("calls", calls, &before);
    double first = quickest(seconds), last = quickest(seconds + PARTS - PARTS / 10);
    if (test_rank == 0) {
        printf("a call took %.2f us in the first tenth, %.2f us in the last\n",
               first / (double)(2 * each) * 1e6, last / (double)(2 * each) * 1e6);
    }
    CHECK(last < 3 * first, "%g s for calls that took %g s at first", last, first);
    CHECK_OK(lierne_plan_destroy(plan));
    CHECK_OK(lierne_context_destroy(context));
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    bool all = argc == 4;
    size_t elements = (size_t)(test_world + 2) * 2 * 4 * 64;
    float *buffers = calloc(elements, sizeof *buffers);
    of_contexts(buffers, all ? atoi(argv[1]) : 1000);
    of_plans(buffers, all ? atoi(argv[2]) : 1000);
    if (all) {
        of_calls(buffers, atol(argv[3]));
    }
    CHECK(lierne_mem_live() == 0, "%zu allocations at the end", lierne_mem_live());
    free(buffers);
    return test_finish();
}
