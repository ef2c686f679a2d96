/* Making plans and executing them.
 *
 * Everything that can fail on one rank alone (planning, memory) happens before the ranks agree, and
 * nothing that can fail happens afterwards: so a plan exists on every rank or on none. Requests are
 * made with the plan; an execution takes any free one. Tags of messages contain the number of the
 * call, which is the same at both ends. */
#include "layout/layout.h"
#include "plan/object.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char *const direction_names[2] = {"forward", "adjoint"};

void lierne_plan_parts_free(lierne_context *context, lierne_plan_parts *parts) {
    for (int d = 0; d < 2; d++) {
        lierne_route_destroy(parts->side[d].route);
        lierne_mem_free(parts->side[d].owned.at);
    }
    for (int g = 0; g < LIERNE_PLAN_GROUPS; g++) {
        lierne_group_release(context, parts->groups[g]);
    }
    if (parts->saved_spec) {
        parts->saved_spec->free(parts->saved_spec);
    }
}

static void drop(lierne_plan *plan) {
    for (int d = 0; d < 2; d++) {
        for (int i = 0; plan->requests[d] && i < plan->parts.max_inflight; i++) {
            lierne_execution_destroy(plan->requests[d][i].execution);
            lierne_spare_free(plan->context, &plan->requests[d][i].spare);
        }
        lierne_mem_free(plan->requests[d]);
    }
    lierne_connection_destroy(plan->connection);
    lierne_plan_parts_free(plan->context, &plan->parts);
    lierne_mem_free(plan);
}

/* old: the plan that this one is to replace, or NULL; its spare memory is used. */
static lierne_status make_executions(lierne_plan *plan, int d, lierne_plan *old) {
    size_t n = (size_t)plan->parts.max_inflight;
    plan->alias[d] = lierne_route_alias(plan->parts.side[d].route);
    LIERNE_TRY(lierne_alloc(&plan->requests[d], n, sizeof *plan->requests[d]));
    for (size_t i = 0; i < n; i++) {
        lierne_request *r = &plan->requests[d][i];
        r->plan = plan;
        const lierne_route *route = plan->parts.side[d].route;
        bool has_spare = old && i < (size_t)old->parts.max_inflight;
        LIERNE_TRY(lierne_execution_create(&r->execution, plan->context, &route, 1,
                                           direction_names[d],
                                           has_spare ? &old->requests[d][i].spare : NULL));
    }
    lierne_execution_list_transports(plan->transports[d], sizeof plan->transports[d],
                                     plan->requests[d][0].execution);
    plan->needs_stream[d] = lierne_execution_needs_stream(plan->requests[d][0].execution);
    return LIERNE_OK;
}

/* Describes the requests of both directions for the other ranks, where a transport asks for it. */
static lierne_status make_connection(lierne_plan *plan) {
    lierne_execution *executions[2 * LIERNE_MAX_INFLIGHT];
    size_t n = (size_t)plan->parts.max_inflight;
    for (size_t i = 0; i < 2 * n; i++) {
        executions[i] = plan->requests[i / n][i % n].execution;
    }
    return lierne_connection_create(&plan->connection, plan->context, executions, n);
}

/* A route contains all that is needed to execute it. */
static void complete_routes(lierne_plan_parts *parts) {
    for (int d = 0; d < 2; d++) {
        parts->side[d].route->dtype = parts->dtype;
        parts->side[d].route->accumulates = parts->accumulate && d == LIERNE_ADJOINT;
    }
}

static lierne_status make(lierne_plan **out, lierne_context *context, lierne_plan_parts *parts,
                          lierne_plan *old) {
    lierne_plan *plan;
    LIERNE_TRY(lierne_alloc(&plan, 1, sizeof *plan));
    plan->context = context;
    plan->parts = *parts;
    *parts = (lierne_plan_parts){0};
    *out = plan;
    complete_routes(&plan->parts);
    LIERNE_TRY(lierne_plan_parts_check_dtype(&plan->parts, context->rank));
    LIERNE_TRY(make_executions(plan, LIERNE_FORWARD, old));
    LIERNE_TRY(make_executions(plan, LIERNE_ADJOINT, old));
    return make_connection(plan);
}

static bool in_flight(const lierne_plan *plan) {
    bool running = false;
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < plan->parts.max_inflight; i++) {
            running |= lierne_execution_running(plan->requests[d][i].execution);
        }
    }
    return running;
}

static bool dependent_busy(const lierne_dependent *dependent) {
    return in_flight((const lierne_plan *)dependent);
}

static lierne_status destroy_dependent(lierne_dependent *dependent) {
    lierne_plan *plan = (lierne_plan *)dependent;
    plan->context->nplans -= lierne_context_remove_dependent(plan->context, dependent);
    drop(plan);
    return LIERNE_OK;
}

void lierne_plan_own(lierne_plan *plan) {
    plan->context->nplans -= lierne_context_remove_dependent(plan->context, &plan->dependent);
}

int lierne_plan_match_id(int decision, int direction, size_t call) {
    int64_t tag = ((int64_t)decision * 2 + direction) * LIERNE_MAX_INFLIGHT;
    return (int)((tag + (int64_t)(call % LIERNE_MAX_INFLIGHT)) & INT_MAX);
}

int lierne_plan_number(const lierne_plan *plan) {
    return plan->decision;
}

const lierne_route *lierne_plan_route(const lierne_plan *plan, lierne_direction direction) {
    return plan->parts.side[direction].route;
}

lierne_plan_side *lierne_plan_side_of(lierne_plan *plan, lierne_direction direction) {
    return &plan->parts.side[direction];
}

lierne_status lierne_plan_refresh(lierne_plan *plan) {
    lierne_status status = LIERNE_OK;
    for (int d = 0; d < 2; d++) {
        plan->alias[d] = lierne_route_alias(plan->parts.side[d].route);
        for (int i = 0; i < plan->parts.max_inflight && status == LIERNE_OK; i++) {
            status = lierne_execution_resize(plan->requests[d][i].execution);
        }
    }
    status = status == LIERNE_OK ? lierne_connection_renew(plan->connection) : status;
    return status == LIERNE_OK ? LIERNE_OK : lierne_context_kill(plan->context, status);
}

void lierne_plan_hold(lierne_plan *plan, int by) {
    plan->held += by;
}

/* Whether all ranks could plan; then connects their messages. */
static lierne_status decide(lierne_context *context, bool waits, lierne_status status,
                            const lierne_plan *plan, const lierne_field *fields, size_t nfields,
                            int *decision) {
    LIERNE_TRY(waits || lierne_context_connects(context)
                   ? lierne_context_agree_all(context, status, fields, nfields, decision)
                   : lierne_context_agree(context, status, fields, nfields, decision));
    return lierne_connection_establish(plan->connection);
}

lierne_status lierne_plan_new(lierne_plan **out, lierne_context *context, lierne_status status,
                              lierne_plan_parts *parts, const lierne_field *fields,
                              size_t nfields) {
    lierne_plan *plan = NULL;
    bool waits = parts->waits;
    int decision;
    if (status == LIERNE_OK) {
        status = make(&plan, context, parts, NULL);
    }
    int64_t call = lierne_context_begin_call(context, "planning", -1);
    status = decide(context, waits, status, plan, fields, nfields, &decision);
    lierne_context_end_call(context, call, status);
    if (status != LIERNE_OK) {
        lierne_plan_parts_free(context, parts);
        if (plan) {
            drop(plan);
        }
        return status;
    }
    plan->decision = decision;
    plan->dependent = (lierne_dependent){.busy = dependent_busy, .destroy = destroy_dependent};
    lierne_context_add_dependent(context, &plan->dependent);
    context->nplans++;
    *out = plan;
    return LIERNE_OK;
}

lierne_status lierne_plan_check_idle(const lierne_plan *plan) {
    if (plan->held > 0) {
        return LIERNE_FAIL(
            LIERNE_BUSY,
            "rank %d: coalesced plans or runs (%d of them) hold the plan, destroy them first",
            plan->context->rank, plan->held);
    }
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < plan->parts.max_inflight; i++) {
            if (lierne_execution_running(plan->requests[d][i].execution)) {
                return LIERNE_FAIL(LIERNE_BUSY, "rank %d: %s request %d of the plan is in flight",
                                   plan->context->rank, direction_names[d], i);
            }
        }
    }
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

/* Keeps the memory of the executions that were replaced, for the next update: a step whose shape is
 * no larger than those before allocates none. */
static void keep_memory(lierne_plan *plan, lierne_plan *old) {
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < plan->parts.max_inflight && i < old->parts.max_inflight; i++) {
            plan->requests[d][i].spare = lierne_execution_take_spare(old->requests[d][i].execution);
        }
    }
}

lierne_status lierne_plan_replace(lierne_plan *plan, lierne_status status, lierne_plan_parts *parts,
                                  const lierne_field *fields, size_t nfields) {
    lierne_context *context = plan->context;
    lierne_plan *next = NULL;
    bool waits = parts->waits;
    int decision;
    if (status == LIERNE_OK) {
        status = make(&next, context, parts, plan);
    }
    int64_t call = lierne_context_begin_call(context, "planning again", plan->decision);
    status = decide(context, waits, status, next, fields, nfields, &decision);
    lierne_context_end_call(context, call, status);
    if (status == LIERNE_OK) {
        swap_parts(plan, next);
        keep_memory(plan, next);
        plan->decision = decision;
        if (!plan->parts.saved_spec) {
            plan->parts.saved_spec = next->parts.saved_spec;
            next->parts.saved_spec = NULL;
        }
    }
    lierne_plan_parts_free(context, parts);
    if (next) {
        drop(next);
    }
    return status;
}

lierne_saved_spec *lierne_plan_saved_spec(const lierne_plan *plan,
                                          void (*free)(lierne_saved_spec *)) {
    lierne_saved_spec *saved_spec = plan->parts.saved_spec;
    return saved_spec && saved_spec->free == free ? saved_spec : NULL;
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

lierne_status lierne_plan_check_direction(const lierne_plan *plan, lierne_direction direction) {
    LIERNE_TRY(lierne_check_set(plan, "plan"));
    if (direction != LIERNE_FORWARD && direction != LIERNE_ADJOINT) {
        return LIERNE_FAIL(LIERNE_INVALID, "direction is %d, must be %d (forward) or %d (adjoint)",
                           (int)direction, LIERNE_FORWARD, LIERNE_ADJOINT);
    }
    return LIERNE_OK;
}

static lierne_status check_adjoint(const lierne_plan *plan, int d) {
    return d == LIERNE_FORWARD || !plan->parts.no_adjoint
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_INVALID, "rank %d: the plan has no adjoint: %s",
                             plan->context->rank, plan->parts.no_adjoint);
}

lierne_status lierne_plan_check_side(const lierne_plan *plan, lierne_direction direction) {
    LIERNE_TRY(lierne_plan_check_direction(plan, direction));
    return check_adjoint(plan, direction);
}

static size_t bytes_of(const lierne_plan *plan, int d, lierne_buffer buffer) {
    return (size_t)plan->parts.side[d].route->elements[buffer] *
           lierne_dtype_size(plan->parts.dtype);
}

/* A buffer of another memory kind is an error here; later it would be a crash. */
static lierne_status check_memory(const lierne_plan *plan, int d, const void *buffer,
                                  const char *name) {
    const lierne_context *context = plan->context;
    char full[64];
    snprintf(full, sizeof full, "rank %d: %s: %s", context->rank, direction_names[d], name);
    return context->memory->check
               ? context->memory->check(buffer, lierne_dtype_size(plan->parts.dtype),
                                        context->device, full)
               : lierne_device_reject(context->device_query, buffer, full);
}

lierne_status lierne_plan_check_buffers(const lierne_plan *plan, int d, const void *out,
                                        const void *in, const void *stream) {
    size_t n_in = bytes_of(plan, d, LIERNE_IN), n_out = bytes_of(plan, d, LIERNE_OUT);
    uintptr_t a = (uintptr_t)in, b = (uintptr_t)out;
    int rank = plan->context->rank;
    LIERNE_TRY(check_adjoint(plan, d));
    if (stream || plan->needs_stream[d]) {
        LIERNE_TRY(lierne_execution_check_stream(plan->requests[d][0].execution, stream));
    }
    if (!in && n_in > 0) {
        return LIERNE_FAIL(LIERNE_INVALID, "rank %d: %s: in is NULL, must hold %zu bytes", rank,
                           direction_names[d], n_in);
    }
    if (!out && n_out > 0 && plan->alias[d] < 0) {
        return LIERNE_FAIL(LIERNE_INVALID,
                           "rank %d: %s: out is NULL, must hold %zu bytes (the "
                           "result is no alias of in)",
                           rank, direction_names[d], n_out);
    }
    if (in && out && a < b + n_out && b < a + n_in && !(plan->parts.in_place && a == b)) {
        return LIERNE_FAIL(LIERNE_INVALID, "rank %d: %s: in and out overlap", rank,
                           direction_names[d]);
    }
    if (!plan->context->memory->check && !plan->context->device_query) {
        return LIERNE_OK;
    }
    LIERNE_TRY(n_in > 0 ? check_memory(plan, d, in, "in") : LIERNE_OK);
    return out && n_out > 0 ? check_memory(plan, d, out, "out") : LIERNE_OK;
}

/* *next: a free request. Tags number calls, not requests, and repeat after LIERNE_MAX_INFLIGHT
 * calls: a request that has been in flight for so long must end first. */
static lierne_status find_free(const lierne_plan *plan, int d, lierne_request **next) {
    *next = NULL;
    for (int i = 0; i < plan->parts.max_inflight; i++) {
        lierne_request *r = &plan->requests[d][i];
        if (!lierne_execution_running(r->execution)) {
            *next = *next ? *next : r;
        } else if (plan->started[d] - r->number >= LIERNE_MAX_INFLIGHT) {
            return LIERNE_FAIL(LIERNE_BUSY,
                               "rank %d: %s: the request begun %zu calls ago has not "
                               "ended",
                               plan->context->rank, direction_names[d],
                               plan->started[d] - r->number);
        }
    }
    if (!*next) {
        return LIERNE_FAIL(LIERNE_BUSY, "rank %d: %s: all %d requests are in flight (max_inflight)",
                           plan->context->rank, direction_names[d], plan->parts.max_inflight);
    }
    return LIERNE_OK;
}

/* What a call executes. */
typedef struct call {
    lierne_direction direction;
    lierne_reduction reduction;
    bool reduces; /* lierne_reduce */
    bool agreed;  /* the ranks have compared their calls */
} call;

static lierne_status check_reduction(const lierne_plan *plan, lierne_reduction reduction) {
    int rank = plan->context->rank;
    if (!plan->parts.rows) {
        return LIERNE_FAIL(LIERNE_INVALID,
                           "rank %d: reduce: the plan does not exchange rows, must "
                           "be of a graph, of references or of swaps",
                           rank);
    }
    if (lierne_dtype_is_opaque(plan->parts.dtype)) {
        return LIERNE_FAIL(LIERNE_INVALID, "rank %d: reduce: dtype %s can only be copied", rank,
                           lierne_dtype_name(plan->parts.dtype));
    }
    if (reduction != LIERNE_MAX && reduction != LIERNE_MIN) {
        return LIERNE_FAIL(LIERNE_INVALID,
                           "rank %d: reduce: reduction is %d, must be %d (max) or "
                           "%d (min)",
                           rank, (int)reduction, LIERNE_MAX, LIERNE_MIN);
    }
    return LIERNE_OK;
}

/* Whether this rank may start a request, and which one. */
static lierne_status check_call(const lierne_plan *plan, call c, bool has_request,
                                lierne_request **next, const void *out, const void *in,
                                const void *stream) {
    if (!has_request) {
        return LIERNE_FAIL(LIERNE_INVALID, "rank %d: %s: request is NULL", plan->context->rank,
                           direction_names[c.direction]);
    }
    if (c.reduces) {
        LIERNE_TRY(check_reduction(plan, c.reduction));
    }
    LIERNE_TRY(lierne_plan_check_buffers(plan, c.direction, out, in, stream));
    return find_free(plan, c.direction, next);
}

lierne_status lierne_plan_compare_call(lierne_context *context, lierne_status mine,
                                       const char *name, int plan, int *decision) {
    *decision = -1;
    if (!context->check) {
        return mine;
    }
    lierne_field fields[] = {{.name = ""}, {.name = "plan", .value = plan}};
    snprintf(fields[0].name, sizeof fields[0].name, "%s", name);
    return lierne_context_agree(context, mine, fields, 2, decision);
}

lierne_status lierne_plan_end_call(lierne_context *context, int decision,
                                   lierne_execution *execution) {
    if (decision >= 0) {
        /* Ranks that call later may make the agreement fail: then no data will arrive. */
        lierne_status status = lierne_context_await_agreement(context, decision);
        if (status != LIERNE_OK) {
            lierne_context_kill(context, status);
        }
    }
    return lierne_execution_wait(execution);
}

static const char *name_of(call c) {
    const char *reduce = c.reduction == LIERNE_MAX ? "reduce (max)" : "reduce (min)";
    return c.reduces ? reduce : direction_names[c.direction];
}

static lierne_status begin(lierne_request **request, lierne_plan *plan, call c, void *out,
                           const void *in, void *stream) {
    lierne_request *next = NULL;
    int decision;
    if (request) {
        *request = NULL;
    }
    LIERNE_TRY(lierne_plan_check_direction(plan, c.direction));
    LIERNE_TRY(lierne_context_alive(plan->context));
    LIERNE_TRY(lierne_context_agreement_status(plan->context, plan->decision));
    lierne_status mine = check_call(plan, c, request != NULL, &next, out, in, stream);
    if (c.agreed) {
        decision = -1;
        LIERNE_TRY(mine);
    } else {
        LIERNE_TRY(
            lierne_plan_compare_call(plan->context, mine, name_of(c), plan->decision, &decision));
    }
    next->decision = decision;
    next->number = plan->started[c.direction]++;
    lierne_execution_identify(next->execution, plan->decision,
                              lierne_plan_match_id(plan->decision, c.direction, next->number));
    LIERNE_TRY(lierne_execution_begin(next->execution, c.reduction, &out, &in, stream));
    *request = next;
    return LIERNE_OK;
}

lierne_status lierne_plan_begin_agreed(lierne_request **request, lierne_plan *plan,
                                       lierne_direction direction, void *out, const void *in) {
    return begin(request, plan, (call){.direction = direction, .agreed = true}, out, in, NULL);
}

lierne_status lierne_forward_begin(lierne_request **request, lierne_plan *plan, void *out,
                                   const void *in, void *stream) {
    LIERNE_PUBLIC_CALL();
    return begin(request, plan, (call){.direction = LIERNE_FORWARD}, out, in, stream);
}

lierne_status lierne_adjoint_begin(lierne_request **request, lierne_plan *plan, void *out,
                                   const void *in, void *stream) {
    LIERNE_PUBLIC_CALL();
    return begin(request, plan, (call){.direction = LIERNE_ADJOINT}, out, in, stream);
}

lierne_status lierne_request_test(int *done, lierne_request *request) {
    LIERNE_PUBLIC_CALL();
    bool finished = false;
    if (!done || !request || !lierne_execution_running(request->execution)) {
        return LIERNE_FAIL(LIERNE_INVALID, "%s",
                           !done      ? "done is NULL"
                           : !request ? "request is NULL"
                                      : "the request has ended already");
    }
    *done = 0;
    LIERNE_TRY(lierne_execution_test(request->execution, &finished));
    *done = finished;
    return LIERNE_OK;
}

static lierne_status end(const lierne_request *request) {
    return lierne_plan_end_call(request->plan->context, request->decision, request->execution);
}

lierne_status lierne_end(lierne_request *request) {
    LIERNE_PUBLIC_CALL();
    if (!request) {
        return LIERNE_OK;
    }
    if (!lierne_execution_running(request->execution)) {
        return LIERNE_FAIL(LIERNE_INVALID, "the request has ended already");
    }
    return end(request);
}

static lierne_status execute(lierne_plan *plan, call c, void *out, const void *in, void *stream) {
    lierne_request *request;
    LIERNE_TRY(begin(&request, plan, c, out, in, stream));
    return end(request);
}

lierne_status lierne_forward(lierne_plan *plan, void *out, const void *in, void *stream) {
    LIERNE_PUBLIC_CALL();
    return execute(plan, (call){.direction = LIERNE_FORWARD}, out, in, stream);
}

lierne_status lierne_adjoint(lierne_plan *plan, void *out, const void *in, void *stream) {
    LIERNE_PUBLIC_CALL();
    return execute(plan, (call){.direction = LIERNE_ADJOINT}, out, in, stream);
}

lierne_status lierne_reduce(lierne_plan *plan, lierne_reduction reduction, void *out,
                            const void *in, void *stream) {
    LIERNE_PUBLIC_CALL();
    const call c = {.direction = LIERNE_ADJOINT, .reduction = reduction, .reduces = true};
    return execute(plan, c, out, in, stream);
}
