/* Share rules, the order of cuts and maps of one axis: by hand, and their errors. */
#include "base/base.h"
#include "layouts.h"
#include "lierne/sim.h"
#include "unit/expect.h"
#include "unit/layout_case.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* One axis of `size` over dims of `sizes`. */
static lierne_status create(lierne_layout **out, int n, const int64_t *sizes, int64_t size,
                            const lierne_placement *placements) {
    lierne_grid *g = layout_case_grid(n, sizes, 0);
    lierne_layout_spec spec = {.size = sizeof spec,
                               .grid = g,
                               .naxes = 1,
                               .shape = &size,
                               .dtype = LIERNE_DTYPE_F32,
                               .placements = placements};
    lierne_status status = lierne_layout_create(out, &spec);
    lierne_grid_destroy(g); /* a layout does without */
    return status;
}

/* The indices that each rank holds, as text: "012 34 - 5". */
static void expect(int n, const int64_t *sizes, int64_t size, const lierne_placement *placements,
                   const char *want) {
    lierne_layout *l;
    char got[256] = "";
    cr_assert_eq(create(&l, n, sizes, size, placements), LIERNE_OK, "%s", lierne_last_error());
    int nranks = 1;
    for (int d = 0; d < n; d++) {
        nranks *= (int)sizes[d];
    }
    for (int r = 0; r < nranks; r++) {
        lierne_box boxes[LAYOUT_CASE_SIZE];
        size_t count;
        assert_ok(lierne_layout_get_boxes(boxes, LAYOUT_CASE_SIZE, &count, l, r));
        for (size_t b = 0; b < count; b++) {
            for (int64_t i = 0; i < boxes[b].size[0]; i++) {
                sprintf(got + strlen(got), "%d", (int)(boxes[b].start[0] + i));
            }
        }
        strcat(got, count ? r + 1 < nranks ? " " : "" : r + 1 < nranks ? "- " : "-");
    }
    cr_assert_str_eq(got, want);
    lierne_layout_destroy(l);
}

#define CHUNK .kind = LIERNE_PLACEMENT_SHARD, .share = LIERNE_SHARE_RULE_CHUNK
#define EQUAL .kind = LIERNE_PLACEMENT_SHARD

Test(layout_cuts, share_rules) {
    const int64_t four[] = {4};
    expect(1, four, 5, &(lierne_placement){EQUAL}, "01 2 3 4");
    expect(1, four, 5, &(lierne_placement){CHUNK}, "01 23 4 -");
    expect(1, four, 9, &(lierne_placement){CHUNK}, "012 345 678 -");
    expect(1, four, 8, &(lierne_placement){CHUNK}, "01 23 45 67");
    expect(1, four, 0, &(lierne_placement){CHUNK}, "- - - -");
}

Test(layout_cuts, order_of_cuts) {
    const int64_t sizes[] = {2, 3}; /* x is the faster dim */
    expect(2, sizes, 7, (lierne_placement[]){{CHUNK}, {CHUNK}}, "01 2 34 5 6 -");
    expect(2, sizes, 7, (lierne_placement[]){{CHUNK}, {CHUNK, .cut_order = 1}}, "01 4 23 5 - 6");
    expect(2, sizes, 7, (lierne_placement[]){{CHUNK, .cut_order = 2}, {CHUNK, .cut_order = 1}},
           "01 2 34 5 6 -");
    expect(2, sizes, 7, (lierne_placement[]){{EQUAL}, {EQUAL, .cut_order = 1}}, "01 4 2 5 3 6");
    const int64_t counts[] = {5, 2};
    expect(2, sizes, 7, (lierne_placement[]){{EQUAL, .counts = counts}, {EQUAL, .cut_order = 1}},
           "01 5 23 6 4 -");
    /* Zigzag over x in four chunks of 2; what an x has is then cut over y. */
    expect(2, sizes, 8,
           (lierne_placement[]){{.kind = LIERNE_PLACEMENT_SHARD_ZIGZAG}, {EQUAL, .cut_order = 1}},
           "01 23 6 4 7 5");
}

/* A map of two axes takes nothing from the cuts, so it does not change their order either. */
Test(layout_cuts, order_of_cuts_around_a_map_of_two_axes) {
    static const int32_t rows[4] = {0};
    const int64_t sizes[] = {2, 1, 2}, shape[] = {4, 1};
    const lierne_placement placements[] = {
        {EQUAL},
        {.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis = 0, .axis2 = 1, .rows = rows},
        {EQUAL, .cut_order = 2}};
    const int64_t first[] = {0, 2, 1, 3}; /* x cuts first: x has 01 or 23, of which z takes one */
    lierne_grid *g = layout_case_grid(3, sizes, 0);
    lierne_layout *l = layout_on(g, LIERNE_DTYPE_F32, 2, shape, placements);
    cr_assert_not_null(l, "%s", lierne_last_error());
    for (int r = 0; r < 4; r++) {
        lierne_box box;
        size_t n;
        assert_ok(lierne_layout_get_boxes(&box, 1, &n, l, r));
        cr_assert(n == 1 && box.size[0] == 1);
        cr_assert_eq(box.start[0], first[r], "rank %d has %d", r, (int)box.start[0]);
    }
    lierne_layout_destroy(l);
    lierne_grid_destroy(g);
}

Test(layout_cuts, maps_of_one_axis) {
    const int64_t sizes[] = {2, 3};
    const int32_t x[] = {0, 1, 0, 0, 1, 1, 0}, y[] = {0, 0, 2, 2, 2, 0, 0};
    lierne_placement by_x = {.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis2 = -1, .rows = x};
    lierne_placement by_y = {.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis2 = -1, .rows = y};
    expect(2, sizes, 7, (lierne_placement[]){by_x, {.kind = LIERNE_PLACEMENT_AT}},
           "0236 145 - - - -");
    expect(2, sizes, 7, (lierne_placement[]){by_x, by_y}, "06 15 - - 23 4");
    /* An index goes to the rank that the map and the cut name: the cut is of the whole axis. */
    expect(2, sizes, 7, (lierne_placement[]){by_x, {CHUNK}}, "02 1 3 45 6 -");
}

static void reject(const lierne_placement *placements, lierne_status status, const char *part) {
    const int64_t sizes[] = {2, 3};
    lierne_layout *l = (lierne_layout *)&sizes;
    size_t before = lierne_mem_live();
    cr_assert_eq(create(&l, 2, sizes, 6, placements), status, "%s", lierne_last_error());
    assert_says("lierne_layout_create: ");
    assert_says(part);
    cr_assert_null(l);
    cr_assert_eq(lierne_mem_live(), before);
}

Test(layout_cuts, errors_name_value_and_bound) {
    const int64_t three[] = {3, 3}, four[] = {2, 2, 2};
    const int32_t rows[] = {0, 0, 1, 1, 2, 0};
    reject((lierne_placement[]){{EQUAL, .share = (lierne_share_rule)2}, {0}}, LIERNE_ERR_INVALID,
           "share rule 2, must be 0 or 1");
    reject((lierne_placement[]){{CHUNK, .counts = three}, {0}}, LIERNE_ERR_INVALID,
           "has counts and share rule 1");
    reject((lierne_placement[]){{EQUAL, .cut_order = -1}, {0}}, LIERNE_ERR_INVALID,
           "cut_order -1, must be in 0 to 15");
    reject((lierne_placement[]){{EQUAL, .cut_order = 16}, {0}}, LIERNE_ERR_INVALID, "cut_order 16");
    reject((lierne_placement[]){{EQUAL, .counts = three}, {EQUAL}}, LIERNE_ERR_INVALID,
           "dim 0 has counts, but dim 1 cuts axis 0 before it");
    reject((lierne_placement[]){{EQUAL}, {EQUAL, .counts = four, .cut_order = 1}},
           LIERNE_ERR_INVALID, "dim 1 has counts, but dim 0 cuts axis 0 before it");
    reject((lierne_placement[]){{EQUAL, .counts = three},
                                {.kind = LIERNE_PLACEMENT_SHARD_ZIGZAG, .cut_order = 1}},
           LIERNE_ERR_INVALID, "dims 1 and 0 both cut axis 0");
    reject((lierne_placement[]){{CHUNK}, {.kind = LIERNE_PLACEMENT_SHARD_ZIGZAG, .cut_order = 1}},
           LIERNE_ERR_INDIVISIBLE, "divisible by 12");
    reject((lierne_placement[]){{.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis2 = -2, .rows = rows},
                                {0}},
           LIERNE_ERR_INVALID, "axis2 -2");
    reject((lierne_placement[]){{.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis2 = -1}, {0}},
           LIERNE_ERR_INVALID, "needs rows");
    reject((lierne_placement[]){{.kind = LIERNE_PLACEMENT_SHARD_ROWS, .rows = rows}, {0}},
           LIERNE_ERR_INVALID, "for one axis, set axis2 to -1");
    reject((lierne_placement[]){{.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis2 = -1, .rows = rows},
                                {0}},
           LIERNE_ERR_INVALID, "row 4 has owner 2, must be in 0 to 1");
}

/* Every failed allocation is an error that leaves nothing behind. */
Test(layout_cuts, without_memory) {
    const int64_t sizes[] = {2, 3}, counts[] = {2, 1, 3};
    const int32_t rows[] = {0, 1, 1, 0, 0, 1};
    lierne_placement p[] = {{.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis2 = -1, .rows = rows},
                            {EQUAL, .counts = counts}};
    lierne_layout *l;
    lierne_box box;
    size_t n, before = lierne_mem_live();
    lierne_status status = LIERNE_ERR_NO_MEMORY;
    for (size_t k = 1; status == LIERNE_ERR_NO_MEMORY; k++) {
        lierne_grid *g = layout_case_grid(2, sizes, 0);
        lierne_layout_spec spec = {.size = sizeof spec,
                                   .grid = g,
                                   .naxes = 1,
                                   .shape = (int64_t[]){6},
                                   .dtype = LIERNE_DTYPE_F32,
                                   .placements = p};
        lierne_mem_fail_at(k);
        status = lierne_layout_create(&l, &spec);
        if (status == LIERNE_OK) {
            status = lierne_layout_get_boxes(&box, 1, &n, l, 0);
        }
        lierne_mem_fail_at(0);
        lierne_layout_destroy(l);
        lierne_grid_destroy(g);
        cr_assert_eq(lierne_mem_live(), before);
        cr_assert_lt(k, 15);
    }
    cr_assert_eq(status, LIERNE_OK);
}

/* Plans of two ranks whose specs differ; the message of the second names the field. */
static void expect_mismatch(const lierne_placement *mine, const lierne_placement *theirs,
                            const char *field) {
    const int64_t sizes[] = {2}, size = 6;
    const lierne_placement *given[] = {mine, theirs};
    lierne_sim *sim;
    lierne_plan *plans[2];
    assert_ok(lierne_sim_create(&sim, LAYOUT_CASE_WORLD, NULL));
    for (int r = 0; r < 2; r++) {
        lierne_layout *l;
        cr_assert_eq(create(&l, 1, sizes, size, given[r]), LIERNE_OK, "%s", lierne_last_error());
        lierne_redistribute_spec spec = {.size = sizeof spec, .src = l, .dst = l};
        lierne_status status =
            lierne_plan_create_redistribute(&plans[r], lierne_sim_get_context(sim, r), &spec);
        cr_assert_eq(status, r ? LIERNE_ERR_MISMATCH : LIERNE_OK);
        cr_assert(!r || strstr(lierne_last_error(), field), "%s", lierne_last_error());
        lierne_layout_destroy(l);
    }
    lierne_plan_destroy(plans[0]);
    lierne_sim_destroy(sim);
}

Test(layout_cuts, ranks_that_differ_are_told) {
    const int32_t rows[] = {0, 1, 1, 0, 0, 1}, others[] = {0, 1, 1, 0, 0, 0};
    expect_mismatch(&(lierne_placement){EQUAL}, &(lierne_placement){CHUNK}, "src.dim[0].share");
    expect_mismatch(&(lierne_placement){EQUAL}, &(lierne_placement){EQUAL, .cut_order = 3},
                    "src.dim[0].cut_order");
    expect_mismatch(
        &(lierne_placement){.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis2 = -1, .rows = rows},
        &(lierne_placement){.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis2 = -1, .rows = others},
        "src.dim[0].rows");
}
