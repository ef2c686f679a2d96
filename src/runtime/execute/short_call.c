/* Short calls: blocking calls of one stage of which every message is short and contiguous, such as
 * small collectives within a node.
 *
 * A call of a microsecond must not spend it on lists of what is in flight, clocks and polls of
 * everything. So this rank posts all messages, makes its copies, and looks at its flags alone for a
 * moment. If all messages are there, it copies and adds straight from where they are exposed, and
 * the call is over. If not, nothing was taken yet: the call becomes an execution in flight like any
 * other, whose wait has the deadline and progresses whatever else is in flight. */
#include "runtime/execute/execution.h"

#include <string.h>

/* A source of a sum: of a buffer, or of the message that would land in scratch there. */
typedef struct source {
    const lierne_coalesced_message *message; /* NULL: of a buffer */
    lierne_block packed;                     /* as it lies in the message */
} source;

struct lierne_short_call {
    const lierne_transport_short_calls *calls; /* of the transport, as exposes */
    const lierne_transport_exposes *exposes;
    lierne_execution_batch *batch;
    LIERNE_VEC(source) sources; /* of all sums */
};

static const lierne_block *block_of(const lierne_execution *e, const lierne_coalesced_message *m) {
    return &e->segments.at[m->first].message->blocks.at[0];
}

static bool is_short(const lierne_execution *e, const lierne_coalesced_message *m) {
    const lierne_transport *t = e->batches[m->batch].transport;
    return t->short_calls && m->batch == e->messages.at[0].batch && m->count == 1 && m->bytes > 0 &&
           m->bytes <= (int64_t)t->short_calls->bytes &&
           e->segments.at[m->first].message->blocks.count == 1 &&
           lierne_block_contiguous(block_of(e, m));
}

/* From in to out, one contiguous block each. */
static bool is_plain_copy(const lierne_op *op) {
    return op->from.count == 1 && op->divisor <= 1 && op->from.at[0].buffer == LIERNE_BUFFER_IN &&
           op->to.buffer == LIERNE_BUFFER_OUT && lierne_block_contiguous(&op->from.at[0].block) &&
           lierne_block_contiguous(&op->to.block);
}

/* The receive whose block is that of a place; NULL: none. */
static const lierne_coalesced_message *find_receive(const lierne_execution *e,
                                                    const lierne_place *place) {
    for (size_t i = 0; i < e->phases.at[0].nrecvs; i++) {
        const lierne_coalesced_message *m = &e->messages.at[i];
        lierne_place lands =
            lierne_place_at(e->segments.at[m->first].message->buffer, *block_of(e, m));
        if (lierne_place_same(place, &lands)) {
            return m;
        }
    }
    return NULL;
}

static lierne_status add_sources(lierne_execution *e, const lierne_op *op, bool *plain) {
    lierne_short_call *s = e->short_call;
    *plain &= op->to.buffer == LIERNE_BUFFER_OUT && op->from.count > 1;
    for (size_t i = 0; i < op->from.count && *plain; i++) {
        const lierne_place *from = &op->from.at[i];
        source added = {.message = find_receive(e, from),
                        .packed = lierne_block_packed(&from->block, 0)};
        *plain = from->buffer == LIERNE_BUFFER_IN ||
                 (from->buffer == LIERNE_BUFFER_SCRATCH && added.message);
        LIERNE_TRY(LIERNE_VEC_PUSH(&s->sources, added));
    }
    return LIERNE_OK;
}

static lierne_status add_ops(lierne_execution *e, bool *plain) {
    const lierne_stage *stage = &e->subroutes[0].route->stages.at[0];
    for (size_t i = 0; i < stage->copies.count; i++) {
        *plain &= is_plain_copy(&stage->copies.at[i]);
    }
    for (size_t i = 0; i < stage->sums.count && *plain; i++) {
        LIERNE_TRY(add_sources(e, &stage->sums.at[i], plain));
    }
    return LIERNE_OK;
}

/* Whether messages and context are such; simulated ranks wait for each other with a lock. */
static bool may_be_short(const lierne_execution *e) {
    bool all = e->nsubroutes == 1 && e->phases.count == 1 && e->messages.count > 0 &&
               !e->subroutes[0].route->accumulates && !e->context->stream_driver &&
               e->context->memory == &lierne_host_memory && !e->context->control->lock;
    for (size_t i = 0; all && i < e->messages.count; i++) {
        all = is_short(e, &e->messages.at[i]);
    }
    return all;
}

lierne_status lierne_short_call_create(lierne_execution *e) {
    bool plain = true;
    if (!may_be_short(e)) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc(&e->short_call, 1, sizeof *e->short_call));
    lierne_short_call *s = e->short_call;
    s->batch = &e->batches[e->messages.at[0].batch];
    s->calls = s->batch->transport->short_calls;
    s->exposes = s->batch->transport->exposes;
    LIERNE_TRY(add_ops(e, &plain));
    if (!plain) {
        lierne_short_call_destroy(e);
    }
    return LIERNE_OK;
}

void lierne_short_call_destroy(lierne_execution *e) {
    if (e->short_call) {
        lierne_mem_free(e->short_call->sources.at);
        lierne_mem_free(e->short_call);
        e->short_call = NULL;
    }
}

static bool can_start(const lierne_execution *e, const void *out, const void *in) {
    const int64_t *elements = e->subroutes[0].route->elements;
    return e->short_call && !e->context->in_flight && in != out &&
           (out || elements[LIERNE_BUFFER_OUT] == 0);
}

static char *at(const lierne_subroute *s, char *base, const lierne_block *block) {
    return base + block->offset * (int64_t)s->size;
}

static void copy_own(const lierne_execution *e) {
    const lierne_subroute *s = &e->subroutes[0];
    const lierne_ops *copies = &s->route->stages.at[0].copies;
    for (size_t i = 0; i < copies->count; i++) {
        const lierne_block *to = &copies->at[i].to.block;
        memcpy(at(s, s->base[LIERNE_BUFFER_OUT], to),
               s->in + copies->at[i].from.at[0].block.offset * (int64_t)s->size,
               (size_t)to->count[0] * s->size);
    }
}

static const void *exposed(const lierne_short_call *s, const lierne_coalesced_message *m) {
    return s->exposes->exposed(s->batch->batch, m->slot)->base;
}

/* Messages that land in scratch are read by sums, where they are. */
static void deliver(const lierne_execution *e) {
    const lierne_subroute *s = &e->subroutes[0];
    for (size_t i = 0; i < e->phases.at[0].nrecvs; i++) {
        const lierne_coalesced_message *m = &e->messages.at[i];
        if (e->segments.at[m->first].message->buffer == LIERNE_BUFFER_OUT) {
            memcpy(at(s, s->base[LIERNE_BUFFER_OUT], block_of(e, m)), exposed(e->short_call, m),
                   (size_t)m->bytes);
        }
    }
}

static void add_arrived(const lierne_execution *e) {
    const lierne_subroute *s = &e->subroutes[0];
    const lierne_ops *sums = &s->route->stages.at[0].sums;
    const source *next = e->short_call->sources.at;
    for (size_t o = 0; o < sums->count; o++) {
        const lierne_op *op = &sums->at[o];
        for (size_t i = 0; i < op->from.count; i++, next++) {
            e->contributions[i] =
                next->message
                    ? (lierne_contribution){exposed(e->short_call, next->message), &next->packed}
                    : (lierne_contribution){s->in, &op->from.at[i].block};
        }
        lierne_host_reduce(s->route->dtype, op->reduction, op->divisor, s->base[LIERNE_BUFFER_OUT],
                           &op->to.block, e->contributions, op->from.count);
    }
}

static lierne_status end_short_call(lierne_execution *e, lierne_status status) {
    lierne_context *context = e->context;
    lierne_context_end_call(context, e->record.call, status);
    lierne_execution_record_end(e, status, context->calls[e->record.call % LIERNE_CALLS].end);
    if (status != LIERNE_OK) {
        e->abandoned = true;
        lierne_context_kill(context, status);
    }
    return status;
}

static lierne_status finish(lierne_execution *e) {
    deliver(e);
    add_arrived(e);
    lierne_status status = lierne_execution_check_senders(e);
    if (status == LIERNE_OK) {
        e->short_call->calls->release(e->short_call->batch->batch);
    }
    return end_short_call(e, status);
}

/* The call becomes one in flight. posted: all messages are, and own copies are made. */
static lierne_status wait_longer(lierne_execution *e, bool posted) {
    lierne_execution_reset(e, LIERNE_REDUCTION_SUM, NULL);
    lierne_execution_expect_phase(e);
    e->running = true;
    lierne_context_add_activity(e->context, &e->activity);
    if (posted) {
        e->short_call->batch->next = e->messages.count;
    } else {
        lierne_execution_fail(e, lierne_execution_post_phase(e));
    }
    return lierne_execution_wait(e);
}

static bool post_short(lierne_execution *e) {
    lierne_execution_batch *b = e->short_call->batch;
    for (size_t i = 0; i < e->segments.count; i++) {
        const lierne_segment *segment = &e->segments.at[i];
        b->parts[i].base = lierne_execution_readable(segment->subroute, segment->message->buffer);
    }
    return e->short_call->calls->post(b->batch, e->flight.match, b->postings, b->messages.count);
}

/* Entries are written before messages are posted: their atomic counter would wait for the stores.
 */
static void begin_short_call(lierne_execution *e, void *out, const void *in) {
    e->cursor.reduction = LIERNE_REDUCTION_SUM;
    e->cursor.phase = 0;
    lierne_execution_set_buffers(e, &out, &in);
    e->record.call =
        lierne_context_begin_call(e->context, e->name, e->record.number, e->record.plan);
    e->record.started = e->context->calls[e->record.call % LIERNE_CALLS].start;
    lierne_execution_record_call(e, e->record.started);
    lierne_execution_record_phase(e, e->record.bytes, e->record.started);
}

lierne_status lierne_execution_run(lierne_execution *e, void *out, const void *in) {
    if (!can_start(e, out, in)) {
        LIERNE_TRY(lierne_execution_begin(e, LIERNE_REDUCTION_SUM, &out, &in, NULL));
        return lierne_execution_wait(e);
    }
    begin_short_call(e, out, in);
    if (!post_short(e)) {
        return wait_longer(e, false);
    }
    copy_own(e);
    return e->short_call->calls->await(e->short_call->batch->batch) ? finish(e)
                                                                    : wait_longer(e, true);
}
