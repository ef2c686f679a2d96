/* A delta where plans cannot carry it: in memory that the host does not work on, on streams, and
 * over transports without match ids. A device finds what changed in its own memory
 * (delta_device.c); control messages carry versions and changes, and no transport is touched, so
 * that none is exempt. All of it waits for the stream. */
#include "plan/redistribute/changes.h"
#include "plan/redistribute/delta_plans.h"
#include "runtime/execute/stream.h"

#include <string.h>

enum { WORD = sizeof(int64_t) };

static size_t words_of(int64_t bytes) {
    return ((size_t)bytes + WORD - 1) / WORD;
}

/* --- memory ------------------------------------------------------------------------------- */

lierne_status lierne_delta_open_control(lierne_delta *d) {
    const lierne_stream_driver *driver = d->context->stream_driver;
    lierne_delta_control *c = &d->control;
    size_t members = (size_t)d->context->members.count;
    size_t most = d->sends.n > members ? d->sends.n : members;
    c->words = LIERNE_DELTA_WORDS;
    for (size_t m = 0; m < d->sends.n; m++) {
        c->words += LIERNE_DELTA_HEADER + words_of(d->sends.at[m + 1] - d->sends.at[m]);
    }
    if (driver && !driver->event_create) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "rank %d: %s streams have no events",
                           d->context->rank, driver->name);
    }
    LIERNE_TRY(lierne_alloc(&c->messages, most + 1, sizeof *c->messages));
    LIERNE_TRY(lierne_alloc(&c->own, c->words + 1, WORD));
    d->report.memory_bytes += (int64_t)(c->words * WORD);
    LIERNE_TRY(c->change ? lierne_delta_open_device(d) : LIERNE_OK);
    return driver ? driver->event_create(&c->event) : LIERNE_OK;
}

void lierne_delta_close_control(lierne_delta *d) {
    lierne_delta_control *c = &d->control;
    if (c->event) {
        d->context->stream_driver->event_destroy(c->event);
    }
    lierne_mem_free(c->messages);
    if (c->own) {
        lierne_context_free_message_memory(d->context, c->own);
    }
    lierne_delta_close_device(d);
}

/* --- streams ------------------------------------------------------------------------------ */

lierne_status lierne_delta_check_stream(const lierne_delta *d) {
    const lierne_stream_driver *driver = d->context->stream_driver;
    bool captures = false;
    if (d->control.stream && driver && driver->check) {
        LIERNE_TRY(driver->check(d->control.stream, d->context->device, &captures));
    }
    return captures ? LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                                  "rank %d: the stream is captured, and a delta waits for it",
                                  d->context->rank)
                    : LIERNE_OK;
}

/* Other executions of this rank go on, since what is on the stream may wait for them. */
lierne_status lierne_delta_wait_stream(const lierne_delta *d) {
    const lierne_stream_driver *driver = d->context->stream_driver;
    double end = lierne_now() + d->context->timeout;
    bool done = !d->control.stream;
    LIERNE_TRY(done ? LIERNE_OK : driver->event_record(d->control.stream, d->control.event));
    while (!done) {
        LIERNE_TRY(driver->event_query(d->control.event, &done));
        if (!done && lierne_now() > end) {
            return lierne_context_kill(
                d->context, LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                                        "rank %d: the stream has not done its work within %g s",
                                        d->context->rank, d->context->timeout));
        }
        if (!done && !lierne_context_poll(d->context)) {
            (void)lierne_context_idle(d->context);
        }
    }
    return LIERNE_OK;
}

/* --- exchanges ---------------------------------------------------------------------------- */

static lierne_status exchange(lierne_delta *d, size_t n, lierne_control_messages *received) {
    lierne_status status =
        lierne_context_sparse_exchange(d->context, d->control.messages, n, received);
    return status == LIERNE_OK ? LIERNE_OK : lierne_context_kill(d->context, status);
}

lierne_status lierne_delta_tell_all(lierne_delta *d, const int64_t *mine) {
    const lierne_members *members = &d->context->members;
    lierne_control_messages received = {0};
    memcpy(d->control.own, mine, LIERNE_DELTA_WORDS * WORD);
    for (int i = 0; i < members->count; i++) {
        d->control.messages[i] = (lierne_control_message){
            .peer = lierne_members_rank(members, i),
            .count = LIERNE_DELTA_WORDS,
            .words = d->control.own,
        };
    }
    LIERNE_TRY(exchange(d, (size_t)members->count, &received));
    for (size_t i = 0; i < received.count; i++) {
        int64_t *said =
            &d->said[LIERNE_DELTA_WORDS * lierne_members_index(members, received.at[i].peer)];
        memcpy(said, received.at[i].words, LIERNE_DELTA_WORDS * WORD);
    }
    lierne_control_messages_destroy(&received);
    return LIERNE_OK;
}

/* Adds all messages to the peer of message m, which is its first; returns the next free word. */
static int64_t *put_peer(lierne_delta *d, size_t m, lierne_control_message *to, int64_t *at) {
    const lierne_delta_half *h = &d->sends;
    *to = (lierne_control_message){.peer = h->peers[m], .words = at};
    for (size_t i = m; i < h->n; i++) {
        const int64_t *header = &h->headers[LIERNE_DELTA_HEADER * i];
        if (h->peers[i] == h->peers[m]) {
            memcpy(at, header, LIERNE_DELTA_HEADER * WORD);
            at += LIERNE_DELTA_HEADER;
            memcpy(at, h->bytes + h->at[i], (size_t)header[LIERNE_DELTA_BYTES]);
            at += words_of(header[LIERNE_DELTA_BYTES]);
        }
    }
    to->count = (size_t)(at - to->words);
    return at;
}

static size_t put_messages(lierne_delta *d) {
    int64_t *at = d->control.own;
    size_t n = 0;
    for (size_t m = 0; m < d->sends.n; m++) {
        bool first = true;
        for (size_t i = 0; i < n; i++) {
            first = first && d->control.messages[i].peer != d->sends.peers[m];
        }
        if (first) {
            at = put_peer(d, m, &d->control.messages[n++], at);
        }
    }
    return n;
}

lierne_status lierne_delta_check_header(const lierne_delta *d, size_t m) {
    const lierne_delta_half *h = &d->recvs;
    const int64_t *header = &h->headers[LIERNE_DELTA_HEADER * m];
    int64_t n = (h->first[m + 1] - h->first[m]) * (int64_t)d->per;
    bool base =
        header[LIERNE_DELTA_BASE] == LIERNE_DELTA_UNKNOWN || header[LIERNE_DELTA_BASE] == d->held;
    if (header[LIERNE_DELTA_VERSION] == d->version && base && header[LIERNE_DELTA_ELEMENTS] == n &&
        header[LIERNE_DELTA_BYTES] >= 0 && header[LIERNE_DELTA_BYTES] <= h->at[m + 1] - h->at[m]) {
        return LIERNE_OK;
    }
    return LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                       "rank %d: rank %d sends version %lld of %lld elements from version %lld on, "
                       "in %lld bytes; version %lld of %lld from version %lld on was to come",
                       d->context->rank, h->peers[m], (long long)header[LIERNE_DELTA_VERSION],
                       (long long)header[LIERNE_DELTA_ELEMENTS],
                       (long long)header[LIERNE_DELTA_BASE], (long long)header[LIERNE_DELTA_BYTES],
                       (long long)d->version, (long long)n, (long long)d->held);
}

/* Message m, from word *at of what its peer sent; moves *at behind it. */
static lierne_status take_message(lierne_delta *d, size_t m, const lierne_control_message *from,
                                  size_t *at) {
    lierne_delta_half *h = &d->recvs;
    int64_t *header = &h->headers[LIERNE_DELTA_HEADER * m];
    bool whole = from->count - *at >= LIERNE_DELTA_HEADER;
    if (whole) {
        memcpy(header, from->words + *at, LIERNE_DELTA_HEADER * WORD);
        *at += LIERNE_DELTA_HEADER;
        LIERNE_TRY(lierne_delta_check_header(d, m));
        whole = from->count - *at >= words_of(header[LIERNE_DELTA_BYTES]);
    }
    if (!whole) {
        return LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                           "rank %d: rank %d sends %zu words, which is too few", d->context->rank,
                           from->peer, from->count);
    }
    memcpy(h->bytes + h->at[m], from->words + *at, (size_t)header[LIERNE_DELTA_BYTES]);
    *at += words_of(header[LIERNE_DELTA_BYTES]);
    return LIERNE_OK;
}

static lierne_status take_messages(lierne_delta *d, const lierne_control_messages *received) {
    size_t taken = 0;
    for (size_t i = 0; i < received->count; i++) {
        size_t at = 0;
        for (size_t m = 0; m < d->recvs.n; m++) {
            if (d->recvs.peers[m] == received->at[i].peer) {
                LIERNE_TRY(take_message(d, m, &received->at[i], &at));
                taken++;
            }
        }
    }
    return taken == d->recvs.n
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_MISMATCH, "rank %d: %zu of %zu messages came",
                             d->context->rank, taken, d->recvs.n);
}

lierne_status lierne_delta_exchange_control(lierne_delta *d) {
    lierne_control_messages received = {0};
    LIERNE_TRY(exchange(d, put_messages(d), &received));
    lierne_status status = take_messages(d, &received);
    lierne_control_messages_destroy(&received);
    return status == LIERNE_OK ? LIERNE_OK : lierne_context_kill(d->context, status);
}
