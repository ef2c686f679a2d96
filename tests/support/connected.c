/* Every batch has a line per message, as shared memory would have a cache line: the sender writes
 * its line, the receiver's end looks at the lines of all executions that may hold the message. All
 * but describe and connect are called with the lock of the simulated world held. */
#include "connected.h"

#include "backend/sim/sim_world.h"
#include "runtime/context/context.h"
#include "runtime/memory/host.h"
#include "transports.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOW, PACK, MOVE };

typedef struct line {
    bool full, released;
    int match, way;
    unsigned late; /* the poll in which the receiver finds it */
    size_t bytes;
    const void **bases; /* of each part; where it is packed, of its copy */
    unsigned char *packed;
} line;

typedef struct connected_rank {
    struct test_connected *world;
    int rank;
    int fail_at; /* connects until one fails */
    lierne_sim_rank *sim;
    LIERNE_VEC(line *) lines; /* of all batches: peers may look at lines until the end */
    LIERNE_VEC(size_t) nlines;
} connected_rank;

struct test_connected {
    int n;
    unsigned pairs, random;
    size_t count[3];
    connected_rank *ranks;
};

typedef struct slot {
    bool used, receives;
    int peer, match;
    size_t bytes;
    const lierne_part *own; /* of a receive in flight */
    lierne_remote remote;
    lierne_part *shown; /* what exposed returns */
    lierne_block *packed;
    line *found;
} slot;

typedef struct batch {
    connected_rank *rank;
    size_t capacity;
    line *lines;
    slot slots[];
} batch;

static unsigned draw(test_connected *t, unsigned n) {
    t->random = t->random * 1103515245u + 12345u;
    return (t->random >> 16) % n;
}

static lierne_status batch_create(void *self, size_t capacity, void **out) {
    connected_rank *r = self;
    batch *b = test_transport_memory(1, sizeof *b + capacity * sizeof b->slots[0]);
    b->rank = r;
    b->capacity = capacity;
    b->lines = test_transport_memory(capacity, sizeof *b->lines);
    LIERNE_TRY(LIERNE_VEC_PUSH(&r->lines, b->lines));
    LIERNE_TRY(LIERNE_VEC_PUSH(&r->nlines, capacity));
    *out = b;
    return LIERNE_OK;
}

static bool withdraw(void *self) {
    batch *b = self;
    for (size_t i = 0; i < b->capacity; i++) {
        b->lines[i].full = false;
    }
    return true;
}

static void forget(slot *s) {
    free(s->shown);
    free(s->packed);
    s->shown = NULL;
    s->packed = NULL;
}

static void batch_destroy(void *self) {
    batch *b = self;
    for (size_t i = 0; i < b->capacity; i++) {
        forget(&b->slots[i]);
    }
    free(b);
}

/* The address of the line, and between whom the message travels. */
static lierne_status describe(void *self, const lierne_posting *p, lierne_record *record) {
    batch *b = self;
    line *l = &b->lines[p->slot];
    slot *s = &b->slots[p->slot];
    s->receives = p->receives;
    s->peer = p->peer;
    s->bytes = p->bytes;
    if (!l->bases) {
        l->bases = test_transport_memory(p->nparts, sizeof *l->bases);
        l->packed = test_transport_memory(p->bytes, 1);
    }
    record->words[0] = (int64_t)(uintptr_t)l;
    record->words[1] = b->rank->rank;
    record->words[2] = p->peer;
    record->words[3] = p->receives;
    record->words[7] = (int64_t)p->bytes;
    return LIERNE_OK;
}

static size_t bytes_of(const lierne_part *part) {
    int64_t elements = 0;
    for (size_t i = 0; i < part->nblocks; i++) {
        elements += lierne_block_elements(&part->blocks[i]);
    }
    return (size_t)elements * part->size;
}

/* Both ends must have described the same message. */
static lierne_status check_remote(const batch *b, const slot *s, const lierne_remote *remote) {
    bool same = remote->nrecords > 0 && (s->receives || remote->nparts == 0);
    for (size_t k = 0; k < remote->nrecords; k++) {
        const int64_t *words = remote->records[k].words;
        same &= words[1] == s->peer && words[2] == b->rank->rank && words[3] == !s->receives &&
                words[7] == (int64_t)s->bytes;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < remote->nparts; i++) {
        bytes += bytes_of(&remote->parts[i]);
        same &= remote->parts[i].base == NULL && remote->parts[i].index == 0;
    }
    return same && (!s->receives || bytes == s->bytes)
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "rank %d: rank %d described another message",
                             b->rank->rank, s->peer);
}

static lierne_status connect_slots(void *self, const lierne_remote *remotes, size_t n) {
    batch *b = self;
    if (b->rank->fail_at > 0 && --b->rank->fail_at == 0) {
        return LIERNE_FAIL(LIERNE_ERR_NO_MEMORY, "rank %d cannot connect", b->rank->rank);
    }
    for (size_t i = 0; i < n; i++) {
        slot *s = &b->slots[i];
        LIERNE_TRY(check_remote(b, s, &remotes[i]));
        forget(s);
        s->remote = remotes[i];
        s->shown = test_transport_memory(remotes[i].nparts, sizeof *s->shown);
        s->packed = test_transport_memory(remotes[i].nparts, sizeof *s->packed);
    }
    return LIERNE_OK;
}

static void copy_part(void *to, const lierne_part *to_part, const void *from,
                      const lierne_part *from_part) {
    lierne_host_copy_blocks(bytes_of(to_part), to_part->size, to, to_part->blocks, to_part->nblocks,
                            from, from_part->blocks, from_part->nblocks);
}

static lierne_part packed_part(lierne_block *block, const lierne_part *like) {
    *block = lierne_block_range(0, (int64_t)(bytes_of(like) / like->size));
    return (lierne_part){.size = like->size, .blocks = block, .nblocks = 1};
}

static void send_message(batch *b, int match, const lierne_posting *p) {
    line *l = &b->lines[p->slot];
    test_connected *t = b->rank->world;
    size_t at = 0;
    l->full = true;
    l->released = false;
    l->match = match;
    l->way = (int)draw(t, 3);
    l->late = 1 + (draw(t, 4) == 0);
    l->bytes = p->bytes;
    for (size_t i = 0; i < p->nparts; i++) {
        l->bases[i] = p->parts[i].base;
        if (l->way == PACK) {
            lierne_block block;
            lierne_part packed = packed_part(&block, &p->parts[i]);
            copy_part(l->packed + at, &packed, p->parts[i].base, &p->parts[i]);
            l->bases[i] = l->packed + at;
            at += bytes_of(&p->parts[i]);
        }
    }
    b->slots[p->slot].used = true;
    b->rank->sim->world->dirty = true;
}

static lierne_status post(void *self, int match, const lierne_posting *postings, size_t n) {
    batch *b = self;
    for (size_t i = 0; i < n; i++) {
        const lierne_posting *p = &postings[i];
        slot *s = &b->slots[p->slot];
        if (!s->shown) {
            return LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "rank %d: slot %zu is not connected",
                               b->rank->rank, p->slot);
        }
        if (p->receives) {
            s->used = true;
            s->match = match;
            s->own = p->parts;
            s->bytes = p->bytes;
            s->found = NULL;
        } else {
            send_message(b, match, p);
        }
    }
    return LIERNE_OK;
}

static line *find(const slot *s) {
    for (size_t k = 0; k < s->remote.nrecords; k++) {
        line *l = (line *)(uintptr_t)s->remote.records[k].words[0];
        if (l->full && !l->released && l->match == s->match) {
            l->late -= l->late > 0;
            return l->late > 0 ? NULL : l;
        }
    }
    return NULL;
}

/* What a receive shows, with the sender's blocks as the plan connected them. */
static void show(slot *s) {
    const line *l = s->found;
    for (size_t i = 0; i < s->remote.nparts; i++) {
        s->shown[i] =
            l->way == PACK ? packed_part(&s->packed[i], &s->remote.parts[i]) : s->remote.parts[i];
        s->shown[i].base = l->bases[i];
    }
}

static void take(batch *b, slot *s) {
    b->rank->world->count[s->found->way]++;
    show(s);
    if (s->found->way == MOVE) {
        for (size_t i = 0; i < s->remote.nparts; i++) {
            copy_part((void *)s->own[i].base, &s->own[i], s->shown[i].base, &s->shown[i]);
        }
        s->found->released = true;
        s->used = false;
        b->rank->sim->world->dirty = true;
    }
}

static lierne_status poll_lines(void *self, size_t *done, size_t *ndone) {
    batch *b = self;
    *ndone = 0;
    for (size_t i = 0; i < b->capacity; i++) {
        slot *s = &b->slots[i];
        if (!s->used || (s->receives && s->found)) {
            continue;
        }
        if (s->receives && (s->found = find(s))) {
            if (s->found->bytes != s->bytes) {
                return LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "rank %d expects %zu bytes, got %zu",
                                   b->rank->rank, s->bytes, s->found->bytes);
            }
            take(b, s);
            done[(*ndone)++] = i;
        } else if (!s->receives && b->lines[i].released) {
            b->lines[i].full = false;
            s->used = false;
            done[(*ndone)++] = i;
        }
    }
    return LIERNE_OK;
}

static const lierne_part *exposed(void *self, size_t i) {
    const slot *s = &((batch *)self)->slots[i];
    return s->found->way == MOVE ? NULL : s->shown;
}

static void release(void *self, size_t i) {
    batch *b = self;
    b->slots[i].found->released = true;
    b->slots[i].used = false;
    b->rank->sim->world->dirty = true;
}

static bool reaches(void *self, int peer) {
    const connected_rank *r = self;
    return r->world->pairs >> ((r->rank + peer) % 3) & 1;
}

static const lierne_transport_connects connects = {.describe = describe, .connect = connect_slots};
static const lierne_transport_exposes exposes = {.exposed = exposed, .release = release};
static const lierne_transport connected = {.name = "connected",
                                           .close = lierne_transport_close_nothing,
                                           .print = lierne_transport_print_nothing,
                                           .reaches = reaches,
                                           .batch_create = batch_create,
                                           .withdraw = withdraw,
                                           .batch_destroy = batch_destroy,
                                           .post = post,
                                           .poll = poll_lines,
                                           .connects = &connects,
                                           .exposes = &exposes};

test_connected *test_connected_attach(lierne_sim *sim, int n, unsigned pairs) {
    test_connected *t = test_transport_memory(1, sizeof *t);
    *t = (test_connected){.n = n, .pairs = pairs, .random = 1};
    t->ranks = test_transport_memory((size_t)n, sizeof *t->ranks);
    for (int r = 0; r < n; r++) {
        lierne_context *context = lierne_sim_get_context(sim, r);
        lierne_carrier base = context->carriers[0];
        t->ranks[r] = (connected_rank){.world = t, .rank = r, .sim = context->control_self};
        context->ncarriers = 0;
        lierne_context_add_transport(context, &connected, &t->ranks[r], NULL);
        lierne_context_add_transport(context, base.transport, base.self, NULL);
    }
    return t;
}

test_connected *test_connected_attach_asked(lierne_sim *sim, int n) {
    const char *asked = getenv("LIERNE_TEST_TRANSPORTS");
    return asked && strcmp(asked, "connected") == 0 ? test_connected_attach(sim, n, 3) : NULL;
}

void test_connected_count(const test_connected *t, size_t count[3]) {
    memcpy(count, t->count, sizeof t->count);
}

void test_connected_fail(test_connected *t, int rank, int k) {
    t->ranks[rank].fail_at = k;
}

static bool free_lines(line *lines, size_t n) {
    bool empty = true;
    for (size_t i = 0; i < n; i++) {
        empty &= !lines[i].full;
        free(lines[i].bases);
        free(lines[i].packed);
    }
    free(lines);
    return empty;
}

bool test_connected_destroy(test_connected *t) {
    bool empty = true;
    for (int r = 0; t && r < t->n; r++) {
        connected_rank *rank = &t->ranks[r];
        for (size_t i = 0; i < rank->lines.count; i++) {
            empty &= free_lines(rank->lines.at[i], rank->nlines.at[i]);
        }
        lierne_mem_free(rank->lines.at);
        lierne_mem_free(rank->nlines.at);
    }
    free(t ? t->ranks : NULL);
    free(t);
    return empty;
}
