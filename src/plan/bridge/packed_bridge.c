/* The packed bridge: a redistribution of the axis that runs make of image rows and tokens.
 *
 * Both layouts become layouts of this joined axis, and the planner of redistributions does the
 * rest: who sends to whom, fewest bytes, sums of partial gradients. Only rows that go to several
 * tokens have more than one place, which its cells cannot say; those, and plans that change, are
 * filled in by the tables of updates. */
#include "lierne/packed_bridge.h"

#include "plan/redistribute/redistribute.h"
#include "plan/redistribute/redistribute_check.h"
#include "plan/redistribute/varying_plan.h"
#include "plan/spec_table.h"
#include "runtime/context/context.h"

#include <stdio.h>

static const lierne_spec_entry numbers[] = {
    LIERNE_SPEC_NUMBER(lierne_packed_bridge_spec, allow_unused, BOOL, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_packed_bridge_spec, allow_repeat, BOOL, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_packed_bridge_spec, partial_dims, INT, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_packed_bridge_spec, max_inflight, INFLIGHT, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_packed_bridge_spec, routing, INT, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_packed_bridge_spec, max_segments, I64, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_packed_bridge_spec, max_rows, I64, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_packed_bridge_spec, max_runs, I64, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_packed_bridge_spec, max_peers, INT, COMPARED),
};
static const lierne_spec_table table = LIERNE_SPEC_TABLE(numbers);

/* What a plan of the tables keeps. */
typedef struct saved_tables {
    lierne_saved_spec base;
    lierne_varying_plan *tables;
} saved_tables;

/* The layouts, which borrow from the spec's. */
typedef struct sides {
    lierne_joints joints;
    lierne_layout src;
    lierne_layout dst;
    lierne_layout gradient; /* of the output */
} sides;

static lierne_status check_capacity(const lierne_packed_bridge_spec *spec) {
    const int64_t most[3] = {spec->max_segments, spec->max_rows, spec->max_runs};
    for (int i = 0; i < 3; i++) {
        if (most[i] < 0 || (most[i] > 0) != (most[0] > 0)) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "max_segments is %lld, max_rows %lld and max_runs %lld: all must be "
                               "above 0, or all 0",
                               (long long)most[0], (long long)most[1], (long long)most[2]);
        }
    }
    return most[0] > 0 && spec->routing == LIERNE_ROUTING_BALANCED
               ? LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                             "max_segments is above 0: routing may not be BALANCED")
               : LIERNE_OK;
}

static lierne_status take_spec(lierne_packed_bridge_spec *spec,
                               const lierne_packed_bridge_spec *given) {
    LIERNE_TRY(lierne_spec_take(spec, sizeof *spec, given, "spec"));
    LIERNE_TRY(lierne_check_set(spec->src, "src"));
    LIERNE_TRY(lierne_check_set(spec->dst, "dst"));
    LIERNE_TRY(lierne_image_runs_check(spec->runs, spec->nruns));
    LIERNE_TRY(lierne_plan_check_routing(spec->routing));
    LIERNE_TRY(lierne_plan_check_peers(spec->max_peers, LIERNE_SHARING_NONE));
    LIERNE_TRY(lierne_plan_check_inflight(spec->max_inflight));
    return check_capacity(spec);
}

static lierne_status check_side(const lierne_layout *layout, const char *name) {
    LIERNE_TRY(lierne_redistribute_check_complete(layout, name));
    if (!layout->packed) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "%s has no packing: both sides of a packed bridge need one", name);
    }
    if (layout->partials > 1) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "%s has a PARTIAL dim: contributions to gradients are partial_dims",
                           name);
    }
    return LIERNE_OK;
}

static lierne_status check_ranks(const lierne_layout *layout, const char *name,
                                 const lierne_context *context) {
    char grid[24];
    if (layout->world != context->members.world) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "the grid of %s has a world of %d ranks, the context one of %d: they "
                           "must be the same",
                           name, layout->world, context->members.world);
    }
    snprintf(grid, sizeof grid, "the grid of %s", name);
    return lierne_context_check_ranks(context, grid, layout->offset, layout->nranks);
}

static lierne_status check_layouts(const lierne_packed_bridge_spec *spec) {
    LIERNE_TRY(check_side(spec->src, "src"));
    LIERNE_TRY(check_side(spec->dst, "dst"));
    int a = spec->src->packed->axis, b = spec->dst->packed->axis;
    if (a != b) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "packed_axis is %d in src and %d in dst: they must be the same", a, b);
    }
    /* But for the segments and their number, the tensors are one. */
    lierne_layout dst = *spec->dst;
    dst.shape[a] = spec->src->shape[a];
    dst.packed = NULL;
    return lierne_redistribute_check_tensor(spec->src, "src", &dst, "dst");
}

static lierne_status take_partial(lierne_layout *gradient, uint32_t dims) {
    for (int d = 0; d < 32; d++) {
        if (!(dims >> d & 1)) {
            continue;
        }
        if (d >= gradient->ndims || gradient->placements[d].kind != LIERNE_PLACEMENT_REPLICATE) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "partial_dims has dim %d, which dst %s: only its REPLICATE dims may "
                               "have contributions",
                               d, d < gradient->ndims ? "does not replicate" : "does not have");
        }
        gradient->placements[d].kind = LIERNE_PLACEMENT_PARTIAL;
        gradient->partials *= gradient->sizes[d];
    }
    return LIERNE_OK;
}

static lierne_status join_layouts(sides *s, const lierne_packed_bridge_spec *spec,
                                  const lierne_joints_rules *rules) {
    LIERNE_TRY(lierne_joints_create(&s->joints, spec->nruns));
    LIERNE_TRY(lierne_joints_take(&s->joints, spec->runs, spec->nruns, spec->src->packed,
                                  spec->dst->packed, rules));
    s->src = *spec->src;
    s->dst = *spec->dst;
    s->src.joints = s->dst.joints = &s->joints;
    s->dst.joint_side = 1;
    s->src.shape[s->src.packed->axis] = s->dst.shape[s->src.packed->axis] = s->joints.total;
    s->gradient = s->dst;
    return take_partial(&s->gradient, spec->partial_dims);
}

static void destroy_saved(lierne_saved_spec *base) {
    saved_tables *saved = (saved_tables *)base;
    lierne_varying_plan_destroy(saved->tables);
    lierne_mem_free(saved);
}

/* The tables of other ranks, for a plan that stays over few peers. */
typedef struct other_tables {
    const lierne_context *context;
    const lierne_varying_spec *spec;
    int direction;
} other_tables;

/* A copy of a rank's route, whose own blocks are in its tables. */
static lierne_status copy_route(lierne_route **out, const lierne_route *route) {
    static const lierne_buffer same[LIERNE_BUFFER_COUNT] = {LIERNE_BUFFER_IN, LIERNE_BUFFER_OUT,
                                                            LIERNE_BUFFER_SCRATCH};
    lierne_route *copy;
    LIERNE_TRY(lierne_route_create(&copy, route->rank, 0, 0));
    lierne_status status = lierne_route_append(copy, route, same, (const int64_t[]){0, 0, 0});
    if (status != LIERNE_OK) {
        lierne_route_destroy(copy);
        return status;
    }
    *out = copy;
    return LIERNE_OK;
}

static lierne_status route_of(const void *user, int rank, lierne_route **out) {
    const other_tables *other = user;
    lierne_varying_spec spec = *other->spec;
    lierne_varying_plan *tables = NULL;
    lierne_plan_parts parts = {0};
    spec.rank = rank;
    lierne_status status = lierne_varying_plan_create(&tables, &parts, other->context, &spec);
    if (status == LIERNE_OK) {
        status = copy_route(out, parts.side[other->direction].route);
    }
    for (int d = 0; d < 2; d++) {
        lierne_route_destroy(parts.side[d].route);
        lierne_mem_free(parts.side[d].owned.at);
    }
    lierne_varying_plan_destroy(tables);
    return status;
}

static lierne_status limit_peers(lierne_plan_parts *parts, const lierne_context *context,
                                 const lierne_varying_spec *tables, int max_peers) {
    const lierne_layout *const *layouts = tables->layouts;
    int *ranks;
    lierne_status status = LIERNE_OK;
    LIERNE_TRY(lierne_alloc(&ranks, (size_t)layouts[0]->world + 1, sizeof *ranks));
    int n = lierne_redistribute_ranks(ranks, layouts[0], layouts[1]);
    for (int d = 0; d < 2 && status == LIERNE_OK; d++) {
        const other_tables user = {context, tables, d};
        const lierne_relay relay = {.square = lierne_square_of(ranks, n),
                                    .get = route_of,
                                    .user = &user};
        status = lierne_route_limit_peers(&parts->side[d].route, &parts->side[d].relayed, &relay,
                                          max_peers);
    }
    lierne_mem_free(ranks);
    return status;
}

/* Of a plan that changes, or of rows with several tokens. */
static lierne_status plan_tables(lierne_plan_parts *parts, const lierne_context *context,
                                 const lierne_packed_bridge_spec *spec,
                                 const lierne_joints_rules *rules) {
    bool fixed = spec->max_segments == 0;
    int64_t images = spec->src->packed->n, segments = spec->dst->packed->n;
    lierne_layout gradient = *spec->dst;
    lierne_varying_spec tables = {.rank = context->rank,
                                  .layouts = {spec->src, &gradient},
                                  .max_segments = spec->max_segments,
                                  .max_rows = spec->max_rows,
                                  .max_runs = spec->max_runs,
                                  .max_peers = fixed ? 0 : spec->max_peers,
                                  .joined = true,
                                  .fixed = fixed,
                                  .runs = spec->runs,
                                  .nruns = spec->nruns,
                                  .rules = *rules};
    saved_tables *saved;
    LIERNE_TRY(take_partial(&gradient, spec->partial_dims));
    if (fixed) {
        tables.max_segments = images > segments ? images : segments;
        tables.max_runs = spec->nruns;
    }
    LIERNE_TRY(lierne_alloc(&saved, 1, sizeof *saved));
    saved->base.free = destroy_saved;
    parts->saved_spec = &saved->base;
    LIERNE_TRY(lierne_varying_plan_create(&saved->tables, parts, context, &tables));
    return fixed && spec->max_peers > 0 ? limit_peers(parts, context, &tables, spec->max_peers)
                                        : LIERNE_OK;
}

static lierne_status plan_layouts(lierne_plan_parts *parts, const lierne_context *context,
                                  const lierne_packed_bridge_spec *spec, const sides *s) {
    const lierne_side_rules rules = {.routing = spec->routing, .max_peers = spec->max_peers};
    LIERNE_TRY(lierne_plan_side_redistribute(&parts->side[LIERNE_DIRECTION_FORWARD], context,
                                             &s->src, &s->dst, &rules));
    return lierne_plan_side_redistribute(&parts->side[LIERNE_DIRECTION_ADJOINT], context,
                                         &s->gradient, &s->src, &rules);
}

static lierne_status check_sums(const lierne_packed_bridge_spec *spec) {
    return (spec->allow_repeat || spec->partial_dims) && lierne_dtype_is_opaque(spec->src->dtype)
               ? LIERNE_FAIL(LIERNE_ERR_INVALID,
                             "%s is not 0, but gradients of dtype %s cannot be added",
                             spec->allow_repeat ? "allow_repeat" : "partial_dims",
                             lierne_dtype_name(spec->src->dtype))
               : LIERNE_OK;
}

/* All checks that need no context; s is then filled in. */
static lierne_status check_all(sides *s, const lierne_packed_bridge_spec *spec,
                               const lierne_joints_rules *rules) {
    LIERNE_TRY(check_layouts(spec));
    LIERNE_TRY(check_sums(spec));
    LIERNE_TRY(join_layouts(s, spec, rules));
    return s->joints.repeats && spec->routing == LIERNE_ROUTING_BALANCED
               ? LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                             "routing is BALANCED, and rows go to several tokens: must be AUTO or "
                             "DIRECT")
               : LIERNE_OK;
}

static lierne_joints_rules rules_of(const lierne_packed_bridge_spec *spec) {
    return (lierne_joints_rules){.unused = spec->allow_unused != 0,
                                 .repeat = spec->allow_repeat != 0};
}

static lierne_status plan_bridge(lierne_plan_parts *parts, const lierne_context *context,
                                 const lierne_packed_bridge_spec *spec, sides *s) {
    const lierne_joints_rules rules = rules_of(spec);
    LIERNE_TRY(check_all(s, spec, &rules));
    LIERNE_TRY(check_ranks(spec->src, "src", context));
    LIERNE_TRY(check_ranks(spec->dst, "dst", context));
    parts->kind = "packed_bridge";
    parts->dtype = spec->src->dtype;
    parts->max_inflight = spec->max_inflight ? spec->max_inflight : 1;
    parts->group = spec->group;
    parts->algorithm[LIERNE_DIRECTION_FORWARD] = parts->algorithm[LIERNE_DIRECTION_ADJOINT] =
        "direct";
    parts->side[LIERNE_DIRECTION_FORWARD].partial = true;
    return spec->max_segments > 0 || s->joints.repeats ? plan_tables(parts, context, spec, &rules)
                                                       : plan_layouts(parts, context, spec, s);
}

lierne_status lierne_packed_bridge_check(const lierne_packed_bridge_spec *given) {
    LIERNE_PUBLIC_CALL();
    lierne_packed_bridge_spec spec;
    sides s = {0};
    LIERNE_TRY(take_spec(&spec, given));
    const lierne_joints_rules rules = rules_of(&spec);
    lierne_status status = check_all(&s, &spec, &rules);
    lierne_joints_destroy(&s.joints);
    return status;
}

lierne_status lierne_plan_create_packed_bridge(lierne_plan **out, lierne_context *context,
                                               const lierne_packed_bridge_spec *given) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_packed_bridge_spec spec = {0};
    lierne_plan_parts parts = {0};
    lierne_plan_fields fields = {0};
    sides s = {0};
    LIERNE_TRY(lierne_check_set(context, "context"));
    LIERNE_TRY(lierne_context_alive(context));
    lierne_status status =
        out ? take_spec(&spec, given)
            : LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: out is NULL", context->rank);
    if (status == LIERNE_OK) {
        status = plan_bridge(&parts, context, &spec, &s);
    }
    if (status == LIERNE_OK) {
        lierne_plan_fields_add(&fields, "lierne_plan_create_packed_bridge", 0);
        lierne_spec_table_compare(&table, &spec, &fields);
        lierne_plan_fields_add_tensor(&fields, spec.src);
        lierne_plan_fields_add_layout(&fields, "src", spec.src);
        lierne_plan_fields_add_layout(&fields, "dst", spec.dst);
        lierne_plan_fields_add_joints(&fields, &s.joints);
    }
    parts.name = spec.name;
    status = lierne_plan_new(out, context, status, &parts, fields.at, fields.count);
    lierne_joints_destroy(&s.joints); /* fields point to them */
    return status;
}
