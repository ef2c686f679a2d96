/* LEADER: who leads, worked out by hand, and the same bits as DIRECT over pairs of disjoint grids.
 */
#include "bridge_case.h"
#include "unit/expect.h"

#include "base/base.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define SIZES(...) ((const int64_t[]){__VA_ARGS__})
#define RANKS(...) ((const int[]){__VA_ARGS__})
static const char *const usual[] = {"tp", "cp", "pp", "dp", NULL};

/* The leaders of two grids, which are freed: the query must not need them. */
static lierne_megatron_leaders *leaders_of(lierne_grid *src, lierne_grid *dst) {
    lierne_megatron_leaders *leaders;
    lierne_bridge_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    assert_ok(lierne_megatron_leaders_create(&leaders, &spec));
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
    return leaders;
}

static void expect_ranks(const int *ranks, int n, const int *expected, int wanted) {
    cr_assert_eq(n, wanted, "%d ranks, not %d", n, wanted);
    cr_assert_eq(ranks == NULL, n == 0);
    for (int i = 0; i < n; i++) {
        cr_assert_eq(ranks[i], expected[i], "place %d: rank %d, not %d", i, ranks[i], expected[i]);
    }
}

static void expect_side(const lierne_megatron_leaders *l, lierne_megatron_side side, int ndp,
                        const int *leaders, int size, const int *groups) {
    const int *ranks;
    int n, m;
    assert_ok(lierne_megatron_leaders_get_ranks(&ranks, &n, l, side));
    expect_ranks(ranks, n, leaders, ndp);
    assert_ok(lierne_megatron_leaders_get_groups(&ranks, &n, &m, l, side));
    cr_assert_eq(n, ndp);
    cr_assert_eq(m, size);
    expect_ranks(ranks, n * m, groups, ndp * size);
}

static void expect_peers(const lierne_megatron_leaders *l, int rank, int nto, const int *to,
                         int nfrom, const int *from) {
    const int *send_to, *recv_from;
    int nsends, nrecvs;
    assert_ok(lierne_megatron_leaders_get_peers(&send_to, &nsends, &recv_from, &nrecvs, l, rank));
    expect_ranks(send_to, nsends, to, nto);
    expect_ranks(recv_from, nrecvs, from, nfrom);
}

Test(megatron_leader, stages_and_an_order_with_dp_first) {
    lierne_megatron_leaders *l =
        leaders_of(grid_named(NAMES("dp", "tp", "pp"), SIZES(2, 2, 2), 4, 12),
                   grid_named(usual, SIZES(1, 1, 2, 1), 1, 12));
    const int *ranks;
    int n;
    expect_side(l, LIERNE_MEGATRON_SIDE_SRC, 2, RANKS(10, 11), 2, RANKS(8, 10, 9, 11));
    expect_side(l, LIERNE_MEGATRON_SIDE_DST, 1, RANKS(1), 1, RANKS(1));
    assert_ok(lierne_megatron_leaders_get_p2p_ranks(&ranks, &n, l));
    expect_ranks(ranks, n, RANKS(1, 10, 11), 3);
    expect_peers(l, 11, 1, RANKS(1), 0, NULL);
    expect_peers(l, 1, 0, NULL, 2, RANKS(10, 11));
    expect_peers(l, 0, 0, NULL, 0, NULL); /* in neither grid */
    lierne_megatron_leaders_destroy(l);
}

Test(megatron_leader, other_dims_are_replicas_inside_a_dp_rank) {
    lierne_megatron_leaders *l =
        leaders_of(grid_named(NAMES("tp", "ep", "dp"), SIZES(2, 2, 1), 0, 6),
                   grid_named(NAMES("tp", "dp"), SIZES(1, 2), 4, 6));
    expect_side(l, LIERNE_MEGATRON_SIDE_SRC, 1, RANKS(3), 4, RANKS(0, 1, 2, 3));
    expect_peers(l, 3, 2, RANKS(4, 5), 0, NULL);
    lierne_megatron_leaders_destroy(l);
}

Test(megatron_leader, one_rank_may_lead_both_sides_of_overlapping_grids) {
    lierne_megatron_leaders *l = leaders_of(grid_named(usual, SIZES(1, 1, 1, 2), 0, 2),
                                            grid_named(usual, SIZES(1, 1, 1, 2), 0, 2));
    const int *ranks;
    int n;
    expect_peers(l, 1, 1, RANKS(1), 1, RANKS(1));
    assert_ok(lierne_megatron_leaders_get_p2p_ranks(&ranks, &n, l));
    expect_ranks(ranks, n, RANKS(0, 1), 2);
    lierne_megatron_leaders_destroy(l);
}

static void rejected(lierne_grid *src, lierne_grid *dst, lierne_status wanted, const char *words) {
    lierne_megatron_leaders *l = (lierne_megatron_leaders *)&l;
    lierne_bridge_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    cr_assert_eq(lierne_megatron_leaders_create(&l, &spec), wanted, "%s", lierne_last_error());
    cr_assert(l == NULL);
    assert_says(words);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

Test(megatron_leader, queries_rejected) {
    size_t before = lierne_mem_live();
    rejected(grid_named(usual, SIZES(1, 3, 1, 1), 0, 6), grid_named(usual, SIZES(1, 1, 1, 1), 3, 6),
             LIERNE_ERR_UNSUPPORTED, "source cp is 3, must be 1");
    rejected(grid_named(usual, SIZES(1, 1, 1, 1), 0, 6), grid_named(usual, SIZES(1, 2, 1, 1), 3, 6),
             LIERNE_ERR_UNSUPPORTED, "destination cp is 2, must be 1");
    rejected(grid_named(NAMES("tp", "gtp_remat", "dp"), SIZES(1, 3, 1), 0, 6),
             grid_named(usual, SIZES(1, 1, 1, 2), 3, 6), LIERNE_ERR_INDIVISIBLE,
             "3 dp ranks at the source and 2 at the destination");
    rejected(grid_named(NAMES("dp"), SIZES(2), 0, 6), grid_named(usual, SIZES(1, 1, 1, 2), 3, 6),
             LIERNE_ERR_INVALID, "no dim 'tp'");
    rejected(NULL, NULL, LIERNE_ERR_INVALID, "NULL");
    cr_assert_eq(lierne_megatron_leaders_create(NULL, NULL), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_mem_live(), before);
}

Test(megatron_leader, queries_without_memory) {
    lierne_grid *src = grid_named(usual, SIZES(2, 1, 2, 2), 0, 10);
    lierne_grid *dst = grid_named(usual, SIZES(1, 1, 1, 2), 8, 10);
    lierne_bridge_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    lierne_megatron_leaders *l;
    lierne_status status;
    size_t before = lierne_mem_live(), k = 0;
    do {
        lierne_mem_fail_at(++k);
        status = lierne_megatron_leaders_create(&l, &spec);
        lierne_mem_fail_at(0);
        cr_assert(status == LIERNE_OK || (status == LIERNE_ERR_NO_MEMORY && !l));
        cr_assert(status == LIERNE_OK || lierne_mem_live() == before);
    } while (status != LIERNE_OK);
    cr_assert_gt(k, 5);
    lierne_megatron_leaders_destroy(l);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

Test(megatron_leader, arguments_of_queries) {
    lierne_megatron_leaders *l = leaders_of(grid_named(usual, SIZES(1, 1, 1, 1), 0, 2),
                                            grid_named(usual, SIZES(1, 1, 1, 1), 1, 2));
    const int *r;
    int n;
    lierne_megatron_side none = (lierne_megatron_side)2;
    cr_assert_eq(lierne_megatron_leaders_get_ranks(&r, &n, NULL, LIERNE_MEGATRON_SIDE_SRC),
                 LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_megatron_leaders_get_ranks(&r, &n, l, none), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_megatron_leaders_get_ranks(NULL, &n, l, LIERNE_MEGATRON_SIDE_SRC),
                 LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_megatron_leaders_get_groups(&r, &n, &n, l, none), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_megatron_leaders_get_groups(&r, &n, NULL, l, LIERNE_MEGATRON_SIDE_SRC),
                 LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_megatron_leaders_get_p2p_ranks(&r, NULL, l), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_megatron_leaders_get_peers(&r, &n, &r, NULL, l, 0), LIERNE_ERR_INVALID);
    lierne_megatron_leaders_destroy(l);
    lierne_megatron_leaders_destroy(NULL);
}

/* --- the algorithm ------------------------------------------------------------------------------
 */

static void run_well(const bridge_case *c, case_result *result) {
    const char *wrong = run_case(c, result);
    cr_assert(!wrong && result->status == LIERNE_OK,
              "algorithm %d, src tp %d dp %d pp %d, dst tp %d dp %d pp %d, batch axis %d: %s %s",
              (int)c->algorithm, (int)mesh_size(&c->src, "tp"), (int)mesh_size(&c->src, "dp"),
              (int)mesh_size(&c->src, "pp"), (int)mesh_size(&c->dst, "tp"),
              (int)mesh_size(&c->dst, "dp"), (int)mesh_size(&c->dst, "pp"), c->axis_b,
              wrong ? wrong : "", result->message);
}

/* Right by the model, no byte more than the bound, the same bits as DIRECT. */
static void same_as_direct(bridge_case c) {
    case_result direct, leader;
    for (int random = 0; random < 2; random++) {
        c.data = random ? FRACTIONS : SMALL_INTEGERS;
        c.algorithm = TEST_DIRECT;
        run_well(&c, &direct);
        c.algorithm = TEST_LEADER;
        run_well(&c, &leader);
        cr_assert_eq(leader.received, leader.minimum);
        cr_assert_eq(leader.adjoint_received, leader.adjoint_minimum);
        cr_assert_eq(leader.minimum, direct.minimum);
        cr_assert_eq(leader.adjoint_minimum, direct.adjoint_minimum);
        cr_assert(memcmp(direct.forward, leader.forward, direct.forward_bytes) == 0);
        cr_assert(memcmp(direct.adjoint, leader.adjoint, direct.adjoint_bytes) == 0);
        free_result(&direct);
        free_result(&leader);
    }
}

static mesh side_of(int64_t tp, int64_t dp, int64_t pp, int order, int offset) {
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const char *const names[3] = {"tp", "dp", "pp"};
    const int64_t sizes[3] = {tp, dp, pp};
    mesh g = {.ndims = 4, .offset = offset};
    for (int d = 0; d < 3; d++) {
        g.names[d] = names[orders[order][d]];
        g.sizes[d] = sizes[orders[order][d]];
    }
    g.names[3] = "cp";
    g.sizes[3] = 1;
    return g;
}

static void set_axes(bridge_case *c, int i) {
    static const int axes[7][3] = {{0, 1, 2}, {1, 0, 2}, {2, 1, 0}, {0, 2, 1},
                                   {1, 2, 0}, {2, 0, 1}, {1, -1, 0}};
    c->axis_b = axes[i % 7][0];
    c->axis_s = axes[i % 7][1];
    c->axis_h = axes[i % 7][2];
    c->sequence = c->axis_s < 0 ? 1 : 3;
}

/* Either side first, with and without a gap of a rank between them. */
static int try_pair(const int64_t *src, const int64_t *dst, int number) {
    static const lierne_dtype dtypes[] = {LIERNE_DTYPE_F32, LIERNE_DTYPE_BF16, LIERNE_DTYPE_I8,
                                          LIERNE_DTYPE_F64};
    int nsrc = (int)(src[0] * src[1] * src[2]), ndst = (int)(dst[0] * dst[1] * dst[2]);
    int64_t wide = src[1] > dst[1] ? src[1] : dst[1];
    int gap = number / 2 % 2, first = number % 2;
    bridge_case c = {.world = nsrc + ndst + gap,
                     .batch = wide * (1 + number % 3),
                     .hidden = 5,
                     .dtype = dtypes[number % 4]};
    if (src[1] % dst[1] != 0 && dst[1] % src[1] != 0) {
        return 0;
    }
    c.src = side_of(src[0], src[1], src[2], number % 6, first ? ndst + gap : 0);
    c.dst = side_of(dst[0], dst[1], dst[2], number / 6 % 6, first ? 0 : nsrc + gap);
    set_axes(&c, number);
    same_as_direct(c);
    return 1;
}

Test(megatron_leader, same_bits_as_direct_on_disjoint_pairs) {
    static const int64_t shapes[][3] = {/* tp, dp, pp */
                                        {1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {4, 1, 1}, {7, 1, 1},
                                        {1, 2, 1}, {2, 2, 1}, {3, 2, 1}, {1, 3, 1}, {2, 3, 1},
                                        {1, 4, 1}, {2, 4, 1}, {1, 6, 1}, {1, 1, 2}, {2, 1, 2},
                                        {1, 2, 2}, {2, 2, 2}, {3, 2, 3}, {1, 4, 2}, {5, 1, 2}};
    enum { SHAPES = sizeof shapes / sizeof shapes[0] };
    int number = 0, pairs = 0;
    for (int s = 0; s < SHAPES; s++) {
        for (int d = 0; d < SHAPES; d++, number++) {
            pairs += try_pair(shapes[s], shapes[d], number);
        }
    }
    /* All but those of dp 2 and 3, 3 and 4, 4 and 6. */
    cr_assert_eq(pairs, 400 - 24 - 12 - 6, "%d pairs", pairs);
}

/* A spec of pairs of grids, and its plans on all ranks of a sim world. */
typedef struct world {
    lierne_sim *sim;
    lierne_plan *plans[16];
    int n;
    lierne_status status;
} world;

static void plan_world(world *w, const lierne_bridge_spec *spec) {
    w->n = lierne_grid_get_world_size(spec->src);
    w->status = lierne_sim_create(&w->sim, w->n, NULL);
    for (int r = 0; r < w->n && w->status == LIERNE_OK; r++) {
        w->status =
            test_plan_bridge(&w->plans[r], lierne_sim_get_context(w->sim, r), spec, TEST_LEADER);
    }
}

static void free_world(world *w) {
    for (int r = 0; r < w->n; r++) {
        assert_ok(lierne_plan_destroy(w->plans[r]));
    }
    assert_ok(lierne_sim_destroy(w->sim));
}

static lierne_bridge_spec spec_of(lierne_grid *src, lierne_grid *dst) {
    static const int64_t shape[3] = {4, 2, 3};
    return bridge_spec_of(src, dst, shape);
}

static void expect_reports(const world *w, lierne_direction direction, const int64_t *sent,
                           const int64_t *messages, const int64_t *stages) {
    for (int r = 0; r < w->n; r++) {
        lierne_report report = {.size = sizeof report};
        assert_ok(lierne_plan_get_report(&report, w->plans[r], direction));
        cr_assert_eq(report.sent_bytes, sent[r], "rank %d sends %lld bytes", r,
                     (long long)report.sent_bytes);
        cr_assert_eq(report.sent_messages, messages[r], "rank %d sends %lld messages", r,
                     (long long)report.sent_messages);
        cr_assert_eq(report.stages, stages[r], "rank %d has %lld stages", r,
                     (long long)report.stages);
    }
}

/* tp2 dp2 on ranks 0 to 3, tp2 dp1 on ranks 4 and 5. A sample has 24 bytes, a source dp rank has 2.
 */
Test(megatron_leader, what_each_rank_sends) {
    lierne_grid *src = grid_named(usual, SIZES(2, 1, 1, 2), 0, 6);
    lierne_grid *dst = grid_named(usual, SIZES(2, 1, 1, 1), 4, 6);
    lierne_bridge_spec spec = spec_of(src, dst);
    world w = {0};
    const int64_t groups[] = {1, 2, 1, 2, 2, 1};
    plan_world(&w, &spec);
    cr_assert_eq(w.status, LIERNE_OK, "%s", lierne_last_error());
    expect_reports(&w, LIERNE_DIRECTION_FORWARD, SIZES(0, 48, 0, 48, 96, 0),
                   SIZES(0, 1, 0, 1, 1, 0), SIZES(0, 1, 0, 1, 2, 2));
    expect_reports(&w, LIERNE_DIRECTION_ADJOINT, SIZES(0, 48, 0, 48, 96, 0),
                   SIZES(0, 1, 0, 1, 2, 0), SIZES(2, 2, 2, 2, 1, 0));
    for (int r = 0; r < 6; r++) {
        lierne_report report = {.size = sizeof report};
        lierne_plan_get_report(&report, w.plans[r], LIERNE_DIRECTION_FORWARD);
        cr_assert_eq(report.groups, groups[r], "rank %d", r);
    }
    free_world(&w);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

/* A tree over 7: rounds 0>1, then 0>2 1>3, then 0>4 1>5 2>6, counted from the leader. */
Test(megatron_leader, broadcasts_over_a_binomial_tree) {
    lierne_grid *src = grid_named(usual, SIZES(7, 1, 1, 1), 0, 8);
    lierne_grid *dst = grid_named(usual, SIZES(1, 1, 1, 1), 7, 8);
    lierne_bridge_spec spec = spec_of(src, dst);
    world w = {0};
    plan_world(&w, &spec);
    cr_assert_eq(w.status, LIERNE_OK, "%s", lierne_last_error());
    /* Rank 6 leads the source: rank 0 is the first behind it. */
    expect_reports(&w, LIERNE_DIRECTION_ADJOINT, SIZES(192, 96, 0, 0, 0, 0, 288, 96),
                   SIZES(2, 1, 0, 0, 0, 0, 3, 1), SIZES(4, 4, 4, 4, 4, 4, 4, 1));
    free_world(&w);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

static void plan_rejected(lierne_bridge_spec spec, lierne_status wanted, const char *words) {
    size_t before = lierne_mem_live();
    world w = {0};
    plan_world(&w, &spec);
    cr_assert_eq(w.status, wanted, "%s", lierne_last_error());
    assert_says(words);
    free_world(&w);
    cr_assert_eq(lierne_mem_live(), before);
}

static void grids_rejected(lierne_grid *src, lierne_grid *dst, lierne_status wanted,
                           const char *words) {
    plan_rejected(spec_of(src, dst), wanted, words);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

Test(megatron_leader, grids_that_it_is_not_defined_for) {
    grids_rejected(grid_named(usual, SIZES(2, 1, 1, 2), 0, 8),
                   grid_named(usual, SIZES(2, 1, 1, 2), 3, 8), LIERNE_ERR_UNSUPPORTED,
                   "share ranks 3 to 3, must share none");
    grids_rejected(grid_named(usual, SIZES(2, 1, 1, 2), 4, 8),
                   grid_named(usual, SIZES(5, 1, 1, 1), 0, 8), LIERNE_ERR_UNSUPPORTED,
                   "share ranks 4 to 4, must share none");
    grids_rejected(grid_named(usual, SIZES(2, 1, 1, 2), 0, 8),
                   grid_named(usual, SIZES(1, 2, 1, 2), 4, 8), LIERNE_ERR_UNSUPPORTED,
                   "destination cp is 2, must be 1");
    grids_rejected(grid_named(usual, SIZES(1, 1, 1, 3), 0, 8),
                   grid_named(usual, SIZES(1, 1, 1, 2), 4, 8), LIERNE_ERR_INDIVISIBLE,
                   "source dp 3 and destination dp 2");
    grids_rejected(grid_named(usual, SIZES(1, 1, 1, 3), 0, 8),
                   grid_named(usual, SIZES(1, 1, 1, 3), 4, 8), LIERNE_ERR_INDIVISIBLE,
                   "equal: the batch of 4 samples is not divisible by 3 dp ranks");
    grids_rejected(grid_named(usual, SIZES(2, 1, 1, 2), 0, 8),
                   grid_named(NAMES("tp", "gtp_remat", "dp"), SIZES(1, 2, 2), 4, 8),
                   LIERNE_ERR_UNSUPPORTED, "destination gtp_remat is 2, must be 1");
    grids_rejected(grid_named(NAMES("gtp_remat", "tp", "dp"), SIZES(2, 1, 2), 0, 8),
                   grid_named(usual, SIZES(2, 1, 1, 2), 4, 8), LIERNE_ERR_UNSUPPORTED,
                   "source gtp_remat is 2, must be 1");
}

Test(megatron_leader, specs_that_it_is_not_defined_for) {
    lierne_grid *src = grid_named(usual, SIZES(2, 1, 1, 2), 0, 8);
    lierne_grid *dst = grid_named(usual, SIZES(2, 1, 1, 2), 4, 8);
    lierne_bridge_spec spec = spec_of(src, dst);
    const lierne_placement placements[4] = {{.kind = LIERNE_PLACEMENT_SHARD, .axis = 1}};
    spec.gradient_owner = LIERNE_GRADIENT_OWNER_ZIGZAG;
    plan_rejected(spec, LIERNE_ERR_UNSUPPORTED, "gradient_owner is 1");
    spec = spec_of(src, dst), spec.dst_counts = SIZES(1, 3);
    plan_rejected(spec, LIERNE_ERR_UNSUPPORTED, "no counts");
    spec = spec_of(src, dst), spec.src_placements = placements;
    plan_rejected(spec, LIERNE_ERR_UNSUPPORTED, "no placements");
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

/* Megatron-LM counts gtp_remat as part of dp: a view whose dp includes it says so. */
Test(megatron_leader, a_view_joins_gtp_remat_with_dp) {
    lierne_grid *src = grid_named(usual, SIZES(2, 1, 1, 2), 0, 12);
    lierne_grid *dst = grid_named(NAMES("tp", "gtp_remat", "dp"), SIZES(2, 2, 2), 4, 12);
    lierne_view_spec view = {.size = sizeof view,
                             .name = "joined",
                             .ndims = 2,
                             .names = NAMES("tp", "dp"),
                             .sizes = SIZES(2, 4)};
    assert_ok(lierne_grid_add_view(dst, &view));
    lierne_bridge_spec spec = spec_of(src, dst);
    lierne_megatron_leaders *l;
    world w = {0};
    spec.dst_view = "joined";
    plan_world(&w, &spec);
    cr_assert_eq(w.status, LIERNE_OK, "%s", lierne_last_error());
    expect_reports(&w, LIERNE_DIRECTION_FORWARD, SIZES(0, 48, 0, 48, 24, 0, 24, 0, 24, 0, 24, 0),
                   SIZES(0, 2, 0, 2, 1, 0, 1, 0, 1, 0, 1, 0),
                   SIZES(0, 1, 0, 1, 2, 2, 2, 2, 2, 2, 2, 2));
    free_world(&w);
    assert_ok(lierne_megatron_leaders_create(&l, &spec));
    expect_peers(l, 1, 2, RANKS(4, 6), 0, NULL);
    lierne_megatron_leaders_destroy(l);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

Test(megatron_leader, planning_without_memory) {
    lierne_grid *src = grid_named(usual, SIZES(2, 1, 1, 2), 0, 6);
    lierne_grid *dst = grid_named(usual, SIZES(2, 1, 1, 1), 4, 6);
    lierne_bridge_spec spec = spec_of(src, dst);
    lierne_sim *sim;
    size_t k = 0;
    lierne_status status;
    do { /* a new world each time: a world remembers that planning failed */
        lierne_plan *plan;
        assert_ok(lierne_sim_create(&sim, 6, NULL));
        lierne_mem_fail_at(++k);
        status = test_plan_bridge(&plan, lierne_sim_get_context(sim, 1), &spec, TEST_LEADER);
        lierne_mem_fail_at(0);
        cr_assert(status == LIERNE_OK || (status == LIERNE_ERR_NO_MEMORY && !plan), "%s",
                  lierne_last_error());
        assert_ok(lierne_plan_destroy(plan));
        assert_ok(lierne_sim_destroy(sim));
    } while (status != LIERNE_OK);
    cr_assert_gt(k, 40);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
    cr_assert_eq(lierne_mem_live(), 0);
}
