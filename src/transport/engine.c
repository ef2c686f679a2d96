/* Runs jobs over a wire.
 *
 * A leg posts its receives, then its sends, then makes its local copies while both are in flight;
 * what arrives is unpacked as it arrives; when all has arrived, sums run and the next leg starts. A
 * contiguous block travels from and to the caller's own buffer; any other message is packed into, or
 * lands in, staging memory of the job. */
#include "transport/job.h"

#include <stdio.h>
#include <string.h>

static const char *readable(const lierne_part *part, lierne_buffer buffer) {
    return buffer == LIERNE_IN ? part->in : part->base[buffer];
}

/* Where a parcel that is not staged starts. */
static const char *start_of(const lierne_job *job, const lierne_parcel *parcel) {
    const lierne_item *item = &job->items.at[parcel->first];
    const lierne_message *m = item->message;
    int64_t offset = m->blocks.count ? m->blocks.at[0].offset : 0;
    const char *base = readable(item->part, m->buffer);
    return base ? base + (size_t)offset * item->part->size : NULL;
}

/* Between a parcel's items and its staging memory. */
static void pack_parcel(const lierne_job *job, const lierne_parcel *parcel, bool unpack) {
    char *staged = job->memory + parcel->staging;
    for (size_t i = 0; i < parcel->count; i++) {
        const lierne_item *item = &job->items.at[parcel->first + i];
        const lierne_part *part = item->part;
        const lierne_message *m = item->message;
        int64_t offset = 0;
        for (size_t b = 0; b < m->blocks.count; b++) {
            const lierne_block *block = &m->blocks.at[b];
            lierne_block packed = lierne_block_packed(block, offset);
            if (unpack) {
                lierne_pack_copy(part->size, part->base[m->buffer], block, staged, &packed);
            } else {
                lierne_pack_copy(part->size, staged, &packed, readable(part, m->buffer), block);
            }
            offset += lierne_block_elements(block);
        }
        staged += (size_t)m->elements * part->size;
    }
}

/* Whether a source is the target itself; in and out may be one buffer. */
static bool in_place(const lierne_part *part, const lierne_place *from, const lierne_op *op) {
    lierne_place place = *from;
    if (place.buffer == LIERNE_IN && part->in == part->base[LIERNE_OUT]) {
        place.buffer = LIERNE_OUT;
    }
    return lierne_place_same(&place, &op->to);
}

static void reduce(const lierne_job *job, const lierne_part *part, const lierne_op *op, bool onto) {
    size_t n = 0;
    if (onto) {
        job->summands[n++] = (lierne_summand){part->base[op->to.buffer], &op->to.block};
    }
    for (size_t s = 0; s < op->from.count; s++) {
        const lierne_place *from = &op->from.at[s];
        job->summands[n++] = (lierne_summand){
            readable(part, from->buffer), in_place(part, from, op) ? &op->to.block : &from->block};
    }
    lierne_pack_reduce(part->dtype, job->reduction, part->base[op->to.buffer], &op->to.block,
                       job->summands, n);
}

static void copy(const lierne_part *part, const lierne_op *op) {
    const lierne_place *from = &op->from.at[0];
    if (!in_place(part, from, op)) {
        lierne_pack_copy(part->size, part->base[op->to.buffer], &op->to.block,
                         readable(part, from->buffer), &from->block);
    }
}

static void run_ops(const lierne_job *job, const lierne_part *part, const lierne_ops *ops) {
    for (size_t o = 0; o < ops->count; o++) {
        const lierne_op *op = &ops->at[o];
        bool onto = op->onto && part->accumulates;
        if (op->from.count + onto > 1) {
            reduce(job, part, op, onto);
        } else if (op->from.count == 1) {
            copy(part, op);
        } else if (!onto) {
            lierne_pack_zero(part->size, part->base[op->to.buffer], &op->to.block);
        }
    }
}

/* Copies while messages are in flight, or sums after them, of every part that has this stage. */
static void run_parts(const lierne_job *job, bool sums) {
    for (size_t p = 0; p < job->nparts; p++) {
        const lierne_part *part = &job->parts[p];
        if (job->leg < part->route->stages.count) {
            const lierne_stage *s = &part->route->stages.at[job->leg];
            if (sums || !part->no_out) {
                run_ops(job, part, sums ? &s->sums : &s->copies);
            }
        }
    }
}

static lierne_status post_recv(lierne_job *job, const lierne_parcel *parcel, size_t slot) {
    char *to = parcel->staging >= 0 ? job->memory + parcel->staging
                                    : (char *)start_of(job, parcel);
    return job->context->wire->recv(job->batch, slot, parcel->peer, job->tag, to,
                                    (size_t)parcel->bytes);
}

static lierne_status post_send(lierne_job *job, const lierne_parcel *parcel, size_t slot) {
    const char *from = parcel->staging >= 0 ? job->memory + parcel->staging : start_of(job, parcel);
    if (parcel->staging >= 0) {
        pack_parcel(job, parcel, false);
    }
    return job->context->wire->send(job->batch, slot, parcel->peer, job->tag, from,
                                    (size_t)parcel->bytes);
}

static lierne_status post(lierne_job *job, size_t slot) {
    const lierne_leg *leg = &job->legs.at[job->leg];
    const lierne_parcel *parcel = &job->parcels.at[leg->first + slot];
    return slot < leg->nrecvs ? post_recv(job, parcel, slot) : post_send(job, parcel, slot);
}

/* Posts the parcels of a stream whose places are free, up to one whose is not. */
static lierne_status post_stream(lierne_job *job, lierne_stream *stream) {
    const lierne_parcel *parcels = &job->parcels.at[job->legs.at[job->leg].first];
    while (stream->next >= 0) {
        const lierne_parcel *parcel = &parcels[stream->next];
        if (parcel->after >= 0 && job->waiting[parcel->after]) {
            return LIERNE_OK;
        }
        LIERNE_TRY(post(job, (size_t)stream->next));
        stream->next = parcel->successor;
    }
    return LIERNE_OK;
}

/* Whether a parcel is posted when its leg begins. */
static bool goes_at_once(const lierne_job *job, const lierne_parcel *parcel, size_t slot) {
    return parcel->stream < 0 || slot < job->streams.at[parcel->stream].first;
}

static lierne_status post_leg(lierne_job *job) {
    const lierne_leg *leg = &job->legs.at[job->leg];
    job->pending = leg->nrecvs + leg->nsends;
    memset(job->waiting, 1, job->pending * sizeof *job->waiting);
    for (size_t i = leg->first_stream; i < leg->first_stream + leg->nstreams; i++) {
        job->streams.at[i].next = (int64_t)job->streams.at[i].first;
    }
    for (size_t k = 0; k < job->pending; k++) {
        if (goes_at_once(job, &job->parcels.at[leg->first + k], k)) {
            LIERNE_TRY(post(job, k));
        }
    }
    run_parts(job, false);
    return LIERNE_OK;
}

/* What a rank sent before it gave up may have been changed by its caller before it was read here. */
static lierne_status check_senders(const lierne_job *job) {
    const lierne_context *context = job->context;
    const lierne_leg *leg = &job->legs.at[job->leg];
    if (leg->nrecvs == 0 || !context->wire->any_gave_up ||
        !context->wire->any_gave_up(context->self)) {
        return LIERNE_OK;
    }
    for (size_t i = 0; i < leg->nrecvs; i++) {
        LIERNE_TRY(context->wire->gave_up(context->self, job->parcels.at[leg->first + i].peer));
    }
    return LIERNE_OK;
}

/* Ends legs that have nothing left to wait for, and starts the next. */
static lierne_status advance(lierne_job *job) {
    while (job->pending == 0) {
        LIERNE_TRY(check_senders(job));
        run_parts(job, true);
        if (++job->leg == job->legs.count) {
            job->finished = true;
            return LIERNE_OK;
        }
        LIERNE_TRY(post_leg(job));
    }
    return LIERNE_OK;
}

lierne_status lierne_job_start(lierne_job *job) {
    LIERNE_TRY(post_leg(job));
    return advance(job);
}

static lierne_status collect(lierne_job *job, size_t *ndone) {
    const lierne_leg *leg = &job->legs.at[job->leg];
    LIERNE_TRY(job->context->wire->poll(job->batch, job->done, ndone));
    for (size_t i = 0; i < *ndone; i++) {
        size_t slot = job->done[i];
        const lierne_parcel *parcel = &job->parcels.at[leg->first + slot];
        job->waiting[slot] = false;
        if (slot < leg->nrecvs && parcel->staging >= 0) {
            pack_parcel(job, parcel, true);
        }
        if (parcel->stream >= 0) {
            LIERNE_TRY(post_stream(job, &job->streams.at[parcel->stream]));
        }
    }
    job->pending -= *ndone;
    return *ndone ? advance(job) : LIERNE_OK;
}

bool lierne_job_progress(lierne_job *job) {
    size_t ndone = 0;
    if (job->finished) {
        return false;
    }
    lierne_status status = collect(job, &ndone);
    if (status != LIERNE_OK) {
        job->status = status;
        job->finished = true;
        snprintf(job->message, sizeof job->message, "%s", lierne_last_error());
    }
    return ndone > 0 || status != LIERNE_OK;
}
