/* The messages of a batch: on the stream of the call, in this order, sends are copied into their
 * mailboxes and receives out of the peers'. Execution itself packs into mailboxes, and unpacks from
 * them, what is scattered; flags are set and awaited around that.
 *
 * A rank fills all mailboxes of a stage before it waits for any that others fill, and it waits for
 * a mailbox to be emptied only by a call before this one. As calls have the same order on every
 * rank (ordered), the earliest stage that is not complete on some rank can always go on: no rank
 * waits forever.
 *
 * Requests of a plan are taken in an order of this rank's own, so mailboxes belong to calls, not to
 * requests: with n requests, call k of a direction uses mailbox k mod n of each message, at both
 * ends.
 *
 * A mailbox and its flag belong to one message, and so to one plan and its group: calls of two
 * groups share none, and the order that they have is that of their streams. */
#include "backend/cuda/ipc_transport.h"

#include "runtime/transport/posted.h"

#include <stdio.h>

typedef struct message {
    int peer;
    bool sends;
    lierne_ipc_place own; /* of a send: the mailbox of this execution */
    size_t space;         /* bytes that it has space for */
    char **at;            /* of each execution's mailbox, in this process */
    size_t n;
} message;

typedef struct batch {
    lierne_ipc *ipc;
    void *stream;
    lierne_posted posted;
    size_t capacity;
    message messages[];
} batch;

static bool reaches(void *self, int peer) {
    return ((lierne_ipc *)self)->peers[peer].chunks != NULL;
}

static void batch_destroy(void *self) {
    batch *b = self;
    for (size_t i = 0; i < b->capacity; i++) {
        message *m = &b->messages[i];
        lierne_mem_free(m->at);
        if (m->sends) {
            lierne_ipc_retire_mailbox(b->ipc, &m->own);
        }
    }
    b->ipc->batches--;
    lierne_mem_free(b->posted.slots);
    lierne_mem_free(b);
}

static lierne_status batch_create(void *self, size_t capacity, void **out) {
    batch *b;
    LIERNE_TRY(lierne_alloc(&b, 1, sizeof *b + capacity * sizeof b->messages[0]));
    b->ipc = self;
    b->ipc->batches++;
    b->capacity = capacity;
    lierne_status status = lierne_alloc(&b->posted.slots, capacity, sizeof *b->posted.slots);
    if (status != LIERNE_OK) {
        batch_destroy(b);
        return status;
    }
    *out = b;
    return LIERNE_OK;
}

/* What is enqueued touches windows and this rank's own buffers only. */
static bool withdraw_ipc(void *self) {
    ((batch *)self)->posted.n = 0;
    return true;
}

static void set_stream(void *self, void *stream) {
    ((batch *)self)->stream = stream;
}

/* Mailboxes connect ranks, and no message. */
static bool *met_none(void *self) {
    (void)self;
    return NULL;
}

/* A mailbox of its own for every message that this execution sends. */
static lierne_status describe_mailbox(void *self, const lierne_posting *p, lierne_record *record) {
    batch *b = self;
    message *m = &b->messages[p->slot];
    m->peer = p->peer;
    if (p->receives) {
        return LIERNE_OK;
    }
    if (m->sends && p->bytes > m->space) {
        lierne_ipc_retire_mailbox(b->ipc, &m->own);
        m->sends = false;
    }
    if (!m->sends) {
        LIERNE_TRY(lierne_ipc_take_mailbox(b->ipc, &m->own, p->bytes));
        m->sends = true;
        m->space = p->bytes;
    }
    *record = (lierne_record){{m->own.chunk, m->own.offset}};
    return LIERNE_OK;
}

/* Both ends have the mailboxes of all executions of the sender. */
static lierne_status connect_one(const batch *b, message *m, const lierne_remote *remote) {
    bool sends = m->sends;
    const lierne_record *records = sends ? remote->own : remote->records;
    lierne_mem_free(m->at);
    m->at = NULL;
    m->n = sends ? remote->nown : remote->nrecords;
    LIERNE_TRY(lierne_alloc(&m->at, m->n, sizeof *m->at));
    for (size_t k = 0; k < m->n; k++) {
        const lierne_ipc_place place = {records[k].words[0], records[k].words[1]};
        if (sends) {
            m->at[k] = lierne_ipc_own_address(b->ipc, &place);
        } else {
            LIERNE_TRY(lierne_ipc_peer_address(&m->at[k], b->ipc, m->peer, &place));
        }
    }
    return LIERNE_OK;
}

static lierne_status connect_ends(void *self, const lierne_remote *remotes, size_t n) {
    batch *b = self;
    for (size_t i = 0; i < n; i++) {
        LIERNE_TRY(connect_one(b, &b->messages[i], &remotes[i]));
    }
    return LIERNE_OK;
}

static uint32_t key_of(int match) {
    return (uint32_t)match + 1;
}

static char *mailbox_of(const batch *b, int match, const lierne_posting *p) {
    const message *m = &b->messages[p->slot];
    return m->at[(size_t)match % m->n];
}

/* Messages, by who moves them. */
typedef enum which { COPIED = 1, PACKED = 2, ALL = COPIED | PACKED } which;

/* Both ends know that a message has no bytes. */
static bool is_one(const lierne_posting *p, which of) {
    return p->bytes > 0 && (of & (p->in_window ? PACKED : COPIED));
}

/* Waits for, or sets, the flags of messages of one direction. */
static lierne_status run_flags(const batch *b, int match, const lierne_posting *postings, size_t n,
                               which of, bool waits, uint32_t value) {
    const lierne_ipc *ipc = b->ipc;
    lierne_ipc_step step = lierne_ipc_begin_step(ipc, waits);
    for (size_t i = 0; i < n; i++) {
        const lierne_posting *p = &postings[i];
        if (is_one(p, of)) {
            lierne_ipc_add_flag(&step, ipc, (uint32_t *)(void *)mailbox_of(b, match, p), p->peer,
                                value);
        }
    }
    return step.n ? ipc->driver->run(&step, b->stream, ipc->device) : LIERNE_OK;
}

static lierne_status copy_message(const batch *b, int match, const lierne_posting *p) {
    lierne_ipc *ipc = b->ipc;
    if (p->bytes == 0) {
        return LIERNE_OK;
    }
    ipc->sent += !p->receives;
    ipc->bytes += p->receives ? 0 : p->bytes;
    if (p->in_window) {
        return LIERNE_OK;
    }
    char *slot = mailbox_of(b, match, p) + LIERNE_IPC_SLOT;
    return ipc->driver->copy(p->receives ? p->data : slot, p->receives ? slot : p->data, p->bytes,
                             b->stream, ipc->device);
}

/* Messages of one direction, as many as the flags of a step. */
static lierne_status post_few(const batch *b, int match, const lierne_posting *postings, size_t n) {
    bool receives = postings[0].receives;
    uint32_t full = key_of(match);
    which awaited = receives ? ALL : COPIED, set = receives ? COPIED : ALL;
    LIERNE_TRY(run_flags(b, match, postings, n, awaited, true, receives ? full : 0));
    for (size_t i = 0; i < n; i++) {
        LIERNE_TRY(copy_message(b, match, &postings[i]));
    }
    return run_flags(b, match, postings, n, set, false, receives ? 0 : full);
}

/* Mailboxes that this rank packs into are empty. */
static lierne_status await_few(const batch *b, int match, const lierne_posting *postings,
                               size_t n) {
    return run_flags(b, match, postings, n, PACKED, true, 0);
}

/* Mailboxes that this rank has unpacked are empty again. */
static lierne_status empty_few(const batch *b, int match, const lierne_posting *postings,
                               size_t n) {
    return run_flags(b, match, postings, n, PACKED, false, 0);
}

typedef lierne_status act_on_few(const batch *b, int match, const lierne_posting *postings,
                                 size_t n);

/* Runs of messages of one direction; a phase has its receives first. */
static lierne_status for_direction(const batch *b, int match, const lierne_posting *postings,
                                   size_t n, bool receives, act_on_few *act) {
    for (size_t first = 0, end; first < n; first = end) {
        for (end = first; end < n && end - first < LIERNE_IPC_FLAGS &&
                          postings[end].receives == postings[first].receives;) {
            end++;
        }
        if (postings[first].receives == receives) {
            LIERNE_TRY(act(b, match, &postings[first], end - first));
        }
    }
    return LIERNE_OK;
}

static char *window_at(void *self, size_t slot) {
    return ((batch *)self)->messages[slot].at[0] + LIERNE_IPC_SLOT;
}

static lierne_status before_packing(void *self, int match, const lierne_posting *postings,
                                    size_t n) {
    const batch *b = self;
    LIERNE_TRY(lierne_ipc_check(b->ipc));
    LIERNE_TRY(for_direction(b, match, postings, n, false, await_few));
    return lierne_ipc_check(b->ipc);
}

static lierne_status after_unpacking(void *self, int match, const lierne_posting *postings,
                                     size_t n) {
    const batch *b = self;
    LIERNE_TRY(for_direction(b, match, postings, n, true, empty_few));
    return lierne_ipc_check(b->ipc);
}

static lierne_status post_ipc(void *self, int match, const lierne_posting *postings, size_t n) {
    batch *b = self;
    LIERNE_TRY(lierne_ipc_check(b->ipc));
    lierne_posted_add(&b->posted, postings, n);
    LIERNE_TRY(for_direction(b, match, postings, n, false, post_few));
    LIERNE_TRY(for_direction(b, match, postings, n, true, post_few));
    return lierne_ipc_check(b->ipc);
}

static lierne_status poll_posted(void *self, size_t *done, size_t *ndone) {
    lierne_posted_take(&((batch *)self)->posted, done, ndone);
    return LIERNE_OK;
}

/* The context's: nothing in it orders messages of two groups. */
static lierne_status group_create(void *self, const lierne_transport_group *group, double timeout,
                                  void **state) {
    (void)group, (void)timeout;
    *state = self;
    return LIERNE_OK;
}

static lierne_status group_destroy(void *state, double timeout, bool alone) {
    (void)state, (void)timeout, (void)alone;
    return LIERNE_OK;
}

static lierne_status check_ipc(void *self) {
    LIERNE_TRY(lierne_ipc_check(self));
    return lierne_ipc_check_peers(self);
}

/* Steps that wait see it, mark the window as broken, and end. */
static void end_steps(void *self) {
    lierne_ipc_store(&((lierne_ipc *)self)->words->abort, 1);
}

static int ended_by(void *self) {
    uint64_t failure = lierne_ipc_load_failure(&((lierne_ipc *)self)->words->failure);
    return failure % 4 == LIERNE_IPC_GAVE_UP ? (int)(failure / 4) : -1;
}

static void leave(void *self) {
    lierne_ipc *ipc = self;
    lierne_ipc_leave(ipc);
    ipc->left = lierne_ipc_load_failure(&ipc->words->failure) == 0;
}

static void close_state(void *self) {
    lierne_ipc_destroy(self);
}

static void print_ipc(const void *self, char *text, size_t size) {
    const lierne_ipc *ipc = self;
    int peers = 0;
    for (int r = 0; r < ipc->world; r++) {
        peers += ipc->peers[r].chunks != NULL;
    }
    snprintf(text, size,
             "%d peers; sent %llu messages, %llu bytes copied into the window, shared by %s", peers,
             (unsigned long long)ipc->sent, (unsigned long long)ipc->bytes, ipc->driver->shares);
}

static const lierne_transport_connects connects = {.describe = describe_mailbox,
                                                   .connect = connect_ends};
static const lierne_transport_windows windows = {.at = window_at,
                                                 .before_packing = before_packing,
                                                 .after_unpacking = after_unpacking};
static const lierne_transport_streams streams = {.set = set_stream, .met = met_none};
static const lierne_transport_groups groups = {.create = group_create, .destroy = group_destroy};
static const lierne_transport_watched watched = {.check = check_ipc,
                                                 .abort = end_steps,
                                                 .ended_by = ended_by};

const lierne_transport lierne_ipc_transport = {
    .name = "ipc",
    .ordered = true,
    .close = close_state,
    .leave = leave,
    .print = print_ipc,
    .reaches = reaches,
    .batch_create = batch_create,
    .withdraw = withdraw_ipc,
    .batch_destroy = batch_destroy,
    .post = post_ipc,
    .poll = poll_posted,
    .connects = &connects,
    .windows = &windows,
    .streams = &streams,
    .watched = &watched,
    .groups = &groups,
    .rounds = &lierne_ipc_rounds,
};
