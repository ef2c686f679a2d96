/* From a spec to a plan of one of Megatron-LM's algorithms.
 *
 * The bridge's layouts come from the bridge itself. The routes of a redistribution between them are
 * planned too, for the lower bound of the report alone. */
#include "plan/megatron/megatron.h"
#include "plan/redistribute/redistribute.h"

static lierne_status open_bridge(lierne_megatron_bridge *b, const lierne_megatron_spec *given) {
    lierne_megatron_spec own, *spec = &own;
    LIERNE_TRY(lierne_spec_take(spec, sizeof *spec, given, "spec"));
    if (spec->algorithm != LIERNE_MEGATRON_ALGORITHM_COLLECTIVE &&
        spec->algorithm != LIERNE_MEGATRON_ALGORITHM_LEADER) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "algorithm is %d, must be 1 (collective) or 2 (leader)",
                           (int)spec->algorithm);
    }
    b->algorithm = spec->algorithm;
    b->spec = &b->own;
    LIERNE_TRY(lierne_spec_take(&b->own, sizeof b->own, spec->bridge, "spec->bridge"));
    if (b->own.max_peers != 0) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "max_peers is %d, must be 0 for Megatron-LM's algorithms",
                           b->own.max_peers);
    }
    LIERNE_TRY(lierne_layout_create_bridge(&b->src, &b->dst, &b->gradient, b->spec));
    LIERNE_TRY(lierne_megatron_grids_create(&b->grids, b->spec));
    b->batch_axis = b->src->placements[lierne_grid_find_dim(b->grids.src, "dp")].axis;
    return spec->algorithm == LIERNE_MEGATRON_ALGORITHM_COLLECTIVE
               ? lierne_megatron_check_collective(b)
               : lierne_megatron_check_leader(b);
}

static void close_bridge(lierne_megatron_bridge *b) {
    lierne_layout_destroy(b->src);
    lierne_layout_destroy(b->dst);
    lierne_layout_destroy(b->gradient);
    lierne_megatron_grids_destroy(&b->grids);
}

lierne_status lierne_megatron_check(const lierne_megatron_spec *spec) {
    LIERNE_PUBLIC_CALL();
    lierne_megatron_bridge bridge = {0};
    lierne_status status = open_bridge(&bridge, spec);
    close_bridge(&bridge);
    return status;
}

/* A side with an empty route. */
static lierne_status start_side(lierne_plan_side *side, const lierne_context *context,
                                const lierne_layout *from, const lierne_layout *to) {
    const lierne_side_rules rules = {.routing = LIERNE_ROUTING_DIRECT};
    LIERNE_TRY(lierne_plan_side_redistribute(side, context, from, to, &rules));
    lierne_route *direct = side->route;
    side->route = NULL;
    lierne_status status =
        lierne_route_create(&side->route, context->rank, direct->elements[LIERNE_BUFFER_IN],
                            direct->elements[LIERNE_BUFFER_OUT]);
    lierne_route_destroy(direct);
    return status;
}

static lierne_status plan_sides(lierne_plan_parts *parts, lierne_context *context,
                                const lierne_megatron_bridge *b) {
    bool collective = b->algorithm == LIERNE_MEGATRON_ALGORITHM_COLLECTIVE;
    if (b->src->world != context->members.world) {
        return LIERNE_FAIL(
            LIERNE_ERR_INVALID,
            "the grids have a world of %d ranks, the context one of %d: they must be the same",
            b->src->world, context->members.world);
    }
    LIERNE_TRY(
        lierne_context_check_ranks(context, "the source grid", b->src->offset, b->src->nranks));
    LIERNE_TRY(lierne_context_check_ranks(context, "the destination grid", b->dst->offset,
                                          b->dst->nranks));
    parts->kind = "megatron";
    parts->dtype = b->src->dtype;
    parts->max_inflight = b->spec->max_inflight ? b->spec->max_inflight : 1;
    parts->group = b->spec->group;
    parts->algorithm[LIERNE_DIRECTION_FORWARD] = parts->algorithm[LIERNE_DIRECTION_ADJOINT] =
        collective ? "collective" : "leader";
    LIERNE_TRY(start_side(&parts->side[LIERNE_DIRECTION_FORWARD], context, b->src, b->dst));
    LIERNE_TRY(start_side(&parts->side[LIERNE_DIRECTION_ADJOINT], context, b->gradient, b->src));
    return collective ? lierne_megatron_plan_collective(context, b, parts)
                      : lierne_megatron_plan_leader(context, b, parts);
}

static void add_fields(lierne_plan_fields *fields, const lierne_megatron_bridge *b) {
    lierne_plan_fields_add(fields, "lierne_plan_create_megatron", 0);
    lierne_plan_fields_add(fields, "algorithm", (int64_t)b->algorithm);
    lierne_plan_fields_add(fields, "max_inflight",
                           b->spec->max_inflight > 1 ? b->spec->max_inflight : 1);
    lierne_plan_fields_add_grid(fields, "src", b->grids.src);
    lierne_plan_fields_add_grid(fields, "dst", b->grids.dst);
    lierne_plan_fields_add_tensor(fields, b->src);
    lierne_plan_fields_add(fields, "batch_axis", b->batch_axis);
}

lierne_status lierne_plan_create_megatron(lierne_plan **out, lierne_context *context,
                                          const lierne_megatron_spec *spec) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_megatron_bridge bridge = {0};
    lierne_plan_parts parts = {0};
    lierne_plan_fields fields = {0};
    LIERNE_TRY(lierne_check_set(context, "context"));
    LIERNE_TRY(lierne_context_alive(context));
    lierne_status status =
        out ? open_bridge(&bridge, spec)
            : LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: out is NULL", context->rank);
    if (status == LIERNE_OK) {
        status = plan_sides(&parts, context, &bridge);
    }
    if (status == LIERNE_OK) {
        add_fields(&fields, &bridge);
    }
    parts.name = bridge.own.name;
    status = lierne_plan_new(out, context, status, &parts, fields.at, fields.count);
    close_bridge(&bridge); /* fields point to its grids */
    return status;
}
