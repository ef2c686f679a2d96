/* Making a job ready: which messages travel together, what needs staging, how much memory.
 *
 * Several routes in one job is how several bridges share an exchange: in every stage the messages
 * with the same peer become one parcel. Where a route has more than one message with a peer in a
 * stage, its k-th goes with the k-th of the others, at both ends alike. Executing allocates nothing:
 * all memory is reserved here. */
#include "transport/job.h"

static const lierne_messages *messages_of(const lierne_part *part, size_t stage, bool sends) {
    static const lierne_messages none = {0};
    if (stage >= part->route->stages.count) {
        return &none;
    }
    const lierne_stage *s = &part->route->stages.at[stage];
    return sends ? &s->sends : &s->recvs;
}

/* How many messages before m have its peer. */
static size_t turn_of(const lierne_messages *messages, size_t m) {
    size_t turn = 0;
    for (size_t i = 0; i < m; i++) {
        turn += messages->at[i].peer == messages->at[m].peer;
    }
    return turn;
}

/* The turn-th message with a peer, or NULL. */
static const lierne_message *find(const lierne_messages *messages, int peer, size_t turn) {
    for (size_t i = 0; i < messages->count; i++) {
        if (messages->at[i].peer == peer && turn-- == 0) {
            return &messages->at[i];
        }
    }
    return NULL;
}

static lierne_status add_item(lierne_job *job, lierne_parcel *parcel, lierne_part *part,
                              const lierne_message *message) {
    lierne_item item = {part, message};
    parcel->bytes += message->elements * (int64_t)part->size;
    parcel->count++;
    return LIERNE_VEC_PUSH(&job->items, item);
}

/* The parcel that begins with a message of part p: those of the later parts go with it. */
static lierne_status add_parcel(lierne_job *job, size_t p, size_t stage, bool sends, size_t m) {
    const lierne_messages *messages = messages_of(&job->parts[p], stage, sends);
    int peer = messages->at[m].peer;
    lierne_parcel parcel = {.peer = peer, .first = job->items.count, .staging = -1,
                            .after = -1, .stream = -1, .successor = -1};
    LIERNE_TRY(add_item(job, &parcel, &job->parts[p], &messages->at[m]));
    if (job->nparts > 1) {
        size_t turn = turn_of(messages, m);
        for (size_t q = 0; q < job->nparts; q++) {
            const lierne_message *other =
                find(messages_of(&job->parts[q], stage, sends), peer, turn);
            if (other && q < p) {
                job->items.count = parcel.first; /* it went with that part's */
                return LIERNE_OK;
            }
            if (other && q > p) {
                LIERNE_TRY(add_item(job, &parcel, &job->parts[q], other));
            }
        }
    }
    return LIERNE_VEC_PUSH(&job->parcels, parcel);
}

static lierne_status add_parcels(lierne_job *job, size_t stage, bool sends) {
    for (size_t p = 0; p < job->nparts; p++) {
        const lierne_messages *messages = messages_of(&job->parts[p], stage, sends);
        for (size_t m = 0; m < messages->count; m++) {
            LIERNE_TRY(add_parcel(job, p, stage, sends, m));
        }
    }
    return LIERNE_OK;
}

static lierne_status add_legs(lierne_job *job) {
    size_t stages = 0;
    for (size_t p = 0; p < job->nparts; p++) {
        size_t n = job->parts[p].route->stages.count;
        stages = n > stages ? n : stages;
    }
    for (size_t i = 0; i < stages; i++) {
        lierne_leg leg = {.first = job->parcels.count};
        LIERNE_TRY(add_parcels(job, i, false));
        leg.nrecvs = job->parcels.count - leg.first;
        LIERNE_TRY(add_parcels(job, i, true));
        leg.nsends = job->parcels.count - leg.first - leg.nrecvs;
        LIERNE_TRY(LIERNE_VEC_PUSH(&job->legs, leg));
    }
    return LIERNE_OK;
}

/* Scratch of the parts, then staging. */
static lierne_status reserve_memory(lierne_job *job) {
    job->reserved = 0;
    for (size_t p = 0; p < job->nparts; p++) {
        lierne_part *part = &job->parts[p];
        part->scratch = job->reserved;
        job->reserved += lierne_job_align(part->route->elements[LIERNE_SCRATCH] *
                                          (int64_t)part->size);
    }
    LIERNE_TRY(lierne_job_stage(job, &job->reserved));
    return lierne_alloc_unset(&job->memory, (size_t)job->reserved, 1);
}

static size_t most_summands(const lierne_job *job) {
    size_t most = 0;
    for (size_t p = 0; p < job->nparts; p++) {
        const lierne_route *route = job->parts[p].route;
        for (size_t i = 0; i < route->stages.count; i++) {
            const lierne_ops *sums = &route->stages.at[i].sums;
            for (size_t o = 0; o < sums->count; o++) {
                most = sums->at[o].from.count > most ? sums->at[o].from.count : most;
            }
        }
    }
    return most;
}

static lierne_status reserve(lierne_job *job) {
    size_t slots = 0;
    for (size_t i = 0; i < job->legs.count; i++) {
        size_t n = job->legs.at[i].nrecvs + job->legs.at[i].nsends;
        slots = n > slots ? n : slots;
    }
    LIERNE_TRY(job->context->wire->batch_new(job->context->self, slots, &job->batch));
    LIERNE_TRY(reserve_memory(job));
    LIERNE_TRY(lierne_alloc(&job->done, slots, sizeof *job->done));
    LIERNE_TRY(lierne_alloc(&job->waiting, slots, sizeof *job->waiting));
    return lierne_alloc(&job->summands, most_summands(job) + 1, sizeof *job->summands);
}

static lierne_status prepare(lierne_job *job, const lierne_cargo *cargo, size_t n) {
    LIERNE_TRY(lierne_alloc(&job->parts, n, sizeof *job->parts));
    job->nparts = n;
    for (size_t p = 0; p < n; p++) {
        job->parts[p] = (lierne_part){.route = cargo[p].route, .dtype = cargo[p].dtype,
                                      .size = lierne_dtype_size(cargo[p].dtype),
                                      .adds_to_out = cargo[p].accumulates};
    }
    LIERNE_TRY(add_legs(job));
    return reserve(job);
}

lierne_status lierne_job_new(lierne_job **out, lierne_context *context, const lierne_cargo *cargo,
                             size_t n, const char *name) {
    lierne_job *job;
    *out = NULL;
    LIERNE_TRY(lierne_alloc(&job, 1, sizeof *job));
    job->context = context;
    job->name = name;
    lierne_status status = prepare(job, cargo, n);
    if (status != LIERNE_OK) {
        lierne_job_free(job);
        return status;
    }
    *out = job;
    return LIERNE_OK;
}

/* Memory that a peer may still read or write is left behind. */
static void drop_job(lierne_job *job) {
    bool quiet = !job->batch || job->context->wire->batch_free(job->batch);
    lierne_mem_free(job->parts);
    lierne_mem_free(job->items.at);
    lierne_mem_free(job->parcels.at);
    lierne_mem_free(job->legs.at);
    lierne_mem_free(job->streams.at);
    if (quiet || job->reserved == 0) {
        lierne_mem_free(job->memory);
    }
    lierne_mem_free(job->done);
    lierne_mem_free(job->waiting);
    lierne_mem_free(job->summands);
    lierne_mem_free(job);
}

void lierne_job_free(lierne_job *job) {
    if (!job) {
        return;
    }
    lierne_context_enter(job->context);
    lierne_job_unlink(job);
    lierne_context_leave(job->context);
    if (job->running || job->abandoned) {
        /* The wire may still write into its memory. */
        job->next = job->context->orphans;
        job->context->orphans = job;
        return;
    }
    drop_job(job);
}

void lierne_jobs_drop_orphans(lierne_context *context) {
    for (lierne_job *job = context->orphans, *next; job; job = next) {
        next = job->next;
        drop_job(job);
    }
    context->orphans = NULL;
}

void lierne_job_identify(lierne_job *job, int plan, int tag) {
    job->plan = plan;
    job->tag = tag;
}

int64_t lierne_job_scratch_bytes(const lierne_job *job) {
    return job->reserved;
}

void lierne_job_messages(const lierne_job *job, int64_t *sent, int64_t *received) {
    *sent = *received = 0;
    for (size_t i = 0; i < job->legs.count; i++) {
        *sent += (int64_t)job->legs.at[i].nsends;
        *received += (int64_t)job->legs.at[i].nrecvs;
    }
}

void lierne_job_resize(lierne_job *job) {
    for (size_t i = 0; i < job->parcels.count; i++) {
        lierne_parcel *parcel = &job->parcels.at[i];
        parcel->bytes = 0;
        for (size_t k = 0; k < parcel->count; k++) {
            const lierne_item *item = &job->items.at[parcel->first + k];
            parcel->bytes += item->message->elements * (int64_t)item->part->size;
        }
    }
}
