/* Runs executions over a transport.
 *
 * A phase posts its receives, then its sends, then makes its local copies while both are in flight.
 * Messages are unpacked as they arrive. When all messages are complete, the sums run and the next
 * phase begins. A contiguous block is sent from and received into the caller's own buffer; any
 * other message is packed into, or received into, a staging slot of the execution. */
#include "execute/execution.h"

#include <stdio.h>
#include <string.h>

static const char *readable(const lierne_subroute *subroute, lierne_buffer buffer) {
    return buffer == LIERNE_IN ? subroute->in : subroute->base[buffer];
}

/* The first byte of a message that is not staged. */
static const char *start_of(const lierne_execution *e, const lierne_coalesced_message *m) {
    const lierne_segment *segment = &e->segments.at[m->first];
    const lierne_message *message = segment->message;
    int64_t offset = message->blocks.count ? message->blocks.at[0].offset : 0;
    const char *base = readable(segment->subroute, message->buffer);
    return base ? base + (size_t)offset * segment->subroute->size : NULL;
}

/* Packs a message's segments into its staging slot, or unpacks them. */
static void pack_message(const lierne_execution *e, const lierne_coalesced_message *m,
                         bool unpack) {
    char *staged = e->memory + m->staging;
    for (size_t i = 0; i < m->count; i++) {
        const lierne_segment *segment = &e->segments.at[m->first + i];
        const lierne_subroute *subroute = segment->subroute;
        const lierne_message *message = segment->message;
        int64_t offset = 0;
        for (size_t b = 0; b < message->blocks.count; b++) {
            const lierne_block *block = &message->blocks.at[b];
            lierne_block packed = lierne_block_packed(block, offset);
            if (unpack) {
                lierne_host_copy(subroute->size, subroute->base[message->buffer], block, staged,
                                 &packed);
            } else {
                lierne_host_copy(subroute->size, staged, &packed,
                                 readable(subroute, message->buffer), block);
            }
            offset += lierne_block_elements(block);
        }
        staged += (size_t)message->elements * subroute->size;
    }
}

/* Whether a source is the target itself; in and out may be the same buffer. */
static bool in_place(const lierne_subroute *subroute, const lierne_place *from,
                     const lierne_op *op) {
    lierne_place place = *from;
    if (place.buffer == LIERNE_IN && subroute->in == subroute->base[LIERNE_OUT]) {
        place.buffer = LIERNE_OUT;
    }
    return lierne_place_same(&place, &op->to);
}

static void reduce(const lierne_execution *e, const lierne_subroute *subroute, const lierne_op *op,
                   bool accumulate) {
    size_t n = 0;
    if (accumulate) {
        e->contributions[n++] = (lierne_contribution){subroute->base[op->to.buffer], &op->to.block};
    }
    for (size_t s = 0; s < op->from.count; s++) {
        const lierne_place *from = &op->from.at[s];
        e->contributions[n++] =
            (lierne_contribution){readable(subroute, from->buffer),
                                  in_place(subroute, from, op) ? &op->to.block : &from->block};
    }
    lierne_host_reduce(subroute->dtype, e->reduction, subroute->base[op->to.buffer], &op->to.block,
                       e->contributions, n);
}

static void copy(const lierne_subroute *subroute, const lierne_op *op) {
    const lierne_place *from = &op->from.at[0];
    if (!in_place(subroute, from, op)) {
        lierne_host_copy(subroute->size, subroute->base[op->to.buffer], &op->to.block,
                         readable(subroute, from->buffer), &from->block);
    }
}

static void run_ops(const lierne_execution *e, const lierne_subroute *subroute,
                    const lierne_ops *ops) {
    for (size_t o = 0; o < ops->count; o++) {
        const lierne_op *op = &ops->at[o];
        bool accumulate = op->accumulate && subroute->accumulates;
        if (op->from.count + accumulate > 1) {
            reduce(e, subroute, op, accumulate);
        } else if (op->from.count == 1) {
            copy(subroute, op);
        } else if (!accumulate) {
            lierne_host_zero(subroute->size, subroute->base[op->to.buffer], &op->to.block);
        }
    }
}

/* The copies or the sums of the current stage of every subroute. */
static void run_subroutes(const lierne_execution *e, bool sums) {
    for (size_t p = 0; p < e->nsubroutes; p++) {
        const lierne_subroute *subroute = &e->subroutes[p];
        if (e->phase < subroute->route->stages.count) {
            const lierne_stage *s = &subroute->route->stages.at[e->phase];
            if (sums || !subroute->no_out) {
                run_ops(e, subroute, sums ? &s->sums : &s->copies);
            }
        }
    }
}

static lierne_status post_recv(lierne_execution *e, const lierne_coalesced_message *m,
                               size_t slot) {
    char *to = m->staging >= 0 ? e->memory + m->staging : (char *)start_of(e, m);
    return e->context->transport->recv(e->batch, slot, m->peer, e->tag, to, (size_t)m->bytes);
}

static lierne_status post_send(lierne_execution *e, const lierne_coalesced_message *m,
                               size_t slot) {
    const char *from = m->staging >= 0 ? e->memory + m->staging : start_of(e, m);
    if (m->staging >= 0) {
        pack_message(e, m, false);
    }
    return e->context->transport->send(e->batch, slot, m->peer, e->tag, from, (size_t)m->bytes);
}

static lierne_status post(lierne_execution *e, size_t slot) {
    const lierne_phase *phase = &e->phases.at[e->phase];
    const lierne_coalesced_message *m = &e->messages.at[phase->first + slot];
    return slot < phase->nrecvs ? post_recv(e, m, slot) : post_send(e, m, slot);
}

/* Posts the next messages of a pipeline, up to the first whose staging slot is in use. */
static lierne_status post_pipeline(lierne_execution *e, lierne_staging_pipeline *pipeline) {
    const lierne_coalesced_message *messages = &e->messages.at[e->phases.at[e->phase].first];
    while (pipeline->next >= 0) {
        const lierne_coalesced_message *m = &messages[pipeline->next];
        if (m->predecessor >= 0 && e->waiting[m->predecessor]) {
            return LIERNE_OK;
        }
        LIERNE_TRY(post(e, (size_t)pipeline->next));
        pipeline->next = m->successor;
    }
    return LIERNE_OK;
}

/* Whether a message is posted when its phase begins. */
static bool posts_at_once(const lierne_execution *e, const lierne_coalesced_message *m,
                          size_t slot) {
    return m->pipeline < 0 || slot < e->pipelines.at[m->pipeline].first;
}

static lierne_status post_phase(lierne_execution *e) {
    const lierne_phase *phase = &e->phases.at[e->phase];
    e->pending = phase->nrecvs + phase->nsends;
    memset(e->waiting, 1, e->pending * sizeof *e->waiting);
    for (size_t i = phase->first_pipeline; i < phase->first_pipeline + phase->npipelines; i++) {
        e->pipelines.at[i].next = (int64_t)e->pipelines.at[i].first;
    }
    for (size_t k = 0; k < e->pending; k++) {
        if (posts_at_once(e, &e->messages.at[phase->first + k], k)) {
            LIERNE_TRY(post(e, k));
        }
    }
    run_subroutes(e, false);
    return LIERNE_OK;
}

/* The error of a sender of this phase that gave up: its caller may have changed the buffer before
 * it was read here. */
static lierne_status check_senders(const lierne_execution *e) {
    const lierne_control *control = e->context->control;
    void *self = e->context->control_self;
    const lierne_phase *phase = &e->phases.at[e->phase];
    if (phase->nrecvs == 0 || !control->any_gave_up || !control->any_gave_up(self)) {
        return LIERNE_OK;
    }
    for (size_t i = 0; i < phase->nrecvs; i++) {
        LIERNE_TRY(control->gave_up(self, e->messages.at[phase->first + i].peer));
    }
    return LIERNE_OK;
}

/* Ends the current phase if all its messages are complete, and begins the next. */
static lierne_status advance(lierne_execution *e) {
    while (e->pending == 0) {
        LIERNE_TRY(check_senders(e));
        run_subroutes(e, true);
        if (++e->phase == e->phases.count) {
            e->finished = true;
            return LIERNE_OK;
        }
        LIERNE_TRY(post_phase(e));
    }
    return LIERNE_OK;
}

lierne_status lierne_execution_start(lierne_execution *e) {
    LIERNE_TRY(post_phase(e));
    return advance(e);
}

static lierne_status collect(lierne_execution *e, size_t *ndone) {
    const lierne_phase *phase = &e->phases.at[e->phase];
    LIERNE_TRY(e->context->transport->poll(e->batch, e->done, ndone));
    for (size_t i = 0; i < *ndone; i++) {
        size_t slot = e->done[i];
        const lierne_coalesced_message *m = &e->messages.at[phase->first + slot];
        e->waiting[slot] = false;
        if (slot < phase->nrecvs && m->staging >= 0) {
            pack_message(e, m, true);
        }
        if (m->pipeline >= 0) {
            LIERNE_TRY(post_pipeline(e, &e->pipelines.at[m->pipeline]));
        }
    }
    e->pending -= *ndone;
    return *ndone ? advance(e) : LIERNE_OK;
}

bool lierne_execution_progress(lierne_execution *e) {
    size_t ndone = 0;
    if (e->finished) {
        return false;
    }
    lierne_status status = collect(e, &ndone);
    if (status != LIERNE_OK) {
        e->status = status;
        e->finished = true;
        snprintf(e->message, sizeof e->message, "%s", lierne_last_error());
    }
    return ndone > 0 || status != LIERNE_OK;
}
