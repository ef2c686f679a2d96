/* Calls that go on after their end, where calls are detached from the caller: what the watchdog
 * looks at, and how the execution waits for the stream before its memory is used otherwise.
 *
 * A call lies between two events on its stream, and the deadline counts from the first one: work
 * that the caller enqueued before may take as long as it likes. A caller who runs ahead of the
 * device has more calls under way than there are places. Then the last place grows: its second
 * event moves on, so that a call that hangs is still between two of them.
 *
 * A call that is captured does not run, and its replays do not pass here. It lies between two steps
 * that advance epochs, which stay watched as long as the execution lives. */
#include "execute/execution.h"

#include <time.h>

#define MOMENT 1.0 /* seconds that a stream is waited for when the context is dead */

static const lierne_stream_driver *driver_of(const lierne_execution *e) {
    return e->context->stream_driver;
}

/* Whether the stream has passed an event; or, where work is enqueued, the first or the last step.
 */
static lierne_status has_passed(lierne_execution *e, void *event, bool first, bool *passed) {
    if (driver_of(e)->event_query) {
        return driver_of(e)->event_query(event, passed);
    }
    pthread_mutex_lock(&e->event.lock);
    *passed = first ? e->event.begun : e->event.done;
    pthread_mutex_unlock(&e->event.lock);
    return LIERNE_OK;
}

static double limit_of(const lierne_execution *e) {
    double timeout = e->context->timeout; /* the steps of a stream that enqueues have it, too */
    return driver_of(e)->enqueue ? 2 * timeout + 1 : timeout;
}

static lierne_status time_out(const lierne_execution *e, const lierne_watched_call *c) {
    return LIERNE_FAIL(LIERNE_TIMEOUT,
                       "rank %d: %s, call %lld: the stream reached it and has not passed it after "
                       "%g s: a rank that it exchanges messages with is missing or late",
                       e->context->rank, e->name, (long long)c->number, limit_of(e));
}

static uint64_t read_epoch(const uint64_t *epoch) {
    return __atomic_load_n(epoch, __ATOMIC_ACQUIRE);
}

/* Whether a replay is under way. The passed ones are read first: no look sees more of them than of
 * those that were reached. */
static bool replays(const lierne_watch *w, uint64_t *passed) {
    *passed = w->epochs ? read_epoch(&w->epochs->ended) : 0;
    return w->epochs && read_epoch(&w->epochs->begun) != *passed;
}

/* The deadline of a replay counts from the look that saw it begun. */
static lierne_status check_replays(lierne_watch *w, double now) {
    uint64_t passed;
    bool running = replays(w, &passed);
    const lierne_execution *e = w->execution;
    if (!running || passed != w->passed || w->since == 0) {
        w->since = running ? now : 0;
    }
    w->passed = passed;
    return !running || now - w->since <= limit_of(e)
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_TIMEOUT,
                             "rank %d: %s: the stream reached a replay of a captured call and has "
                             "not passed it after %g s: a rank that it exchanges messages with is "
                             "missing or late",
                             e->context->rank, e->name, limit_of(e));
}

static lierne_status of_device(const lierne_execution *e, const lierne_watched_call *c,
                               lierne_status failed) {
    return LIERNE_FAIL(failed, "rank %d: %s, call %lld, after it was begun: %s", e->context->rank,
                       e->name, (long long)c->number, lierne_error_text());
}

static lierne_status check_call(lierne_execution *e, lierne_watched_call *c, double now) {
    bool passed = false;
    lierne_status status = has_passed(e, c->ended, false, &passed);
    if (status == LIERNE_OK && !passed && c->since == 0) {
        bool begun = false;
        status = has_passed(e, c->begun, true, &begun);
        c->since = begun ? now : 0;
    }
    if (status != LIERNE_OK) {
        return of_device(e, c, status);
    }
    c->used = !passed;
    if (passed && driver_of(e)->enqueue && e->status != LIERNE_OK) {
        lierne_set_error(e->message);
        return e->status;
    }
    return c->used && c->since > 0 && now - c->since > limit_of(e) ? time_out(e, c) : LIERNE_OK;
}

static lierne_status check(lierne_watched *watched, double now, bool *passed) {
    lierne_watch *w = (lierne_watch *)watched;
    LIERNE_TRY(check_replays(w, now));
    *passed = !w->captured;
    for (size_t i = 0; i < LIERNE_WATCHED_CALLS; i++) {
        lierne_watched_call *c = &w->calls[i];
        if (c->used && c->closed) {
            LIERNE_TRY(check_call(w->execution, c, now));
        }
        *passed &= !c->used;
    }
    return LIERNE_OK;
}

lierne_status lierne_execution_create_watch(lierne_execution *e) {
    const lierne_stream_driver *driver = driver_of(e);
    if (!driver->detached) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc(&e->watch, 1, sizeof *e->watch));
    e->watch->watched.check = check;
    e->watch->execution = e;
    for (size_t i = 0; driver->event_create && i < LIERNE_WATCHED_CALLS; i++) {
        LIERNE_TRY(driver->event_create(&e->watch->calls[i].begun));
        LIERNE_TRY(driver->event_create(&e->watch->calls[i].ended));
    }
    LIERNE_TRY(driver->epochs_create ? driver->epochs_create(&e->watch->epochs) : LIERNE_OK);
    return lierne_watchdog_create(e->context, driver->enter_thread);
}

static void destroy_event(const lierne_execution *e, void *event) {
    if (event) {
        driver_of(e)->event_destroy(event);
    }
}

void lierne_execution_destroy_watch(lierne_execution *e) {
    if (!e->watch) {
        return;
    }
    if (e->context->watchdog) {
        lierne_watchdog_enter(e->context->watchdog);
        lierne_watchdog_remove(e->context->watchdog, &e->watch->watched);
        lierne_watchdog_leave(e->context->watchdog);
    }
    for (size_t i = 0; i < LIERNE_WATCHED_CALLS; i++) {
        destroy_event(e, e->watch->calls[i].begun);
        destroy_event(e, e->watch->calls[i].ended);
    }
    if (e->watch->epochs) {
        driver_of(e)->epochs_destroy(e->watch->epochs);
    }
    lierne_mem_free(e->watch);
}

static lierne_status record(const lierne_execution *e, void *stream, void *event) {
    return event ? driver_of(e)->event_record(stream, event) : LIERNE_OK;
}

/* A place for a call: a free one, or the one that was used last. */
static lierne_watched_call *find_place(lierne_watch *w) {
    for (size_t i = 0; i < LIERNE_WATCHED_CALLS; i++) {
        if (!w->calls[i].used) {
            w->last = i;
            break;
        }
    }
    return &w->calls[w->last];
}

static lierne_status advance(const lierne_execution *e, void *stream, uint64_t *epoch) {
    return driver_of(e)->advance(stream, epoch);
}

lierne_status lierne_execution_open_watched(lierne_execution *e, void *stream) {
    lierne_status status = LIERNE_OK;
    if (!e->watch) {
        return LIERNE_OK;
    }
    if (e->captures) {
        return advance(e, stream, &e->watch->epochs->begun);
    }
    lierne_watchdog_enter(e->context->watchdog);
    lierne_watched_call *c = find_place(e->watch);
    if (!c->used) {
        status = record(e, stream, c->begun);
        c->since = 0;
        c->number = e->call;
    }
    c->used = true;
    c->closed = false;
    lierne_watchdog_leave(e->context->watchdog);
    return status;
}

lierne_status lierne_execution_close_watched(lierne_execution *e, void *stream) {
    if (!e->watch) {
        return LIERNE_OK;
    }
    lierne_watchdog_enter(e->context->watchdog);
    lierne_watched_call *c = &e->watch->calls[e->watch->last];
    lierne_status status =
        e->captures ? advance(e, stream, &e->watch->epochs->ended) : record(e, stream, c->ended);
    c->closed |= !e->captures;
    e->watch->captured |= e->captures;
    e->watch->watched.call = lierne_call_name;
    lierne_watchdog_add(e->context->watchdog, &e->watch->watched);
    lierne_watchdog_leave(e->context->watchdog);
    return status;
}

/* Whether no stream has work of the execution left. A watchdog that failed looks no more. */
static bool is_settled(lierne_execution *e) {
    uint64_t ended;
    lierne_watchdog_enter(e->context->watchdog);
    bool idle = !replays(e->watch, &ended), settled = idle;
    for (size_t i = 0; i < LIERNE_WATCHED_CALLS; i++) {
        settled &= !e->watch->calls[i].used;
    }
    if (!settled && lierne_watchdog_hurry(e->context->watchdog)) {
        settled = idle;
        for (size_t i = 0; i < LIERNE_WATCHED_CALLS; i++) {
            bool passed = false;
            lierne_watched_call *c = &e->watch->calls[i];
            settled &= !c->used || (has_passed(e, c->ended, false, &passed) == LIERNE_OK && passed);
        }
    }
    lierne_watchdog_leave(e->context->watchdog);
    return settled;
}

lierne_status lierne_execution_settle(lierne_execution *e) {
    const struct timespec nap = {.tv_nsec = 100000};
    if (!e->watch || !e->context->watchdog) {
        return LIERNE_OK;
    }
    double start = lierne_now();
    bool settled = is_settled(e);
    while (!settled &&
           lierne_now() - start < (e->context->dead == LIERNE_OK ? limit_of(e) : MOMENT)) {
        nanosleep(&nap, NULL);
        settled = is_settled(e);
    }
    e->abandoned |= !settled || e->status != LIERNE_OK;
    lierne_context_enter(e->context);
    lierne_context_remove_activity(e->context, &e->activity);
    lierne_context_leave(e->context);
    return settled ? LIERNE_OK
                   : LIERNE_FAIL(LIERNE_TIMEOUT,
                                 "rank %d: %s: a stream has not passed the calls that were ended "
                                 "within %g s",
                                 e->context->rank, e->name, lierne_now() - start);
}
