/* Plans that are made again on other grids: they must do what a new plan of the same spec does. */
#include "base/base.h"
#include "lierne.h"
#include "lierne/sim.h"
#include "mesh.h"
#include "seeds.h"
#include "unit/expect.h"
#include "unit/redistribute_case.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8, SEEDS = 600, ELEMENTS = 1 << 14 };

static uint64_t state;
static int draw(int n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}

/* Whether a placement says something of each coordinate of its dim. */
static bool is_of_size(const lierne_placement *p) {
    return p->counts || p->kind == LIERNE_PLACEMENT_AT || p->kind == LIERNE_PLACEMENT_SHARD_ROWS;
}

/* Other sizes of the dims of a layout, for a world of MOST ranks or fewer. */
static int resize(case_layout *l) {
    int64_t size = 1;
    for (int d = 0; d < l->ndims; d++) {
        size *= is_of_size(&l->placements[d]) ? l->sizes[d] : 1;
    }
    for (int d = 0; d < l->ndims; d++) {
        int64_t n = 1 + draw(4);
        if (!is_of_size(&l->placements[d])) {
            l->sizes[d] = size * n <= MOST ? n : 1;
            size *= l->sizes[d];
        }
    }
    return (int)size;
}

/* The same tensor and placements in another world. */
static void change_world(redistribute_case *now, const redistribute_case *old) {
    *now = *old;
    int src = resize(&now->layouts[CASE_SRC]), dst = resize(&now->layouts[CASE_DST]);
    int most = src > dst ? src : dst;
    now->world = most + draw(MOST - most + 1);
    now->layouts[CASE_SRC].offset = draw(now->world - src + 1);
    now->layouts[CASE_DST].offset = draw(now->world - dst + 1);
}

static lierne_status recreate(lierne_plan **plan, const redistribute_case *now,
                              lierne_context *context, const lierne_plan *old) {
    lierne_grid *src = redistribute_grid(now, CASE_SRC), *dst = redistribute_grid(now, CASE_DST);
    const lierne_recreate_spec spec = {.size = sizeof spec,
                                       .src = src,
                                       .dst = dst,
                                       .src_view = now->layouts[CASE_SRC].in_view ? "other" : NULL,
                                       .dst_view = now->layouts[CASE_DST].in_view ? "other" : NULL};
    lierne_status status = lierne_plan_recreate(plan, context, old, &spec);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
    return status;
}

static void check_plans(const redistribute_case *c, lierne_plan **plans, uint64_t seed) {
    static char in[MOST][ELEMENTS * 8], out[MOST][ELEMENTS * 8];
    for (int d = 0; d < 2; d++) {
        lierne_request *requests[MOST];
        for (int r = 0; r < c->world; r++) {
            memset(out[r], 0xa5, sizeof out[r]);
            redistribute_fill(c, r, (lierne_direction)d, in[r]);
            assert_ok((d ? lierne_plan_adjoint_begin
                         : lierne_plan_forward_begin)(&requests[r], plans[r], out[r], in[r], NULL));
        }
        for (int r = 0; r < c->world; r++) {
            assert_ok(lierne_request_end(requests[r]));
            const char *wrong = redistribute_check(c, r, (lierne_direction)d, out[r]);
            cr_assert(!wrong, "seed %d: %s\n%s", (int)seed, wrong, redistribute_text(c));
        }
    }
}

/* Whether a plan of the case can be made; zigzags may not divide other dims. */
static bool can_plan(const redistribute_case *c) {
    lierne_layout *src = redistribute_layout(c, CASE_SRC), *dst = redistribute_layout(c, CASE_DST);
    bool can = src && dst;
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    return can;
}

/* Rank 0 of odd seeds has just joined: it has no old plan, and makes a new one. */
static bool run_seed(uint64_t seed) {
    redistribute_case old, now;
    lierne_plan *before[MOST] = {NULL}, *plans[MOST] = {NULL};
    lierne_sim *first, *second;
    state = seed + 5;
    random_redistribute(&old, seed, 1 + (int)(seed % MOST));
    if (old.stated_adjoint) {
        return false;
    }
    old.routing = (lierne_routing)(1 + seed % 2);
    change_world(&now, &old);
    assert_ok(lierne_sim_create(&first, old.world, NULL));
    assert_ok(lierne_sim_create(&second, now.world, NULL));
    for (int r = 0; r < old.world; r++) {
        assert_ok(redistribute_plan(&before[r], &old, lierne_sim_get_context(first, r)));
    }
    bool can = can_plan(&now);
    for (int r = 0; r < now.world && can; r++) {
        lierne_context *context = lierne_sim_get_context(second, r);
        assert_ok(r == 0 && seed % 2 ? redistribute_plan(&plans[r], &now, context)
                                     : recreate(&plans[r], &now, context, before[r % old.world]));
    }
    if (can) {
        assert_ok(lierne_sim_destroy_all(first)); /* nothing of the old plans is used */
        check_plans(&now, plans, seed);
    } else {
        cr_assert_eq(recreate(&plans[0], &now, lierne_sim_get_context(second, 0), before[0]),
                     LIERNE_ERR_INDIVISIBLE, "%s", lierne_last_error());
        cr_assert_null(plans[0]);
        assert_ok(lierne_sim_destroy_all(first));
    }
    assert_ok(lierne_sim_destroy_all(second));
    return can;
}

Test(recreate, random_layouts) {
    size_t before = lierne_mem_live();
    seed_range seeds = test_seeds(SEEDS);
    int made = 0;
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        made += run_seed(seed);
    }
    cr_assert(made > SEEDS / 2 || seeds.end - seeds.first < SEEDS, "%d", made);
    cr_assert_eq(lierne_mem_live(), before);
}

/* ---- bridges ----------------------------------------------------------------------------------
 */

enum { BATCH = 8, ROWS = 6, WIDTH = 2 };

typedef struct bridge_world {
    lierne_sim *sim;
    lierne_grid *src, *dst;
    lierne_plan *plans[MOST];
    int world;
} bridge_world;

static void open_bridges(bridge_world *w, int world, lierne_grid *src, lierne_grid *dst) {
    *w = (bridge_world){.src = src, .dst = dst, .world = world};
    assert_ok(lierne_sim_create(&w->sim, world, NULL));
}

static void close_bridges(bridge_world *w) {
    assert_ok(lierne_sim_destroy_all(w->sim));
    lierne_grid_destroy(w->src);
    lierne_grid_destroy(w->dst);
}

static lierne_bridge_spec bridge_spec(const bridge_world *w, const int64_t *shape,
                                      const int32_t *owner) {
    lierne_bridge_spec spec = LIERNE_BRIDGE_SPEC_INIT;
    spec.src = w->src;
    spec.dst = w->dst;
    spec.naxes = 3;
    spec.shape = shape;
    spec.sequence_axis = 1;
    spec.dtype = LIERNE_DTYPE_I32;
    spec.gradient_owner = owner ? LIERNE_GRADIENT_OWNER_ROWS : LIERNE_GRADIENT_OWNER_ZIGZAG;
    spec.row_owner = owner;
    spec.name = "vision";
    return spec;
}

static void run_bridges(const bridge_world *w, int32_t (*out)[ELEMENTS], lierne_direction d) {
    static int32_t in[MOST][ELEMENTS];
    lierne_request *requests[MOST];
    for (int r = 0; r < w->world; r++) {
        int64_t n, m;
        assert_ok(lierne_plan_get_elements(&n, &m, w->plans[r], d));
        cr_assert(n <= ELEMENTS && m <= ELEMENTS);
        for (int64_t i = 0; i < n; i++) {
            in[r][i] = (int32_t)(r * ELEMENTS + i + 1);
        }
        memset(out[r], 0xa5, sizeof out[r]);
        assert_ok((d ? lierne_plan_adjoint_begin
                     : lierne_plan_forward_begin)(&requests[r], w->plans[r], out[r], in[r], NULL));
    }
    for (int r = 0; r < w->world; r++) {
        assert_ok(lierne_request_end(requests[r]));
    }
}

/* Makes the plans of `old` again in a world of 6, and plans of the spec beside them. */
static void compare_bridges(const bridge_world *old, const int64_t *shape, const int32_t *owner) {
    static int32_t a[MOST][ELEMENTS], b[MOST][ELEMENTS];
    bridge_world again, anew;
    open_bridges(&again, 6, grid_of(2, 1, 3, 6), grid_of(1, 2, 3, 6));
    open_bridges(&anew, 6, grid_of(2, 1, 3, 6), grid_of(1, 2, 3, 6));
    const lierne_bridge_spec spec = bridge_spec(&anew, shape, owner);
    const lierne_recreate_spec grids = {.size = sizeof grids, .src = again.src, .dst = again.dst};
    for (int r = 0; r < 6; r++) {
        assert_ok(lierne_plan_recreate(&again.plans[r], lierne_sim_get_context(again.sim, r),
                                       old->plans[r], &grids));
        assert_ok(
            lierne_plan_create_bridge(&anew.plans[r], lierne_sim_get_context(anew.sim, r), &spec));
        cr_assert_str_eq(lierne_plan_get_name(again.plans[r]), "vision");
    }
    for (int d = 0; d < 2; d++) {
        run_bridges(&again, a, (lierne_direction)d);
        run_bridges(&anew, b, (lierne_direction)d);
        cr_assert(memcmp(a, b, sizeof a) == 0);
    }
    close_bridges(&again);
    close_bridges(&anew);
}

/* The plan again is that of the last shape and the last map. */
Test(recreate, bridges) {
    const int64_t shape[3] = {BATCH, 8, WIDTH}, next[3] = {6, 12, WIDTH};
    bridge_world w;
    open_bridges(&w, 8, grid_of(2, 1, 4, 8), grid_of(2, 2, 2, 8));
    const lierne_bridge_spec spec = bridge_spec(&w, shape, NULL);
    for (int r = 0; r < 8; r++) {
        assert_ok(lierne_plan_create_bridge(&w.plans[r], lierne_sim_get_context(w.sim, r), &spec));
    }
    compare_bridges(&w, shape, NULL);
    for (int r = 0; r < 8; r++) {
        assert_ok(lierne_plan_update_shape(w.plans[r], next));
    }
    compare_bridges(&w, next, NULL);
    close_bridges(&w);
    cr_assert_eq(lierne_mem_live(), 0);
}

Test(recreate, bridges_with_a_row_map) {
    const int64_t shape[3] = {BATCH, ROWS, WIDTH};
    int32_t owner[BATCH * ROWS], next[BATCH * ROWS];
    bridge_world w;
    for (int i = 0; i < BATCH * ROWS; i++) {
        owner[i] = i % 3 == 0;
        next[i] = i % 5 < 2;
    }
    open_bridges(&w, 8, grid_of(2, 1, 4, 8), grid_of(2, 2, 2, 8));
    const lierne_bridge_spec spec = bridge_spec(&w, shape, owner);
    for (int r = 0; r < 8; r++) {
        assert_ok(lierne_plan_create_bridge(&w.plans[r], lierne_sim_get_context(w.sim, r), &spec));
    }
    compare_bridges(&w, shape, owner);
    for (int r = 0; r < 8; r++) {
        assert_ok(lierne_plan_update_rows(w.plans[r], next));
    }
    compare_bridges(&w, shape, next);
    close_bridges(&w);
}

/* A redistribution with layouts of the adjoint: that of a bridge, which sums, and one that tp cuts
 * on the grid of src. */
static void plan_layouts(bridge_world *w, const int64_t *shape) {
    const lierne_bridge_spec spec = bridge_spec(w, shape, NULL);
    const lierne_placement cut[LIERNE_MAX_DIMS] = {{.kind = LIERNE_PLACEMENT_SHARD, .axis = 1}};
    const lierne_layout_spec halves = {.size = sizeof halves,
                                       .grid = w->src,
                                       .naxes = 3,
                                       .shape = shape,
                                       .dtype = LIERNE_DTYPE_I32,
                                       .placements = cut};
    lierne_layout *src, *dst, *gradient, *owned;
    assert_ok(lierne_layout_create_bridge(&src, &dst, &gradient, &spec));
    assert_ok(lierne_layout_create(&owned, &halves));
    const lierne_redistribute_spec r = {
        .size = sizeof r, .src = src, .dst = dst, .adjoint_src = gradient, .adjoint_dst = owned};
    for (int i = 0; i < w->world; i++) {
        assert_ok(
            lierne_plan_create_redistribute(&w->plans[i], lierne_sim_get_context(w->sim, i), &r));
    }
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_layout_destroy(gradient);
    lierne_layout_destroy(owned);
}

Test(recreate, layouts_of_the_adjoint) {
    static int32_t a[MOST][ELEMENTS], b[MOST][ELEMENTS];
    const int64_t shape[3] = {BATCH, 8, WIDTH};
    bridge_world old, again, anew;
    open_bridges(&old, 8, grid_of(2, 1, 4, 8), grid_of(2, 2, 2, 8));
    open_bridges(&again, 6, grid_of(2, 1, 3, 6), grid_of(1, 2, 3, 6));
    open_bridges(&anew, 6, grid_of(2, 1, 3, 6), grid_of(1, 2, 3, 6));
    plan_layouts(&old, shape);
    plan_layouts(&anew, shape);
    const lierne_recreate_spec grids = {.size = sizeof grids, .src = again.src, .dst = again.dst};
    for (int r = 0; r < 6; r++) {
        assert_ok(lierne_plan_recreate(&again.plans[r], lierne_sim_get_context(again.sim, r),
                                       old.plans[r], &grids));
    }
    for (int d = 0; d < 2; d++) {
        run_bridges(&again, a, (lierne_direction)d);
        run_bridges(&anew, b, (lierne_direction)d);
        cr_assert(memcmp(a, b, sizeof a) == 0);
    }
    close_bridges(&old);
    close_bridges(&again);
    close_bridges(&anew);
}

Test(recreate, in_a_group) {
    static const int rank = 0;
    const int64_t shape[3] = {2, 2, 2};
    lierne_group_spec ranks = LIERNE_GROUP_SPEC_INIT;
    lierne_group *group;
    lierne_plan *again;
    bridge_world w;
    open_bridges(&w, 1, grid_of(1, 1, 1, 1), grid_of(1, 1, 1, 1));
    lierne_context *context = lierne_sim_get_context(w.sim, 0);
    const lierne_bridge_spec spec = bridge_spec(&w, shape, NULL);
    ranks.purpose = "vision", ranks.group_size = 1, ranks.ranks = &rank;
    assert_ok(lierne_group_create(&group, context, &ranks));
    const lierne_recreate_spec grids = {.size = sizeof grids,
                                        .src = w.src,
                                        .dst = w.dst,
                                        .group = group};
    assert_ok(lierne_plan_create_bridge(&w.plans[0], context, &spec));
    assert_ok(lierne_plan_recreate(&again, context, w.plans[0], &grids));
    cr_assert_eq(lierne_group_destroy(group), LIERNE_ERR_BUSY, "a plan is in the group");
    assert_ok(lierne_plan_destroy(again));
    assert_ok(lierne_group_destroy(group));
    close_bridges(&w);
}

Test(recreate, as_many_dims_as_there_may_be) {
    const lierne_placement cut = {.kind = LIERNE_PLACEMENT_SHARD};
    const lierne_placement placements[LIERNE_MAX_DIMS] = {[1] = cut, cut, cut};
    char names[LIERNE_MAX_DIMS][2] = {""};
    const char *list[LIERNE_MAX_DIMS];
    int64_t sizes[LIERNE_MAX_DIMS], extent = 4;
    lierne_grid_spec dims = {.size = sizeof dims, .ndims = LIERNE_MAX_DIMS, .world_size = 1};
    lierne_layout_spec spec = {.size = sizeof spec,
                               .naxes = 1,
                               .shape = &extent,
                               .dtype = LIERNE_DTYPE_I32,
                               .placements = placements};
    lierne_context *self;
    lierne_grid *grid;
    lierne_layout *layout;
    lierne_plan *old, *again;
    for (int d = 0; d < LIERNE_MAX_DIMS; d++) {
        names[d][0] = (char)('a' + d), list[d] = names[d], sizes[d] = 1;
    }
    dims.names = list, dims.sizes = sizes;
    assert_ok(lierne_grid_create(&grid, &dims));
    spec.grid = grid;
    assert_ok(lierne_layout_create(&layout, &spec));
    assert_ok(lierne_context_create_self(&self, NULL));
    const lierne_redistribute_spec r = {.size = sizeof r, .src = layout, .dst = layout};
    const lierne_recreate_spec grids = {.size = sizeof grids, .src = grid, .dst = grid};
    assert_ok(lierne_plan_create_redistribute(&old, self, &r));
    assert_ok(lierne_plan_recreate(&again, self, old, &grids));
    assert_ok(lierne_plan_destroy(again));
    assert_ok(lierne_plan_destroy(old));
    assert_ok(lierne_context_destroy(self));
    lierne_layout_destroy(layout);
    lierne_grid_destroy(grid);
}

/* ---- what does not fit ------------------------------------------------------------------------
 */

static void expect_error(const lierne_plan *old, const lierne_recreate_spec *grids,
                         lierne_status status, const char *said) {
    lierne_context *self;
    lierne_plan *plan = (lierne_plan *)&plan;
    assert_ok(lierne_context_create_self(&self, NULL));
    assert_error(lierne_plan_recreate(&plan, self, old, grids), status, said);
    cr_assert_null(plan);
    assert_ok(lierne_context_destroy(self));
}

Test(recreate, what_does_not_fit_a_bridge) {
    const int64_t shape[3] = {4, 4, 1}, counts[2] = {1, 3}, sizes[3] = {1, 1, 1};
    const char *names[3] = {"dp", "cp", "tp"};
    lierne_placement placements[3] = {{0}, {0}, {0}};
    bridge_world w;
    open_bridges(&w, 2, grid_of(1, 1, 2, 2), grid_of(1, 1, 2, 2));
    lierne_bridge_spec spec = bridge_spec(&w, shape, NULL);
    spec.src_counts = counts;
    for (int r = 0; r < 2; r++) {
        assert_ok(lierne_plan_create_bridge(&w.plans[r], lierne_sim_get_context(w.sim, r), &spec));
    }
    lierne_grid *one = grid_of(1, 1, 1, 1), *turned;
    const lierne_grid_spec other = {
        .size = sizeof other, .ndims = 3, .names = names, .sizes = sizes, .world_size = 1};
    assert_ok(lierne_grid_create(&turned, &other));
    lierne_recreate_spec grids = {.size = sizeof grids, .src = one, .dst = one};
    expect_error(w.plans[0], &grids, LIERNE_ERR_INVALID,
                 "src_counts are of 2 dp ranks, the new grid has 1");
    expect_error(NULL, &grids, LIERNE_ERR_INVALID, "old is NULL");
    grids.src_view = "none";
    expect_error(w.plans[0], &grids, LIERNE_ERR_UNKNOWN_VIEW, "none");
    grids.src = NULL;
    expect_error(w.plans[0], &grids, LIERNE_ERR_INVALID, "spec->src is NULL");
    grids = (lierne_recreate_spec){.size = 3, .src = one, .dst = one};
    expect_error(w.plans[0], &grids, LIERNE_ERR_INVALID, "spec");
    grids.size = sizeof grids;
    spec.src_counts = NULL;
    spec.dst_placements = placements;
    lierne_plan *placed[2];
    for (int r = 0; r < 2; r++) {
        assert_ok(lierne_plan_create_bridge(&placed[r], lierne_sim_get_context(w.sim, r), &spec));
    }
    grids.dst = turned;
    expect_error(placed[0], &grids, LIERNE_ERR_INVALID,
                 "dst_placements are of dims that the new grid has not, or not in this order");
    lierne_grid_destroy(one);
    lierne_grid_destroy(turned);
    close_bridges(&w);
}

/* A tensor of 4 elements on ranks 0 and 1 to both of them. */
static lierne_layout *halves(const lierne_grid *grid, lierne_placement p,
                             const lierne_dense_halo *halo) {
    const int64_t shape[1] = {4};
    const lierne_placement placements[3] = {{0}, {0}, p};
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = 1,
                                     .shape = shape,
                                     .dtype = LIERNE_DTYPE_I32,
                                     .placements = placements,
                                     .nhalos = halo != NULL,
                                     .halos = halo};
    lierne_layout *layout;
    assert_ok(lierne_layout_create(&layout, &spec));
    return layout;
}

/* halo: of the destination, which has the placement, too; NULL: it is on both ranks. */
static void expect_layout_error(lierne_placement p, const lierne_dense_halo *halo,
                                lierne_status status, const char *said) {
    lierne_grid *two = grid_of(1, 1, 2, 2), *one = grid_of(1, 1, 1, 1);
    lierne_layout *src = halves(two, p, NULL),
                  *dst = halves(two, halo ? p : (lierne_placement){0}, halo);
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    const lierne_recreate_spec grids = {.size = sizeof grids, .src = one, .dst = one};
    lierne_plan *plans[2];
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, 2, NULL));
    for (int r = 0; r < 2; r++) {
        lierne_context *context = lierne_sim_get_context(sim, r);
        assert_ok(lierne_plan_create_redistribute(&plans[r], context, &spec));
    }
    expect_error(plans[0], &grids, status, said);
    assert_ok(lierne_sim_destroy_all(sim));
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_grid_destroy(two);
    lierne_grid_destroy(one);
}

Test(recreate, what_does_not_fit_a_layout) {
    const int64_t counts[2] = {1, 3};
    const int32_t rows[4] = {0, 1, 1, 0};
    const int64_t starts[2] = {0, 1}, ends[2] = {3, 4};
    const lierne_dense_halo windows = {.starts = starts, .ends = ends};
    expect_layout_error((lierne_placement){.kind = LIERNE_PLACEMENT_SHARD, .counts = counts}, NULL,
                        LIERNE_ERR_INVALID,
                        "dim 2 of src has counts for 2 coordinates, the new grid has 1");
    expect_layout_error((lierne_placement){.kind = LIERNE_PLACEMENT_AT, .at = 1}, NULL,
                        LIERNE_ERR_INVALID, "placement of dim 2 has at 1, must be in 0 to 0");
    expect_layout_error((lierne_placement){.kind = LIERNE_PLACEMENT_SHARD_ROWS,
                                           .axis2 = -1,
                                           .rows = rows},
                        NULL, LIERNE_ERR_INVALID, "row 1 has owner 1, must be in 0 to 0");
    expect_layout_error((lierne_placement){.kind = LIERNE_PLACEMENT_SHARD}, &windows,
                        LIERNE_ERR_INVALID,
                        "dim 2 of dst has windows for 2 coordinates, the new grid has 1");
}

Test(recreate, other_kinds) {
    lierne_context *self;
    lierne_plan *plan;
    lierne_grid *one = grid_of(1, 1, 1, 1);
    const lierne_recreate_spec grids = {.size = sizeof grids, .src = one, .dst = one};
    const lierne_barrier_spec spec = {.size = sizeof spec};
    assert_ok(lierne_context_create_self(&self, NULL));
    assert_ok(lierne_plan_create_barrier(&plan, self, &spec));
    expect_error(plan, &grids, LIERNE_ERR_UNSUPPORTED,
                 "the plan's kind is barrier, must be bridge or redistribute");
    assert_ok(lierne_plan_destroy(plan));
    assert_ok(lierne_context_destroy(self));
    lierne_grid_destroy(one);
}
