/* The messages of a phase: posting them, packing what is staged, delivering what arrived.
 *
 * A contiguous block is sent from and received into the caller's own buffer. Any other message of a
 * transport that moves is packed into, or received into, a staging slot of the execution. A
 * transport that exposes needs no staging: blocks are copied from where the sender has them.
 *
 * On a transport that is ordered, messages have no ids: two executions whose messages it
 * interleaved in another order on each rank would take each other's data. So an execution posts
 * there only when all of its domain that began before it have posted everything. Their begins have
 * the same order on every rank (lierne/plan.h). So do those on its stream: what is posted there
 * waits behind what was posted before. */
#include "runtime/execute/execution.h"

/* The first byte of a message that is not staged. */
static const char *start_of(const lierne_execution *e, const lierne_coalesced_message *m) {
    const lierne_segment *segment = &e->segments.at[m->first];
    const lierne_message *message = segment->message;
    int64_t offset = message->blocks.count ? message->blocks.at[0].offset : 0;
    const char *base = lierne_execution_readable(segment->subroute, message->buffer);
    return base ? base + (size_t)offset * segment->subroute->size : NULL;
}

/* From the sender's buffers into those of this rank, unless the transport has done so, or sums read
 * them there. */
static void copy_exposed(const lierne_execution *e, const lierne_coalesced_message *m) {
    const lierne_execution_batch *batch = &e->batches[m->batch];
    const lierne_transport_exposes *exposes = batch->transport->exposes;
    const lierne_part *parts = exposes->exposed(batch->batch, m->slot);
    bool held = false;
    if (!parts) {
        return;
    }
    for (size_t i = 0; i < m->count; i++) {
        if (e->fused && lierne_fused_sums_hold(e, m, m->first + i, &parts[i])) {
            held = true;
        } else {
            lierne_execution_copy_segment(e, &e->segments.at[m->first + i], &parts[i]);
        }
    }
    if (!held) {
        exposes->release(batch->batch, m->slot);
    }
}

void lierne_execution_deliver(const lierne_execution *e, const lierne_coalesced_message *m) {
    if (lierne_execution_exposes(e, m)) {
        copy_exposed(e, m);
    } else if (m->staging >= 0 && !lierne_execution_launches(e)) {
        lierne_execution_pack(e, m, e->memory.at + m->staging, true);
    }
}

/* Where the parts of a message that is exposed lie in this call. */
static void set_bases(const lierne_execution *e, const lierne_coalesced_message *m) {
    lierne_part *parts = e->batches[m->batch].parts;
    for (size_t i = m->first; i < m->first + m->count; i++) {
        const lierne_segment *segment = &e->segments.at[i];
        parts[i].base = lierne_execution_readable(segment->subroute, segment->message->buffer);
    }
}

/* Whether the phase sums anything. */
static bool has_sums(const lierne_execution *e) {
    bool any = false;
    for (size_t p = 0; p < e->nsubroutes; p++) {
        const lierne_stages *stages = &e->subroutes[p].route->stages;
        any |= e->cursor.phase < stages->count && stages->at[e->cursor.phase].sums.count > 0;
    }
    return any;
}

/* Sets what changes with every call in the posting of a message; a send that is staged is packed.
 */
static const lierne_posting *refresh(const lierne_execution *e, const lierne_coalesced_message *m) {
    lierne_posting *posting = &e->batches[m->batch].postings[m->slot];
    if (e->varying) {
        lierne_varying_refresh(e, m);
        return posting;
    }
    if (m->in_window) {
        posting->data = NULL;
    } else if (m->staging < 0) {
        posting->data = (char *)start_of(e, m);
    } else if (!posting->receives && !lierne_execution_launches(e)) {
        lierne_execution_pack(e, m, e->memory.at + m->staging, false);
    }
    if (posting->parts) {
        set_bases(e, m);
        posting->overwritten = !posting->receives && e->cursor.in_place && has_sums(e);
    }
    return posting;
}

/* "L", then the lierne_record_call, then the plan's number. */
static uint64_t tag_of(const lierne_execution *e) {
    return (uint64_t)'L' << 56 | (uint64_t)e->record.what << 32 | (uint32_t)e->record.plan;
}

static lierne_status post_list(lierne_execution *e, const lierne_execution_batch *batch,
                               const lierne_posting *postings, size_t n) {
    const lierne_transport *t = batch->transport;
    e->flight.unposted -= t->ordered ? n : 0;
    if (n == 0) {
        return LIERNE_OK;
    }
    return postings[0].all_gathers ? t->all_gathers->post(batch->batch, postings, n, tag_of(e))
                                   : t->post(batch->batch, e->flight.match, postings, n);
}

lierne_status lierne_execution_post_pipeline(lierne_execution *e,
                                             lierne_staging_pipeline *pipeline) {
    const lierne_phase *phase = &e->phases.at[e->cursor.phase];
    const lierne_coalesced_message *messages = &e->messages.at[phase->first];
    while (pipeline->next >= 0) {
        const lierne_coalesced_message *m = &messages[pipeline->next];
        if (m->predecessor >= 0 && e->flight.waiting[phase->first + (size_t)m->predecessor]) {
            return LIERNE_OK;
        }
        LIERNE_TRY(post_list(e, &e->batches[m->batch], refresh(e, m), 1));
        pipeline->next = m->successor;
    }
    return LIERNE_OK;
}

/* Whether a message is posted when its phase begins. */
static bool posted_at_once(const lierne_execution *e, const lierne_coalesced_message *m,
                           size_t index) {
    return !m->skipped && (m->pipeline < 0 || index < e->pipelines.at[m->pipeline].first);
}

/* Posts the messages of the phase that one transport serves and that need not wait for a slot. */
static lierne_status post_batch(lierne_execution *e, lierne_execution_batch *batch) {
    const lierne_phase *phase = &e->phases.at[e->cursor.phase];
    size_t end = phase->first + phase->nrecvs + phase->nsends, first = batch->next, index;
    for (; batch->next < batch->messages.count; batch->next++) {
        if ((index = batch->messages.at[batch->next]) >= end) {
            break;
        }
        const lierne_coalesced_message *m = &e->messages.at[index];
        if (posted_at_once(e, m, index - phase->first)) {
            refresh(e, m);
            continue;
        }
        LIERNE_TRY(post_list(e, batch, &batch->postings[first], batch->next - first));
        first = batch->next + 1;
    }
    return post_list(e, batch, &batch->postings[first], batch->next - first);
}

static bool is_ordered_with(const lierne_activity *a, const lierne_activity *own) {
    return a->domain == own->domain || (own->stream && a->stream == own->stream);
}

/* Whether an earlier execution of this domain, or on this stream, has still to post on an ordered
 * transport. */
static bool must_defer(const lierne_execution *e) {
    for (const lierne_activity *a = e->context->in_flight; a && e->flight.unposted > 0;
         a = a->next) {
        if (is_ordered_with(a, &e->activity) && a->turn >= 0 && a->turn < e->record.call) {
            return true;
        }
    }
    return false;
}

lierne_status lierne_execution_post_phase(lierne_execution *e) {
    const lierne_phase *phase = &e->phases.at[e->cursor.phase];
    bool passed;
    LIERNE_TRY(lierne_execution_check_launched(e, &passed));
    e->activity.awaits_stream = !passed;
    e->flight.deferred = !passed || must_defer(e);
    if (e->flight.deferred) {
        return LIERNE_OK;
    }
    for (size_t i = phase->first_pipeline; i < phase->first_pipeline + phase->npipelines; i++) {
        e->pipelines.at[i].next = (int64_t)e->pipelines.at[i].first;
    }
    for (int b = 0; b < e->context->ncarriers; b++) {
        if (e->batches[b].batch) {
            LIERNE_TRY(post_batch(e, &e->batches[b]));
        }
    }
    if (!lierne_execution_launches(e)) {
        lierne_execution_run_copies(e);
    }
    return LIERNE_OK;
}
