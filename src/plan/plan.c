/* Plans: making them together, executing them, asking about them.
 *
 * All that can fail on one rank alone (planning, memory) happens before the ranks agree, and
 * nothing that can fail happens after: so a plan exists on every rank or on none. Requests are made
 * with the plan; executing takes any free one. Messages carry the number of the call, which is the
 * same at both ends. */
#include "plan/object.h"

#include <limits.h>
#include <string.h>

static const char *const direction_names[2] = {"forward", "adjoint"};

void lierne_plan_parts_free(lierne_context *context, lierne_plan_parts *parts) {
    for (int d = 0; d < 2; d++) {
        lierne_route_free(parts->side[d].route);
        lierne_mem_free(parts->side[d].owned.at);
    }
    for (int g = 0; g < LIERNE_PLAN_GROUPS; g++) {
        lierne_group_release(context, parts->groups[g]);
    }
    if (parts->recipe) {
        parts->recipe->free(parts->recipe);
    }
}

static void drop(lierne_plan *plan) {
    for (int d = 0; d < 2; d++) {
        for (int i = 0; plan->requests[d] && i < plan->parts.max_inflight; i++) {
            lierne_job_free(plan->requests[d][i].job);
        }
        lierne_mem_free(plan->requests[d]);
    }
    lierne_plan_parts_free(plan->context, &plan->parts);
    lierne_mem_free(plan);
}

static lierne_status make_jobs(lierne_plan *plan, int d) {
    size_t n = (size_t)plan->parts.max_inflight;
    plan->view[d] = lierne_route_view(plan->parts.side[d].route);
    LIERNE_TRY(lierne_alloc(&plan->requests[d], n, sizeof *plan->requests[d]));
    for (size_t i = 0; i < n; i++) {
        lierne_request *r = &plan->requests[d][i];
        r->plan = plan;
        const lierne_cargo cargo = lierne_plan_cargo(plan, (lierne_direction)d);
        LIERNE_TRY(lierne_job_new(&r->job, plan->context, &cargo, 1, direction_names[d]));
    }
    return LIERNE_OK;
}

static lierne_status make(lierne_plan **out, lierne_context *context, lierne_plan_parts *parts) {
    lierne_plan *plan;
    LIERNE_TRY(lierne_alloc(&plan, 1, sizeof *plan));
    plan->context = context;
    plan->parts = *parts;
    *parts = (lierne_plan_parts){0};
    *out = plan;
    LIERNE_TRY(make_jobs(plan, LIERNE_FORWARD));
    return make_jobs(plan, LIERNE_ADJOINT);
}

int lierne_plan_tag(int decision, int direction, size_t call) {
    int64_t tag = ((int64_t)decision * 2 + direction) * LIERNE_MAX_INFLIGHT;
    return (int)((tag + (int64_t)(call % LIERNE_MAX_INFLIGHT)) & INT_MAX);
}

int lierne_plan_decision(const lierne_plan *plan) {
    return plan->decision;
}

lierne_cargo lierne_plan_cargo(const lierne_plan *plan, lierne_direction direction) {
    return (lierne_cargo){plan->parts.side[direction].route, plan->parts.dtype,
                          plan->parts.accumulate && direction == LIERNE_ADJOINT};
}

lierne_plan_side *lierne_plan_side_of(lierne_plan *plan, lierne_direction direction) {
    return &plan->parts.side[direction];
}

void lierne_plan_refresh(lierne_plan *plan) {
    for (int d = 0; d < 2; d++) {
        plan->view[d] = lierne_route_view(plan->parts.side[d].route);
        for (int i = 0; i < plan->parts.max_inflight; i++) {
            lierne_job_resize(plan->requests[d][i].job);
        }
    }
}

void lierne_plan_hold(lierne_plan *plan, int by) {
    plan->held += by;
}

/* Whether all ranks could plan. */
static lierne_status decide(lierne_context *context, bool waits, lierne_status status,
                            const lierne_field *fields, size_t nfields, int *decision) {
    const lierne_wire *wire = context->wire;
    status = wire->agree(context->self, status, fields, nfields, decision);
    return status == LIERNE_OK && waits && wire->settled ? wire->settled(context->self, *decision)
                                                         : status;
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
    int64_t call = lierne_context_call(context, "planning", -1);
    status = decide(context, waits, status, fields, nfields, &decision);
    lierne_context_ended(context, call, status);
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
        return LIERNE_FAIL(LIERNE_BUSY, "%d exchanges hold the plan", plan->held);
    }
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < plan->parts.max_inflight; i++) {
            if (lierne_job_running(plan->requests[d][i].job)) {
                return LIERNE_FAIL(LIERNE_BUSY, "%s request %d of the plan is in flight",
                                   direction_names[d], i);
            }
        }
    }
    return LIERNE_OK;
}

/* Exchanges what two plans are made of; requests keep pointing to the plan that they are in. */
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
    int64_t call = lierne_context_call(context, "planning again", plan->decision);
    status = decide(context, waits, status, fields, nfields, &decision);
    lierne_context_ended(context, call, status);
    if (status == LIERNE_OK) {
        swap_parts(plan, next);
        plan->decision = decision;
        if (!plan->parts.recipe) {
            plan->parts.recipe = next->parts.recipe;
            next->parts.recipe = NULL;
        }
    }
    lierne_plan_parts_free(context, parts);
    if (next) {
        drop(next);
    }
    return status;
}

lierne_recipe *lierne_plan_recipe(const lierne_plan *plan, void (*free)(lierne_recipe *)) {
    lierne_recipe *recipe = plan->parts.recipe;
    return recipe && recipe->free == free ? recipe : NULL;
}

lierne_context *lierne_plan_context(const lierne_plan *plan) {
    return plan->context;
}

lierne_status lierne_plan_free(lierne_plan *plan) {
    if (!plan) {
        return LIERNE_OK;
    }
    if (plan->context->dead == LIERNE_OK || plan->held > 0) {
        LIERNE_TRY(lierne_plan_check_idle(plan));
    }
    plan->context->nplans--;
    drop(plan);
    return LIERNE_OK;
}

lierne_status lierne_plan_check_direction(const lierne_plan *plan, lierne_direction direction) {
    if (!plan || (direction != LIERNE_FORWARD && direction != LIERNE_ADJOINT)) {
        return LIERNE_FAIL(LIERNE_INVALID, "plan is NULL or direction %d is neither forward nor "
                           "adjoint", (int)direction);
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
    if (stream) {
        return LIERNE_FAIL(LIERNE_INVALID, "stream is not NULL, but the context moves host memory");
    }
    if (!in && n_in > 0) {
        return LIERNE_FAIL(LIERNE_INVALID, "%s: in is NULL, must hold %zu bytes",
                           direction_names[d], n_in);
    }
    if (!out && n_out > 0 && plan->view[d] < 0) {
        return LIERNE_FAIL(LIERNE_INVALID, "%s: out is NULL, must hold %zu bytes (the result is no "
                           "view)", direction_names[d], n_out);
    }
    if (in && out && a < b + n_out && b < a + n_in && !(plan->parts.in_place && a == b)) {
        return LIERNE_FAIL(LIERNE_INVALID, "%s: in and out overlap", direction_names[d]);
    }
    return LIERNE_OK;
}

/* A request that is free, in *next. Tags number calls, not requests, and repeat after
 * LIERNE_MAX_INFLIGHT of them: a request still in flight from so long ago must end first. */
static lierne_status find_free(const lierne_plan *plan, int d, lierne_request **next) {
    *next = NULL;
    for (int i = 0; i < plan->parts.max_inflight; i++) {
        lierne_request *r = &plan->requests[d][i];
        if (!lierne_job_running(r->job)) {
            *next = *next ? *next : r;
        } else if (plan->started[d] - r->number >= LIERNE_MAX_INFLIGHT) {
            return LIERNE_FAIL(LIERNE_BUSY, "%s: the request begun %zu calls ago has not ended",
                               direction_names[d], plan->started[d] - r->number);
        }
    }
    if (!*next) {
        return LIERNE_FAIL(LIERNE_BUSY, "%s: all %d requests are in flight (max_inflight)",
                           direction_names[d], plan->parts.max_inflight);
    }
    return LIERNE_OK;
}

/* Whether this rank may start a request, and which. */
static lierne_status check_call(const lierne_plan *plan, int d, lierne_request **next,
                                const void *out, const void *in, const void *stream) {
    LIERNE_TRY(lierne_plan_check_buffers(plan, d, out, in, stream));
    return find_free(plan, d, next);
}

/* Where the context checks, whether all ranks may, and call the same. */
static lierne_status compare_call(const lierne_plan *plan, int call, lierne_status mine,
                                  int *decision) {
    const lierne_field fields[] = {{"call", call}, {"plan", plan->decision}};
    *decision = -1;
    if (!plan->context->check) {
        return mine;
    }
    return plan->context->wire->agree(plan->context->self, mine, fields, 2, decision);
}

static lierne_status begin(lierne_request **request, lierne_plan *plan, lierne_direction d,
                           lierne_reduction reduction, void *out, const void *in, void *stream) {
    int decision, call = reduction == LIERNE_SUM ? LIERNE_CALL_EXECUTE + (int)d
                                                : LIERNE_CALL_REDUCE + (int)reduction;
    if (!request) {
        return LIERNE_FAIL(LIERNE_INVALID, "request is NULL");
    }
    *request = NULL;
    LIERNE_TRY(lierne_plan_check_direction(plan, d));
    LIERNE_TRY(lierne_context_alive(plan->context));
    if (plan->context->wire->agreed) {
        LIERNE_TRY(plan->context->wire->agreed(plan->context->self, plan->decision));
    }
    lierne_request *next = NULL;
    lierne_status mine = check_call(plan, d, &next, out, in, stream);
    LIERNE_TRY(compare_call(plan, call, mine, &decision));
    next->decision = decision;
    next->number = plan->started[d]++;
    lierne_job_identify(next->job, plan->decision,
                        lierne_plan_tag(plan->decision, d, next->number));
    LIERNE_TRY(lierne_job_begin(next->job, reduction, &out, &in));
    *request = next;
    return LIERNE_OK;
}

lierne_status lierne_forward_begin(lierne_request **request, lierne_plan *plan, void *out,
                                   const void *in, void *stream) {
    return begin(request, plan, LIERNE_FORWARD, LIERNE_SUM, out, in, stream);
}

lierne_status lierne_adjoint_begin(lierne_request **request, lierne_plan *plan, void *out,
                                   const void *in, void *stream) {
    return begin(request, plan, LIERNE_ADJOINT, LIERNE_SUM, out, in, stream);
}

lierne_status lierne_end(lierne_request *request) {
    if (!request) {
        return LIERNE_OK;
    }
    if (!lierne_job_running(request->job)) {
        return LIERNE_FAIL(LIERNE_INVALID, "the request has ended already");
    }
    lierne_context *context = request->plan->context;
    if (request->decision >= 0 && context->wire->agreed) {
        /* Ranks that called later may have called something else: nothing will come. */
        lierne_status status = context->wire->agreed(context->self, request->decision);
        if (status != LIERNE_OK) {
            lierne_context_kill(context, status);
        }
    }
    return lierne_job_wait(request->job);
}

lierne_status lierne_forward(lierne_plan *plan, void *out, const void *in, void *stream) {
    lierne_request *request;
    LIERNE_TRY(lierne_forward_begin(&request, plan, out, in, stream));
    return lierne_end(request);
}

lierne_status lierne_adjoint(lierne_plan *plan, void *out, const void *in, void *stream) {
    lierne_request *request;
    LIERNE_TRY(lierne_adjoint_begin(&request, plan, out, in, stream));
    return lierne_end(request);
}

lierne_status lierne_reduce(lierne_plan *plan, lierne_reduction reduction, void *out,
                            const void *in, void *stream) {
    lierne_request *request;
    if (!plan || !plan->parts.rows || (reduction != LIERNE_MAX && reduction != LIERNE_MIN)) {
        return LIERNE_FAIL(LIERNE_INVALID, "the plan is NULL or not one of rows, or reduction %d is "
                           "neither max nor min", (int)reduction);
    }
    LIERNE_TRY(begin(&request, plan, LIERNE_ADJOINT, reduction, out, in, stream));
    return lierne_end(request);
}
