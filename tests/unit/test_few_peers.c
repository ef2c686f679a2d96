/* Messages over few peers: the square of ranks, the tour of it, and what a limit does to a plan.
 * What plans move over few peers is compared where they are tested direct (test_redistribute.c,
 * test_packed.c, test_packed_bridge.c, test_collective.c, and the golden files). */
#include "layouts.h"
#include "routing.h"
#include "unit/expect.h"

#include "base/base.h"
#include "lierne/packed_bridge.h"
#include "lierne/sim.h"
#include "route/relay.h"

#include <criterion/criterion.h>
#include <string.h>

enum { MOST = 1200 };

static lierne_square square_of(int n) {
    static int ranks[MOST];
    for (int i = 0; i < n; i++) {
        ranks[i] = 3 * i + 1;
    }
    return lierne_square_of(ranks, n);
}

Test(few_peers, ranks_between_are_next_to_both_ends) {
    for (int n = 1; n <= 150; n++) {
        const lierne_square s = square_of(n);
        cr_assert_eq(lierne_square_peers(&s), n > 1 ? fewest_peers(n) : 0);
        for (int a = 0; a < n; a++) {
            int peers = 0;
            cr_assert_eq(lierne_square_place(&s, 3 * a + 1), a);
            cr_assert_eq(lierne_square_place(&s, 3 * a), -1);
            for (int b = 0; b < n; b++) {
                int over = lierne_square_stopover(&s, a, b);
                peers += a != b && over < 0;
                cr_assert(over < n, "%d ranks: %d to %d over %d", n, a, b, over);
                cr_assert(over < 0 || (lierne_square_stopover(&s, a, over) < 0 &&
                                       lierne_square_stopover(&s, over, b) < 0),
                          "%d ranks: %d to %d over %d", n, a, b, over);
            }
            cr_assert_leq(peers, lierne_square_peers(&s));
            cr_assert_lt(peers, n == 1 ? 1 : 2 * s.columns);
        }
    }
}

Test(few_peers, a_tour_meets_all_ranks_by_rows_and_columns) {
    for (int n = 1; n <= MOST; n++) {
        const lierne_square s = square_of(n);
        bool met[MOST] = {false};
        int place = 0;
        for (int i = 0; i < n && n != 3; i++) {
            int next = lierne_square_next(&s, place);
            cr_assert(next >= 0 && next < n && !met[next], "%d ranks: %d after %d", n, next, place);
            cr_assert(lierne_square_adjacent(&s, place, next), "%d ranks: %d after %d", n, next,
                      place);
            met[next] = true;
            place = next;
        }
        cr_assert_eq(place, 0);
    }
}

/* ---- a limit on a plan that moves [48, 2] f32 from shares to rows that are dealt in turn ---- */

enum { WORLD = 12, ROWS = 48 };

typedef struct limited {
    lierne_sim *sim;
    lierne_layout *layouts[2];
    lierne_redistribute_spec spec;
} limited;

/* still: nothing moves. */
static limited limited_open(bool still, int max_peers) {
    static int32_t rows[ROWS];
    const mesh dims = {.ndims = 1, .names = {"x"}, .sizes = {WORLD}};
    const int64_t shape[2] = {ROWS, 2};
    const lierne_placement shares = {.kind = LIERNE_PLACEMENT_SHARD},
                           dealt = {.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis2 = -1, .rows = rows};
    limited l = {0};
    for (int i = 0; i < ROWS; i++) {
        rows[i] = i % WORLD;
    }
    assert_ok(lierne_sim_create(&l.sim, WORLD, NULL));
    l.layouts[0] = layout_over(&dims, WORLD, LIERNE_DTYPE_F32, 2, shape, &shares);
    l.layouts[1] = layout_over(&dims, WORLD, LIERNE_DTYPE_F32, 2, shape, still ? &shares : &dealt);
    l.spec = (lierne_redistribute_spec){.size = sizeof l.spec,
                                        .src = l.layouts[0],
                                        .dst = l.layouts[1],
                                        .max_peers = max_peers};
    return l;
}

static void limited_close(limited *l) {
    lierne_layout_destroy(l->layouts[0]);
    lierne_layout_destroy(l->layouts[1]);
    assert_ok(lierne_sim_destroy(l->sim));
}

static lierne_report report_of(limited *l, int rank) {
    lierne_report report = {.size = sizeof report};
    lierne_plan *plans[WORLD];
    for (int r = 0; r < WORLD; r++) {
        assert_ok(lierne_plan_create_redistribute(&plans[r], lierne_sim_get_context(l->sim, r),
                                                  &l->spec));
    }
    assert_ok(lierne_plan_check((const lierne_plan *const *)plans, WORLD));
    assert_ok(lierne_plan_get_report(&report, plans[rank], LIERNE_DIRECTION_FORWARD));
    for (int r = 0; r < WORLD; r++) {
        assert_ok(lierne_plan_destroy(plans[r]));
    }
    return report;
}

/* 12 ranks: 4 columns and 3 rows, 5 peers. */
Test(few_peers, the_report_says_what_became_of_a_limit) {
    limited l = limited_open(false, 0);
    lierne_report report = report_of(&l, 0);
    cr_assert_eq(report.most_peers, 0);
    cr_assert_eq(report.stages, 1);
    /* Rows 0 to 3 go to ranks 0 to 3; rows 0, 12, 24, 36 come from ranks 0, 3, 6, 9. */
    cr_assert_eq(report.sent_peers, 3);
    cr_assert_eq(report.received_peers, 3);
    l.spec.max_peers = 11;
    cr_assert_eq(report_of(&l, 0).most_peers, 11);
    /* Rank 1 sends to 4, 5, 6 and 7, and receives from 0, 3, 6 and 9; none has more peers. */
    l.spec.max_peers = 7;
    report = report_of(&l, 0);
    cr_assert_eq(report.most_peers, 7);
    cr_assert_eq(report.stages, 1);
    l.spec.max_peers = 6;
    report = report_of(&l, 0);
    cr_assert_eq(report.most_peers, 5);
    cr_assert_eq(report.stages, 2);
    cr_assert_eq(report.received_bytes - report.forwarded_bytes, 3 * 8);
    /* Over rank 0, in column 0 and the row of ranks 0 to 3: rank 1's row 4, rank 2's row 8. */
    cr_assert_eq(report.forwarded_bytes, 2 * 8);
    limited_close(&l);
}

static int64_t scratch_of(const limited *l) {
    const lierne_route *route;
    lierne_plan *plan;
    assert_ok(lierne_plan_create_redistribute(&plan, lierne_sim_get_context(l->sim, 0), &l->spec));
    assert_ok(lierne_plan_get_route(&route, plan, LIERNE_DIRECTION_FORWARD));
    int64_t elements = route->elements[LIERNE_BUFFER_SCRATCH];
    cr_expect_eq(route->stages.count, l->spec.max_peers ? 4 : 2);
    assert_ok(lierne_plan_destroy(plan));
    return elements;
}

/* A sum is a stage to its parts and one from them. Over rank 0 pass, in each of them, an eighth of
 * what 3 ranks have for 2: those of its row to those of its column. */
Test(few_peers, stages_use_the_memory_of_what_stops_over_again) {
    const mesh dims = {.ndims = 1, .names = {"x"}, .sizes = {WORLD}};
    const int64_t shape[2] = {ROWS, 2}, part = ROWS * 2 / WORLD;
    const lierne_placement all[2] = {{.kind = LIERNE_PLACEMENT_PARTIAL},
                                     {.kind = LIERNE_PLACEMENT_REPLICATE}};
    limited l = limited_open(true, 0);
    for (int i = 0; i < 2; i++) {
        lierne_layout_destroy(l.layouts[i]);
        l.layouts[i] = layout_over(&dims, WORLD, LIERNE_DTYPE_F32, 2, shape, &all[i]);
    }
    l.spec.src = l.layouts[0], l.spec.dst = l.layouts[1];
    l.spec.routing = LIERNE_ROUTING_DIRECT;
    int64_t direct = scratch_of(&l);
    l.spec.max_peers = 5;
    cr_expect_eq(scratch_of(&l), direct + 3 * 2 * part);
    limited_close(&l);
}

/* Tokens that stay, where segments vary, are copied while the first messages are on their way. */
Test(few_peers, what_stays_is_copied_in_the_first_stage) {
    static const int64_t cu[] = {0, 2 * WORLD};
    static const int32_t owner[] = {0};
    const lierne_segments segments = {.size = sizeof segments, .nsegments = 1, .cu_seqlens = cu};
    const lierne_packing packings[2] = {{.size = sizeof *packings},
                                        {.size = sizeof *packings, .owner = owner}};
    const lierne_placement_kind kinds[2] = {LIERNE_PLACEMENT_SEGMENT_ZIGZAG,
                                            LIERNE_PLACEMENT_SHARD_SEGMENTS};
    const mesh dims = {.ndims = 1, .names = {"x"}, .sizes = {WORLD}};
    limited l = limited_open(true, 5);
    const lierne_route *route;
    lierne_plan *plan;
    lierne_grid *grid = mesh_grid(&dims, WORLD);
    for (int i = 0; i < 2; i++) {
        lierne_layout_destroy(l.layouts[i]);
        l.layouts[i] = layout_packed(grid, &segments, &packings[i], kinds[i], 1);
    }
    l.spec.src = l.layouts[0], l.spec.dst = l.layouts[1];
    l.spec.max_segments = 1, l.spec.max_rows = 2 * WORLD;
    assert_ok(lierne_plan_create_redistribute(&plan, lierne_sim_get_context(l.sim, 0), &l.spec));
    assert_ok(lierne_plan_get_route(&route, plan, LIERNE_DIRECTION_FORWARD));
    cr_assert_eq(route->stages.count, 2);
    cr_expect(route->stages.at[0].copies.count == 2 && route->stages.at[1].copies.count == 0);
    assert_ok(lierne_plan_destroy(plan));
    lierne_grid_destroy(grid);
    limited_close(&l);
}

Test(few_peers, a_limit_changes_nothing_where_nothing_moves) {
    limited l = limited_open(true, 1);
    const lierne_report report = report_of(&l, 3);
    cr_assert_eq(report.most_peers, 0);
    cr_assert_eq(report.sent_messages, 0);
    limited_close(&l);
}

static void expect_rejected(limited *l, lierne_status wanted, const char *text) {
    for (int r = 0; r < WORLD; r++) {
        lierne_plan *plan;
        cr_assert_eq(lierne_plan_create_redistribute(&plan, lierne_sim_get_context(l->sim, r),
                                                     &l->spec),
                     wanted);
        cr_assert(strstr(lierne_last_error(), text), "rank %d: %s", r, lierne_last_error());
    }
}

Test(few_peers, a_limit_that_is_too_low_names_the_lowest) {
    size_t live = lierne_mem_live();
    limited l = limited_open(false, 4);
    expect_rejected(&l, LIERNE_ERR_UNSUPPORTED,
                    "max_peers is 4, must be at least 5 for these 12 ranks");
    l.spec.max_peers = -1;
    expect_rejected(&l, LIERNE_ERR_INVALID, "max_peers is -1, must be at least 0");
    l.spec.max_peers = 5, l.spec.shared_output = LIERNE_SHARING_FORWARD;
    expect_rejected(&l, LIERNE_ERR_UNSUPPORTED, "max_peers is 5, must be 0 where shared_output");
    limited_close(&l);
    cr_assert_eq(lierne_mem_live(), live);
}

Test(few_peers, ranks_must_give_one_limit) {
    limited l = limited_open(false, 6);
    lierne_plan *plans[2];
    assert_ok(
        lierne_plan_create_redistribute(&plans[0], lierne_sim_get_context(l.sim, 0), &l.spec));
    l.spec.max_peers = 7;
    cr_assert_eq(lierne_plan_create_redistribute(&plans[1], lierne_sim_get_context(l.sim, 1),
                                                 &l.spec),
                 LIERNE_ERR_MISMATCH);
    assert_says("max_peers");
    lierne_plan_destroy(plans[0]);
    limited_close(&l);
}

Test(few_peers, planning_without_memory_leaves_nothing) {
    limited l = limited_open(false, 5);
    lierne_status status = LIERNE_ERR_NO_MEMORY;
    size_t live = lierne_mem_live();
    for (size_t k = 1; status != LIERNE_OK; k++) {
        lierne_plan *plan = NULL;
        lierne_mem_fail_at(k);
        status = lierne_plan_create_redistribute(&plan, lierne_sim_get_context(l.sim, 5), &l.spec);
        lierne_mem_fail_at(0);
        cr_assert(status == LIERNE_OK || status == LIERNE_ERR_NO_MEMORY, "%s", lierne_last_error());
        cr_assert_eq(status == LIERNE_OK, plan != NULL);
        lierne_plan_destroy(plan);
        lierne_sim_destroy(l.sim);
        assert_ok(lierne_sim_create(&l.sim, WORLD, NULL));
        cr_assert_lt(k, 20000);
    }
    cr_assert_eq(lierne_mem_live(), live);
    limited_close(&l);
}
