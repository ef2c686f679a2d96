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

/* Widths below 0 leave windows without cores. */
static lierne_status check_negative(const lierne_halos *halos, int i) {
    const lierne_dense_halo *h = &halos->at[i];
    const char *what = h->boundary == LIERNE_BOUNDARY_NONE            ? "boundary NONE"
                       : halos->stencil == LIERNE_STENCIL_STAR        ? "a star"
                       : halos->storage != LIERNE_HALO_STORAGE_PADDED ? "margin storage"
                                                                      : NULL;
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

static lierne_status check_halo(const lierne_layout *layout, int i) {
    const lierne_dense_halo *h = &layout->halos->at[i];
    LIERNE_TRY(check_axis(layout, i));
    if ((int)h->boundary < 0 || h->boundary > LIERNE_BOUNDARY_REPLICATE) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "halo[%d].boundary is %d, must be in 0 to %d", i,
                           (int)h->boundary, (int)LIERNE_BOUNDARY_REPLICATE);
    }
    return check_widths(layout->halos, i);
}

/* The most spans that a rank may have of an axis. */
static int64_t most_spans(const lierne_layout *layout, int axis) {
    int64_t most = LIERNE_MAX_PIECES;
    for (int i = 0; i < layout->ncuts; i++) {
        const lierne_placement *p = &layout->placements[layout->cuts[i]];
        most = lierne_is_axis_map(p) && p->axis == axis ? layout->shape[axis] : most;
    }
    return most;
}

/* At most so many positions: all spans with both margins. */
static bool bound_axis(const lierne_layout *layout, int axis, int64_t *most) {
    const lierne_dense_halo *h = lierne_halo_of(layout, axis);
    int64_t n = layout->shape[axis], margins = h ? h->lo + h->hi : 0;
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

static lierne_status take_halos(lierne_layout *layout, const lierne_layout_spec *spec) {
    lierne_halos *halos = layout->halos;
    halos->stencil = spec->stencil;
    halos->storage = spec->halo_storage;
    halos->cores = true;
    for (int a = 0; a < LIERNE_MAX_AXES; a++) {
        halos->of_axis[a] = -1;
    }
    for (int i = 0; i < spec->nhalos; i++) {
        halos->at[i] = spec->halos[i];
        LIERNE_TRY(check_halo(layout, i));
        halos->n++;
        halos->of_axis[halos->at[i].axis] = i;
        halos->cores = halos->cores && halos->at[i].lo >= 0 && halos->at[i].hi >= 0;
    }
    return check_size(layout);
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
    return check_size(layout);
}
