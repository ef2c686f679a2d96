/* Making plans, planning again, destroying.
 *
 * Everything that can fail on one rank alone (planning, memory) happens before the ranks agree, and
 * nothing that can fail happens afterwards: so a plan exists on every rank or on none. */
#include "plan/object.h"

#include <string.h>

void lierne_plan_parts_free(lierne_context *context, lierne_plan_parts *parts) {
    for (int d = 0; d < 2; d++) {
        lierne_route_destroy(parts->side[d].route);
        lierne_mem_free(parts->side[d].owned.at);
        lierne_mem_free(parts->side[d].sharers.at);
    }
    for (int g = 0; g < LIERNE_PLAN_GROUPS; g++) {
        lierne_group_release(context, parts->groups[g]);
    }
    if (parts->saved_spec) {
        parts->saved_spec->free(parts->saved_spec);
    }
}

static void drop_plan(lierne_plan *plan) {
    for (int d = 0; d < 2; d++) {
        for (int i = 0; plan->requests[d] && i < plan->parts.max_inflight; i++) {
            lierne_execution_destroy(plan->requests[d][i].execution);
            lierne_spare_free(plan->context, &plan->requests[d][i].spare);
        }
        lierne_mem_free(plan->requests[d]);
    }
    lierne_connection_destroy(plan->connection);
    if (plan->group) {
        plan->group->nplans--;
    }
    lierne_plan_parts_free(plan->context, &plan->parts);
    lierne_counters_release(plan->context, plan->counters);
    lierne_plan_drop_series(plan->context, plan->series);
    lierne_mem_free(plan);
}

/* A result in memory of the plan is no alias of the input. */
static int64_t alias_of(const lierne_plan *plan, int d) {
    const lierne_plan_side *side = &plan->parts.side[d];
    return side->shared ? -1 : lierne_route_alias(side->route, side->untouched);
}

static const lierne_domain *domain_of(const lierne_plan *plan) {
    return plan->group ? &plan->group->domain : NULL;
}

/* old: the plan that this one is to replace, or NULL; its spare memory is used. */
static lierne_status make_executions(lierne_plan *plan, int d, lierne_plan *old) {
    size_t n = (size_t)plan->parts.max_inflight;
    plan->alias[d] = alias_of(plan, d);
    LIERNE_TRY(lierne_alloc(&plan->requests[d], n, sizeof *plan->requests[d]));
    for (size_t i = 0; i < n; i++) {
        lierne_request *r = &plan->requests[d][i];
        r->plan = plan;
        const lierne_route *route = plan->parts.side[d].route;
        const lierne_varying *varying = plan->parts.side[d].varying;
        bool has_spare = old && i < (size_t)old->parts.max_inflight;
        LIERNE_TRY(lierne_execution_create(&r->execution, plan->context, domain_of(plan), &route, 1,
                                           n, lierne_direction_names[d],
                                           has_spare ? &old->requests[d][i].spare : NULL,
                                           varying ? &varying : NULL));
    }
    lierne_execution_list_transports(plan->transports[d], sizeof plan->transports[d],
                                     plan->requests[d][0].execution);
    plan->needs_stream[d] = lierne_execution_needs_stream(plan->requests[d][0].execution);
    return LIERNE_OK;
}

size_t lierne_plan_bytes(const lierne_plan *plan, int d, lierne_buffer buffer) {
    return (size_t)plan->parts.side[d].route->elements[buffer] *
           lierne_dtype_size(plan->parts.dtype);
}

/* The output of a direction that the plan owns. */
static lierne_status make_output(lierne_plan *plan, int d) {
    const lierne_plan_side *side = &plan->parts.side[d];
    lierne_shared_output *output = NULL;
    if (!side->shared) {
        return LIERNE_OK;
    }
    lierne_status status =
        lierne_shared_output_create(&output, plan->context,
                                    lierne_plan_bytes(plan, d, LIERNE_BUFFER_OUT), side->sharers.at,
                                    side->sharers.count);
    lierne_execution_own_output(plan->requests[d][0].execution, output);
    plan->outputs[d] = output;
    return status;
}

/* The requests of both directions: forward's, then adjoint's. */
typedef struct executions {
    lierne_execution *at[2 * LIERNE_MAX_INFLIGHT];
    size_t each;
} executions;

static executions executions_of(const lierne_plan *plan) {
    executions all = {.each = (size_t)plan->parts.max_inflight};
    for (size_t i = 0; i < 2 * all.each; i++) {
        all.at[i] = plan->requests[i / all.each][i % all.each].execution;
    }
    return all;
}

/* Describes the requests for the other ranks, where a transport asks for it. */
static lierne_status make_connection(lierne_plan *plan) {
    const executions all = executions_of(plan);
    return lierne_connection_create(&plan->connection, plan->context, all.at, all.each);
}

/* A route contains all that is needed to execute it. */
static void complete_routes(lierne_plan_parts *parts) {
    for (int d = 0; d < 2; d++) {
        parts->side[d].route->dtype = parts->dtype;
        parts->side[d].route->accumulates = parts->accumulate && d == LIERNE_DIRECTION_ADJOINT;
    }
}

static lierne_status check_peers(const lierne_plan *plan, const lierne_messages *messages) {
    const lierne_group *group = plan->parts.group;
    for (size_t i = 0; i < messages->count; i++) {
        if (!lierne_group_has(group, messages->at[i].peer)) {
            return LIERNE_FAIL(
                LIERNE_ERR_INVALID,
                "rank %d: group '%s' (uid %lld) has not rank %d, with which the plan "
                "has messages",
                plan->context->rank, group->purpose, (long long)group->uid, messages->at[i].peer);
        }
    }
    return LIERNE_OK;
}

/* Enters the group of the parts. */
static lierne_status enter_group(lierne_plan *plan) {
    lierne_group *group = plan->parts.group;
    if (!group) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_group_check(plan->context, group));
    for (int d = 0; d < 2; d++) {
        const lierne_route *route = plan->parts.side[d].route;
        for (size_t i = 0; i < route->stages.count; i++) {
            LIERNE_TRY(check_peers(plan, &route->stages.at[i].sends));
            LIERNE_TRY(check_peers(plan, &route->stages.at[i].recvs));
        }
    }
    group->nplans++;
    plan->group = group;
    return LIERNE_OK;
}

static lierne_status make(lierne_plan **out, lierne_context *context, lierne_plan_parts *parts,
                          lierne_plan *old) {
    lierne_plan *plan;
    LIERNE_TRY(lierne_alloc(&plan, 1, sizeof *plan));
    plan->context = context;
    plan->series = -1;
    plan->parts = *parts;
    *parts = (lierne_plan_parts){0};
    *out = plan;
    complete_routes(&plan->parts);
    LIERNE_TRY(lierne_plan_check_name(&plan->parts, context->rank));
    LIERNE_TRY(lierne_counters_find(&plan->counters, context, plan->parts.name, plan->parts.kind));
    plan->parts.name = plan->parts.name ? plan->counters->name : NULL;
    LIERNE_TRY(lierne_plan_parts_check_dtype(&plan->parts, context->rank));
    LIERNE_TRY(lierne_plan_reserve_series(context));
    LIERNE_TRY(enter_group(plan));
    LIERNE_TRY(make_executions(plan, LIERNE_DIRECTION_FORWARD, old));
    LIERNE_TRY(make_executions(plan, LIERNE_DIRECTION_ADJOINT, old));
    LIERNE_TRY(make_output(plan, LIERNE_DIRECTION_FORWARD));
    LIERNE_TRY(make_output(plan, LIERNE_DIRECTION_ADJOINT));
    return make_connection(plan);
}

bool lierne_plan_in_flight(const lierne_plan *plan) {
    bool running = false;
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < plan->parts.max_inflight; i++) {
            running |= lierne_execution_running(plan->requests[d][i].execution);
        }
    }
    return running;
}

static bool dependent_busy(const lierne_dependent *dependent) {
    return lierne_plan_in_flight((const lierne_plan *)dependent);
}

static lierne_status destroy_dependent(lierne_dependent *dependent) {
    lierne_plan *plan = (lierne_plan *)dependent;
    lierne_context_trace_calls(plan->context);
    plan->context->nplans -= lierne_context_remove_dependent(plan->context, dependent);
    drop_plan(plan);
    return LIERNE_OK;
}

void lierne_plan_own(lierne_plan *plan) {
    plan->context->nplans -= lierne_context_remove_dependent(plan->context, &plan->dependent);
}

const lierne_route *lierne_plan_route(const lierne_plan *plan, lierne_direction direction) {
    return plan->parts.side[direction].route;
}

lierne_plan_side *lierne_plan_side_of(lierne_plan *plan, lierne_direction direction) {
    return &plan->parts.side[direction];
}

lierne_status lierne_plan_drain(const lierne_plan *plan) {
    for (int d = 0; plan && d < 2; d++) {
        for (int i = 0; i < plan->parts.max_inflight; i++) {
            LIERNE_TRY(lierne_execution_drain(plan->requests[d][i].execution));
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_plan_refresh(lierne_plan *plan) {
    lierne_status status = LIERNE_OK;
    for (int d = 0; d < 2; d++) {
        plan->alias[d] = alias_of(plan, d);
        for (int i = 0; i < plan->parts.max_inflight && status == LIERNE_OK; i++) {
            status = lierne_execution_resize(plan->requests[d][i].execution);
        }
    }
    status = status == LIERNE_OK ? lierne_connection_renew(plan->connection) : status;
    return status == LIERNE_OK ? LIERNE_OK : lierne_context_kill(plan->context, status);
}

lierne_status lierne_plan_vary(lierne_plan *plan, bool compared) {
    lierne_status status = LIERNE_OK;
    for (int d = 0; d < 2; d++) {
        plan->alias[d] = alias_of(plan, d);
        for (int i = 0; i < plan->parts.max_inflight && status == LIERNE_OK; i++) {
            status = lierne_execution_vary(plan->requests[d][i].execution);
        }
    }
    plan->compares = !compared && !lierne_execution_stamps(plan->context);
    return status == LIERNE_OK ? LIERNE_OK : lierne_context_kill(plan->context, status);
}

void lierne_plan_set_compared(lierne_plan *plan) {
    plan->compares = false;
}

int64_t lierne_plan_calls(const lierne_plan *plan, lierne_direction direction) {
    return (int64_t)plan->started[direction] + plan->coalesced_calls[direction];
}

void lierne_plan_count_call(lierne_plan *plan, lierne_direction direction) {
    plan->coalesced_calls[direction]++;
}

bool lierne_plan_compares(const lierne_plan *plan) {
    return plan->compares;
}

void lierne_plan_set_grows(lierne_plan *plan) {
    plan->grows = true;
}

void lierne_plan_hold(lierne_plan *plan, int by) {
    plan->held += by;
}

void lierne_plan_keep(lierne_plan *plan, int by) {
    plan->kept += by;
}

static bool has_messages(const lierne_plan *plan) {
    int64_t sent[2], received[2];
    for (int d = 0; d < 2; d++) {
        lierne_execution_count_messages(plan->requests[d][0].execution, &sent[d], &received[d]);
    }
    return sent[0] + received[0] + sent[1] + received[1] > 0;
}

/* Ranks that have messages must give groups of one spec, or none; the others cannot give a group
 * that they are not in. The least number is the greatest one's negative. Planning on several ranks
 * by one thread compares nothing. */
static lierne_status compare_groups(lierne_context *context, bool waits, const lierne_plan *plan) {
    int64_t sets[2] = {INT64_MIN, INT64_MIN};
    if (context->last_group_uid == 0 || !(waits || !context->control->pending)) {
        return LIERNE_OK;
    }
    if (has_messages(plan)) {
        sets[0] = plan->group ? plan->group->set : 0;
        sets[1] = -sets[0];
    }
    LIERNE_TRY(lierne_context_allreduce_max(context, sets, 2));
    return sets[0] == INT64_MIN || sets[0] == -sets[1]
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                             "group differs between ranks: some give one of the groups with uid "
                             "%lld or more, others %s: all ranks with messages must give their "
                             "groups of one lierne_group_spec, or NULL",
                             (long long)sets[0], sets[1] == 0 ? "NULL" : "one of other groups");
}

lierne_status lierne_plan_connect(const lierne_plan *plan, bool waits) {
    lierne_context *context = plan->context;
    LIERNE_TRY(compare_groups(context, waits || lierne_context_connects(context), plan));
    LIERNE_TRY(lierne_connection_establish(plan->connection));
    const executions all = executions_of(plan);
    LIERNE_TRY(lierne_execution_use_heap(context, all.at, 2 * all.each));
    LIERNE_TRY(lierne_execution_send_first_messages(context, all.at[0], all.at[all.each]));
    LIERNE_TRY(lierne_execution_find_all_gathers(context, all.at, all.each));
    return plan->outputs[LIERNE_DIRECTION_FORWARD] || plan->outputs[LIERNE_DIRECTION_ADJOINT]
               ? lierne_shared_outputs_connect(context, plan->outputs, 2)
               : LIERNE_OK;
}

/* Whether all ranks could plan; then connects their messages. */
static lierne_status decide(lierne_context *context, bool waits, lierne_status status,
                            lierne_plan *plan, const lierne_field *fields, size_t nfields,
                            int *decision) {
    LIERNE_TRY(waits || lierne_context_connects(context)
                   ? lierne_context_agree_all(context, status, fields, nfields, decision)
                   : lierne_context_agree(context, status, fields, nfields, decision));
    LIERNE_TRY(lierne_plan_take_series(&plan->series, context, *decision, plan->parts.max_inflight,
                                       waits));
    return lierne_plan_connect(plan, waits);
}

lierne_status lierne_plan_new(lierne_plan **out, lierne_context *context, lierne_status status,
                              lierne_plan_parts *parts, const lierne_field *fields,
                              size_t nfields) {
    lierne_plan *plan = NULL;
    lierne_field *named = NULL;
    bool waits = parts->waits;
    const char *name = lierne_check_name(parts->name) == LIERNE_OK ? parts->name : NULL;
    int decision;
    if (status == LIERNE_OK) {
        status = make(&plan, context, parts, NULL);
    }
    if (status == LIERNE_OK && name) {
        status = lierne_plan_add_name(&named, fields, nfields, name);
    }
    lierne_plan_name_error(status, name);
    int64_t call = lierne_context_begin_call(context, "planning", -1, -1);
    status = decide(context, waits, status, plan, named ? named : fields, nfields + (named != NULL),
                    &decision);
    lierne_context_end_call(context, call, status);
    lierne_mem_free(named);
    if (status != LIERNE_OK) {
        lierne_plan_name_error(status, name);
        lierne_plan_parts_free(context, parts);
        if (plan) {
            drop_plan(plan);
        }
        return status;
    }
    plan->decision = decision;
    plan->dependent =
        (lierne_dependent){.busy = dependent_busy, .destroy = destroy_dependent, .is_plan = true};
    lierne_context_add_dependent(context, &plan->dependent);
    context->nplans++;
    plan->counters->plans++;
    lierne_recorder_set_name(&context->recorder, decision, plan->parts.name);
    lierne_plan_log(plan, fields, nfields, &context->calls[call % LIERNE_CALLS]);
    *out = plan;
    return LIERNE_OK;
}

/* Swaps the contents of two plans; requests keep pointing to the plan that they are in. */
static void swap_parts(lierne_plan *a, lierne_plan *b) {
    lierne_plan keep = *a;
    *a = *b;
    *b = keep;
    b->dependent = a->dependent;
    a->dependent = keep.dependent;
    lierne_plan *plans[2] = {a, b};
    for (int p = 0; p < 2; p++) {
        for (int d = 0; d < 2; d++) {
            for (int i = 0; i < plans[p]->parts.max_inflight; i++) {
                plans[p]->requests[d][i].plan = plans[p];
            }
        }
    }
}

void lierne_plan_exchange(lierne_plan *plan, lierne_plan *next) {
    int held = plan->held;
    lierne_context_trace_calls(plan->context);
    swap_parts(plan, next);
    next->held = plan->held;
    plan->held = held;
}

/* Keeps the memory of the executions that were replaced, for the next update: a step whose shape is
 * no larger than those before allocates none. */
static void keep_memory(lierne_plan *plan, lierne_plan *old) {
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < plan->parts.max_inflight && i < old->parts.max_inflight; i++) {
            plan->requests[d][i].spare = lierne_execution_take_spare(old->requests[d][i].execution);
        }
    }
}

lierne_status lierne_plan_make_next(lierne_plan **next, lierne_plan *plan,
                                    lierne_plan_parts *parts) {
    parts->group = plan->group;
    parts->name = plan->parts.name;
    return lierne_plan_name_error(make(next, plan->context, parts, plan), plan->parts.name);
}

void lierne_plan_take_next(lierne_plan *plan, lierne_plan *next, int decision) {
    const lierne_plan was = *plan;
    lierne_context_trace_calls(plan->context);
    swap_parts(plan, next);
    keep_memory(plan, next);
    plan->held = was.held;
    plan->kept = was.kept;
    plan->decision = decision;
    if (decision == was.decision) { /* calls keep their numbers and match ids */
        next->series = plan->series;
        plan->series = was.series;
        memcpy(plan->started, was.started, sizeof plan->started);
        memcpy(plan->coalesced_calls, was.coalesced_calls, sizeof plan->coalesced_calls);
    }
    lierne_recorder_set_name(&plan->context->recorder, decision, plan->parts.name);
    if (!plan->parts.saved_spec) {
        plan->parts.saved_spec = next->parts.saved_spec;
        next->parts.saved_spec = NULL;
    }
}

void lierne_plan_drop_next(lierne_plan *next) {
    if (next) {
        drop_plan(next);
    }
}

lierne_status lierne_plan_replace(lierne_plan *plan, lierne_status status, lierne_plan_parts *parts,
                                  const lierne_field *fields, size_t nfields) {
    lierne_context *context = plan->context;
    lierne_plan *next = NULL;
    bool waits = parts->waits;
    int decision;
    if (status == LIERNE_OK) {
        status = lierne_plan_make_next(&next, plan, parts);
    } else {
        lierne_plan_name_error(status, plan->parts.name);
    }
    int64_t call = lierne_context_begin_call(context, "planning again", -1, plan->decision);
    status = decide(context, waits, status, next, fields, nfields, &decision);
    lierne_context_end_call(context, call, status);
    lierne_plan_name_error(status, plan->parts.name);
    if (status == LIERNE_OK) {
        lierne_plan_take_next(plan, next, decision);
    }
    lierne_plan_parts_free(context, parts);
    lierne_plan_drop_next(next);
    return status;
}

lierne_saved_spec *lierne_plan_saved_spec(const lierne_plan *plan,
                                          void (*free)(lierne_saved_spec *)) {
    lierne_saved_spec *saved_spec = plan->parts.saved_spec;
    return saved_spec && saved_spec->free == free ? saved_spec : NULL;
}

lierne_group *lierne_plan_group(const lierne_plan *plan) {
    return plan->group;
}

lierne_context *lierne_plan_context(const lierne_plan *plan) {
    return plan->context;
}

lierne_status lierne_plan_destroy(lierne_plan *plan) {
    LIERNE_PUBLIC_CALL();
    if (!plan) {
        return LIERNE_OK;
    }
    if (plan->context->dead == LIERNE_OK || plan->held > 0) {
        LIERNE_TRY(lierne_plan_check_idle(plan));
    }
    return destroy_dependent(&plan->dependent);
}
