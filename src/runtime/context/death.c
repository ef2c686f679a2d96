/* How a context dies, and what it says of itself then.
 *
 * The first failure to communicate kills it: after a missed deadline no rank knows which messages
 * are still in flight, so another call could receive the data of the failed one. Every further call
 * that communicates returns the same error. */
#include "runtime/context/summary.h"
#include "runtime/context/watchdog.h"

#include <stdarg.h>
#include <stdio.h>

/* Appends to text of size bytes, `used` of them used; what does not fit is cut off. */
static size_t append_text(char *text, size_t size, size_t used, const char *format, ...) {
    va_list args;
    if (used + 1 >= size) {
        return used;
    }
    va_start(args, format);
    int n = vsnprintf(text + used, size - used, format, args);
    va_end(args);
    return n < 0 ? used : used + (size_t)n < size ? used + (size_t)n : size - 1;
}

static void write_dump(const lierne_context *context, char *text, size_t size) {
    char names[LIERNE_CALL_TEXT];
    lierne_context_list_transports(names, sizeof names, context);
    const lierne_members *members = &context->members;
    size_t used = append_text(text, size, 0, "rank %d of %d", context->rank, members->world);
    if (members->ranks) {
        used = append_text(text, size, used, ", one of %d members,", members->count);
    }
    used =
        append_text(text, size, used, " over %s: %lld calls\n", names, (long long)context->ncalls);
    used = context->name ? append_text(text, size, used, "context '%s'\n", context->name) : used;
    for (int i = 0; i < context->ncarriers; i++) {
        const lierne_carrier *c = &context->carriers[i];
        c->transport->print(c->self, names, sizeof names);
        if (names[0]) {
            used = append_text(text, size, used, "%s: %s\n", c->transport->name, names);
        }
    }
    for (int i = 0; i < LIERNE_MAX_TRANSPORTS; i++) {
        const lierne_unused *u = &context->unused[i];
        used = u->transport
                   ? append_text(text, size, used, "%s is not used: %s\n", u->transport, u->why)
                   : used;
    }
    lierne_context_enter(context);
    for (const lierne_activity *a = context->in_flight; a; a = a->next) {
        used = a->dump(a, text, size, used);
    }
    lierne_context_leave(context);
    const lierne_recorder *r = &context->recorder;
    int64_t now = lierne_recorder_now(r);
    for (int64_t i = context->ncalls - 1; i >= 0 && i + LIERNE_CALLS >= context->ncalls; i--) {
        const lierne_call *c = &context->calls[i % LIERNE_CALLS];
        lierne_context_print_call(names, context, c);
        used = append_text(text, size, used, "%s, ", names);
        double seconds = lierne_recorder_seconds(r, (c->end ? c->end : now) - c->start);
        used = c->end ? append_text(text, size, used, "%s after %.3f s\n",
                                    lierne_status_name(c->status), seconds)
                      : append_text(text, size, used, "begun %.3f s ago\n", seconds);
    }
}

/* A device tells which rank gave up, and not why; the rank itself may have told that meanwhile. */
static lierne_status find_cause(const lierne_context *context, lierne_status status) {
    for (int i = 0; i < context->ncarriers; i++) {
        const lierne_carrier *c = &context->carriers[i];
        int peer = c->transport->watched ? c->transport->watched->ended_by(c->self) : -1;
        if (peer >= 0 && context->control->failures) {
            lierne_status cause = context->control->failures->gave_up(context->control_self, peer);
            status = cause == LIERNE_OK ? status : cause;
        }
    }
    return status;
}

/* Before it is dead; what it dies of is kept. */
static void trace_calls(lierne_context *context) {
    char message[LIERNE_MESSAGE_SIZE];
    if (context->traces) {
        snprintf(message, sizeof message, "%s", lierne_error_text());
        lierne_context_trace_calls(context);
        lierne_set_error(message);
    }
}

lierne_status lierne_context_kill(lierne_context *context, lierne_status status) {
    if (context->dead == LIERNE_OK) {
        status = find_cause(context, status);
        trace_calls(context);
        context->dead = status;
        context->killer = lierne_call_name;
        snprintf(context->dead_message, sizeof context->dead_message, "%s", lierne_error_text());
        if (lierne_alloc(&context->dead_dump, LIERNE_CONTEXT_DUMP_SIZE, 1) == LIERNE_OK) {
            write_dump(context, context->dead_dump, LIERNE_CONTEXT_DUMP_SIZE);
        }
        lierne_recorder_die(&context->recorder, status, context->dead_message);
        lierne_set_error(context->dead_message);
        LIERNE_LOG(context, LIERNE_LOG_LEVEL_ERROR, "%s: %s%s%s", lierne_status_name(status),
                   context->killer ? context->killer : "", context->killer ? ": " : "",
                   context->dead_message);
        if (context->control->failures) {
            context->control->failures->give_up(context->control_self, status);
        }
        lierne_summary_end_own(context);
        lierne_metrics_write(context);
    }
    return status;
}

lierne_status lierne_context_abort(lierne_context *context, lierne_status status,
                                   const char *reason) {
    LIERNE_PUBLIC_CALL();
    if (!context || !reason) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL", context ? "reason" : "context");
    }
    if (status >= LIERNE_OK) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "status is %d, must be an error: one of LIERNE_ERR_INVALID "
                           "(%d) and below",
                           (int)status, LIERNE_ERR_INVALID);
    }
    lierne_guard *guard = context->guard;
    lierne_guard_enter(guard);
    lierne_set_error(reason);
    lierne_context_kill(context, status);
    lierne_guard_leave(guard);
    return LIERNE_OK;
}

lierne_status lierne_context_dump(char *text, size_t size, const lierne_context *context) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(lierne_check_set(context, "context"));
    LIERNE_TRY(lierne_check_set(text, "text"));
    if (size == 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "size is 0, must be at least 1");
    }
    lierne_guard *guard = context->guard;
    lierne_guard_enter(guard);
    if (context->dead != LIERNE_OK) {
        snprintf(text, size, "%s", context->dead_dump ? context->dead_dump : "");
    } else {
        write_dump(context, text, size);
    }
    lierne_guard_leave(guard);
    return LIERNE_OK;
}

/* Kills the context with what the watchdog found, as an error of the call that began it. */
static void die_of_watchdog(lierne_context *context) {
    const char *call = NULL;
    lierne_status failed = lierne_watchdog_failure(context->watchdog, &call);
    if (failed != LIERNE_OK) {
        lierne_context_kill(context, failed);
        context->killer = call;
    }
}

lierne_status lierne_context_alive(lierne_context *context) {
    LIERNE_TRY(lierne_context_check_guard(context));
    if (context->watchdog && context->dead == LIERNE_OK) {
        die_of_watchdog(context);
    }
    if (context->dead != LIERNE_OK && context->killer == lierne_call_name) {
        lierne_set_error(context->dead_message);
    } else if (context->dead != LIERNE_OK) {
        return LIERNE_FAIL(context->dead, "the context is dead, destroy it; %s failed: %s",
                           context->killer ? context->killer : "a call", context->dead_message);
    }
    return context->dead;
}

lierne_status lierne_context_look(lierne_context *context) {
    if (context->watchdog && context->dead == LIERNE_OK) {
        lierne_watchdog_look(context->watchdog);
    }
    return lierne_context_alive(context);
}

lierne_status lierne_context_get_status(lierne_context *context) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(lierne_check_set(context, "context"));
    lierne_guard *guard = context->guard;
    lierne_guard_enter(guard);
    lierne_status status = lierne_context_look(context);
    lierne_guard_leave(guard);
    return status;
}
