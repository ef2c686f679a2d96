/* The sparse exchange over the caller's functions.
 *
 * Nothing tells a rank who sends to it but an all-gather. So each rank writes a stream of words,
 * for every message its peer and its length, and the streams are gathered page by page; each rank
 * picks what is for it. With send and receive, the messages then go to their receivers only;
 * without them they are part of the streams.
 *
 * A rank that has no memory for what it receives says so before anything is sent, and its senders
 * leave it out. All receives are posted before a rank waits for a send, so that sends, a few at a
 * time, need no memory and cannot wait for each other in a circle. */
#include "backend/oob/oob_state.h"

#include <string.h>

#define WINDOW       32 /* sends in flight */
#define HEADER_WORDS 2

typedef struct exchange {
    lierne_oob_state *state;
    const lierne_control_message *messages;
    size_t nmessages;
    lierne_control_messages *received;
    bool direct;    /* messages are sent, and the streams have headers only */
    size_t written; /* message that the stream of this rank has reached */
    size_t offset;  /* word of it, from its header on */
    lierne_status memory;
    void **receives; /* requests of received messages; NULL: none, or ended */
    void *sends[WINDOW];
    size_t active; /* requests in flight */
} exchange;

static size_t stream_words(const exchange *x, size_t message) {
    return HEADER_WORDS + (x->direct ? 0 : x->messages[message].count);
}

/* Writes the next words of the stream to the page. */
static void write_page(exchange *x, int64_t *page, size_t words) {
    for (size_t n = 0; n < words && x->written < x->nmessages;) {
        const lierne_control_message *m = &x->messages[x->written];
        const int64_t header[HEADER_WORDS] = {m->peer, (int64_t)m->count};
        bool in_header = x->offset < HEADER_WORDS;
        size_t at = in_header ? x->offset : x->offset - HEADER_WORDS;
        size_t left = in_header ? HEADER_WORDS - at : m->count - at;
        size_t take = left < words - n ? left : words - n;
        if (take > 0) {
            memcpy(page + n, (in_header ? header : m->words) + at, take * sizeof *page);
        }
        n += take;
        x->offset += take;
        if (x->offset == stream_words(x, x->written)) {
            x->written++;
            x->offset = 0;
        }
    }
}

/* Reserves memory for the message whose header a cursor has read, if it is for this rank. */
static void begin_message(exchange *x, lierne_oob_cursor *c, int from) {
    size_t count = (size_t)c->header[1];
    c->left = x->direct ? 0 : c->header[1];
    c->to = NULL;
    if (c->header[0] == x->state->rank && x->memory == LIERNE_OK) {
        x->memory = lierne_control_messages_add(x->received, from, count);
        c->to = x->memory == LIERNE_OK ? x->received->at[x->received->count - 1].words : NULL;
    }
    c->have = c->left > 0 ? HEADER_WORDS : 0;
}

static void read_page(exchange *x, lierne_oob_cursor *c, int from, const int64_t *page,
                      size_t words) {
    for (size_t n = 0; n < words;) {
        if (c->have < HEADER_WORDS) {
            c->header[c->have++] = page[n++];
            if (c->have == HEADER_WORDS) {
                begin_message(x, c, from);
            }
            continue;
        }
        size_t take = (size_t)c->left < words - n ? (size_t)c->left : words - n;
        if (c->to) {
            memcpy(c->to, page + n, take * sizeof *page);
            c->to += take;
        }
        n += take;
        c->left -= (int64_t)take;
        c->have = c->left > 0 ? HEADER_WORDS : 0;
    }
}

/* Gathers the streams; every rank knows the length of each of them. */
static lierne_status gather_streams(exchange *x) {
    lierne_oob_state *s = x->state;
    size_t most = 0, per_page = s->page_bytes / sizeof(int64_t);
    for (int r = 0; r < s->world; r++) {
        size_t count = (size_t)s->records[r].count;
        most = count > most ? count : most;
    }
    memset(s->cursors, 0, (size_t)s->world * sizeof *s->cursors);
    for (size_t at = 0; at < most; at += per_page) {
        size_t words = most - at < per_page ? most - at : per_page;
        write_page(x, (int64_t *)s->page, words);
        LIERNE_TRY(lierne_oob_gather(s, s->page, s->pages, words * sizeof(int64_t), "planning"));
        for (int r = 0; r < s->world; r++) {
            size_t count = (size_t)s->records[r].count, left = count > at ? count - at : 0;
            read_page(x, &s->cursors[r], r, (const int64_t *)s->pages + (size_t)r * words,
                      left < words ? left : words);
        }
    }
    return LIERNE_OK;
}

/* Ends a request that has completed. */
static lierne_status test_request(exchange *x, void **request, bool *moved) {
    lierne_oob_state *s = x->state;
    int code = s->calls.test(*request, s->calls.user);
    if (code == 1) {
        return LIERNE_OK;
    }
    if (code != 0) {
        return lierne_oob_failed(s, code, "planning");
    }
    lierne_oob_end(s, *request, true);
    *request = NULL;
    x->active--;
    *moved = true;
    return LIERNE_OK;
}

static lierne_status test_requests(exchange *x, void **requests, size_t n, bool *moved) {
    for (size_t i = 0; i < n; i++) {
        if (requests[i]) {
            LIERNE_TRY(test_request(x, &requests[i], moved));
        }
    }
    return LIERNE_OK;
}

static lierne_status post_receives(exchange *x) {
    lierne_oob_state *s = x->state;
    for (size_t i = 0; x->memory == LIERNE_OK && i < x->received->count; i++) {
        lierne_control_message *m = &x->received->at[i];
        if (m->peer == s->rank) {
            continue; /* copied */
        }
        int code = s->calls.receive(&x->receives[i], m->words, m->count * sizeof *m->words, m->peer,
                                    LIERNE_OOB_CONTROL_TAG, s->calls.user);
        if (code != 0) {
            return lierne_oob_failed(s, code, "planning");
        }
        x->active += x->receives[i] != NULL;
    }
    return LIERNE_OK;
}

static void copy_own(exchange *x, const lierne_control_message *m) {
    for (size_t i = 0; x->memory == LIERNE_OK && i < x->received->count; i++) {
        if (x->received->at[i].peer == x->state->rank && m->count > 0) {
            memcpy(x->received->at[i].words, m->words, m->count * sizeof *m->words);
        }
    }
}

/* Sends to a rank that has memory, or copies to this one. */
static lierne_status send_message(exchange *x, const lierne_control_message *m, void **request) {
    lierne_oob_state *s = x->state;
    if (m->peer == s->rank) {
        copy_own(x, m);
        return LIERNE_OK;
    }
    if (s->records[m->peer].status != LIERNE_OK) {
        return LIERNE_OK;
    }
    int code = s->calls.send(request, m->words, m->count * sizeof *m->words, m->peer,
                             LIERNE_OOB_CONTROL_TAG, s->calls.user);
    if (code != 0) {
        return lierne_oob_failed(s, code, "planning");
    }
    x->active += *request != NULL;
    return LIERNE_OK;
}

static lierne_status send_all(exchange *x) {
    size_t next = 0;
    while (next < x->nmessages || x->active > 0) {
        bool moved = false;
        if (x->state->hooks) {
            x->state->hooks->progress(x->state->calls.user);
        }
        for (int i = 0; i < WINDOW && next < x->nmessages; i++) {
            if (!x->sends[i]) {
                LIERNE_TRY(send_message(x, &x->messages[next++], &x->sends[i]));
                moved = true;
            }
        }
        LIERNE_TRY(test_requests(x, x->sends, WINDOW, &moved));
        if (x->receives) {
            LIERNE_TRY(test_requests(x, x->receives, x->received->count, &moved));
        }
        if (!moved) {
            LIERNE_TRY(lierne_oob_pause(x->state, "planning"));
        }
    }
    return lierne_oob_check_given_up(x->state);
}

/* Ranks first learn who has memory. */
static lierne_status exchange_directly(exchange *x) {
    lierne_oob_state *s = x->state;
    if (x->memory == LIERNE_OK) {
        x->memory = lierne_alloc(&x->receives, x->received->count, sizeof *x->receives);
    }
    s->mine = (lierne_oob_record){.kind = LIERNE_OOB_EXCHANGE, .status = x->memory};
    LIERNE_TRY(lierne_oob_gather(s, &s->mine, s->records, sizeof s->mine, "planning"));
    LIERNE_TRY(post_receives(x));
    return send_all(x);
}

/* The caller's functions may still use the buffers of requests that cannot be taken back: those are
 * never freed. */
static void abandon(exchange *x) {
    for (int i = 0; i < WINDOW; i++) {
        x->state->pending_buffers |= !lierne_oob_end(x->state, x->sends[i], false);
    }
    for (size_t i = 0; x->receives && i < x->received->count; i++) {
        if (!lierne_oob_end(x->state, x->receives[i], false)) {
            x->received->at[i].words = NULL;
        }
    }
}

lierne_status lierne_oob_sparse_exchange(void *state, const lierne_control_message *messages,
                                         size_t n, lierne_control_messages *received) {
    lierne_oob_state *s = state;
    exchange x = {.state = s,
                  .messages = messages,
                  .nmessages = n,
                  .received = received,
                  .direct = s->calls.send != NULL};
    s->mine = (lierne_oob_record){0};
    for (size_t i = 0; i < n; i++) {
        s->mine.count += (int64_t)stream_words(&x, i);
    }
    lierne_status status = lierne_oob_begin(s, LIERNE_OOB_EXCHANGE);
    if (status == LIERNE_OK) {
        status = gather_streams(&x);
    }
    if (status == LIERNE_OK && x.direct) {
        status = exchange_directly(&x);
    }
    if (status != LIERNE_OK) {
        abandon(&x);
    }
    status = status == LIERNE_OK ? x.memory : status;
    lierne_mem_free(x.receives);
    if (status != LIERNE_OK) {
        lierne_control_messages_destroy(received);
        return status;
    }
    lierne_control_messages_sort(received);
    return LIERNE_OK;
}
