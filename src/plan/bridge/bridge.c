/* The bridge builder: from a spec to a plan.
 *
 * DIRECT is two calls of the planner, one per direction. COLLECTIVE (bridge_collective.c) and
 * LEADER (bridge_leader.c) follow the reference and are each rank's own affair too. Everything a
 * rank needs to know is in the spec, so ranks exchange nothing but the decision whether all of them
 * could plan, and whether all were given the same spec. */
#include "plan/bridge/bridge.h"
#include "plan/redistribute/redistribute.h"

#include <stdio.h>
#include <string.h>

/* Owned blocks of a rank's out, for lierne_plan_check. */
static lierne_status take_owned(const lierne_layout *layout, int rank, lierne_plan_side *side) {
    lierne_boxes boxes = {0};
    lierne_cell cell;
    if (!lierne_layout_cell(layout, rank, &cell)) {
        return LIERNE_OK;
    }
    lierne_status status = lierne_layout_cell_boxes(layout, &cell, &boxes, NULL);
    for (size_t i = 0; i < boxes.count && status == LIERNE_OK; i++) {
        lierne_block block =
            lierne_block_box(layout->naxes, side->out, boxes.at[i].local, boxes.at[i].size);
        status = LIERNE_VEC_PUSH(&side->owned, block);
    }
    lierne_mem_free(boxes.at);
    return status;
}

static lierne_status start_side(lierne_plan_side *side, int rank, const lierne_layout *from,
                                const lierne_layout *to) {
    int64_t in, out;
    side->naxes = from->naxes;
    LIERNE_TRY(lierne_layout_get_shape(side->in, from, rank));
    LIERNE_TRY(lierne_layout_get_shape(side->out, to, rank));
    LIERNE_TRY(lierne_layout_get_elements(&in, NULL, from, rank));
    LIERNE_TRY(lierne_layout_get_elements(&out, NULL, to, rank));
    LIERNE_TRY(take_owned(to, rank, side));
    return lierne_route_create(&side->route, rank, in, out);
}

static lierne_status redistribute(lierne_plan_side *side, const lierne_context *context,
                                  const lierne_layout *from, const lierne_layout *to) {
    return lierne_redistribute(side->route, from, to, context->nodes, &side->min_elements);
}

static lierne_status clear(lierne_plan_side *side) {
    const lierne_route *old = side->route;
    lierne_route *empty;
    LIERNE_TRY(lierne_route_create(&empty, old->rank, old->elements[LIERNE_IN],
                                   old->elements[LIERNE_OUT]));
    lierne_route_destroy(side->route);
    side->route = empty;
    return LIERNE_OK;
}

static lierne_status fill(lierne_context *context, const lierne_bridge_spec *spec,
                          lierne_bridge_sides *sides, lierne_plan_parts *parts) {
    lierne_plan_side *forward = &parts->side[LIERNE_FORWARD];
    lierne_plan_side *adjoint = &parts->side[LIERNE_ADJOINT];
    LIERNE_TRY(lierne_bridge_check(spec));
    if (lierne_grid_get_world_size(spec->src) != context->world) {
        return LIERNE_FAIL(LIERNE_INVALID,
                           "the grids lie on a world of %d ranks, the context on "
                           "one of %d",
                           lierne_grid_get_world_size(spec->src), context->world);
    }
    parts->dtype = spec->dtype;
    parts->max_inflight = spec->max_inflight ? spec->max_inflight : 1;
    parts->algorithm[LIERNE_FORWARD] = spec->algorithm == LIERNE_BRIDGE_DIRECT       ? "direct"
                                       : spec->algorithm == LIERNE_BRIDGE_COLLECTIVE ? "collective"
                                                                                     : "leader";
    parts->algorithm[LIERNE_ADJOINT] = parts->algorithm[LIERNE_FORWARD];
    LIERNE_TRY(lierne_bridge_layouts(spec, sides));
    LIERNE_TRY(start_side(forward, context->rank, sides->src, sides->dst));
    LIERNE_TRY(start_side(adjoint, context->rank, sides->gradient, sides->src));
    LIERNE_TRY(redistribute(forward, context, sides->src, sides->dst));
    LIERNE_TRY(redistribute(adjoint, context, sides->gradient, sides->src));
    if (spec->algorithm == LIERNE_BRIDGE_DIRECT) {
        return LIERNE_OK;
    }
    /* The direct routes were for the bounds. */
    LIERNE_TRY(clear(forward));
    LIERNE_TRY(clear(adjoint));
    return spec->algorithm == LIERNE_BRIDGE_LEADER
               ? lierne_bridge_leader(context, spec, parts)
               : lierne_bridge_collective(context, spec, sides, parts);
}

static int64_t hash(const void *data, size_t bytes) {
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < bytes; i++) {
        h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    }
    return (int64_t)(h >> 1);
}

/* What must be the same on all ranks, as many fields for every spec. */
typedef struct fingerprint {
    lierne_field fields[128];
    size_t n;
} fingerprint;

static void put(fingerprint *f, const char *name, int index, int64_t value) {
    lierne_field *field = &f->fields[f->n++];
    snprintf(field->name, sizeof field->name, index < 0 ? "%s" : "%s[%d]", name, index);
    field->value = value;
}

static void put_grid(fingerprint *f, const char *side, const lierne_grid *grid) {
    char name[16];
    uint64_t order = 0;
    int ndims = lierne_grid_get_ndims(grid, NULL);
    snprintf(name, sizeof name, "%s.offset", side);
    put(f, name, -1, lierne_grid_get_offset(grid));
    for (int d = 0; d < ndims; d++) {
        const char *dim = lierne_grid_get_dim_name(grid, NULL, d);
        order = order * 31 + (uint64_t)hash(dim, strlen(dim));
    }
    snprintf(name, sizeof name, "%s.order", side);
    put(f, name, -1, (int64_t)(order >> 1));
    snprintf(name, sizeof name, "%s.sizes", side);
    for (int d = 0; d < LIERNE_MAX_DIMS; d++) {
        put(f, name, d, d < ndims ? lierne_grid_get_dim_size(grid, NULL, d) : 0);
    }
}

static void put_placements(fingerprint *f, const char *name, const lierne_grid *grid,
                           const lierne_placement *given) {
    int ndims = given ? lierne_grid_get_ndims(grid, NULL) : 0;
    for (int d = 0; d < LIERNE_MAX_DIMS; d++) {
        lierne_placement p = d < ndims ? given[d] : (lierne_placement){0};
        int64_t cut = (int64_t)p.share * LIERNE_MAX_DIMS + p.cut_order;
        put(f, name, d, (cut * LIERNE_MAX_AXES + p.axis) * (LIERNE_AT + 1) + (int)p.kind);
    }
}

static void put_tensor(fingerprint *f, const lierne_bridge_spec *spec) {
    size_t src = (size_t)lierne_bridge_size(spec->src, "dp");
    size_t dst = (size_t)lierne_bridge_size(spec->dst, "dp");
    int s = spec->sequence_axis;
    put(f, "naxes", -1, spec->naxes);
    for (int a = 0; a < 3; a++) {
        put(f, "shape", a, a < spec->naxes ? spec->shape[a] : 0);
    }
    put(f, "dtype", -1, (int64_t)spec->dtype);
    put(f, "batch_axis", -1, spec->batch_axis);
    put(f, "sequence_axis", -1, s);
    put(f, "src_counts", -1, spec->src_counts ? hash(spec->src_counts, src * 8) : 0);
    put(f, "dst_counts", -1, spec->dst_counts ? hash(spec->dst_counts, dst * 8) : 0);
    put(f, "algorithm", -1, (int64_t)spec->algorithm);
    put(f, "gradient_owner", -1, (int64_t)spec->gradient_owner);
    put(f, "gradient_storage", -1, (int64_t)spec->gradient_storage);
    size_t rows = s < 0 ? 0 : (size_t)(spec->shape[spec->batch_axis] * spec->shape[s]);
    put(f, "row_owner", -1, spec->row_owner ? hash(spec->row_owner, rows * 4) : 0);
    put(f, "require_divisible", -1, spec->require_divisible != 0);
    put(f, "max_inflight", -1, spec->max_inflight);
    put(f, "delivery", -1, (int64_t)spec->delivery);
    put(f, "variable_rows", -1, spec->variable_rows != 0);
    put_placements(f, "src_placements", spec->src, spec->src_placements);
    put_placements(f, "dst_placements", spec->dst, spec->dst_placements);
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
            return LIERNE_FAIL(spec->shape[a] < 0 ? LIERNE_INVALID : LIERNE_OVERFLOW,
                               "shape of axis %d is %lld", a, (long long)spec->shape[a]);
        }
    }
    LIERNE_TRY(fill(context, &samples, sides, parts));
    lierne_status status = fill(context, &samples, &again, &model);
    lierne_bridge_layouts_destroy(&again);
    if (status == LIERNE_OK) {
        status = lierne_bridge_counts_create(counts, spec, &model, parts);
    }
    for (int d = 0; d < 2; d++) {
        lierne_mem_free(model.side[d].owned.at);
        if (status != LIERNE_OK) {
            lierne_route_destroy(model.side[d].route);
        }
    }
    return status;
}

/* Routes, and what is needed to change them later. */
static lierne_status fill_all(lierne_context *context, const lierne_bridge_spec *spec,
                              lierne_bridge_sides *sides, lierne_plan_parts *parts) {
    lierne_bridge_saved_spec *recipe;
    if (!spec->variable_rows && spec->gradient_owner != LIERNE_GRADIENT_ROWS) {
        return fill(context, spec, sides, parts);
    }
    LIERNE_TRY(lierne_bridge_check(spec));
    LIERNE_TRY(lierne_bridge_saved_spec_create(&recipe, spec));
    parts->recipe = &recipe->base;
    return spec->variable_rows ? fill_variable(context, spec, sides, parts, &recipe->variable)
                               : fill(context, spec, sides, parts);
}

/* The plan that moves the counts of a plan with variable rows; without it there is neither. */
static lierne_status plan_counts(lierne_plan **out, lierne_context *context) {
    lierne_saved_spec *base = lierne_plan_saved_spec(*out, lierne_bridge_saved_spec_destroy);
    lierne_bridge_saved_spec *recipe = (lierne_bridge_saved_spec *)base;
    int64_t shape[2];
    lierne_bridge_spec spec = sample_spec(&recipe->spec, shape);
    spec.dtype = LIERNE_I64;
    spec.max_inflight = 1;
    lierne_status status = lierne_plan_create_bridge(&recipe->variable->exchange, context, &spec);
    if (status != LIERNE_OK) {
        lierne_plan_destroy(*out);
        *out = NULL;
    }
    return status;
}

lierne_status lierne_plan_create_bridge(lierne_plan **out, lierne_context *context,
                                        const lierne_bridge_spec *spec) {
    lierne_bridge_resolved r = {0};
    lierne_bridge_sides sides = {0};
    lierne_plan_parts parts = {0};
    fingerprint f = {0};
    if (!context) {
        return LIERNE_FAIL(LIERNE_INVALID, "context is NULL");
    }
    if (out) {
        *out = NULL;
    }
    LIERNE_TRY(lierne_context_alive(context));
    lierne_status status = out ? lierne_bridge_resolve(spec, &r)
                               : LIERNE_FAIL(LIERNE_INVALID, "rank %d: out is NULL", context->rank);
    if (status == LIERNE_OK) {
        status = fill_all(context, &r.spec, &sides, &parts);
    }
    if (status == LIERNE_OK) {
        put(&f, "call", -1, LIERNE_CALL_BRIDGE);
        put_grid(&f, "src", r.spec.src);
        put_grid(&f, "dst", r.spec.dst);
        put_tensor(&f, &r.spec);
    }
    bool variable = status == LIERNE_OK && r.spec.variable_rows;
    lierne_bridge_layouts_destroy(&sides);
    lierne_bridge_resolved_destroy(&r);
    LIERNE_TRY(lierne_plan_new(out, context, status, &parts, f.fields, f.n));
    return variable ? plan_counts(out, context) : LIERNE_OK;
}

/* Plans again with another map. */
static lierne_status fill_again(const lierne_plan *plan, const int32_t *row_owner,
                                lierne_bridge_sides *sides, lierne_plan_parts *parts,
                                fingerprint *f) {
    const lierne_bridge_saved_spec *recipe =
        (const lierne_bridge_saved_spec *)lierne_plan_saved_spec(plan,
                                                                 lierne_bridge_saved_spec_destroy);
    if (!recipe || !row_owner || recipe->spec.gradient_owner != LIERNE_GRADIENT_ROWS) {
        return LIERNE_FAIL(LIERNE_INVALID, "rank %d: %s", lierne_plan_context(plan)->rank,
                           row_owner ? "the plan has no row map" : "row_owner is NULL");
    }
    lierne_bridge_spec spec = recipe->spec;
    size_t rows = (size_t)(spec.shape[spec.batch_axis] * spec.shape[spec.sequence_axis]);
    spec.row_owner = row_owner;
    put(f, "call", -1, LIERNE_CALL_ROW_MAP);
    put(f, "plan", -1, lierne_plan_number(plan));
    put(f, "row_owner", -1, hash(row_owner, rows * sizeof *row_owner));
    LIERNE_TRY(lierne_plan_check_idle(plan));
    return fill(lierne_plan_context(plan), &spec, sides, parts);
}

lierne_status lierne_plan_update_rows(lierne_plan *plan, const int32_t *row_owner) {
    lierne_bridge_sides sides = {0};
    lierne_plan_parts parts = {0};
    fingerprint f = {0};
    if (!plan) {
        return LIERNE_FAIL(LIERNE_INVALID, "plan is NULL");
    }
    LIERNE_TRY(lierne_context_alive(lierne_plan_context(plan)));
    lierne_status status = fill_again(plan, row_owner, &sides, &parts, &f);
    lierne_bridge_layouts_destroy(&sides);
    return lierne_plan_replace(plan, status, &parts, f.fields, f.n);
}
