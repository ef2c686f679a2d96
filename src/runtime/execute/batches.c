/* Which transport serves which message of an execution, and which sends must end with their phase.
 *
 * A phase ends when what it waits for is complete; then sums run, which may write to blocks that
 * were sent, and the next phase begins, which may receive into them. Only sends of such blocks, and
 * those from a staging slot, which later messages reuse, hold a phase up. All others may linger:
 * the caller's input, for example, is read only and belongs to the call until its end. */
#include "runtime/execute/execution.h"

#include <stdio.h>
#include <string.h>

bool lierne_execution_exposes(const lierne_execution *e, const lierne_coalesced_message *m) {
    return e->context->carriers[m->batch].transport->exposes != NULL;
}

/* Whether the memory of buffers is a device's, and the transport reads only the host's. */
static bool needs_host(const lierne_execution *e, const lierne_carrier *carrier) {
    const lierne_memory *memory = e->context->memory;
    return memory->alloc_host && !carrier->transport->streams &&
           !(carrier->takes && strcmp(carrier->takes, memory->name) == 0);
}

lierne_status lierne_execution_choose_transports(lierne_execution *e) {
    for (int b = 0; b < e->context->ncarriers; b++) {
        e->batches[b].transport = e->context->carriers[b].transport;
    }
    for (size_t i = 0; i < e->messages.count; i++) {
        lierne_coalesced_message *m = &e->messages.at[i];
        LIERNE_TRY(lierne_context_find_carrier(&m->batch, e->context, m->peer, e->varying));
        m->index = lierne_context_index(e->context, m->peer);
        m->on_host = needs_host(e, &e->context->carriers[m->batch]);
        m->slot = e->batches[m->batch].messages.count;
        LIERNE_TRY(LIERNE_VEC_PUSH(&e->batches[m->batch].messages, i));
        e->activity.carrier = i == 0 || e->activity.carrier == m->batch ? m->batch : -1;
    }
    return LIERNE_OK;
}

/* What a transport that exposes shows of each segment, and what one that connects tells the other
 * end; bases change with every call. */
static lierne_status list_parts(const lierne_execution *e, lierne_execution_batch *batch) {
    LIERNE_TRY(lierne_alloc(&batch->parts, e->segments.count, sizeof *batch->parts));
    for (size_t i = 0; i < e->segments.count; i++) {
        const lierne_segment *segment = &e->segments.at[i];
        batch->parts[i] = (lierne_part){.size = segment->subroute->size,
                                        .buffer = segment->message->buffer,
                                        .index = segment->message->index,
                                        .blocks = segment->message->blocks.at,
                                        .nblocks = segment->message->blocks.count};
    }
    return LIERNE_OK;
}

static char *slot_of(const lierne_execution *e, const lierne_coalesced_message *m) {
    char *memory = m->on_host ? e->host.at : e->memory.at;
    return m->staging >= 0 ? memory + m->staging : NULL;
}

void lierne_execution_place_slots(lierne_execution *e) {
    for (size_t i = 0; i < e->messages.count; i++) {
        const lierne_coalesced_message *m = &e->messages.at[i];
        e->batches[m->batch].postings[m->slot].data = slot_of(e, m);
    }
}

/* Postings change little from call to call: what does not is written once. */
static void list_postings(lierne_execution *e, const lierne_phase *phase) {
    for (size_t i = phase->first; i < phase->first + phase->nrecvs + phase->nsends; i++) {
        const lierne_coalesced_message *m = &e->messages.at[i];
        const lierne_execution_batch *batch = &e->batches[m->batch];
        batch->postings[m->slot] =
            (lierne_posting){.slot = m->slot,
                             .peer = m->index,
                             .receives = i < phase->first + phase->nrecvs,
                             .bytes = (size_t)m->bytes,
                             .data = slot_of(e, m),
                             .parts = e->varying     ? &e->frames[i].part
                                      : batch->parts ? &batch->parts[m->first]
                                                     : NULL,
                             .nparts = e->varying ? 1 : m->count,
                             .in_window = m->in_window,
                             .varies = e->varying != NULL};
        e->flight.ordered += batch->transport->ordered;
    }
}

static void note_policy(lierne_execution *e, const lierne_transport *transport) {
    if (transport->streams) {
        e->stream.stream_only = transport;
    } else {
        e->stream.polled_only = transport;
    }
}

/* Otherwise its messages are ordered with all others. */
static bool has_domain(const lierne_execution *e, int carrier) {
    return e->domain && e->domain->states[carrier];
}

lierne_status lierne_execution_create_batches(lierne_execution *e) {
    for (int b = 0; b < e->context->ncarriers; b++) {
        const lierne_carrier *carrier = &e->context->carriers[b];
        lierne_execution_batch *batch = &e->batches[b];
        size_t n = batch->messages.count;
        if (n == 0) {
            continue;
        }
        LIERNE_TRY(lierne_alloc(&batch->done, n, sizeof *batch->done));
        LIERNE_TRY(lierne_alloc(&batch->postings, n, sizeof *batch->postings));
        if (carrier->transport->exposes || carrier->transport->connects) {
            LIERNE_TRY(list_parts(e, batch));
        }
        void *state = lierne_context_state(e->context, b, e->domain);
        LIERNE_TRY(carrier->transport->batch_create(state, n, &batch->batch));
        note_policy(e, carrier->transport);
        if (carrier->transport->ordered && !has_domain(e, b)) {
            e->activity.domain = NULL;
        }
    }
    for (size_t i = 0; i < e->phases.count; i++) {
        list_postings(e, &e->phases.at[i]);
    }
    return LIERNE_OK;
}

bool lierne_execution_withdraw(lierne_execution *e) {
    e->flight.quiet |= !e->flight.withdrawn;
    for (int b = 0; !e->flight.withdrawn && b < LIERNE_MAX_TRANSPORTS; b++) {
        if (e->batches[b].batch) {
            e->flight.quiet &= e->batches[b].transport->withdraw(e->batches[b].batch);
        }
    }
    e->flight.withdrawn = true;
    return e->flight.quiet;
}

void lierne_execution_destroy_batches(lierne_execution *e) {
    for (int b = 0; b < LIERNE_MAX_TRANSPORTS; b++) {
        lierne_execution_batch *batch = &e->batches[b];
        if (batch->batch) {
            batch->transport->batch_destroy(batch->batch);
        }
        lierne_mem_free(batch->messages.at);
        lierne_mem_free(batch->done);
        lierne_mem_free(batch->postings);
        lierne_mem_free(batch->parts);
    }
}

void lierne_execution_list_transports(char *text, size_t size, const lierne_execution *e) {
    size_t used = 0;
    text[0] = '\0';
    for (int b = 0; b < e->context->ncarriers && used < size; b++) {
        if (e->batches[b].batch) {
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                                     e->batches[b].transport->name);
        }
    }
}

void lierne_range_extend(lierne_range *r, const lierne_block *block) {
    lierne_block_extend(block, &r->first, &r->end);
}

static void extend_ops(lierne_range *written, const lierne_ops *ops) {
    for (size_t o = 0; o < ops->count; o++) {
        lierne_range_extend(&written[ops->at[o].to.buffer], &ops->at[o].to.block);
    }
}

static void extend_recvs(lierne_range *written, const lierne_messages *recvs) {
    for (size_t i = 0; i < recvs->count; i++) {
        for (size_t b = 0; b < recvs->at[i].blocks.count; b++) {
            lierne_range_extend(&written[recvs->at[i].buffer], &recvs->at[i].blocks.at[b]);
        }
    }
}

static bool is_written(const lierne_range *written, const lierne_message *m) {
    const lierne_range *of = &written[m->buffer];
    for (size_t b = 0; of->first < of->end && b < m->blocks.count; b++) {
        lierne_range sent = {0};
        lierne_range_extend(&sent, &m->blocks.at[b]);
        if (sent.first < of->end && of->first < sent.end) {
            return true;
        }
    }
    return false;
}

/* Sends of a subroute in a stage, which hold the phase up where what they send is in `written`. */
static void mark_sends(lierne_execution *e, const lierne_subroute *subroute, size_t stage,
                       const lierne_range *written) {
    const lierne_phase *phase = &e->phases.at[stage];
    for (size_t i = phase->nrecvs; i < phase->nrecvs + phase->nsends; i++) {
        lierne_coalesced_message *m = &e->messages.at[phase->first + i];
        for (size_t s = m->first; s < m->first + m->count; s++) {
            const lierne_segment *segment = &e->segments.at[s];
            if (segment->subroute == subroute && is_written(written, segment->message)) {
                m->lingers = false;
            }
        }
    }
}

/* Whether a route sends from a buffer that it writes to at all. */
static bool sends_what_it_writes(const lierne_route *route) {
    for (size_t i = 0; i < route->stages.count; i++) {
        const lierne_messages *sends = &route->stages.at[i].sends;
        for (size_t m = 0; m < sends->count; m++) {
            if (sends->at[m].buffer != LIERNE_BUFFER_IN) {
                return true;
            }
        }
    }
    return false;
}

void lierne_execution_mark_lingering(lierne_execution *e) {
    for (size_t i = 0; i < e->messages.count; i++) {
        e->messages.at[i].lingers = e->messages.at[i].staging < 0;
    }
    for (size_t p = 0; p < e->nsubroutes; p++) {
        const lierne_subroute *subroute = &e->subroutes[p];
        if (!sends_what_it_writes(subroute->route)) {
            continue;
        }
        lierne_range written[LIERNE_BUFFER_COUNT] = {{0, 0}};
        for (size_t i = subroute->route->stages.count; i-- > 0;) {
            const lierne_stage *stage = &subroute->route->stages.at[i];
            extend_ops(written, &stage->sums);
            mark_sends(e, subroute, i, written);
            extend_recvs(written, &stage->recvs);
            extend_ops(written, &stage->copies);
        }
    }
}
