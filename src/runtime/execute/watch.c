/* Calls that go on after their end, where calls are detached from the caller: what the watchdog
 * looks at, and how the execution waits for the stream before its memory is used otherwise.
 *
 * A call lies between two events on its stream, and the deadline counts from the first one: work
 * that the caller enqueued before may take as long as it likes. A caller who runs ahead of the
 * device has more calls under way than there are places. The stream counts those, at both ends: two
 * events around several calls could not tell one that hangs from many that pass.
 *
 * A call that is captured does not run, and its replays do not pass here. The stream counts them,
 * too, and they stay watched as long as the execution lives. */
#include "runtime/execute/execution.h"

#include <time.h>

#define MOMENT 1.0 /* seconds that a stream is waited for when the context is dead */

static const lierne_stream_driver *driver_of(const lierne_execution *e) {
    return e->context->stream_driver;
}

static lierne_status has_passed(const lierne_execution *e, void *event, bool *passed) {
    return driver_of(e)->event_query(event, passed);
}

static lierne_status time_out(const lierne_execution *e, const lierne_watched_call *c) {
    char call[LIERNE_CALL_TEXT];
    lierne_execution_print_call(call, e, c->number);
    return LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                       "rank %d: %s: the stream reached it and has not passed it after %g s: a "
                       "rank that it exchanges messages with is missing or late",
                       e->context->rank, call, e->context->timeout);
}

static uint64_t read_epoch(const uint64_t *epoch) {
    return __atomic_load_n(epoch, __ATOMIC_ACQUIRE);
}

/* Whether a call is under way that the host has enqueued whole. The passed ones are read first: no
 * look sees more of them than of those that were reached. */
static bool is_under_way(const lierne_counted_calls *c, uint64_t *passed) {
    *passed = c->epochs ? read_epoch(&c->epochs->ended) : 0;
    return c->epochs && read_epoch(&c->epochs->begun) != *passed && *passed < c->enqueued;
}

/* Whether no call is enqueued that the stream has not passed. */
static bool have_passed(const lierne_counted_calls *c) {
    uint64_t passed;
    return !is_under_way(c, &passed) && (c->enqueued == LIERNE_REPLAYS || passed >= c->enqueued);
}

/* The deadline of a call counts from the look that saw it begun; each has its own. */
static lierne_status check_counted(const lierne_execution *e, lierne_counted_calls *c, double now) {
    uint64_t passed;
    bool running = is_under_way(c, &passed);
    if (!running || passed != c->passed || c->since == 0) {
        c->since = running ? now : 0;
    }
    c->passed = passed;
    return !running || now - c->since <= e->context->timeout
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                             "rank %d: %s of plan %d: the stream reached %s and has not passed it "
                             "after %g s: a rank that it exchanges messages with is missing or "
                             "late",
                             e->context->rank, e->name, e->record.plan,
                             c->enqueued == LIERNE_REPLAYS
                                 ? "a replay of a captured call"
                                 : "a call that the host was far ahead of",
                             e->context->timeout);
}

static lierne_status of_device(const lierne_execution *e, const lierne_watched_call *c,
                               lierne_status failed) {
    char call[LIERNE_CALL_TEXT];
    lierne_execution_print_call(call, e, c->number);
    return LIERNE_FAIL(failed, "rank %d: %s, after it was begun: %s", e->context->rank, call,
                       lierne_error_text());
}

static lierne_status check_call(lierne_execution *e, lierne_watched_call *c, double now) {
    bool passed = false;
    lierne_status status = has_passed(e, c->ended, &passed);
    if (status == LIERNE_OK && !passed && c->since == 0) {
        bool begun = false;
        status = has_passed(e, c->begun, &begun);
        c->since = begun ? now : 0;
    }
    if (status != LIERNE_OK) {
        return of_device(e, c, status);
    }
    c->used = !passed;
    return c->used && c->since > 0 && now - c->since > e->context->timeout ? time_out(e, c)
                                                                           : LIERNE_OK;
}

static lierne_status check_calls(lierne_watched *watched, double now, bool *passed) {
    lierne_watch *w = (lierne_watch *)watched;
    LIERNE_TRY(check_counted(w->execution, &w->replays, now));
    LIERNE_TRY(check_counted(w->execution, &w->more, now));
    *passed = !w->captured && have_passed(&w->more);
    for (size_t i = 0; i < LIERNE_WATCHED_CALLS; i++) {
        lierne_watched_call *c = &w->calls[i];
        if (c->used && c->closed) {
            LIERNE_TRY(check_call(w->execution, c, now));
        }
        *passed &= !c->used;
    }
    return LIERNE_OK;
}

static lierne_status create_epochs(lierne_watch *w, const lierne_stream_driver *driver) {
    LIERNE_TRY(driver->epochs_create(&w->epochs, w->execution->context, 2));
    w->replays = (lierne_counted_calls){.epochs = &w->epochs[0], .enqueued = LIERNE_REPLAYS};
    w->more.epochs = &w->epochs[1];
    return LIERNE_OK;
}

lierne_status lierne_execution_create_watch(lierne_execution *e) {
    const lierne_stream_driver *driver = driver_of(e);
    if (!driver->detached) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc(&e->stream.watch, 1, sizeof *e->stream.watch));
    e->stream.watch->watched.check = check_calls;
    e->stream.watch->execution = e;
    for (size_t i = 0; i < LIERNE_WATCHED_CALLS; i++) {
        LIERNE_TRY(driver->event_create(&e->stream.watch->calls[i].begun));
        LIERNE_TRY(driver->event_create(&e->stream.watch->calls[i].ended));
    }
    LIERNE_TRY(create_epochs(e->stream.watch, driver));
    return lierne_watchdog_create(e->context, driver->enter_thread);
}

static void destroy_event(const lierne_execution *e, void *event) {
    if (event) {
        driver_of(e)->event_destroy(event);
    }
}

void lierne_execution_destroy_watch(lierne_execution *e) {
    if (!e->stream.watch) {
        return;
    }
    if (e->context->watchdog) {
        lierne_watchdog_enter(e->context->watchdog);
        lierne_watchdog_remove(e->context->watchdog, &e->stream.watch->watched);
        lierne_watchdog_leave(e->context->watchdog);
    }
    for (size_t i = 0; i < LIERNE_WATCHED_CALLS; i++) {
        destroy_event(e, e->stream.watch->calls[i].begun);
        destroy_event(e, e->stream.watch->calls[i].ended);
    }
    if (e->stream.watch->epochs) {
        driver_of(e)->epochs_destroy(e->stream.watch->epochs, e->context);
    }
    lierne_mem_free(e->stream.watch);
}

static lierne_status record(const lierne_execution *e, void *stream, void *event) {
    return driver_of(e)->event_record(stream, event);
}

/* A place for a call, or NULL. The one that was taken first is free first. */
static lierne_watched_call *find_place(lierne_execution *e) {
    lierne_watch *w = e->stream.watch;
    lierne_watched_call *c = &w->calls[w->next];
    bool passed = !c->used;
    if (!passed && (has_passed(e, c->ended, &passed) != LIERNE_OK || !passed)) {
        return NULL;
    }
    w->next = (w->next + 1) % LIERNE_WATCHED_CALLS;
    *c = (lierne_watched_call){.begun = c->begun,
                               .ended = c->ended,
                               .used = true,
                               .number = e->record.number};
    return c;
}

static lierne_status advance(const lierne_execution *e, void *stream, uint64_t *epoch) {
    return driver_of(e)->advance(stream, epoch);
}

static lierne_status count_begin(const lierne_execution *e, void *stream, uint64_t *epoch) {
    lierne_status status = advance(e, stream, epoch);
    e->stream.watch->counts = status == LIERNE_OK;
    return status;
}

/* What is enqueued may wait for a device whose queue is full: without the watchdog's lock, because
 * it must find out why the device stands still. */
lierne_status lierne_execution_open_watched(lierne_execution *e, void *stream) {
    lierne_watch *w = e->stream.watch;
    if (!w) {
        return LIERNE_OK;
    }
    if (e->stream.captures) {
        return count_begin(e, stream, &w->epochs[0].begun);
    }
    lierne_watchdog_enter(e->context->watchdog);
    w->open = find_place(e);
    lierne_watchdog_leave(e->context->watchdog);
    return w->open ? record(e, stream, w->open->begun)
                   : count_begin(e, stream, &w->epochs[1].begun);
}

static lierne_status enqueue_end(const lierne_execution *e, void *stream) {
    lierne_watch *w = e->stream.watch;
    if (!e->stream.captures && w->open) {
        return record(e, stream, w->open->ended);
    }
    return w->counts ? advance(e, stream, &w->epochs[e->stream.captures ? 0 : 1].ended) : LIERNE_OK;
}

lierne_status lierne_execution_close_watched(lierne_execution *e, void *stream) {
    lierne_watch *w = e->stream.watch;
    if (!w) {
        return LIERNE_OK;
    }
    lierne_status status = enqueue_end(e, stream);
    lierne_watchdog_enter(e->context->watchdog);
    if (e->stream.captures) {
        w->captured = true;
    } else if (w->open) {
        w->open->closed = true;
    } else {
        w->more.enqueued += w->counts;
    }
    w->watched.call = lierne_call_name;
    lierne_watchdog_add(e->context->watchdog, &w->watched);
    lierne_watchdog_leave(e->context->watchdog);
    return status;
}

/* Whether no stream has work of the execution left. A watchdog that failed looks no more. */
static bool is_drained(lierne_execution *e) {
    lierne_watchdog_enter(e->context->watchdog);
    bool counted = have_passed(&e->stream.watch->replays) && have_passed(&e->stream.watch->more);
    bool drained = counted;
    for (size_t i = 0; i < LIERNE_WATCHED_CALLS; i++) {
        drained &= !e->stream.watch->calls[i].used;
    }
    if (!drained && lierne_watchdog_hurry(e->context->watchdog)) {
        drained = counted;
        for (size_t i = 0; i < LIERNE_WATCHED_CALLS; i++) {
            bool passed = false;
            lierne_watched_call *c = &e->stream.watch->calls[i];
            drained &= !c->used || (has_passed(e, c->ended, &passed) == LIERNE_OK && passed);
        }
    }
    lierne_watchdog_leave(e->context->watchdog);
    return drained;
}

lierne_status lierne_execution_drain(lierne_execution *e) {
    const struct timespec nap = {.tv_nsec = 100000};
    if (!e->stream.watch || !e->context->watchdog) {
        return LIERNE_OK;
    }
    double start = lierne_now();
    bool drained = is_drained(e);
    while (!drained &&
           lierne_now() - start < (e->context->dead == LIERNE_OK ? e->context->timeout : MOMENT)) {
        nanosleep(&nap, NULL);
        drained = is_drained(e);
    }
    e->abandoned |= !drained || e->cursor.status != LIERNE_OK;
    lierne_context_enter(e->context);
    lierne_context_remove_activity(e->context, &e->activity);
    lierne_context_leave(e->context);
    return drained ? LIERNE_OK
                   : LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                                 "rank %d: %s: a stream has not passed the calls that were ended "
                                 "within %g s",
                                 e->context->rank, e->name, lierne_now() - start);
}
