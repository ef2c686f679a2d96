/* The table of the transport, and its batches. */
#include "backend/shm/shm_transport.h"

#include "backend/shm/shm_message.h"

#include <stdio.h>

typedef struct batch {
    lierne_shm *shm;
    size_t nactive;
    size_t *active;         /* slots in flight */
    lierne_shm_areas areas; /* of its lines and slots */
    bool woken;             /* the receivers of short messages */
    size_t capacity;
    lierne_shm_message messages[];
} batch;

static int find_peer(const lierne_shm *shm, int index) {
    int low = 0, high = shm->npeers;
    while (low < high) {
        int middle = (low + high) / 2;
        low = shm->peers[middle].index < index ? middle + 1 : low;
        high = shm->peers[middle].index < index ? high : middle;
    }
    return low < shm->npeers && shm->peers[low].index == index ? low : -1;
}

static bool reaches(void *self, int peer) {
    return find_peer(self, peer) >= 0;
}

static lierne_status batch_create(void *self, size_t capacity, void **out) {
    batch *b;
    lierne_shm_sweep_areas(self);
    LIERNE_TRY(lierne_alloc(&b, 1, sizeof *b + capacity * sizeof b->messages[0]));
    b->shm = self;
    b->capacity = capacity;
    lierne_status status = lierne_alloc(&b->active, capacity, sizeof *b->active);
    if (status != LIERNE_OK) {
        lierne_mem_free(b);
        return status;
    }
    *out = b;
    return LIERNE_OK;
}

/* Peers may still look at a line of the batch, and copy what it shows; they learn afterwards that
 * this rank gave up. Nobody writes to buffers of this rank. */
static bool withdraw_shm(void *self) {
    ((batch *)self)->nactive = 0;
    return true;
}

static void forget(lierne_shm_message *m) {
    for (size_t i = 0; m->packed && i < m->nparts; i++) {
        lierne_mem_free((void *)m->packed[i].blocks);
    }
    lierne_mem_free(m->packed);
    lierne_mem_free(m->shown);
    lierne_mem_free(m->spans);
    lierne_mem_free(m->at);
    lierne_mem_free(m->views);
    m->packed = m->shown = NULL;
    m->spans = NULL;
    m->at = NULL;
    m->views = NULL;
}

/* A late receiver still reads what was packed for it, and complete. */
static void batch_destroy(void *self) {
    batch *b = self;
    lierne_shm *shm = b->shm;
    for (size_t i = 0; i < b->capacity; i++) {
        forget(&b->messages[i]);
    }
    lierne_shm_drop_areas(shm, &b->areas);
    lierne_mem_free(b->active);
    lierne_mem_free(b);
}

static bool may_be_packed(const lierne_shm_message *m) {
    return m->scattered || m->apart || m->bytes <= LIERNE_SLOT_BYTES;
}

/* A message that is described again keeps its lines, and a slot that is long enough. The first line
 * has been reserved when the second one is. */
static lierne_status reserve_line(batch *b, const lierne_shm_message *m, lierne_own_line *own) {
    const lierne_own_line *first = &m->mine[0];
    bool shares = own != first && !may_be_packed(m);
    bool shared = own != first && own->at.slot == first->at.slot;
    char *line;
    if (!own->at.line) {
        size_t bytes = sizeof(lierne_line) + m->nparts * sizeof(uint64_t);
        LIERNE_TRY(lierne_shm_take_area(b->shm, &b->areas, bytes, &line, &own->line_offset));
        own->at.line = (lierne_line *)(void *)line;
        own->at.line->next = b->areas.lines;
        b->areas.lines = own->at.line;
    }
    if (shares) {
        own->at.slot = first->at.slot;
        own->slot_offset = first->slot_offset;
        own->slot_bytes = first->slot_bytes;
    } else if (m->slot_bytes > (shared ? 0 : own->slot_bytes)) {
        LIERNE_TRY(lierne_shm_take_area(b->shm, &b->areas, m->slot_bytes, &own->at.slot,
                                        &own->slot_offset));
        own->slot_bytes = m->slot_bytes;
    }
    return LIERNE_OK;
}

static void span_parts(lierne_shm_message *m, const lierne_part *parts) {
    for (size_t i = 0; i < m->nparts; i++) {
        int64_t first = 0, end = 0;
        for (size_t b = 0; b < parts[i].nblocks; b++) {
            lierne_block_extend(&parts[i].blocks[b], &first, &end);
        }
        m->spans[i] = (lierne_span){first * (int64_t)parts[i].size, end * (int64_t)parts[i].size};
    }
}

/* This rank's parts of a message, one behind the other as in a slot. */
static lierne_status list_packed(lierne_shm_message *m, const lierne_part *parts) {
    LIERNE_TRY(lierne_alloc(&m->packed, m->nparts, sizeof *m->packed));
    for (size_t i = 0; i < m->nparts; i++) {
        lierne_block *blocks;
        int64_t offset = 0;
        LIERNE_TRY(lierne_alloc(&blocks, parts[i].nblocks, sizeof *blocks));
        m->packed[i] = parts[i];
        m->packed[i].blocks = blocks;
        for (size_t k = 0; k < parts[i].nblocks; k++) {
            blocks[k] = lierne_block_packed(&parts[i].blocks[k], offset);
            offset += lierne_block_elements(&blocks[k]);
        }
    }
    return LIERNE_OK;
}

/* Of a message that varies. */
static void set_length(const lierne_shm *shm, lierne_shm_message *m, size_t bytes) {
    m->bytes = bytes;
    m->spans[0] = (lierne_span){0, (int64_t)bytes};
    m->frame_block = lierne_block_range(0, (int64_t)bytes);
    *(lierne_block *)m->packed[0].blocks = m->frame_block;
    m->pulled = shm->pulls;
}

static lierne_status describe_line(void *self, const lierne_posting *p, lierne_record *record) {
    batch *b = self;
    lierne_shm_message *m = &b->messages[p->slot];
    forget(m);
    m->peer = &b->shm->peers[find_peer(b->shm, p->peer)];
    m->receives = p->receives;
    m->bytes = p->bytes;
    m->nparts = p->nparts;
    m->varies = p->varies;
    LIERNE_TRY(lierne_alloc(&m->spans, m->nparts, sizeof *m->spans));
    LIERNE_TRY(lierne_alloc(&m->at, m->nparts, sizeof *m->at));
    LIERNE_TRY(lierne_alloc(&m->shown, m->nparts, sizeof *m->shown));
    lierne_shm_size_slot(b->shm, m, p->parts);
    if (p->receives || p->varies || may_be_packed(m)) {
        LIERNE_TRY(list_packed(m, p->parts));
    }
    if (p->varies) {
        m->frame = p->parts[0];
        m->frame.blocks = &m->frame_block;
        set_length(b->shm, m, p->bytes);
    }
    if (p->receives) {
        return LIERNE_OK;
    }
    if (!p->varies) {
        span_parts(m, p->parts);
    }
    for (unsigned k = 0; k < m->nlines; k++) {
        lierne_own_line *own = &m->mine[k];
        LIERNE_TRY(reserve_line(b, m, own));
        record->words[3 * k] = (int64_t)own->line_offset;
        record->words[3 * k + 1] = (int64_t)own->slot_offset;
        record->words[3 * k + 2] = (int64_t)own->slot_bytes;
    }
    return LIERNE_OK;
}

/* words: the three of a line. */
static lierne_status view_line(const lierne_shm_message *m, lierne_line_view *view,
                               const int64_t *words) {
    size_t bytes = sizeof(lierne_line) + m->nparts * sizeof(uint64_t);
    lierne_segment *segment = &m->peer->segment;
    view->line = lierne_segment_address(segment, (uint64_t)words[0], bytes);
    view->slot =
        words[2] ? lierne_segment_address(segment, (uint64_t)words[1], (size_t)words[2]) : NULL;
    return view->line && (view->slot || !words[2]) ? LIERNE_OK : LIERNE_ERR_TRANSPORT;
}

/* Whether the batch has a receive from a peer with one execution, so that its calls are those of
 * this batch, one after the other. */
static bool answers(const batch *b, const lierne_shm_peer *peer, size_t n) {
    bool found = false;
    for (size_t i = 0; i < n && !found; i++) {
        const lierne_shm_message *m = &b->messages[i];
        found = m->receives && m->peer == peer && m->nviews == m->nlines;
    }
    return found;
}

static lierne_status connect_ends(void *self, const lierne_remote *remotes, size_t n) {
    batch *b = self;
    for (size_t i = 0; i < n; i++) {
        lierne_shm_message *m = &b->messages[i];
        if (!m->receives) {
            continue;
        }
        if (!m->varies) {
            span_parts(m, remotes[i].parts);
        }
        m->theirs = m->varies ? &m->frame : remotes[i].parts;
        m->nviews = remotes[i].nrecords * m->nlines;
        LIERNE_TRY(lierne_alloc(&m->views, m->nviews, sizeof *m->views));
        for (size_t k = 0; k < m->nviews; k++) {
            const int64_t *words = remotes[i].records[k / m->nlines].words;
            LIERNE_TRY(view_line(m, &m->views[k], &words[3 * (k % m->nlines)]));
        }
    }
    for (size_t i = 0; i < n; i++) {
        b->messages[i].answered = answers(b, b->messages[i].peer, n);
    }
    return LIERNE_OK;
}

static void resize_shm(void *self, const lierne_posting *p) {
    batch *b = self;
    lierne_shm_message *m = &b->messages[p->slot];
    if (m->packed) { /* it is described */
        set_length(b->shm, m, p->bytes);
    }
}

/* Every line is written before anybody is woken: a fence costs as much as a short message. */
static void wake_receivers(const batch *b, const lierne_posting *postings, size_t n) {
    lierne_bell_fence();
    for (size_t i = 0; i < n; i++) {
        if (!postings[i].receives) {
            lierne_bell_wake(b->messages[postings[i].slot].peer->segment.head);
        }
    }
}

static lierne_shm_message *start_message(batch *b, int match, const lierne_posting *p) {
    lierne_shm_message *m = &b->messages[p->slot];
    m->key = (unsigned)match + 1;
    m->own = p->parts;
    m->overwritten = p->overwritten;
    m->found = NULL;
    b->active[b->nactive++] = p->slot;
    m->turn = (m->turn + 1) % m->nlines;
    return m;
}

static lierne_status post_shm(void *self, int match, const lierne_posting *postings, size_t n) {
    batch *b = self;
    size_t sends = 0;
    for (size_t i = 0; i < n; i++) {
        lierne_shm_message *m = start_message(b, match, &postings[i]);
        if (!m->receives) {
            lierne_shm_send(b->shm, m);
            sends++;
        }
    }
    if (sends > 0) {
        wake_receivers(b, postings, n);
    }
    return LIERNE_OK;
}

static bool post_short(void *self, int match, const lierne_posting *postings, size_t n) {
    batch *b = self;
    for (size_t i = 0; i < n; i++) {
        if (!postings[i].receives && !lierne_shm_may_send(&b->messages[postings[i].slot])) {
            return false;
        }
    }
    for (size_t i = 0; i < n; i++) {
        lierne_shm_message *m = start_message(b, match, &postings[i]);
        if (!m->receives) {
            lierne_shm_send_short(b->shm, m);
        }
    }
    b->woken = false;
    return true;
}

static void wake_peers(const batch *b, bool receives) {
    for (size_t i = 0; i < b->nactive; i++) {
        const lierne_shm_message *m = &b->messages[b->active[i]];
        if (m->receives == receives) {
            lierne_bell_wake(m->peer->segment.head);
        }
    }
}

/* Whether all receives are there, of which the first *i were so before. */
static bool all_there(batch *b, size_t *i) {
    for (; *i < b->nactive; (*i)++) {
        lierne_shm_message *m = &b->messages[b->active[*i]];
        if (m->receives && !lierne_shm_receive_short(m)) {
            return false;
        }
    }
    return true;
}

/* As long as a rank spins in any wait; where there are more ranks than cores, two looks. Receivers
 * are woken only if this rank has to wait, or else with the release: the fence would wait until the
 * other cores have given up the lines that were just written. */
static bool await_short(void *self) {
    batch *b = self;
    size_t i = 0;
    if (all_there(b, &i)) {
        return true;
    }
    lierne_bell_fence();
    wake_peers(b, false);
    b->woken = true;
    for (unsigned left = b->shm->bell.spins; !all_there(b, &i); left--) {
        if (left == 0) {
            return false;
        }
        lierne_bell_relax();
    }
    return true;
}

static void release_short(void *self) {
    batch *b = self;
    for (size_t i = 0; i < b->nactive; i++) {
        if (b->messages[b->active[i]].receives) {
            lierne_shm_mark_taken(&b->messages[b->active[i]]);
        }
    }
    lierne_bell_fence();
    wake_peers(b, true);
    if (!b->woken) {
        wake_peers(b, false);
    }
    b->nactive = 0;
}

/* A send whose line was not free when it was posted. */
static bool start_late(lierne_shm *shm, lierne_shm_message *m) {
    if (!lierne_shm_send(shm, m)) {
        return false;
    }
    lierne_bell_fence();
    lierne_bell_wake(m->peer->segment.head);
    return true;
}

static lierne_status poll_lines(void *self, size_t *done, size_t *ndone) {
    batch *b = self;
    bool moved = false;
    size_t kept = 0;
    *ndone = 0;
    for (size_t i = 0; i < b->nactive; i++) {
        lierne_shm_message *m = &b->messages[b->active[i]];
        bool complete = false;
        if (m->receives) {
            LIERNE_TRY(lierne_shm_receive(b->shm, m, &complete, &moved));
        } else if (m->started || start_late(b->shm, m)) {
            complete = lierne_shm_sent(m, &moved);
        }
        if (complete) {
            done[(*ndone)++] = b->active[i];
        } else {
            b->active[kept++] = b->active[i];
        }
    }
    b->nactive = kept;
    if (moved || *ndone > 0) {
        lierne_bell_reset(&b->shm->bell, b->shm->own.head);
    }
    return LIERNE_OK;
}

static const lierne_part *exposed(void *self, size_t slot) {
    return lierne_shm_shown(&((batch *)self)->messages[slot]);
}

static void release(void *self, size_t slot) {
    lierne_shm_release(&((batch *)self)->messages[slot]);
}

static bool find_place(const void *self, uint64_t *place, const void *at, size_t bytes) {
    return lierne_segment_find(&((const batch *)self)->shm->own, at, bytes, place);
}

static const void *reach_place(const void *self, size_t slot, uint64_t place, size_t bytes) {
    lierne_shm_peer *peer = ((const batch *)self)->messages[slot].peer;
    return lierne_segment_address(&peer->segment, place, bytes);
}

static bool wait_step(void *self) {
    lierne_shm *shm = self;
    return lierne_bell_wait(&shm->bell, shm->own.head);
}

static void close_state(void *self) {
    lierne_shm_destroy(self);
}

static void print(const void *self, char *text, size_t size) {
    const lierne_shm *shm = self;
    snprintf(text, size,
             "%d peers; sent %llu messages in place, %llu packed, %llu pulled, %llu in pieces%s",
             shm->npeers, (unsigned long long)shm->sent[LIERNE_IN_WINDOW],
             (unsigned long long)shm->sent[LIERNE_PACKED],
             (unsigned long long)shm->sent[LIERNE_PRIVATE_MEMORY],
             (unsigned long long)shm->sent[LIERNE_IN_PIECES],
             shm->pulls ? "" : "; the system does not allow process_vm_readv");
}

static lierne_status alloc(void *self, void **out, size_t bytes) {
    return lierne_segment_alloc(out, NULL, &((lierne_shm *)self)->own, bytes);
}

static void free_memory(void *self, void *memory) {
    lierne_segment_free(&((lierne_shm *)self)->own, memory);
}

static const lierne_transport_connects connects = {.describe = describe_line,
                                                   .connect = connect_ends};
static const lierne_transport_exposes exposes = {.exposed = exposed,
                                                 .release = release,
                                                 .find = find_place,
                                                 .reach = reach_place};
static const lierne_transport_memory memory = {.alloc = alloc, .free = free_memory};
static const lierne_transport_shares shares = {.create = lierne_shm_shared_create,
                                               .open = lierne_shm_shared_open,
                                               .close = lierne_shm_shared_close};
static const lierne_transport_short_calls short_calls = {.bytes = LIERNE_SHORT_BYTES,
                                                         .post = post_short,
                                                         .await = await_short,
                                                         .release = release_short};

const lierne_transport lierne_shm_transport = {
    .name = "shm",
    .close = close_state,
    .print = print,
    .reaches = reaches,
    .batch_create = batch_create,
    .withdraw = withdraw_shm,
    .batch_destroy = batch_destroy,
    .post = post_shm,
    .poll = poll_lines,
    .resize = resize_shm,
    .wait = wait_step,
    .connects = &connects,
    .exposes = &exposes,
    .memory = &memory,
    .shares = &shares,
    .short_calls = &short_calls,
};
