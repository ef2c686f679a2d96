/* Ranks may begin different plans, and the two directions of one plan, in different orders: data of
 * one never arrive in the other. All messages here have the same size, so that only the tag
 * distinguishes them. Both orders are tried, because two mix-ups can cancel. */
#include "lierne.h"
#include "lierne/sim.h"
#include "mesh.h"
#include "plan/plan.h"
#include "rank_threads.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* [b, s] = [2, 4]: a sample on each of two dp ranks; to both samples on both, cp 2. */
enum { RANKS = 2, SAMPLE = 4, BATCH = 8 };

typedef struct world {
    lierne_grid *src, *dst;
    lierne_sim *sim;
    lierne_plan *plans[2][RANKS]; /* two equal plans */
} world;

static world open_world(void) {
    static const int64_t shape[2] = {2, SAMPLE};
    world w = {.src = grid_of(1, 1, 2, RANKS), .dst = grid_of(1, 2, 1, RANKS)};
    lierne_bridge_spec spec = {.size = sizeof spec,
                               .src = w.src,
                               .dst = w.dst,
                               .naxes = 2,
                               .shape = shape,
                               .dtype = LIERNE_DTYPE_F32,
                               .sequence_axis = 1};
    assert_ok(lierne_sim_create(&w.sim, RANKS, NULL));
    for (int p = 0; p < 2; p++) {
        for (int r = 0; r < RANKS; r++) {
            lierne_context *context = lierne_sim_get_context(w.sim, r);
            assert_ok(lierne_plan_create_bridge(&w.plans[p][r], context, &spec));
        }
    }
    return w;
}

static void close_world(world *w) {
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_plan_destroy(w->plans[0][r]));
        assert_ok(lierne_plan_destroy(w->plans[1][r]));
    }
    assert_ok(lierne_sim_destroy(w->sim));
    lierne_grid_destroy(w->src);
    lierne_grid_destroy(w->dst);
}

/* Sample b of the tensor that call c moves. */
static float value(int c, int b, int s) {
    return (float)(1000 * c + 100 * b + s);
}

static void check_whole(const float *out, int c) {
    for (int i = 0; i < BATCH; i++) {
        cr_assert(out[i] == value(c, i / SAMPLE, i % SAMPLE), "call %d, element %d is %g", c, i,
                  (double)out[i]);
    }
}

static void begin_plans(bool opposite) {
    world w = open_world();
    float in[2][RANKS][SAMPLE], out[2][RANKS][BATCH];
    lierne_request *q[2][RANKS];
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < 2; i++) {
            int p = r == 1 && opposite ? 1 - i : i;
            for (int s = 0; s < SAMPLE; s++) {
                in[p][r][s] = value(p, r, s);
            }
            assert_ok(
                lierne_plan_forward_begin(&q[p][r], w.plans[p][r], out[p][r], in[p][r], NULL));
        }
    }
    for (int r = 0; r < RANKS; r++) {
        for (int p = 0; p < 2; p++) {
            assert_ok(lierne_request_end(q[p][r]));
        }
    }
    for (int r = 0; r < RANKS; r++) {
        check_whole(out[0][r], 0);
        check_whole(out[1][r], 1);
    }
    close_world(&w);
}

Test(plan_order, plans_may_begin_in_any_order) {
    begin_plans(false);
    begin_plans(true);
}

/* before: forwards that have ended, by which the numbers of the two calls differ. */
static void begin_directions(bool opposite, int before) {
    world w = open_world();
    float in[RANKS][SAMPLE], out[RANKS][BATCH], gradient[RANKS][BATCH], back[RANKS][SAMPLE];
    lierne_request *forward[RANKS], *adjoint[RANKS];
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < BATCH; i++) {
            in[r][i % SAMPLE] = value(0, r, i % SAMPLE);
            gradient[r][i] = value(1 + r, i / SAMPLE, i % SAMPLE);
        }
    }
    for (int i = 0; i < before; i++) {
        for (int r = 0; r < RANKS; r++) {
            assert_ok(lierne_plan_forward_begin(&forward[r], w.plans[0][r], out[r], in[r], NULL));
        }
        assert_ok(lierne_request_end(forward[0]));
        assert_ok(lierne_request_end(forward[1]));
    }
    for (int r = 0; r < RANKS; r++) {
        lierne_plan *plan = w.plans[0][r];
        for (int i = 0; i < 2; i++) {
            cr_assert_eq(i == (r == 1 && opposite)
                             ? lierne_plan_forward_begin(&forward[r], plan, out[r], in[r], NULL)
                             : lierne_plan_adjoint_begin(&adjoint[r], plan, back[r], gradient[r],
                                                         NULL),
                         LIERNE_OK);
        }
    }
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_request_end(forward[r]));
        assert_ok(lierne_request_end(adjoint[r]));
    }
    for (int r = 0; r < RANKS; r++) {
        check_whole(out[r], 0);
        for (int s = 0; s < SAMPLE; s++) {
            cr_assert(back[r][s] == value(1, r, s) + value(2, r, s), "rank %d: %g", r,
                      (double)back[r][s]);
        }
    }
    close_world(&w);
}

Test(plan_order, directions_may_begin_in_any_order) {
    for (int before = 0; before < 3; before++) {
        begin_directions(false, before);
        begin_directions(true, before);
    }
}

enum { SERIES = 4, MORE = 4 * LIERNE_MAX_INFLIGHT };

typedef struct checked {
    rank_faults faults;
} checked;

static int take_series_of(lierne_context *context, int decision, int max_inflight) {
    int series;
    return lierne_plan_reserve_series(context) == LIERNE_OK &&
                   lierne_plan_take_series(&series, context, decision, max_inflight, true) ==
                       LIERNE_OK
               ? series
               : -1;
}

static int take_series(lierne_context *context) {
    return take_series_of(context, 0, 1);
}

static void drop_series(lierne_context *context, int n) {
    for (int i = 0; i < n; i++) {
        lierne_plan_drop_series(context, i);
    }
}

static void on_ranks(void (*live)(lierne_context *context, void *shared)) {
    checked all = {0};
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, RANKS, NULL));
    rank_threads(sim, RANKS, live, &all);
    cr_expect_eq(all.faults.wrong, 0, "%s", all.faults.message);
    assert_ok(lierne_sim_destroy(sim));
    cr_expect_eq(lierne_mem_live(), 0);
}

static void live_and_die(lierne_context *context, void *shared) {
    checked *all = shared;
    int me = lierne_context_get_rank(context);
    context->match_ids = SERIES * 2 * LIERNE_CALL_IDS;
    NOTE(all, take_series(context) == 0 && take_series(context) == 1);
    lierne_plan_drop_series(context, me);
    NOTE(all, take_series(context) == 2);
    lierne_plan_drop_series(context, 1 - me);
    NOTE(all, take_series(context) == 0 && take_series(context) == 1 && take_series(context) == 3);
    NOTE(all, take_series(context) == -1);
    NOTE(all, strstr(lierne_last_error(), "4 calls at once can be told apart"));
    drop_series(context, SERIES);
}

/* Also of a plan that one rank has destroyed before the other. */
Test(plan_order, tags_of_a_new_plan_are_free_on_all_ranks) {
    on_ranks(live_and_die);
}

/* Plans with one request, as many as half of the tags are for, then two with several. */
static void live_beside_others(lierne_context *context, void *shared) {
    checked *all = shared;
    const int half = MORE / 2;
    context->match_ids = MORE * 2 * LIERNE_CALL_IDS;
    for (int i = 0; i < half; i++) {
        int series = take_series_of(context, i, 1);
        NOTE(all, series >= 0 && series < half);
    }
    NOTE(all, take_series_of(context, half, 2) == half);
    NOTE(all, take_series_of(context, half + 1, 2) == half + LIERNE_MAX_INFLIGHT);
    NOTE(all, take_series_of(context, half + 2, 2) == -1);
    lierne_plan_drop_series(context, half);
    NOTE(all, take_series_of(context, INT_MIN, 1) == half);
    drop_series(context, MORE);
}

Test(plan_order, plans_with_one_request_leave_tags_for_several) {
    on_ranks(live_beside_others);
}

/* Where one thread plans on several ranks, they cannot ask each other. */
Test(plan_order, tags_are_free_where_one_thread_plans) {
    lierne_sim *sim;
    int series[RANKS][2];
    assert_ok(lierne_sim_create(&sim, RANKS, NULL));
    for (int r = 0; r < RANKS; r++) {
        lierne_context *context = lierne_sim_get_context(sim, r);
        for (int i = 0; i < 2; i++) {
            assert_ok(lierne_plan_reserve_series(context));
            assert_ok(lierne_plan_take_series(&series[r][i], context, INT_MAX, 2, false));
        }
        lierne_plan_drop_series(context, series[r][0]);
        lierne_plan_drop_series(context, series[r][1]);
    }
    cr_expect(abs(series[0][0] - series[0][1]) >= LIERNE_MAX_INFLIGHT);
    cr_expect(memcmp(series[0], series[1], sizeof series[0]) == 0);
    assert_ok(lierne_sim_destroy(sim));
}
