/* Every collective, dtype, reduction and number of ranks against its definition, both directions.
 */
#include "base/base.h"
#include "collectives.h"
#include "rank_threads.h"
#include "route_executor.h"
#include "routing.h"
#include "unit/collective_world.h"
#include "unit/expect.h"
#include "unit/ranks.h"

#include <criterion/criterion.h>
#include <string.h>

static void execute(collective_world *w, lierne_direction direction) {
    collective_run runs[COLLECTIVE_RANKS];
    int64_t wrong = 0;
    for (int r = 0; r < w->n; r++) {
        lierne_status status = collective_run_start(&runs[r], w->c, w->plans[r], r, direction);
        cr_assert_eq(status, LIERNE_OK, "%s", lierne_last_error());
    }
    for (int r = 0; r < w->n; r++) {
        cr_assert_eq(collective_run_end(&runs[r], &wrong), LIERNE_OK, "%s", lierne_last_error());
    }
    cr_expect_eq(wrong, 0, "%s: direction %d: %lld elements", collective_case_text(w->c),
                 (int)direction, (long long)wrong);
}

static void check_sizes(const collective_world *w) {
    for (int r = 0; r < w->n; r++) {
        int place = collective_case_place(w->c, r), naxes;
        int64_t in, out, in_shape[LIERNE_MAX_AXES], out_shape[LIERNE_MAX_AXES];
        assert_ok(lierne_plan_get_elements(&in, &out, w->plans[r], LIERNE_DIRECTION_FORWARD));
        cr_expect_eq(in, collective_case_in(w->c, place));
        cr_expect_eq(out, collective_case_out(w->c, place));
        assert_ok(lierne_plan_get_shape(&naxes, in_shape, out_shape, w->plans[r],
                                        LIERNE_DIRECTION_FORWARD));
        cr_expect(naxes == 1 && in_shape[0] == in && out_shape[0] == out);
    }
}

/* Without a stage that gives each rank its part before. */
static void check_one_shot(const collective_world *w) {
    for (int r = 0; r < w->n; r++) {
        lierne_report report = {.size = sizeof report};
        assert_ok(lierne_plan_get_report(&report, w->plans[r], LIERNE_DIRECTION_FORWARD));
        cr_expect_leq(report.stages, 1, "%s", collective_case_text(w->c));
    }
}

/* Twice each, because nothing of one call may be left for the next one; an all-reduce once in
 * place. */
static void run_case(const collective_case *c, int n) {
    collective_case again = *c;
    collective_world w;
    again.in_place = c->kind == ALL_REDUCE;
    collective_world_open(&w, c, n);
    check_sizes(&w);
    if (c->kind == BROADCAST && c->algorithm == LIERNE_COLLECTIVE_ALGORITHM_ONE_SHOT) {
        check_one_shot(&w);
    }
    cr_expect_eq(lierne_plan_check((const lierne_plan *const *)w.plans, n), LIERNE_OK, "%s: %s",
                 collective_case_text(c), lierne_last_error());
    for (int i = 0; i < 2; i++) {
        execute(&w, LIERNE_DIRECTION_FORWARD);
        if (collective_case_has_adjoint(c)) {
            execute(&w, LIERNE_DIRECTION_ADJOINT);
        }
        w.c = &again;
    }
    collective_world_close(&w);
}

static bool has_reduction(const collective_case *c) {
    return c->kind == REDUCE_SCATTER || c->kind == ALL_REDUCE;
}

static bool is_allowed(const collective_case *c) {
    bool integer = c->dtype >= LIERNE_DTYPE_I64,
         one = c->kind == ALL_REDUCE || c->kind == BROADCAST;
    return (c->reduction == LIERNE_REDUCTION_SUM || has_reduction(c)) &&
           !(integer && c->reduction == LIERNE_REDUCTION_AVG) && (c->even || !one) &&
           (one ? c->algorithm != LIERNE_COLLECTIVE_ALGORITHM_AUTO
                : c->algorithm == LIERNE_COLLECTIVE_ALGORITHM_AUTO);
}

/* All that a case of n ranks may be, of one kind. */
static void run_kind(collective_kind kind, int n, int max_peers) {
    for (int v = 0; v < 8 * 5 * 2 * 3; v++) {
        collective_case c = {.kind = kind,
                             .n = n,
                             .even = v % 2,
                             .dtype = (lierne_dtype)(LIERNE_DTYPE_F64 + v / 2 % 8),
                             .reduction = (lierne_reduction)(v / 16 % 5),
                             .algorithm = (lierne_collective_algorithm)(v / 80),
                             .root = v % n,
                             .max_peers = max_peers};
        collective_case_size(&c, v % 3 ? 13 : 6);
        if (is_allowed(&c)) {
            run_case(&c, n);
        }
    }
}

static void run_kinds(collective_kind kind) {
    for (int n = 1; n <= 8; n++) {
        run_kind(kind, n, 0);
    }
    cr_assert_eq(lierne_mem_live(), 0);
}

Test(collective, all_gathers) {
    run_kinds(ALL_GATHER);
}

Test(collective, reduce_scatters) {
    run_kinds(REDUCE_SCATTER);
}

Test(collective, all_reduces) {
    run_kinds(ALL_REDUCE);
}

Test(collective, broadcasts) {
    run_kinds(BROADCAST);
}

Test(collective, all_to_alls) {
    run_kinds(ALL_TO_ALL);
}

Test(collective, all_to_alls_over_few_peers) {
    static const int ranks[5] = {8, 0, 6, 3, 1};
    for (int n = 1; n <= COLLECTIVE_RANKS; n++) {
        run_kind(ALL_TO_ALL, n, n > 1 ? fewest_peers(n) : 0);
    }
    for (int v = 0; v < 8; v++) {
        collective_case c = {.kind = ALL_TO_ALL,
                             .n = 5,
                             .ranks = ranks,
                             .even = v % 2,
                             .dtype = (lierne_dtype)(LIERNE_DTYPE_F64 + v),
                             .max_peers = fewest_peers(5)};
        collective_case_size(&c, 9);
        run_case(&c, COLLECTIVE_RANKS);
    }
    cr_assert_eq(lierne_mem_live(), 0);
}

Test(collective, nothing_is_to_be_moved) {
    for (int kind = ALL_GATHER; kind < BARRIER; kind++) {
        for (int v = 0; v < 6; v++) {
            collective_case c = {.kind = (collective_kind)kind,
                                 .n = 1 + v % 3,
                                 .even = v < 3,
                                 .dtype = LIERNE_DTYPE_F64};
            c.algorithm = kind == ALL_REDUCE || kind == BROADCAST
                              ? LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT
                              : LIERNE_COLLECTIVE_ALGORITHM_AUTO;
            c.even |= kind == ALL_REDUCE || kind == BROADCAST;
            run_case(&c, c.n);
        }
    }
}

/* A list in no order; the ranks that are not in it plan, begin and end with the others. */
Test(collective, lists_of_ranks) {
    static const int ranks[4] = {5, 0, 6, 3}, same[7] = {0, 1, 2, 3, 4, 5, 6};
    for (int v = 0; v < COLLECTIVE_KINDS * 2 * 3; v++) {
        collective_case c = {.kind = (collective_kind)(v / 6),
                             .n = 4,
                             .ranks = ranks,
                             .even = v % 2,
                             .dtype = (lierne_dtype)(LIERNE_DTYPE_F64 + v % 8),
                             .algorithm = (lierne_collective_algorithm)(v / 2 % 3),
                             .root = 2};
        collective_case_size(&c, 9);
        if (is_allowed(&c) || c.kind == BARRIER) {
            run_case(&c, 7);
        }
        if (v % 2) {
            c.n = 7;
            c.ranks = same;
            collective_case_size(&c, 4);
            run_case(&c, 7);
        }
    }
    cr_assert_eq(lierne_mem_live(), 0);
}

/* Members of a context keep the numbers that they have in the world. */
Test(collective, members_of_a_larger_world) {
    static const int members[3] = {2, 5, 11};
    const lierne_context_spec spec = {.size = sizeof spec, .members = members, .nmembers = 3};
    const lierne_all_gather_spec gather = all_gather_of(1, LIERNE_DTYPE_I32);
    lierne_sim *sim;
    lierne_plan *plans[3];
    lierne_request *requests[3];
    int32_t out[3][3];
    const int32_t in[3] = {20, 50, 110};
    assert_ok(lierne_sim_create(&sim, 12, &spec));
    for (int i = 0; i < 3; i++) {
        lierne_context *context = lierne_sim_get_context(sim, members[i]);
        assert_ok(lierne_plan_create_all_gather(&plans[i], context, &gather));
    }
    for (int i = 0; i < 3; i++) {
        assert_ok(lierne_plan_forward_begin(&requests[i], plans[i], out[i], &in[i], NULL));
    }
    for (int i = 0; i < 3; i++) {
        assert_ok(lierne_request_end(requests[i]));
        cr_expect_eq(memcmp(out[i], in, sizeof in), 0);
        lierne_plan_destroy(plans[i]);
    }
    assert_ok(lierne_sim_destroy(sim));
}

/* Random floats: lierne's bits are those of an executor that reads the public routes alone. */
Test(collective, plans_are_their_public_routes) {
    for (int v = 0; v < 360; v++) {
        collective_case c = {.kind = (collective_kind)(v % 6),
                             .n = 1 + v / 6 % 6,
                             .even = v / 36 % 2,
                             .dtype = (lierne_dtype)(LIERNE_DTYPE_F64 + v / 6 % 8),
                             .reduction = (lierne_reduction)(v / 13 % 5),
                             .algorithm = (lierne_collective_algorithm)(v / 72 % 3),
                             .root = v % (1 + v / 6 % 6)};
        collective_world w;
        collective_case_size(&c, 40);
        if (!is_allowed(&c)) {
            continue;
        }
        collective_world_open(&w, &c, c.n);
        const char *fault = collective_case_has_adjoint(&c) ? route_compare(w.plans, c.n)
                                                            : route_compare_forward(w.plans, c.n);
        cr_expect(!fault, "%s: %s", collective_case_text(&c), fault);
        collective_world_close(&w);
    }
}

static int64_t random_below(uint64_t *state, int64_t bound) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(*state >> 33) % bound;
}

Test(collective, random_sizes) {
    uint64_t state = 42;
    for (int v = 0; v < 300; v++) {
        collective_case c = {.kind = (collective_kind)random_below(&state, BARRIER),
                             .n = 1 + (int)random_below(&state, 8),
                             .dtype = (lierne_dtype)(LIERNE_DTYPE_F64 + random_below(&state, 8))};
        bool one = c.kind == ALL_REDUCE || c.kind == BROADCAST;
        c.even = one || v % 2;
        c.algorithm = one ? (lierne_collective_algorithm)random_below(&state, 3) : 0;
        c.root = (int)random_below(&state, c.n);
        collective_case_size(&c, random_below(&state, 50));
        for (int i = 0; i < c.n && !c.even; i++) {
            c.counts[i] = random_below(&state, 30);
            for (int j = 0; j < c.n; j++) {
                c.pairs[i][j] = random_below(&state, 3) * random_below(&state, 12);
            }
        }
        run_case(&c, c.n);
    }
}

/* <F x, y> = <x, F* y>, with each rank's entry a variable of its own. */
static void dot_test(const collective_case *c) {
    double left = 0, right = 0;
    for (int i = 0; i < c->n; i++) {
        for (int64_t e = 0; e < collective_case_out(c, i); e++) {
            left += collective_case_forward(c, i, e) * collective_case_y(c, i, e);
        }
        for (int64_t e = 0; e < collective_case_in(c, i); e++) {
            right += collective_case_x(c, i, e) * collective_case_adjoint(c, i, e);
        }
    }
    cr_expect(left == right && left != 0, "%s: %g and %g", collective_case_text(c), left, right);
    run_case(c, c->n);
}

/* The results are those of the model, whose two directions are adjoint. */
Test(collective, the_dot_test) {
    for (int v = 0; v < BARRIER * 2 * 2; v++) {
        collective_case c = {.kind = (collective_kind)(v / 4),
                             .n = 5,
                             .even = v % 2,
                             .dtype = v / 2 % 2 ? LIERNE_DTYPE_F64 : LIERNE_DTYPE_I64,
                             .root = 3};
        c.even |= c.kind == ALL_REDUCE || c.kind == BROADCAST;
        c.reduction = has_reduction(&c) && v / 2 % 2 ? LIERNE_REDUCTION_AVG : LIERNE_REDUCTION_SUM;
        collective_case_size(&c, 12);
        dot_test(&c);
    }
}

/* The blocking calls, a thread per rank. */
typedef struct blocking {
    float in[4][5], out[2][4][5], back[2][4][5];
    lierne_status failed[4];
} blocking;

static void run_blocking(lierne_context *context, void *shared) {
    blocking *b = shared;
    int r = lierne_context_get_rank(context);
    lierne_plan *plan = NULL;
    lierne_request *request;
    const lierne_all_reduce_spec spec = {.size = sizeof spec,
                                         .count = 5,
                                         .dtype = LIERNE_DTYPE_F32,
                                         .reduction = LIERNE_REDUCTION_AVG};
    lierne_status status = lierne_plan_create_all_reduce(&plan, context, &spec);
    status = status ? status : lierne_plan_forward(plan, b->out[0][r], b->in[r], NULL);
    status = status ? status : lierne_plan_adjoint(plan, b->back[0][r], b->in[r], NULL);
    status =
        status ? status : lierne_plan_forward_begin(&request, plan, b->out[1][r], b->in[r], NULL);
    status = status ? status : lierne_request_end(request);
    status =
        status ? status : lierne_plan_adjoint_begin(&request, plan, b->back[1][r], b->in[r], NULL);
    status = status ? status : lierne_request_end(request);
    b->failed[r] = status ? status : lierne_plan_destroy(plan);
}

Test(collective, begin_and_end_are_the_blocking_call) {
    blocking b;
    memset(&b, 0xa5, sizeof b);
    for (int i = 0; i < 20; i++) {
        b.in[i / 5][i % 5] = 0.1f * (float)(i * i) - 7;
    }
    ranks_run(4, NULL, run_blocking, &b);
    for (int r = 0; r < 4; r++) {
        cr_expect_eq(b.failed[r], LIERNE_OK);
        cr_expect_eq(memcmp(b.out[0][r], b.out[1][0], sizeof b.out[0][0]), 0);
        cr_expect_eq(memcmp(b.back[0][r], b.back[1][0], sizeof b.out[0][0]), 0);
        cr_expect_eq(memcmp(b.out[0][r], b.back[0][r], sizeof b.out[0][0]), 0);
    }
    cr_expect(b.out[0][0][0] == (b.in[0][0] + b.in[1][0] + b.in[2][0] + b.in[3][0]) / 4);
}

/* Terms that cancel show the order: that of the list, on every rank and by both algorithms. */
static void check_order(lierne_collective_algorithm algorithm, const int *ranks, float wanted) {
    static const float terms[4] = {1e8f, 1, -1e8f, 1};
    const lierne_all_reduce_spec spec = {.size = sizeof spec,
                                         .ranks = ranks,
                                         .nranks = 4,
                                         .count = 9,
                                         .dtype = LIERNE_DTYPE_F32,
                                         .algorithm = algorithm};
    lierne_sim *sim;
    lierne_plan *plans[4];
    lierne_request *requests[4];
    float in[4][9], out[4][9];
    assert_ok(lierne_sim_create(&sim, 4, NULL));
    for (int r = 0; r < 4; r++) {
        lierne_context *context = lierne_sim_get_context(sim, r);
        assert_ok(lierne_plan_create_all_reduce(&plans[r], context, &spec));
        for (int e = 0; e < 9; e++) {
            in[r][e] = terms[r];
        }
    }
    for (int r = 0; r < 4; r++) {
        assert_ok(lierne_plan_forward_begin(&requests[r], plans[r], out[r], in[r], NULL));
    }
    for (int r = 0; r < 4; r++) {
        assert_ok(lierne_request_end(requests[r]));
        for (int e = 0; e < 9; e++) {
            cr_expect(out[r][e] == wanted, "rank %d, element %d: %g", r, e, (double)out[r][e]);
        }
        lierne_plan_destroy(plans[r]);
    }
    assert_ok(lierne_sim_destroy(sim));
}

Test(collective, sums_follow_the_order_of_the_list) {
    static const int ascending[4] = {0, 1, 2, 3}, pairs[4] = {0, 2, 1, 3}, last[4] = {1, 3, 0, 2};
    for (int algorithm = 1; algorithm <= 2; algorithm++) {
        check_order((lierne_collective_algorithm)algorithm, ascending, 1);
        check_order((lierne_collective_algorithm)algorithm, pairs, 2);
        check_order((lierne_collective_algorithm)algorithm, last, 0);
    }
}

/* A reduce-scatter, a barrier and an all-gather, executed together. */
Test(collective, coalesced_with_one_another) {
    static const collective_kind kinds[3] = {REDUCE_SCATTER, BARRIER, ALL_GATHER};
    enum { N = 4 };
    collective_case cases[3];
    lierne_plan *plans[N][3];
    lierne_coalesced *together[N];
    double in[N][3][64], out[N][3][64];
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, N, NULL));
    for (int p = 0; p < 3; p++) {
        cases[p] =
            (collective_case){.kind = kinds[p], .n = N, .even = p == 0, .dtype = LIERNE_DTYPE_F64};
        cases[p].reduction = p == 0 ? LIERNE_REDUCTION_AVG : LIERNE_REDUCTION_SUM;
        collective_case_size(&cases[p], 9);
    }
    memset(out, 0xa5, sizeof out);
    for (int r = 0; r < N; r++) {
        lierne_context *context = lierne_sim_get_context(sim, r);
        for (int p = 0; p < 3; p++) {
            cr_assert_eq(collective_case_plan(&plans[r][p], context, &cases[p]), LIERNE_OK);
            for (int64_t e = 0; e < collective_case_in(&cases[p], r); e++) {
                in[r][p][e] = collective_case_x(&cases[p], r, e);
            }
        }
        assert_ok(lierne_coalesced_create(&together[r], plans[r], 3));
    }
    for (int r = 0; r < N; r++) {
        assert_ok(lierne_coalesced_begin(together[r], LIERNE_DIRECTION_FORWARD,
                                         (void *[]){out[r][0], NULL, out[r][2]},
                                         (const void *[]){in[r][0], NULL, in[r][2]}, NULL));
    }
    for (int r = 0; r < N; r++) {
        assert_ok(lierne_coalesced_end(together[r], LIERNE_DIRECTION_FORWARD));
        for (int p = 0; p < 3; p++) {
            for (int64_t e = 0; e < collective_case_out(&cases[p], r); e++) {
                cr_expect(out[r][p][e] == collective_case_forward(&cases[p], r, e));
            }
        }
        lierne_coalesced_destroy(together[r]);
        for (int p = 0; p < 3; p++) {
            lierne_plan_destroy(plans[r][p]);
        }
    }
    assert_ok(lierne_sim_destroy(sim));
}

/* A reduce-scatter that averages and then an all-gather, as one plan, are the all-reduce: the same
 * bits on every rank. */
Test(collective, composed_to_an_all_reduce) {
    enum { N = 3, C = 5 };
    const lierne_reduce_scatter_spec scatter = {.size = sizeof scatter,
                                                .count = C,
                                                .dtype = LIERNE_DTYPE_F32,
                                                .reduction = LIERNE_REDUCTION_AVG};
    const lierne_all_gather_spec gather = all_gather_of(C, LIERNE_DTYPE_F32);
    const lierne_all_reduce_spec reduce = {.size = sizeof reduce,
                                           .count = N * C,
                                           .dtype = LIERNE_DTYPE_F32,
                                           .reduction = LIERNE_REDUCTION_AVG};
    lierne_plan *first[N], *second[N], *plans[2][N];
    float in[N][N * C], out[2][N][N * C];
    lierne_request *requests[N];
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, N, NULL));
    for (int r = 0; r < N; r++) {
        lierne_context *context = lierne_sim_get_context(sim, r);
        assert_ok(lierne_plan_create_reduce_scatter(&first[r], context, &scatter));
        assert_ok(lierne_plan_create_all_gather(&second[r], context, &gather));
        assert_ok(lierne_plan_create_composed(&plans[0][r], first[r], second[r]));
        assert_ok(lierne_plan_create_all_reduce(&plans[1][r], context, &reduce));
        for (int i = 0; i < N * C; i++) {
            in[r][i] = (float)(i * i + 3 * r) / 7.0f;
        }
    }
    for (int p = 0; p < 2; p++) {
        memset(out[p], 0xa5, sizeof out[p]);
        for (int r = 0; r < N; r++) {
            assert_ok(lierne_plan_forward_begin(&requests[r], plans[p][r], out[p][r], in[r], NULL));
        }
        for (int r = 0; r < N; r++) {
            assert_ok(lierne_request_end(requests[r]));
            cr_expect_eq(memcmp(out[p][r], out[0][0], sizeof out[0][0]), 0);
            lierne_plan_destroy(plans[p][r]);
        }
    }
    for (int r = 0; r < N; r++) {
        lierne_plan_destroy(first[r]);
        lierne_plan_destroy(second[r]);
    }
    assert_ok(lierne_sim_destroy(sim));
}
