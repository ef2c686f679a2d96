/* Executing plans. Requests are made with the plan; a call takes any free one. Match ids contain
 * the number of the call, which is the same at both ends. What a caller may pass is checked before
 * anything starts. */
#include "layout/layout.h"
#include "plan/object.h"

#include <stdio.h>

static lierne_status check_direction(const lierne_plan *plan, lierne_direction direction) {
    LIERNE_TRY(lierne_check_set(plan, "plan"));
    if (direction != LIERNE_DIRECTION_FORWARD && direction != LIERNE_DIRECTION_ADJOINT) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "direction is %d, must be %d (forward) or %d (adjoint)", (int)direction,
                           LIERNE_DIRECTION_FORWARD, LIERNE_DIRECTION_ADJOINT);
    }
    return LIERNE_OK;
}

static lierne_status check_adjoint(const lierne_plan *plan, int d) {
    return d == LIERNE_DIRECTION_FORWARD || !plan->parts.no_adjoint
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: the plan has no adjoint: %s",
                             plan->context->rank, plan->parts.no_adjoint);
}

lierne_status lierne_plan_check_side(const lierne_plan *plan, lierne_direction direction) {
    LIERNE_TRY(check_direction(plan, direction));
    return check_adjoint(plan, (int)direction);
}

/* A buffer of another memory kind is an error here; later it would be a crash. */
static lierne_status check_memory(const lierne_plan *plan, int d, const void *buffer,
                                  const char *name) {
    const lierne_context *context = plan->context;
    char full[64];
    snprintf(full, sizeof full, "rank %d: %s: %s", context->rank, lierne_direction_names[d], name);
    return context->memory->check
               ? context->memory->check(buffer, lierne_dtype_size(plan->parts.dtype),
                                        context->device, full)
               : context->device_memory->reject(context->device_driver, buffer, full);
}

/* The buffers of a call whose output is the plan's. */
static lierne_status check_shared(const lierne_plan *plan, int d, const void *out, const void *in) {
    int rank = plan->context->rank;
    if (out) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: %s: out is %p, must be NULL: the output is the plan's "
                           "(lierne_plan_get_shared_output)",
                           rank, lierne_direction_names[d], out);
    }
    if (lierne_shared_output_overlaps(plan->outputs[d], in,
                                      lierne_plan_bytes(plan, d, LIERNE_BUFFER_IN))) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: %s: in overlaps with the plan's own output of this direction",
                           rank, lierne_direction_names[d]);
    }
    return LIERNE_OK;
}

lierne_status lierne_plan_check_buffers(const lierne_plan *plan, int d, const void *out,
                                        const void *in, const void *stream) {
    size_t n_in = lierne_plan_bytes(plan, d, LIERNE_BUFFER_IN),
           n_out = lierne_plan_bytes(plan, d, LIERNE_BUFFER_OUT);
    uintptr_t a = (uintptr_t)in, b = (uintptr_t)out;
    int rank = plan->context->rank;
    LIERNE_TRY(check_adjoint(plan, d));
    if (stream || plan->needs_stream[d]) {
        LIERNE_TRY(lierne_execution_check_stream(plan->requests[d][0].execution, stream));
    }
    if (!in && n_in > 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: %s: in is NULL, must hold %zu bytes", rank,
                           lierne_direction_names[d], n_in);
    }
    if (plan->outputs[d]) {
        LIERNE_TRY(check_shared(plan, d, out, in));
    } else if (!out && n_out > 0 && plan->alias[d] < 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: %s: out is NULL, must hold %zu bytes (the "
                           "result is no alias of in)",
                           rank, lierne_direction_names[d], n_out);
    }
    if (in && out && a < b + n_out && b < a + n_in && !(plan->parts.in_place && a == b)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: %s: in and out overlap", rank,
                           lierne_direction_names[d]);
    }
    if (!plan->context->memory->check && !plan->context->device_driver) {
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
            return LIERNE_FAIL(LIERNE_ERR_BUSY,
                               "rank %d: %s: the request begun %zu calls ago has not "
                               "ended",
                               plan->context->rank, lierne_direction_names[d],
                               plan->started[d] - r->number);
        }
    }
    if (!*next) {
        return LIERNE_FAIL(LIERNE_ERR_BUSY,
                           "rank %d: %s: all %d requests are in flight (max_inflight)",
                           plan->context->rank, lierne_direction_names[d],
                           plan->parts.max_inflight);
    }
    return LIERNE_OK;
}

/* What a call executes. */
typedef struct call {
    lierne_direction direction;
    lierne_reduction reduction;
    bool reduces; /* lierne_plan_reduce */
    bool agreed;  /* the ranks have compared their calls */
} call;

static lierne_status check_reduction(const lierne_plan *plan, lierne_reduction reduction) {
    int rank = plan->context->rank;
    if (!plan->parts.rows) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: reduce: the plan does not exchange rows, must "
                           "be of a graph, of references or of swaps",
                           rank);
    }
    if (lierne_dtype_is_opaque(plan->parts.dtype)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: reduce: dtype %s can only be copied", rank,
                           lierne_dtype_name(plan->parts.dtype));
    }
    if (reduction != LIERNE_REDUCTION_MAX && reduction != LIERNE_REDUCTION_MIN) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: reduce: reduction is %d, must be %d (max) or "
                           "%d (min)",
                           rank, (int)reduction, LIERNE_REDUCTION_MAX, LIERNE_REDUCTION_MIN);
    }
    return LIERNE_OK;
}

/* Whether this rank may start a request, and which one. */
static lierne_status check_call(const lierne_plan *plan, call c, bool has_request,
                                lierne_request **next, const void *out, const void *in,
                                const void *stream) {
    if (!has_request) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: %s: request is NULL", plan->context->rank,
                           lierne_direction_names[c.direction]);
    }
    if (c.reduces) {
        LIERNE_TRY(check_reduction(plan, c.reduction));
    }
    LIERNE_TRY(lierne_plan_check_buffers(plan, (int)c.direction, out, in, stream));
    LIERNE_TRY(lierne_execution_check_capture(plan->requests[c.direction][0].execution, stream,
                                              plan->parts.max_inflight));
    return find_free(plan, (int)c.direction, next);
}

lierne_status lierne_plan_compare_call(lierne_context *context, lierne_status mine,
                                       const lierne_compared_call *compared, int *decision) {
    const int64_t *stamp = compared->stamp;
    *decision = -1;
    if (!context->check && !stamp) {
        return mine;
    }
    lierne_field fields[] = {
        {.name = ""},
        {.name = "plan", .value = compared->plan},
        {.name = "captured into a graph", .value = compared->captured},
        {.name = "calls before this one", .value = compared->calls},
        {.name = "updates of segments", .value = stamp ? stamp[LIERNE_STAMP_UPDATE] : 0},
        {.name = "number of segments", .value = stamp ? stamp[LIERNE_STAMP_SEGMENTS] : 0},
        {.name = "tokens of segments", .value = stamp ? stamp[LIERNE_STAMP_TOKENS] : 0},
        {.name = "hash of segments", .value = stamp ? stamp[LIERNE_STAMP_HASH] : 0}};
    snprintf(fields[0].name, sizeof fields[0].name, "%s", compared->name);
    return lierne_context_agree(context, mine, fields, stamp ? 8 : 3, decision);
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
    const char *reduce = c.reduction == LIERNE_REDUCTION_MAX ? "reduce (max)" : "reduce (min)";
    return c.reduces ? reduce : lierne_direction_names[c.direction];
}

/* The request of a call, and *out of one whose output is the plan's. */
static lierne_status take_request(lierne_request **request, lierne_plan *plan, call c, void **out,
                                  const void *in, void *stream) {
    lierne_request *next = NULL;
    int decision = -1;
    LIERNE_TRY(check_direction(plan, c.direction));
    LIERNE_TRY(lierne_context_alive(plan->context));
    LIERNE_TRY(lierne_context_agreement_status(plan->context, plan->decision));
    const lierne_compared_call compared = {
        .name = name_of(c),
        .plan = plan->decision,
        .captured = lierne_execution_captures(plan->requests[c.direction][0].execution, stream),
        .stamp = plan->compares ? plan->parts.side[c.direction].varying->stamp : NULL,
        .calls = lierne_plan_calls(plan, c.direction)};
    lierne_status mine = check_call(plan, c, request != NULL, &next, *out, in, stream);
    lierne_plan_name_error(mine, plan->parts.name);
    LIERNE_TRY(c.agreed && !plan->compares
                   ? mine
                   : lierne_plan_compare_call(plan->context, mine, &compared, &decision));
    plan->compares = false;
    next->decision = decision;
    next->number = plan->started[c.direction]++;
    if (plan->outputs[c.direction]) {
        *out = lierne_shared_output_get(plan->outputs[c.direction], next->number);
    }
    *request = next;
    lierne_execution_identify(
        next->execution,
        (lierne_execution_id){.plan = plan->decision,
                              .what = c.direction == LIERNE_DIRECTION_FORWARD
                                          ? LIERNE_RECORD_FORWARD
                                          : LIERNE_RECORD_ADJOINT,
                              .number = (int64_t)next->number,
                              .counter = &plan->counters->sides[c.direction],
                              .match = lierne_plan_match_id(plan->series, plan->parts.max_inflight,
                                                            (int)c.direction, next->number)});
    return LIERNE_OK;
}

static lierne_status begin_call(lierne_request **request, lierne_plan *plan, call c, void *out,
                                const void *in, void *stream) {
    lierne_request *next;
    LIERNE_NULL_OUTPUT(request);
    LIERNE_TRY(take_request(request ? &next : NULL, plan, c, &out, in, stream));
    lierne_status status = lierne_execution_begin(next->execution, c.reduction, &out, &in, stream);
    lierne_recorder_flush(&plan->context->recorder);
    *request = status == LIERNE_OK ? next : NULL;
    return status;
}

lierne_status lierne_plan_begin_agreed(lierne_request **request, lierne_plan *plan,
                                       lierne_direction direction, void *out, const void *in,
                                       void *stream) {
    const call c = {.direction = direction, .agreed = true};
    return begin_call(request, plan, c, out, in, stream);
}

lierne_status lierne_plan_forward_begin(lierne_request **request, lierne_plan *plan, void *out,
                                        const void *in, void *stream) {
    LIERNE_PUBLIC_CALL();
    return begin_call(request, plan, (call){.direction = LIERNE_DIRECTION_FORWARD}, out, in,
                      stream);
}

lierne_status lierne_plan_adjoint_begin(lierne_request **request, lierne_plan *plan, void *out,
                                        const void *in, void *stream) {
    LIERNE_PUBLIC_CALL();
    return begin_call(request, plan, (call){.direction = LIERNE_DIRECTION_ADJOINT}, out, in,
                      stream);
}

lierne_status lierne_request_test(int *done, lierne_request *request) {
    LIERNE_PUBLIC_CALL();
    bool finished = false;
    if (!done || !request || !lierne_execution_running(request->execution)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s",
                           !done      ? "done is NULL"
                           : !request ? "request is NULL"
                                      : "the request has ended already");
    }
    *done = 0;
    LIERNE_TRY(lierne_execution_test(request->execution, &finished));
    *done = finished;
    return LIERNE_OK;
}

static lierne_status end_request(const lierne_request *request) {
    return lierne_plan_end_call(request->plan->context, request->decision, request->execution);
}

lierne_status lierne_request_end(lierne_request *request) {
    LIERNE_PUBLIC_CALL();
    if (!request) {
        return LIERNE_OK;
    }
    if (!lierne_execution_running(request->execution)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "the request has ended already");
    }
    return end_request(request);
}

static lierne_status execute(lierne_plan *plan, call c, void *out, const void *in, void *stream) {
    lierne_request *request;
    LIERNE_TRY(take_request(&request, plan, c, &out, in, stream));
    if (request->decision < 0 && !c.reduces && !stream) {
        return lierne_execution_run(request->execution, out, in);
    }
    LIERNE_TRY(lierne_execution_begin(request->execution, c.reduction, &out, &in, stream));
    return end_request(request);
}

lierne_status lierne_plan_forward(lierne_plan *plan, void *out, const void *in, void *stream) {
    LIERNE_PUBLIC_CALL();
    return execute(plan, (call){.direction = LIERNE_DIRECTION_FORWARD}, out, in, stream);
}

lierne_status lierne_plan_adjoint(lierne_plan *plan, void *out, const void *in, void *stream) {
    LIERNE_PUBLIC_CALL();
    return execute(plan, (call){.direction = LIERNE_DIRECTION_ADJOINT}, out, in, stream);
}

lierne_status lierne_plan_reduce(lierne_plan *plan, lierne_reduction reduction, void *out,
                                 const void *in, void *stream) {
    LIERNE_PUBLIC_CALL();
    const call c = {.direction = LIERNE_DIRECTION_ADJOINT, .reduction = reduction, .reduces = true};
    return execute(plan, c, out, in, stream);
}
