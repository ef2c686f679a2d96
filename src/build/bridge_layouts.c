/* Checks a bridge's spec and states its four layouts: the tensor at the source, the tensor at the
 * destination, the gradient of the output, the gradient of the input. What a bridge means is in
 * these placements; moving between them is the planner's. */
#include "build/bridge.h"

#include <string.h>

int lierne_bridge_dim(const lierne_grid *grid, const char *name) {
    for (int d = 0; d < lierne_grid_ndims(grid, NULL); d++) {
        if (strcmp(lierne_grid_dim_name(grid, NULL, d), name) == 0) {
            return d;
        }
    }
    return -1;
}

int lierne_bridge_size(const lierne_grid *grid, const char *name) {
    return lierne_grid_dim_find(grid, NULL, name);
}

lierne_status lierne_bridge_check_grids(const lierne_bridge_spec *spec) {
    const lierne_grid *grids[2];
    if (!spec || spec->size != sizeof *spec) {
        return LIERNE_FAIL(LIERNE_INVALID, "spec is NULL or its size is not %zu", sizeof *spec);
    }
    grids[0] = spec->src;
    grids[1] = spec->dst;
    for (int i = 0; i < 2; i++) {
        const char *side = i ? "destination" : "source";
        if (!grids[i]) {
            return LIERNE_FAIL(LIERNE_INVALID, "the %s grid is NULL", side);
        }
        for (int j = 0; j < 2; j++) {
            if (lierne_bridge_dim(grids[i], j ? "dp" : "tp") < 0) {
                return LIERNE_FAIL(LIERNE_INVALID, "the %s grid has no dim '%s'", side,
                                   j ? "dp" : "tp");
            }
        }
    }
    if (lierne_grid_world(spec->src) != lierne_grid_world(spec->dst)) {
        return LIERNE_FAIL(LIERNE_INVALID, "the source grid lies on a world of %d ranks, the "
                           "destination grid on one of %d", lierne_grid_world(spec->src),
                           lierne_grid_world(spec->dst));
    }
    return LIERNE_OK;
}

static lierne_status check_axes(const lierne_bridge_spec *spec) {
    int b = spec->batch_axis, s = spec->sequence_axis;
    if (spec->naxes < 2 || spec->naxes > 3 || !spec->shape) {
        return LIERNE_FAIL(LIERNE_INVALID, "naxes is %d, must be 2 or 3, or shape is NULL",
                           spec->naxes);
    }
    if (b < 0 || b >= spec->naxes || s < -1 || s >= spec->naxes || s == b) {
        return LIERNE_FAIL(LIERNE_INVALID, "batch_axis is %d and sequence_axis %d: must be two "
                           "axes of %d, the latter or -1", b, s, spec->naxes);
    }
    return LIERNE_OK;
}

static lierne_status check_gradient(const lierne_bridge_spec *spec) {
    bool owned = spec->gradient_owner != LIERNE_GRADIENT_PARTIAL;
    if ((int)spec->gradient_owner < 0 || spec->gradient_owner > LIERNE_GRADIENT_ROWS ||
        (int)spec->gradient_storage < 0 || spec->gradient_storage > LIERNE_COMPACT) {
        return LIERNE_FAIL(LIERNE_INVALID, "gradient_owner is %d and gradient_storage %d, must be "
                           "in 0 to 3 and 0 to 1", (int)spec->gradient_owner,
                           (int)spec->gradient_storage);
    }
    if (owned && spec->sequence_axis < 0) {
        return LIERNE_FAIL(LIERNE_INVALID, "gradient_owner %d needs a sequence axis",
                           (int)spec->gradient_owner);
    }
    if (!owned && spec->gradient_storage == LIERNE_COMPACT) {
        return LIERNE_FAIL(LIERNE_INVALID, "a partial gradient covers the whole sequence: its "
                           "storage cannot be compact");
    }
    if ((spec->gradient_owner == LIERNE_GRADIENT_ROWS) != (spec->row_owner != NULL)) {
        return LIERNE_FAIL(LIERNE_INVALID, "row_owner is %s, but gradient_owner is %d (rows is 3)",
                           spec->row_owner ? "given" : "NULL", (int)spec->gradient_owner);
    }
    return LIERNE_OK;
}

static lierne_status check_divisible(const lierne_bridge_spec *spec) {
    int64_t src = lierne_bridge_size(spec->src, "dp"), dst = lierne_bridge_size(spec->dst, "dp");
    int64_t batch = spec->shape[spec->batch_axis];
    if (src % dst != 0 && dst % src != 0) {
        return LIERNE_FAIL(LIERNE_INDIVISIBLE, "source dp %lld and destination dp %lld: neither "
                           "divides the other", (long long)src, (long long)dst);
    }
    int64_t wide = src > dst ? src : dst, narrow = src > dst ? dst : src;
    if (batch % narrow != 0 || batch / narrow % (wide / narrow) != 0) {
        return LIERNE_FAIL(LIERNE_INDIVISIBLE, "%s: the batch of %lld samples does not divide over "
                           "%lld lanes at scale %lld", src > dst ? "fan_in" : "fan_out",
                           (long long)batch, (long long)wide, (long long)(wide / narrow));
    }
    return LIERNE_OK;
}

lierne_status lierne_bridge_check(const lierne_bridge_spec *spec) {
    LIERNE_TRY(lierne_bridge_check_grids(spec));
    LIERNE_TRY(check_axes(spec));
    LIERNE_TRY(check_gradient(spec));
    if (spec->algorithm != LIERNE_BRIDGE_DIRECT && spec->algorithm != LIERNE_BRIDGE_COLLECTIVE) {
        return LIERNE_FAIL(LIERNE_INVALID, "algorithm is %d, must be 0 or 1", (int)spec->algorithm);
    }
    if (spec->max_inflight < 0 || spec->max_inflight > LIERNE_MAX_INFLIGHT) {
        return LIERNE_FAIL(LIERNE_INVALID, "max_inflight is %d, must be in 0 to %d",
                           spec->max_inflight, LIERNE_MAX_INFLIGHT);
    }
    if (lierne_bridge_size(spec->src, "cp") != 1) {
        return LIERNE_FAIL(LIERNE_UNSUPPORTED, "source cp is %d, must be 1",
                           lierne_bridge_size(spec->src, "cp"));
    }
    return spec->require_divisible ? check_divisible(spec) : LIERNE_OK;
}

/* Placements of a side before cp: lanes over dp, one stage of pp, replicas over the rest. */
static void place(const lierne_bridge_spec *spec, bool at_source, lierne_placement *placements) {
    const lierne_grid *grid = at_source ? spec->src : spec->dst;
    int pp = lierne_bridge_dim(grid, "pp");
    memset(placements, 0, LIERNE_MAX_DIMS * sizeof *placements);
    placements[lierne_bridge_dim(grid, "dp")] =
        (lierne_placement){.kind = LIERNE_SHARD, .axis = spec->batch_axis,
                           .counts = at_source ? spec->src_counts : spec->dst_counts};
    if (pp >= 0) {
        int last = lierne_bridge_size(grid, "pp") - 1;
        placements[pp] = (lierne_placement){.kind = LIERNE_AT, .at = at_source ? last : 0};
    }
}

static lierne_placement place_gradient(const lierne_bridge_spec *spec) {
    switch (spec->gradient_owner) {
    case LIERNE_GRADIENT_ZIGZAG:
        return (lierne_placement){.kind = LIERNE_SHARD_ZIGZAG, .axis = spec->sequence_axis};
    case LIERNE_GRADIENT_CONTIGUOUS:
        return (lierne_placement){.kind = LIERNE_SHARD, .axis = spec->sequence_axis};
    case LIERNE_GRADIENT_ROWS:
        return (lierne_placement){.kind = LIERNE_SHARD_ROWS, .axis = spec->batch_axis,
                                  .axis2 = spec->sequence_axis, .rows = spec->row_owner};
    default:
        return (lierne_placement){.kind = LIERNE_PARTIAL};
    }
}

static lierne_status check_cp(const lierne_bridge_spec *spec) {
    int cp = lierne_bridge_size(spec->dst, "cp");
    if (spec->gradient_owner != LIERNE_GRADIENT_ROWS || cp > 1) {
        return LIERNE_OK;
    }
    int64_t rows;
    if (!lierne_mul_i64(spec->shape[spec->batch_axis], spec->shape[spec->sequence_axis], &rows)) {
        return LIERNE_FAIL(LIERNE_OVERFLOW, "rows of the tensor");
    }
    for (int64_t i = 0; i < rows; i++) {
        if (spec->row_owner[i] != 0) {
            return LIERNE_FAIL(LIERNE_INVALID, "row %lld has owner %d, but destination cp is 1",
                               (long long)i, (int)spec->row_owner[i]);
        }
    }
    return LIERNE_OK;
}

static lierne_status layout_of(lierne_layout **out, const lierne_bridge_spec *spec,
                               const lierne_grid *grid, const lierne_placement *placements,
                               uint32_t full_axes) {
    lierne_layout_spec layout = {.size = sizeof layout, .grid = grid, .naxes = spec->naxes,
                                 .shape = spec->shape, .dtype = spec->dtype,
                                 .placements = placements, .full_axes = full_axes};
    return lierne_layout_create(out, &layout);
}

lierne_status lierne_bridge_layouts(const lierne_bridge_spec *spec, lierne_bridge_sides *sides) {
    lierne_placement src[LIERNE_MAX_DIMS], dst[LIERNE_MAX_DIMS];
    int cp = lierne_bridge_dim(spec->dst, "cp");
    bool owned = cp >= 0 && spec->gradient_owner != LIERNE_GRADIENT_PARTIAL;
    uint32_t full = owned && spec->gradient_storage == LIERNE_FULL ? 1u << spec->sequence_axis : 0;
    place(spec, true, src);
    place(spec, false, dst);
    LIERNE_TRY(check_cp(spec));
    LIERNE_TRY(layout_of(&sides->src, spec, spec->src, src, 0));
    LIERNE_TRY(layout_of(&sides->dst, spec, spec->dst, dst, 0));
    if (cp >= 0) {
        dst[cp] = place_gradient(spec);
    }
    return layout_of(&sides->gradient, spec, spec->dst, dst, full);
}

void lierne_bridge_layouts_free(lierne_bridge_sides *sides) {
    lierne_layout_free(sides->src);
    lierne_layout_free(sides->dst);
    lierne_layout_free(sides->gradient);
}
