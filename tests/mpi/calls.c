/* Calls that differ between ranks, in a context that checks calls: each rank once calls another
 * plan, another direction, or plans instead of executing. Every rank gets MISMATCH with the same
 * message, which names the rank, the field and both values; no data moves, and the next call works.
 * Plans of different shapes and dtypes cannot be created: see failure.c. */
#include "mpi/common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 2, ROW = 24 };

typedef struct setup {
    lierne_context *context;
    lierne_grid *src, *dst;
    int64_t shape[3];
    lierne_bridge_spec spec;
    lierne_plan *first, *second;
    float *in, *out, *back;
    size_t in_bytes, out_bytes;
} setup;

static void open_setup(setup *s) {
    mesh src = mesh_of("tcd", 1, 1, test_world), dst = mesh_of("tcd", 1, test_world, 1);
    lierne_context_spec checked = {.size = sizeof checked, .timeout = PATIENT, .check = 1};
    memset(s, 0, sizeof *s);
    CHECK_OK(lierne_context_create_mpi(&s->context, MPI_COMM_WORLD, &checked));
    s->src = mesh_grid(&src, test_world);
    s->dst = mesh_grid(&dst, test_world);
    s->shape[0] = SAMPLES * test_world, s->shape[1] = 4, s->shape[2] = ROW / 4;
    s->spec = (lierne_bridge_spec){.size = sizeof s->spec,
                                   .src = s->src,
                                   .dst = s->dst,
                                   .naxes = 3,
                                   .shape = s->shape,
                                   .dtype = LIERNE_DTYPE_F32,
                                   .sequence_axis = 1};
    CHECK(lierne_plan_create_bridge(&s->first, s->context, &s->spec) == LIERNE_OK, "first");
    CHECK(lierne_plan_create_bridge(&s->second, s->context, &s->spec) == LIERNE_OK, "second");
    s->in_bytes = SAMPLES * ROW * sizeof *s->in;
    s->out_bytes = s->in_bytes * (size_t)test_world;
    s->in = malloc(s->in_bytes), s->out = malloc(s->out_bytes), s->back = malloc(s->in_bytes);
    for (int i = 0; i < SAMPLES * ROW; i++) {
        s->in[i] = (float)(SAMPLES * ROW * test_rank + i + 1);
    }
}

static void close_setup(setup *s) {
    CHECK(lierne_plan_destroy(s->first) == LIERNE_OK, "first");
    CHECK(lierne_plan_destroy(s->second) == LIERNE_OK, "second");
    CHECK(lierne_context_destroy(s->context) == LIERNE_OK, "context");
    lierne_grid_destroy(s->src), lierne_grid_destroy(s->dst);
    free(s->in), free(s->out), free(s->back);
}

static void works(setup *s) {
    int wrong = 0;
    memset(s->out, 0xa5, s->out_bytes);
    CHECK_OK(lierne_plan_forward(s->first, s->out, s->in, NULL));
    for (int i = 0; i < SAMPLES * ROW * test_world; i++) {
        wrong += s->out[i] != (float)(i + 1);
    }
    CHECK(wrong == 0, "%d wrong elements", wrong);
    CHECK_OK(lierne_plan_adjoint(s->second, s->back, s->out, NULL));
    CHECK(s->back[3] == (float)test_world * s->in[3], "the sum of equal contributions");
}

typedef enum deed { FORWARD, OTHER_PLAN, ADJOINT, PLANNING } deed;

static lierne_status act(setup *s, deed d) {
    lierne_plan *plan = NULL;
    switch (d) {
    case FORWARD:
        return lierne_plan_forward(s->first, s->out, s->in, NULL);
    case OTHER_PLAN:
        return lierne_plan_forward(s->second, s->out, s->in, NULL);
    case ADJOINT:
        return lierne_plan_adjoint(s->first, s->back, s->out, NULL);
    default:
        return lierne_plan_create_bridge(&plan, s->context, &s->spec);
    }
}

static void deviate(setup *s, int who, deed d) {
    static const char *const fields[] = {"", "plan", "different calls: ", "different calls: "};
    char part[64];
    memset(s->out, 0x5a, s->out_bytes);
    lierne_status status = act(s, test_rank == who ? d : FORWARD);
    test_same_error(status, LIERNE_ERR_MISMATCH, "a rank that deviates");
    CHECK(strstr(lierne_last_error(), fields[d]) != NULL, "%s", lierne_last_error());
    /* Rank 0 is what others are compared with: if it deviates, the lowest other is named. */
    snprintf(part, sizeof part, "on rank %d", who ? who : 1);
    CHECK(strstr(lierne_last_error(), part) != NULL, "'%s' in %s", part, lierne_last_error());
    int untouched = 1;
    for (size_t i = 0; i < s->out_bytes; i++) {
        untouched &= ((unsigned char *)s->out)[i] == 0x5a;
    }
    CHECK(untouched, "data moved");
    works(s);
}

/* A bad argument on one rank is the error of all: nobody waits for it, nothing moves. */
static void bad_argument(setup *s, int who) {
    memset(s->out, 0x5a, s->out_bytes);
    const void *in = test_rank == who ? NULL : s->in;
    test_same_error(lierne_plan_forward(s->first, s->out, in, NULL), LIERNE_ERR_INVALID,
                    "in is NULL");
    CHECK(strstr(lierne_last_error(), "in is NULL") != NULL, "%s", lierne_last_error());
    CHECK(((unsigned char *)s->out)[0] == 0x5a, "data moved");
    works(s);
}

/* A rank without memory for the plan: all get its error. */
static void no_place(setup *s) {
    lierne_plan *plan = NULL;
    lierne_status status =
        lierne_plan_create_bridge(test_rank == test_world - 1 ? NULL : &plan, s->context, &s->spec);
    test_same_error(status, LIERNE_ERR_INVALID, "out is NULL on one rank");
    CHECK(plan == NULL, "a plan beside an error");
    works(s);
}

/* A context that checks on some ranks only is rejected. */
static void half_checked(void) {
    lierne_context *context = NULL;
    lierne_context_spec spec = {.size = sizeof spec,
                                .timeout = PATIENT,
                                .check = test_rank == test_world - 1};
    lierne_status status = lierne_context_create_mpi(&context, MPI_COMM_WORLD, &spec);
    test_same_error(status, LIERNE_ERR_MISMATCH, "check on one rank only");
    CHECK(strncmp(lierne_last_error(), "lierne_context_create_mpi: ", 27) == 0, "'%s'",
          lierne_last_error());
    CHECK(context == NULL, "a context beside an error");
}

int main(int argc, char **argv) {
    setup s;
    test_start(&argc, &argv);
    size_t before = lierne_mem_live();
    open_setup(&s);
    works(&s);
    for (int who = 0; who < test_world; who++) {
        bad_argument(&s, who);
        for (deed d = OTHER_PLAN; d <= PLANNING; d++) {
            deviate(&s, who, d);
        }
    }
    no_place(&s);
    close_setup(&s);
    half_checked();
    CHECK(lierne_mem_live() == before, "leaked");
    return test_finish();
}
