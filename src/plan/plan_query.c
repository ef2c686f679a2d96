/* Queries about plans, without executing them. */
#include "plan/object.h"

lierne_context *lierne_plan_get_context(const lierne_plan *plan) {
    return plan ? plan->context : NULL;
}

lierne_status lierne_plan_get_dtype(lierne_dtype *dtype, const lierne_plan *plan) {
    LIERNE_PUBLIC_CALL();
    if (!plan || !dtype) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL", plan ? "dtype" : "plan");
    }
    *dtype = plan->parts.dtype;
    return LIERNE_OK;
}

const char *lierne_plan_get_kind(const lierne_plan *plan) {
    return plan ? plan->parts.kind : NULL;
}

const char *lierne_plan_get_memory_kind(const lierne_plan *plan) {
    return plan ? plan->context->memory->name : NULL;
}

int lierne_plan_get_number(const lierne_plan *plan) {
    return plan ? plan->decision : -1;
}

lierne_status lierne_plan_get_elements(int64_t *in, int64_t *out, const lierne_plan *plan,
                                       lierne_direction direction) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(lierne_plan_check_side(plan, direction));
    const lierne_route *route = plan->parts.side[direction].route;
    if (in) {
        *in = route->elements[LIERNE_BUFFER_IN];
    }
    if (out) {
        *out = route->elements[LIERNE_BUFFER_OUT];
    }
    return LIERNE_OK;
}

lierne_status lierne_plan_get_shape(int *naxes, int64_t *in, int64_t *out, const lierne_plan *plan,
                                    lierne_direction direction) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(lierne_plan_check_side(plan, direction));
    const lierne_plan_side *side = &plan->parts.side[direction];
    if (naxes) {
        *naxes = side->naxes;
    }
    for (int a = 0; a < side->naxes; a++) {
        if (in) {
            in[a] = side->in[a];
        }
        if (out) {
            out[a] = side->out[a];
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_plan_get_alias(int64_t *offset, const lierne_plan *plan,
                                    lierne_direction direction) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(lierne_plan_check_side(plan, direction));
    LIERNE_TRY(lierne_check_set(offset, "offset"));
    *offset = plan->alias[direction];
    return LIERNE_OK;
}

lierne_status lierne_plan_get_shared_output(const void **out, const lierne_plan *plan,
                                            lierne_direction direction) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    LIERNE_TRY(lierne_plan_check_side(plan, direction));
    LIERNE_TRY(lierne_check_set(out, "out"));
    const lierne_shared_output *output = plan->outputs[direction];
    if (!output) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: the output of direction %d is the caller's: shared_output of "
                           "the plan's spec does not include it",
                           plan->context->rank, (int)direction);
    }
    if (plan->started[direction] > 0) {
        *out = lierne_shared_output_get(output, plan->started[direction] - 1);
    }
    return LIERNE_OK;
}

lierne_status lierne_plan_get_route(const lierne_route **route, const lierne_plan *plan,
                                    lierne_direction direction) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(route);
    LIERNE_TRY(lierne_plan_check_side(plan, direction));
    LIERNE_TRY(lierne_check_set(route, "route"));
    *route = plan->parts.side[direction].route;
    return LIERNE_OK;
}

lierne_status lierne_plan_get_report(lierne_report *report, const lierne_plan *plan,
                                     lierne_direction direction) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(lierne_plan_check_side(plan, direction));
    const lierne_plan_side *side = &plan->parts.side[direction];
    lierne_route_counts counts = lierne_route_count(side->route);
    int64_t bytes = (int64_t)lierne_dtype_size(plan->parts.dtype);
    lierne_report all = {
        .size = sizeof all,
        .sent_bytes = counts.sent * bytes,
        .received_bytes = counts.received * bytes,
        .local_bytes = counts.local * bytes,
        .min_bytes = side->min_elements * bytes,
        .sent_messages = counts.sent_messages,
        .received_messages = counts.received_messages,
        .stages = (int64_t)side->route->stages.count,
        .algorithm = side->balanced ? "balanced" : plan->parts.algorithm[direction],
        .transports = plan->transports[direction],
        .direct_ns = side->direct_ns,
        .balanced_ns = side->balanced_ns,
        .scratch_bytes = lierne_execution_scratch_bytes(plan->requests[direction][0].execution),
        .host_bytes = lierne_execution_host_bytes(plan->requests[direction][0].execution),
        .window_bytes = lierne_execution_window_bytes(plan->requests[direction][0].execution),
        .sent_peers = lierne_route_count_peers(side->route, true),
        .received_peers = lierne_route_count_peers(side->route, false),
        .most_peers = side->relayed.most_peers,
        .forwarded_bytes = side->relayed.forwarded * bytes,
    };
    for (int g = 0; g < LIERNE_PLAN_GROUPS; g++) {
        all.groups += plan->parts.groups[g] != NULL;
    }
    return lierne_spec_give(report, &all, sizeof all, "report");
}

lierne_status lierne_plan_print(char **text, const lierne_plan *plan, lierne_direction direction) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(text);
    lierne_text out = {0};
    LIERNE_TRY(lierne_plan_check_side(plan, direction));
    LIERNE_TRY(lierne_check_set(text, "text"));
    lierne_route_print(plan->parts.side[direction].route, &out);
    return lierne_text_take(&out, text);
}

void lierne_text_destroy(char *text) {
    lierne_mem_free(text);
}

static lierne_status check_messages(const lierne_plan *const *plans, int n, int d) {
    const lierne_route **routes;
    LIERNE_TRY(lierne_alloc(&routes, (size_t)n, sizeof *routes));
    for (int i = 0; i < n; i++) {
        routes[i] = plans[i]->parts.side[d].route;
    }
    lierne_status status = lierne_routes_pair(routes, n);
    lierne_mem_free(routes);
    return status;
}

static lierne_status check_side(const lierne_plan_side *side) {
    lierne_owned_blocks found = {0};
    const lierne_owned_blocks *owned = side->find_owned ? &found : &side->owned;
    lierne_status status = side->find_owned ? side->find_owned(side->varying, &found) : LIERNE_OK;
    if (status == LIERNE_OK) {
        status = lierne_route_check(side->route, owned->at, owned->count);
    }
    lierne_mem_free(found.at);
    return status;
}

lierne_status lierne_plan_check(const lierne_plan *const *plans, int n) {
    LIERNE_PUBLIC_CALL();
    for (int i = 0; i < n || i < 1; i++) {
        if (!plans || n < 1 || !plans[i] || (n > 1 && plans[i]->context->index != i)) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "plans must be those of ranks 0 to %d, in order, or of the first %d "
                               "members of a context",
                               n - 1, n);
        }
        for (int d = 0; d < 2; d++) {
            LIERNE_TRY(check_side(&plans[i]->parts.side[d]));
        }
    }
    int all = plans[0]->context->members.count;
    if (n != 1 && n != all) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "%d plans of a world of %d ranks, must be all or one", n, all);
    }
    if (n != all) {
        return LIERNE_OK;
    }
    LIERNE_TRY(check_messages(plans, n, LIERNE_DIRECTION_FORWARD));
    return check_messages(plans, n, LIERNE_DIRECTION_ADJOINT);
}
