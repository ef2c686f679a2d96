/* Descriptions of packed sequences that are rejected, each with its field; pairs of layouts that
 * have no common segments; aliases. */
#include "base/base.h"
#include "unit/expect.h"
#include "unit/packed_spec.h"

#include <criterion/criterion.h>
#include <string.h>

static const int64_t MOST = (int64_t)1 << 60; /* tokens */

static void expect_rejected(packed_spec *s, lierne_status wanted, const char *field) {
    lierne_layout *layout;
    cr_expect_eq(lierne_layout_create(&layout, &s->spec), wanted, "%s: %s", field,
                 lierne_last_error());
    cr_expect_null(layout, "%s", field);
    expect_says(field);
    lierne_grid_destroy(s->grid);
    packed_spec_open(s);
}

Test(packed, descriptions_that_are_rejected) {
    const lierne_status invalid = LIERNE_ERR_INVALID;
    size_t live = lierne_mem_live();
    packed_spec s;
    packed_spec_open(&s);
    s.spec.segments = NULL, expect_rejected(&s, invalid, "segments is NULL");
    s.spec.packing = NULL, expect_rejected(&s, invalid, "packing");
    s.spec.segments = NULL, s.spec.packing = NULL,
    expect_rejected(&s, invalid, "placement of dim 0");
    s.spec.packed_axis = 1, expect_rejected(&s, invalid, "segments");
    s.segments.nsegments = -1, expect_rejected(&s, invalid, "nsegments");
    s.segments.cu_seqlens = NULL, expect_rejected(&s, invalid, "cu_seqlens");
    s.segments.size = 0, expect_rejected(&s, invalid, "segments");
    s.packing.size = 0, expect_rejected(&s, invalid, "packing");
    s.cu[0] = 1, expect_rejected(&s, invalid, "cu_seqlens[0]");
    s.cu[2] = 5, expect_rejected(&s, invalid, "cu_seqlens[2]");
    s.cu[3] = INT64_MAX, expect_rejected(&s, LIERNE_ERR_OVERFLOW, "cu_seqlens[3]");
    s.cu[3] = MOST + 1, expect_rejected(&s, LIERNE_ERR_OVERFLOW, "cu_seqlens[3]");
    s.cu[3] = MOST, s.packing.cu_seqlens_padded = NULL, expect_rejected(&s, invalid, "must be 16");
    s.shape[0] = 17, expect_rejected(&s, invalid, "cu_seqlens[3]");
    /* The same where padded lengths follow from align. */
    s.packing.cu_seqlens_padded = NULL, s.cu[0] = 1, expect_rejected(&s, invalid, "cu_seqlens[0]");
    s.packing.cu_seqlens_padded = NULL, s.cu[2] = 5, expect_rejected(&s, invalid, "cu_seqlens[2]");
    s.packing.cu_seqlens_padded = NULL, s.cu[2] = INT64_MIN;
    expect_rejected(&s, invalid, "cu_seqlens[2]");
    s.packing.cu_seqlens_padded = NULL, s.cu[3] = INT64_MAX;
    expect_rejected(&s, LIERNE_ERR_OVERFLOW, "cu_seqlens[3]");
    s.packing.cu_seqlens_padded = NULL, s.packing.align = -1, expect_rejected(&s, invalid, "align");
    s.packing.cu_seqlens_padded = NULL, s.packing.align = INT64_MIN;
    expect_rejected(&s, invalid, "align is -9223372036854775808");
    s.packing.align = -1, expect_rejected(&s, invalid, "align");
    s.packing.align = 4, expect_rejected(&s, invalid, "align");
    s.packing.cu_seqlens_padded = NULL, s.packing.align = INT64_MAX;
    expect_rejected(&s, LIERNE_ERR_OVERFLOW, "cu_seqlens_padded");
    s.packing.cu_seqlens_padded = NULL, s.packing.align = INT64_MAX / 2 + 1;
    s.packing.lead = s.lead, s.lead[0] = INT64_MAX / 2;
    expect_rejected(&s, LIERNE_ERR_OVERFLOW, "segment 0 has 4611686018427387909 rows");
    s.padded[0] = 4, expect_rejected(&s, invalid, "cu_seqlens_padded[0]");
    s.padded[2] = 7, expect_rejected(&s, invalid, "cu_seqlens_padded[2]");
    s.padded[3] = INT64_MAX - 3, expect_rejected(&s, LIERNE_ERR_OVERFLOW, "cu_seqlens_padded[3]");
    s.packing.lead = s.lead, s.lead[1] = -1, expect_rejected(&s, invalid, "lead[1]");
    s.packing.lead = s.lead, s.lead[1] = 2, expect_rejected(&s, invalid, "cu_seqlens_padded[2]");
    s.packing.lead = s.lead, s.lead[1] = INT64_MAX - 3;
    expect_rejected(&s, invalid, "must leave at least 9223372036854775807");
    s.packing.lead = s.lead, s.lead[2] = INT64_MAX;
    expect_rejected(&s, LIERNE_ERR_OVERFLOW, "lead[2]");
    s.packing.order = s.order, s.order[1] = 3,
    expect_rejected(&s, invalid, "order[1] is 3, must be in 0 to 2");
    s.packing.order = s.order, s.order[2] = 0, expect_rejected(&s, invalid, "order[2]");
    s.packing.order = s.order, s.order[0] = -1, expect_rejected(&s, invalid, "order[0]");
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
    s.owner[1] = -1, expect_rejected(&s, invalid, "owner[1]");
    s.placements[1].kind = LIERNE_PLACEMENT_REPLICATE, expect_rejected(&s, invalid, "owner");
    s.packing.row_order = LIERNE_ROW_ORDER_SEQUENCE_MAJOR;
    expect_rejected(&s, invalid, "row_order");
    s.padded[1] = 6, expect_rejected(&s, LIERNE_ERR_INDIVISIBLE, "cu_seqlens_padded[1]");
    s.placements[0].kind = LIERNE_PLACEMENT_SHARD_ZIGZAG, s.padded[3] = 19;
    expect_rejected(&s, LIERNE_ERR_INDIVISIBLE, "needs rows divisible by 4, a rank's part");
    s.shape[1] = (int64_t)1 << 40, s.padded[3] = (int64_t)1 << 30;
    expect_rejected(&s, LIERNE_ERR_OVERFLOW, "padded rows");
    /* 2^60 bytes, a row of 2^42 among them for empty buffers, and a row more. */
    for (int more = 0; more < 2; more++) {
        s.placements[0].kind = LIERNE_PLACEMENT_REPLICATE;
        s.shape[1] = (int64_t)1 << 40, s.padded[3] = ((int64_t)1 << 18) - 1 + more;
        if (more) {
            expect_rejected(&s, LIERNE_ERR_OVERFLOW, "padded rows");
        } else {
            lierne_layout_destroy(packed_spec_layout(&s));
        }
    }
    lierne_grid_destroy(s.grid);
    cr_assert_eq(lierne_mem_live(), live);
}

/* What is wrong with a description, in the order in which it is checked. */
static const char *const faults[] = {"cu_seqlens[0]",
                                     "cu_seqlens[2]",
                                     "cu_seqlens[3]",
                                     "align is -1",
                                     "cu_seqlens_padded[0]",
                                     "cu_seqlens_padded[2]",
                                     "lead[1]",
                                     "cu_seqlens_padded[3] is 20",
                                     "order[1]",
                                     "placements[1].kind",
                                     "owner[1]",
                                     "row_order",
                                     "cu_seqlens_padded[1] is 6"};
enum { FAULTS = sizeof faults / sizeof *faults };

static void break_spec(packed_spec *s, int fault) {
    s->cu[0] = fault == 0 ? 1 : s->cu[0];
    s->cu[2] = fault == 1 ? 5 : s->cu[2];
    s->cu[3] = fault == 2 ? MOST + 1 : s->cu[3];
    s->packing.align = fault == 3 ? -1 : s->packing.align;
    s->padded[0] = fault == 4 ? 4 : s->padded[0];
    s->padded[2] = fault == 5 ? 7 : s->padded[2];
    s->lead[1] = fault == 6 ? -1 : s->lead[1];
    s->lead[2] = fault == 7 ? 2 : s->lead[2];
    s->order[1] = fault == 8 ? 3 : s->order[1];
    s->placements[1].kind = fault == 9 ? LIERNE_PLACEMENT_SEGMENT_SHARD : s->placements[1].kind;
    s->owner[1] = fault == 10 ? 2 : s->owner[1];
    s->packing.row_order = fault == 11 ? LIERNE_ROW_ORDER_SEQUENCE_MAJOR : s->packing.row_order;
    s->padded[1] = fault == 12 ? 6 : s->padded[1];
    s->packing.order = s->order;
    s->packing.lead = s->lead;
}

Test(packed, the_first_of_two_faults_is_reported) {
    for (int first = 0; first < FAULTS; first++) {
        for (int second = first; second < FAULTS; second++) {
            lierne_layout *layout;
            packed_spec s;
            packed_spec_open(&s);
            break_spec(&s, second);
            break_spec(&s, first);
            cr_expect_neq(lierne_layout_create(&layout, &s.spec), LIERNE_OK);
            cr_expect(strstr(lierne_last_error(), faults[first]), "%s, and %s: %s", faults[first],
                      faults[second], lierne_last_error());
            lierne_grid_destroy(s.grid);
        }
    }
}

Test(packed, both_sides_have_the_same_segments) {
    packed_world w;
    packed_spec s;
    packed_spec_open(&s);
    lierne_layout *src = packed_spec_layout(&s);
    s.cu[1] = 5;
    lierne_layout *dst = packed_spec_layout(&s);
    cr_assert_eq(packed_world_plan(&w, src, dst), LIERNE_ERR_INVALID);
    expect_says("cu_seqlens[1]");
    packed_world_close(&w);
    lierne_layout_destroy(dst);
    s.segments.nsegments = 2, s.cu[2] = 16, s.padded[2] = 20, s.owner[1] = 0;
    dst = packed_spec_layout(&s);
    cr_assert_eq(packed_world_plan(&w, src, dst), LIERNE_ERR_INVALID);
    expect_says("nsegments");
    packed_world_close(&w);
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
        packed_spec_open(&s);
        s.packing.padding = (lierne_padding)keep;
        s.packing.order = s.order, s.order[0] = 2, s.order[2] = 0;
        lierne_layout *src = packed_spec_layout(&s);
        cr_assert_eq(packed_world_plan(&w, src, src), LIERNE_OK, "%s", lierne_last_error());
        expect_alias(w.plans[0], wanted[keep], keep ? "kept padding" : "padding");
        assert_ok(lierne_plan_create_transposed(&turned, w.plans[0]));
        expect_alias(turned, wanted[keep], keep ? "turned, kept padding" : "turned, padding");
        assert_ok(lierne_plan_destroy(turned));
        packed_world_close(&w);
        lierne_layout_destroy(src);
        lierne_grid_destroy(s.grid);
    }
}

/* A packed axis keeps its tokens when a plan's other axes change. */
Test(packed, other_axes_can_be_updated) {
    lierne_plan *plans[1];
    lierne_sim *sim;
    packed_spec s;
    packed_spec_open(&s);
    lierne_grid_destroy(s.grid);
    const lierne_grid_spec grid = {.size = sizeof grid, .world_size = 1};
    assert_ok(lierne_grid_create(&s.grid, &grid));
    s.spec.grid = s.grid, s.packing.owner = NULL;
    lierne_layout *src = packed_spec_layout(&s);
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
        packed_world_open(&w);
        for (int r = 0; r < 4 && status == LIERNE_OK; r++) {
            packed_spec s;
            packed_spec_open(&s);
            lierne_layout *src = packed_spec_layout(&s);
            s.packing.order = s.order;
            if (r == 2) {
                s.padded[1] += 8 * (k == 0), s.padded[2] += 8 * (k == 0);
                s.padded[3] += 8 * (k == 0);
                s.order[0] = k == 1, s.order[1] = k != 1;
                s.owner[0] = k == 2;
                s.packing.padding = (lierne_padding)(k == 3);
            }
            lierne_layout *dst = packed_spec_layout(&s);
            status = packed_world_plan_rank(&w, r, src, dst);
            lierne_layout_destroy(src);
            lierne_layout_destroy(dst);
            lierne_grid_destroy(s.grid);
        }
        cr_expect_eq(status, LIERNE_ERR_MISMATCH, "%s", fields[k]);
        expect_says(fields[k]);
        packed_world_close(&w);
    }
}
