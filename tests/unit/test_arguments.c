/* A bad argument on one rank, in a call that executes, where the context checks, on one thread: the
 * ranks that called earlier have begun, and get the error when they end, not at their deadline. All
 * calls and arguments are in tests/mpi/arguments.c. */
#include "bridge_plan.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <lierne.h>
#include <lierne/sim.h>
#include <string.h>

enum { WORLD = 3, SAMPLES = 6, WIDTH = 4, ALL = SAMPLES * WIDTH };

typedef struct plans {
    lierne_plan *bridge;
    lierne_coalesced *exchange;
    float in[ALL], out[ALL];
} plans;

Test(arguments, earlier_ranks_get_the_error_at_the_end) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 120, .check = 1};
    const int64_t shape[2] = {SAMPLES, WIDTH};
    lierne_grid *src = grid_of(1, 1, WORLD, WORLD), *dst = grid_of(1, WORLD, 1, WORLD);
    lierne_bridge_spec bridge = bridge_spec_of(src, dst, shape);
    bridge.naxes = 2;
    bridge.sequence_axis = -1;
    for (int coalesced = 0; coalesced < 2; coalesced++) {
        lierne_sim *sim;
        plans p[WORLD] = {0};
        lierne_request *q[WORLD] = {0};
        assert_ok(lierne_sim_create(&sim, WORLD, &spec));
        for (int r = 0; r < WORLD; r++) {
            lierne_context *context = lierne_sim_get_context(sim, r);
            assert_ok(lierne_plan_create_bridge(&p[r].bridge, context, &bridge));
            assert_ok(lierne_coalesced_create(&p[r].exchange, &p[r].bridge, 1));
        }
        for (int r = 0; r < WORLD; r++) {
            const void *in = p[r].in;
            void *out = p[r].out;
            lierne_direction d = r == WORLD - 1 ? (lierne_direction)2 : LIERNE_DIRECTION_FORWARD;
            lierne_status status = coalesced
                                       ? lierne_coalesced_begin(p[r].exchange, d, &out, &in, NULL)
                                       : lierne_plan_forward_begin(r == WORLD - 1 ? NULL : &q[r],
                                                                   p[r].bridge, out, in, NULL);
            cr_assert_eq(status, r == WORLD - 1 ? LIERNE_ERR_INVALID : LIERNE_OK);
        }
        for (int r = 0; r < WORLD - 1; r++) {
            cr_assert_eq(coalesced ? lierne_coalesced_end(p[r].exchange, LIERNE_DIRECTION_FORWARD)
                                   : lierne_request_end(q[r]),
                         LIERNE_ERR_INVALID, "%s", lierne_last_error());
            const char *begin =
                coalesced ? "lierne_coalesced_end: rank 2: " : "lierne_request_end: rank 2: ";
            cr_assert_eq(strncmp(lierne_last_error(), begin, strlen(begin)), 0, "%s",
                         lierne_last_error());
        }
        for (int r = 0; r < WORLD; r++) {
            assert_ok(lierne_coalesced_destroy(p[r].exchange));
            assert_ok(lierne_plan_destroy(p[r].bridge));
        }
        assert_ok(lierne_sim_destroy(sim));
    }
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
}
