/* Calls of executions: begin, wait, dump.
 *
 * A wait progresses all executions of the context, not only its own: a peer may wait for another
 * one first and then needs this rank in its later stages. A wait yields to other ranks, checks from
 * time to time whether its peers are alive, and gives up at the deadline. */
#include "runtime/execute/execution.h"

#include <limits.h>
#include <stdio.h>

bool lierne_execution_running(const lierne_execution *e) {
    return e->running;
}

void lierne_execution_set_buffers(lierne_execution *e, void *const *out, const void *const *in) {
    e->cursor.in_place = false;
    for (size_t p = 0; p < e->nsubroutes; p++) {
        lierne_subroute *subroute = &e->subroutes[p];
        e->cursor.in_place |= in[p] == out[p];
        subroute->in = in[p];
        subroute->base[LIERNE_BUFFER_OUT] = out[p];
        subroute->base[LIERNE_BUFFER_SCRATCH] = e->memory.at + subroute->scratch;
        subroute->no_out = out[p] == NULL;
        subroute->accumulates =
            subroute->route->accumulates || e->cursor.reduction != LIERNE_REDUCTION_SUM;
    }
}

static size_t dump(const lierne_activity *activity, char *text, size_t size, size_t used) {
    const lierne_execution *e = (const lierne_execution *)activity;
    char missing[128] = "", call[LIERNE_CALL_TEXT];
    if (e->cursor.finished || used + 1 >= size) {
        return used;
    }
    lierne_execution_print_call(call, e, e->record.number);
    lierne_execution_list_missing(e, missing, sizeof missing);
    int n = snprintf(text + used, size - used,
                     "in flight: %s, stage %zu of %zu, since %.3f s, waits for rank %s\n", call,
                     lierne_execution_stage(e), e->phases.count,
                     lierne_recorder_since(&e->context->recorder, e->record.started), missing);
    return used + (size_t)n < size ? used + (size_t)n : size - 1;
}

/* What is being enqueued, only its begin progresses. */
static bool progress_execution(lierne_activity *activity) {
    lierne_execution *e = (lierne_execution *)activity;
    return !e->stream.enqueues && lierne_execution_progress(e);
}

/* Everything that one call changes. */
void lierne_execution_reset(lierne_execution *e, lierne_reduction reduction, const void *stream) {
    e->activity.progress = progress_execution;
    e->activity.dump = dump;
    e->cursor.reduction = reduction;
    e->cursor.status = LIERNE_OK;
    e->cursor.phase = 0;
    e->cursor.summed = false;
    e->flight.pending = e->flight.late = e->flight.lingering = 0;
    e->flight.deferred = e->stream.launched = e->activity.awaits_stream = false;
    e->flight.unposted = e->flight.ordered;
    for (int b = 0; b < e->context->ncarriers; b++) {
        e->batches[b].next = 0;
    }
    e->activity.turn = -1;
    e->flight.clock = (lierne_wait_clock){0};
    e->stream.used = stream != NULL;
    e->stream.enqueues = stream && !e->stream.polled_only;
    e->stream.captures = lierne_execution_captures(e, stream);
    e->stream.was_captured |= e->stream.captures;
    e->stream.was_called |= !e->stream.captures;
    e->cursor.finished = e->phases.count == 0;
}

void lierne_execution_record_call(lierne_execution *e, int64_t time) {
    lierne_recorder *r = &e->context->recorder;
    lierne_recorder_add(r, &(lierne_entry){.kind = LIERNE_RECORD_CALL,
                                           .what = e->record.what,
                                           .stage = (int)e->phases.count,
                                           .plan = e->record.plan,
                                           .number = e->record.number,
                                           .peer = (int)(r->calls++ & INT_MAX),
                                           .bytes = e->record.bytes,
                                           .time = time});
}

void lierne_execution_record_end(lierne_execution *e, lierne_status status, int64_t time) {
    lierne_execution_leave_stage(e);
    if (status != LIERNE_OK) {
        lierne_execution_record_missing(e);
    } else if (e->record.counter) {
        lierne_counter_add(e->record.counter, e->record.bytes, time - e->record.started,
                           e->record.waited);
    }
    lierne_recorder_add(&e->context->recorder,
                        &(lierne_entry){.kind = LIERNE_RECORD_END,
                                        .what = e->record.what,
                                        .stage = (int)lierne_execution_stage(e),
                                        .plan = e->record.plan,
                                        .number = e->record.number,
                                        .peer = -1,
                                        .bytes = status,
                                        .time = time});
}

void lierne_execution_identify(lierne_execution *e, lierne_execution_id id) {
    e->record.plan = id.plan;
    e->record.what = (int)id.what;
    e->record.number = id.number;
    e->record.counter = id.counter;
    e->record.waited = e->record.idle = 0;
    e->flight.match = id.match;
}

/* The clock is read only where waiting begins and ends. */
static void note_idle(lierne_execution *e, bool idle) {
    const lierne_recorder *r = &e->context->recorder;
    if (idle && e->record.idle == 0) {
        e->record.idle = lierne_recorder_now(r);
    } else if (!idle && e->record.idle != 0) {
        e->record.waited += lierne_recorder_now(r) - e->record.idle;
        e->record.idle = 0;
    }
}

/* One poll, with the control's lock: threads of other ranks may progress the execution too. waits:
 * other ranks of this machine may run, or this rank sleep, if nothing progressed. Others are polled
 * only where there is no progress: within a begin, the stream may be captured. */
static lierne_status poll_once(lierne_execution *e, bool waits) {
    const lierne_context *context = e->context;
    bool moved =
        (e->stream.enqueues && lierne_execution_progress(e)) || lierne_context_poll(context);
    if (waits) {
        note_idle(e, !moved && !e->cursor.finished);
    }
    if (moved || e->cursor.finished) {
        return LIERNE_OK;
    }
    if (waits && lierne_context_idle(context)) {
        e->flight.clock.polls = 0;
    }
    return lierne_execution_check_clock(e);
}

/* With the lock, which a rank that sleeps releases. */
static lierne_status await_finished(lierne_execution *e) {
    while (!e->cursor.finished) {
        LIERNE_TRY(poll_once(e, true));
    }
    note_idle(e, false);
    if (e->cursor.status != LIERNE_OK) {
        lierne_set_error(e->cursor.message);
    }
    return e->cursor.status;
}

static lierne_status enqueue(lierne_execution *e) {
    LIERNE_TRY(lierne_execution_enter_stream(e));
    lierne_status status = lierne_execution_start(e);
    status = status == LIERNE_OK ? await_finished(e) : status;
    return lierne_execution_leave_stream(e, status);
}

static lierne_status start_execution(lierne_execution *e, void *stream) {
    e->activity.turn = e->flight.unposted > 0 ? e->record.call : -1;
    lierne_execution_set_stream(e, stream);
    if (e->cursor.finished) {
        return LIERNE_OK;
    }
    return e->stream.enqueues ? enqueue(e) : lierne_execution_start(e);
}

lierne_status lierne_execution_begin(lierne_execution *e, lierne_reduction reduction,
                                     void *const *out, const void *const *in, void *stream) {
    lierne_context *context = e->context;
    LIERNE_TRY(lierne_context_alive(context));
    lierne_execution_reset(e, reduction, stream);
    lierne_execution_set_buffers(e, out, in);
    lierne_execution_set_recorded(e);
    e->record.call = lierne_context_begin_call(context, e->name, e->record.number, e->record.plan);
    e->record.started = context->calls[e->record.call % LIERNE_CALLS].start;
    lierne_execution_record_call(e, e->record.started);
    lierne_context_enter(context);
    e->running = true;
    lierne_context_add_activity(context, &e->activity);
    uint64_t range = lierne_execution_begin_range(e, "begin");
    lierne_status status = start_execution(e, stream);
    lierne_execution_end_range(e, range);
    if (status != LIERNE_OK) {
        e->cursor.finished = true;
        lierne_context_remove_activity(context, &e->activity);
        e->running = false;
        e->abandoned = true;
        lierne_context_end_call(context, e->record.call, status);
        lierne_execution_record_end(e, status, 0);
    }
    lierne_context_leave(context);
    return status == LIERNE_OK ? LIERNE_OK : lierne_context_kill(context, status);
}

lierne_status lierne_execution_test(lierne_execution *e, bool *finished) {
    lierne_context *context = e->context;
    LIERNE_TRY(lierne_context_alive(context));
    lierne_context_enter(context);
    lierne_status status = poll_once(e, false);
    *finished = e->cursor.finished;
    lierne_context_leave(context);
    lierne_recorder_flush_late(&context->recorder);
    return status == LIERNE_OK ? LIERNE_OK : lierne_context_kill(context, status);
}

lierne_status lierne_execution_wait(lierne_execution *e) {
    lierne_context *context = e->context;
    lierne_status status = lierne_context_alive(context);
    if (status == LIERNE_OK) {
        uint64_t range = lierne_execution_begin_range(e, "end");
        lierne_context_enter(context);
        status = await_finished(e);
        lierne_context_leave(context);
        lierne_execution_end_range(e, range);
        lierne_execution_record_end(e, status, lierne_recorder_now(&context->recorder));
        if (status != LIERNE_OK) {
            status = lierne_context_kill(context, status);
        }
    }
    e->abandoned |= status != LIERNE_OK;
    lierne_context_end_call(context, e->record.call, status);
    lierne_context_enter(context);
    lierne_context_remove_activity(context, &e->activity);
    e->running = false;
    lierne_context_leave(context);
    return status;
}
