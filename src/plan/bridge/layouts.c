/* States the layouts of a bridge: the tensor at the source, the tensor at the destination, the
 * gradient of the output. What a bridge means is in these placements; moving between them is the
 * planner's. */
#include "plan/bridge/bridge.h"

#include <string.h>

/* Placements of a side before cp's: dp shards the batch, one pipeline stage of pp, the rest as
 * given. */
static void place(const lierne_bridge_spec *spec, bool at_source, lierne_placement *placements) {
    const lierne_grid *grid = at_source ? spec->src : spec->dst;
    const lierne_placement *given = at_source ? spec->src_placements : spec->dst_placements;
    int pp = lierne_grid_find_dim(grid, "pp");
    memset(placements, 0, LIERNE_MAX_DIMS * sizeof *placements);
    if (given) {
        memcpy(placements, given, (size_t)lierne_grid_get_ndims(grid, NULL) * sizeof *placements);
    }
    placements[lierne_grid_find_dim(grid, "dp")] =
        (lierne_placement){.kind = LIERNE_PLACEMENT_SHARD,
                           .axis = spec->batch_axis,
                           .counts = at_source ? spec->src_counts : spec->dst_counts};
    if (pp >= 0) {
        int last = lierne_grid_find_dim_size(grid, NULL, "pp") - 1;
        placements[pp] =
            (lierne_placement){.kind = LIERNE_PLACEMENT_AT, .at = at_source ? last : 0};
    }
}

static lierne_placement place_gradient(const lierne_bridge_spec *spec) {
    switch (spec->gradient_owner) {
    case LIERNE_GRADIENT_OWNER_ZIGZAG:
        return (lierne_placement){.kind = LIERNE_PLACEMENT_SHARD_ZIGZAG,
                                  .axis = spec->sequence_axis};
    case LIERNE_GRADIENT_OWNER_CONTIGUOUS:
        return (lierne_placement){.kind = LIERNE_PLACEMENT_SHARD, .axis = spec->sequence_axis};
    case LIERNE_GRADIENT_OWNER_ROWS:
        return (lierne_placement){.kind = LIERNE_PLACEMENT_SHARD_ROWS,
                                  .axis = spec->batch_axis,
                                  .axis2 = spec->sequence_axis,
                                  .rows = spec->row_owner};
    default:
        return (lierne_placement){.kind = LIERNE_PLACEMENT_PARTIAL};
    }
}

static lierne_status check_cp(const lierne_bridge_spec *spec) {
    int cp = lierne_grid_find_dim_size(spec->dst, NULL, "cp");
    if (spec->gradient_owner != LIERNE_GRADIENT_OWNER_ROWS || cp > 1) {
        return LIERNE_OK;
    }
    int64_t rows;
    if (!lierne_mul_i64(spec->shape[spec->batch_axis], spec->shape[spec->sequence_axis], &rows)) {
        return LIERNE_FAIL(LIERNE_ERR_OVERFLOW, "rows of the tensor");
    }
    for (int64_t i = 0; i < rows; i++) {
        if (spec->row_owner[i] != 0) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "row %lld has owner %d, but destination cp is 1",
                               (long long)i, (int)spec->row_owner[i]);
        }
    }
    return LIERNE_OK;
}

static lierne_status layout_of(lierne_layout **out, const lierne_bridge_spec *spec,
                               const lierne_grid *grid, const lierne_placement *placements,
                               uint32_t full_axes) {
    lierne_layout_spec layout = {.size = sizeof layout,
                                 .grid = grid,
                                 .naxes = spec->naxes,
                                 .shape = spec->shape,
                                 .dtype = spec->dtype,
                                 .placements = placements,
                                 .full_axes = full_axes};
    return lierne_layout_create(out, &layout);
}

lierne_status lierne_bridge_sides_create(lierne_bridge_sides *sides,
                                         const lierne_bridge_spec *spec) {
    lierne_placement src[LIERNE_MAX_DIMS], dst[LIERNE_MAX_DIMS];
    int cp = lierne_grid_find_dim(spec->dst, "cp");
    bool owned = cp >= 0 && spec->gradient_owner != LIERNE_GRADIENT_OWNER_PARTIAL;
    uint32_t full =
        owned && spec->gradient_storage == LIERNE_STORAGE_FULL ? 1u << spec->sequence_axis : 0;
    place(spec, true, src);
    place(spec, false, dst);
    LIERNE_TRY(check_cp(spec));
    LIERNE_TRY(layout_of(&sides->src, spec, spec->src, src, 0));
    if (spec->output == LIERNE_BRIDGE_OUTPUT_WHOLE) {
        LIERNE_TRY(layout_of(&sides->dst, spec, spec->dst, dst, 0));
    }
    if (cp >= 0) {
        dst[cp] = place_gradient(spec);
    }
    LIERNE_TRY(layout_of(&sides->gradient, spec, spec->dst, dst, full));
    return sides->dst ? LIERNE_OK : layout_of(&sides->dst, spec, spec->dst, dst, full);
}

void lierne_bridge_sides_destroy(lierne_bridge_sides *sides) {
    lierne_layout_destroy(sides->src);
    lierne_layout_destroy(sides->dst);
    lierne_layout_destroy(sides->gradient);
}

lierne_status lierne_layout_create_bridge(lierne_layout **src, lierne_layout **dst,
                                          lierne_layout **gradient,
                                          const lierne_bridge_spec *spec) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(src);
    LIERNE_NULL_OUTPUT(dst);
    LIERNE_NULL_OUTPUT(gradient);
    lierne_bridge_resolved r;
    lierne_bridge_sides sides = {0};
    if (!src || !dst || !gradient) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL",
                           !src   ? "src"
                           : !dst ? "dst"
                                  : "gradient");
    }
    lierne_status status = lierne_bridge_resolve(spec, &r);
    if (status == LIERNE_OK) {
        status = lierne_bridge_check_resolved(&r.spec);
    }
    if (status == LIERNE_OK) {
        status = lierne_bridge_sides_create(&sides, &r.spec);
    }
    if (status == LIERNE_OK) {
        *src = sides.src;
        *dst = sides.dst;
        *gradient = sides.gradient;
    } else {
        lierne_bridge_sides_destroy(&sides);
    }
    lierne_bridge_resolved_destroy(&r);
    return status;
}

lierne_status lierne_bridge_check(const lierne_bridge_spec *spec) {
    LIERNE_PUBLIC_CALL();
    lierne_bridge_sides sides = {0};
    lierne_status status =
        lierne_layout_create_bridge(&sides.src, &sides.dst, &sides.gradient, spec);
    lierne_bridge_sides_destroy(&sides);
    return status;
}
