/* A thousand rounds leak nothing: no memory, file descriptor, thread, group or communicator. */
#include "mpi/common.h"
#include "mpi/state.h"

#include <stdlib.h>

#define ROUNDS  1000
#define WARM_UP 200 /* rounds: MPI and malloc grow to their size first */

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

static void of_contexts(float *buffers) {
    state before = {0};
    for (int i = 0; i < WARM_UP + ROUNDS; i++) {
        lierne_context *context;
        if (i == WARM_UP) {
            before = state_now();
        }
        CHECK_OK(test_context_create(&context, MPI_COMM_WORLD, NULL));
        use(context, i, buffers);
        CHECK_OK(lierne_context_destroy(context));
    }
    CHECK(state_now().communicators == 0, "%d communicators alive", state_now().communicators);
    state_check(&before, "contexts");
}

static void of_plans(float *buffers) {
    lierne_context *context;
    state before = {0};
    CHECK_OK(test_context_create(&context, MPI_COMM_WORLD, NULL));
    CHECK(state_now().communicators == 1, "%d communicators of one context",
          state_now().communicators);
    for (int i = 0; i < WARM_UP + ROUNDS; i++) {
        if (i == WARM_UP) {
            before = state_now();
        }
        use(context, i, buffers);
    }
    state_check(&before, "plans");
    CHECK_OK(lierne_context_destroy(context));
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    size_t elements = (size_t)(test_world + 2) * 2 * 4 * 64;
    float *buffers = calloc(elements, sizeof *buffers);
    of_contexts(buffers);
    of_plans(buffers);
    CHECK(lierne_mem_live() == 0, "%zu allocations at the end", lierne_mem_live());
    free(buffers);
    return test_finish();
}
