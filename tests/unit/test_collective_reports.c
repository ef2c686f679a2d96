/* What collectives report: bytes against the bound, and the algorithm that ranks, bytes or the
 * environment choose; and a barrier, which holds until all have begun. */
#include "unit/collective_world.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Nobody is through before the last one has begun. */
static void check_barrier(int n, int late) {
    collective_case c = {.kind = BARRIER, .n = n, .dtype = LIERNE_DTYPE_F64};
    lierne_request *requests[COLLECTIVE_RANKS];
    collective_world w;
    int done;
    collective_world_open(&w, &c, n);
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < n; i++) {
            int r = (late + 1 + i) % n;
            for (int k = 0; k < i * 20 * n; k++) {
                int tested = (late + 1 + k % i) % n;
                assert_ok(lierne_request_test(&done, requests[tested]));
                cr_assert_eq(done, 0, "%d ranks, %d late: rank %d is through", n, late, tested);
            }
            lierne_status status =
                (d ? lierne_plan_adjoint_begin
                   : lierne_plan_forward_begin)(&requests[r], w.plans[r], NULL, NULL, NULL);
            cr_assert_eq(status, LIERNE_OK, "%s", lierne_last_error());
        }
        for (int r = 0; r < n; r++) {
            assert_ok(lierne_request_end(requests[r]));
        }
    }
    collective_world_close(&w);
}

Test(collective, a_barrier_holds_until_all_have_begun) {
    for (int n = 1; n <= 8; n++) {
        for (int late = 0; late < n; late++) {
            check_barrier(n, late);
        }
    }
}
static lierne_report report_of(const lierne_plan *plan, lierne_direction direction) {
    lierne_report report = {.size = sizeof report};
    assert_ok(lierne_plan_get_report(&report, plan, direction));
    return report;
}

static void check_report(collective_case c, const char *algorithm, int64_t sent, int64_t received,
                         int64_t least) {
    collective_world w;
    collective_case_size(&c, 10);
    collective_world_open(&w, &c, 4);
    lierne_report report = report_of(w.plans[1], LIERNE_DIRECTION_FORWARD);
    cr_expect_str_eq(report.algorithm, algorithm);
    cr_expect(report.sent_bytes == sent && report.received_bytes == received &&
                  report.min_bytes == least,
              "%s: %lld, %lld, %lld", collective_case_text(&c), (long long)report.sent_bytes,
              (long long)report.received_bytes, (long long)report.min_bytes);
    collective_world_close(&w);
}

/* A rank that takes no part needs nothing, and moves nothing. */
Test(collective, reports_of_absent_ranks) {
    static const int ranks[] = {0, 1, 2};
    collective_case c = {
        .kind = ALL_GATHER, .n = 3, .ranks = ranks, .even = true, .dtype = LIERNE_DTYPE_F32};
    collective_world w;
    collective_case_size(&c, 10);
    collective_world_open(&w, &c, 4);
    for (int d = 0; d < 2; d++) {
        lierne_report report = report_of(w.plans[3], (lierne_direction)d);
        cr_expect(report.sent_bytes == 0 && report.received_bytes == 0 && report.min_bytes == 0);
    }
    collective_world_close(&w);
}

/* Rank 1 of 4, 10 elements of 4 bytes: the two-shot parts are 4, 4, 2 and 0. */
Test(collective, reports_count_bytes) {
    collective_case c = {
        .kind = ALL_GATHER, .n = 4, .even = true, .dtype = LIERNE_DTYPE_F32, .root = 1};
    check_report(c, "direct", 120, 120, 120);
    c.kind = REDUCE_SCATTER;
    check_report(c, "direct", 120, 120, 120);
    c.kind = ALL_TO_ALL;
    check_report(c, "direct", 120, 120, 120);
    c.kind = BARRIER;
    check_report(c, "dissemination", 2, 2, 0);
    c.kind = ALL_REDUCE;
    c.algorithm = LIERNE_COLLECTIVE_ALGORITHM_ONE_SHOT;
    check_report(c, "one_shot", 120, 120, 72);
    c.algorithm = LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT;
    check_report(c, "two_shot", 24 + 48, 48 + 24, 72);
    c.kind = BROADCAST;
    check_report(c, "two_shot", 16 + 8 + 48, 0, 0);
    c.algorithm = LIERNE_COLLECTIVE_ALGORITHM_ONE_SHOT;
    check_report(c, "one_shot", 120, 0, 0);
}

static const char *chosen(int n, int64_t count) {
    collective_case c = {.kind = ALL_REDUCE, .n = n, .even = true, .dtype = LIERNE_DTYPE_F32};
    static char name[16];
    collective_world w;
    collective_case_size(&c, count);
    collective_world_open(&w, &c, n);
    snprintf(name, sizeof name, "%s", report_of(w.plans[0], LIERNE_DIRECTION_FORWARD).algorithm);
    collective_world_close(&w);
    return name;
}

Test(collective, auto_chooses_by_ranks_and_bytes) {
    cr_expect_str_eq(chosen(2, 1 << 20), "one_shot");
    cr_expect_str_eq(chosen(8, 16), "one_shot");
    cr_expect_str_eq(chosen(8, 1 << 20), "two_shot");
    cr_expect_str_eq(chosen(4, 1 << 20), "two_shot");
}

Test(collective, the_environment_chooses_what_the_spec_leaves_open) {
    lierne_context *context;
    lierne_plan *plan;
    lierne_all_reduce_spec spec = {.size = sizeof spec, .count = 5, .dtype = LIERNE_DTYPE_F32};
    assert_ok(lierne_context_create_self(&context, NULL));
    setenv("LIERNE_COLLECTIVE", "two_shot", 1);
    cr_expect_str_eq(chosen(8, 16), "two_shot");
    setenv("LIERNE_COLLECTIVE", "one_shot", 1);
    cr_expect_str_eq(chosen(8, 1 << 20), "one_shot");
    setenv("LIERNE_COLLECTIVE", "", 1);
    cr_expect_str_eq(chosen(8, 1 << 20), "two_shot");
    setenv("LIERNE_COLLECTIVE", "three_shot", 1);
    cr_assert_eq(lierne_plan_create_all_reduce(&plan, context, &spec), LIERNE_ERR_INVALID);
    cr_expect(!plan && strstr(lierne_last_error(), "LIERNE_COLLECTIVE is 'three_shot'"), "%s",
              lierne_last_error());
    assert_ok(lierne_context_destroy(context));
}

/* lierne/route.h: copies neither reduce nor divide. */
Test(collective, one_rank_copies_its_average) {
    const lierne_reduce_scatter_spec spec = {.size = sizeof spec,
                                             .count = 5,
                                             .dtype = LIERNE_DTYPE_F32,
                                             .reduction = LIERNE_REDUCTION_AVG};
    const lierne_route *route;
    lierne_context *context;
    lierne_plan *plan;
    assert_ok(lierne_context_create_self(&context, NULL));
    assert_ok(lierne_plan_create_reduce_scatter(&plan, context, &spec));
    assert_ok(lierne_plan_get_route(&route, plan, LIERNE_DIRECTION_FORWARD));
    const lierne_stage *stage = route->stages.at;
    cr_assert(route->stages.count == 1 && stage->copies.count == 1 && stage->sums.count == 0);
    cr_expect(stage->copies.at[0].divisor == 0 && stage->copies.at[0].from.count == 1);
    assert_ok(lierne_plan_destroy(plan));
    assert_ok(lierne_context_destroy(context));
}
