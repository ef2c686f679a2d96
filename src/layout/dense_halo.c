/* Descriptions of halos: taken and checked once, when a layout is made, so that all that follows is
 * arithmetic that cannot overflow. */
#include "layout/dense_halo.h"

#include <string.h>

#define MOST ((int64_t)1 << 60) /* positions of an axis, bytes of a buffer */

const lierne_dense_halo *lierne_halo_of(const lierne_layout *layout, int axis) {
    int i = layout->halos ? layout->halos->of_axis[axis] : -1;
    return i >= 0 ? &layout->halos->at[i] : NULL;
}

static lierne_status check_list(const lierne_layout *layout, const lierne_layout_spec *spec) {
    if (spec->nhalos < 0 || spec->nhalos > layout->naxes) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "nhalos is %d, must be in 0 to %d, one per axis",
                           spec->nhalos, layout->naxes);
    }
    LIERNE_TRY(spec->nhalos ? lierne_check_set(spec->halos, "spec->halos") : LIERNE_OK);
    if ((int)spec->stencil < 0 || spec->stencil > LIERNE_STENCIL_STAR) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "stencil is %d, must be in 0 to %d",
                           (int)spec->stencil, (int)LIERNE_STENCIL_STAR);
    }
    if ((int)spec->halo_storage < 0 || spec->halo_storage > LIERNE_HALO_STORAGE_MARGINS) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "halo_storage is %d, must be in 0 to %d",
                           (int)spec->halo_storage, (int)LIERNE_HALO_STORAGE_MARGINS);
    }
    return LIERNE_OK;
}

static lierne_status check_axis(const lierne_layout *layout, int i) {
    const lierne_halos *halos = layout->halos;
    const lierne_dense_halo *h = &halos->at[i];
    if (h->axis < 0 || h->axis >= layout->naxes) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "halo[%d].axis is %d, must be in 0 to %d", i,
                           h->axis, layout->naxes - 1);
    }
    if (halos->of_axis[h->axis] >= 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "halo[%d].axis is %d, as that of halo[%d]: an axis has at most one halo",
                           i, h->axis, halos->of_axis[h->axis]);
    }
    if (layout->full_axes >> h->axis & 1) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "halo[%d].axis is %d, which full_axes 0x%x stores FULL: a window is "
                           "stored compact",
                           i, h->axis, (unsigned)layout->full_axes);
    }
    return LIERNE_OK;
}

/* A SHARD_ROWS of two axes has no spans of one of them. */
static lierne_status check_map(const lierne_layout *layout, int i) {
    const lierne_dense_halo *h = &layout->halos->at[i];
    const lierne_placement *map =
        layout->rows_dim >= 0 ? &layout->placements[layout->rows_dim] : NULL;
    if (map && (map->axis == h->axis || map->axis2 == h->axis)) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "halo[%d].axis is %d, which a SHARD_ROWS of axes %d and %d (dim %d) "
                           "divides: rows of two axes have no windows",
                           i, h->axis, map->axis, map->axis2, layout->rows_dim);
    }
    return LIERNE_OK;
}

/* What needs windows that have their span in them, or NULL. */
static const char *what_needs_cores(const lierne_halos *halos, const lierne_dense_halo *h) {
    return halos->stencil == LIERNE_STENCIL_STAR          ? "a star"
           : halos->storage != LIERNE_HALO_STORAGE_PADDED ? "margin storage"
           : h->nsegments != 0                            ? "documents"
                                                          : NULL;
}

/* Widths below 0 leave windows without cores. */
static lierne_status check_negative(const lierne_halos *halos, int i) {
    const lierne_dense_halo *h = &halos->at[i];
    const char *what =
        h->boundary == LIERNE_BOUNDARY_NONE ? "boundary NONE" : what_needs_cores(halos, h);
    if ((h->lo >= 0 && h->hi >= 0) || !what) {
        return LIERNE_OK;
    }
    return LIERNE_FAIL(LIERNE_ERR_INVALID, "halo[%d].%s is %lld, must be at least 0 with %s", i,
                       h->lo < 0 ? "lo" : "hi", (long long)(h->lo < 0 ? h->lo : h->hi), what);
}

static lierne_status check_widths(const lierne_halos *halos, int i) {
    const lierne_dense_halo *h = &halos->at[i];
    const int64_t widths[2] = {h->lo, h->hi};
    for (int side = 0; side < 2; side++) {
        if (widths[side] > MOST || widths[side] < -MOST) {
            return LIERNE_FAIL(LIERNE_ERR_OVERFLOW, "halo[%d].%s is %lld, must be at most %lld", i,
                               side ? "hi" : "lo", (long long)widths[side], (long long)MOST);
        }
    }
    if (h->lo + h->hi < 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "halo[%d].lo is %lld and hi %lld: their sum must be at least 0", i,
                           (long long)h->lo, (long long)h->hi);
    }
    return check_negative(halos, i);
}

/* Whether windows that reach from one position to another have something to show. */
static lierne_status check_reach(const lierne_layout *layout, int i, int64_t first, int64_t last) {
    const lierne_dense_halo *h = &layout->halos->at[i];
    int64_t n = layout->shape[h->axis];
    bool fills = h->boundary == LIERNE_BOUNDARY_ZERO || h->boundary == LIERNE_BOUNDARY_KEEP;
    if (h->boundary == LIERNE_BOUNDARY_NONE && (first < 0 || last >= n)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "halo[%d]: windows reach from %lld to %lld, must be in 0 to %lld with "
                           "boundary NONE",
                           i, (long long)first, (long long)last, (long long)n - 1);
    }
    return n == 0 && !fills
               ? LIERNE_FAIL(LIERNE_ERR_INVALID,
                             "halo[%d].boundary is %d, must be ZERO or KEEP on an axis without "
                             "elements",
                             i, (int)h->boundary)
               : LIERNE_OK;
}

static lierne_status check_stride(const lierne_layout *layout, int i) {
    const lierne_halos *halos = layout->halos;
    const lierne_dense_halo *h = &halos->at[i];
    int64_t last;
    if (h->stride < 0 || h->outputs < 0 || (h->outputs > 0 && h->stride == 0)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "halo[%d].stride is %lld and outputs %lld: both must be at least 0, and "
                           "outputs 0 without a stride",
                           i, (long long)h->stride, (long long)h->outputs);
    }
    const char *what = what_needs_cores(halos, h);
    if (h->stride > 0 && what) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "halo[%d].stride is %lld, must be 0 with %s", i,
                           (long long)h->stride, what);
    }
    if (!lierne_mul_i64(h->stride, h->outputs, &last) || last > MOST) {
        return LIERNE_FAIL(LIERNE_ERR_OVERFLOW,
                           "halo[%d].stride is %lld and outputs %lld: their product must be at "
                           "most %lld",
                           i, (long long)h->stride, (long long)h->outputs, (long long)MOST);
    }
    return h->stride > 0 && h->outputs > 0
               ? check_reach(layout, i, -h->lo, h->stride * (h->outputs - 1) + h->hi)
               : LIERNE_OK;
}

/* A window of a coordinate's own. */
static lierne_status check_window(const lierne_layout *layout, int i, int64_t c) {
    const lierne_dense_halo *h = &layout->halos->at[i];
    int64_t start = h->starts[c], end = h->ends[c];
    if (start < -MOST || end > MOST) {
        return LIERNE_FAIL(LIERNE_ERR_OVERFLOW,
                           "halo[%d].starts[%lld] is %lld and ends[%lld] %lld: the window must be "
                           "in %lld to %lld",
                           i, (long long)c, (long long)start, (long long)c, (long long)end,
                           -(long long)MOST, (long long)MOST);
    }
    if (end < start) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "halo[%d].ends[%lld] is %lld, must be at least starts[%lld], which is "
                           "%lld",
                           i, (long long)c, (long long)end, (long long)c, (long long)start);
    }
    return start < end ? check_reach(layout, i, start, end - 1) : LIERNE_OK;
}

/* What starts and ends exclude, and need of the dims. *windows: their number. */
static lierne_status check_starts(const lierne_layout *layout, int i, int64_t *windows) {
    const lierne_dense_halo *h = &layout->halos->at[i];
    const char *what = h->lo || h->hi ? "lo or hi"
                       : h->stride    ? "a stride"
                                      : what_needs_cores(layout->halos, h);
    int cut = -1;
    if (what) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "halo[%d].starts must be NULL with %s", i, what);
    }
    *windows = 1;
    for (int d = 0; d < layout->ndims; d++) {
        const lierne_placement *p = &layout->placements[d];
        bool map = p->kind == LIERNE_PLACEMENT_SHARD_ROWS;
        if (p->axis != h->axis || (!lierne_cuts_in_shares(p->kind) && !map)) {
            continue;
        }
        if (cut >= 0 || p->kind != LIERNE_PLACEMENT_SHARD) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "halo[%d].starts: dim %d cuts axis %d %s: one dim may, with SHARD",
                               i, d, h->axis, cut >= 0 ? "as another dim does" : "otherwise");
        }
        cut = d;
        *windows = layout->sizes[d];
    }
    return LIERNE_OK;
}

static lierne_status check_documents(const lierne_layout *layout, int i) {
    const lierne_dense_halo *h = &layout->halos->at[i];
    int64_t n = layout->shape[h->axis];
    for (int64_t k = 0; h->nsegments > 0 && k <= h->nsegments; k++) {
        int64_t least = k ? h->segments[k - 1] : 0;
        bool ends = k == 0 || k == h->nsegments;
        if (h->segments[k] < least || (ends && h->segments[k] != (k ? n : 0))) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "halo[%d].segments[%lld] is %lld, must be %s%lld", i, (long long)k,
                               (long long)h->segments[k], ends ? "" : "at least ",
                               (long long)(!ends ? least
                                           : k   ? n
                                                 : 0));
        }
    }
    return LIERNE_OK;
}

static lierne_status check_numbers(const lierne_layout *layout, int i) {
    const lierne_dense_halo *h = &layout->halos->at[i];
    LIERNE_TRY(check_axis(layout, i));
    if ((int)h->boundary < 0 || h->boundary > LIERNE_BOUNDARY_REPLICATE) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "halo[%d].boundary is %d, must be in 0 to %d", i,
                           (int)h->boundary, (int)LIERNE_BOUNDARY_REPLICATE);
    }
    LIERNE_TRY(check_widths(layout->halos, i));
    return check_stride(layout, i);
}

static lierne_status check_lists(const lierne_layout *layout, int i) {
    const lierne_dense_halo *h = &layout->halos->at[i];
    for (int64_t c = 0; h->starts && c < h->outputs; c++) {
        LIERNE_TRY(check_window(layout, i, c));
    }
    return check_documents(layout, i);
}

int64_t lierne_extent(const lierne_layout *layout, int axis) {
    const lierne_dense_halo *h = lierne_halo_of(layout, axis);
    return h && (h->stride > 0 || h->starts) ? h->outputs : layout->shape[axis];
}

/* The most spans that a rank may have of an axis. */
static int64_t most_spans(const lierne_layout *layout, int axis) {
    int64_t most = LIERNE_MAX_PIECES;
    for (int i = 0; i < layout->ncuts; i++) {
        const lierne_placement *p = &layout->placements[layout->cuts[i]];
        most = p->kind == LIERNE_PLACEMENT_SHARD_ROWS && p->axis == axis
                   ? lierne_extent(layout, axis)
                   : most;
    }
    return most;
}

/* At most so many positions: all spans with both margins. */
static bool bound_axis(const lierne_layout *layout, int axis, int64_t *most) {
    const lierne_dense_halo *h = lierne_halo_of(layout, axis);
    int64_t n = layout->shape[axis], margins = h ? h->lo + h->hi : 0;
    if (h && h->starts) {
        n = 0;
        for (int64_t c = 0; c < h->outputs; c++) {
            n = h->ends[c] - h->starts[c] > n ? h->ends[c] - h->starts[c] : n;
        }
    } else if (h && h->stride > 0) {
        n = h->stride * h->outputs;
    }
    if (h && h->boundary == LIERNE_BOUNDARY_NONE) {
        margins = (h->lo < n ? h->lo : n) + (h->hi < n ? h->hi : n);
    }
    return lierne_mul_i64(margins, most_spans(layout, axis), &margins) &&
           lierne_add_i64(n, margins, most);
}

static lierne_status check_size(const lierne_layout *layout) {
    int64_t bytes = (int64_t)lierne_dtype_size(layout->dtype);
    for (int a = 0; a < layout->naxes; a++) {
        int64_t most;
        if (!bound_axis(layout, a, &most) || !lierne_mul_i64(bytes, most ? most : 1, &bytes) ||
            bytes > MOST) {
            return LIERNE_FAIL(LIERNE_ERR_OVERFLOW,
                               "a buffer with halos may have more than %lld bytes, at axis %d of "
                               "size %lld",
                               (long long)MOST, a, (long long)layout->shape[a]);
        }
    }
    return LIERNE_OK;
}

static lierne_status copy_list(const int64_t **out, const int64_t *given, size_t n) {
    int64_t *own;
    LIERNE_TRY(lierne_alloc(&own, n, sizeof *own));
    memcpy(own, given, n * sizeof *own);
    *out = own;
    return LIERNE_OK;
}

/* Copies the lists of a halo, whose other members are set. */
static lierne_status copy_lists(lierne_dense_halo *h, const lierne_dense_halo *given) {
    LIERNE_TRY(h->nsegments > 0 ? copy_list(&h->segments, given->segments, (size_t)h->nsegments + 1)
                                : LIERNE_OK);
    LIERNE_TRY(given->starts ? copy_list(&h->starts, given->starts, (size_t)h->outputs)
                             : LIERNE_OK);
    return given->starts ? copy_list(&h->ends, given->ends, (size_t)h->outputs) : LIERNE_OK;
}

static lierne_dense_halo without_lists(const lierne_dense_halo *given) {
    lierne_dense_halo h = *given;
    h.segments = h.starts = h.ends = NULL;
    return h;
}

static lierne_status take_halo(lierne_layout *layout, int i, const lierne_dense_halo *given) {
    lierne_halos *halos = layout->halos;
    lierne_dense_halo *h = &halos->at[i];
    if (given->nsegments < 0 || (given->nsegments > 0 && !given->segments)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "halo[%d].nsegments is %lld%s", i,
                           (long long)given->nsegments,
                           given->nsegments < 0 ? ", must be at least 0"
                                                : ", but segments is NULL");
    }
    if (!given->starts != !given->ends) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "halo[%d].%s is NULL: give starts and ends, or none",
                           i, given->starts ? "ends" : "starts");
    }
    *h = without_lists(given);
    halos->n++;
    LIERNE_TRY(check_numbers(layout, i));
    if (given->segments && h->nsegments == 0 && layout->shape[h->axis] > 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "halo[%d].nsegments is 0, but segments is given, of an axis of %lld "
                           "elements",
                           i, (long long)layout->shape[h->axis]);
    }
    LIERNE_TRY(given->starts ? check_starts(layout, i, &h->outputs) : LIERNE_OK);
    LIERNE_TRY(copy_lists(h, given));
    LIERNE_TRY(check_lists(layout, i));
    halos->of_axis[h->axis] = i;
    halos->cores = halos->cores && lierne_halo_has_cores(h);
    return LIERNE_OK;
}

static lierne_status take_halos(lierne_layout *layout, const lierne_layout_spec *spec) {
    lierne_halos *halos = layout->halos;
    halos->stencil = spec->stencil;
    halos->storage = spec->halo_storage;
    halos->cores = true;
    for (int a = 0; a < LIERNE_MAX_AXES; a++) {
        halos->of_axis[a] = -1;
    }
    for (int i = 0; i < spec->nhalos; i++) {
        LIERNE_TRY(take_halo(layout, i, &spec->halos[i]));
    }
    return LIERNE_OK;
}

lierne_status lierne_halos_create(lierne_layout *layout, const lierne_layout_spec *spec) {
    LIERNE_TRY(check_list(layout, spec));
    if (spec->nhalos == 0) {
        return spec->halo_storage == LIERNE_HALO_STORAGE_PADDED
                   ? LIERNE_OK
                   : LIERNE_FAIL(LIERNE_ERR_INVALID, "halo_storage is %d, must be 0 without halos",
                                 (int)spec->halo_storage);
    }
    if (layout->packed) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "nhalos is %d and axis %d is packed: a layout has halos or a packing",
                           spec->nhalos, spec->packed_axis);
    }
    LIERNE_TRY(lierne_alloc(&layout->halos, 1, sizeof *layout->halos));
    return take_halos(layout, spec);
}

lierne_status lierne_halos_copy(lierne_layout *layout, const lierne_layout *old) {
    if (!old->halos) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc(&layout->halos, 1, sizeof *layout->halos));
    *layout->halos = *old->halos;
    for (int i = 0; i < old->halos->n; i++) {
        layout->halos->at[i] = without_lists(&old->halos->at[i]);
    }
    for (int i = 0; i < old->halos->n; i++) {
        lierne_dense_halo *h = &layout->halos->at[i];
        int axis = h->axis;
        const char *what = h->stride > 0              ? "stride"
                           : h->nsegments > 0         ? "list of documents"
                           : old->halos->at[i].starts ? "list of windows"
                                                      : NULL;
        if (what && layout->shape[axis] != old->shape[axis]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "axis %d would have %lld instead of %lld, but its halo has a %s: "
                               "make a new plan",
                               axis, (long long)layout->shape[axis], (long long)old->shape[axis],
                               what);
        }
        LIERNE_TRY(copy_lists(h, &old->halos->at[i]));
    }
    return LIERNE_OK;
}

lierne_status lierne_halo_set_documents(lierne_layout *layout, int axis, int64_t n,
                                        const int64_t *segments) {
    int i = layout->halos->of_axis[axis];
    lierne_dense_halo *h = &layout->halos->at[i];
    const int64_t *own;
    LIERNE_TRY(copy_list(&own, segments, (size_t)n + 1));
    lierne_mem_free((void *)h->segments);
    h->segments = own;
    h->nsegments = n;
    return check_documents(layout, i);
}

lierne_status lierne_halos_check(const lierne_layout *layout) {
    for (int i = 0; layout->halos && i < layout->halos->n; i++) {
        LIERNE_TRY(check_map(layout, i));
    }
    return layout->halos ? check_size(layout) : LIERNE_OK;
}

lierne_status lierne_halos_check_source(const lierne_layout *layout, const char *name) {
    const char *has = lierne_stores_margins(layout) ? "margin storage" : "windows without cores";
    return lierne_has_cores(layout)
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "%s has %s: a source must hold its cores",
                             name, has);
}

void lierne_halos_destroy(lierne_halos *halos) {
    for (int i = 0; halos && i < halos->n; i++) {
        lierne_mem_free((void *)halos->at[i].segments);
        lierne_mem_free((void *)halos->at[i].starts);
        lierne_mem_free((void *)halos->at[i].ends);
    }
    lierne_mem_free(halos);
}
