/* The bridge: from a spec to a plan.
 *
 * Each direction is one redistribution between two of the three layouts that the spec states.
 * Everything that a rank needs to know is in the spec, so ranks exchange nothing but the agreement
 * that all of them could plan and were given the same spec. */
#include "plan/bridge/bridge.h"
#include "plan/redistribute/redistribute.h"
#include "plan/spec_table.h"

#include <string.h>

/* Both grids lie on the context's world, and all their ranks are its members. */
static lierne_status check_ranks(const lierne_context *context, const lierne_bridge_spec *spec) {
    if (lierne_grid_get_world_size(spec->src) != context->members.world) {
        return LIERNE_FAIL(
            LIERNE_ERR_INVALID,
            "the grids have a world of %d ranks, the context one of %d: they must be the same",
            lierne_grid_get_world_size(spec->src), context->members.world);
    }
    LIERNE_TRY(lierne_context_check_ranks(context, "the source grid",
                                          lierne_grid_get_rank_offset(spec->src),
                                          lierne_grid_get_size(spec->src)));
    return lierne_context_check_ranks(context, "the destination grid",
                                      lierne_grid_get_rank_offset(spec->dst),
                                      lierne_grid_get_size(spec->dst));
}

static lierne_status fill_saved(lierne_context *context, const lierne_bridge_spec *spec,
                                lierne_bridge_sides *sides, lierne_plan_parts *parts) {
    LIERNE_TRY(lierne_bridge_check_resolved(spec));
    LIERNE_TRY(check_ranks(context, spec));
    LIERNE_TRY(
        lierne_plan_check_sharing(context, spec->shared_output, spec->routing, spec->max_inflight));
    parts->kind = "bridge";
    parts->dtype = spec->dtype;
    parts->max_inflight = spec->max_inflight ? spec->max_inflight : 1;
    parts->group = spec->group;
    LIERNE_TRY(lierne_bridge_sides_create(sides, spec));
    lierne_plan_find_rows(parts, (const lierne_layout *[]){sides->src, sides->dst, sides->gradient},
                          3);
    parts->algorithm[LIERNE_DIRECTION_FORWARD] = parts->algorithm[LIERNE_DIRECTION_ADJOINT] =
        "direct";
    lierne_side_rules rules = {.routing = spec->routing,
                               .shared = (spec->shared_output & LIERNE_SHARING_FORWARD) != 0,
                               .max_peers = spec->max_peers};
    LIERNE_TRY(lierne_plan_side_redistribute(&parts->side[LIERNE_DIRECTION_FORWARD], context,
                                             sides->src, sides->dst, &rules));
    rules.shared = (spec->shared_output & LIERNE_SHARING_ADJOINT) != 0;
    return lierne_plan_side_redistribute(&parts->side[LIERNE_DIRECTION_ADJOINT], context,
                                         sides->gradient, sides->src, &rules);
}

static void add_placements(lierne_plan_fields *f, const char *prefix, const lierne_grid *grid,
                           const lierne_placement *given) {
    for (int d = 0; d < lierne_grid_get_ndims(grid, NULL); d++) {
        lierne_placement p = given ? given[d] : (lierne_placement){0};
        lierne_plan_fields_add_dim(f, prefix, d, "kind", (int64_t)p.kind);
        lierne_plan_fields_add_dim(f, prefix, d, "axis", p.axis);
        lierne_plan_fields_add_dim(f, prefix, d, "share", (int64_t)p.share);
        lierne_plan_fields_add_dim(f, prefix, d, "cut_order", p.cut_order);
    }
}

static void add_counts(lierne_plan_fields *f, const char *name, const lierne_grid *grid,
                       const int64_t *counts) {
    size_t n = (size_t)lierne_grid_find_dim_size(grid, NULL, "dp");
    lierne_plan_fields_add_list(f, name, LIERNE_ITEM_I64, counts, n);
}

static const lierne_spec_entry numbers[] = {
    LIERNE_SPEC_NUMBER(lierne_bridge_spec, naxes, INT, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_bridge_spec, dtype, DTYPE, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_bridge_spec, batch_axis, INT, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_bridge_spec, sequence_axis, INT, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_bridge_spec, gradient_owner, INT, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_bridge_spec, gradient_storage, INT, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_bridge_spec, require_divisible, BOOL, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_bridge_spec, max_inflight, INFLIGHT, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_bridge_spec, output, INT, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_bridge_spec, variable_rows, BOOL, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_bridge_spec, routing, INT, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_bridge_spec, shared_output, INT, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_bridge_spec, max_peers, INT, COMPARED),
};
static const lierne_spec_table table = LIERNE_SPEC_TABLE(numbers);

/* Every rank's spec must have these. */
static void add_fields(lierne_plan_fields *f, const lierne_bridge_spec *spec) {
    lierne_plan_fields_add(f, "lierne_plan_create_bridge", 0);
    lierne_plan_fields_add_grid(f, "src", spec->src);
    lierne_plan_fields_add_grid(f, "dst", spec->dst);
    lierne_spec_table_compare(&table, spec, f);
    for (int a = 0; a < spec->naxes; a++) {
        lierne_plan_fields_add_at(f, "shape", a, spec->shape[a]);
    }
    add_counts(f, "src_counts", spec->src, spec->src_counts);
    add_counts(f, "dst_counts", spec->dst, spec->dst_counts);
    lierne_plan_fields_add_list(f, "row_owner", LIERNE_ITEM_I32, spec->row_owner,
                                lierne_bridge_map_size(spec));
    add_placements(f, "src", spec->src, spec->src_placements);
    add_placements(f, "dst", spec->dst, spec->dst_placements);
}

/* The tensor of one element per sample. */
static lierne_bridge_spec sample_spec(const lierne_bridge_spec *spec, int64_t *shape) {
    lierne_bridge_spec samples = *spec;
    shape[0] = spec->shape[0];
    shape[1] = 1;
    samples.shape = shape;
    samples.naxes = 2;
    samples.batch_axis = 0;
    samples.sequence_axis = -1;
    samples.variable_rows = 0;
    samples.routing = LIERNE_ROUTING_DIRECT; /* measured anew block by block, see counts.c */
    return samples;
}

/* Plans in samples, twice: one route to run, one to measure it by. */
static lierne_status fill_variable(lierne_context *context, const lierne_bridge_spec *spec,
                                   lierne_bridge_sides *sides, lierne_plan_parts *parts,
                                   lierne_bridge_counts **counts) {
    int64_t shape[2], bytes = (int64_t)lierne_dtype_size(spec->dtype);
    lierne_bridge_spec samples = sample_spec(spec, shape);
    lierne_bridge_sides again = {0};
    lierne_plan_parts model = {0};
    for (int a = 0; a < 3; a++) {
        if (spec->shape[a] < 0 || !lierne_mul_i64(bytes, spec->shape[a], &bytes)) {
            return LIERNE_FAIL(spec->shape[a] < 0 ? LIERNE_ERR_INVALID : LIERNE_ERR_OVERFLOW,
                               "shape of axis %d is %lld", a, (long long)spec->shape[a]);
        }
    }
    LIERNE_TRY(fill_saved(context, &samples, sides, parts));
    lierne_status status = fill_saved(context, &samples, &again, &model);
    lierne_bridge_sides_destroy(&again);
    if (status == LIERNE_OK) {
        status = lierne_bridge_counts_create(counts, context, spec, &model, parts);
    }
    for (int d = 0; d < 2; d++) {
        lierne_mem_free(model.side[d].owned.at);
        if (status != LIERNE_OK) {
            lierne_route_destroy(model.side[d].route);
        }
    }
    return status;
}

/* Whether a plan can have another shape: its row map, and its rows of samples, are for this one. */
static lierne_status check_shape(const lierne_bridge_saved_spec *old, int rank,
                                 const int64_t *shape) {
    const lierne_bridge_spec *spec = &old->spec;
    const int axes[2] = {spec->batch_axis, spec->sequence_axis};
    if (old->variable) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: the plan has variable rows of its shape: make a new plan",
                           rank);
    }
    for (int i = 0; spec->gradient_owner == LIERNE_GRADIENT_OWNER_ROWS && i < 2; i++) {
        if (shape[axes[i]] != spec->shape[axes[i]]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "rank %d: axis %d of shape is %lld, the row map has %lld: make a "
                               "new plan",
                               rank, axes[i], (long long)shape[axes[i]],
                               (long long)spec->shape[axes[i]]);
        }
    }
    return LIERNE_OK;
}

/* Fills the parts of a plan of another shape, with a saved spec of its own. */
static lierne_status reshape(const lierne_saved_spec *saved, lierne_context *context,
                             const int64_t *shape, lierne_plan_parts *parts) {
    const lierne_bridge_saved_spec *old = (const lierne_bridge_saved_spec *)saved;
    lierne_bridge_saved_spec *next;
    lierne_bridge_sides sides = {0};
    lierne_bridge_spec spec = old->spec;
    LIERNE_TRY(check_shape(old, context->rank, shape));
    spec.shape = shape;
    lierne_status status = fill_saved(context, &spec, &sides, parts);
    lierne_bridge_sides_destroy(&sides);
    LIERNE_TRY(status);
    LIERNE_TRY(lierne_bridge_saved_spec_create(&next, &spec));
    next->base.reshape = saved->reshape;
    next->base.recreate = saved->recreate;
    parts->saved_spec = &next->base;
    return LIERNE_OK;
}

static lierne_status recreate(const lierne_saved_spec *base, lierne_plan **out,
                              lierne_context *context, const lierne_recreate_spec *grids,
                              const char *name);

/* Routes, and what is needed to change them later. */
static lierne_status fill_all(lierne_context *context, const lierne_bridge_spec *spec,
                              lierne_bridge_sides *sides, lierne_plan_parts *parts) {
    lierne_bridge_saved_spec *saved;
    LIERNE_TRY(lierne_bridge_check_resolved(spec));
    LIERNE_TRY(lierne_bridge_saved_spec_create(&saved, spec));
    saved->base.reshape = reshape;
    saved->base.recreate = recreate;
    parts->saved_spec = &saved->base;
    return spec->variable_rows ? fill_variable(context, spec, sides, parts, &saved->variable)
                               : fill_saved(context, spec, sides, parts);
}

/* The plan that moves the counts of a plan with variable rows; without it there is neither. */
static lierne_status plan_counts(lierne_plan **out, lierne_context *context) {
    lierne_saved_spec *base = lierne_plan_saved_spec(*out, lierne_bridge_saved_spec_destroy);
    lierne_bridge_saved_spec *saved = (lierne_bridge_saved_spec *)base;
    int64_t shape[2];
    lierne_bridge_spec spec = sample_spec(&saved->spec, shape);
    spec.dtype = LIERNE_DTYPE_I64;
    spec.max_inflight = 1;
    spec.name = lierne_plan_get_name(*out);
    lierne_status status = lierne_plan_create_bridge(&saved->variable->exchange, context, &spec);
    if (status != LIERNE_OK) {
        lierne_plan_destroy(*out);
        *out = NULL;
        return status;
    }
    lierne_plan_own(saved->variable->exchange);
    return LIERNE_OK;
}

/* Collective. status: whether this rank has a spec. */
static lierne_status create(lierne_plan **out, lierne_context *context, lierne_status status,
                            const lierne_bridge_spec *spec) {
    lierne_bridge_resolved r = {0};
    lierne_bridge_sides sides = {0};
    lierne_plan_parts parts = {0};
    lierne_plan_fields fields = {0};
    status = status == LIERNE_OK ? lierne_bridge_resolve(spec, &r) : status;
    if (status == LIERNE_OK) {
        status = fill_all(context, &r.spec, &sides, &parts);
    }
    if (status == LIERNE_OK) {
        add_fields(&fields, &r.spec);
    }
    bool variable = status == LIERNE_OK && r.spec.variable_rows;
    lierne_bridge_sides_destroy(&sides);
    parts.name = r.spec.name;
    status = lierne_plan_new(out, context, status, &parts, fields.at, fields.count);
    lierne_bridge_resolved_destroy(&r); /* fields point to its grids */
    return status == LIERNE_OK && variable ? plan_counts(out, context) : status;
}

lierne_status lierne_plan_create_bridge(lierne_plan **out, lierne_context *context,
                                        const lierne_bridge_spec *spec) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    LIERNE_TRY(lierne_check_set(context, "context"));
    LIERNE_TRY(lierne_context_alive(context));
    return create(out, context,
                  out ? LIERNE_OK
                      : LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: out is NULL", context->rank),
                  spec);
}

/* Whether what a side's spec says of dims fits a view of another grid: counts are of dp ranks,
 * placements of dims. */
static lierne_status check_side(const lierne_grid *old, const lierne_grid *grid, const char *view,
                                const int64_t *counts, const lierne_placement *placements,
                                const char *side) {
    int ndims = lierne_grid_get_ndims(old, NULL);
    int dp = lierne_grid_find_dim_size(grid, view, "dp");
    if (counts && dp >= 0 && dp != lierne_grid_find_dim_size(old, NULL, "dp")) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "%s_counts are of %d dp ranks, the new grid has %d: make a new plan "
                           "with others",
                           side, lierne_grid_find_dim_size(old, NULL, "dp"), dp);
    }
    bool same = !placements || ndims == lierne_grid_get_ndims(grid, view);
    for (int d = 0; placements && same && d < ndims; d++) {
        same = strcmp(lierne_grid_get_dim_name(old, NULL, d),
                      lierne_grid_get_dim_name(grid, view, d)) == 0;
    }
    return same ? LIERNE_OK
                : LIERNE_FAIL(LIERNE_ERR_INVALID,
                              "%s_placements are of dims that the new grid has not, or not in this "
                              "order: make a new plan with others",
                              side);
}

static lierne_status recreate(const lierne_saved_spec *base, lierne_plan **out,
                              lierne_context *context, const lierne_recreate_spec *grids,
                              const char *name) {
    lierne_bridge_spec spec = ((const lierne_bridge_saved_spec *)base)->spec;
    lierne_status status = check_side(spec.src, grids->src, grids->src_view, spec.src_counts,
                                      spec.src_placements, "src");
    if (status == LIERNE_OK) {
        status = check_side(spec.dst, grids->dst, grids->dst_view, spec.dst_counts,
                            spec.dst_placements, "dst");
    }
    spec.src = grids->src;
    spec.dst = grids->dst;
    spec.src_view = grids->src_view;
    spec.dst_view = grids->dst_view;
    spec.group = grids->group;
    spec.name = name;
    return create(out, context, status, &spec);
}

/* Plans again with another map. */
static lierne_status fill_again(const lierne_plan *plan, const lierne_bridge_saved_spec *saved,
                                const int32_t *row_owner, lierne_bridge_sides *sides,
                                lierne_plan_parts *parts, lierne_plan_fields *fields) {
    if (!saved || !row_owner || saved->spec.gradient_owner != LIERNE_GRADIENT_OWNER_ROWS) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: %s", lierne_plan_context(plan)->rank,
                           row_owner ? "the plan has no row map" : "row_owner is NULL");
    }
    lierne_bridge_spec spec = saved->spec;
    spec.row_owner = row_owner;
    lierne_plan_fields_add(fields, "lierne_plan_update_rows", 0);
    lierne_plan_fields_add(fields, "plan", lierne_plan_get_number(plan));
    lierne_plan_fields_add_list(fields, "row_owner", LIERNE_ITEM_I32, row_owner,
                                lierne_bridge_map_size(&spec));
    LIERNE_TRY(lierne_plan_check_changeable(plan));
    return fill_saved(lierne_plan_context(plan), &spec, sides, parts);
}

lierne_status lierne_plan_update_rows(lierne_plan *plan, const int32_t *row_owner) {
    LIERNE_PUBLIC_CALL();
    lierne_bridge_sides sides = {0};
    lierne_plan_parts parts = {0};
    lierne_plan_fields fields = {0};
    LIERNE_TRY(lierne_check_set(plan, "plan"));
    LIERNE_TRY(lierne_context_alive(lierne_plan_context(plan)));
    lierne_bridge_saved_spec *saved =
        (lierne_bridge_saved_spec *)lierne_plan_saved_spec(plan, lierne_bridge_saved_spec_destroy);
    lierne_status status = fill_again(plan, saved, row_owner, &sides, &parts, &fields);
    lierne_bridge_sides_destroy(&sides);
    LIERNE_TRY(lierne_plan_replace(plan, status, &parts, fields.at, fields.count));
    memcpy(saved->row_owner, row_owner,
           lierne_bridge_map_size(&saved->spec) * sizeof *saved->row_owner);
    return LIERNE_OK;
}
