/* Partitions: equal shares in row order, and along a Morton curve.
 *
 * Every rank computes the owners for itself, so the result must depend on the input alone. Ties:
 * many rows may be in one cell; a stable radix sort orders rows by (code, index), in time linear in
 * the number of rows. Rounding: a cell depends on the last bit, so each operation is rounded to the
 * type of the positions. The same code serves both types: float operations computed in double and
 * then rounded give the results of float arithmetic, because double has more than twice float's
 * bits. */
#include "layout/layout.h"
#include "plan/sparse/cloud.h"

#include <math.h>

enum { AXES = LIERNE_CLOUD_AXES, CELLS = 1 << 10, MOST = (1 << 30) - 1 /* of a code */ };

static double rounded(const lierne_cloud *c, double value) {
    return c->dtype == LIERNE_DTYPE_F32 ? (double)(float)value : value;
}

lierne_status lierne_partition_check_rows(const void *out, const void *in, int64_t nrows) {
    if (nrows < 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "nrows is %lld, must be at least 0",
                           (long long)nrows);
    }
    if (nrows > 0 && (!out || !in)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL, and there are %lld rows",
                           out ? "positions" : "the result", (long long)nrows);
    }
    return LIERNE_OK;
}

lierne_status lierne_partition_check_world(int world) {
    if (world < 1) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "world is %d, must be at least 1", world);
    }
    return LIERNE_OK;
}

/* Low and high of an axis. */
static lierne_status bounds(const lierne_cloud *c, int axis, double *low, double *high) {
    *low = INFINITY;
    *high = -INFINITY;
    for (int64_t i = 0; i < c->nrows; i++) {
        double p = lierne_cloud_coordinate(c, i, axis);
        if (!isfinite(p)) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "position %c of row %lld is %g, not finite",
                               "xyz"[axis], (long long)i, p);
        }
        *low = p < *low ? p : *low;
        *high = p > *high ? p : *high;
    }
    return LIERNE_OK;
}

/* One extent for all axes keeps cells cubes. */
static lierne_status measure(lierne_cloud *c) {
    c->extent = rounded(c, 1e-8);
    for (int axis = 0; axis < AXES && c->nrows > 0; axis++) {
        double high;
        LIERNE_TRY(bounds(c, axis, &c->low[axis], &high));
        double extent = rounded(c, high - c->low[axis]);
        if (!isfinite(extent)) {
            return LIERNE_FAIL(LIERNE_ERR_OVERFLOW, "positions %c from %g to %g: extent beyond %s",
                               "xyz"[axis], c -> low[axis], high, lierne_dtype_name(c->dtype));
        }
        c->extent = extent > c->extent ? extent : c->extent;
    }
    return LIERNE_OK;
}

lierne_status lierne_cloud_open(lierne_cloud *c, const void *positions, lierne_dtype dtype,
                                int64_t nrows) {
    size_t bytes;
    *c = (lierne_cloud){.positions = positions, .dtype = dtype, .nrows = nrows};
    if (dtype != LIERNE_DTYPE_F32 && dtype != LIERNE_DTYPE_F64) {
        const char *name = lierne_dtype_name(dtype);
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "dtype of positions is %d (%s), must be f32 or f64",
                           (int)dtype, name ? name : "none");
    }
    if ((uint64_t)nrows > SIZE_MAX ||
        !lierne_mul_size((size_t)nrows, AXES * lierne_dtype_size(dtype), &bytes) ||
        bytes > PTRDIFF_MAX) {
        return LIERNE_FAIL(LIERNE_ERR_OVERFLOW, "%lld positions of 3 %s", (long long)nrows,
                           lierne_dtype_name(dtype));
    }
    return measure(c);
}

/* At most CELLS - 1 without clamping: rounding keeps order, so no quotient exceeds 1. */
static uint32_t cell(const lierne_cloud *c, int64_t row, int axis) {
    double offset = rounded(c, lierne_cloud_coordinate(c, row, axis) - c->low[axis]);
    double fraction = rounded(c, offset / c->extent);
    return (uint32_t)rounded(c, fraction * (CELLS - 1));
}

/* Puts two zero bits after each of the ten bits. */
static uint32_t spread(uint32_t bits) {
    bits = (bits | bits << 16) & 0x030000ff;
    bits = (bits | bits << 8) & 0x0300f00f;
    bits = (bits | bits << 4) & 0x030c30c3;
    return (bits | bits << 2) & 0x09249249;
}

static uint32_t code_of(const lierne_cloud *c, int64_t row) {
    return spread(cell(c, row, 0)) | spread(cell(c, row, 1)) << 1 | spread(cell(c, row, 2)) << 2;
}

/* The i-th row along the curve belongs to rank floor(i * world / n). world is below n; the product
 * may overflow and is not computed. */
static void deal(int32_t *owner, const lierne_keyed *curve, int64_t n, int world) {
    int32_t rank = 0;
    for (int64_t i = 0, rest = 0; i < n; i++) {
        owner[curve[i].value] = rank;
        rest += world;
        rank += rest >= n;
        rest -= rest >= n ? n : 0;
    }
}

static lierne_status deal_curve(int32_t *owner, const lierne_cloud *c, int world) {
    size_t n = (size_t)c->nrows;
    lierne_keyed *curve = NULL, *spare = NULL;
    lierne_status status = lierne_alloc_unset(&curve, n, sizeof *curve);
    status = status == LIERNE_OK ? lierne_alloc_unset(&spare, n, sizeof *spare) : status;
    if (status == LIERNE_OK) {
        for (int64_t i = 0; i < c->nrows; i++) {
            curve[i] = (lierne_keyed){code_of(c, i), i};
        }
        lierne_sort_keyed(curve, spare, n, MOST);
        deal(owner, curve, c->nrows, world);
    }
    lierne_mem_free(curve);
    lierne_mem_free(spare);
    return status;
}

lierne_status lierne_partition_split(int32_t *owner, int64_t nrows, int world) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(lierne_partition_check_rows(owner, owner, nrows));
    LIERNE_TRY(lierne_partition_check_world(world));
    int64_t row = 0;
    for (int rank = 0; row < nrows; rank++) {
        int64_t end = lierne_share(nrows, world, (int64_t)rank + 1);
        while (row < end) {
            owner[row++] = rank;
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_partition_morton(int32_t *owner, const void *positions, lierne_dtype dtype,
                                      int64_t nrows, int world) {
    LIERNE_PUBLIC_CALL();
    lierne_cloud c;
    LIERNE_TRY(lierne_partition_check_rows(owner, positions, nrows));
    LIERNE_TRY(lierne_partition_check_world(world));
    LIERNE_TRY(lierne_cloud_open(&c, positions, dtype, nrows));
    if (world > 1 && nrows > world) {
        return deal_curve(owner, &c, world);
    }
    for (int64_t i = 0; i < nrows; i++) {
        owner[i] = world > 1 ? (int32_t)i : 0;
    }
    return LIERNE_OK;
}

lierne_status lierne_partition_morton_codes(uint32_t *codes, const void *positions,
                                            lierne_dtype dtype, int64_t nrows) {
    LIERNE_PUBLIC_CALL();
    lierne_cloud c;
    LIERNE_TRY(lierne_partition_check_rows(codes, positions, nrows));
    LIERNE_TRY(lierne_cloud_open(&c, positions, dtype, nrows));
    for (int64_t i = 0; i < nrows; i++) {
        codes[i] = code_of(&c, i);
    }
    return LIERNE_OK;
}
