/* Specs of a redistribution that cannot be planned, ranks that disagree, and memory that runs out.
 */
#include "mesh.h"
#include "unit/expect.h"
#include "unit/redistribute_case.h"

#include "base/base.h"
#include "lierne/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { WORLD = 4 };

/* A layout of [6, 4] f32 over x2 y2, with one thing or another changed. */
typedef struct variant {
    lierne_placement x;
    lierne_placement y;
    int64_t sizes[2];
    int64_t shape[3];
    int naxes;
    int offset;
    int world;
    lierne_dtype dtype;
    uint32_t full_axes;
} variant;

static const int64_t uneven[2] = {1, 5}, other_uneven[2] = {5, 1};
static const int32_t owners[24] = {0, 1, 1, 0}, other_owners[24] = {1, 0, 1, 0};

static variant usual(void) {
    return (variant){.x = {.kind = LIERNE_PLACEMENT_SHARD, .axis = 1},
                     .y = {.kind = LIERNE_PLACEMENT_SHARD, .counts = uneven},
                     .sizes = {2, 2},
                     .shape = {6, 4, 1},
                     .naxes = 2,
                     .world = WORLD,
                     .dtype = LIERNE_DTYPE_F32};
}

static lierne_layout *make(const variant *v) {
    const lierne_placement placements[2] = {v->x, v->y};
    const mesh m = {.ndims = 2,
                    .names = {"x", "y"},
                    .sizes = {v->sizes[0], v->sizes[1]},
                    .offset = v->offset};
    lierne_grid *grid = mesh_grid(&m, v->world);
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = v->naxes,
                                     .shape = v->shape,
                                     .dtype = v->dtype,
                                     .placements = placements,
                                     .full_axes = v->full_axes};
    lierne_layout *layout;
    assert_ok(lierne_layout_create(&layout, &spec));
    lierne_grid_destroy(grid);
    return layout;
}

static void rejected_in(int world, lierne_redistribute_spec spec, lierne_status wanted,
                        const char *words) {
    lierne_sim *sim;
    lierne_plan *plan = (lierne_plan *)&spec;
    assert_ok(lierne_sim_create(&sim, world, NULL));
    cr_assert_eq(lierne_plan_create_redistribute(&plan, lierne_sim_get_context(sim, 1), &spec),
                 wanted, "%s", words);
    cr_assert_null(plan);
    assert_says(words);
    assert_ok(lierne_sim_destroy(sim));
}

static void rejected(lierne_redistribute_spec spec, lierne_status wanted, const char *words) {
    rejected_in(WORLD, spec, wanted, words);
}

Test(redistribute_reject, specs_that_are_incomplete_or_out_of_range) {
    const variant v = usual();
    lierne_layout *l = make(&v);
    const lierne_redistribute_spec good = {.size = sizeof good, .src = l, .dst = l};
    lierne_redistribute_spec s = good;
    lierne_sim *sim;
    lierne_plan *plan;
    s.size = 3, rejected(s, LIERNE_ERR_INVALID, "spec->size is 3");
    s = good, s.src = NULL, rejected(s, LIERNE_ERR_INVALID, "src is NULL");
    s = good, s.dst = NULL, rejected(s, LIERNE_ERR_INVALID, "dst is NULL");
    s = good, s.adjoint_src = l, rejected(s, LIERNE_ERR_INVALID, "adjoint_dst is NULL");
    s = good, s.adjoint_dst = l, rejected(s, LIERNE_ERR_INVALID, "adjoint_src is NULL");
    s = good, s.max_inflight = -1;
    rejected(s, LIERNE_ERR_INVALID, "max_inflight is -1, must be in 0 to 64");
    s = good, s.max_inflight = 65, rejected(s, LIERNE_ERR_INVALID, "max_inflight is 65");
    s = good, s.routing = (lierne_routing)3;
    rejected(s, LIERNE_ERR_INVALID, "routing is 3, must be in 0 to 2");
    rejected_in(WORLD + 1, good, LIERNE_ERR_INVALID, "a world of 4 ranks, the context one of 5");
    cr_assert_eq(lierne_plan_create_redistribute(&plan, NULL, &good), LIERNE_ERR_INVALID);
    assert_ok(lierne_sim_create(&sim, WORLD, NULL));
    lierne_context *context = lierne_sim_get_context(sim, 0);
    cr_assert_eq(lierne_plan_create_redistribute(NULL, context, &good), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_plan_create_redistribute(&plan, context, NULL), LIERNE_ERR_INVALID);
    cr_assert_null(plan);
    assert_ok(lierne_sim_destroy(sim));
    lierne_layout_destroy(l);
}

/* A layout in each of the places where it must be like src, and none of it fits. */
static void rejected_everywhere(const variant *v, lierne_status wanted, const char *words) {
    static const char *const names[3] = {"dst", "adjoint_src", "adjoint_dst"};
    const variant good = usual();
    lierne_layout *l = make(&good), *bad = make(v);
    for (int place = 0; place < 3; place++) {
        lierne_redistribute_spec s = {
            .size = sizeof s, .src = l, .dst = l, .adjoint_src = l, .adjoint_dst = l};
        *(const lierne_layout **[]){&s.dst, &s.adjoint_src, &s.adjoint_dst}[place] = bad;
        rejected(s, wanted, words);
        rejected(s, wanted, names[place]);
    }
    lierne_layout_destroy(l);
    lierne_layout_destroy(bad);
}

Test(redistribute_reject, layouts_of_different_tensors) {
    variant v = usual();
    v.naxes = 3;
    rejected_everywhere(&v, LIERNE_ERR_INVALID, "has 2 axes");
    v = usual(), v.shape[1] = 5;
    rejected_everywhere(&v, LIERNE_ERR_INVALID, "axis 1 has size 4");
    v = usual(), v.dtype = LIERNE_DTYPE_I32;
    rejected_everywhere(&v, LIERNE_ERR_INVALID, "has dtype f32");
    v = usual(), v.world = WORLD + 1;
    rejected_everywhere(&v, LIERNE_ERR_INVALID, "a world of 4 ranks");
}

Test(redistribute_reject, partial_at_a_destination) {
    variant v = usual();
    v.x = (lierne_placement){.kind = LIERNE_PLACEMENT_PARTIAL};
    lierne_layout *sums = make(&v);
    v = usual();
    lierne_layout *l = make(&v);
    lierne_redistribute_spec s = {.size = sizeof s, .src = l, .dst = sums};
    rejected(s, LIERNE_ERR_UNSUPPORTED, "dim 0 of dst is PARTIAL");
    s = (lierne_redistribute_spec){
        .size = sizeof s, .src = l, .dst = l, .adjoint_src = l, .adjoint_dst = sums};
    rejected(s, LIERNE_ERR_UNSUPPORTED, "dim 0 of adjoint_dst is PARTIAL");
    lierne_layout_destroy(sums);
    lierne_layout_destroy(l);
}

/* --- ranks that disagree -----------------------------------------------------------------------
 */

/* Rank 0 has the usual layouts, rank 1 another one in one place: both get MISMATCH, and the message
 * names the field. */
static void disagree(const variant *first, const variant *second, const char *field) {
    static const char *const prefixes[4] = {"src", "dst", "adjoint_src", "adjoint_dst"};
    lierne_layout *a = make(first), *b = make(second);
    for (int place = 0; place < 4; place++) {
        lierne_redistribute_spec s = {
            .size = sizeof s, .src = a, .dst = a, .adjoint_src = a, .adjoint_dst = a};
        lierne_redistribute_spec other = s;
        lierne_plan *plans[2];
        lierne_sim *sim;
        char expected[64];
        *(const lierne_layout **[]){&other.src, &other.dst, &other.adjoint_src,
                                    &other.adjoint_dst}[place] = b;
        snprintf(expected, sizeof expected, "%s.%s differs between ranks", prefixes[place], field);
        assert_ok(lierne_sim_create(&sim, WORLD, NULL));
        assert_ok(lierne_plan_create_redistribute(&plans[0], lierne_sim_get_context(sim, 0), &s));
        cr_assert_eq(lierne_plan_create_redistribute(&plans[1], lierne_sim_get_context(sim, 1),
                                                     &other),
                     LIERNE_ERR_MISMATCH, "%s", expected);
        assert_says(expected);
        cr_assert_null(plans[1]);
        lierne_plan_destroy(plans[0]);
        lierne_sim_destroy(sim);
    }
    lierne_layout_destroy(a);
    lierne_layout_destroy(b);
}

Test(redistribute_reject, layouts_that_differ_between_ranks) {
    const variant v = usual();
    variant w = v;
    w.sizes[0] = 1, disagree(&v, &w, "dim[0].size");
    w = v, w.x.kind = LIERNE_PLACEMENT_REPLICATE, disagree(&v, &w, "dim[0].kind");
    w = v, w.x.kind = LIERNE_PLACEMENT_SHARD_ZIGZAG, disagree(&v, &w, "dim[0].kind");
    w = v, w.x.axis = 0, w.y = (lierne_placement){0};
    variant u = v;
    u.y = (lierne_placement){0}, disagree(&u, &w, "dim[0].axis");
    w = v, w.y.counts = NULL, disagree(&v, &w, "dim[1].counts");
    w = v, w.y.counts = other_uneven, disagree(&v, &w, "dim[1].counts[1]");
    w = v, w.full_axes = 2, disagree(&v, &w, "full_axes");
    u = v, u.x = (lierne_placement){.kind = LIERNE_PLACEMENT_AT};
    w = u, w.x.at = 1, disagree(&u, &w, "dim[0].at");
    u = v,
    u.x = (lierne_placement){.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis2 = 1, .rows = owners};
    w = u, w.x.rows = other_owners, disagree(&u, &w, "dim[0].rows[0]");
    u.full_axes = 3, w = u, w.x.axis = 1, w.x.axis2 = 0, disagree(&u, &w, "dim[0].axis");
    u = v, u.sizes[0] = 1, w = u, w.offset = 1, disagree(&u, &w, "offset");
}

Test(redistribute_reject, specs_that_differ_between_ranks) {
    const variant v = usual();
    variant w[3] = {v, v, v};
    static const char *const fields[3] = {"naxes", "shape[1]", "dtype"};
    w[0].naxes = 3;
    w[1].shape[1] = 5;
    w[2].dtype = LIERNE_DTYPE_I32;
    for (int i = 0; i < 4; i++) {
        lierne_layout *a = make(&v), *b = make(i < 3 ? &w[i] : &v);
        const lierne_redistribute_spec s = {.size = sizeof s, .src = a, .dst = a};
        const lierne_redistribute_spec other = {.size = sizeof s,
                                                .src = b,
                                                .dst = b,
                                                .max_inflight = i == 3 ? 2 : 0};
        lierne_plan *plans[2];
        lierne_sim *sim;
        assert_ok(lierne_sim_create(&sim, WORLD, NULL));
        assert_ok(lierne_plan_create_redistribute(&plans[0], lierne_sim_get_context(sim, 0), &s));
        assert_error(lierne_plan_create_redistribute(&plans[1], lierne_sim_get_context(sim, 1),
                                                     &other),
                     LIERNE_ERR_MISMATCH, i < 3 ? fields[i] : "max_inflight");
        lierne_plan_destroy(plans[0]);
        lierne_sim_destroy(sim);
        lierne_layout_destroy(a);
        lierne_layout_destroy(b);
    }
}

/* --- memory ------------------------------------------------------------------------------------
 */

Test(redistribute_reject, running_out_of_memory_leaves_nothing) {
    redistribute_case c;
    lierne_status status = LIERNE_ERR_NO_MEMORY;
    random_redistribute(&c, 5, 8);
    lierne_layout *src = redistribute_layout(&c, CASE_SRC);
    lierne_layout *dst = redistribute_layout(&c, CASE_DST);
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    size_t k;
    for (k = 1; status != LIERNE_OK; k++) {
        lierne_sim *sim;
        lierne_plan *plan = NULL;
        size_t before = lierne_mem_live();
        cr_assert_lt(k, 10000);
        assert_ok(lierne_sim_create(&sim, 8, NULL));
        lierne_mem_fail_at(k);
        status = lierne_plan_create_redistribute(&plan, lierne_sim_get_context(sim, 2), &spec);
        lierne_mem_fail_at(0);
        cr_assert(status == LIERNE_OK || (status == LIERNE_ERR_NO_MEMORY && !plan), "%s",
                  lierne_last_error());
        lierne_plan_destroy(plan);
        lierne_sim_destroy(sim);
        cr_assert_eq(lierne_mem_live(), before, "k = %zu: leaked", k);
    }
    cr_assert_gt(k, 10);
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
}
