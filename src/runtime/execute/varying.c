/* See varying.h.
 *
 * Messages: a stamp of two words and the packed blocks; that of the ring, a stamp of four. All are
 * single bytes in a row, for every transport. What a transport exposes is unpacked from where the
 * sender has packed it. */
#include "runtime/execute/execution.h"
#include "runtime/memory/host.h"

#include <string.h>

enum { HEAD = 2 * sizeof(int64_t), RING = LIERNE_STAMP_WORDS * sizeof(int64_t) };

lierne_status lierne_execution_can_vary(const lierne_context *context) {
    if (context->stream_driver || context->memory != &lierne_host_memory) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "rank %d: segments can be updated in contexts for host memory without "
                           "streams only",
                           context->rank);
    }
    for (int b = 0; b < context->ncarriers; b++) {
        const lierne_transport *t = context->carriers[b].transport;
        if (t->ordered || (t->connects && !t->resize)) {
            return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                               "rank %d: segments cannot be updated over the transport %s",
                               context->rank, t->name);
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_varying_add_ring(lierne_execution *e, bool sends) {
    const lierne_coalesced_message m = {.peer =
                                            sends ? e->varying->successor : e->varying->predecessor,
                                        .first = e->segments.count,
                                        .predecessor = -1,
                                        .pipeline = -1,
                                        .successor = -1};
    return m.peer >= 0 ? LIERNE_VEC_PUSH(&e->messages, m) : LIERNE_OK;
}

static bool is_ring(const lierne_coalesced_message *m) {
    return m->count == 0;
}

static int64_t scratch_bytes(const lierne_execution *e) {
    return lierne_execution_align(e->varying->scratch * (int64_t)e->subroutes[0].size);
}

/* Every message has a slot; together they have the elements that there may be. */
lierne_status lierne_varying_reserve(lierne_execution *e) {
    int64_t elements = e->varying->sent + e->varying->received;
    int64_t heads = (int64_t)e->messages.count * (lierne_execution_align(1) + RING);
    void *memory;
    e->memory.reserved = e->memory.capacity =
        scratch_bytes(e) + lierne_execution_align(elements * (int64_t)e->subroutes[0].size + heads);
    LIERNE_TRY(lierne_context_alloc_scratch(&memory, e->context, e->memory.reserved));
    e->memory.at = memory;
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
    int64_t elements = is_ring(m) ? 0 : e->segments.at[m->first].message->elements;
    m->skipped = !is_ring(m) && elements == 0;
    m->bytes = is_ring(m) ? RING : m->skipped ? 0 : HEAD + elements * (int64_t)e->subroutes[0].size;
    posting->bytes = (size_t)m->bytes;
    posting->data = e->memory.at + m->staging;
    e->frames[i].block.count[0] = m->bytes;
    e->frames[i].part.base = posting->data;
    if (batch->transport->resize && !m->skipped) {
        batch->transport->resize(batch->batch, posting);
    }
}

void lierne_execution_vary(lierne_execution *e) {
    int64_t used = scratch_bytes(e);
    e->record.bytes = 0;
    for (size_t i = 0; i < e->messages.count; i++) {
        e->messages.at[i].staging = used;
        resize_message(e, i);
        used += lierne_execution_align(e->messages.at[i].bytes);
        e->record.bytes += e->messages.at[i].bytes;
    }
}

void lierne_varying_refresh(const lierne_execution *e, const lierne_coalesced_message *m) {
    char *staged = e->memory.at + m->staging;
    if (!e->batches[m->batch].postings[m->slot].receives) {
        memcpy(staged, e->varying->stamp, is_ring(m) ? RING : HEAD);
        lierne_execution_pack(e, m, staged + HEAD, false);
    }
}

static lierne_status compare_stamps(const lierne_execution *e, int peer, const int64_t *theirs,
                                    bool whole) {
    const int64_t *own = e->varying->stamp;
    if (memcmp(own, theirs, whole ? RING : HEAD) == 0) {
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

lierne_status lierne_varying_deliver(const lierne_execution *e, size_t message) {
    const lierne_coalesced_message *m = &e->messages.at[message];
    const lierne_execution_batch *batch = &e->batches[m->batch];
    const lierne_transport_exposes *exposes = batch->transport->exposes;
    const lierne_part *shown = exposes ? exposes->exposed(batch->batch, m->slot) : NULL;
    char *staged = shown ? (char *)shown->base + shown->blocks->offset : e->memory.at + m->staging;
    int64_t stamp[LIERNE_STAMP_WORDS];
    memcpy(stamp, staged, is_ring(m) ? RING : HEAD);
    lierne_status status = compare_stamps(e, m->peer, stamp, is_ring(m));
    if (status == LIERNE_OK) {
        lierne_execution_pack(e, m, staged + HEAD, true);
    }
    if (shown) {
        exposes->release(batch->batch, m->slot);
    }
    return status;
}
