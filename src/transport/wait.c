/* Calls of jobs: beginning them, waiting for them, saying what they wait for.
 *
 * Whoever waits runs all jobs of the context, not only the one waited for: a peer may wait for
 * another one first, and then needs this rank in its later stages. It lets the wire do other work,
 * looks now and then whether the ranks that are waited for still live, and gives up at the
 * deadline. */
#include "transport/job.h"

#include <stdio.h>

#define CHECK_EVERY     0.02 /* seconds between looks whether the peers live */
#define LOOKS_PER_CLOCK 32

void lierne_job_unlink(lierne_job *job) {
    for (lierne_job **at = &job->context->jobs; *at; at = &(*at)->next) {
        if (*at == job) {
            *at = job->next;
            return;
        }
    }
}

bool lierne_job_running(const lierne_job *job) {
    return job->running;
}

lierne_job *lierne_job_next(const lierne_job *job) {
    return job->next;
}

bool lierne_jobs_progress(const lierne_context *context) {
    bool moved = false;
    for (lierne_job *job = context->jobs; job; job = job->next) {
        moved |= lierne_job_progress(job);
    }
    return moved;
}

static void set_buffers(lierne_job *job, void *const *out, const void *const *in) {
    for (size_t p = 0; p < job->nparts; p++) {
        lierne_part *part = &job->parts[p];
        part->in = in[p];
        part->base[LIERNE_OUT] = out[p];
        part->base[LIERNE_SCRATCH] = job->memory + part->scratch;
        part->no_out = out[p] == NULL;
        part->accumulates = part->adds_to_out || job->reduction != LIERNE_SUM;
    }
}

lierne_status lierne_job_begin(lierne_job *job, lierne_reduction reduction, void *const *out,
                               const void *const *in) {
    lierne_context *context = job->context;
    LIERNE_TRY(lierne_context_alive(context));
    job->reduction = reduction;
    set_buffers(job, out, in);
    job->status = LIERNE_OK;
    job->leg = 0;
    job->pending = 0;
    job->finished = job->legs.count == 0;
    job->call = lierne_context_call(context, job->name, job->plan);
    job->started = context->calls[job->call % LIERNE_CALLS].start;
    lierne_context_enter(context);
    job->running = true;
    job->next = context->jobs;
    context->jobs = job;
    lierne_status status = job->finished ? LIERNE_OK : lierne_job_start(job);
    if (status != LIERNE_OK) {
        job->finished = true;
        lierne_job_unlink(job);
        job->running = false;
        job->abandoned = true;
        lierne_context_ended(context, job->call, status);
    }
    lierne_context_leave(context);
    return status == LIERNE_OK ? LIERNE_OK : lierne_context_kill(context, status);
}

static size_t slots_of(const lierne_job *job) {
    const lierne_leg *leg = &job->legs.at[job->leg];
    return leg->nrecvs + leg->nsends;
}

static int peer_of(const lierne_job *job, size_t slot) {
    return job->parcels.at[job->legs.at[job->leg].first + slot].peer;
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
                     (long long)job->call, job->name, job->plan, job->leg,
                     job->legs.count, lierne_now() - job->started, missing);
    return used + (size_t)n < size ? used + (size_t)n : size - 1;
}

static lierne_status time_out(const lierne_job *job) {
    char missing[128];
    list_missing(job, missing, sizeof missing);
    return LIERNE_FAIL(LIERNE_TIMEOUT,
                       "rank %d: %s, call %lld, stage %zu of %zu: %zu of %zu messages missing "
                       "after %g s, with rank %s",
                       job->context->rank, job->name, (long long)job->call, job->leg,
                       job->legs.count, job->pending, slots_of(job),
                       job->context->timeout, missing);
}

/* Whether a rank gave up that is waited for, or whose message came, which does not count then. */
static lierne_status check_given_up(const lierne_job *job) {
    const lierne_wire *wire = job->context->wire;
    if (!wire->any_gave_up || !wire->any_gave_up(job->context->self)) {
        return LIERNE_OK;
    }
    for (size_t i = 0; i < slots_of(job); i++) {
        if (job->waiting[i] || i < job->legs.at[job->leg].nrecvs) {
            LIERNE_TRY(wire->gave_up(job->context->self, peer_of(job, i)));
        }
    }
    return LIERNE_OK;
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

/* The clock of a wait: it starts with the first look in vain, and is read in one of a few of those. */
typedef struct watch {
    lierne_deadline deadline; /* timeout 0: not started */
    double next_check;
    unsigned looks;
} watch;

static lierne_status look_at_clock(const lierne_job *job, watch *w) {
    if (w->looks++ % LOOKS_PER_CLOCK != 0) {
        return LIERNE_OK;
    }
    double now = lierne_now();
    if (w->deadline.timeout == 0) {
        lierne_deadline_start(&w->deadline, job->context->timeout, now);
        w->next_check = now + CHECK_EVERY;
    }
    LIERNE_TRY(check_given_up(job));
    if (now > w->next_check) {
        w->next_check = now + CHECK_EVERY;
        LIERNE_TRY(check_peers(job));
    }
    return lierne_deadline_passed(&w->deadline, now) ? time_out(job) : LIERNE_OK;
}

/* One look, with the wire's lock held: other ranks' threads may run the job meanwhile. */
static lierne_status look(lierne_job *job, watch *w, bool *finished) {
    const lierne_context *context = job->context;
    lierne_status status = LIERNE_OK;
    lierne_context_enter(context);
    if (!lierne_jobs_progress(context) && !job->finished) {
        if (context->wire->idle) {
            context->wire->idle(context->self);
        }
        status = look_at_clock(job, w);
    }
    *finished = job->finished;
    lierne_context_leave(context);
    return status;
}

static lierne_status wait_finished(lierne_job *job) {
    watch w = {0};
    for (bool finished = false; !finished;) {
        LIERNE_TRY(look(job, &w, &finished));
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
    lierne_job_unlink(job);
    job->running = false;
    lierne_context_leave(context);
    return status;
}
