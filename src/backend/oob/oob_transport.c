/* Each message is one request of the caller's. Requests in flight are one array without gaps,
 * because each poll tests all of them. */
#include "backend/oob/oob_transport.h"

typedef struct message {
    void *request;
    size_t slot;
    size_t bytes;
    int peer;
    int tag;
    bool receives;
} message;

typedef struct batch {
    lierne_oob_state *state;
    size_t count; /* in flight */
    message messages[];
} batch;

static bool reaches(void *self, int peer) {
    const lierne_oob_state *s = self;
    (void)peer;
    return s->calls.send != NULL;
}

static lierne_status batch_create(void *self, size_t capacity, void **out) {
    batch *b;
    LIERNE_TRY(lierne_alloc(&b, 1, sizeof *b + capacity * sizeof b->messages[0]));
    b->state = self;
    *out = b;
    return LIERNE_OK;
}

static bool withdraw_oob(void *self) {
    batch *b = self;
    bool quiet = true;
    for (size_t i = 0; i < b->count; i++) {
        quiet &= lierne_oob_end(b->state, b->messages[i].request, false);
    }
    b->count = 0;
    return quiet;
}

static lierne_status fail_message(const batch *b, const message *m, int code) {
    const lierne_oob_state *s = b->state;
    return s->hooks
               ? lierne_oob_failed(s, code, "")
               : LIERNE_FAIL(LIERNE_ERR_TRANSPORT,
                             "rank %d: %s rank %d %zu bytes with tag %d: the caller's function "
                             "returned %d",
                             lierne_oob_name(s, s->rank),
                             m->receives ? "receiving from" : "sending to",
                             lierne_oob_name(s, m->peer), m->bytes, m->tag, code);
}

static lierne_status start_message(batch *b, int match, const lierne_posting *p) {
    const lierne_oob_calls *calls = &b->state->calls;
    message m = {
        .slot = p->slot, .bytes = p->bytes, .peer = p->peer, .tag = match, .receives = p->receives};
    int code = p->receives
                   ? calls->receive(&m.request, p->data, p->bytes, m.peer, m.tag, calls->user)
                   : calls->send(&m.request, p->data, p->bytes, m.peer, m.tag, calls->user);
    if (code != 0) {
        return fail_message(b, &m, code);
    }
    b->messages[b->count++] = m;
    return LIERNE_OK;
}

static lierne_status post_oob(void *self, int match, const lierne_posting *postings, size_t n) {
    for (size_t i = 0; i < n; i++) {
        LIERNE_TRY(start_message(self, match, &postings[i]));
    }
    return LIERNE_OK;
}

/* What fails stays in the batch, for withdraw. */
static lierne_status poll_messages(void *self, size_t *done, size_t *ndone) {
    batch *b = self;
    const lierne_oob_calls *calls = &b->state->calls;
    size_t kept = 0;
    *ndone = 0;
    if (b->count > 0 && b->state->hooks) {
        b->state->hooks->progress(calls->user);
    }
    for (size_t i = 0; i < b->count; i++) {
        const message *m = &b->messages[i];
        int code = m->request ? calls->test(m->request, calls->user) : 0;
        if (code == 0) {
            lierne_oob_end(b->state, m->request, true);
            done[(*ndone)++] = m->slot;
            continue;
        }
        b->messages[kept++] = *m;
        if (code != 1) {
            lierne_status status = fail_message(b, m, code);
            while (++i < b->count) {
                b->messages[kept++] = b->messages[i];
            }
            b->count = kept;
            return status;
        }
    }
    b->count = kept;
    return LIERNE_OK;
}

const lierne_transport lierne_oob_transport = {
    .name = "oob",
    .close = lierne_transport_close_nothing,
    .print = lierne_transport_print_nothing,
    .reaches = reaches,
    .batch_create = batch_create,
    .withdraw = withdraw_oob,
    .batch_destroy = lierne_mem_free,
    .post = post_oob,
    .poll = poll_messages,
};

const lierne_transport lierne_socket_transport = {
    .name = "socket",
    .close = lierne_transport_close_nothing,
    .print = lierne_transport_print_nothing,
    .reaches = lierne_transport_reaches_all,
    .batch_create = batch_create,
    .withdraw = withdraw_oob,
    .batch_destroy = lierne_mem_free,
    .post = post_oob,
    .poll = poll_messages,
};
