/* Long messages that one end must pack take turns in a few places: the values must be those of the
 * closed form, and the memory that of the places, not of the tensor. Every place is used more than
 * twice: who does not wait for it would get away with two. */
#include <criterion/criterion.h>
#include <lierne.h>
#include <lierne/sim.h>
#include <stdlib.h>
#include <string.h>

#include "bridge_plan.h"
#include "mesh.h"
#include "unit/expect.h"

enum { S = 2048, B = 6, H = 512, RANKS = 6 };

static unsigned char value(int64_t s, int64_t b, int64_t h) {
    return (unsigned char)(1 + (s * 7 + b * 31 + h * 3 + (s * b + h) % 11) % 250);
}

/* The samples of dp rank `mine` of n, on either side. */
static void fill(unsigned char *x, int mine, int n) {
    int64_t share = B / n;
    for (int64_t s = 0; s < S; s++) {
        for (int64_t b = 0; b < share; b++) {
            for (int64_t h = 0; h < H; h++) {
                x[(s * share + b) * H + h] = value(s, mine * share + b, h);
            }
        }
    }
}

static size_t wrong(const unsigned char *x, int mine, int n) {
    unsigned char *expected = malloc((size_t)S * B * H);
    size_t count = 0;
    fill(expected, mine, n);
    for (size_t i = 0; i < (size_t)(S * B / n * H); i++) {
        count += x[i] != expected[i];
    }
    free(expected);
    return count;
}

typedef struct side {
    lierne_plan *plan[RANKS];
    unsigned char *in[RANKS];
    unsigned char *out[RANKS];
} side;

static void execute(side *x, lierne_direction d, int from, int to) {
    lierne_request *request[RANKS];
    for (int r = 0; r < RANKS; r++) {
        fill(x->in[r], from == 1 ? 0 : r % from, from);
        memset(x->out[r], 251, (size_t)S * B * H);
        cr_assert_eq(d == LIERNE_DIRECTION_FORWARD
                         ? lierne_plan_forward_begin(&request[r], x->plan[r], x->out[r], x->in[r],
                                                     NULL)
                         : lierne_plan_adjoint_begin(&request[r], x->plan[r], x->out[r], x->in[r],
                                                     NULL),
                     LIERNE_OK);
    }
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_request_end(request[r]));
    }
    for (int r = 0; r < RANKS; r++) {
        cr_assert_eq(wrong(x->out[r], to == 1 ? 0 : r % to, to), 0, "rank %d, %d to %d", r, from,
                     to);
    }
}

static void check_memory(const lierne_plan *plan, lierne_direction d, int peers) {
    lierne_report report = {.size = sizeof report};
    assert_ok(lierne_plan_get_report(&report, plan, d));
    cr_expect_leq(report.scratch_bytes, (int64_t)peers * 3 * (256 << 10));
    cr_expect_eq(report.received_bytes, report.min_bytes);
}

static lierne_grid *grid_of_dp(int dp) {
    const mesh m = {.ndims = 2, .names = {"dp", "tp"}, .sizes = {dp, RANKS / dp}};
    return mesh_grid(&m, RANKS);
}

static void try_bridge(int src_dp, int dst_dp) {
    static const int64_t shape[] = {S, B, H};
    lierne_sim *sim;
    side x;
    lierne_grid *src = grid_of_dp(src_dp), *dst = grid_of_dp(dst_dp);
    assert_ok(lierne_sim_create(&sim, RANKS, NULL));
    for (int r = 0; r < RANKS; r++) {
        lierne_bridge_spec spec = bridge_spec_of(src, dst, shape);
        spec.dtype = LIERNE_DTYPE_U8;
        spec.batch_axis = 1;
        spec.sequence_axis = 0;
        assert_ok(lierne_plan_create_bridge(&x.plan[r], lierne_sim_get_context(sim, r), &spec));
        x.in[r] = malloc((size_t)S * B * H);
        x.out[r] = malloc((size_t)S * B * H);
        for (int d = 0; d < 2; d++) {
            check_memory(x.plan[r], (lierne_direction)d, 2 * RANKS);
        }
    }
    for (int again = 0; again < 2; again++) {
        execute(&x, LIERNE_DIRECTION_FORWARD, src_dp, dst_dp);
        execute(&x, LIERNE_DIRECTION_ADJOINT, dst_dp, src_dp);
    }
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_plan_destroy(x.plan[r]));
        free(x.in[r]);
        free(x.out[r]);
    }
    assert_ok(lierne_sim_destroy(sim));
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

Test(staging, fan_in) {
    try_bridge(2, 1);
}

Test(staging, fan_out) {
    try_bridge(1, 2);
}

Test(staging, uneven_data_parallel_sizes) {
    try_bridge(3, 2);
    try_bridge(2, 3);
}
