/* The stream executor: an execution as work for a stream. Begin enqueues all of it and returns; no
 * thread of the caller's polls.
 *
 * Each phase is five steps: post messages and copy; await what arrives; deliver it; await the sends
 * that hold the phase up; sum. Deliveries come before sends are awaited, because a send that is
 * exposed is complete only when the peer has copied it, which the peer does in its own deliveries:
 * two ranks that awaited their sends first would wait for each other. The steps decide nothing that
 * depends on data, so a device can run them as they are; here transports that must be polled are
 * polled by the stream. */
#include "runtime/execute/execution.h"

#include <stdio.h>
#include <time.h>

enum { POST, RECEIVE, DELIVER, SEND, SUM, STEPS };

/* Takes what completed off the counts; messages are delivered by a step of their own. */
static lierne_status poll_batches(lierne_execution *e, bool *moved) {
    for (int b = 0; b < e->context->ncarriers; b++) {
        lierne_execution_batch *batch = &e->batches[b];
        size_t n = 0;
        if (batch->batch) {
            LIERNE_TRY(batch->transport->poll(batch->batch, batch->done, &n));
        }
        for (size_t i = 0; i < n; i++) {
            uint8_t *waiting = &e->waiting[batch->messages.at[batch->done[i]]];
            e->pending -= *waiting == LIERNE_WAIT_PHASE;
            e->lingering -= *waiting == LIERNE_WAIT_END;
            *waiting = LIERNE_WAIT_NONE;
        }
        *moved |= n > 0;
    }
    return LIERNE_OK;
}

static size_t receives_pending(const lierne_execution *e) {
    const lierne_phase *phase = &e->phases.at[e->phase];
    size_t n = 0;
    for (size_t i = phase->first; i < phase->first + phase->nrecvs; i++) {
        n += e->waiting[i] != LIERNE_WAIT_NONE;
    }
    return n;
}

/* Whether what a step waits for has come. */
static bool is_ready(const lierne_execution *e, int step) {
    switch (step) {
    case POST:
        return !e->deferred;
    case RECEIVE:
        return receives_pending(e) == 0;
    case SEND:
        return e->pending == 0;
    default:
        return e->lingering == 0;
    }
}

/* Waits on the stream, with the control's lock. */
static lierne_status await_step(lierne_execution *e, int step) {
    while (!is_ready(e, step)) {
        bool moved = false;
        LIERNE_TRY(poll_batches(e, &moved));
        if (e->deferred) {
            LIERNE_TRY(lierne_execution_post_phase(e));
            moved |= !e->deferred;
        }
        if (!moved) {
            if (lierne_context_idle(e->context)) {
                e->clock.polls = 0;
            }
            LIERNE_TRY(lierne_execution_check_clock(e));
        }
    }
    return LIERNE_OK;
}

static lierne_status launch(const lierne_execution *e, lierne_recorded_step step) {
    return lierne_execution_launches(e) ? lierne_execution_launch(e, step) : LIERNE_OK;
}

static lierne_status post(lierne_execution *e) {
    LIERNE_TRY(launch(e, LIERNE_RECORDED_SEND));
    LIERNE_TRY(lierne_execution_begin_phase(e));
    LIERNE_TRY(await_step(e, POST));
    e->activity.turn = e->unposted > 0 ? e->call : -1;
    return LIERNE_OK;
}

static lierne_status deliver(const lierne_execution *e) {
    LIERNE_TRY(launch(e, LIERNE_RECORDED_DELIVER));
    const lierne_phase *phase = &e->phases.at[e->phase];
    for (size_t i = phase->first; i < phase->first + phase->nrecvs; i++) {
        lierne_execution_deliver(e, &e->messages.at[i]);
    }
    return LIERNE_OK;
}

static lierne_status sum(lierne_execution *e) {
    LIERNE_TRY(lierne_execution_sum(e));
    return ++e->phase < e->phases.count ? LIERNE_OK : await_step(e, STEPS);
}

static lierne_status run_step(lierne_execution *e, int step) {
    switch (step) {
    case POST:
        return post(e);
    case DELIVER:
        return deliver(e);
    case SUM:
        return sum(e);
    default:
        return await_step(e, step);
    }
}

/* What the stream has reached. */
static void reach(lierne_execution *e, bool begun, bool done) {
    pthread_mutex_lock(&e->event.lock);
    e->event.begun = begun;
    e->event.done = done;
    pthread_cond_broadcast(&e->event.changed);
    pthread_mutex_unlock(&e->event.lock);
}

/* With the control's lock. Steps after a failure do nothing. Returns whether it is the last one. */
static bool run_number(lierne_execution *e, size_t number) {
    if (e->status == LIERNE_OK && number < STEPS * e->phases.count) {
        e->status = run_step(e, (int)(number % STEPS));
        if (e->status != LIERNE_OK) {
            snprintf(e->message, sizeof e->message, "%s", lierne_error_text());
        }
    }
    bool last = number + 1 == e->nsteps;
    e->finished |= last;
    return last;
}

/* One step of the stream. */
static void run(lierne_stream_work *work) {
    const lierne_execution_step *s = (const lierne_execution_step *)work;
    lierne_execution *e = s->execution;
    if (s->number == 0) {
        reach(e, true, false);
    }
    lierne_context_enter(e->context);
    bool last = run_number(e, s->number);
    lierne_context_leave(e->context);
    if (last) {
        reach(e, true, true);
    }
}

static lierne_status reject_stream(const lierne_execution *e) {
    const lierne_context *context = e->context;
    if (!context->stream_driver) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "rank %d: %s: stream is not NULL, and no library of this process serves "
                           "streams: pass NULL for %s memory",
                           context->rank, e->name, context->memory->name);
    }
    return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                       "rank %d: %s: transport %s must be polled, which a %s stream cannot do: %s",
                       context->rank, e->name, e->polled_only->name, context->stream_driver->name,
                       e->stream_only ? "leave it out of LIERNE_TRANSPORTS"
                                      : "pass NULL in place of the stream, or leave it out of "
                                        "LIERNE_TRANSPORTS");
}

bool lierne_execution_needs_stream(const lierne_execution *e) {
    const lierne_stream_driver *driver = e->context->stream_driver;
    return e->stream_only || (driver && driver->required);
}

/* A stream that waited for a host, which may wait for the stream, could wait forever. */
lierne_status lierne_execution_check_stream(const lierne_execution *e, const void *stream) {
    const lierne_stream_driver *driver = e->context->stream_driver;
    bool captures;
    if (stream) {
        LIERNE_TRY(driver && lierne_execution_can_stream(e) ? LIERNE_OK : reject_stream(e));
        return driver->check ? driver->check(stream, e->context->device, &captures) : LIERNE_OK;
    }
    if (driver && driver->required) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "rank %d: %s: stream is NULL, and calls on %s memory need one: for the "
                           "default stream pass cudaStreamLegacy or cudaStreamPerThread",
                           e->context->rank, e->name, e->context->memory->name);
    }
    return !e->stream_only
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                             "rank %d: %s: transport %s serves calls on a stream only, and stream "
                             "is NULL: %s",
                             e->context->rank, e->name, e->stream_only->name,
                             e->polled_only ? "leave it out of LIERNE_TRANSPORTS"
                                            : "pass a stream, or leave it out of "
                                              "LIERNE_TRANSPORTS");
}

lierne_status lierne_execution_create_steps(lierne_execution *e) {
    e->nsteps = STEPS * e->phases.count + (e->phases.count == 0);
    LIERNE_TRY(lierne_alloc(&e->steps, e->nsteps, sizeof *e->steps));
    for (size_t i = 0; i < e->nsteps; i++) {
        e->steps[i] = (lierne_execution_step){.work.run = run, .execution = e, .number = i};
    }
    pthread_mutex_init(&e->event.lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&e->event.changed, &attributes);
    pthread_condattr_destroy(&attributes);
    const lierne_stream_driver *driver = e->context->stream_driver;
    LIERNE_TRY(driver->fence_create ? driver->fence_create(&e->fence) : LIERNE_OK);
    return lierne_execution_create_watch(e);
}

void lierne_execution_destroy_steps(lierne_execution *e) {
    lierne_execution_destroy_watch(e);
    if (e->fence) {
        e->context->stream_driver->fence_destroy(e->fence);
    }
    if (e->steps) {
        pthread_cond_destroy(&e->event.changed);
        pthread_mutex_destroy(&e->event.lock);
        lierne_mem_free(e->steps);
    }
}

/* The steps enqueue on the device. What they found is the begin's error. */
static lierne_status run_all(lierne_execution *e) {
    for (size_t i = 0; i < e->nsteps; i++) {
        run_number(e, i);
    }
    reach(e, true, true);
    return e->status;
}

static lierne_status enqueue_steps(lierne_execution *e, void *stream) {
    for (size_t i = 0; i < e->nsteps; i++) {
        LIERNE_TRY(e->context->stream_driver->enqueue(stream, &e->steps[i].work));
    }
    return LIERNE_OK;
}

lierne_status lierne_execution_enqueue(lierne_execution *e, void *stream) {
    reach(e, false, false);
    lierne_execution_set_stream(e, stream);
    LIERNE_TRY(lierne_execution_enter_stream(e));
    bool enqueues = e->context->stream_driver->enqueue != NULL;
    return lierne_execution_leave_stream(e, enqueues ? enqueue_steps(e, stream) : run_all(e));
}

/* The steps have deadlines of their own; this one is for a stream that other work keeps busy. */
lierne_status lierne_execution_await_event(lierne_execution *e) {
    struct timespec until;
    double seconds = 2 * e->context->timeout + 1;
    int failed = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    pthread_mutex_lock(&e->event.lock);
    while (!e->event.done && failed == 0) {
        failed = pthread_cond_timedwait(&e->event.changed, &e->event.lock, &until);
    }
    bool done = e->event.done;
    pthread_mutex_unlock(&e->event.lock);
    if (!done) {
        char call[LIERNE_CALL_TEXT];
        lierne_execution_print_call(call, e);
        return LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                           "rank %d: %s: the stream did not reach the end of the execution within "
                           "%g s",
                           e->context->rank, call, seconds);
    }
    if (e->status != LIERNE_OK) {
        lierne_set_error(e->message);
    }
    return e->status;
}
