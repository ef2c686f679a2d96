/* Staging slots of messages that must be packed or unpacked.
 *
 * A short message has a slot of its own. Long messages, which planners cut so that they fit into
 * the cache, share a few slots per peer and direction: a message is unpacked from the cache before
 * its slot is reused, so memory far larger than the cache is accessed once instead of three times.
 * Each peer has slots of its own; otherwise ranks could wait for each other in a cycle. */
#include "execute/execution.h"

#define ALIGN 64         /* a cache line, in bytes */
#define LONG  (64 << 10) /* least bytes of a message that shares slots */
#define SLOTS 3          /* per peer and direction: one filling, one in flight, one unpacking */

int64_t lierne_execution_align(int64_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static bool is_contiguous(const lierne_message *m) {
    return m->blocks.count == 0 ||
           (m->blocks.count == 1 && lierne_block_contiguous(&m->blocks.at[0]));
}

static bool is_staged(const lierne_execution *e, const lierne_coalesced_message *m) {
    bool packed = m->count > 1 || !is_contiguous(e->segments.at[m->first].message);
    return (packed || m->on_host) && !lierne_execution_exposes(e, m);
}

/* Messages of one direction of a phase, begin to end - 1. */
typedef struct range {
    const lierne_phase *phase;
    size_t begin;
    size_t end;
} range;

static lierne_coalesced_message *message_at(const lierne_execution *e, const range *r, size_t i) {
    return &e->messages.at[r->phase->first + i];
}

/* The SLOTS-th last long staged message with the same peer before this one; -1: there are fewer. */
static int64_t predecessor_of(const lierne_execution *e, const range *r, size_t index) {
    int peer = message_at(e, r, index)->peer, used_slots = 0;
    for (size_t i = index; i-- > r->begin;) {
        const lierne_coalesced_message *p = message_at(e, r, i);
        if (p->peer == peer && p->staging >= 0 && p->bytes >= LONG && ++used_slots == SLOTS) {
            return (int64_t)i;
        }
    }
    return -1;
}

/* A stream packs all messages of a phase before any is sent: slots are not shared then. */
static void assign_slot(const lierne_execution *e, const range *r, size_t index, int64_t used[2]) {
    lierne_coalesced_message *m = message_at(e, r, index);
    if (!is_staged(e, m)) {
        return;
    }
    bool shares = m->bytes >= LONG && !e->context->stream_driver;
    int64_t predecessor = shares ? predecessor_of(e, r, index) : -1;
    if (predecessor >= 0 && message_at(e, r, (size_t)predecessor)->bytes >= m->bytes) {
        m->staging = message_at(e, r, (size_t)predecessor)->staging;
        m->predecessor = predecessor;
    } else {
        m->staging = used[m->on_host];
        used[m->on_host] += lierne_execution_align(m->bytes);
    }
}

/* Adds the pipeline of a peer, which begins with the first message that waits for a slot. */
static lierne_status add_pipeline(lierne_execution *e, lierne_phase *phase, const range *r,
                                  size_t first) {
    lierne_staging_pipeline pipeline = {.first = first};
    int64_t number = (int64_t)e->pipelines.count;
    int peer = message_at(e, r, first)->peer;
    lierne_coalesced_message *last = NULL;
    LIERNE_TRY(LIERNE_VEC_PUSH(&e->pipelines, pipeline));
    phase->npipelines++;
    for (size_t i = r->begin; i < r->end; i++) {
        lierne_coalesced_message *p = message_at(e, r, i);
        if (p->peer != peer) {
            continue;
        }
        p->pipeline = number;
        if (i >= first) {
            if (last) {
                last->successor = (int64_t)i;
            }
            last = p;
        }
    }
    return LIERNE_OK;
}

static lierne_status stage_range(lierne_execution *e, lierne_phase *phase, size_t begin, size_t end,
                                 int64_t used[2]) {
    const range r = {phase, begin, end};
    for (size_t i = begin; i < end; i++) {
        assign_slot(e, &r, i, used);
    }
    for (size_t i = begin; i < end; i++) {
        const lierne_coalesced_message *p = message_at(e, &r, i);
        if (p->predecessor >= 0 && p->pipeline < 0) {
            LIERNE_TRY(add_pipeline(e, phase, &r, i));
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_execution_assign_staging(lierne_execution *e, int64_t bytes[2]) {
    int64_t most[2] = {bytes[0], bytes[1]};
    for (size_t i = 0; i < e->phases.count; i++) {
        lierne_phase *phase = &e->phases.at[i];
        /* phases run one after the other and share the memory */
        int64_t used[2] = {bytes[0], bytes[1]};
        phase->first_pipeline = e->pipelines.count;
        LIERNE_TRY(stage_range(e, phase, 0, phase->nrecvs, used));
        LIERNE_TRY(stage_range(e, phase, phase->nrecvs, phase->nrecvs + phase->nsends, used));
        for (int host = 0; host < 2; host++) {
            most[host] = used[host] > most[host] ? used[host] : most[host];
        }
    }
    bytes[0] = most[0];
    bytes[1] = most[1];
    return LIERNE_OK;
}
