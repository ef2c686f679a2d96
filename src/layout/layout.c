/* Creating layouts and asking about one rank.
 *
 * A layout is checked once, when it is made, so that everything after it is arithmetic that cannot
 * fail: sizes fit, counts add up, zigzag divides. The grid's radix is copied in, because planners
 * ask for coordinates in their inner loops. */
#include "layout/dense_halo.h"
#include "layout/packed.h"

#include <string.h>

#define MAX_BYTES ((int64_t)1 << 60) /* of a tensor: sums of a few offsets cannot overflow */

/* Every check below is a part of creating, and its message names what the caller called. */

static lierne_status check_axis(const lierne_layout *layout, int dim, int axis) {
    if (axis < 0 || axis >= layout->naxes) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "placement of dim %d has axis %d, must be in 0 to %d", dim, axis,
                           layout->naxes - 1);
    }
    return LIERNE_OK;
}

/* Replaces the caller's counts by running sums of our own, n + 1 of them. */
static lierne_status take_counts(lierne_layout *layout, int dim, const int64_t *given) {
    lierne_placement *p = &layout->placements[dim];
    const lierne_dense_halo *halo = lierne_halo_of(layout, p->axis);
    int64_t *sums,
        total = 0,
        whole = halo && halo->starts ? layout->shape[p->axis] : lierne_extent(layout, p->axis);
    int n = layout->sizes[dim];
    LIERNE_TRY(lierne_alloc(&sums, (size_t)n + 1, sizeof *sums));
    p->counts = sums;
    for (int c = 0; c < n; c++) {
        if (given[c] < 0 || !lierne_add_i64(total, given[c], &total)) {
            return LIERNE_FAIL(
                LIERNE_ERR_INVALID,
                "count %d of dim %d is %lld, must be at least 0, and all counts of the dim "
                "must add up to %lld",
                c, dim, (long long)given[c], (long long)whole);
        }
        sums[c + 1] = total;
    }
    if (total != whole) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "counts of dim %d add up to %lld, but axis %d has %lld", dim,
                           (long long)total, p->axis, (long long)whole);
    }
    if (halo && halo->starts) { /* each coordinate has its window, whatever its share is */
        p->counts = NULL;
        lierne_mem_free(sums);
    }
    return LIERNE_OK;
}

static lierne_status check_share(int dim, const lierne_placement *given) {
    return given->share == LIERNE_SHARE_RULE_BALANCED || given->share == LIERNE_SHARE_RULE_CHUNK
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INVALID,
                             "placement of dim %d has share rule %d, must be 0 or 1", dim,
                             (int)given->share);
}

static lierne_status take_shard(lierne_layout *layout, int dim, const lierne_placement *given) {
    LIERNE_TRY(check_share(dim, given));
    if (given->counts && given->share != LIERNE_SHARE_RULE_BALANCED) {
        return LIERNE_FAIL(
            LIERNE_ERR_INVALID,
            "placement of dim %d has counts and share rule %d; with counts, leave share 0", dim,
            (int)given->share);
    }
    return given->counts ? take_counts(layout, dim, given->counts) : LIERNE_OK;
}

/* A copy of a map of n indices. */
static lierne_status copy_rows(lierne_layout *layout, int dim, const int32_t *given, size_t n) {
    int32_t *rows;
    LIERNE_TRY(lierne_alloc(&rows, n, sizeof *rows));
    layout->placements[dim].rows = rows;
    memcpy(rows, given, n * sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        if (rows[i] < 0 || rows[i] >= layout->sizes[dim]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "row %zu has owner %d, must be in 0 to %d", i,
                               (int)rows[i], layout->sizes[dim] - 1);
        }
    }
    return LIERNE_OK;
}

/* A map of two axes. */
static lierne_status take_rows(lierne_layout *layout, int dim, const int32_t *given) {
    const lierne_placement *p = &layout->placements[dim];
    size_t n;
    LIERNE_TRY(check_axis(layout, dim, p->axis2));
    if (p->axis2 == p->axis || layout->rows_dim >= 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "placement of dim %d: a SHARD_ROWS of two axes needs %s", dim,
                           p->axis2 == p->axis ? "two different axes; for one axis, set axis2 to -1"
                                               : "to be the only one");
    }
    if (!lierne_mul_size((size_t)layout->shape[p->axis], (size_t)layout->shape[p->axis2], &n)) {
        return LIERNE_FAIL(LIERNE_ERR_OVERFLOW, "rows of dim %d", dim);
    }
    LIERNE_TRY(copy_rows(layout, dim, given, n));
    layout->rows_dim = dim;
    bool full = layout->full_axes >> p->axis2 & 1;
    if (!full && p->axis + 1 != p->axis2 && p->axis2 + 1 != p->axis) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "compact rows need neighbouring axes, got %d and %d",
                           p->axis, p->axis2);
    }
    return LIERNE_OK;
}

static lierne_status take_map(lierne_layout *layout, int dim, const lierne_placement *given) {
    if (given->axis2 < -1) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "placement of dim %d has axis2 %d, must be at least -1", dim,
                           given->axis2);
    }
    if (!given->rows) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "placement of dim %d: SHARD_ROWS needs rows, got NULL", dim);
    }
    if (!lierne_is_axis_map(given)) {
        return take_rows(layout, dim, given->rows);
    }
    LIERNE_TRY(copy_rows(layout, dim, given->rows, (size_t)lierne_extent(layout, given->axis)));
    return lierne_owners_create(layout, dim);
}

static lierne_status take_placement(lierne_layout *layout, int dim, const lierne_placement *given) {
    switch (given->kind) {
    case LIERNE_PLACEMENT_REPLICATE:
        return LIERNE_OK;
    case LIERNE_PLACEMENT_PARTIAL:
        layout->partials *= layout->sizes[dim];
        return LIERNE_OK;
    case LIERNE_PLACEMENT_AT:
        if (given->at < 0 || given->at >= layout->sizes[dim]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "placement of dim %d has at %d, must be in 0 to %d", dim, given->at,
                               layout->sizes[dim] - 1);
        }
        layout->at_dims[layout->nat++] = dim;
        return LIERNE_OK;
    case LIERNE_PLACEMENT_SHARD:
        LIERNE_TRY(check_axis(layout, dim, given->axis));
        return take_shard(layout, dim, given);
    case LIERNE_PLACEMENT_SEGMENT_SHARD:
        LIERNE_TRY(check_axis(layout, dim, given->axis));
        return check_share(dim, given);
    case LIERNE_PLACEMENT_SHARD_ZIGZAG:
    case LIERNE_PLACEMENT_SHARD_SEGMENTS:
    case LIERNE_PLACEMENT_SEGMENT_ZIGZAG:
        return check_axis(layout, dim, given->axis);
    case LIERNE_PLACEMENT_SHARD_ROWS:
        LIERNE_TRY(check_axis(layout, dim, given->axis));
        return take_map(layout, dim, given);
    }
    return LIERNE_FAIL(LIERNE_ERR_INVALID, "placement of dim %d is of kind %d, must be in 0 to %d",
                       dim, (int)given->kind, (int)LIERNE_PLACEMENT_SEGMENT_SHARD);
}

static lierne_status take_grid(lierne_layout *layout, const lierne_layout_spec *spec) {
    int stride = 1;
    layout->ndims = lierne_grid_get_ndims(spec->grid, spec->view);
    if (layout->ndims < 0) {
        return LIERNE_FAIL(LIERNE_ERR_UNKNOWN_VIEW, "no view '%s'", spec->view);
    }
    layout->offset = lierne_grid_get_rank_offset(spec->grid);
    layout->nranks = lierne_grid_get_size(spec->grid);
    layout->world = lierne_grid_get_world_size(spec->grid);
    for (int d = 0; d < layout->ndims; d++) {
        layout->sizes[d] = lierne_grid_get_dim_size(spec->grid, spec->view, d);
        layout->strides[d] = stride;
        stride *= layout->sizes[d];
        layout->placements[d] = spec->placements[d];
        /* The caller's; copies take their place. */
        layout->placements[d].counts = NULL;
        layout->placements[d].rows = NULL;
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
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "shape of axis %d is %lld, must be at least 0",
                               a, (long long)spec->shape[a]);
        }
        int64_t size = spec->shape[a] ? spec->shape[a] : 1; /* strides of other axes must fit too */
        if (!lierne_mul_i64(bytes, size, &bytes) || bytes > MAX_BYTES) {
            return LIERNE_FAIL(LIERNE_ERR_OVERFLOW,
                               "the tensor has more than %lld bytes, at axis %d of "
                               "size %lld",
                               (long long)MAX_BYTES, a, (long long)spec->shape[a]);
        }
        layout->shape[a] = spec->shape[a];
    }
    return LIERNE_OK;
}

static lierne_status check_spec(const lierne_layout_spec *spec) {
    LIERNE_TRY(lierne_check_set(spec->grid, "spec->grid"));
    LIERNE_TRY(lierne_check_set(spec->shape, "spec->shape"));
    if (lierne_grid_get_ndims(spec->grid, spec->view) > 0) {
        LIERNE_TRY(lierne_check_set(spec->placements, "spec->placements"));
    }
    if (spec->naxes < 1 || spec->naxes > LIERNE_MAX_AXES) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "naxes is %d, must be in 1 to %d", spec->naxes,
                           LIERNE_MAX_AXES);
    }
    LIERNE_TRY(lierne_check_dtype(spec->dtype, -1));
    if (spec->full_axes >> spec->naxes) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "full_axes 0x%x has bits beyond axis %d",
                           (unsigned)spec->full_axes, spec->naxes - 1);
    }
    return LIERNE_OK;
}

/* A packing is checked before the shape that it must fit. */
static lierne_status fill_layout(lierne_layout *layout, const lierne_layout_spec *spec) {
    LIERNE_TRY(take_grid(layout, spec));
    LIERNE_TRY(lierne_packing_create(layout, spec));
    LIERNE_TRY(take_tensor(layout, spec));
    LIERNE_TRY(lierne_halos_create(layout, spec));
    for (int d = 0; d < layout->ndims; d++) {
        LIERNE_TRY(take_placement(layout, d, &spec->placements[d]));
    }
    LIERNE_TRY(lierne_layout_nest(layout));
    return lierne_halos_check(layout);
}

lierne_status lierne_layout_create(lierne_layout **out, const lierne_layout_spec *given) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_layout_spec own, *spec = &own;
    LIERNE_TRY(lierne_check_set(out, "out"));
    LIERNE_TRY(lierne_spec_take(spec, sizeof *spec, given, "spec"));
    LIERNE_TRY(check_spec(spec));
    lierne_layout *layout;
    LIERNE_TRY(lierne_alloc(&layout, 1, sizeof *layout));
    lierne_status status = fill_layout(layout, spec);
    if (status != LIERNE_OK) {
        lierne_layout_destroy(layout);
        return status;
    }
    *out = layout;
    return LIERNE_OK;
}

/* Counts and maps are of a size; what they were given for must not change. */
static lierne_status check_axes_kept(const lierne_layout *old, int dim, const int64_t *shape) {
    const lierne_placement *p = &old->placements[dim];
    int axes[2] = {p->axis,
                   p->kind == LIERNE_PLACEMENT_SHARD_ROWS && p->axis2 >= 0 ? p->axis2 : p->axis};
    for (int i = 0; (p->counts || p->rows) && i < 2; i++) {
        int a = axes[i];
        if (shape[a] != old->shape[a]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "axis %d would have %lld instead of %lld, but %s of dim %d divide "
                               "it: make a new plan with others",
                               a, (long long)shape[a], (long long)old->shape[a],
                               p->counts ? "the counts" : "the rows", dim);
        }
    }
    return LIERNE_OK;
}

static lierne_status copy_placement(lierne_layout *layout, const lierne_layout *old, int dim) {
    lierne_placement given = old->placements[dim];
    given.counts = NULL;
    LIERNE_TRY(take_placement(layout, dim, &given));
    if (old->placements[dim].counts) {
        size_t n = (size_t)old->sizes[dim] + 1;
        int64_t *sums;
        LIERNE_TRY(lierne_alloc(&sums, n, sizeof *sums));
        memcpy(sums, old->placements[dim].counts, n * sizeof *sums);
        layout->placements[dim].counts = sums;
    }
    return LIERNE_OK;
}

/* The ranks of another layout, and the placements of its dims. */
static void take_ranks(lierne_layout *layout, const lierne_layout *old) {
    layout->ndims = old->ndims;
    layout->offset = old->offset;
    layout->nranks = old->nranks;
    layout->world = old->world;
    layout->ranks = old->ranks;
    memcpy(layout->sizes, old->sizes, sizeof layout->sizes);
    memcpy(layout->strides, old->strides, sizeof layout->strides);
    memcpy(layout->placements, old->placements, sizeof layout->placements);
    for (int d = 0; d < layout->ndims; d++) {
        layout->placements[d].counts = NULL;
        layout->placements[d].rows = NULL;
    }
}

lierne_status lierne_survivors_alloc(lierne_layout *layout) {
    LIERNE_TRY(lierne_alloc(&layout->place_of, (size_t)layout->world, sizeof *layout->place_of));
    return lierne_alloc(&layout->rank_at, (size_t)layout->nranks, sizeof *layout->rank_at);
}

static lierne_status copy_survivors(lierne_layout *layout, const lierne_layout *old) {
    if (!old->place_of) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_survivors_alloc(layout));
    memcpy(layout->place_of, old->place_of, (size_t)layout->world * sizeof *layout->place_of);
    memcpy(layout->rank_at, old->rank_at, (size_t)layout->nranks * sizeof *layout->rank_at);
    return LIERNE_OK;
}

/* grid: NULL, or one whose dims take the place of the old ones. */
static lierne_status fill_like(lierne_layout *layout, const lierne_layout *old,
                               const int64_t *shape, const lierne_layout_spec *grid) {
    const lierne_layout_spec tensor = {.naxes = old->naxes,
                                       .shape = shape,
                                       .dtype = old->dtype,
                                       .full_axes = old->full_axes};
    LIERNE_TRY(take_tensor(layout, &tensor));
    take_ranks(layout, old);
    LIERNE_TRY(grid ? take_grid(layout, grid) : LIERNE_OK);
    LIERNE_TRY(copy_survivors(layout, old));
    LIERNE_TRY(lierne_packing_copy(layout, old, shape));
    LIERNE_TRY(lierne_halos_copy(layout, old));
    for (int d = 0; d < layout->ndims; d++) {
        LIERNE_TRY(check_axes_kept(old, d, shape));
        LIERNE_TRY(copy_placement(layout, old, d));
    }
    LIERNE_TRY(lierne_layout_nest(layout));
    return lierne_halos_check(layout);
}

static lierne_status create_like(lierne_layout **out, const lierne_layout *layout,
                                 const int64_t *shape, const lierne_layout_spec *grid) {
    lierne_layout *other;
    LIERNE_TRY(lierne_alloc(&other, 1, sizeof *other));
    lierne_status status = fill_like(other, layout, shape, grid);
    if (status != LIERNE_OK) {
        lierne_layout_destroy(other);
        return status;
    }
    *out = other;
    return LIERNE_OK;
}

lierne_status lierne_layout_reshape(lierne_layout **out, const lierne_layout *layout,
                                    const int64_t *shape) {
    return create_like(out, layout, shape, NULL);
}

/* What was given for each coordinate of a dim that shares an axis, or NULL. */
static const char *list_of(const lierne_layout *layout, int dim) {
    const lierne_placement *p = &layout->placements[dim];
    const lierne_dense_halo *h =
        p->kind == LIERNE_PLACEMENT_SHARD ? lierne_halo_of(layout, p->axis) : NULL;
    return p->counts ? "counts" : h && h->starts ? "windows" : NULL;
}

/* Whether placements fit other dims; what depends on sizes otherwise is checked as it is taken. */
static lierne_status check_dims(const lierne_layout *layout, const lierne_grid *grid,
                                const char *view, const char *name) {
    int ndims = lierne_grid_get_ndims(grid, view);
    if (layout->packed || layout->place_of) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "%s %s: make a new plan", name,
                           layout->packed ? "has a packing, which divides segments among its ranks"
                                          : "is a layout of survivors");
    }
    if (ndims >= 0 && ndims != layout->ndims) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "%s has %d dims, its new grid %d: they must be as many, in the same "
                           "order",
                           name, layout->ndims, ndims);
    }
    for (int d = 0; d < ndims; d++) {
        int size = lierne_grid_get_dim_size(grid, view, d);
        const char *list = list_of(layout, d);
        if (list && size != layout->sizes[d]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "dim %d of %s has %s for %d coordinates, the new grid has %d: "
                               "make a new plan with others",
                               d, name, list, layout->sizes[d], size);
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_layout_regrid(lierne_layout **out, const lierne_layout *layout,
                                   const lierne_grid *grid, const char *view, const char *name) {
    const lierne_layout_spec dims = {.grid = grid, .view = view, .placements = layout->placements};
    LIERNE_TRY(check_dims(layout, grid, view, name));
    return create_like(out, layout, layout->shape, &dims);
}

void lierne_layout_destroy(lierne_layout *layout) {
    if (!layout) {
        return;
    }
    for (int d = 0; d < layout->ndims; d++) {
        lierne_mem_free((void *)layout->placements[d].counts);
        lierne_mem_free((void *)layout->placements[d].rows);
    }
    lierne_owners_destroy(layout);
    lierne_packing_destroy(layout->packed);
    lierne_halos_destroy(layout->halos);
    lierne_mem_free(layout->place_of);
    lierne_mem_free(layout->rank_at);
    lierne_mem_free(layout);
}

lierne_status lierne_layout_get_shape(int64_t *shape, const lierne_layout *layout, int rank) {
    LIERNE_PUBLIC_CALL();
    lierne_cell cell;
    if (!layout || !shape) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL", layout ? "shape" : "layout");
    }
    if (!lierne_layout_cell(layout, rank, &cell)) {
        memset(shape, 0, (size_t)layout->naxes * sizeof *shape);
        return LIERNE_OK;
    }
    return lierne_layout_cell_boxes(layout, &cell, NULL, shape);
}

lierne_status lierne_layout_get_elements(int64_t *stored, int64_t *owned,
                                         const lierne_layout *layout, int rank) {
    LIERNE_PUBLIC_CALL();
    lierne_boxes boxes = {0};
    lierne_cell cell;
    int64_t shape[LIERNE_MAX_AXES] = {0}, sum = 0, product = 1;
    LIERNE_TRY(lierne_check_set(layout, "layout"));
    if (lierne_layout_cell(layout, rank, &cell)) {
        lierne_status status =
            lierne_layout_cell_boxes(layout, &cell, owned ? &boxes : NULL, shape);
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
    LIERNE_PUBLIC_CALL();
    lierne_boxes found = {0};
    lierne_cell cell;
    if (!layout || !count) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL", layout ? "count" : "layout");
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
