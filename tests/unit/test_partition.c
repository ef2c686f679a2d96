/* Partitions: known answers, comparison with a sort by (cell, index) written here, and bad input.
 */
#include "base/base.h"
#include "lierne.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 100000 };

static void expect_owners(const int32_t *got, const int32_t *want, int n) {
    for (int i = 0; i < n; i++) {
        cr_expect_eq(got[i], want[i], "row %d: owner %d, not %d", i, got[i], want[i]);
    }
}

Test(partition, split_gives_the_first_ranks_one_more) {
    int32_t owner[11] = {[10] = 99};
    assert_ok(lierne_partition_split(owner, 10, 4));
    expect_owners(owner, (int32_t[]){0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 99}, 11);
    assert_ok(lierne_partition_split(owner, 6, 3));
    expect_owners(owner, (int32_t[]){0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 99}, 11);
    assert_ok(lierne_partition_split(owner, 3, INT32_MAX));
    expect_owners(owner, (int32_t[]){0, 1, 2, 1, 2}, 5);
    assert_ok(lierne_partition_split(owner, 5, 1));
    expect_owners(owner, (int32_t[]){0, 0, 0, 0, 0, 2}, 6);
    assert_ok(lierne_partition_split(NULL, 0, 3));
}

/* The corners of a cube along the curve are 000, x00, 0y0, xy0, 00z, x0z, 0yz, xyz. */
static const float corners[24] = {1, 1, 1, 0, 1, 1, 1, 0, 1, 0, 0, 1,
                                  1, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0};

Test(partition, corners_of_a_cube) {
    const uint32_t x = 0x09249249; /* bits 0, 3, ... 27: ten of them */
    const uint32_t want[8] = {7 * x, 6 * x, 5 * x, 4 * x, 3 * x, 2 * x, x, 0};
    uint32_t codes[8];
    int32_t owner[8];
    assert_ok(lierne_partition_morton_codes(codes, corners, LIERNE_DTYPE_F32, 8));
    for (int i = 0; i < 8; i++) {
        cr_expect_eq(codes[i], want[i], "corner %d: %x", i, codes[i]);
    }
    assert_ok(lierne_partition_morton(owner, corners, LIERNE_DTYPE_F32, 8, 4));
    expect_owners(owner, (int32_t[]){3, 3, 2, 2, 1, 1, 0, 0}, 8);
    /* floor(i * 3 / 8) is 0 0 0 1 1 1 2 2 from the end of the list on. */
    assert_ok(lierne_partition_morton(owner, corners, LIERNE_DTYPE_F32, 8, 3));
    expect_owners(owner, (int32_t[]){2, 2, 1, 1, 1, 0, 0, 0}, 8);
}

Test(partition, one_scale_for_all_axes) {
    /* x spans 4, y 2, z 1 (and a low of its own): cells of the high ends 1023, 511, 255. */
    const double p[9] = {-3, 5, 7, 1, 5, 7, -3, 7, 8};
    uint32_t codes[3];
    assert_ok(lierne_partition_morton_codes(codes, p, LIERNE_DTYPE_F64, 3));
    cr_expect_eq(codes[0], 0);
    cr_expect_eq(codes[1], 0x09249249);
    cr_expect_eq(codes[2], (0x01249249 << 1) | (0x00249249 << 2), "%x", codes[2]);
}

/* 5005825 / 10001873 * 1023 is 512 less 1e-7: cell 511, unless floats have rounded it up. */
Test(partition, cells_in_the_type_of_the_positions) {
    const double d[6] = {0, 0, 0, 10001873, 5005825, 0};
    float f[6];
    uint32_t codes[2];
    for (int i = 0; i < 6; i++) {
        f[i] = (float)d[i];
    }
    assert_ok(lierne_partition_morton_codes(codes, d, LIERNE_DTYPE_F64, 2));
    cr_expect_eq(codes[1], 0x09249249 | 0x01249249 << 1, "%x", codes[1]);
    assert_ok(lierne_partition_morton_codes(codes, f, LIERNE_DTYPE_F32, 2));
    cr_expect_eq(codes[1], 0x09249249 | 1 << (9 * 3 + 1), "%x", codes[1]);
}

Test(partition, ties_stay_in_index_order) {
    float same[15], zeros[15] = {-0.0F, 0, 0, 0, -0.0F, 0, 0, 0, -0.0F, 0, 0, 0, -0.0F, -0.0F};
    int32_t owner[5];
    for (int i = 0; i < 15; i++) {
        same[i] = 7;
    }
    assert_ok(lierne_partition_morton(owner, same, LIERNE_DTYPE_F32, 5, 2));
    expect_owners(owner, (int32_t[]){0, 0, 0, 1, 1}, 5);
    assert_ok(lierne_partition_morton(owner, zeros, LIERNE_DTYPE_F32, 5, 4));
    expect_owners(owner, (int32_t[]){0, 0, 1, 2, 3}, 5);
}

/* Positions within 1e-8: the extent is 1e-8. */
Test(partition, an_extent_of_nothing) {
    const double p[6] = {0, 0, 0, 0.25e-8, 0, 0};
    uint32_t codes[2] = {1, 1};
    assert_ok(lierne_partition_morton_codes(codes, p, LIERNE_DTYPE_F64, 2));
    cr_expect_eq(codes[0], 0);
    cr_expect_eq(codes[1], 0x00249249, "%x", codes[1]); /* cell 255 */
    assert_ok(lierne_partition_morton_codes(codes, p, LIERNE_DTYPE_F64, 1));
    cr_expect_eq(codes[0], 0);
}

/* With no more rows than ranks the curve is not used. */
Test(partition, few_rows) {
    int32_t owner[8];
    assert_ok(lierne_partition_morton(owner, corners, LIERNE_DTYPE_F32, 8, 8));
    expect_owners(owner, (int32_t[]){0, 1, 2, 3, 4, 5, 6, 7}, 8);
    assert_ok(lierne_partition_morton(owner, corners, LIERNE_DTYPE_F32, 3, 100));
    expect_owners(owner, (int32_t[]){0, 1, 2}, 3);
    assert_ok(lierne_partition_morton(owner, corners, LIERNE_DTYPE_F32, 8, 1));
    expect_owners(owner, (int32_t[]){0, 0, 0, 0, 0, 0, 0, 0}, 8);
    assert_ok(lierne_partition_morton(owner, corners, LIERNE_DTYPE_F32, 1, 1));
    cr_expect_eq(owner[0], 0);
    assert_ok(lierne_partition_morton(NULL, NULL, LIERNE_DTYPE_F64, 0, 3));
    assert_ok(lierne_partition_morton_codes(NULL, NULL, LIERNE_DTYPE_F32, 0));
}

typedef struct row {
    uint32_t code;
    int64_t index;
    int32_t owner;
} row;

static int by_code_and_index(const void *a, const void *b) {
    const row *x = a, *y = b;
    return x->code != y->code ? (x->code > y->code) - (x->code < y->code)
                              : (x->index > y->index) - (x->index < y->index);
}

static int by_code_and_owner(const void *a, const void *b) {
    const row *x = a, *y = b;
    return x->code != y->code ? (x->code > y->code) - (x->code < y->code) : x->owner - y->owner;
}

/* The code of a row, in float arithmetic and bit by bit. */
static uint32_t float_code(const float *p, const float *low, float extent) {
    uint32_t code = 0;
    for (int axis = 0; axis < 3; axis++) {
        float offset = p[axis] - low[axis];
        float fraction = offset / extent;
        float scaled = fraction * 1023.0F;
        for (uint32_t bit = 0; bit < 10; bit++) {
            code |= ((uint32_t)scaled >> bit & 1U) << (3 * bit + (uint32_t)axis);
        }
    }
    return code;
}

static void float_codes(row *rows, const float *p, int64_t n) {
    float low[3] = {FLT_MAX, FLT_MAX, FLT_MAX}, high[3] = {-FLT_MAX, -FLT_MAX, -FLT_MAX};
    float extent = 1e-8F;
    for (int64_t i = 0; i < 3 * n; i++) {
        low[i % 3] = fminf(low[i % 3], p[i]);
        high[i % 3] = fmaxf(high[i % 3], p[i]);
    }
    for (int axis = 0; axis < 3; axis++) {
        extent = fmaxf(extent, high[axis] - low[axis]);
    }
    for (int64_t i = 0; i < n; i++) {
        rows[i] = (row){.code = float_code(p + 3 * i, low, extent), .index = i};
    }
}

/* Owners and codes of random rows against the sort; leaves the rows along the curve. */
static void check_random(row *rows, const float *p, int64_t n, int world) {
    int32_t *owner = malloc((size_t)n * sizeof *owner);
    uint32_t *codes = malloc((size_t)n * sizeof *codes);
    cr_assert(owner && codes);
    assert_ok(lierne_partition_morton_codes(codes, p, LIERNE_DTYPE_F32, n));
    assert_ok(lierne_partition_morton(owner, p, LIERNE_DTYPE_F32, n, world));
    float_codes(rows, p, n);
    for (int64_t i = 0; i < n; i++) {
        cr_assert_eq(codes[i], rows[i].code, "row %lld: %x, not %x", (long long)i, codes[i],
                     rows[i].code);
        rows[i].owner = owner[i];
    }
    qsort(rows, (size_t)n, sizeof *rows, by_code_and_index);
    for (int64_t i = 0; i < n; i++) {
        cr_assert_eq(rows[i].owner, i * world / n, "%lld of %lld on %d ranks", (long long)i,
                     (long long)n, world);
    }
    free(owner);
    free(codes);
}

/* Of kind 0 positions have many values, of kind 1 few: many ties. */
static void fill(float *p, int64_t n, int kind) {
    for (int64_t i = 0; i < 3 * n; i++) {
        p[i] = kind ? (float)(rand() % 5 - 2) : (float)(rand() % 2000003 - 1000000) / 997.0F;
    }
}

static void swap_rows(float *p, int64_t i, int64_t j) {
    float kept[3];
    memcpy(kept, p + 3 * i, sizeof kept);
    memmove(p + 3 * i, p + 3 * j, sizeof kept);
    memcpy(p + 3 * j, kept, sizeof kept);
}

Test(partition, random_rows_follow_the_sort) {
    static float p[3 * 500];
    static row rows[500];
    srand(31);
    for (int run = 0; run < 200; run++) {
        int world = 2 + rand() % 12;
        int64_t n = world + 1 + rand() % (500 - world);
        fill(p, n, run % 2);
        check_random(rows, p, n, world);
    }
}

Test(partition, a_hundred_thousand_rows_in_any_order) {
    static float p[3 * MANY];
    static row rows[MANY], again[MANY];
    srand(37);
    fill(p, MANY, 0);
    check_random(rows, p, MANY, 7);
    for (int64_t i = MANY - 1; i > 0; i--) {
        swap_rows(p, i, rand() % (i + 1));
    }
    check_random(again, p, MANY, 7);
    /* Another order of the input only exchanges owners of rows of one cell. */
    qsort(rows, MANY, sizeof *rows, by_code_and_owner);
    qsort(again, MANY, sizeof *again, by_code_and_owner);
    for (int i = 0; i < MANY; i++) {
        cr_assert(rows[i].code == again[i].code && rows[i].owner == again[i].owner, "place %d", i);
    }
}

static void rejected(lierne_status got, lierne_status want, const char *says) {
    cr_expect_eq(got, want, "%s, not %s", lierne_status_name(got), lierne_status_name(want));
    expect_says(says);
}

Test(partition, bad_arguments) {
    int32_t o[3];
    uint32_t codes[3];
    float p[9] = {0};
    rejected(lierne_partition_split(NULL, 1, 2), LIERNE_ERR_INVALID, "NULL");
    rejected(lierne_partition_split(o, -1, 2), LIERNE_ERR_INVALID, "nrows is -1");
    rejected(lierne_partition_split(o, 3, 0), LIERNE_ERR_INVALID, "world is 0");
    rejected(lierne_partition_morton(NULL, p, LIERNE_DTYPE_F32, 3, 2), LIERNE_ERR_INVALID, "NULL");
    rejected(lierne_partition_morton(o, NULL, LIERNE_DTYPE_F32, 3, 2), LIERNE_ERR_INVALID,
             "positions");
    rejected(lierne_partition_morton(o, p, LIERNE_DTYPE_F32, -3, 2), LIERNE_ERR_INVALID,
             "nrows is -3");
    rejected(lierne_partition_morton(o, p, LIERNE_DTYPE_F32, 3, -2), LIERNE_ERR_INVALID,
             "world is -2");
    rejected(lierne_partition_morton(o, p, LIERNE_DTYPE_BF16, 3, 2), LIERNE_ERR_INVALID, "bf16");
    rejected(lierne_partition_morton(o, p, (lierne_dtype)77, 3, 2), LIERNE_ERR_INVALID, "77");
    rejected(lierne_partition_morton_codes(NULL, p, LIERNE_DTYPE_F32, 3), LIERNE_ERR_INVALID,
             "NULL");
    rejected(lierne_partition_morton_codes(codes, p, LIERNE_DTYPE_I32, 3), LIERNE_ERR_INVALID,
             "i32");
}

Test(partition, positions_that_are_not_finite) {
    const float bad[3] = {NAN, INFINITY, -INFINITY};
    int32_t o[4];
    uint32_t codes[4];
    for (int i = 0; i < 12; i++) {
        float f[12] = {0};
        double d[12] = {0};
        char says[32];
        snprintf(says, sizeof says, "%c of row %d is", "xyz"[i % 3], i / 3);
        f[i] = bad[i % 3];
        d[i] = bad[i / 4];
        rejected(lierne_partition_morton(o, f, LIERNE_DTYPE_F32, 4, 2), LIERNE_ERR_INVALID, says);
        rejected(lierne_partition_morton(o, d, LIERNE_DTYPE_F64, 4, 9), LIERNE_ERR_INVALID, says);
        rejected(lierne_partition_morton_codes(codes, f, LIERNE_DTYPE_F32, 4), LIERNE_ERR_INVALID,
                 says);
    }
}

Test(partition, sizes_beyond_their_types) {
    const float f[6] = {0, -FLT_MAX, 0, 0, FLT_MAX, 0};
    const double d[6] = {0, 0, -DBL_MAX, 0, 0, DBL_MAX};
    int32_t o[2];
    uint32_t codes[2];
    rejected(lierne_partition_morton(o, f, LIERNE_DTYPE_F32, 2, 2), LIERNE_ERR_OVERFLOW, "y from");
    rejected(lierne_partition_morton(o, d, LIERNE_DTYPE_F64, 2, 2), LIERNE_ERR_OVERFLOW, "z from");
    rejected(lierne_partition_morton(o, f, LIERNE_DTYPE_F32, INT64_C(1) << 62, 2),
             LIERNE_ERR_OVERFLOW, "4611686018427387904");
    rejected(lierne_partition_morton_codes(codes, f, LIERNE_DTYPE_F32, INT64_C(1) << 60),
             LIERNE_ERR_OVERFLOW, "1152921504606846976");
}

Test(partition, running_out_of_memory_leaves_nothing) {
    int32_t owner[8];
    size_t live = lierne_mem_live();
    for (size_t k = 1; k <= 2; k++) {
        lierne_mem_fail_at(k);
        cr_expect_eq(lierne_partition_morton(owner, corners, LIERNE_DTYPE_F32, 8, 2),
                     LIERNE_ERR_NO_MEMORY);
        cr_expect_eq(lierne_mem_live(), live);
    }
    lierne_mem_fail_at(0);
    expect_ok(lierne_partition_morton(owner, corners, LIERNE_DTYPE_F32, 8, 2));
    cr_expect_eq(lierne_mem_live(), live);
}
