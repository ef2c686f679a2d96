/* All but describe and connect is called with the lock of the simulated world held. A message is
 * put into a list of the receiver's; the receiver finds it there some polls later. What an exposed
 * message shows is read only when the receiver copies it, so a sender that writes too early is
 * seen. A connected receiver takes messages of the slots that the plan connected it with, and has
 * the sender's blocks from there: a message brings addresses alone. */
#include "transports.h"
#include "connected.h"

#include "backend/sim/sim_world.h"
#include "runtime/context/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RANKS 256 /* of a world that gets them: their memory grows with the square */

enum { SHOW, PACK, MOVE }; /* ways of a message between connected ends */

typedef struct message {
    struct message *next;
    int from, to, match, way;
    const void *sender; /* its slot */
    unsigned ticket;    /* of a transport without match ids: its place among those of the pair */
    int polls; /* left, until the receiver finds it; few, for a world in which nothing moves sleeps
                */
    bool taken, released;
    size_t bytes;
    unsigned char *data;
    lierne_part *parts;
    lierne_block *blocks; /* of parts that are packed in data */
} message;

typedef struct test_rank {
    struct test_transports *world;
    int rank;
    lierne_sim_rank *sim;
    message *mailbox;
    unsigned *sent, *received; /* tickets given to messages to and from each rank */
    int fail_at;               /* connects until one fails */
} test_rank;

struct test_transports {
    int n;
    test_pairs pairs;
    unsigned random;
    size_t count[3]; /* messages between connected ends, by their way */
    test_rank *ranks;
};

typedef struct slot {
    bool used, receives;
    int peer, match;
    unsigned ticket;
    size_t bytes;
    void *data;
    const lierne_part *own;
    message *message;
} slot;

typedef struct batch {
    test_rank *rank;
    size_t capacity;
    test_end *ends; /* of each slot; NULL: of a transport that does not connect */
    slot slots[];
} batch;

void *test_transport_memory(size_t n, size_t size) {
    void *memory = calloc(n + 1, size);
    if (!memory) {
        fprintf(stderr, "no memory for a transport of the tests\n");
        exit(2);
    }
    return memory;
}

static void wake(const test_rank *r) {
    r->sim->world->dirty = true;
}

static lierne_status batch_create(void *self, size_t capacity, void **out) {
    batch *b = test_transport_memory(1, sizeof *b + capacity * sizeof b->slots[0]);
    b->rank = self;
    b->capacity = capacity;
    *out = b;
    return LIERNE_OK;
}

static lierne_status batch_create_connected(void *self, size_t capacity, void **out) {
    LIERNE_TRY(batch_create(self, capacity, out));
    ((batch *)*out)->ends = test_transport_memory(capacity, sizeof(test_end));
    return LIERNE_OK;
}

static void batch_destroy(void *self) {
    batch *b = self;
    for (size_t i = 0; b->ends && i < b->capacity; i++) {
        free(b->ends[i].shown);
    }
    free(b->ends);
    free(b);
}

static void unlink_message(test_rank *r, const message *m) {
    for (message **at = &r->mailbox; *at; at = &(*at)->next) {
        if (*at == m) {
            *at = m->next;
            return;
        }
    }
}

static void free_message(message *m) {
    free(m->data);
    free(m->parts);
    free(m->blocks);
    free(m);
}

static bool withdraw(void *self) {
    batch *b = self;
    for (size_t i = 0; i < b->capacity; i++) {
        message *m = b->slots[i].message;
        if (b->slots[i].used && !b->slots[i].receives && m) {
            unlink_message(&b->rank->world->ranks[b->slots[i].peer], m);
            free_message(m);
        }
        b->slots[i].used = false;
    }
    return true;
}

static void append(test_rank *to, message *m) {
    message **at = &to->mailbox;
    while (*at) {
        at = &(*at)->next;
    }
    *at = m;
}

static unsigned draw(test_transports *t, unsigned n) {
    t->random = t->random * 1103515245u + 12345u;
    return (t->random >> 16) % n;
}

static message *message_of(const batch *b, int match, const lierne_posting *p) {
    test_rank *from = b->rank;
    message *m = test_transport_memory(1, sizeof *m);
    *m = (message){.from = from->rank,
                   .sender = &b->slots[p->slot],
                   .to = p->peer,
                   .match = match,
                   .ticket = from->sent[p->peer]++,
                   .polls = draw(from->world, 4) == 0,
                   .bytes = p->bytes};
    append(&from->world->ranks[p->peer], m);
    wake(from);
    return m;
}

static void receive(batch *b, int match, const lierne_posting *p) {
    b->slots[p->slot] = (slot){.used = true,
                               .receives = true,
                               .peer = p->peer,
                               .match = match,
                               .ticket = b->rank->received[p->peer]++,
                               .bytes = p->bytes,
                               .data = p->data,
                               .own = p->parts};
}

/* A copy of all parts becomes what the message shows. */
static void pack(message *m, size_t n) {
    size_t at = 0;
    m->data = test_transport_memory(m->bytes, 1);
    m->blocks = test_transport_memory(n, sizeof *m->blocks);
    for (size_t i = 0; i < n; i++) {
        const lierne_part from = m->parts[i];
        m->blocks[i] = lierne_block_range(0, (int64_t)(test_part_bytes(&from) / from.size));
        m->parts[i] = (lierne_part){.base = m->data + at,
                                    .size = from.size,
                                    .blocks = &m->blocks[i],
                                    .nblocks = 1};
        test_part_copy(&m->parts[i], &from);
        at += test_part_bytes(&from);
    }
}

static lierne_status expose(void *self, int match, const lierne_posting *postings, size_t n) {
    batch *b = self;
    for (size_t i = 0; i < n; i++) {
        const lierne_posting *p = &postings[i];
        if (p->receives) {
            receive(b, match, p);
            continue;
        }
        message *m = message_of(b, match, p);
        m->parts = test_transport_memory(p->nparts, sizeof *m->parts);
        memcpy(m->parts, p->parts, p->nparts * sizeof *m->parts);
        if (b->ends) {
            m->way = (int)draw(b->rank->world, 3);
            m->way == PACK ? pack(m, p->nparts) : (void)0;
        }
        b->slots[p->slot] = (slot){.used = true, .peer = p->peer, .message = m};
    }
    return LIERNE_OK;
}

/* Sends are complete at the next poll: their bytes are copies. */
static lierne_status copy(void *self, int match, const lierne_posting *postings, size_t n) {
    batch *b = self;
    for (size_t i = 0; i < n; i++) {
        const lierne_posting *p = &postings[i];
        if (p->receives) {
            receive(b, match, p);
            continue;
        }
        message *m = message_of(b, match, p);
        m->data = test_transport_memory(p->bytes, 1);
        memcpy(m->data, p->data, p->bytes);
        b->slots[p->slot] = (slot){.used = true, .peer = p->peer};
    }
    return LIERNE_OK;
}

static lierne_status check_size(const batch *b, const slot *s, const message *m) {
    return m->bytes == s->bytes ? LIERNE_OK
                                : LIERNE_FAIL(LIERNE_ERR_TRANSPORT,
                                              "rank %d expects %zu bytes from rank %d, got %zu",
                                              b->rank->rank, s->bytes, s->peer, m->bytes);
}

/* Messages of a pair and match id match in the order in which they were posted. */
static bool is_next(const batch *b, const slot *s) {
    for (size_t i = 0; i < b->capacity; i++) {
        const slot *t = &b->slots[i];
        if (t->used && t->receives && !t->message && t->peer == s->peer && t->match == s->match &&
            t->ticket < s->ticket) {
            return false;
        }
    }
    return true;
}

static message *find_exposed(const batch *b, const slot *s) {
    if (!is_next(b, s)) {
        return NULL;
    }
    for (message *m = b->rank->mailbox; m; m = m->next) {
        if (m->parts && !m->taken && m->from == s->peer && m->match == s->match &&
            (!b->ends || test_end_knows(&b->ends[s - b->slots], m->sender))) {
            return m->polls-- > 0 ? NULL : m;
        }
    }
    return NULL;
}

static const lierne_part *exposed(void *self, size_t i) {
    const batch *b = self;
    const message *m = b->slots[i].message;
    return m->way == MOVE ? NULL : b->ends && m->way == SHOW ? b->ends[i].shown : m->parts;
}

static void release(void *self, size_t i) {
    slot *s = &((batch *)self)->slots[i];
    s->message->released = true;
    s->used = false;
    wake(((batch *)self)->rank);
}

/* What a connected end shows has the blocks that the plan connected, or is written into place. */
static void take(batch *b, size_t i) {
    const slot *s = &b->slots[i];
    test_end *e = &b->ends[i];
    b->rank->world->count[s->message->way]++;
    for (size_t p = 0; p < e->remote.nparts && s->message->way != PACK; p++) {
        e->shown[p] = e->remote.parts[p];
        e->shown[p].base = s->message->parts[p].base;
        if (s->message->way == MOVE) {
            test_part_copy(&s->own[p], &e->shown[p]);
        }
    }
    if (s->message->way == MOVE) {
        release(b, i);
    }
}

static lierne_status poll_exposed(void *self, size_t *done, size_t *ndone) {
    batch *b = self;
    *ndone = 0;
    for (size_t i = 0; i < b->capacity; i++) {
        slot *s = &b->slots[i];
        if (s->used && !s->receives && s->message->released) {
            unlink_message(&b->rank->world->ranks[s->peer], s->message);
            free_message(s->message);
            s->used = false;
            done[(*ndone)++] = i;
        } else if (s->used && s->receives && !s->message) {
            s->message = find_exposed(b, s);
            if (s->message) {
                LIERNE_TRY(check_size(b, s, s->message));
                s->message->taken = true;
                done[(*ndone)++] = i;
                b->ends ? take(b, i) : (void)0;
            }
        }
    }
    return LIERNE_OK;
}

static lierne_status describe(void *self, const lierne_posting *p, lierne_record *record) {
    const batch *b = self;
    test_end_describe(&b->ends[p->slot], p, b->rank->rank, &b->slots[p->slot], record);
    return LIERNE_OK;
}

static lierne_status connect_slots(void *self, const lierne_remote *remotes, size_t n) {
    const batch *b = self;
    if (b->rank->fail_at > 0 && --b->rank->fail_at == 0) {
        return LIERNE_FAIL(LIERNE_ERR_NO_MEMORY, "rank %d cannot connect", b->rank->rank);
    }
    for (size_t i = 0; i < n; i++) {
        LIERNE_TRY(test_end_connect(&b->ends[i], &remotes[i], b->rank->rank));
        free(b->ends[i].shown);
        b->ends[i].shown = test_transport_memory(remotes[i].nparts, sizeof(lierne_part));
    }
    return LIERNE_OK;
}

static lierne_status expose_connected(void *self, int match, const lierne_posting *postings,
                                      size_t n) {
    const batch *b = self;
    for (size_t i = 0; i < n; i++) {
        if (!b->ends[postings[i].slot].shown) {
            return LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "rank %d: slot %zu is not connected",
                               b->rank->rank, postings[i].slot);
        }
    }
    return expose(self, match, postings, n);
}

static message *find_ticket(const batch *b, const slot *s) {
    for (message *m = b->rank->mailbox; m; m = m->next) {
        if (m->data && m->from == s->peer && m->ticket == s->ticket) {
            return m->polls-- > 0 ? NULL : m;
        }
    }
    return NULL;
}

static lierne_status poll_ordered(void *self, size_t *done, size_t *ndone) {
    batch *b = self;
    *ndone = 0;
    for (size_t i = 0; i < b->capacity; i++) {
        slot *s = &b->slots[i];
        message *m = s->used && s->receives ? find_ticket(b, s) : NULL;
        if (!s->used || (s->receives && !m)) {
            continue;
        }
        if (m) {
            LIERNE_TRY(check_size(b, s, m));
            memcpy(s->data, m->data, m->bytes);
            unlink_message(b->rank, m);
            free_message(m);
        }
        s->used = false;
        done[(*ndone)++] = i;
    }
    return LIERNE_OK;
}

static bool serves(const test_rank *r, unsigned mask, int peer) {
    return mask >> ((r->rank + peer) % 3) & 1;
}

static bool exposes_to(void *self, int peer) {
    const test_rank *r = self;
    return serves(r, r->world->pairs.exposed, peer);
}

static bool connects_to(void *self, int peer) {
    const test_rank *r = self;
    return serves(r, r->world->pairs.connected, peer);
}

static bool orders_to(void *self, int peer) {
    const test_rank *r = self;
    return serves(r, r->world->pairs.ordered, peer);
}

static const lierne_transport_exposes exposes = {.exposed = exposed, .release = release};
static const lierne_transport exposing = {.name = "exposing",
                                          .close = lierne_transport_close_nothing,
                                          .print = lierne_transport_print_nothing,
                                          .reaches = exposes_to,
                                          .batch_create = batch_create,
                                          .withdraw = withdraw,
                                          .batch_destroy = batch_destroy,
                                          .post = expose,
                                          .poll = poll_exposed,
                                          .exposes = &exposes};
static const lierne_transport_connects connects = {.describe = describe, .connect = connect_slots};
static const lierne_transport connected = {.name = "connected",
                                           .close = lierne_transport_close_nothing,
                                           .print = lierne_transport_print_nothing,
                                           .reaches = connects_to,
                                           .batch_create = batch_create_connected,
                                           .withdraw = withdraw,
                                           .batch_destroy = batch_destroy,
                                           .post = expose_connected,
                                           .poll = poll_exposed,
                                           .connects = &connects,
                                           .exposes = &exposes};
static const lierne_transport ordered = {.name = "ordered",
                                         .close = lierne_transport_close_nothing,
                                         .print = lierne_transport_print_nothing,
                                         .ordered = true,
                                         .reaches = orders_to,
                                         .batch_create = batch_create,
                                         .withdraw = withdraw,
                                         .batch_destroy = batch_destroy,
                                         .post = copy,
                                         .poll = poll_ordered};

test_transports *test_transports_attach(lierne_sim *sim, int n, test_pairs pairs) {
    test_transports *t = test_transport_memory(1, sizeof *t);
    *t = (test_transports){.n = n, .pairs = pairs, .random = 1};
    t->ranks = test_transport_memory((size_t)n, sizeof *t->ranks);
    for (int i = 0, rank = 0; i < n; rank++) {
        lierne_context *context = lierne_sim_get_context(sim, rank);
        if (!context) {
            continue; /* no member */
        }
        lierne_carrier base = context->carriers[0];
        t->ranks[i] = (test_rank){.world = t,
                                  .rank = i,
                                  .sim = context->control_self,
                                  .sent = test_transport_memory((size_t)n, sizeof(unsigned)),
                                  .received = test_transport_memory((size_t)n, sizeof(unsigned))};
        context->ncarriers = 0;
        const lierne_transport *const all[] = {&exposing, &ordered, &connected};
        const unsigned masks[] = {pairs.exposed, pairs.ordered, pairs.connected};
        for (int k = 0; k < 3; k++) {
            if (masks[k]) {
                lierne_context_add_transport(context, all[k], &t->ranks[i], NULL);
            }
        }
        lierne_context_add_transport(context, base.transport, base.self, NULL);
        i++;
    }
    return t;
}

test_transports *test_transports_attach_asked(lierne_sim *sim, int n) {
    const char *asked = getenv("LIERNE_TEST_TRANSPORTS");
    bool mixed = asked && strcmp(asked, "mixed") == 0 && n <= MOST_RANKS;
    return mixed ? test_transports_attach(sim, n, (test_pairs){.exposed = 1, .ordered = 2}) : NULL;
}

test_transports *test_transports_connect_asked(lierne_sim *sim, int n) {
    const char *asked = getenv("LIERNE_TEST_TRANSPORTS");
    bool asks = asked && strcmp(asked, "connected") == 0;
    return asks ? test_transports_attach(sim, n, (test_pairs){.connected = 3})
                : test_transports_attach_asked(sim, n);
}

void test_transports_count(const test_transports *t, size_t count[3]) {
    memcpy(count, t->count, sizeof t->count);
}

void test_transports_fail_connect(test_transports *t, int rank, int k) {
    t->ranks[rank].fail_at = k;
}

bool test_transports_destroy(test_transports *t) {
    bool empty = true;
    for (int r = 0; t && r < t->n; r++) {
        for (message *m = t->ranks[r].mailbox, *next; m; m = next) {
            next = m->next;
            empty = false;
            free_message(m);
        }
        free(t->ranks[r].sent);
        free(t->ranks[r].received);
    }
    free(t ? t->ranks : NULL);
    free(t);
    return empty;
}
