/* A run on the memory of a device: each queue is a stream, and an operation begins when the streams
 * of those that it comes after have passed their events. All that is not held is enqueued by
 * lierne_run_begin, in the order of the schedule; the device needs the host no more.
 *
 * The host is told what streams have passed when it looks (schedule_run.c). */
#include "step/run_streams.h"
#include "runtime/execute/stream.h"

struct lierne_run_streams {
    const lierne_stream_driver *driver;
    void **queues; /* a stream per queue, NULL where it has no operation */
    void **begun;  /* events per operation */
    void **ended;
    void *caller; /* stream, or NULL */
    void *given;  /* event on it: what it has done before */
};

static lierne_status reserve(lierne_run_streams *s, const lierne_run *run) {
    size_t n = run->schedule->operations.count;
    LIERNE_TRY(lierne_alloc(&s->queues, (size_t)run->nqueues, sizeof *s->queues));
    LIERNE_TRY(lierne_alloc(&s->begun, n, sizeof *s->begun));
    return lierne_alloc(&s->ended, n, sizeof *s->ended);
}

static bool is_urgent(const lierne_run *run, int queue) {
    return queue + 1 < run->nqueues &&
           run->schedule->groups.at[queue].priority == LIERNE_PRIORITY_HIGH;
}

static lierne_status make_streams(lierne_run_streams *s, const lierne_run *run) {
    for (size_t i = 0; i < run->schedule->operations.count; i++) {
        int q = lierne_run_queue(run, (int)i);
        LIERNE_TRY(s->queues[q] ? LIERNE_OK
                                : s->driver->stream_create(&s->queues[q], run->context->device,
                                                           is_urgent(run, q)));
        LIERNE_TRY(s->driver->event_create(&s->begun[i]));
        LIERNE_TRY(s->driver->event_create(&s->ended[i]));
    }
    return s->driver->event_create(&s->given);
}

static lierne_status check_caller(const lierne_run *run, const lierne_stream_driver *driver,
                                  const void *caller) {
    bool captures = false;
    if (caller && !driver) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: spec->stream is %p, must be NULL: the run is external, or the "
                           "context has no memory of a device",
                           run->context->rank, caller);
    }
    LIERNE_TRY(caller && driver->check ? driver->check(caller, run->context->device, &captures)
                                       : LIERNE_OK);
    return captures ? LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                                  "rank %d: spec->stream is being captured into a graph, and "
                                  "runs cannot be captured",
                                  run->context->rank)
                    : LIERNE_OK;
}

lierne_status lierne_run_streams_create(lierne_run *run, void *caller) {
    const lierne_stream_driver *driver = run->context->stream_driver;
    lierne_run_streams *s;
    driver = driver && driver->required && !run->external ? driver : NULL;
    LIERNE_TRY(check_caller(run, driver, caller));
    if (!driver) {
        return LIERNE_OK;
    }
    if (!driver->stream_create) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "rank %d: calls on %s memory need streams, and a run can make none",
                           run->context->rank, run->context->memory->name);
    }
    LIERNE_TRY(lierne_alloc(&s, 1, sizeof *s));
    run->streams = s;
    *s = (lierne_run_streams){.driver = driver, .caller = caller};
    LIERNE_TRY(reserve(s, run));
    return make_streams(s, run);
}

static void destroy_event(const lierne_run_streams *s, void *event) {
    if (event) {
        s->driver->event_destroy(event);
    }
}

void lierne_run_streams_destroy(lierne_run *run) {
    lierne_run_streams *s = run->streams;
    if (!s) {
        return;
    }
    for (int q = 0; s->queues && q < run->nqueues; q++) {
        if (s->queues[q]) {
            s->driver->stream_destroy(s->queues[q]);
        }
    }
    for (size_t i = 0; s->begun && s->ended && i < run->schedule->operations.count; i++) {
        destroy_event(s, s->begun[i]);
        destroy_event(s, s->ended[i]);
    }
    destroy_event(s, s->given);
    lierne_mem_free(s->queues);
    lierne_mem_free(s->begun);
    lierne_mem_free(s->ended);
    lierne_mem_free(s);
    run->streams = NULL;
}

void *lierne_run_stream(const lierne_run *run, int operation) {
    return run->streams ? run->streams->queues[lierne_run_queue(run, operation)] : NULL;
}

lierne_status lierne_run_streams_begin(const lierne_run *run) {
    const lierne_run_streams *s = run->streams;
    if (!s || !s->caller) {
        return LIERNE_OK;
    }
    LIERNE_TRY(check_caller(run, s->driver, s->caller));
    LIERNE_TRY(s->driver->event_record(s->caller, s->given));
    for (int q = 0; q < run->nqueues; q++) {
        LIERNE_TRY(s->queues[q] ? s->driver->stream_wait(s->queues[q], s->given) : LIERNE_OK);
    }
    return LIERNE_OK;
}

lierne_status lierne_run_streams_resume(const lierne_run *run, int operation) {
    const lierne_run_streams *s = run->streams;
    if (!s || !s->caller) {
        return LIERNE_OK;
    }
    LIERNE_TRY(check_caller(run, s->driver, s->caller));
    LIERNE_TRY(s->driver->event_record(s->caller, s->given));
    return s->driver->stream_wait(lierne_run_stream(run, operation), s->given);
}

lierne_status lierne_run_streams_enter(const lierne_run *run, int operation) {
    const lierne_run_streams *s = run->streams;
    const lierne_recorded_operation *o = &run->schedule->operations.at[operation];
    void *stream = lierne_run_stream(run, operation);
    for (int k = 0; s && k < o->nafter; k++) {
        if (lierne_run_queue(run, o->after[k]) != lierne_run_queue(run, operation)) {
            LIERNE_TRY(s->driver->stream_wait(stream, s->ended[o->after[k]]));
        }
    }
    return s ? s->driver->event_record(stream, s->begun[operation]) : LIERNE_OK;
}

lierne_status lierne_run_streams_leave(const lierne_run *run, int operation) {
    const lierne_run_streams *s = run->streams;
    return s ? s->driver->event_record(lierne_run_stream(run, operation), s->ended[operation])
             : LIERNE_OK;
}

lierne_status lierne_run_streams_look(bool *passed, const lierne_run *run, int operation,
                                      bool end) {
    const lierne_run_streams *s = run->streams;
    return s->driver->event_query(end ? s->ended[operation] : s->begun[operation], passed);
}
