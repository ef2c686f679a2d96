/* The phase engine: runs executions over the transports of a context.
 *
 * A phase posts its messages, then makes its local copies while they are in flight. Messages are
 * delivered as they arrive. When all that the phase waits for is complete, the sums run and the
 * next phase begins. After the last phase the execution waits for the sends that lingered.
 *
 * On the stream of a device, copies and sums are launches. Where the host polls messages, as those
 * of MPI, the caller's waits run the phases, and those of a phase are posted when the stream has
 * passed what was launched for it. Where transports enqueue, the begin runs all phases at once: a
 * poll returns what was just posted, and nothing that is enqueued depends on data. */
#include "runtime/execute/execution.h"

#include <stdio.h>

/* What waits for a send: only the end of the execution, unless sums write to what is sent. Where in
 * and out are one buffer, those that are not early may, and where none is early, receives, too. */
static lierne_wait find_wait(const lierne_execution *e, const lierne_coalesced_message *m) {
    lierne_wait wait = m->lingers ? LIERNE_WAIT_END : LIERNE_WAIT_PHASE;
    for (size_t i = m->first; e->cursor.in_place && i < m->first + m->count; i++) {
        const lierne_segment *segment = &e->segments.at[i];
        const lierne_subroute *subroute = segment->subroute;
        bool aliased = segment->message->buffer == LIERNE_BUFFER_IN &&
                       subroute->in == subroute->base[LIERNE_BUFFER_OUT];
        if (wait != LIERNE_WAIT_PHASE && aliased) {
            size_t early = lierne_early_sums_count(e, (size_t)(subroute - e->subroutes));
            bool late = early > 0 && !lierne_execution_launches(e);
            wait = late ? LIERNE_WAIT_LATE : LIERNE_WAIT_PHASE;
        }
    }
    return wait;
}

int64_t lierne_execution_expect_phase(lierne_execution *e) {
    const lierne_phase *phase = &e->phases.at[e->cursor.phase];
    size_t n = phase->nrecvs + phase->nsends;
    int64_t bytes = 0;
    e->cursor.arriving = 0;
    e->cursor.holds = true;
    for (size_t i = phase->first; i < phase->first + n; i++) {
        if (e->messages.at[i].skipped) {
            e->flight.waiting[i] = LIERNE_WAIT_NONE;
            continue;
        }
        bool receives = i < phase->first + phase->nrecvs;
        lierne_wait wait = receives ? LIERNE_WAIT_PHASE : find_wait(e, &e->messages.at[i]);
        bool early = wait == LIERNE_WAIT_PHASE;
        e->cursor.arriving += receives ? e->messages.at[i].bytes : 0;
        e->cursor.holds &= receives || !early || !lierne_execution_exposes(e, &e->messages.at[i]);
        e->flight.waiting[i] = (uint8_t)wait;
        e->flight.pending += early;
        e->flight.late += wait == LIERNE_WAIT_LATE;
        e->flight.lingering += wait == LIERNE_WAIT_END;
        bytes += e->messages.at[i].bytes;
    }
    return bytes;
}

void lierne_execution_record_phase(const lierne_execution *e, int64_t bytes, int64_t time) {
    const lierne_phase *phase = &e->phases.at[e->cursor.phase];
    bool any = phase->nrecvs + phase->nsends > 0;
    lierne_recorder_add(&e->context->recorder,
                        &(lierne_entry){.kind = LIERNE_RECORD_STAGE,
                                        .what = e->record.what,
                                        .stage = (int)e->cursor.phase,
                                        .plan = e->record.plan,
                                        .number = e->record.number,
                                        .peer = any ? e->messages.at[phase->first].peer : -1,
                                        .bytes = bytes,
                                        .time = time});
}

/* The data of a sender that gave up may have changed before it was read here. */
lierne_status lierne_execution_check_senders(const lierne_execution *e) {
    const lierne_control *control = e->context->control;
    void *self = e->context->control_self;
    const lierne_phase *phase = &e->phases.at[e->cursor.phase];
    if (phase->nrecvs == 0 || !control->failures || !control->failures->any_gave_up(self)) {
        return LIERNE_OK;
    }
    for (size_t i = 0; i < phase->nrecvs; i++) {
        LIERNE_TRY(lierne_context_gave_up(e->context, e->messages.at[phase->first + i].peer));
    }
    return LIERNE_OK;
}

static inline lierne_status sum(const lierne_execution *e) {
    LIERNE_TRY(lierne_execution_check_senders(e));
    if (!e->fused && lierne_execution_launches(e)) {
        return lierne_execution_launch(e, LIERNE_RECORDED_SUM);
    }
    if (!e->fused) {
        lierne_execution_run_sums(e, true);
        return LIERNE_OK;
    }
    lierne_fused_sums_run(e);
    LIERNE_TRY(lierne_execution_check_senders(e));
    lierne_fused_sums_release(e);
    return LIERNE_OK;
}

static void next_phase(lierne_execution *e) {
    e->cursor.phase++;
    e->cursor.summed = false;
    lierne_execution_enter_stage(e);
}

/* What a phase delivers and sums and what the next one packs is launched together; after the last
 * phase nothing is waited for, the result is the stream's. */
static lierne_status launch_all(lierne_execution *e, bool first) {
    if (!first) {
        LIERNE_TRY(lierne_execution_launch(e, LIERNE_RECORDED_DELIVER));
        LIERNE_TRY(sum(e));
        next_phase(e);
    }
    return e->cursor.phase < e->phases.count ? lierne_execution_launch(e, LIERNE_RECORDED_SEND)
                                             : LIERNE_OK;
}

static lierne_status launch_phase(lierne_execution *e, bool first) {
    if (e->stream.enqueues) {
        return launch_all(e, first);
    }
    LIERNE_TRY(lierne_execution_enter_stream(e));
    lierne_status status = launch_all(e, first);
    e->stream.launched = true;
    return lierne_execution_leave_stream(e, status);
}

static lierne_status end_phase(lierne_execution *e) {
    if (lierne_execution_launches(e)) {
        return launch_phase(e, false);
    }
    lierne_execution_run_sums(e, false);
    next_phase(e);
    return LIERNE_OK;
}

static lierne_status begin_phase(lierne_execution *e) {
    lierne_execution_record_phase(e, lierne_execution_expect_phase(e), 0);
    return lierne_execution_post_phase(e);
}

static lierne_status sum_early(lierne_execution *e) {
    if (e->cursor.summed || lierne_execution_launches(e)) {
        return LIERNE_OK;
    }
    e->cursor.summed = true;
    return sum(e);
}

/* Ends phases that have nothing left to wait for, and begins the next ones. */
static lierne_status advance(lierne_execution *e) {
    while (e->flight.pending == 0 && !e->flight.deferred && e->cursor.phase < e->phases.count) {
        LIERNE_TRY(sum_early(e));
        if (e->flight.late > 0) {
            break;
        }
        LIERNE_TRY(end_phase(e));
        if (e->cursor.phase < e->phases.count) {
            LIERNE_TRY(begin_phase(e));
        }
    }
    e->activity.turn = e->flight.unposted > 0 ? e->record.call : -1;
    e->cursor.finished = e->cursor.phase == e->phases.count && e->flight.lingering == 0;
    return LIERNE_OK;
}

lierne_status lierne_execution_start(lierne_execution *e) {
    lierne_execution_enter_stage(e);
    if (lierne_execution_launches(e)) {
        LIERNE_TRY(launch_phase(e, true));
    }
    LIERNE_TRY(begin_phase(e));
    return advance(e);
}

static lierne_status complete_message(lierne_execution *e, size_t index) {
    const lierne_coalesced_message *m = &e->messages.at[index];
    lierne_wait waited = (lierne_wait)e->flight.waiting[index];
    e->flight.waiting[index] = LIERNE_WAIT_NONE;
    if (waited == LIERNE_WAIT_END) {
        e->flight.lingering--;
        return LIERNE_OK;
    }
    if (waited == LIERNE_WAIT_LATE) {
        e->flight.late--;
        return LIERNE_OK;
    }
    const lierne_phase *phase = &e->phases.at[e->cursor.phase];
    e->flight.pending--;
    if (index < phase->first + phase->nrecvs && e->varying) {
        LIERNE_TRY(lierne_varying_deliver(e, index));
    } else if (index < phase->first + phase->nrecvs) {
        lierne_execution_deliver(e, m);
    }
    return m->pipeline < 0 ? LIERNE_OK
                           : lierne_execution_post_pipeline(e, &e->pipelines.at[m->pipeline]);
}

/* Of messages of other lengths than are expected: where each rank plans alone, the ranks planned
 * from different descriptions; elsewhere that cannot be. */
static lierne_status name_fault(const lierne_execution *e, lierne_status status) {
    char text[LIERNE_MESSAGE_SIZE];
    if (status != LIERNE_ERR_MISMATCH || !e->varying) {
        return status == LIERNE_ERR_MISMATCH ? LIERNE_ERR_TRANSPORT : status;
    }
    snprintf(text, sizeof text, "%s", lierne_error_text());
    return LIERNE_FAIL(LIERNE_ERR_MISMATCH, "%.900s: their segments differ", text);
}

static lierne_status collect_messages(lierne_execution *e, bool *moved) {
    for (int b = 0; b < e->context->ncarriers; b++) {
        lierne_execution_batch *batch = &e->batches[b];
        size_t n = 0;
        if (batch->batch) {
            LIERNE_TRY(name_fault(e, batch->transport->poll(batch->batch, batch->done, &n)));
        }
        for (size_t i = 0; i < n; i++) {
            LIERNE_TRY(complete_message(e, batch->messages.at[batch->done[i]]));
        }
        *moved |= n > 0;
    }
    if (e->flight.deferred) {
        LIERNE_TRY(lierne_execution_post_phase(e));
        *moved |= !e->flight.deferred;
    }
    return *moved ? advance(e) : LIERNE_OK;
}

void lierne_execution_fail(lierne_execution *e, lierne_status status) {
    if (status != LIERNE_OK) {
        e->cursor.status = status;
        e->cursor.finished = true;
        snprintf(e->cursor.message, sizeof e->cursor.message, "%s", lierne_error_text());
    }
}

bool lierne_execution_progress(lierne_execution *e) {
    bool moved = false;
    if (e->cursor.finished) {
        return false;
    }
    lierne_status status = collect_messages(e, &moved);
    lierne_execution_fail(e, status);
    return moved || status != LIERNE_OK;
}
