/* Making plans and executing them.
 *
 * Everything that can fail on one rank alone (planning, memory) happens before the ranks agree, and
 * nothing that can fail happens afterwards: so a plan exists on every rank or on none. Requests are
 * made with the plan; an execution takes any free one. Tags of messages contain the number of the
 * call, which is the same at both ends. */
#include "plan/object.h"

#include <limits.h>
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
        }
        lierne_mem_free(plan->requests[d]);
    }
    lierne_plan_parts_free(plan->context, &plan->parts);
    lierne_mem_free(plan);
}

static lierne_status make_executions(lierne_plan *plan, int d) {
    size_t n = (size_t)plan->parts.max_inflight;
    plan->alias[d] = lierne_route_alias(plan->parts.side[d].route);
    LIERNE_TRY(lierne_alloc(&plan->requests[d], n, sizeof *plan->requests[d]));
    for (size_t i = 0; i < n; i++) {
        lierne_request *r = &plan->requests[d][i];
        r->plan = plan;
        const lierne_route *route = plan->parts.side[d].route;
        LIERNE_TRY(
            lierne_execution_create(&r->execution, plan->context, &route, 1, direction_names[d]));
    }
    lierne_execution_list_transports(plan->transports[d], sizeof plan->transports[d],
                                     plan->requests[d][0].execution);
    return LIERNE_OK;
}

/* A route contains all that is needed to execute it. */
static void complete_routes(lierne_plan_parts *parts) {
    for (int d = 0; d < 2; d++) {
        parts->side[d].route->dtype = parts->dtype;
        parts->side[d].route->accumulates = parts->accumulate && d == LIERNE_ADJOINT;
    }
}

static lierne_status make(lierne_plan **out, lierne_context *context, lierne_plan_parts *parts) {
    lierne_plan *plan;
    LIERNE_TRY(lierne_alloc(&plan, 1, sizeof *plan));
    plan->context = context;
    plan->parts = *parts;
    *parts = (lierne_plan_parts){0};
    *out = plan;
    complete_routes(&plan->parts);
    LIERNE_TRY(make_executions(plan, LIERNE_FORWARD));
    return make_executions(plan, LIERNE_ADJOINT);
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

void lierne_plan_refresh(lierne_plan *plan) {
    for (int d = 0; d < 2; d++) {
        plan->alias[d] = lierne_route_alias(plan->parts.side[d].route);
        for (int i = 0; i < plan->parts.max_inflight; i++) {
            lierne_execution_resize(plan->requests[d][i].execution);
        }
    }
}

void lierne_plan_hold(lierne_plan *plan, int by) {
    plan->held += by;
}

/* Whether all ranks could plan. */
static lierne_status decide(lierne_context *context, bool waits, lierne_status status,
                            const lierne_field *fields, size_t nfields, int *decision) {
    return waits ? lierne_context_agree_all(context, status, fields, nfields, decision)
                 : lierne_context_agree(context, status, fields, nfields, decision);
}

lierne_status lierne_plan_new(lierne_plan **out, lierne_context *context, lierne_status status,
                              lierne_plan_parts *parts, const lierne_field *fields,
                              size_t nfields) {
    lierne_plan *plan = NULL;
    bool waits = parts->waits;
    int decision;
    if (status == LIERNE_OK) {
        status = make(&plan, context, parts);
    }
    int64_t call = lierne_context_begin_call(context, "planning", -1);
    status = decide(context, waits, status, fields, nfields, &decision);
    lierne_context_end_call(context, call, status);
    if (status != LIERNE_OK) {
        lierne_plan_parts_free(context, parts);
        if (plan) {
            drop(plan);
        }
        return status;
    }
    plan->decision = decision;
    context->nplans++;
    *out = plan;
    return LIERNE_OK;
}

lierne_status lierne_plan_check_idle(const lierne_plan *plan) {
    if (plan->held > 0) {
        return LIERNE_FAIL(
            LIERNE_BUSY, "rank %d: coalesced plans (%d of them) hold the plan, destroy them first",
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
    lierne_plan *plans[2] = {a, b};
    for (int p = 0; p < 2; p++) {
        for (int d = 0; d < 2; d++) {
            for (int i = 0; i < plans[p]->parts.max_inflight; i++) {
                plans[p]->requests[d][i].plan = plans[p];
            }
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
        status = make(&next, context, parts);
    }
    int64_t call = lierne_context_begin_call(context, "planning again", plan->decision);
    status = decide(context, waits, status, fields, nfields, &decision);
    lierne_context_end_call(context, call, status);
    if (status == LIERNE_OK) {
        swap_parts(plan, next);
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
    if (!plan) {
        return LIERNE_OK;
    }
    if (plan->context->dead == LIERNE_OK || plan->held > 0) {
        LIERNE_TRY(lierne_fail_in(lierne_plan_check_idle(plan), __func__));
    }
    plan->context->nplans--;
    drop(plan);
    return LIERNE_OK;
}

lierne_status lierne_plan_check_direction(const lierne_plan *plan, lierne_direction direction,
                                          const char *func) {
    if (!plan) {
        return lierne_fail(LIERNE_INVALID, func, "plan is NULL");
    }
    if (direction != LIERNE_FORWARD && direction != LIERNE_ADJOINT) {
        return lierne_fail(LIERNE_INVALID, func,
                           "direction is %d, must be %d (forward) or %d (adjoint)", (int)direction,
                           LIERNE_FORWARD, LIERNE_ADJOINT);
    }
    return LIERNE_OK;
}

static size_t bytes_of(const lierne_plan *plan, int d, lierne_buffer buffer) {
    return (size_t)plan->parts.side[d].route->elements[buffer] *
           lierne_dtype_size(plan->parts.dtype);
}

lierne_status lierne_plan_check_buffers(const lierne_plan *plan, int d, const void *out,
                                        const void *in, const void *stream) {
    size_t n_in = bytes_of(plan, d, LIERNE_IN), n_out = bytes_of(plan, d, LIERNE_OUT);
    uintptr_t a = (uintptr_t)in, b = (uintptr_t)out;
    int rank = plan->context->rank;
    if (stream && !plan->context->stream_driver) {
        return LIERNE_FAIL(LIERNE_UNSUPPORTED,
                           "rank %d: %s: stream is not NULL, and no library of this process serves "
                           "cuda memory: pass NULL for %s memory",
                           rank, direction_names[d], plan->context->memory->name);
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
    return LIERNE_OK;
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
    const char *func; /* the public function */
    lierne_direction direction;
    lierne_reduction reduction;
    bool reduces; /* lierne_reduce */
} call;

static lierne_status check_reduction(const lierne_plan *plan, lierne_reduction reduction) {
    int rank = plan->context->rank;
    if (!plan->parts.rows) {
        return LIERNE_FAIL(LIERNE_INVALID,
                           "rank %d: reduce: the plan does not exchange rows, must "
                           "be of a graph, of references or of swaps",
                           rank);
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
                                       const lierne_field *fields, size_t n, int *decision) {
    *decision = -1;
    return context->check ? lierne_context_agree(context, mine, fields, n, decision) : mine;
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

static lierne_status begin(lierne_request **request, lierne_plan *plan, call c, void *out,
                           const void *in, void *stream) {
    lierne_request *next = NULL;
    int decision, number = c.reduces ? LIERNE_CALL_REDUCE + (int)c.reduction
                                     : LIERNE_CALL_EXECUTE + (int)c.direction;
    if (request) {
        *request = NULL;
    }
    LIERNE_TRY(lierne_plan_check_direction(plan, c.direction, c.func));
    LIERNE_TRY(lierne_context_alive(plan->context));
    LIERNE_TRY(lierne_context_agreement_status(plan->context, plan->decision));
    const lierne_field fields[] = {{"call", number}, {"plan", plan->decision}};
    lierne_status mine = check_call(plan, c, request != NULL, &next, out, in, stream);
    lierne_fail_in(mine, c.func);
    LIERNE_TRY(lierne_plan_compare_call(plan->context, mine, fields, 2, &decision));
    next->decision = decision;
    next->number = plan->started[c.direction]++;
    lierne_execution_identify(next->execution, plan->decision,
                              lierne_plan_match_id(plan->decision, c.direction, next->number));
    LIERNE_TRY(lierne_execution_begin(next->execution, c.reduction, &out, &in, stream));
    *request = next;
    return LIERNE_OK;
}

lierne_status lierne_forward_begin(lierne_request **request, lierne_plan *plan, void *out,
                                   const void *in, void *stream) {
    const call c = {.func = __func__, .direction = LIERNE_FORWARD};
    return begin(request, plan, c, out, in, stream);
}

lierne_status lierne_adjoint_begin(lierne_request **request, lierne_plan *plan, void *out,
                                   const void *in, void *stream) {
    const call c = {.func = __func__, .direction = LIERNE_ADJOINT};
    return begin(request, plan, c, out, in, stream);
}

lierne_status lierne_request_test(int *done, lierne_request *request) {
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

lierne_status lierne_end(lierne_request *request) {
    if (!request) {
        return LIERNE_OK;
    }
    if (!lierne_execution_running(request->execution)) {
        return LIERNE_FAIL(LIERNE_INVALID, "the request has ended already");
    }
    return lierne_plan_end_call(request->plan->context, request->decision, request->execution);
}

lierne_status lierne_forward(lierne_plan *plan, void *out, const void *in, void *stream) {
    const call c = {.func = __func__, .direction = LIERNE_FORWARD};
    lierne_request *request;
    LIERNE_TRY(begin(&request, plan, c, out, in, stream));
    return lierne_end(request);
}

lierne_status lierne_adjoint(lierne_plan *plan, void *out, const void *in, void *stream) {
    const call c = {.func = __func__, .direction = LIERNE_ADJOINT};
    lierne_request *request;
    LIERNE_TRY(begin(&request, plan, c, out, in, stream));
    return lierne_end(request);
}

lierne_status lierne_reduce(lierne_plan *plan, lierne_reduction reduction, void *out,
                            const void *in, void *stream) {
    const call c = {.func = __func__,
                    .direction = LIERNE_ADJOINT,
                    .reduction = reduction,
                    .reduces = true};
    lierne_request *request;
    LIERNE_TRY(begin(&request, plan, c, out, in, stream));
    return lierne_end(request);
}
