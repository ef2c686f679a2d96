/* Descriptions of packed sequences that are rejected, each with its field; pairs of layouts that
 * have no common segments; aliases. */
#include "base/base.h"
#include "lierne.h"
#include "lierne/sim.h"
#include "mesh.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <string.h>

/* Three segments of 6, 3 and 7 tokens, padded for a cp of 2, as [tokens, 2]: a grid of cp x dp. */
typedef struct packed_spec {
    int64_t cu[4];
    int64_t padded[4];
    int64_t order[3];
    int64_t lead[3];
    int32_t owner[3];
    int64_t shape[2];
    lierne_segments segments;
    lierne_packing packing;
    lierne_placement placements[2];
    lierne_grid *grid;
    lierne_layout_spec spec;
} packed_spec;

static void open_spec(packed_spec *s) {
    const mesh dims = {.ndims = 2, .names = {"cp", "dp"}, .sizes = {2, 2}};
    *s = (packed_spec){.cu = {0, 6, 9, 16},
                       .padded = {0, 8, 12, 20},
                       .order = {0, 1, 2},
                       .owner = {0, 1, 0},
                       .shape = {16, 2},
                       .placements = {{.kind = LIERNE_PLACEMENT_SEGMENT_ZIGZAG},
                                      {.kind = LIERNE_PLACEMENT_SHARD_SEGMENTS}}};
    s->segments =
        (lierne_segments){.size = sizeof s->segments, .nsegments = 3, .cu_seqlens = s->cu};
    s->packing = (lierne_packing){.size = sizeof s->packing,
                                  .cu_seqlens_padded = s->padded,
                                  .owner = s->owner};
    s->grid = mesh_grid(&dims, 4);
    s->spec = (lierne_layout_spec){.size = sizeof s->spec,
                                   .grid = s->grid,
                                   .naxes = 2,
                                   .shape = s->shape,
                                   .dtype = LIERNE_DTYPE_F32,
                                   .placements = s->placements,
                                   .segments = &s->segments,
                                   .packing = &s->packing};
}

static void expect_rejected(packed_spec *s, lierne_status wanted, const char *field) {
    lierne_layout *layout;
    cr_expect_eq(lierne_layout_create(&layout, &s->spec), wanted, "%s: %s", field,
                 lierne_last_error());
    cr_expect_null(layout, "%s", field);
    expect_says(field);
    lierne_grid_destroy(s->grid);
    open_spec(s);
}

Test(packed, descriptions_that_are_rejected) {
    const lierne_status invalid = LIERNE_ERR_INVALID;
    size_t live = lierne_mem_live();
    packed_spec s;
    open_spec(&s);
    s.spec.segments = NULL, expect_rejected(&s, invalid, "segments is NULL");
    s.spec.packing = NULL, expect_rejected(&s, invalid, "packing");
    s.spec.packed_axis = 1, expect_rejected(&s, invalid, "segments");
    s.segments.nsegments = -1, expect_rejected(&s, invalid, "nsegments");
    s.segments.cu_seqlens = NULL, expect_rejected(&s, invalid, "cu_seqlens");
    s.segments.size = 0, expect_rejected(&s, invalid, "segments");
    s.packing.size = 0, expect_rejected(&s, invalid, "packing");
    s.cu[0] = 1, expect_rejected(&s, invalid, "cu_seqlens[0]");
    s.cu[2] = 5, expect_rejected(&s, invalid, "cu_seqlens[2]");
    s.cu[3] = INT64_MAX, expect_rejected(&s, LIERNE_ERR_OVERFLOW, "cu_seqlens[3]");
    s.shape[0] = 17, expect_rejected(&s, invalid, "cu_seqlens[3]");
    s.packing.align = -1, expect_rejected(&s, invalid, "align");
    s.packing.align = 4, expect_rejected(&s, invalid, "align");
    s.packing.cu_seqlens_padded = NULL, s.packing.align = INT64_MAX;
    expect_rejected(&s, LIERNE_ERR_OVERFLOW, "cu_seqlens_padded");
    s.padded[0] = 4, expect_rejected(&s, invalid, "cu_seqlens_padded[0]");
    s.padded[2] = 7, expect_rejected(&s, invalid, "cu_seqlens_padded[2]");
    s.padded[3] = INT64_MAX - 3, expect_rejected(&s, LIERNE_ERR_OVERFLOW, "cu_seqlens_padded[3]");
    s.packing.lead = s.lead, s.lead[1] = -1, expect_rejected(&s, invalid, "lead[1]");
    s.packing.lead = s.lead, s.lead[1] = 2, expect_rejected(&s, invalid, "cu_seqlens_padded[2]");
    s.packing.lead = s.lead, s.lead[2] = INT64_MAX;
    expect_rejected(&s, LIERNE_ERR_OVERFLOW, "lead[2]");
    s.packing.order = s.order, s.order[1] = 3, expect_rejected(&s, invalid, "order[1]");
    s.packing.order = s.order, s.order[2] = 0, expect_rejected(&s, invalid, "order[2]");
    s.packing.store = (lierne_packing_store)2, expect_rejected(&s, invalid, "store");
    s.packing.padding = (lierne_padding)2, expect_rejected(&s, invalid, "padding");
    s.packing.row_order = (lierne_row_order)2, expect_rejected(&s, invalid, "row_order");
    s.placements[1].kind = LIERNE_PLACEMENT_SEGMENT_SHARD;
    expect_rejected(&s, invalid, "placements[1].kind");
    s.placements[0].kind = LIERNE_PLACEMENT_SHARD_SEGMENTS;
    expect_rejected(&s, invalid, "placements[1].kind");
    s.placements[0] = (lierne_placement){.kind = LIERNE_PLACEMENT_SHARD, .counts = s.shape};
    expect_rejected(&s, invalid, "placements[0].counts");
    s.placements[0] =
        (lierne_placement){.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis2 = -1, .rows = s.owner};
    expect_rejected(&s, invalid, "placements[0].rows");
    s.packing.owner = NULL, expect_rejected(&s, invalid, "owner");
    s.owner[1] = 2, expect_rejected(&s, invalid, "owner[1]");
    s.placements[1].kind = LIERNE_PLACEMENT_REPLICATE, expect_rejected(&s, invalid, "owner");
    s.packing.row_order = LIERNE_ROW_ORDER_SEQUENCE_MAJOR;
    expect_rejected(&s, invalid, "row_order");
    s.padded[1] = 6, expect_rejected(&s, LIERNE_ERR_INDIVISIBLE, "cu_seqlens_padded[1]");
    s.placements[0].kind = LIERNE_PLACEMENT_SHARD_ZIGZAG, s.padded[3] = 19;
    expect_rejected(&s, LIERNE_ERR_INDIVISIBLE, "cu_seqlens_padded");
    s.shape[1] = (int64_t)1 << 40, s.padded[3] = (int64_t)1 << 30;
    expect_rejected(&s, LIERNE_ERR_OVERFLOW, "padded rows");
    lierne_grid_destroy(s.grid);
    cr_assert_eq(lierne_mem_live(), live);
}

static lierne_layout *make(packed_spec *s) {
    lierne_layout *layout;
    assert_ok(lierne_layout_create(&layout, &s->spec));
    return layout;
}

typedef struct packed_world {
    lierne_sim *sim;
    lierne_plan *plans[4];
} packed_world;

static void open_world(packed_world *w) {
    *w = (packed_world){0};
    assert_ok(lierne_sim_create(&w->sim, 4, NULL));
}

static lierne_status plan_rank(packed_world *w, int rank, const lierne_layout *src,
                               const lierne_layout *dst) {
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    return lierne_plan_create_redistribute(&w->plans[rank], lierne_sim_get_context(w->sim, rank),
                                           &spec);
}

static lierne_status plan_ranks(packed_world *w, const lierne_layout *src,
                                const lierne_layout *dst) {
    lierne_status status = LIERNE_OK;
    open_world(w);
    for (int r = 0; r < 4 && status == LIERNE_OK; r++) {
        status = plan_rank(w, r, src, dst);
    }
    return status;
}

static void close_world(packed_world *w) {
    for (int r = 0; r < 4; r++) {
        (void)lierne_plan_destroy(w->plans[r]);
    }
    (void)lierne_sim_destroy(w->sim);
}

Test(packed, both_sides_have_the_same_segments) {
    packed_world w;
    packed_spec s;
    open_spec(&s);
    lierne_layout *src = make(&s);
    s.cu[1] = 5;
    lierne_layout *dst = make(&s);
    cr_assert_eq(plan_ranks(&w, src, dst), LIERNE_ERR_INVALID);
    expect_says("cu_seqlens[1]");
    close_world(&w);
    lierne_layout_destroy(dst);
    s.segments.nsegments = 2, s.cu[2] = 16, s.padded[2] = 20, s.owner[1] = 0;
    dst = make(&s);
    cr_assert_eq(plan_ranks(&w, src, dst), LIERNE_ERR_INVALID);
    expect_says("nsegments");
    close_world(&w);
    lierne_layout_destroy(dst);
    lierne_layout_destroy(src);
    lierne_grid_destroy(s.grid);
}

static void expect_alias(const lierne_plan *plan, const int64_t *wanted, const char *what) {
    int64_t offset;
    for (int d = 0; d < 2; d++) {
        assert_ok(lierne_plan_get_alias(&offset, plan, (lierne_direction)d));
        cr_expect_eq(offset, wanted[d], "%s: alias at %lld", what, (long long)offset);
    }
}

/* Equal buffers are an alias, unless the call has padding to set to zero; so are those of a plan
 * that is made of it. */
Test(packed, equal_buffers_are_an_alias) {
    static const int64_t wanted[2][2] = {{-1, -1}, {0, 0}};
    for (int keep = 0; keep < 2; keep++) {
        packed_world w;
        lierne_plan *turned = NULL;
        packed_spec s;
        open_spec(&s);
        s.packing.padding = (lierne_padding)keep;
        s.packing.order = s.order, s.order[0] = 2, s.order[2] = 0;
        lierne_layout *src = make(&s);
        cr_assert_eq(plan_ranks(&w, src, src), LIERNE_OK, "%s", lierne_last_error());
        expect_alias(w.plans[0], wanted[keep], keep ? "kept padding" : "padding");
        assert_ok(lierne_plan_create_transposed(&turned, w.plans[0]));
        expect_alias(turned, wanted[keep], keep ? "turned, kept padding" : "turned, padding");
        assert_ok(lierne_plan_destroy(turned));
        close_world(&w);
        lierne_layout_destroy(src);
        lierne_grid_destroy(s.grid);
    }
}

/* A packed axis keeps its tokens when a plan's other axes change. */
Test(packed, other_axes_can_be_updated) {
    lierne_plan *plans[1];
    lierne_sim *sim;
    packed_spec s;
    open_spec(&s);
    lierne_grid_destroy(s.grid);
    const lierne_grid_spec grid = {.size = sizeof grid, .world_size = 1};
    assert_ok(lierne_grid_create(&s.grid, &grid));
    s.spec.grid = s.grid, s.packing.owner = NULL;
    lierne_layout *src = make(&s);
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = src, .dst = src};
    assert_ok(lierne_sim_create(&sim, 1, NULL));
    assert_ok(lierne_plan_create_redistribute(plans, lierne_sim_get_context(sim, 0), &spec));
    s.shape[1] = 5;
    expect_ok(lierne_plan_update_shape(plans[0], s.shape));
    s.shape[0] = 15;
    cr_expect_eq(lierne_plan_update_shape(plans[0], s.shape), LIERNE_ERR_INVALID);
    expect_ok(lierne_plan_destroy(plans[0]));
    expect_ok(lierne_sim_destroy(sim));
    lierne_layout_destroy(src);
    lierne_grid_destroy(s.grid);
}

/* Ranks that pack differently do not get a plan. */
Test(packed, ranks_that_differ_are_found) {
    static const char *const fields[] = {"dst.padded", "dst.order", "dst.owner", "dst.padding"};
    for (int k = 0; k < 4; k++) {
        lierne_status status = LIERNE_OK;
        packed_world w;
        open_world(&w);
        for (int r = 0; r < 4 && status == LIERNE_OK; r++) {
            packed_spec s;
            open_spec(&s);
            lierne_layout *src = make(&s);
            s.packing.order = s.order;
            if (r == 2) {
                s.padded[1] += 8 * (k == 0), s.padded[2] += 8 * (k == 0);
                s.padded[3] += 8 * (k == 0);
                s.order[0] = k == 1, s.order[1] = k != 1;
                s.owner[0] = k == 2;
                s.packing.padding = (lierne_padding)(k == 3);
            }
            lierne_layout *dst = make(&s);
            status = plan_rank(&w, r, src, dst);
            lierne_layout_destroy(src);
            lierne_layout_destroy(dst);
            lierne_grid_destroy(s.grid);
        }
        cr_expect_eq(status, LIERNE_ERR_MISMATCH, "%s", fields[k]);
        expect_says(fields[k]);
        close_world(&w);
    }
}

/* A plan whose segments may change: of up to 4 segments and 12 rows. */
static lierne_redistribute_spec changing(const lierne_layout *src, const lierne_layout *dst) {
    return (lierne_redistribute_spec){.size = sizeof(lierne_redistribute_spec),
                                      .src = src,
                                      .dst = dst,
                                      .max_segments = 4,
                                      .max_rows = 12};
}

Test(packed, plans_that_may_not_change_segments) {
    packed_world w;
    packed_spec s;
    open_spec(&s);
    open_world(&w);
    lierne_context *context = lierne_sim_get_context(w.sim, 0);
    lierne_layout *layout = make(&s);
    static const struct {
        int64_t segments, rows;
        lierne_routing routing;
        lierne_sharing sharing;
        bool adjoint;
        lierne_status wanted;
        const char *what;
    } bad[] = {
        {.segments = -1, .rows = 12, .wanted = LIERNE_ERR_INVALID, .what = "max_segments is -1"},
        {.segments = 4, .wanted = LIERNE_ERR_INVALID, .what = "max_rows 0"},
        {.rows = 4, .wanted = LIERNE_ERR_INVALID, .what = "max_rows 4"},
        {2, 12, .wanted = LIERNE_ERR_CAPACITY, .what = "nsegments is 3, must be at most 2"},
        {4, 7, .wanted = LIERNE_ERR_CAPACITY, .what = "has 8 rows, must be at most 7"},
        {4, 12, LIERNE_ROUTING_BALANCED, .wanted = LIERNE_ERR_UNSUPPORTED, .what = "BALANCED"},
        {4, 12, .sharing = LIERNE_SHARING_FORWARD, .wanted = LIERNE_ERR_UNSUPPORTED,
         .what = "shared_output"},
        {4, 12, .adjoint = true, .wanted = LIERNE_ERR_UNSUPPORTED, .what = "adjoint_src"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        lierne_redistribute_spec spec = changing(layout, layout);
        lierne_plan *plan;
        spec.max_segments = bad[i].segments;
        spec.max_rows = bad[i].rows;
        spec.routing = bad[i].routing;
        spec.shared_output = bad[i].sharing;
        spec.adjoint_src = spec.adjoint_dst = bad[i].adjoint ? layout : NULL;
        cr_expect_eq(lierne_plan_create_redistribute(&plan, context, &spec), bad[i].wanted, "%s",
                     bad[i].what);
        cr_expect(strstr(lierne_last_error(), bad[i].what), "%s: %s", bad[i].what,
                  lierne_last_error());
    }
    close_world(&w);
    lierne_layout_destroy(layout);
    lierne_grid_destroy(s.grid);
}

/* What is wrong with an update; the plan keeps its segments. */
typedef struct bad_update {
    packed_spec s;
    lierne_segments_update update;
} bad_update;

static void open_update(bad_update *u) {
    open_spec(&u->s);
    lierne_grid_destroy(u->s.grid);
    u->update = (lierne_segments_update){.size = sizeof u->update,
                                         .segments = &u->s.segments,
                                         .src = &u->s.packing,
                                         .dst = &u->s.packing};
}

static void expect_kept(lierne_plan *plan, bad_update *u, lierne_status wanted, const char *what) {
    int64_t in[2];
    cr_expect_eq(lierne_plan_update_segments(plan, &u->update), wanted, "%s", what);
    cr_expect(strstr(lierne_last_error(), what), "%s: %s", what, lierne_last_error());
    cr_expect_eq(lierne_plan_get_shape(NULL, in, NULL, plan, LIERNE_DIRECTION_FORWARD), LIERNE_OK);
    cr_expect_eq(in[0], 8, "%s: %d rows", what, (int)in[0]);
    open_update(u);
}

Test(packed, updates_that_are_rejected) {
    const lierne_status invalid = LIERNE_ERR_INVALID;
    static const int64_t many[6] = {0};
    packed_world w;
    packed_spec s;
    bad_update u;
    lierne_coalesced *coalesced;
    lierne_plan *other;
    open_spec(&s);
    lierne_layout *layout = make(&s);
    const lierne_redistribute_spec spec = changing(layout, layout);
    open_update(&u);
    cr_assert_eq(plan_ranks(&w, layout, layout), LIERNE_OK);
    cr_expect_eq(lierne_plan_update_segments(w.plans[0], &u.update), invalid);
    cr_expect(strstr(lierne_last_error(), "max_segments"), "%s", lierne_last_error());
    close_world(&w);
    open_world(&w);
    lierne_plan *plan = NULL;
    cr_assert_eq(lierne_plan_create_redistribute(&plan, lierne_sim_get_context(w.sim, 0), &spec),
                 LIERNE_OK, "%s", lierne_last_error());
    cr_expect_eq(lierne_plan_update_segments(NULL, &u.update), invalid);
    cr_expect_eq(lierne_plan_update_segments(plan, NULL), invalid);
    u.update.size = 0, expect_kept(plan, &u, invalid, "update");
    u.update.segments = NULL, expect_kept(plan, &u, invalid, "segments");
    u.update.src = NULL, expect_kept(plan, &u, invalid, "src is NULL");
    u.s.segments.cu_seqlens = NULL, expect_kept(plan, &u, invalid, "cu_seqlens");
    u.s.segments.nsegments = -1, expect_kept(plan, &u, invalid, "nsegments");
    u.s.segments.nsegments = 5, u.s.segments.cu_seqlens = many;
    expect_kept(plan, &u, LIERNE_ERR_CAPACITY, "nsegments is 5, must be at most 4 (max_segments)");
    u.s.padded[3] = 32, expect_kept(plan, &u, LIERNE_ERR_CAPACITY, "14 rows, must be at most 12");
    u.s.packing.store = LIERNE_PACKING_STORE_UNPADDED;
    expect_kept(plan, &u, invalid, "src: store is 1, must be 0");
    u.s.packing.padding = LIERNE_PADDING_KEEP;
    expect_kept(plan, &u, invalid, "src: padding is 1, must be 0");
    u.s.packing.row_order = LIERNE_ROW_ORDER_SEQUENCE_MAJOR;
    expect_kept(plan, &u, invalid, "src: row_order is 1, must be 0");
    u.s.owner[1] = 2, expect_kept(plan, &u, invalid, "owner[1]");
    u.s.padded[3] = 21, expect_kept(plan, &u, LIERNE_ERR_INDIVISIBLE, "cu_seqlens_padded[3]");
    /* Such a plan is executed by itself, and keeps its shape. */
    cr_expect_eq(lierne_coalesced_create(&coalesced, &plan, 1), invalid);
    cr_expect_eq(lierne_plan_create_transposed(&other, plan), invalid);
    cr_expect_eq(lierne_plan_update_shape(plan, s.shape), LIERNE_ERR_UNSUPPORTED);
    cr_expect_eq(lierne_plan_destroy(plan), LIERNE_OK);
    close_world(&w);
    lierne_layout_destroy(layout);
    lierne_grid_destroy(s.grid);
}

/* Rank 2 has another description, which a rank without data of it must notice, too. Each rank that
 * gets OK has what it asked for, and some rank gets MISMATCH. */
static void expect_noticed(const packed_spec *all, const packed_spec *one, bool src, bool dst,
                           const char *what) {
    packed_world w;
    packed_spec first;
    lierne_request *requests[4];
    float buffers[2][4][12 * 2];
    int noticed = 0;
    open_spec(&first);
    lierne_layout *layout = make(&first);
    const lierne_redistribute_spec spec = changing(layout, layout);
    const lierne_context_spec context = {.size = sizeof context, .timeout = 5};
    w = (packed_world){0};
    cr_assert_eq(lierne_sim_create(&w.sim, 4, &context), LIERNE_OK);
    for (int r = 0; r < 4; r++) {
        cr_assert_eq(lierne_plan_create_redistribute(&w.plans[r], lierne_sim_get_context(w.sim, r),
                                                     &spec),
                     LIERNE_OK);
    }
    for (int r = 0; r < 4; r++) {
        const packed_spec *s = r == 2 && one ? one : all;
        const lierne_segments_update u = {.size = sizeof u,
                                          .segments = &s->segments,
                                          .src = src ? &s->packing : &all->packing,
                                          .dst = dst ? &s->packing : &all->packing};
        cr_assert_eq(r == 2 && !one ? LIERNE_OK : lierne_plan_update_segments(w.plans[r], &u),
                     LIERNE_OK, "%s: %s", what, lierne_last_error());
    }
    for (int r = 0; r < 4; r++) {
        (void)lierne_plan_forward_begin(&requests[r], w.plans[r], buffers[1][r], buffers[0][r],
                                        NULL);
    }
    for (int r = 0; r < 4; r++) {
        lierne_status status = lierne_request_end(requests[r]);
        cr_expect(status == LIERNE_OK || status == LIERNE_ERR_MISMATCH, "%s: rank %d: %s", what, r,
                  lierne_last_error());
        noticed += status == LIERNE_ERR_MISMATCH;
    }
    cr_expect(noticed > 0, "%s is not noticed", what);
    close_world(&w);
    lierne_layout_destroy(layout);
    lierne_grid_destroy(first.grid);
}

Test(packed, ranks_with_other_segments_are_found) {
    packed_spec all, one;
    open_spec(&all);
    open_spec(&one);
    for (int dst = 0; dst < 2; dst++) {
        one.cu[1] = 5, expect_noticed(&all, &one, true, true, "a boundary");
        one.cu[1] = 6, one.padded[3] = 24, expect_noticed(&all, &one, !dst, dst, "a length");
        one.padded[3] = 20, one.packing.order = one.order, one.order[0] = 2, one.order[2] = 0;
        expect_noticed(&all, &one, !dst, dst, "an order");
        one.packing.order = NULL, one.packing.lead = one.lead, one.lead[1] = 1;
        expect_noticed(&all, &one, !dst, dst, "a lead");
        one.packing.lead = NULL, one.owner[1] = 0,
        expect_noticed(&all, &one, !dst, dst, "an owner");
        one.owner[1] = 1;
    }
    expect_noticed(&all, NULL, true, true, "a forgotten update");
    all.packing.lead = all.lead, all.lead[0] = 1;
    one.packing.lead = one.lead, one.lead[0] = 0, one.lead[1] = 1;
    expect_noticed(&all, &one, true, false, "another lead");
    all.packing.lead = one.packing.lead = NULL;
    all.packing.order = all.order, all.order[0] = 1, all.order[1] = 0;
    one.packing.order = one.order;
    expect_noticed(&all, &one, true, false, "another order");
    lierne_grid_destroy(all.grid);
    lierne_grid_destroy(one.grid);
}
