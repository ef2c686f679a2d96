/* Plans of packed sequences whose segments change: specs and updates that are rejected, and ranks
 * whose updates differ. */
#include "unit/expect.h"
#include "unit/packed_spec.h"

#include <criterion/criterion.h>
#include <string.h>

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
    packed_spec_open(&s);
    packed_world_open(&w);
    lierne_context *context = lierne_sim_get_context(w.sim, 0);
    lierne_layout *layout = packed_spec_layout(&s);
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
    packed_world_close(&w);
    lierne_layout_destroy(layout);
    lierne_grid_destroy(s.grid);
}

static int64_t most_rows(const lierne_layout *layout) {
    int64_t most = 0, shape[2];
    for (int r = 0; r < 4; r++) {
        assert_ok(lierne_layout_get_shape(shape, layout, r));
        most = shape[0] > most ? shape[0] : most;
    }
    return most;
}

/* The rows of the largest buffer are enough, and one less is not. */
static void expect_capacity(packed_spec *s, const char *what) {
    packed_world w;
    lierne_plan *plan;
    lierne_layout *layout = packed_spec_layout(s);
    packed_world_open(&w);
    lierne_redistribute_spec spec = changing(layout, layout);
    spec.max_rows = most_rows(layout);
    lierne_status status =
        lierne_plan_create_redistribute(&plan, lierne_sim_get_context(w.sim, 0), &spec);
    cr_expect_eq(status, LIERNE_OK, "%s: %s", what, lierne_last_error());
    (void)lierne_plan_destroy(plan);
    packed_world_close(&w);
    packed_world_open(&w);
    spec.max_rows--;
    status = lierne_plan_create_redistribute(&plan, lierne_sim_get_context(w.sim, 0), &spec);
    cr_expect_eq(status, LIERNE_ERR_CAPACITY, "%s: %d rows are enough", what, (int)spec.max_rows);
    packed_world_close(&w);
    lierne_layout_destroy(layout);
}

Test(packed, capacity_is_the_largest_buffer) {
    static const lierne_placement cuts[] = {{.kind = LIERNE_PLACEMENT_SEGMENT_ZIGZAG},
                                            {.kind = LIERNE_PLACEMENT_SEGMENT_SHARD},
                                            {.kind = LIERNE_PLACEMENT_SEGMENT_SHARD,
                                             .share = LIERNE_SHARE_RULE_CHUNK},
                                            {.kind = LIERNE_PLACEMENT_SHARD},
                                            {.kind = LIERNE_PLACEMENT_REPLICATE}};
    packed_spec s;
    packed_spec_open(&s);
    for (int i = 0; i < 5 * 2 * 2 * 4; i++) {
        s.placements[0] = cuts[i % 5];
        s.packing.store = (lierne_packing_store)(i / 5 % 2);
        s.spec.full_axes = i / 10 % 2 ? 1u : 0u;
        s.packing.lead = i / 20 % 2 ? s.lead : NULL;
        s.lead[0] = 2, s.lead[1] = 1;
        s.owner[2] = i / 40; /* one dp rank has more segments */
        expect_capacity(&s, i / 5 % 2 ? "unpadded" : "padded");
    }
    lierne_grid_destroy(s.grid);
}

/* What is wrong with an update; the plan keeps its segments. */
typedef struct bad_update {
    packed_spec s;
    lierne_segments_update update;
} bad_update;

static void open_update(bad_update *u) {
    packed_spec_open(&u->s);
    lierne_grid_destroy(u->s.grid);
    u->update = (lierne_segments_update){.size = sizeof u->update,
                                         .segments = &u->s.segments,
                                         .src = &u->s.packing,
                                         .dst = &u->s.packing};
}

static void expect_kept(lierne_plan *plan, bad_update *u, lierne_status wanted, const char *what) {
    int64_t before[2], in[2];
    assert_ok(lierne_plan_get_shape(NULL, before, NULL, plan, LIERNE_DIRECTION_FORWARD));
    cr_expect_eq(lierne_plan_update_segments(plan, &u->update), wanted, "%s", what);
    cr_expect(strstr(lierne_last_error(), what), "%s: %s", what, lierne_last_error());
    cr_expect_eq(lierne_plan_get_shape(NULL, in, NULL, plan, LIERNE_DIRECTION_FORWARD), LIERNE_OK);
    cr_expect_eq(in[0], before[0], "%s: %d rows", what, (int)in[0]);
    open_update(u);
}

static void reject_updates(lierne_plan *plan) {
    const lierne_status invalid = LIERNE_ERR_INVALID;
    static const int64_t many[6] = {0};
    bad_update u;
    open_update(&u);
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
}

static void plan_changing(packed_world *w, const lierne_layout *layout) {
    const lierne_redistribute_spec spec = changing(layout, layout);
    packed_world_open(w);
    for (int r = 0; r < 4; r++) {
        assert_ok(lierne_plan_create_redistribute(&w->plans[r], lierne_sim_get_context(w->sim, r),
                                                  &spec));
    }
}

/* Each rank rejects alike, also those with fewer rows than others. */
Test(packed, updates_that_are_rejected) {
    packed_world w;
    packed_spec s;
    bad_update u;
    lierne_coalesced *coalesced;
    lierne_plan *other;
    packed_spec_open(&s);
    lierne_layout *layout = packed_spec_layout(&s);
    open_update(&u);
    cr_assert_eq(packed_world_plan(&w, layout, layout), LIERNE_OK);
    cr_expect_eq(lierne_plan_update_segments(w.plans[0], &u.update), LIERNE_ERR_INVALID);
    cr_expect(strstr(lierne_last_error(), "max_segments"), "%s", lierne_last_error());
    packed_world_close(&w);
    cr_expect_eq(lierne_plan_update_segments(NULL, &u.update), LIERNE_ERR_INVALID);
    plan_changing(&w, layout);
    for (int r = 0; r < 4; r++) {
        reject_updates(w.plans[r]);
    }
    /* Coalesced, such a plan may change, but not be destroyed. It keeps its shape. */
    for (int r = 0; r < 4; r++) {
        open_update(&u);
        cr_expect_eq(lierne_coalesced_create(&coalesced, &w.plans[r], 1), LIERNE_OK);
        cr_expect_eq(lierne_plan_update_segments(w.plans[r], &u.update), LIERNE_OK, "%s",
                     lierne_last_error());
        cr_expect_eq(lierne_plan_destroy(w.plans[r]), LIERNE_ERR_BUSY);
        cr_expect_eq(lierne_coalesced_destroy(coalesced), LIERNE_OK);
    }
    cr_expect_eq(lierne_plan_create_transposed(&other, w.plans[0]), LIERNE_ERR_INVALID);
    cr_expect_eq(lierne_plan_update_shape(w.plans[0], s.shape), LIERNE_ERR_UNSUPPORTED);
    packed_world_close(&w);
    lierne_layout_destroy(layout);
    lierne_grid_destroy(s.grid);
}

/* While data moves, a plan keeps its segments. */
Test(packed, updates_wait_for_calls) {
    float in[4][12 * 2], out[4][12 * 2];
    lierne_request *requests[4];
    packed_world w;
    packed_spec s;
    bad_update u;
    packed_spec_open(&s);
    lierne_layout *layout = packed_spec_layout(&s);
    memset(in, 0, sizeof in);
    open_update(&u);
    plan_changing(&w, layout);
    for (int r = 0; r < 4; r++) {
        assert_ok(lierne_plan_forward_begin(&requests[r], w.plans[r], out[r], in[r], NULL));
        expect_kept(w.plans[r], &u, LIERNE_ERR_BUSY, "in flight");
    }
    for (int r = 0; r < 4; r++) {
        assert_ok(lierne_request_end(requests[r]));
        expect_ok(lierne_plan_update_segments(w.plans[r], &u.update));
    }
    packed_world_close(&w);
    lierne_layout_destroy(layout);
    lierne_grid_destroy(s.grid);
}

/* Without an output where there is an alias, which copies nothing. */
static void move_all(packed_world *w, bool alias) {
    float in[4][12 * 2], out[4][12 * 2];
    lierne_request *requests[4];
    memset(in, 0, sizeof in);
    for (int r = 0; r < 4; r++) {
        assert_ok(lierne_plan_forward_begin(&requests[r], w->plans[r], alias ? NULL : out[r], in[r],
                                            NULL));
    }
    for (int r = 0; r < 4; r++) {
        assert_ok(lierne_request_end(requests[r]));
    }
}

/* An alias ends, and comes back, with the segments. */
Test(packed, updates_change_the_alias) {
    packed_world w;
    packed_spec s, turned;
    packed_spec_open(&s);
    packed_spec_open(&turned);
    s.packing.padding = turned.packing.padding = LIERNE_PADDING_KEEP;
    turned.packing.order = turned.order, turned.order[0] = 2, turned.order[2] = 0;
    turned.owner[1] = 0, turned.owner[0] = 1;
    lierne_layout *layout = packed_spec_layout(&s);
    plan_changing(&w, layout);
    for (int k = 0; k < 4; k++) {
        const lierne_segments_update u = {.size = sizeof u,
                                          .segments = &s.segments,
                                          .src = &s.packing,
                                          .dst = k % 2 ? &s.packing : &turned.packing};
        for (int r = 0; r < 4; r++) {
            expect_ok(lierne_plan_update_segments(w.plans[r], &u));
            for (int d = 0; d < 2; d++) {
                int64_t offset;
                assert_ok(lierne_plan_get_alias(&offset, w.plans[r], (lierne_direction)d));
                cr_expect_eq(offset, k % 2 ? 0 : -1, "update %d: %d", k, (int)offset);
            }
        }
        move_all(&w, k % 2);
    }
    packed_world_close(&w);
    lierne_layout_destroy(layout);
    lierne_grid_destroy(s.grid);
    lierne_grid_destroy(turned.grid);
}

/* A rank whose last update was rejected, which had a lead, agrees with the others afterwards. */
Test(packed, a_rejected_lead_is_forgotten) {
    packed_world w;
    packed_spec s;
    bad_update u;
    packed_spec_open(&s);
    lierne_layout *layout = packed_spec_layout(&s);
    open_update(&u);
    plan_changing(&w, layout);
    u.s.packing.lead = u.s.lead, u.s.lead[1] = 1, u.s.owner[1] = 2;
    expect_kept(w.plans[2], &u, LIERNE_ERR_INVALID, "owner[1]");
    for (int r = 0; r < 4; r++) {
        assert_ok(lierne_plan_update_segments(w.plans[r], &u.update));
    }
    move_all(&w, false);
    packed_world_close(&w);
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
    packed_spec_open(&first);
    lierne_layout *layout = packed_spec_layout(&first);
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
    packed_world_close(&w);
    lierne_layout_destroy(layout);
    lierne_grid_destroy(first.grid);
}

Test(packed, ranks_with_other_segments_are_found) {
    packed_spec all, one;
    packed_spec_open(&all);
    packed_spec_open(&one);
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

/* Two plans, each of which every rank has updated once, and rank 2 once more, to what they have. */
Test(packed, an_update_too_many_of_coalesced_plans_is_found) {
    packed_world w[2];
    packed_spec s;
    lierne_coalesced *all[4];
    float buffers[2][2][4][12 * 2];
    int noticed = 0;
    packed_spec_open(&s);
    lierne_layout *layout = packed_spec_layout(&s);
    const lierne_redistribute_spec spec = changing(layout, layout);
    const lierne_context_spec context = {.size = sizeof context, .timeout = 5};
    const lierne_segments_update u = {.size = sizeof u,
                                      .segments = &s.segments,
                                      .src = &s.packing,
                                      .dst = &s.packing};
    assert_ok(lierne_sim_create(&w[0].sim, 4, &context));
    for (int i = 0; i < 2 * 4; i++) {
        lierne_context *own = lierne_sim_get_context(w[0].sim, i % 4);
        assert_ok(lierne_plan_create_redistribute(&w[i / 4].plans[i % 4], own, &spec));
    }
    for (int r = 0; r < 4; r++) {
        lierne_plan *plans[] = {w[0].plans[r], w[1].plans[r]};
        assert_ok(lierne_coalesced_create(&all[r], plans, 2));
        for (int i = 0; i < (r == 2 ? 4 : 2); i++) {
            assert_ok(lierne_plan_update_segments(plans[i % 2], &u));
        }
    }
    for (int r = 0; r < 4; r++) {
        void *out[] = {buffers[1][0][r], buffers[1][1][r]};
        const void *in[] = {buffers[0][0][r], buffers[0][1][r]};
        (void)lierne_coalesced_begin(all[r], LIERNE_DIRECTION_FORWARD, out, in, NULL);
    }
    for (int r = 0; r < 4; r++) {
        noticed += lierne_coalesced_end(all[r], LIERNE_DIRECTION_FORWARD) == LIERNE_ERR_MISMATCH;
    }
    cr_expect_gt(noticed, 0);
    for (int r = 0; r < 4; r++) {
        (void)lierne_coalesced_destroy(all[r]);
        (void)lierne_plan_destroy(w[1].plans[r]);
    }
    packed_world_close(&w[0]);
    lierne_layout_destroy(layout);
    lierne_grid_destroy(s.grid);
}
