/* Creating layouts and asking about one rank.
 *
 * A layout is checked once, when it is made, so that everything after it is arithmetic that cannot
 * fail: sizes fit, counts add up, zigzag divides. The grid's radix is copied in, because planners
 * ask for coordinates in their inner loops. */
#include "layout/layout.h"

#include <string.h>

#define MAX_BYTES ((int64_t)1 << 60) /* of a tensor: sums of a few offsets cannot overflow */

static bool cuts(lierne_placement_kind kind) {
    return kind == LIERNE_SHARD || kind == LIERNE_SHARD_ZIGZAG || kind == LIERNE_SHARD_ROWS;
}

static lierne_status check_axis(const lierne_layout *layout, int dim, int axis) {
    if (axis < 0 || axis >= layout->naxes) {
        return LIERNE_FAIL(LIERNE_INVALID, "placement of dim %d names axis %d of %d", dim, axis,
                           layout->naxes);
    }
    return LIERNE_OK;
}

/* Replaces the caller's counts by running sums of our own, n + 1 of them. */
static lierne_status take_counts(lierne_layout *layout, int dim) {
    lierne_placement *p = &layout->placements[dim];
    const int64_t *given = p->counts;
    int n = layout->sizes[dim];
    int64_t *sums, total = 0;
    p->counts = NULL;
    LIERNE_TRY(lierne_alloc(&sums, (size_t)n + 1, sizeof *sums));
    p->counts = sums;
    for (int c = 0; c < n; c++) {
        if (given[c] < 0 || !lierne_add_i64(total, given[c], &total)) {
            return LIERNE_FAIL(LIERNE_INVALID, "count %d of dim %d is %lld", c, dim,
                               (long long)given[c]);
        }
        sums[c + 1] = total;
    }
    if (total != layout->shape[p->axis]) {
        return LIERNE_FAIL(LIERNE_INVALID, "counts of dim %d add up to %lld, but axis %d has %lld",
                           dim, (long long)total, p->axis, (long long)layout->shape[p->axis]);
    }
    return LIERNE_OK;
}

static lierne_status take_rows(lierne_layout *layout, int dim) {
    lierne_placement *p = &layout->placements[dim];
    const int32_t *given = p->rows;
    int32_t *rows;
    size_t n;
    p->rows = NULL;
    LIERNE_TRY(check_axis(layout, dim, p->axis2));
    if (p->axis2 == p->axis || layout->rows_dim >= 0 || !given) {
        return LIERNE_FAIL(LIERNE_INVALID, "placement of dim %d: SHARD_ROWS needs %s", dim,
                           !given                ? "rows"
                           : p->axis2 == p->axis ? "two different axes"
                                                 : "to be the only one");
    }
    if (!lierne_mul_size((size_t)layout->shape[p->axis], (size_t)layout->shape[p->axis2], &n)) {
        return LIERNE_FAIL(LIERNE_OVERFLOW, "rows of dim %d", dim);
    }
    LIERNE_TRY(lierne_alloc(&rows, n, sizeof *rows));
    p->rows = rows;
    memcpy(rows, given, n * sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        if (rows[i] < 0 || rows[i] >= layout->sizes[dim]) {
            return LIERNE_FAIL(LIERNE_INVALID, "row %zu has owner %d, must be in 0 to %d", i,
                               (int)rows[i], layout->sizes[dim] - 1);
        }
    }
    layout->rows_dim = dim;
    bool full = layout->full_axes >> p->axis2 & 1;
    if (!full && p->axis + 1 != p->axis2 && p->axis2 + 1 != p->axis) {
        return LIERNE_FAIL(LIERNE_INVALID, "compact rows need neighbouring axes, got %d and %d",
                           p->axis, p->axis2);
    }
    return LIERNE_OK;
}

static lierne_status check_zigzag(const lierne_layout *layout, int dim,
                                  const lierne_placement *spec) {
    const lierne_placement *p = &layout->placements[dim];
    int64_t chunks = 2 * (int64_t)layout->sizes[dim];
    for (int d = 0; d < layout->ndims; d++) {
        const lierne_placement *q = &spec[d];
        if (d == dim || q->axis != p->axis || !cuts(q->kind) || q->kind == LIERNE_SHARD_ROWS) {
            continue;
        }
        if (q->kind == LIERNE_SHARD_ZIGZAG || (d > dim && q->counts)) {
            return LIERNE_FAIL(LIERNE_INVALID,
                               "dims %d and %d both cut axis %d, one in zigzag, the "
                               "other in zigzag too or with counts",
                               dim, d, p->axis);
        }
        /* Slower dims cut before: each of their shares must divide. */
        chunks *= d > dim ? layout->sizes[d] : 1;
    }
    if (layout->sizes[dim] > 1 && layout->shape[p->axis] % chunks != 0) {
        return LIERNE_FAIL(LIERNE_INDIVISIBLE,
                           "zigzag over %d needs axis %d divisible by %lld, "
                           "it has %lld",
                           layout->sizes[dim], p->axis, (long long)chunks,
                           (long long)layout->shape[p->axis]);
    }
    return LIERNE_OK;
}

static lierne_status take_placement(lierne_layout *layout, int dim, const lierne_placement *spec) {
    lierne_placement *p = &layout->placements[dim];
    switch (p->kind) {
    case LIERNE_REPLICATE:
        return LIERNE_OK;
    case LIERNE_PARTIAL:
        layout->partials *= layout->sizes[dim];
        return LIERNE_OK;
    case LIERNE_AT:
        if (p->at < 0 || p->at >= layout->sizes[dim]) {
            return LIERNE_FAIL(LIERNE_INVALID, "placement of dim %d is at coordinate %d of %d", dim,
                               p->at, layout->sizes[dim]);
        }
        return LIERNE_OK;
    case LIERNE_SHARD:
        LIERNE_TRY(check_axis(layout, dim, p->axis));
        return p->counts ? take_counts(layout, dim) : LIERNE_OK;
    case LIERNE_SHARD_ZIGZAG:
        LIERNE_TRY(check_axis(layout, dim, p->axis));
        return check_zigzag(layout, dim, spec);
    case LIERNE_SHARD_ROWS:
        LIERNE_TRY(check_axis(layout, dim, p->axis));
        return take_rows(layout, dim);
    }
    return LIERNE_FAIL(LIERNE_INVALID, "placement of dim %d is of kind %d", dim, (int)p->kind);
}

/* Counts speak of the whole axis, so only the first cut of an axis can have them. */
static lierne_status check_nesting(const lierne_layout *layout) {
    for (int i = 0; i < layout->ncuts; i++) {
        const lierne_placement *p = &layout->placements[layout->cuts[i]];
        for (int j = 0; j < i; j++) {
            const lierne_placement *q = &layout->placements[layout->cuts[j]];
            if (p->axis == q->axis && p->counts && q->kind != LIERNE_SHARD_ROWS) {
                return LIERNE_FAIL(LIERNE_INVALID,
                                   "dim %d has counts, but dim %d cuts axis %d "
                                   "before it",
                                   layout->cuts[i], layout->cuts[j], p->axis);
            }
        }
    }
    return LIERNE_OK;
}

static lierne_status take_grid(lierne_layout *layout, const lierne_layout_spec *spec) {
    int stride = 1;
    layout->ndims = lierne_grid_get_ndims(spec->grid, spec->view);
    if (layout->ndims < 0) {
        return LIERNE_FAIL(LIERNE_UNKNOWN_VIEW, "no view '%s'", spec->view);
    }
    layout->offset = lierne_grid_get_offset(spec->grid);
    layout->nranks = lierne_grid_get_size(spec->grid);
    layout->world = lierne_grid_get_world_size(spec->grid);
    for (int d = 0; d < layout->ndims; d++) {
        layout->sizes[d] = lierne_grid_get_dim_size(spec->grid, spec->view, d);
        layout->strides[d] = stride;
        stride *= layout->sizes[d];
        layout->placements[d] = spec->placements[d];
        /* What the caller owns must not be freed with a half-made layout. */
        layout->placements[d].counts = NULL;
        layout->placements[d].rows = NULL;
    }
    for (int d = layout->ndims - 1; d >= 0; d--) {
        if (cuts(layout->placements[d].kind)) {
            layout->cuts[layout->ncuts++] = d;
        }
    }
    return LIERNE_OK;
}

static lierne_status take_tensor(lierne_layout *layout, const lierne_layout_spec *spec) {
    int64_t bytes = (int64_t)lierne_dtype_size(spec->dtype);
    layout->naxes = spec->naxes;
    layout->dtype = spec->dtype;
    layout->full_axes = spec->full_axes;
    layout->rows_dim = -1;
    layout->partials = 1;
    for (int a = 0; a < spec->naxes; a++) {
        if (spec->shape[a] < 0) {
            return LIERNE_FAIL(LIERNE_INVALID, "shape of axis %d is %lld, must be at least 0", a,
                               (long long)spec->shape[a]);
        }
        int64_t size = spec->shape[a] ? spec->shape[a] : 1; /* strides of other axes must fit too */
        if (!lierne_mul_i64(bytes, size, &bytes) || bytes > MAX_BYTES) {
            return LIERNE_FAIL(LIERNE_OVERFLOW,
                               "the tensor has more than %lld bytes, at axis %d of "
                               "size %lld",
                               (long long)MAX_BYTES, a, (long long)spec->shape[a]);
        }
        layout->shape[a] = spec->shape[a];
    }
    return LIERNE_OK;
}

static lierne_status check_spec(const lierne_layout_spec *spec) {
    if (!spec || spec->size != sizeof *spec) {
        return LIERNE_FAIL(LIERNE_INVALID, "spec is NULL or its size is not %zu", sizeof *spec);
    }
    if (!spec->grid || !spec->shape ||
        (!spec->placements && lierne_grid_get_ndims(spec->grid, spec->view) > 0)) {
        return LIERNE_FAIL(LIERNE_INVALID, "spec's grid, shape or placements are NULL");
    }
    if (spec->naxes < 1 || spec->naxes > LIERNE_MAX_AXES) {
        return LIERNE_FAIL(LIERNE_INVALID, "naxes is %d, must be in 1 to %d", spec->naxes,
                           LIERNE_MAX_AXES);
    }
    if (lierne_dtype_size(spec->dtype) == 0) {
        return LIERNE_FAIL(LIERNE_INVALID, "dtype %d does not exist", (int)spec->dtype);
    }
    if (spec->full_axes >> spec->naxes) {
        return LIERNE_FAIL(LIERNE_INVALID, "full_axes 0x%x has bits beyond axis %d",
                           (unsigned)spec->full_axes, spec->naxes - 1);
    }
    return LIERNE_OK;
}

static lierne_status fill(lierne_layout *layout, const lierne_layout_spec *spec) {
    LIERNE_TRY(take_tensor(layout, spec));
    LIERNE_TRY(take_grid(layout, spec));
    for (int d = 0; d < layout->ndims; d++) {
        layout->placements[d].counts = spec->placements[d].counts;
        layout->placements[d].rows = spec->placements[d].rows;
        lierne_status status = take_placement(layout, d, spec->placements);
        if (layout->placements[d].counts == spec->placements[d].counts) {
            layout->placements[d].counts = NULL;
        }
        if (layout->placements[d].rows == spec->placements[d].rows) {
            layout->placements[d].rows = NULL;
        }
        LIERNE_TRY(status);
    }
    return check_nesting(layout);
}

lierne_status lierne_layout_create(lierne_layout **out, const lierne_layout_spec *spec) {
    if (!out) {
        return LIERNE_FAIL(LIERNE_INVALID, "out is NULL");
    }
    *out = NULL;
    LIERNE_TRY(check_spec(spec));
    lierne_layout *layout;
    LIERNE_TRY(lierne_alloc(&layout, 1, sizeof *layout));
    lierne_status status = fill(layout, spec);
    if (status != LIERNE_OK) {
        lierne_layout_destroy(layout);
        return status;
    }
    *out = layout;
    return LIERNE_OK;
}

void lierne_layout_destroy(lierne_layout *layout) {
    if (!layout) {
        return;
    }
    for (int d = 0; d < layout->ndims; d++) {
        lierne_mem_free((void *)layout->placements[d].counts);
        lierne_mem_free((void *)layout->placements[d].rows);
    }
    lierne_mem_free(layout);
}

lierne_status lierne_layout_get_shape(int64_t *shape, const lierne_layout *layout, int rank) {
    lierne_cell cell;
    if (!layout || !shape) {
        return LIERNE_FAIL(LIERNE_INVALID, "%s is NULL", layout ? "shape" : "layout");
    }
    if (!lierne_layout_cell(layout, rank, &cell)) {
        memset(shape, 0, (size_t)layout->naxes * sizeof *shape);
        return LIERNE_OK;
    }
    return lierne_layout_cell_boxes(layout, &cell, NULL, shape);
}

lierne_status lierne_layout_get_elements(int64_t *stored, int64_t *owned,
                                         const lierne_layout *layout, int rank) {
    lierne_boxes boxes = {0};
    lierne_cell cell;
    int64_t shape[LIERNE_MAX_AXES] = {0}, sum = 0, product = 1;
    if (!layout) {
        return LIERNE_FAIL(LIERNE_INVALID, "layout is NULL");
    }
    if (lierne_layout_cell(layout, rank, &cell)) {
        lierne_status status = lierne_layout_cell_boxes(layout, &cell, &boxes, shape);
        for (size_t i = 0; i < boxes.count; i++) {
            int64_t n = 1;
            for (int a = 0; a < layout->naxes; a++) {
                n *= boxes.at[i].size[a];
            }
            sum += n;
        }
        lierne_mem_free(boxes.at);
        LIERNE_TRY(status);
    }
    for (int a = 0; a < layout->naxes; a++) {
        product *= shape[a];
    }
    if (stored) {
        *stored = product;
    }
    if (owned) {
        *owned = sum;
    }
    return LIERNE_OK;
}

lierne_status lierne_layout_get_boxes(lierne_box *boxes, size_t capacity, size_t *count,
                                      const lierne_layout *layout, int rank) {
    lierne_boxes found = {0};
    lierne_cell cell;
    if (!layout || !count) {
        return LIERNE_FAIL(LIERNE_INVALID, "%s is NULL", layout ? "count" : "layout");
    }
    *count = 0;
    if (!lierne_layout_cell(layout, rank, &cell)) {
        return LIERNE_OK;
    }
    lierne_status status = lierne_layout_cell_boxes(layout, &cell, &found, NULL);
    if (status == LIERNE_OK) {
        *count = found.count;
        for (size_t i = 0; boxes && i < found.count && i < capacity; i++) {
            boxes[i] = found.at[i];
        }
    }
    lierne_mem_free(found.at);
    return status;
}
