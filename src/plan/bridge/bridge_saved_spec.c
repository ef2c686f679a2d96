/* A copy of a bridge's spec that lives as long as its plan, for planning again with another row map
 * or another shape. The caller may free its grids and arrays after planning, so everything is
 * copied. */
#include "plan/bridge/bridge.h"

#include <string.h>

size_t lierne_bridge_map_size(const lierne_bridge_spec *spec) {
    int s = spec->sequence_axis;
    return s < 0 ? 0 : (size_t)(spec->shape[spec->batch_axis] * spec->shape[s]);
}

/* *out = a copy of n items, NULL for none. */
static lierne_status copy_items(void *out, const void *items, size_t n, size_t size) {
    void *copy = NULL;
    if (items) {
        LIERNE_TRY(lierne_alloc(&copy, n, size));
        memcpy(copy, items, n * size);
    }
    memcpy(out, &copy, sizeof copy);
    return LIERNE_OK;
}

static lierne_status copy_side(lierne_bridge_saved_spec *r, int side, const lierne_grid *grid,
                               const int64_t *counts, const lierne_placement *placements) {
    size_t dp = (size_t)lierne_grid_find_dim_size(grid, NULL, "dp");
    size_t dims = (size_t)lierne_grid_get_ndims(grid, NULL);
    LIERNE_TRY(lierne_grid_copy_view(side ? &r->dst : &r->src, grid, NULL));
    LIERNE_TRY(copy_items(&r->counts[side], counts, dp, sizeof *counts));
    return copy_items(&r->placements[side], placements, dims, sizeof *placements);
}

static lierne_status copy_spec(lierne_bridge_saved_spec *r, const lierne_bridge_spec *spec) {
    r->base.free = lierne_bridge_saved_spec_destroy;
    r->spec = *spec;
    r->spec.name = NULL;
    memcpy(r->shape, spec->shape, (size_t)spec->naxes * sizeof *r->shape);
    LIERNE_TRY(copy_side(r, 0, spec->src, spec->src_counts, spec->src_placements));
    LIERNE_TRY(copy_side(r, 1, spec->dst, spec->dst_counts, spec->dst_placements));
    LIERNE_TRY(copy_items(&r->row_owner, spec->row_owner, lierne_bridge_map_size(spec),
                          sizeof *spec->row_owner));
    r->spec.src = r->src;
    r->spec.dst = r->dst;
    r->spec.shape = r->shape;
    r->spec.src_counts = r->counts[0];
    r->spec.dst_counts = r->counts[1];
    r->spec.src_placements = r->placements[0];
    r->spec.dst_placements = r->placements[1];
    r->spec.row_owner = r->row_owner;
    return LIERNE_OK;
}

lierne_status lierne_bridge_saved_spec_create(lierne_bridge_saved_spec **out,
                                              const lierne_bridge_spec *spec) {
    lierne_bridge_saved_spec *saved;
    LIERNE_TRY(lierne_alloc(&saved, 1, sizeof *saved));
    lierne_status status = copy_spec(saved, spec);
    if (status != LIERNE_OK) {
        lierne_bridge_saved_spec_destroy(&saved->base);
        return status;
    }
    *out = saved;
    return LIERNE_OK;
}

void lierne_bridge_saved_spec_destroy(lierne_saved_spec *saved) {
    lierne_bridge_saved_spec *r = (lierne_bridge_saved_spec *)saved;
    lierne_bridge_counts_destroy(r->variable);
    lierne_grid_destroy(r->src);
    lierne_grid_destroy(r->dst);
    for (int side = 0; side < 2; side++) {
        lierne_mem_free(r->counts[side]);
        lierne_mem_free(r->placements[side]);
    }
    lierne_mem_free(r->row_owner);
    lierne_mem_free(r);
}
