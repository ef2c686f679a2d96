/* Runs routes over a wire.
 *
 * A stage posts its receives, then its sends, then makes its local copies while both are in
 * flight; what arrives is unpacked as it arrives; when all has arrived, sums run and the next stage
 * starts. A contiguous block travels from and to the caller's own buffer, and so does a message
 * that the wire has a shape for. Any other is packed into, or lands in, staging memory that the job
 * reserved when it was made: executing allocates nothing. */
#include "pack/pack.h"
#include "transport/transport.h"

#include <stdio.h>
#include <string.h>

#define ALIGN       64   /* a cache line, in bytes */
#define CHECK_EVERY 0.02 /* seconds between looks whether the peers live */

struct lierne_job {
    lierne_context *context;
    const lierne_route *route;
    const char *name;
    lierne_dtype dtype;
    size_t size; /* of an element */
    int plan;
    int tag;
    void *batch;
    char *memory;      /* scratch, then staging */
    int64_t reserved;  /* bytes of memory */
    int64_t staging;   /* where staging starts in it */
    int64_t used;      /* bytes of staging that the running stage uses */
    void **shapes;     /* of every message, stage after stage, receives first; NULL without */
    size_t nshapes;
    size_t first;   /* in shapes, of the running stage */
    char **landing;    /* staging of receive m of the running stage, NULL if it lands in place */
    size_t *done;      /* for poll */
    bool *waiting;     /* whether the message in a slot is under way */
    lierne_summand *summands;
    char *base[LIERNE_BUFFERS];
    const char *in;
    bool no_out;
    bool running;
    bool abandoned; /* a run failed: messages may still be under way */
    bool finished;
    lierne_status status; /* of a run that failed */
    char message[LIERNE_MESSAGE_SIZE];
    size_t stage;
    size_t pending; /* messages of the running stage */
    int64_t call;   /* number of the running call */
    double started;
    lierne_job *next;
};

static bool in_place(const lierne_message *m) {
    return m->blocks.count == 0 ||
           (m->blocks.count == 1 && lierne_block_contiguous(&m->blocks.at[0]));
}

static int64_t round_up(int64_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static lierne_status shape_messages(lierne_job *job, const lierne_messages *messages) {
    const lierne_wire *wire = job->context->wire;
    for (size_t m = 0; m < messages->count; m++) {
        void **shape = &job->shapes[job->nshapes++];
        if (wire->shape_new && !in_place(&messages->at[m])) {
            LIERNE_TRY(wire->shape_new(job->batch, &messages->at[m], job->size, shape));
        }
    }
    return LIERNE_OK;
}

static int64_t staging_of(const lierne_job *job, const lierne_messages *messages, size_t first) {
    int64_t bytes = 0;
    for (size_t m = 0; m < messages->count; m++) {
        if (!in_place(&messages->at[m]) && !job->shapes[first + m]) {
            bytes += round_up(messages->at[m].elements * (int64_t)job->size);
        }
    }
    return bytes;
}

/* Shapes, and what staging the busiest stage needs without them. */
static lierne_status lay_out(lierne_job *job, int64_t *staging) {
    for (size_t i = 0; i < job->route->stages.count; i++) {
        const lierne_stage *s = &job->route->stages.at[i];
        size_t first = job->nshapes;
        LIERNE_TRY(shape_messages(job, &s->recvs));
        LIERNE_TRY(shape_messages(job, &s->sends));
        int64_t bytes = staging_of(job, &s->recvs, first) +
                        staging_of(job, &s->sends, first + s->recvs.count);
        *staging = bytes > *staging ? bytes : *staging;
    }
    return LIERNE_OK;
}

static lierne_status reserve(lierne_job *job) {
    const lierne_route *route = job->route;
    size_t capacity = 0, recvs = 0, summands = 0, messages = 0;
    int64_t staging = 0;
    for (size_t i = 0; i < route->stages.count; i++) {
        const lierne_stage *s = &route->stages.at[i];
        size_t n = s->sends.count + s->recvs.count;
        messages += n;
        capacity = n > capacity ? n : capacity;
        recvs = s->recvs.count > recvs ? s->recvs.count : recvs;
        for (size_t o = 0; o < s->sums.count; o++) {
            n = s->sums.at[o].from.count;
            summands = n > summands ? n : summands;
        }
    }
    LIERNE_TRY(job->context->wire->batch_new(job->context->self, capacity, &job->batch));
    LIERNE_TRY(lierne_alloc(&job->shapes, messages, sizeof *job->shapes));
    LIERNE_TRY(lay_out(job, &staging));
    job->staging = round_up(route->elements[LIERNE_SCRATCH] * (int64_t)job->size);
    job->reserved = job->staging + staging;
    LIERNE_TRY(lierne_alloc(&job->memory, (size_t)(job->reserved + ALIGN), 1));
    LIERNE_TRY(lierne_alloc(&job->landing, recvs, sizeof *job->landing));
    LIERNE_TRY(lierne_alloc(&job->done, capacity, sizeof *job->done));
    LIERNE_TRY(lierne_alloc(&job->waiting, capacity, sizeof *job->waiting));
    return lierne_alloc(&job->summands, summands, sizeof *job->summands);
}

lierne_status lierne_job_new(lierne_job **out, lierne_context *context, const lierne_route *route,
                             lierne_dtype dtype, const char *name) {
    lierne_job *job;
    *out = NULL;
    LIERNE_TRY(lierne_alloc(&job, 1, sizeof *job));
    *job = (lierne_job){.context = context, .route = route, .name = name, .dtype = dtype,
                        .size = lierne_dtype_size(dtype)};
    lierne_status status = reserve(job);
    if (status != LIERNE_OK) {
        lierne_job_free(job);
        return status;
    }
    *out = job;
    return LIERNE_OK;
}

static void unlink_job(lierne_job *job) {
    for (lierne_job **at = &job->context->jobs; *at; at = &(*at)->next) {
        if (*at == job) {
            *at = job->next;
            return;
        }
    }
}

static void drop_job(lierne_job *job) {
    if (job->batch) {
        job->context->wire->batch_free(job->batch);
    }
    for (size_t i = 0; i < job->nshapes; i++) {
        if (job->shapes[i]) {
            job->context->wire->shape_free(job->shapes[i]);
        }
    }
    lierne_mem_free(job->shapes);
    lierne_mem_free(job->memory);
    lierne_mem_free(job->landing);
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
    unlink_job(job);
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

bool lierne_job_running(const lierne_job *job) {
    return job->running;
}

int64_t lierne_job_scratch_bytes(const lierne_job *job) {
    return job->reserved;
}

lierne_job *lierne_job_next(const lierne_job *job) {
    return job->next;
}

static const char *readable(const lierne_job *job, lierne_buffer buffer) {
    return buffer == LIERNE_IN ? job->in : job->base[buffer];
}

/* Where a message that is not staged starts; with a shape, its buffer. */
static const char *start_of(const lierne_job *job, const lierne_message *m, const void *shape) {
    int64_t offset = m->blocks.count && !shape ? m->blocks.at[0].offset : 0;
    const char *base = readable(job, m->buffer);
    return base ? base + (size_t)offset * job->size : NULL;
}

static char *take_staging(lierne_job *job, const lierne_message *m) {
    char *at = job->memory + job->staging + job->used;
    job->used += round_up(m->elements * (int64_t)job->size);
    return at;
}

static void pack_message(const lierne_job *job, const lierne_message *m, char *to) {
    int64_t offset = 0;
    for (size_t b = 0; b < m->blocks.count; b++) {
        const lierne_block *block = &m->blocks.at[b];
        lierne_block packed = lierne_block_packed(block, offset);
        lierne_pack_copy(job->size, to, &packed, readable(job, m->buffer), block);
        offset += lierne_block_elements(block);
    }
}

static void unpack_message(const lierne_job *job, const lierne_message *m, const char *from) {
    int64_t offset = 0;
    for (size_t b = 0; b < m->blocks.count; b++) {
        const lierne_block *block = &m->blocks.at[b];
        lierne_block packed = lierne_block_packed(block, offset);
        lierne_pack_copy(job->size, job->base[m->buffer], block, from, &packed);
        offset += lierne_block_elements(block);
    }
}

static void run_sum(const lierne_job *job, const lierne_op *op) {
    for (size_t s = 0; s < op->from.count; s++) {
        const lierne_place *from = &op->from.at[s];
        job->summands[s] = (lierne_summand){readable(job, from->buffer), &from->block};
    }
    lierne_pack_sum(job->dtype, job->base[op->to.buffer], &op->to.block, job->summands,
                    op->from.count);
}

static void run_ops(const lierne_job *job, const lierne_ops *ops) {
    for (size_t o = 0; o < ops->count; o++) {
        const lierne_op *op = &ops->at[o];
        if (op->from.count == 0) {
            lierne_pack_zero(job->size, job->base[op->to.buffer], &op->to.block);
        } else if (op->from.count == 1) {
            lierne_pack_copy(job->size, job->base[op->to.buffer], &op->to.block,
                             readable(job, op->from.at[0].buffer), &op->from.at[0].block);
        } else {
            run_sum(job, op);
        }
    }
}

static lierne_status post_recv(lierne_job *job, const lierne_message *m, size_t slot) {
    const void *shape = job->shapes[job->first + slot];
    char *landing = in_place(m) || shape ? NULL : take_staging(job, m);
    char *to = landing ? landing : (char *)start_of(job, m, shape);
    job->landing[slot] = landing;
    return job->context->wire->recv(job->batch, slot, m->peer, job->tag, to,
                                    (size_t)m->elements * job->size, shape);
}

static lierne_status post_send(lierne_job *job, const lierne_message *m, size_t slot) {
    const void *shape = job->shapes[job->first + slot];
    char *packed = in_place(m) || shape ? NULL : take_staging(job, m);
    if (packed) {
        pack_message(job, m, packed);
    }
    return job->context->wire->send(job->batch, slot, m->peer, job->tag,
                                    packed ? packed : start_of(job, m, shape),
                                    (size_t)m->elements * job->size, shape);
}

static lierne_status post_stage(lierne_job *job) {
    const lierne_stage *s = &job->route->stages.at[job->stage];
    job->used = 0;
    job->pending = s->recvs.count + s->sends.count;
    memset(job->waiting, 1, job->pending * sizeof *job->waiting);
    for (size_t m = 0; m < s->recvs.count; m++) {
        LIERNE_TRY(post_recv(job, &s->recvs.at[m], m));
    }
    for (size_t m = 0; m < s->sends.count; m++) {
        LIERNE_TRY(post_send(job, &s->sends.at[m], s->recvs.count + m));
    }
    if (!job->no_out) {
        run_ops(job, &s->copies);
    }
    return LIERNE_OK;
}

/* Ends stages that have nothing left to wait for, and starts the next. */
static lierne_status advance(lierne_job *job) {
    while (job->pending == 0) {
        const lierne_stage *s = &job->route->stages.at[job->stage];
        run_ops(job, &s->sums);
        job->first += s->recvs.count + s->sends.count;
        if (++job->stage == job->route->stages.count) {
            job->finished = true;
            return LIERNE_OK;
        }
        LIERNE_TRY(post_stage(job));
    }
    return LIERNE_OK;
}

static lierne_status collect(lierne_job *job, size_t *ndone) {
    const lierne_stage *s = &job->route->stages.at[job->stage];
    LIERNE_TRY(job->context->wire->poll(job->batch, job->done, ndone));
    for (size_t i = 0; i < *ndone; i++) {
        size_t m = job->done[i];
        job->waiting[m] = false;
        if (m < s->recvs.count && job->landing[m]) {
            unpack_message(job, &s->recvs.at[m], job->landing[m]);
        }
    }
    job->pending -= *ndone;
    return *ndone ? advance(job) : LIERNE_OK;
}

static void fail_job(lierne_job *job, lierne_status status) {
    job->status = status;
    job->finished = true;
    snprintf(job->message, sizeof job->message, "%s", lierne_last_error());
}

bool lierne_job_progress(lierne_job *job) {
    size_t ndone = 0;
    if (job->finished) {
        return false;
    }
    lierne_status status = collect(job, &ndone);
    if (status != LIERNE_OK) {
        fail_job(job, status);
    }
    return ndone > 0 || status != LIERNE_OK;
}

lierne_status lierne_job_begin(lierne_job *job, void *out, const void *in, bool no_out) {
    lierne_context *context = job->context;
    LIERNE_TRY(lierne_context_alive(context));
    job->in = in;
    job->base[LIERNE_OUT] = out;
    job->base[LIERNE_SCRATCH] = job->memory;
    job->no_out = no_out;
    job->status = LIERNE_OK;
    job->stage = 0;
    job->first = 0;
    job->pending = 0;
    job->finished = job->route->stages.count == 0;
    job->call = lierne_context_call(context, job->name, job->plan);
    job->started = lierne_now();
    lierne_context_enter(context);
    job->running = true;
    job->next = context->jobs;
    context->jobs = job;
    lierne_status status = job->finished ? LIERNE_OK : post_stage(job);
    if (status == LIERNE_OK && !job->finished) {
        status = advance(job);
    }
    if (status != LIERNE_OK) {
        fail_job(job, status);
        unlink_job(job);
        job->running = false;
        job->abandoned = true;
        lierne_context_ended(context, job->call, status);
    }
    lierne_context_leave(context);
    return status == LIERNE_OK ? LIERNE_OK : lierne_context_kill(context, status);
}

static int peer_of(const lierne_job *job, size_t slot) {
    const lierne_stage *s = &job->route->stages.at[job->stage];
    return slot < s->recvs.count ? s->recvs.at[slot].peer
                                 : s->sends.at[slot - s->recvs.count].peer;
}

static size_t slots_of(const lierne_job *job) {
    const lierne_stage *s = &job->route->stages.at[job->stage];
    return s->recvs.count + s->sends.count;
}

/* The ranks whose messages are missing, as far as they fit. */
static void list_missing(const lierne_job *job, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < slots_of(job) && used + 16 < size; i++) {
        if (job->waiting[i]) {
            used += (size_t)snprintf(text + used, size - used, used ? ", %d" : "%d",
                                     peer_of(job, i));
        }
    }
}

size_t lierne_job_dump(const lierne_job *job, char *text, size_t size, size_t used) {
    char missing[128] = "";
    if (job->finished || used + 1 >= size) {
        return used;
    }
    list_missing(job, missing, sizeof missing);
    int n = snprintf(text + used, size - used,
                     "in flight: call %lld, %s of plan %d, stage %zu of %zu, since %.3f s, waits "
                     "for rank %s\n",
                     (long long)job->call, job->name, job->plan, job->stage,
                     job->route->stages.count, lierne_now() - job->started, missing);
    return used + (size_t)n < size ? used + (size_t)n : size - 1;
}

static lierne_status time_out(const lierne_job *job) {
    char missing[128];
    list_missing(job, missing, sizeof missing);
    return LIERNE_FAIL(LIERNE_TIMEOUT,
                       "rank %d: %s, call %lld, stage %zu of %zu: %zu of %zu messages missing "
                       "after %g s, with rank %s",
                       job->context->rank, job->name, (long long)job->call, job->stage,
                       job->route->stages.count, job->pending, slots_of(job),
                       job->context->timeout, missing);
}

/* Whether a rank that is waited for is gone. */
static lierne_status check_peers(const lierne_job *job) {
    const lierne_wire *wire = job->context->wire;
    for (size_t i = 0; wire->alive && i < slots_of(job); i++) {
        if (job->waiting[i]) {
            LIERNE_TRY(wire->alive(job->context->self, peer_of(job, i)));
        }
    }
    return LIERNE_OK;
}

/* One look, with the wire's lock held: other ranks' threads may run the job meanwhile. */
static lierne_status look(lierne_job *job, double deadline, double *next_check, bool *finished) {
    const lierne_context *context = job->context;
    lierne_status status = LIERNE_OK;
    lierne_context_enter(context);
    bool moved = lierne_job_progress(job);
    if (!moved && !job->finished && context->wire->idle) {
        context->wire->idle(context->self);
    }
    double now = moved || job->finished ? 0 : lierne_now();
    if (now > *next_check) {
        status = check_peers(job);
        *next_check = now + CHECK_EVERY;
    }
    if (status == LIERNE_OK && now > deadline) {
        status = time_out(job);
    }
    *finished = job->finished;
    lierne_context_leave(context);
    return status;
}

static lierne_status wait_finished(lierne_job *job) {
    double deadline = lierne_now() + job->context->timeout, next_check = lierne_now() + CHECK_EVERY;
    for (bool finished = false; !finished;) {
        LIERNE_TRY(look(job, deadline, &next_check, &finished));
    }
    if (job->status != LIERNE_OK) {
        lierne_set_error(job->message);
    }
    return job->status;
}

lierne_status lierne_job_wait(lierne_job *job) {
    lierne_context *context = job->context;
    lierne_status status = lierne_context_alive(context);
    if (status == LIERNE_OK) {
        status = wait_finished(job);
        if (status != LIERNE_OK) {
            status = lierne_context_kill(context, status);
        }
    }
    job->abandoned |= status != LIERNE_OK;
    lierne_context_ended(context, job->call, status);
    lierne_context_enter(context);
    unlink_job(job);
    job->running = false;
    lierne_context_leave(context);
    return status;
}
