/* The transport of a simulated world, whose ranks are in one process. A send copies the payload
 * into the mailbox of the receiver, a receive copies it out. All calls hold the world's lock. */
#include "backend/sim/sim_transport.h"

#include "backend/sim/sim_world.h"

#include <string.h>

typedef struct slot {
    bool used;
    bool receives;
    int peer;
    int match;
    void *data;
    size_t bytes;
} slot;

typedef struct batch {
    lierne_sim_rank *rank;
    size_t capacity;
    slot slots[];
} batch;

static lierne_status batch_create(void *self, size_t capacity, void **out) {
    batch *b;
    LIERNE_TRY(lierne_alloc(&b, 1, sizeof *b + capacity * sizeof b->slots[0]));
    b->rank = self;
    b->capacity = capacity;
    *out = b;
    return LIERNE_OK;
}

static bool withdraw_sim(void *self) {
    (void)self; /* messages are copies */
    return true;
}

static lierne_status send_message(const batch *b, int match, const lierne_posting *p) {
    lierne_sim_message *m;
    LIERNE_TRY(lierne_alloc(&m, 1, sizeof *m + p->bytes));
    m->from = b->rank->rank;
    m->match = match;
    m->bytes = p->bytes;
    if (p->bytes) {
        memcpy(m->data, p->data, p->bytes);
    }
    lierne_status status = lierne_sim_mailbox_put(&b->rank->world->ranks[p->peer].mailbox, m);
    if (status != LIERNE_OK) {
        lierne_mem_free(m);
    }
    b->rank->world->dirty = true;
    return status;
}

static lierne_status post_sim(void *self, int match, const lierne_posting *postings, size_t n) {
    batch *b = self;
    for (size_t i = 0; i < n; i++) {
        const lierne_posting *p = &postings[i];
        if (!p->receives) {
            LIERNE_TRY(send_message(b, match, p));
        }
        b->slots[p->slot] = (slot){true, p->receives, p->peer, match, p->data, p->bytes};
    }
    return LIERNE_OK;
}

static lierne_status deliver(const batch *b, const slot *s, lierne_sim_message *m) {
    lierne_status status = LIERNE_OK;
    if (m->bytes != s->bytes) {
        status = LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                             "rank %d expects %zu bytes from rank %d and received %zu",
                             lierne_sim_name(b->rank->world, b->rank->rank), s->bytes,
                             lierne_sim_name(b->rank->world, s->peer), m->bytes);
    } else if (m->bytes) {
        memcpy(s->data, m->data, m->bytes);
    }
    lierne_mem_free(m);
    return status;
}

static lierne_status poll_messages(void *self, size_t *done, size_t *ndone) {
    batch *b = self;
    *ndone = 0;
    for (size_t i = 0; i < b->capacity; i++) {
        slot *s = &b->slots[i];
        if (!s->used) {
            continue;
        }
        if (s->receives) {
            lierne_sim_message *m = lierne_sim_mailbox_take(&b->rank->mailbox, s->peer, s->match);
            if (!m) {
                continue;
            }
            LIERNE_TRY(deliver(b, s, m));
        }
        s->used = false;
        done[(*ndone)++] = i;
    }
    return LIERNE_OK;
}

const lierne_transport lierne_sim_transport = {
    .name = "sim",
    .close = lierne_transport_close_nothing,
    .print = lierne_transport_print_nothing,
    .reaches = lierne_transport_reaches_all,
    .batch_create = batch_create,
    .withdraw = withdraw_sim,
    .batch_destroy = lierne_mem_free,
    .post = post_sim,
    .poll = poll_messages,
};
