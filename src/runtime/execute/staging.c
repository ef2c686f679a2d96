/* Staging slots of messages that must be packed or unpacked.
 * Where a transport has windows, scattered messages are packed there, and need none.
 *
 * A short message has a slot of its own. Long messages, which planners cut so that they fit into
 * the cache, share a few slots per peer and direction: a message is unpacked from the cache before
 * its slot is reused, so memory far larger than the cache is accessed once instead of three times.
 * Each peer has slots of its own; otherwise ranks could wait for each other in a cycle. */
#include "runtime/execute/execution.h"

#include <stdlib.h>
#include <string.h>

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

static bool is_scattered(const lierne_execution *e, const lierne_coalesced_message *m) {
    return m->count > 1 || !is_contiguous(e->segments.at[m->first].message);
}

static bool is_staged(const lierne_execution *e, const lierne_coalesced_message *m) {
    return (is_scattered(e, m) || m->on_host) && !lierne_execution_exposes(e, m) && !m->in_window;
}

/* Calls of several executions find a message at several places, which no record knows. */
static void use_windows(lierne_execution *e) {
    const lierne_context *context = e->context;
    bool records = context->memory->launch && context->stream_driver;
    for (size_t i = 0; records && e->is_only && i < e->messages.count; i++) {
        lierne_coalesced_message *m = &e->messages.at[i];
        m->in_window = e->batches[m->batch].transport->windows && is_scattered(e, m);
        e->uses_windows |= m->in_window;
    }
}

/* A message of one direction of a phase, by its number in the phase. */
typedef struct entry {
    int peer;
    size_t index;
} entry;

/* Those of one peer, in the order of the messages. */
typedef struct run {
    const entry *entries;
    size_t count;
} run;

static int compare_entries(const void *a, const void *b) {
    const entry *x = a, *y = b;
    int peer = (x->peer > y->peer) - (x->peer < y->peer);
    return peer ? peer : (x->index > y->index) - (x->index < y->index);
}

static lierne_coalesced_message *message_at(const lierne_execution *e, const lierne_phase *phase,
                                            size_t index) {
    return &e->messages.at[phase->first + index];
}

/* A stream packs all messages of a phase before any is sent: slots are not shared then. recent:
 * the last SLOTS long staged messages of the peer, the oldest first; -1: there are fewer. */
static void assign_slot(const lierne_execution *e, const lierne_phase *phase, size_t index,
                        int64_t recent[SLOTS], int64_t used[2]) {
    lierne_coalesced_message *m = message_at(e, phase, index);
    if (!is_staged(e, m)) {
        return;
    }
    bool shares = m->bytes >= LONG && !e->context->stream_driver;
    const lierne_coalesced_message *last =
        shares && recent[0] >= 0 ? message_at(e, phase, (size_t)recent[0]) : NULL;
    if (last && last->bytes >= m->bytes) {
        m->staging = last->staging;
        m->predecessor = recent[0];
    } else {
        m->staging = used[m->on_host];
        used[m->on_host] += lierne_execution_align(m->bytes);
    }
    if (m->bytes >= LONG) {
        memmove(recent, recent + 1, (SLOTS - 1) * sizeof *recent);
        recent[SLOTS - 1] = (int64_t)index;
    }
}

/* Adds the pipeline of a peer, which begins with the first message that waits for a slot. */
static lierne_status add_pipeline(lierne_execution *e, lierne_phase *phase, const run *r,
                                  size_t first) {
    lierne_staging_pipeline pipeline = {.first = r->entries[first].index};
    int64_t number = (int64_t)e->pipelines.count;
    LIERNE_TRY(LIERNE_VEC_PUSH(&e->pipelines, pipeline));
    phase->npipelines++;
    for (size_t i = 0; i < r->count; i++) {
        lierne_coalesced_message *m = message_at(e, phase, r->entries[i].index);
        m->pipeline = number;
        if (i >= first && i + 1 < r->count) {
            m->successor = (int64_t)r->entries[i + 1].index;
        }
    }
    return LIERNE_OK;
}

static lierne_status stage_run(lierne_execution *e, lierne_phase *phase, const run *r,
                               int64_t used[2]) {
    int64_t recent[SLOTS];
    for (int i = 0; i < SLOTS; i++) {
        recent[i] = -1;
    }
    for (size_t i = 0; i < r->count; i++) {
        assign_slot(e, phase, r->entries[i].index, recent, used);
    }
    for (size_t i = 0; i < r->count; i++) {
        if (message_at(e, phase, r->entries[i].index)->predecessor >= 0) {
            return add_pipeline(e, phase, r, i);
        }
    }
    return LIERNE_OK;
}

static lierne_status stage_runs(lierne_execution *e, lierne_phase *phase, const entry *entries,
                                size_t n, int64_t used[2]) {
    for (size_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && entries[next].peer == entries[i].peer;) {
            next++;
        }
        const run r = {entries + i, next - i};
        LIERNE_TRY(stage_run(e, phase, &r, used));
    }
    return LIERNE_OK;
}

/* Messages begin to end - 1 of a phase, all of one direction. */
static lierne_status stage_range(lierne_execution *e, lierne_phase *phase, size_t begin, size_t end,
                                 int64_t used[2]) {
    entry *entries;
    size_t n = end - begin;
    LIERNE_TRY(lierne_alloc(&entries, n, sizeof *entries));
    for (size_t i = 0; i < n; i++) {
        entries[i] = (entry){message_at(e, phase, begin + i)->peer, begin + i};
    }
    if (n > 1) {
        qsort(entries, n, sizeof *entries, compare_entries);
    }
    lierne_status status = stage_runs(e, phase, entries, n, used);
    lierne_mem_free(entries);
    return status;
}

lierne_status lierne_execution_assign_staging(lierne_execution *e, int64_t bytes[2]) {
    int64_t most[2] = {bytes[0], bytes[1]};
    use_windows(e);
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
