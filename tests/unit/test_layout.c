/* Layouts: shapes, boxes and rejections, by hand. */
#include "base/base.h"
#include "layouts.h"
#include "lierne.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <string.h>

static lierne_grid *grid(const char *const *names, const int64_t *sizes, int offset) {
    lierne_grid *g = grid_named(names, sizes, offset, 64);
    cr_assert_not_null(g, "%s", lierne_last_error());
    return g;
}

static const char *const tcd[4] = {"tp", "cp", "dp"};
static const int64_t two_each[3] = {2, 2, 2}, shape[3] = {5, 8, 3};

static lierne_layout *layout(const lierne_grid *g, lierne_placement cp, uint32_t full) {
    lierne_placement p[3] = {{.kind = LIERNE_PLACEMENT_REPLICATE},
                             cp,
                             {.kind = LIERNE_PLACEMENT_SHARD, .axis = 0}};
    lierne_layout_spec spec = {.size = sizeof spec,
                               .grid = g,
                               .naxes = 3,
                               .shape = shape,
                               .dtype = LIERNE_DTYPE_F32,
                               .placements = p,
                               .full_axes = full};
    lierne_layout *l;
    assert_ok(lierne_layout_create(&l, &spec));
    return l;
}

static void check(const lierne_layout *l, int rank, const int64_t *want, int64_t owned) {
    int64_t got[3], stored, own;
    assert_ok(lierne_layout_get_shape(got, l, rank));
    cr_assert(got[0] == want[0] && got[1] == want[1] && got[2] == want[2], "rank %d: %d %d %d",
              rank, (int)got[0], (int)got[1], (int)got[2]);
    assert_ok(lierne_layout_get_elements(&stored, &own, l, rank));
    cr_assert_eq(stored, want[0] * want[1] * want[2]);
    cr_assert_eq(own, owned);
}

Test(layout, uneven_shares_and_replicas) {
    lierne_grid *g = grid(tcd, two_each, 8);
    lierne_layout *l = layout(g, (lierne_placement){.kind = LIERNE_PLACEMENT_REPLICATE}, 0);
    check(l, 8, (int64_t[]){3, 8, 3}, 72);
    check(l, 15, (int64_t[]){2, 8, 3}, 48);
    check(l, 7, (int64_t[]){0, 0, 0}, 0);
    lierne_layout_destroy(l);
    lierne_grid_destroy(g);
}

Test(layout, zigzag_full_and_compact) {
    lierne_grid *g = grid(tcd, two_each, 0);
    lierne_placement z = {.kind = LIERNE_PLACEMENT_SHARD_ZIGZAG, .axis = 1};
    lierne_layout *compact = layout(g, z, 0), *full = layout(g, z, 2);
    lierne_box boxes[4];
    size_t n;
    check(compact, 0, (int64_t[]){3, 4, 3}, 36);
    check(full, 0, (int64_t[]){3, 8, 3}, 36);
    assert_ok(lierne_layout_get_boxes(boxes, 4, &n, compact, 0));
    cr_assert_eq(n, 2); /* cp 0 owns chunks 0 and 3 of two rows each */
    cr_assert(boxes[0].start[1] == 0 && boxes[0].size[1] == 2 && boxes[0].local[1] == 0);
    cr_assert(boxes[1].start[1] == 6 && boxes[1].size[1] == 2 && boxes[1].local[1] == 2);
    boxes[1].size[1] = 77;
    assert_ok(lierne_layout_get_boxes(boxes, 1, &n, compact, 0));
    cr_assert(n == 2 && boxes[1].size[1] == 77, "beyond the capacity");
    assert_ok(lierne_layout_get_boxes(boxes, 4, &n, full, 6));
    cr_assert_eq(n, 1, "cp 1 owns chunks 1 and 2, which are one piece");
    cr_assert(boxes[0].start[1] == 2 && boxes[0].size[1] == 4 && boxes[0].local[1] == 2);
    cr_assert(boxes[0].start[0] == 3 && boxes[0].size[0] == 2 && boxes[0].local[0] == 0);
    assert_ok(lierne_layout_get_boxes(NULL, 0, &n, compact, 0));
    cr_assert_eq(n, 2);
    lierne_layout_destroy(compact), lierne_layout_destroy(full), lierne_grid_destroy(g);
}

Test(layout, rows_full_and_compact) {
    lierne_grid *g = grid(tcd, two_each, 0);
    int32_t rows[40];
    for (int i = 0; i < 40; i++) {
        rows[i] = i % 8 == 3 || i == 0; /* cp 1 has row 3 of each sample and row 0 of the first */
    }
    lierne_placement p = {.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis = 0, .axis2 = 1, .rows = rows};
    lierne_layout *compact = layout(g, p, 0), *full = layout(g, p, 2);
    check(compact, 2, (int64_t[]){4, 1, 3}, 12);
    check(full, 2, (int64_t[]){3, 8, 3}, 12);
    check(compact, 0, (int64_t[]){20, 1, 3}, 60);
    check(compact, 6, (int64_t[]){2, 1, 3}, 6);
    lierne_layout_destroy(compact), lierne_layout_destroy(full), lierne_grid_destroy(g);
}

/* A map cuts nothing out of an axis: full storage is the shard that another dim leaves of it. */
Test(layout, rows_of_an_empty_tensor_are_counted) {
    static const int32_t rows[4] = {0, 1, 1, 1};
    const int64_t empty[] = {2, 2, 0};
    const mesh cp = {.ndims = 1, .names = {"cp"}, .sizes = {2}};
    const lierne_placement p = {.kind = LIERNE_PLACEMENT_SHARD_ROWS,
                                .axis = 0,
                                .axis2 = 1,
                                .rows = rows};
    lierne_layout *l = layout_over(&cp, 2, LIERNE_DTYPE_F32, 3, empty, &p);
    for (int r = 0; r < 2; r++) {
        int64_t got[3];
        assert_ok(lierne_layout_get_shape(got, l, r));
        cr_assert(got[0] == (r ? 3 : 1) && got[1] == 1 && got[2] == 0);
    }
    lierne_layout_destroy(l);
}

Test(layout, full_rows_of_a_shard) {
    lierne_grid *g = grid(tcd, two_each, 0);
    int32_t rows[40];
    for (int i = 0; i < 40; i++) {
        rows[i] = i % 8 == 3 || i % 8 == 6; /* cp 1 has rows 3 and 6 of each sample */
    }
    lierne_placement p[3] = {
        {.kind = LIERNE_PLACEMENT_SHARD, .axis = 1},
        {.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis = 0, .axis2 = 1, .rows = rows},
        {.kind = LIERNE_PLACEMENT_SHARD, .axis = 0}};
    lierne_layout_spec spec = {.size = sizeof spec,
                               .grid = g,
                               .naxes = 3,
                               .shape = shape,
                               .dtype = LIERNE_DTYPE_F32,
                               .placements = p,
                               .full_axes = 2};
    lierne_layout *l;
    lierne_box boxes[4];
    size_t n;
    assert_ok(lierne_layout_create(&l, &spec));
    check(l, 0, (int64_t[]){3, 4, 3}, 27);
    check(l, 2, (int64_t[]){3, 4, 3}, 9);
    check(l, 7, (int64_t[]){2, 4, 3}, 6);
    assert_ok(lierne_layout_get_boxes(boxes, 4, &n, l, 7)); /* tp 1, cp 1, dp 1 */
    cr_assert(n == 2 && boxes[0].start[0] == 3 && boxes[1].start[0] == 4);
    for (int i = 0; i < 2; i++) {
        cr_assert(boxes[i].local[0] == i && boxes[i].size[0] == 1);
        cr_assert(boxes[i].start[1] == 6 && boxes[i].size[1] == 1 && boxes[i].local[1] == 2);
    }
    lierne_layout_destroy(l), lierne_grid_destroy(g);
}

Test(layout, only_one_stage_holds) {
    static const char *const names[3] = {"dp", "pp"};
    lierne_grid *g = grid(names, two_each, 0);
    lierne_placement p[2] = {{.kind = LIERNE_PLACEMENT_SHARD, .axis = 0},
                             {.kind = LIERNE_PLACEMENT_AT, .at = 1}};
    lierne_layout *l = layout_on(g, LIERNE_DTYPE_F32, 3, shape, p);
    check(l, 0, (int64_t[]){0, 0, 0}, 0);
    check(l, 3, (int64_t[]){2, 8, 3}, 48);
    lierne_layout_destroy(l), lierne_grid_destroy(g);
}

/* Two dims cut one axis: the slower one first. */
Test(layout, nested_shards_cut_slowest_first) {
    lierne_grid *g = grid(tcd, two_each, 0);
    lierne_placement p[3] = {{.kind = LIERNE_PLACEMENT_SHARD, .axis = 1},
                             {.kind = LIERNE_PLACEMENT_SHARD, .axis = 1},
                             {.kind = LIERNE_PLACEMENT_REPLICATE}};
    lierne_layout *l = layout_on(g, LIERNE_DTYPE_F32, 3, shape, p);
    lierne_box box;
    size_t n;
    assert_ok(lierne_layout_get_boxes(&box, 1, &n, l, 2)); /* tp 0, cp 1 */
    cr_assert(n == 1 && box.start[1] == 4 && box.size[1] == 2);
    assert_ok(lierne_layout_get_boxes(&box, 1, &n, l, 1)); /* tp 1, cp 0 */
    cr_assert(n == 1 && box.start[1] == 2 && box.size[1] == 2);
    lierne_layout_destroy(l), lierne_grid_destroy(g);
}

static void rejected(const lierne_grid *g, lierne_placement cp, uint32_t full, lierne_status status,
                     const char *part) {
    lierne_placement p[3] = {{.kind = LIERNE_PLACEMENT_REPLICATE},
                             cp,
                             {.kind = LIERNE_PLACEMENT_SHARD, .axis = 0}};
    lierne_layout_spec spec = {.size = sizeof spec,
                               .grid = g,
                               .naxes = 3,
                               .shape = shape,
                               .dtype = LIERNE_DTYPE_F32,
                               .placements = p,
                               .full_axes = full};
    lierne_layout *l = (lierne_layout *)&spec;
    size_t before = lierne_mem_live();
    cr_assert_eq(lierne_layout_create(&l, &spec), status, "%s", lierne_last_error());
    assert_says(part);
    cr_assert_null(l);
    cr_assert_eq(lierne_mem_live(), before);
}

Test(layout, rejections_name_value_and_bound) {
    lierne_grid *g = grid(tcd, two_each, 0);
    const int64_t counts[2] = {4, 3}, bad[2] = {-1, 9};
    int32_t rows[40] = {0};
#define P(...) ((lierne_placement){__VA_ARGS__})
    rejected(g, P(.kind = LIERNE_PLACEMENT_SHARD, .axis = 3), 0, LIERNE_ERR_INVALID,
             "axis 3, must be in 0 to 2");
    rejected(g, P(.kind = LIERNE_PLACEMENT_AT, .at = 2), 0, LIERNE_ERR_INVALID,
             "at 2, must be in 0 to 1");
    rejected(g, P(.kind = (lierne_placement_kind)9), 0, LIERNE_ERR_INVALID, "kind 9");
    rejected(g, P(.kind = LIERNE_PLACEMENT_SHARD, .axis = 1, .counts = counts), 0,
             LIERNE_ERR_INVALID, "to 7");
    rejected(g, P(.kind = LIERNE_PLACEMENT_SHARD, .axis = 1, .counts = bad), 0, LIERNE_ERR_INVALID,
             "is -1");
    rejected(g, P(.kind = LIERNE_PLACEMENT_SHARD_ZIGZAG, .axis = 2), 0, LIERNE_ERR_INDIVISIBLE,
             "it has 3");
    rejected(g, P(.kind = LIERNE_PLACEMENT_SHARD_ZIGZAG, .axis = 0), 0, LIERNE_ERR_INDIVISIBLE,
             "by 8, it has 5");
    rejected(g, P(.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis = 0, .axis2 = 1), 0,
             LIERNE_ERR_INVALID, "rows");
    rejected(g, P(.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis = 0, .axis2 = 0, .rows = rows), 0,
             LIERNE_ERR_INVALID, "different");
    rejected(g, P(.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis = 0, .axis2 = 2, .rows = rows), 0,
             LIERNE_ERR_INVALID, "neighbouring");
    rows[7] = 2;
    rejected(g, P(.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis = 0, .axis2 = 1, .rows = rows), 0,
             LIERNE_ERR_INVALID, "row 7 has owner 2, must be in 0 to 1");
    rejected(g, P(.kind = LIERNE_PLACEMENT_REPLICATE), 8, LIERNE_ERR_INVALID, "full_axes 0x8");
    lierne_grid_destroy(g);
}

/* An empty axis does not hide the others' sizes: strides are products of them. */
Test(layout, tensors_of_more_than_2_to_60_bytes_are_refused) {
    static const int64_t shapes[4][3] = {{1, (int64_t)1 << 58, 1},
                                         {2, (int64_t)1 << 58, 1},
                                         {0, (int64_t)1 << 58, 2},
                                         {2, 3, INT64_MAX}};
    lierne_grid *g = grid(tcd, two_each, 0);
    lierne_placement p[3] = {{.kind = LIERNE_PLACEMENT_REPLICATE}};
    for (int i = 0; i < 4; i++) {
        lierne_layout_spec spec = {.size = sizeof spec,
                                   .grid = g,
                                   .naxes = 3,
                                   .shape = shapes[i],
                                   .dtype = LIERNE_DTYPE_F32,
                                   .placements = p};
        lierne_layout *l;
        cr_assert_eq(lierne_layout_create(&l, &spec), i ? LIERNE_ERR_OVERFLOW : LIERNE_OK, "%d", i);
        lierne_layout_destroy(l);
    }
    lierne_grid_destroy(g);
}

Test(layout, dtypes) {
    lierne_dtype d;
    assert_ok(lierne_dtype_parse(&d, "bf16"));
    cr_assert(d == LIERNE_DTYPE_BF16 && lierne_dtype_size(d) == 2);
    assert_error(lierne_dtype_parse(&d, "f8"), LIERNE_ERR_INVALID, "f64, f32");
    cr_assert_eq(lierne_dtype_size((lierne_dtype)-1), 0);
    cr_assert_null(lierne_dtype_name((lierne_dtype)(LIERNE_DTYPE_BITS128 + 1)));
}
