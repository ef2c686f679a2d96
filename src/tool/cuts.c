/* Shares and zigzags, counted out index by index. */
#include "cuts.h"

int cut_ndims(const lierne_layout_spec *spec) {
    return lierne_grid_get_ndims(spec->grid, spec->view);
}

int cut_size(const lierne_layout_spec *spec, int d) {
    return lierne_grid_get_dim_size(spec->grid, spec->view, d);
}

bool cut_is_of(const lierne_placement *p, int axis) {
    return (p->kind == LIERNE_PLACEMENT_SHARD || p->kind == LIERNE_PLACEMENT_SHARD_ZIGZAG) &&
           p->axis == axis;
}

int64_t cut_share_of(int64_t n, int64_t shares, int64_t k) {
    int64_t c = 0;
    for (int64_t end = n / shares + (n % shares > 0); k >= end; c++) {
        end += n / shares + (c + 1 < n % shares);
    }
    return c;
}

int64_t cut_zigzag_of(int64_t n, int64_t ranks, int64_t k) {
    int64_t chunk = ranks == 1 ? 0 : k / (n / (2 * ranks));
    return chunk < ranks ? chunk : 2 * ranks - 1 - chunk;
}

int64_t cut_positions(int64_t *keep, int64_t n, const lierne_layout_spec *spec, const int *coords,
                      int axis) {
    for (int64_t k = 0; k < n; k++) {
        keep[k] = k;
    }
    for (int d = cut_ndims(spec) - 1; d >= 0; d--) {
        bool zigzag = spec->placements[d].kind == LIERNE_PLACEMENT_SHARD_ZIGZAG;
        int64_t left = 0;
        for (int64_t k = 0; cut_is_of(&spec->placements[d], axis) && k < n; k++) {
            bool mine =
                (zigzag ? cut_zigzag_of : cut_share_of)(n, cut_size(spec, d), k) == coords[d];
            keep[left] = keep[k];
            left += mine;
        }
        n = cut_is_of(&spec->placements[d], axis) ? left : n;
    }
    return n;
}
