/* Coalesced plans: several plans in one execution per direction.
 *
 * They own two executions over the routes of their plans, and count as a holder of each plan, so
 * that no plan can be destroyed or updated meanwhile. Where segments change, plans may be updated
 * between calls: their stamps say that they were, and the next call changes the executions. */
#include "plan/plan.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

struct lierne_coalesced {
    lierne_dependent dependent; /* of the context; the first member */
    lierne_context *context;
    int n;
    int decision;
    int series; /* the first of match ids; -1: none yet */
    lierne_plan **plans;
    lierne_execution *executions[2];
    lierne_connection *connection; /* of the executions, or NULL */
    bool varies;
    int keeps;    /* by how much each plan is kept */
    int calls[2]; /* ids of the agreements on the calls in flight; -1: not compared */
    int64_t started[2];
    lierne_counters *counters;
    lierne_spare spare[2]; /* of the executions before the last update */
};

static void drop_executions(lierne_coalesced *x) {
    lierne_execution_destroy(x->executions[LIERNE_DIRECTION_FORWARD]);
    lierne_execution_destroy(x->executions[LIERNE_DIRECTION_ADJOINT]);
    lierne_connection_destroy(x->connection);
}

static void drop_coalesced(lierne_coalesced *x) {
    for (int i = 0; x->plans && i < x->n; i++) {
        lierne_plan_hold(x->plans[i], -1);
        lierne_plan_keep(x->plans[i], -x->keeps);
    }
    drop_executions(x);
    lierne_spare_free(x->context, &x->spare[LIERNE_DIRECTION_FORWARD]);
    lierne_spare_free(x->context, &x->spare[LIERNE_DIRECTION_ADJOINT]);
    lierne_mem_free(x->plans);
    lierne_counters_release(x->context, x->counters);
    lierne_plan_drop_series(x->context, x->series);
    lierne_mem_free(x);
}

static bool dependent_busy(const lierne_dependent *dependent) {
    const lierne_coalesced *x = (const lierne_coalesced *)dependent;
    return lierne_execution_running(x->executions[LIERNE_DIRECTION_FORWARD]) ||
           lierne_execution_running(x->executions[LIERNE_DIRECTION_ADJOINT]);
}

static lierne_status destroy_dependent(lierne_dependent *dependent) {
    lierne_coalesced *x = (lierne_coalesced *)dependent;
    x->context->nplans -= lierne_context_remove_dependent(x->context, dependent);
    drop_coalesced(x);
    return LIERNE_OK;
}

static lierne_status make_execution(lierne_coalesced *x, lierne_direction d, lierne_spare *spare) {
    const lierne_route *routes[LIERNE_MAX_COALESCED];
    const lierne_varying *varying[LIERNE_MAX_COALESCED];
    for (int i = 0; i < x->n; i++) {
        routes[i] = lierne_plan_route(x->plans[i], d);
        varying[i] = lierne_plan_side_of(x->plans[i], d)->varying;
    }
    const lierne_group *group = lierne_plan_group(x->plans[0]);
    return lierne_execution_create(&x->executions[d], x->context, group ? &group->domain : NULL,
                                   routes, (size_t)x->n, 1,
                                   d == LIERNE_DIRECTION_FORWARD ? "coalesced forward"
                                                                 : "coalesced adjoint",
                                   spare, x->varies ? varying : NULL);
}

/* spare: memory of other executions, two of it or NULL. */
static lierne_status make_executions(lierne_coalesced *x, lierne_spare *spare) {
    for (int d = 0; d < 2; d++) {
        LIERNE_TRY(make_execution(x, (lierne_direction)d, spare ? &spare[d] : NULL));
    }
    return lierne_connection_create(&x->connection, x->context, x->executions, 1);
}

static const lierne_varying *varying_of(lierne_plan *plan) {
    return lierne_plan_side_of(plan, LIERNE_DIRECTION_FORWARD)->varying;
}

/* Where segments change, one ring compares them, of the ranks of all plans. */
static lierne_status check_ranks(lierne_plan *plan, lierne_plan *first, int i, int rank) {
    const lierne_varying *a = varying_of(plan), *b = varying_of(first);
    if (!a != !b) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: the segments of plan %d may change (max_segments in its "
                           "spec), and those of plan %d may not: coalesce these apart",
                           rank, a ? i : 0, a ? 0 : i);
    }
    return !a || (a->predecessor == b->predecessor && a->successor == b->successor)
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INVALID,
                             "rank %d: plan %d is between other ranks than plan 0, and their "
                             "segments may change: coalesce these apart",
                             rank, i);
}

static lierne_status fill_coalesced(lierne_coalesced **out, lierne_context *context,
                                    lierne_plan *const *plans, int n) {
    lierne_coalesced *x;
    if (n < 1 || n > LIERNE_MAX_COALESCED) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: n is %d, must be in 1 to %d",
                           context->rank, n, LIERNE_MAX_COALESCED);
    }
    for (int i = 0; i < n; i++) {
        if (!plans[i]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: plan %d is NULL", context->rank, i);
        }
        if (lierne_plan_context(plans[i]) != context) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: plan %d is of another context",
                               context->rank, i);
        }
        if (lierne_plan_group(plans[i]) != lierne_plan_group(plans[0])) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "rank %d: plan %d is in another group than plan 0: plans of "
                               "different groups have no order",
                               context->rank, i);
        }
        char which[32];
        snprintf(which, sizeof which, "plan %d", i);
        LIERNE_TRY(lierne_plan_check_coalescible(plans[i], which));
        LIERNE_TRY(check_ranks(plans[i], plans[0], i, context->rank));
    }
    LIERNE_TRY(lierne_alloc(&x, 1, sizeof *x));
    *out = x;
    x->context = context;
    x->series = -1;
    x->varies = varying_of(plans[0]) != NULL;
    x->keeps = x->varies;
    LIERNE_TRY(lierne_counters_find(&x->counters, context, NULL, "coalesced"));
    LIERNE_TRY(lierne_plan_reserve_series(context));
    LIERNE_TRY(lierne_alloc(&x->plans, (size_t)n, sizeof(lierne_plan *)));
    for (; x->n < n; x->n++) {
        x->plans[x->n] = plans[x->n];
        lierne_plan_hold(x->plans[x->n], 1);
        lierne_plan_keep(x->plans[x->n], x->keeps);
    }
    return make_executions(x, NULL);
}

/* The context of the first plan that is not NULL, so that a rank with a NULL among its plans can
 * report the error to the others. */
static lierne_context *context_of(lierne_plan *const *plans, int n) {
    for (int i = 0; plans && i < LIERNE_MAX_COALESCED && (i < n || i == 0); i++) {
        if (plans[i]) {
            return lierne_plan_context(plans[i]);
        }
    }
    return NULL;
}

/* Whether all ranks could coalesce their plans; then connects their messages. */
static lierne_status agree_on_plans(lierne_context *context, lierne_status status,
                                    const lierne_field fields[2], lierne_coalesced *x,
                                    int *decision) {
    bool waits = lierne_context_connects(context);
    LIERNE_TRY(waits ? lierne_context_agree_all(context, status, fields, 2, decision)
                     : lierne_context_agree(context, status, fields, 2, decision));
    LIERNE_TRY(lierne_plan_take_series(&x->series, context, *decision, 1, waits));
    return lierne_connection_establish(x->connection);
}

lierne_status lierne_coalesced_create(lierne_coalesced **out, lierne_plan *const *plans, int n) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_coalesced *x = NULL;
    lierne_field fields[2] = {{.name = "lierne_coalesced_create"}};
    int64_t numbers[LIERNE_MAX_COALESCED];
    lierne_context *context = context_of(plans, n);
    int decision;
    LIERNE_TRY(lierne_check_set(plans, "plans"));
    if (!context) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "all %d plans are NULL, must be 1 to %d plans", n,
                           LIERNE_MAX_COALESCED);
    }
    LIERNE_TRY(lierne_context_alive(context));
    lierne_status status =
        out ? fill_coalesced(&x, context, plans, n)
            : LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: out is NULL", context->rank);
    if (status == LIERNE_OK) {
        for (int i = 0; i < n; i++) {
            numbers[i] = lierne_plan_get_number(plans[i]);
        }
        fields[1] = lierne_field_list("plans", LIERNE_ITEM_I64, numbers, (size_t)n);
    }
    int64_t call = lierne_context_begin_call(context, "coalescing plans", -1, -1);
    status = agree_on_plans(context, status, fields, x, &decision);
    lierne_context_end_call(context, call, status);
    if (status != LIERNE_OK) {
        if (x) {
            drop_coalesced(x);
        }
        return status;
    }
    x->decision = decision;
    x->counters->plans++;
    x->dependent = (lierne_dependent){.busy = dependent_busy, .destroy = destroy_dependent};
    lierne_context_add_dependent(context, &x->dependent);
    context->nplans++;
    *out = x;
    return LIERNE_OK;
}

lierne_plan *lierne_coalesced_plan(const lierne_coalesced *x, int i) {
    return i < x->n ? x->plans[i] : NULL;
}

lierne_context *lierne_coalesced_context(const lierne_coalesced *x) {
    return x->context;
}

lierne_status lierne_coalesced_check_changeable(const lierne_coalesced *x,
                                                const lierne_plan *plan) {
    for (int i = 0; i < x->n; i++) {
        char which[32];
        snprintf(which, sizeof which, "plan %d", i);
        LIERNE_TRY(x->plans[i] == plan ? LIERNE_OK : lierne_plan_check_retyped(x->plans[i], which));
    }
    for (int i = 0; i < x->n; i++) {
        LIERNE_TRY(lierne_plan_check_changeable_held(x->plans[i]));
    }
    for (int d = 0; d < 2; d++) {
        if (lierne_execution_running(x->executions[d]) ||
            lierne_execution_was_captured(x->executions[d])) {
            return LIERNE_FAIL(LIERNE_ERR_BUSY,
                               "rank %d: a call of the coalesced plans is in flight, or was "
                               "captured into a graph, whose replays keep its sizes",
                               x->context->rank);
        }
    }
    return LIERNE_OK;
}

/* Makes the plan i of next, which follows a plan of these parts. */
static lierne_status follow(lierne_coalesced *next, lierne_plan *plan, int i,
                            const lierne_plan_parts *like) {
    lierne_plan_parts parts = {0};
    lierne_status status = lierne_plan_retype_parts(&parts, plan, like);
    status = status == LIERNE_OK ? lierne_plan_make_next(&next->plans[i], plan, &parts) : status;
    lierne_plan_parts_free(next->context, &parts);
    return status;
}

/* What comes next of the plans and executions of x; the retyped ones first, because a plan takes
 * the parts that it is made of. */
static lierne_status make_next(lierne_coalesced *next, lierne_coalesced *x, const lierne_plan *plan,
                               lierne_plan_parts *parts) {
    LIERNE_TRY(lierne_alloc(&next->plans, (size_t)x->n, sizeof(lierne_plan *)));
    next->n = x->n;
    for (int i = 0; i < x->n; i++) {
        LIERNE_TRY(x->plans[i] == plan ? LIERNE_OK : follow(next, x->plans[i], i, parts));
    }
    for (int i = 0; i < x->n; i++) {
        LIERNE_TRY(x->plans[i] == plan ? lierne_plan_make_next(&next->plans[i], x->plans[i], parts)
                                       : LIERNE_OK);
    }
    return make_executions(next, x->spare);
}

static void take_next(lierne_coalesced *x, lierne_coalesced *next) {
    lierne_coalesced was = *x;
    for (int i = 0; i < x->n; i++) {
        lierne_plan_take_next(x->plans[i], next->plans[i], lierne_plan_get_number(x->plans[i]));
    }
    x->connection = next->connection;
    next->connection = was.connection;
    for (int d = 0; d < 2; d++) {
        lierne_spare_free(x->context, &x->spare[d]);
        x->spare[d] = lierne_execution_take_spare(was.executions[d]);
        x->executions[d] = next->executions[d];
        next->executions[d] = was.executions[d];
    }
}

static lierne_status agree_on_next(lierne_coalesced *x, const lierne_coalesced *next,
                                   lierne_status status, const lierne_field *fields,
                                   size_t nfields) {
    int decision;
    LIERNE_TRY(lierne_context_agree_all(x->context, status, fields, nfields, &decision));
    for (int i = 0; i < next->n; i++) {
        LIERNE_TRY(lierne_plan_connect(next->plans[i], true));
    }
    return lierne_connection_establish(next->connection);
}

lierne_status lierne_coalesced_replace(lierne_coalesced *x, const lierne_plan *plan,
                                       lierne_status status, lierne_plan_parts *parts,
                                       const lierne_field *fields, size_t nfields) {
    lierne_coalesced next = {.context = x->context};
    status = status == LIERNE_OK ? make_next(&next, x, plan, parts) : status;
    int64_t call = lierne_context_begin_call(x->context, "planning again", -1, x->decision);
    status = agree_on_next(x, &next, status, fields, nfields);
    lierne_context_end_call(x->context, call, status);
    if (status == LIERNE_OK) {
        take_next(x, &next);
    }
    drop_executions(&next); /* they read the routes of the plans */
    for (int i = 0; i < next.n; i++) {
        lierne_plan_drop_next(next.plans[i]);
    }
    lierne_mem_free(next.plans);
    lierne_plan_parts_free(x->context, parts);
    return status;
}

lierne_status lierne_coalesced_destroy(lierne_coalesced *x) {
    LIERNE_PUBLIC_CALL();
    if (!x) {
        return LIERNE_OK;
    }
    if (x->context->dead == LIERNE_OK && dependent_busy(&x->dependent)) {
        return LIERNE_FAIL(LIERNE_ERR_BUSY, "an execution of the coalesced plans is in flight");
    }
    return destroy_dependent(&x->dependent);
}

static lierne_status check_direction(const lierne_coalesced *x, lierne_direction d) {
    if (d != LIERNE_DIRECTION_FORWARD && d != LIERNE_DIRECTION_ADJOINT) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: direction is %d, must be %d (forward) or %d "
                           "(adjoint)",
                           x->context->rank, (int)d, LIERNE_DIRECTION_FORWARD,
                           LIERNE_DIRECTION_ADJOINT);
    }
    return LIERNE_OK;
}

static lierne_status check_coalesced(const lierne_coalesced *x) {
    return x ? LIERNE_OK : LIERNE_FAIL(LIERNE_ERR_INVALID, "coalesced is NULL");
}

static lierne_status check_call(const lierne_coalesced *x, lierne_direction d, void *const *out,
                                const void *const *in, const void *stream) {
    LIERNE_TRY(check_direction(x, d));
    if (!out || !in) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: %s is NULL", x->context->rank,
                           out ? "in" : "out");
    }
    for (int i = 0; i < x->n; i++) {
        LIERNE_TRY(lierne_plan_check_buffers(x->plans[i], (int)d, out[i], in[i], stream));
    }
    LIERNE_TRY(lierne_execution_check_capture(x->executions[d], stream, 1));
    if (lierne_execution_running(x->executions[d])) {
        return LIERNE_FAIL(LIERNE_ERR_BUSY,
                           "rank %d: the coalesced plans are in flight in this direction",
                           x->context->rank);
    }
    return LIERNE_OK;
}

static void identify(lierne_coalesced *x, lierne_direction d) {
    lierne_execution_id id = {.plan = x->decision, .number = x->started[d]++};
    id.what = d == LIERNE_DIRECTION_FORWARD ? LIERNE_RECORD_COALESCED_FORWARD
                                            : LIERNE_RECORD_COALESCED_ADJOINT;
    id.match = lierne_plan_match_id(x->series, 1, (int)d, (size_t)id.number);
    id.counter = &x->counters->sides[d];
    lierne_execution_identify(x->executions[d], id);
}

/* After updates of the plans. */
static lierne_status refresh(lierne_coalesced *x) {
    for (int d = 0; x->varies && d < 2; d++) {
        lierne_status status = lierne_execution_outdated(x->executions[d])
                                   ? lierne_execution_vary(x->executions[d])
                                   : LIERNE_OK;
        if (status != LIERNE_OK) {
            return lierne_context_kill(x->context, status);
        }
    }
    return LIERNE_OK;
}

/* What the ranks compare before the call, where no message does. */
static const int64_t *stamp_to_compare(const lierne_coalesced *x, int d) {
    bool compares = false;
    for (int i = 0; i < x->n; i++) {
        compares |= lierne_plan_compares(x->plans[i]);
    }
    return compares ? lierne_execution_stamp(x->executions[d]) : NULL;
}

/* During a call no plan may change; nor after one that a graph repeats. */
static void keep_plans(lierne_coalesced *x, int by) {
    for (int i = 0; x->varies && i < x->n; i++) {
        lierne_plan_keep(x->plans[i], by);
    }
    x->keeps += x->varies ? by : 0;
}

static void count_call(lierne_coalesced *x, lierne_direction d) {
    for (int i = 0; i < x->n; i++) {
        lierne_plan_count_call(x->plans[i], d);
        lierne_plan_set_compared(x->plans[i]);
    }
}

lierne_status lierne_coalesced_begin(lierne_coalesced *x, lierne_direction d, void *const *out,
                                     const void *const *in, void *stream) {
    LIERNE_PUBLIC_CALL();
    static const char *const names[] = {"coalesced forward", "coalesced adjoint"};
    int decision;
    LIERNE_TRY(check_coalesced(x));
    LIERNE_TRY(lierne_context_alive(x->context));
    LIERNE_TRY(lierne_context_agreement_status(x->context, x->decision));
    LIERNE_TRY(refresh(x));
    lierne_status mine = check_call(x, d, out, in, stream);
    const lierne_compared_call call = {.name = names[d == LIERNE_DIRECTION_ADJOINT],
                                       .stamp = stamp_to_compare(x, d == LIERNE_DIRECTION_ADJOINT),
                                       .calls = x->started[d == LIERNE_DIRECTION_ADJOINT],
                                       .plan = x->decision,
                                       .captured = lierne_execution_captures(
                                           x->executions[d == LIERNE_DIRECTION_ADJOINT], stream)};
    LIERNE_TRY(lierne_plan_compare_call(x->context, mine, &call, &decision));
    x->calls[d] = decision;
    identify(x, d);
    count_call(x, d);
    keep_plans(x, -1);
    lierne_status status =
        lierne_execution_begin(x->executions[d], LIERNE_REDUCTION_SUM, out, in, stream);
    lierne_recorder_flush(&x->context->recorder);
    keep_plans(x, lierne_execution_running(x->executions[d]) ? 0 : 1);
    return status;
}

lierne_status lierne_coalesced_end(lierne_coalesced *x, lierne_direction d) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(check_coalesced(x));
    LIERNE_TRY(check_direction(x, d));
    if (!lierne_execution_running(x->executions[d])) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "nothing is in flight in this direction");
    }
    lierne_status status = lierne_plan_end_call(x->context, x->calls[d], x->executions[d]);
    if (!lierne_execution_was_captured(x->executions[d])) {
        keep_plans(x, 1);
    }
    return status;
}

lierne_status lierne_coalesced_get_messages(int64_t *sent, int64_t *received,
                                            const lierne_coalesced *x, lierne_direction d) {
    LIERNE_PUBLIC_CALL();
    int64_t s, r;
    LIERNE_TRY(check_coalesced(x));
    LIERNE_TRY(check_direction(x, d));
    lierne_execution_count_messages(x->executions[d], &s, &r);
    if (sent) {
        *sent = s;
    }
    if (received) {
        *received = r;
    }
    return LIERNE_OK;
}
