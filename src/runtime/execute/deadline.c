/* The ends of a wait without its messages: the deadline, a peer whose process ended, a peer that
 * gave up; and what the execution waits for, for messages and dumps. */
#include "runtime/execute/execution.h"

#include <stdio.h>

#define CHECK_EVERY     0.02 /* seconds between checks whether the peers are alive */
#define POLLS_PER_CLOCK 32   /* polls without progress per check of the clock */
#define MOST_RECORDED   8    /* ranks with missing messages that are recorded at once */
#define MOST_LISTED     16

/* Messages of the phases so far. */
static size_t posted(const lierne_execution *e) {
    if (e->cursor.phase >= e->phases.count) {
        return e->messages.count;
    }
    const lierne_phase *phase = &e->phases.at[e->cursor.phase];
    return phase->first + phase->nrecvs + phase->nsends;
}

/* The next missing message from `from` on of a rank that is not among the n peers: a rank with many
 * messages must not hide the others. Their number: none. */
static size_t find_missing(const lierne_execution *e, size_t from, const int *peers, int n) {
    size_t i = from;
    for (bool found = false; i < posted(e) && !found; i += !found) {
        found = e->flight.waiting[i] != LIERNE_WAIT_NONE;
        for (int k = 0; k < n; k++) {
            found &= peers[k] != e->messages.at[i].peer;
        }
    }
    return i;
}

void lierne_execution_list_missing(const lierne_execution *e, char *text, size_t size) {
    int peers[MOST_LISTED], n = 0;
    size_t used = 0, i = find_missing(e, 0, peers, n);
    text[0] = '\0';
    while (i < posted(e) && n < MOST_LISTED && used + 32 < size) {
        const lierne_coalesced_message *m = &e->messages.at[i];
        used += (size_t)snprintf(text + used, size - used, used ? ", %d (%.12s)" : "%d (%.12s)",
                                 m->peer, e->batches[m->batch].transport->name);
        peers[n++] = m->peer;
        i = find_missing(e, i, peers, n);
    }
}

void lierne_execution_record_missing(const lierne_execution *e) {
    const lierne_recorder *r = &e->context->recorder;
    int peers[MOST_RECORDED], n = 0;
    lierne_entry record = {.kind = LIERNE_RECORD_WAIT,
                           .what = e->record.what,
                           .stage = (int)lierne_execution_stage(e),
                           .plan = e->record.plan,
                           .number = e->record.number,
                           .time = lierne_recorder_now(r)};
    size_t i = find_missing(e, 0, peers, n);
    while (i < posted(e) && n < MOST_RECORDED) {
        record.peer = peers[n++] = e->messages.at[i].peer;
        record.bytes = e->messages.at[i].bytes;
        lierne_recorder_add(r, &record);
        i = find_missing(e, i, peers, n);
    }
}

/* Once while nothing changes: a long wait must not fill the ring. */
static void note_wait(lierne_execution *e) {
    size_t missing = e->flight.pending + e->flight.late + e->flight.lingering;
    lierne_recorder_beat(&e->context->recorder);
    LIERNE_METRICS_UPDATE(e->context);
    if (missing != e->flight.clock.missing) {
        e->flight.clock.missing = missing;
        lierne_execution_record_missing(e);
    }
}

size_t lierne_execution_stage(const lierne_execution *e) {
    return e->cursor.phase > 0 && e->cursor.phase == e->phases.count ? e->cursor.phase - 1
                                                                     : e->cursor.phase;
}

static lierne_status time_out(const lierne_execution *e) {
    char missing[128], call[LIERNE_CALL_TEXT];
    lierne_execution_print_call(call, e, e->record.number);
    if (e->stream.launched && e->flight.deferred) {
        return LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                           "rank %d: %s, stage %zu of %zu: the stream has not done the work before "
                           "its messages within %g s",
                           e->context->rank, call, lierne_execution_stage(e), e->phases.count,
                           e->context->timeout);
    }
    lierne_execution_list_missing(e, missing, sizeof missing);
    return LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                       "rank %d: %s, stage %zu of %zu: %zu of %zu messages missing after %g s, "
                       "with rank %s",
                       e->context->rank, call, lierne_execution_stage(e), e->phases.count,
                       e->flight.pending + e->flight.late + e->flight.lingering, posted(e),
                       e->context->timeout, missing);
}

/* Of one that varies, any rank that has a part may have found that the ranks differ. */
static lierne_status check_parts(const lierne_execution *e) {
    const lierne_varying *v = e->varying;
    for (int i = 0; v && i < 2; i++) {
        for (int rank = v->first[i]; rank < v->first[i] + v->count[i]; rank++) {
            if (rank != e->context->rank && lierne_context_index(e->context, rank) >= 0) {
                LIERNE_TRY(lierne_context_gave_up(e->context, rank));
            }
        }
    }
    return LIERNE_OK;
}

/* The error of a peer of this phase that gave up. Messages that arrived from it do not count. */
static lierne_status check_given_up(const lierne_execution *e) {
    const lierne_control *control = e->context->control;
    void *self = e->context->control_self;
    if (!control->failures || !control->failures->any_gave_up(self)) {
        return LIERNE_OK;
    }
    const lierne_phase *phase =
        e->cursor.phase < e->phases.count ? &e->phases.at[e->cursor.phase] : NULL;
    for (size_t i = 0; i < posted(e); i++) {
        bool received = phase && i >= phase->first && i < phase->first + phase->nrecvs;
        if (e->flight.waiting[i] != LIERNE_WAIT_NONE || received) {
            LIERNE_TRY(lierne_context_gave_up(e->context, e->messages.at[i].peer));
        }
    }
    return check_parts(e);
}

/* The error of a peer that this rank waits for and whose process has ended. */
static lierne_status check_peers(const lierne_execution *e) {
    for (size_t i = 0; i < posted(e); i++) {
        int peer = e->messages.at[i].peer;
        lierne_status status = e->flight.waiting[i] == LIERNE_WAIT_NONE
                                   ? LIERNE_OK
                                   : lierne_context_peer_alive(e->context, peer);
        if (status != LIERNE_OK) {
            lierne_recorder_add(&e->context->recorder,
                                &(lierne_entry){.kind = LIERNE_RECORD_ENDED, .peer = peer});
            return status;
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_execution_check_clock(lierne_execution *e) {
    lierne_wait_clock *w = &e->flight.clock;
    if (w->polls++ % POLLS_PER_CLOCK != 0) {
        return LIERNE_OK;
    }
    lierne_recorder_flush_late(&e->context->recorder);
    double now = lierne_now();
    if (w->deadline.timeout == 0) {
        lierne_deadline_start(&w->deadline, e->context->timeout, now);
        w->next_check = now + CHECK_EVERY;
    }
    LIERNE_TRY(check_given_up(e));
    if (now > w->next_check) {
        w->next_check = now + CHECK_EVERY;
        note_wait(e);
        LIERNE_TRY(check_peers(e));
    }
    return lierne_deadline_passed(&w->deadline, now) ? time_out(e) : LIERNE_OK;
}
