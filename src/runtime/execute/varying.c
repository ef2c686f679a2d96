/* See varying.h.
 *
 * Messages: a head with a stamp of two words and the places of the segments, then these, packed;
 * that of the ring, a stamp of four. All are single bytes in a row, for every transport. What a
 * transport exposes is unpacked from where the sender has packed it. Where the sender's buffer is
 * in its window too, the message is as long but has the list of its blocks there, and the receiver
 * copies from them: rows are copied once. The receiver cannot know that list, nor the sender which
 * memory the next call has.
 *
 * Without stamps a message is its packed blocks. On a device, where launches pack and unpack, the
 * slots are of its memory or, for a transport that cannot read that, of the host's. */
#include "runtime/execute/execution.h"
#include "runtime/memory/host.h"

#include <string.h>

/* Of a segment, after the stamp with which a message begins. */
typedef struct segment_head {
    uint64_t place;  /* in the sender's window, where its blocks are counted from */
    int64_t nblocks; /* 0: they are packed */
} segment_head;
enum { STAMP = 2 * sizeof(int64_t), RING = LIERNE_STAMP_WORDS * sizeof(int64_t) };
/* Bytes: shorter segments are packed, and those whose blocks are shorter on average. */
enum { LEAST_SHOWN = 4 << 10, LEAST_BLOCK = 512 };

bool lierne_execution_stamps(const lierne_context *context) {
    bool stamps = !context->stream_driver && context->memory == &lierne_host_memory;
    for (int b = 0; b < context->ncarriers; b++) {
        stamps = stamps && !context->carriers[b].transport->ordered;
    }
    return stamps;
}

static size_t head_bytes(const lierne_execution *e, const lierne_coalesced_message *m) {
    return e->stamps ? STAMP + m->count * sizeof(segment_head) : 0;
}

static size_t segments_bytes(const lierne_execution *e, const lierne_coalesced_message *m) {
    size_t bytes = 0;
    for (size_t i = m->first; i < m->first + m->count; i++) {
        bytes += (size_t)lierne_segment_bytes(&e->segments.at[i]);
    }
    return bytes;
}

static char *slot_of(const lierne_execution *e, const lierne_coalesced_message *m) {
    return (m->on_host ? e->host.at : e->memory.at) + m->staging;
}

lierne_status lierne_varying_add_ring(lierne_execution *e, bool sends) {
    const lierne_coalesced_message m = {.peer =
                                            sends ? e->varying->successor : e->varying->predecessor,
                                        .first = e->segments.count,
                                        .predecessor = -1,
                                        .pipeline = -1,
                                        .successor = -1};
    return e->stamps && m.peer >= 0 ? LIERNE_VEC_PUSH(&e->messages, m) : LIERNE_OK;
}

static bool is_ring(const lierne_coalesced_message *m) {
    return m->count == 0;
}

/* Scratch of the subroutes, one after another. */
static int64_t deal_scratch(lierne_execution *e) {
    int64_t bytes = 0;
    for (size_t p = 0; p < e->nsubroutes; p++) {
        lierne_subroute *s = &e->subroutes[p];
        s->scratch = bytes;
        bytes += lierne_execution_align(s->varying->scratch * (int64_t)s->size);
    }
    return bytes;
}

/* Every message has a slot; together they have the elements that there may be. */
static lierne_status reserve_slots(lierne_execution *e) {
    int64_t bytes = 0, slots[2] = {0, 0};
    void *memory;
    for (size_t p = 0; p < e->nsubroutes; p++) {
        const lierne_subroute *s = &e->subroutes[p];
        bytes += (s->varying->sent + s->varying->received) * (int64_t)s->size;
    }
    for (size_t i = 0; i < e->messages.count; i++) {
        size_t head = head_bytes(e, &e->messages.at[i]);
        bytes += lierne_execution_align(1) + (int64_t)(head > RING ? head : RING);
    }
    for (size_t i = 0; i < e->messages.count; i++) {
        slots[e->messages.at[i].on_host] = lierne_execution_align(bytes);
    }
    e->memory.reserved = e->memory.capacity = deal_scratch(e) + slots[0];
    LIERNE_TRY(e->stamps ? lierne_context_alloc_shown(&memory, &e->memory.window, e->context,
                                                      e->memory.reserved)
                         : lierne_context_alloc_scratch(&memory, e->context, e->memory.reserved));
    e->memory.at = memory;
    if (slots[1] > 0) {
        LIERNE_TRY(lierne_context_alloc_kept(&memory, e->context, (size_t)slots[1], true));
        e->host.at = memory;
    }
    return LIERNE_OK;
}

lierne_status lierne_varying_reserve(lierne_execution *e) {
    LIERNE_TRY(reserve_slots(e));
    LIERNE_TRY(lierne_alloc(&e->frames, e->messages.count, sizeof *e->frames));
    for (size_t i = 0; i < e->messages.count; i++) {
        lierne_frame *frame = &e->frames[i];
        frame->block = lierne_block_range(0, 0);
        frame->part = (lierne_part){.size = 1,
                                    .buffer = LIERNE_BUFFER_SCRATCH,
                                    .blocks = &frame->block,
                                    .nblocks = 1};
    }
    return LIERNE_OK;
}

static void resize_message(lierne_execution *e, size_t i) {
    lierne_coalesced_message *m = &e->messages.at[i];
    const lierne_execution_batch *batch = &e->batches[m->batch];
    lierne_posting *posting = &batch->postings[m->slot];
    size_t bytes = segments_bytes(e, m);
    bool empty = !is_ring(m) && bytes == 0;
    m->bytes = is_ring(m) ? RING : empty ? 0 : (int64_t)(head_bytes(e, m) + bytes);
    /* One that is ordered posts the messages of a phase together: both ends know which have no
     * bytes. */
    m->skipped = empty && !batch->transport->ordered;
    posting->bytes = (size_t)m->bytes;
    posting->data = slot_of(e, m);
    e->frames[i].block.count[0] = m->bytes;
    e->frames[i].part.base = posting->data;
    if (batch->transport->resize && !m->skipped) {
        batch->transport->resize(batch->batch, posting);
    }
}

static void combine_stamps(const lierne_execution *e, int64_t stamp[LIERNE_STAMP_WORDS]) {
    memcpy(stamp, e->varying->stamp, RING);
    for (size_t p = 1; p < e->nsubroutes; p++) {
        const int64_t *own = e->subroutes[p].varying->stamp;
        uint64_t hash = (uint64_t)stamp[LIERNE_STAMP_HASH];
        hash = lierne_hash(hash, &own[LIERNE_STAMP_HASH], sizeof *own);
        stamp[LIERNE_STAMP_UPDATE] += own[LIERNE_STAMP_UPDATE];
        stamp[LIERNE_STAMP_SEGMENTS] += own[LIERNE_STAMP_SEGMENTS];
        stamp[LIERNE_STAMP_TOKENS] += own[LIERNE_STAMP_TOKENS];
        stamp[LIERNE_STAMP_HASH] = (int64_t)hash;
    }
}

bool lierne_execution_outdated(const lierne_execution *e) {
    int64_t stamp[LIERNE_STAMP_WORDS];
    combine_stamps(e, stamp);
    return memcmp(stamp, e->stamp, RING) != 0;
}

const int64_t *lierne_execution_stamp(const lierne_execution *e) {
    return e->stamp;
}

void lierne_varying_deal(lierne_execution *e) {
    int64_t used[2] = {deal_scratch(e), 0};
    combine_stamps(e, e->stamp);
    e->record.bytes = 0;
    for (size_t i = 0; i < e->messages.count; i++) {
        lierne_coalesced_message *m = &e->messages.at[i];
        m->staging = used[m->on_host];
        resize_message(e, i);
        used[m->on_host] += lierne_execution_align(m->bytes);
        e->record.bytes += m->bytes;
    }
}

lierne_status lierne_execution_vary(lierne_execution *e) {
    lierne_varying_deal(e);
    return lierne_execution_record_again(e);
}

static lierne_range range_of(const lierne_block *blocks, size_t n) {
    lierne_range range = {0, 0};
    for (size_t b = 0; b < n; b++) {
        lierne_range_extend(&range, &blocks[b]);
    }
    return range;
}

/* Puts the blocks in place of what is in them; false where the receiver cannot read them there, or
 * their list would not be aligned. */
static bool show_blocks(const lierne_execution *e, const lierne_execution_batch *batch,
                        const lierne_segment *segment, char *staged, segment_head *h) {
    const lierne_transport_exposes *exposes = batch->transport->exposes;
    const lierne_blocks *blocks = &segment->message->blocks;
    size_t size = segment->subroute->size, bytes = (size_t)lierne_segment_bytes(segment);
    if (!exposes || !e->memory.window || segment->message->buffer != LIERNE_BUFFER_IN ||
        bytes < LEAST_SHOWN || bytes / LEAST_BLOCK < blocks->count ||
        (uintptr_t)staged % sizeof(int64_t) != 0) {
        return false;
    }
    const lierne_range range = range_of(blocks->at, blocks->count);
    const char *base = lierne_execution_readable(segment->subroute, LIERNE_BUFFER_IN);
    if (!exposes->find(batch->batch, &h->place, base + (size_t)range.first * size,
                       (size_t)(range.end - range.first) * size)) {
        return false;
    }
    lierne_block *list = (lierne_block *)(void *)staged;
    for (size_t b = 0; b < blocks->count; b++) {
        list[b] = blocks->at[b];
        list[b].offset -= range.first;
    }
    h->nblocks = (int64_t)blocks->count;
    return true;
}

static void pack_segments(const lierne_execution *e, const lierne_coalesced_message *m,
                          char *staged) {
    char *place = staged + STAMP;
    memcpy(staged, e->stamp, STAMP);
    staged += head_bytes(e, m);
    for (size_t i = m->first; i < m->first + m->count; i++, place += sizeof(segment_head)) {
        const lierne_segment *segment = &e->segments.at[i];
        segment_head h = {.nblocks = 0};
        if (!show_blocks(e, &e->batches[m->batch], segment, staged, &h)) {
            lierne_execution_pack_segment(e, segment, staged, false);
        }
        memcpy(place, &h, sizeof h);
        staged += lierne_segment_bytes(segment);
    }
}

void lierne_varying_refresh(const lierne_execution *e, const lierne_coalesced_message *m) {
    char *staged = slot_of(e, m);
    if (e->batches[m->batch].postings[m->slot].receives || lierne_execution_launches(e)) {
        return;
    }
    if (is_ring(m)) {
        memcpy(staged, e->stamp, RING);
    } else if (e->stamps) {
        pack_segments(e, m, staged);
    } else {
        lierne_execution_pack(e, m, staged, false);
    }
}

static lierne_status compare_stamps(const lierne_execution *e, int peer, const int64_t *theirs,
                                    bool whole) {
    const int64_t *own = e->stamp;
    if (memcmp(own, theirs, whole ? RING : STAMP) == 0) {
        return LIERNE_OK;
    }
    if (!whole) {
        return LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                           "the segments of rank %d (update %lld) and rank %d (update %lld) differ",
                           e->context->rank, (long long)own[LIERNE_STAMP_UPDATE], peer,
                           (long long)theirs[LIERNE_STAMP_UPDATE]);
    }
    return LIERNE_FAIL(
        LIERNE_ERR_MISMATCH,
        "the segments of rank %d (update %lld: %lld of %lld tokens) and rank %d (update %lld: %lld "
        "of %lld tokens) differ",
        e->context->rank, (long long)own[LIERNE_STAMP_UPDATE],
        (long long)own[LIERNE_STAMP_SEGMENTS], (long long)own[LIERNE_STAMP_TOKENS], peer,
        (long long)theirs[LIERNE_STAMP_UPDATE], (long long)theirs[LIERNE_STAMP_SEGMENTS],
        (long long)theirs[LIERNE_STAMP_TOKENS]);
}

/* From the blocks of the sender, which it counts from a place of its window. */
static lierne_status copy_shown(const lierne_execution *e, const lierne_coalesced_message *m,
                                const lierne_segment *segment, const segment_head *h,
                                const char *staged) {
    const lierne_execution_batch *batch = &e->batches[m->batch];
    lierne_part part = {.size = segment->subroute->size,
                        .blocks = (const lierne_block *)(const void *)staged,
                        .nblocks = (size_t)h->nblocks};
    size_t bytes = (size_t)range_of(part.blocks, part.nblocks).end * part.size;
    part.base = batch->transport->exposes->reach(batch->batch, m->slot, h->place, bytes);
    if (!part.base) {
        return LIERNE_ERR_TRANSPORT;
    }
    lierne_execution_copy_segment(e, segment, &part);
    return LIERNE_OK;
}

static lierne_status unpack(const lierne_execution *e, const lierne_coalesced_message *m,
                            char *staged) {
    const char *place = staged + STAMP;
    staged += head_bytes(e, m);
    for (size_t i = m->first; i < m->first + m->count; i++, place += sizeof(segment_head)) {
        const lierne_segment *segment = &e->segments.at[i];
        segment_head h = {.nblocks = 0};
        if (e->stamps) {
            memcpy(&h, place, sizeof h);
        }
        if (h.nblocks > 0) {
            LIERNE_TRY(copy_shown(e, m, segment, &h, staged));
        } else {
            lierne_execution_pack_segment(e, segment, staged, true);
        }
        staged += lierne_segment_bytes(segment);
    }
    return LIERNE_OK;
}

lierne_status lierne_varying_deliver(const lierne_execution *e, size_t message) {
    const lierne_coalesced_message *m = &e->messages.at[message];
    const lierne_execution_batch *batch = &e->batches[m->batch];
    const lierne_transport_exposes *exposes = batch->transport->exposes;
    const lierne_part *shown = exposes ? exposes->exposed(batch->batch, m->slot) : NULL;
    char *staged = shown ? (char *)shown->base + shown->blocks->offset : slot_of(e, m);
    int64_t stamp[LIERNE_STAMP_WORDS];
    lierne_status status = LIERNE_OK;
    if (lierne_execution_launches(e)) {
        return LIERNE_OK;
    }
    if (e->stamps) {
        memcpy(stamp, staged, is_ring(m) ? RING : STAMP);
        status = compare_stamps(e, m->peer, stamp, is_ring(m));
    }
    if (status == LIERNE_OK && !is_ring(m)) {
        status = unpack(e, m, staged);
    }
    if (shown) {
        exposes->release(batch->batch, m->slot);
    }
    return status;
}
