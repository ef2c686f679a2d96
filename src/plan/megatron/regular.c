/* What both of Megatron-LM's algorithms need: they split batches into equal slices and know no
 * placement but replicas. */
#include "plan/megatron/megatron.h"

#include <string.h>

lierne_status lierne_megatron_check_one(const lierne_grid *grid, const char *whose, const char *dim,
                                        const char *hint) {
    int size = lierne_grid_find_dim_size(grid, NULL, dim);
    if (size != 1) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "%s %s is %d, must be 1%s", whose, dim, size,
                           hint);
    }
    return LIERNE_OK;
}

lierne_status lierne_megatron_check_regular(const lierne_megatron_bridge *bridge,
                                            const char *algorithm) {
    const lierne_bridge_spec *spec = bridge->spec;
    int64_t batch = bridge->src->shape[bridge->batch_axis];
    int src = lierne_grid_find_dim_size(bridge->grids.src, NULL, "dp");
    int dst = lierne_grid_find_dim_size(bridge->grids.dst, NULL, "dp");
    int wide = src > dst ? src : dst, narrow = src > dst ? dst : src;
    if (wide % narrow != 0) {
        return LIERNE_FAIL(LIERNE_ERR_INDIVISIBLE,
                           "%s: source dp %d and destination dp %d: neither "
                           "divides the other",
                           algorithm, src, dst);
    }
    if (batch % wide != 0) {
        return LIERNE_FAIL(LIERNE_ERR_INDIVISIBLE,
                           "%s, %s: the batch of %lld samples is not divisible "
                           "by %d dp ranks at dp ratio %d",
                           algorithm,
                           src > dst   ? "fan_in"
                           : src < dst ? "fan_out"
                                       : "equal",
                           (long long)batch, wide, wide / narrow);
    }
    if (spec->src_placements || spec->dst_placements) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "%s needs replicas over all dims but dp: no "
                           "placements",
                           algorithm);
    }
    if (spec->variable_rows) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "%s needs samples of one size: variable_rows must be 0", algorithm);
    }
    if (spec->shared_output != LIERNE_SHARING_NONE) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "%s writes an output for every rank: shared_output is %d, must be 0",
                           algorithm, (int)spec->shared_output);
    }
    if (spec->gradient_owner != LIERNE_GRADIENT_OWNER_PARTIAL || spec->src_counts ||
        spec->dst_counts) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "%s needs a partial gradient and no counts, "
                           "gradient_owner is %d",
                           algorithm, (int)spec->gradient_owner);
    }
    return LIERNE_OK;
}

lierne_block lierne_megatron_slice(int naxes, const int64_t *shape, int batch_axis, int i, int n) {
    int64_t local[LIERNE_MAX_AXES] = {0}, size[LIERNE_MAX_AXES];
    memcpy(size, shape, (size_t)naxes * sizeof *size);
    size[batch_axis] = shape[batch_axis] / n;
    local[batch_axis] = i * size[batch_axis];
    return lierne_block_box(naxes, shape, local, size);
}
