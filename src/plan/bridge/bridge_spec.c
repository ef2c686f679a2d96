/* Reads a bridge's spec: first into one that has no views and no 2-D rows (resolve), then checks
 * it.
 *
 * A view of a grid is a grid: the same ranks under other dims. Rows of samples are a third axis in
 * the same memory. With both taken care of here, nothing after has to know of them. */
#include "plan/bridge/bridge.h"
#include "plan/fields.h"

#include <string.h>

static lierne_status resolve_view(lierne_grid **out, const lierne_grid *grid, const char *view) {
    return view && grid ? lierne_grid_copy_view(out, grid, view) : LIERNE_OK;
}

/* [rows, hidden] becomes [B, S, hidden] or [S, B, hidden], hidden first where it stood first. */
static lierne_status resolve_rows(lierne_bridge_resolved *r) {
    lierne_bridge_spec *spec = &r->spec;
    int64_t per = spec->rows_per_sample;
    if (per == 0 || spec->naxes != 2) {
        return LIERNE_OK;
    }
    int b = spec->batch_axis;
    if (per < 0 || !spec->shape || b < 0 || b > 1 || spec->sequence_axis != -1 ||
        spec->shape[b] < 0 || spec->shape[b] % per != 0 || (int)spec->row_order < 0 ||
        spec->row_order > LIERNE_ROW_ORDER_SEQUENCE_MAJOR) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rows_per_sample is %lld, must divide the %lld rows of "
                           "batch axis %d; sequence_axis is %d, must be -1; row_order is %d",
                           (long long)per,
                           spec->shape && b >= 0 && b < 2 ? (long long)spec->shape[b] : -1LL, b,
                           spec->sequence_axis, (int)spec->row_order);
    }
    bool sample_major = spec->row_order == LIERNE_ROW_ORDER_SAMPLE_MAJOR;
    spec->batch_axis = b + !sample_major;
    spec->sequence_axis = b + sample_major;
    r->shape[b == 0 ? 2 : 0] = spec->shape[1 - b];
    r->shape[spec->batch_axis] = spec->shape[b] / per;
    r->shape[spec->sequence_axis] = per;
    spec->shape = r->shape;
    spec->naxes = 3;
    spec->rows_per_sample = 0;
    return LIERNE_OK;
}

static lierne_status resolve_grids(const lierne_bridge_spec *spec, lierne_bridge_resolved *r) {
    memset(r, 0, sizeof *r);
    LIERNE_TRY(lierne_spec_take(&r->spec, sizeof r->spec, spec, "spec"));
    LIERNE_TRY(resolve_view(&r->src, r->spec.src, r->spec.src_view));
    LIERNE_TRY(resolve_view(&r->dst, r->spec.dst, r->spec.dst_view));
    r->spec.src = r->src ? r->src : r->spec.src;
    r->spec.dst = r->dst ? r->dst : r->spec.dst;
    r->spec.src_view = r->spec.dst_view = NULL;
    return LIERNE_OK;
}

lierne_status lierne_bridge_resolve(const lierne_bridge_spec *spec, lierne_bridge_resolved *r) {
    LIERNE_TRY(resolve_grids(spec, r));
    return resolve_rows(r);
}

static lierne_status check_sides(const lierne_bridge_spec *spec) {
    const lierne_grid *grids[2] = {spec->src, spec->dst};
    for (int i = 0; i < 2; i++) {
        const char *side = i ? "destination" : "source";
        if (!grids[i]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "the %s grid is NULL", side);
        }
        for (int j = 0; j < 2; j++) {
            if (lierne_grid_find_dim(grids[i], j ? "dp" : "tp") < 0) {
                return LIERNE_FAIL(LIERNE_ERR_INVALID, "the %s grid has no dim '%s'", side,
                                   j ? "dp" : "tp");
            }
        }
    }
    if (lierne_grid_get_world_size(spec->src) != lierne_grid_get_world_size(spec->dst)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "the source grid has a world of %d ranks, the "
                           "destination grid on one of %d",
                           lierne_grid_get_world_size(spec->src),
                           lierne_grid_get_world_size(spec->dst));
    }
    return LIERNE_OK;
}

lierne_status lierne_bridge_check_grids(const lierne_bridge_spec *spec) {
    LIERNE_PUBLIC_CALL();
    lierne_bridge_resolved r;
    lierne_status status = resolve_grids(spec, &r);
    if (status == LIERNE_OK) {
        status = check_sides(&r.spec);
    }
    lierne_bridge_resolved_destroy(&r);
    return status;
}

void lierne_bridge_resolved_destroy(lierne_bridge_resolved *r) {
    lierne_grid_destroy(r->src);
    lierne_grid_destroy(r->dst);
}

static lierne_status check_axes(const lierne_bridge_spec *spec) {
    int b = spec->batch_axis, s = spec->sequence_axis;
    if (spec->naxes < 2 || spec->naxes > 3) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "naxes is %d, must be 2 or 3", spec->naxes);
    }
    LIERNE_TRY(lierne_check_set(spec->shape, "shape"));
    if (spec->rows_per_sample != 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rows_per_sample is %lld, but the tensor has 3 axes",
                           (long long)spec->rows_per_sample);
    }
    if (b < 0 || b >= spec->naxes || s < -1 || s >= spec->naxes || s == b) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "batch_axis is %d and sequence_axis %d: must be two "
                           "axes of %d, the latter or -1",
                           b, s, spec->naxes);
    }
    return LIERNE_OK;
}

static lierne_status check_gradient(const lierne_bridge_spec *spec) {
    bool owned = spec->gradient_owner != LIERNE_GRADIENT_OWNER_PARTIAL;
    if ((int)spec->gradient_owner < 0 || spec->gradient_owner > LIERNE_GRADIENT_OWNER_ROWS ||
        (int)spec->gradient_storage < 0 || spec->gradient_storage > LIERNE_STORAGE_COMPACT) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "gradient_owner is %d and gradient_storage %d, must be "
                           "in 0 to 3 and 0 to 1",
                           (int)spec->gradient_owner, (int)spec->gradient_storage);
    }
    if ((int)spec->output < 0 || spec->output > LIERNE_BRIDGE_OUTPUT_SHARDED ||
        (!owned && spec->output == LIERNE_BRIDGE_OUTPUT_SHARDED)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "output is %d, must be 0 (whole), or 1 (sharded) beside a "
                           "gradient_owner other than partial",
                           (int)spec->output);
    }
    if (owned && spec->sequence_axis < 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "gradient_owner %d needs a sequence axis",
                           (int)spec->gradient_owner);
    }
    if (!owned && spec->gradient_storage == LIERNE_STORAGE_COMPACT) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "a partial gradient covers the whole sequence: its "
                                               "storage cannot be compact");
    }
    if ((spec->gradient_owner == LIERNE_GRADIENT_OWNER_ROWS) != (spec->row_owner != NULL)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "row_owner is %s, but gradient_owner is %d (rows is 3)",
                           spec->row_owner ? "given" : "NULL", (int)spec->gradient_owner);
    }
    return LIERNE_OK;
}

static lierne_status check_divisible(const lierne_bridge_spec *spec) {
    int64_t src = lierne_grid_find_dim_size(spec->src, NULL, "dp"),
            dst = lierne_grid_find_dim_size(spec->dst, NULL, "dp");
    int64_t batch = spec->shape[spec->batch_axis];
    if (src % dst != 0 && dst % src != 0) {
        return LIERNE_FAIL(LIERNE_ERR_INDIVISIBLE,
                           "source dp %lld and destination dp %lld: neither "
                           "divides the other",
                           (long long)src, (long long)dst);
    }
    int64_t wide = src > dst ? src : dst, narrow = src > dst ? dst : src;
    if (batch % narrow != 0 || batch / narrow % (wide / narrow) != 0) {
        return LIERNE_FAIL(LIERNE_ERR_INDIVISIBLE,
                           "%s: the batch of %lld samples is not divisible by "
                           "%lld dp ranks at dp ratio %lld",
                           src > dst ? "fan_in" : "fan_out", (long long)batch, (long long)wide,
                           (long long)(wide / narrow));
    }
    return LIERNE_OK;
}

/* Placements that the caller gives: cuts of dims that have no meaning of their own. */
static lierne_status check_placements(const lierne_bridge_spec *spec, bool at_source) {
    const lierne_grid *grid = at_source ? spec->src : spec->dst;
    const lierne_placement *given = at_source ? spec->src_placements : spec->dst_placements;
    for (int d = 0; given && d < lierne_grid_get_ndims(grid, NULL); d++) {
        const char *name = lierne_grid_get_dim_name(grid, NULL, d);
        bool placed = strcmp(name, "dp") == 0 || strcmp(name, "pp") == 0 ||
                      (!at_source && strcmp(name, "cp") == 0);
        bool cuts = lierne_cuts_in_shares(given[d].kind);
        if (given[d].kind != LIERNE_PLACEMENT_REPLICATE && (placed || !cuts || given[d].counts)) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s_placements: '%s' has kind %d, must be %s",
                               at_source ? "src" : "dst", name, (int)given[d].kind,
                               placed ? "0 (replicate), it is placed by its meaning"
                                      : "0 to 2 (replicate, shard, zigzag), without counts");
        }
        if (cuts && given[d].axis == spec->batch_axis) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s_placements: '%s' cuts the batch axis %d",
                               at_source ? "src" : "dst", name, given[d].axis);
        }
        /* Cut twice, a rank's own rows of the gradient would not be rows of its output. */
        bool chunks = spec->gradient_owner == LIERNE_GRADIENT_OWNER_ZIGZAG ||
                      spec->gradient_owner == LIERNE_GRADIENT_OWNER_CONTIGUOUS;
        if (cuts && !at_source && chunks && spec->output == LIERNE_BRIDGE_OUTPUT_WHOLE &&
            given[d].axis == spec->sequence_axis) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "dst_placements: '%s' cuts the sequence axis, which "
                               "gradient_owner %d cuts over cp: own rows of the gradient would not "
                               "be rows of the output; output must be 1 (sharded)",
                               name, (int)spec->gradient_owner);
        }
    }
    return LIERNE_OK;
}

static lierne_status check_variable(const lierne_bridge_spec *spec) {
    if (spec->naxes != 3 || spec->batch_axis != 0 || spec->sequence_axis != 1) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "variable_rows needs axes batch, sequence, hidden; there "
                           "are %d, batch is %d and sequence %d",
                           spec->naxes, spec->batch_axis, spec->sequence_axis);
    }
    if (spec->shared_output != LIERNE_SHARING_NONE) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "shared_output is %d, must be 0 with variable_rows",
                           (int)spec->shared_output);
    }
    if (spec->max_peers != 0) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "max_peers is %d, must be 0 with variable_rows",
                           spec->max_peers);
    }
    if (spec->src_placements || spec->dst_placements ||
        spec->gradient_owner != LIERNE_GRADIENT_OWNER_PARTIAL) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "variable_rows needs a partial gradient and no placements; "
                           "gradient_owner is %d",
                           (int)spec->gradient_owner);
    }
    return LIERNE_OK;
}

lierne_status lierne_bridge_check_resolved(const lierne_bridge_spec *spec) {
    LIERNE_TRY(check_sides(spec));
    LIERNE_TRY(check_axes(spec));
    LIERNE_TRY(check_gradient(spec));
    LIERNE_TRY(lierne_plan_check_inflight(spec->max_inflight));
    LIERNE_TRY(lierne_plan_check_routing(spec->routing));
    LIERNE_TRY(lierne_plan_check_peers(spec->max_peers, spec->shared_output));
    if (lierne_grid_find_dim_size(spec->src, NULL, "cp") != 1 && !spec->src_placements) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "source cp is %d, must be 1 unless src_placements "
                           "place the tensor on cp",
                           lierne_grid_find_dim_size(spec->src, NULL, "cp"));
    }
    if (spec->variable_rows) {
        LIERNE_TRY(check_variable(spec));
    }
    LIERNE_TRY(check_placements(spec, true));
    LIERNE_TRY(check_placements(spec, false));
    return spec->require_divisible ? check_divisible(spec) : LIERNE_OK;
}
