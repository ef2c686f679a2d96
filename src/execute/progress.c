/* Calls of executions: begin, wait, dump.
 *
 * A wait progresses all executions of the context, not only its own: a peer may wait for another
 * one first and then needs this rank in its later stages. A wait yields to other ranks, checks from
 * time to time whether its peers are alive, and gives up at the deadline. */
#include "execute/execution.h"

#include <stdio.h>

#define CHECK_EVERY     0.02 /* seconds between checks whether the peers are alive */
#define POLLS_PER_CLOCK 32   /* polls without progress per check of the clock */

bool lierne_execution_running(const lierne_execution *e) {
    return e->running;
}

static void set_buffers(lierne_execution *e, void *const *out, const void *const *in) {
    for (size_t p = 0; p < e->nsubroutes; p++) {
        lierne_subroute *subroute = &e->subroutes[p];
        subroute->in = in[p];
        subroute->base[LIERNE_OUT] = out[p];
        subroute->base[LIERNE_SCRATCH] = e->memory + subroute->scratch;
        subroute->no_out = out[p] == NULL;
        subroute->accumulates = subroute->adds_to_out || e->reduction != LIERNE_SUM;
    }
}

static size_t slots_of(const lierne_execution *e) {
    const lierne_phase *phase = &e->phases.at[e->phase];
    return phase->nrecvs + phase->nsends;
}

static int peer_of(const lierne_execution *e, size_t slot) {
    return e->messages.at[e->phases.at[e->phase].first + slot].peer;
}

/* The peers whose messages are not complete, as many as fit. */
static void list_missing(const lierne_execution *e, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < slots_of(e) && used + 16 < size; i++) {
        if (e->waiting[i]) {
            used += (size_t)snprintf(text + used, size - used, used ? ", %d" : "%d", peer_of(e, i));
        }
    }
}

static size_t dump(const lierne_activity *activity, char *text, size_t size, size_t used) {
    const lierne_execution *e = (const lierne_execution *)activity;
    char missing[128] = "";
    if (e->finished || used + 1 >= size) {
        return used;
    }
    list_missing(e, missing, sizeof missing);
    int n = snprintf(text + used, size - used,
                     "in flight: call %lld, %s of plan %d, stage %zu of %zu, since %.3f s, waits "
                     "for rank %s\n",
                     (long long)e->call, e->name, e->plan, e->phase, e->phases.count,
                     lierne_now() - e->started, missing);
    return used + (size_t)n < size ? used + (size_t)n : size - 1;
}

static bool progress(lierne_activity *activity) {
    return lierne_execution_progress((lierne_execution *)activity);
}

lierne_status lierne_execution_begin(lierne_execution *e, lierne_reduction reduction,
                                     void *const *out, const void *const *in) {
    lierne_context *context = e->context;
    LIERNE_TRY(lierne_context_alive(context));
    e->activity.progress = progress;
    e->activity.dump = dump;
    e->reduction = reduction;
    set_buffers(e, out, in);
    e->status = LIERNE_OK;
    e->phase = 0;
    e->pending = 0;
    e->finished = e->phases.count == 0;
    e->call = lierne_context_begin_call(context, e->name, e->plan);
    e->started = context->calls[e->call % LIERNE_CALLS].start;
    lierne_context_enter(context);
    e->running = true;
    lierne_context_add_activity(context, &e->activity);
    lierne_status status = e->finished ? LIERNE_OK : lierne_execution_start(e);
    if (status != LIERNE_OK) {
        e->finished = true;
        lierne_context_remove_activity(context, &e->activity);
        e->running = false;
        e->abandoned = true;
        lierne_context_end_call(context, e->call, status);
    }
    lierne_context_leave(context);
    return status == LIERNE_OK ? LIERNE_OK : lierne_context_kill(context, status);
}

static lierne_status time_out(const lierne_execution *e) {
    char missing[128];
    list_missing(e, missing, sizeof missing);
    return LIERNE_FAIL(LIERNE_TIMEOUT,
                       "rank %d: %s, call %lld, stage %zu of %zu: %zu of %zu messages missing "
                       "after %g s, with rank %s",
                       e->context->rank, e->name, (long long)e->call, e->phase, e->phases.count,
                       e->pending, slots_of(e), e->context->timeout, missing);
}

/* The error of a peer of this phase that gave up. Messages that arrived from it do not count. */
static lierne_status check_given_up(const lierne_execution *e) {
    const lierne_control *control = e->context->control;
    void *self = e->context->control_self;
    if (!control->any_gave_up || !control->any_gave_up(self)) {
        return LIERNE_OK;
    }
    for (size_t i = 0; i < slots_of(e); i++) {
        if (e->waiting[i] || i < e->phases.at[e->phase].nrecvs) {
            LIERNE_TRY(control->gave_up(self, peer_of(e, i)));
        }
    }
    return LIERNE_OK;
}

/* The error of a peer that this rank waits for and whose process has ended. */
static lierne_status check_peers(const lierne_execution *e) {
    const lierne_control *control = e->context->control;
    for (size_t i = 0; control->alive && i < slots_of(e); i++) {
        if (e->waiting[i]) {
            LIERNE_TRY(control->alive(e->context->control_self, peer_of(e, i)));
        }
    }
    return LIERNE_OK;
}

/* The clock of a wait. It starts at the first poll without progress and is read in one of
 * POLLS_PER_CLOCK of those. */
typedef struct wait_clock {
    lierne_deadline deadline; /* timeout 0: not started */
    double next_check;
    unsigned polls;
} wait_clock;

static lierne_status check_clock(const lierne_execution *e, wait_clock *w) {
    if (w->polls++ % POLLS_PER_CLOCK != 0) {
        return LIERNE_OK;
    }
    double now = lierne_now();
    if (w->deadline.timeout == 0) {
        lierne_deadline_start(&w->deadline, e->context->timeout, now);
        w->next_check = now + CHECK_EVERY;
    }
    LIERNE_TRY(check_given_up(e));
    if (now > w->next_check) {
        w->next_check = now + CHECK_EVERY;
        LIERNE_TRY(check_peers(e));
    }
    return lierne_deadline_passed(&w->deadline, now) ? time_out(e) : LIERNE_OK;
}

/* One poll, with the control's lock: threads of other ranks may progress the execution too. */
static lierne_status poll_once(lierne_execution *e, wait_clock *w, bool *finished) {
    const lierne_context *context = e->context;
    lierne_status status = LIERNE_OK;
    lierne_context_enter(context);
    if (!lierne_context_progress(context) && !e->finished) {
        if (context->control->idle && context->control->idle(context->control_self)) {
            w->polls = 0;
        }
        status = check_clock(e, w);
    }
    *finished = e->finished;
    lierne_context_leave(context);
    return status;
}

static lierne_status wait_finished(lierne_execution *e) {
    wait_clock w = {0};
    for (bool finished = false; !finished;) {
        LIERNE_TRY(poll_once(e, &w, &finished));
    }
    if (e->status != LIERNE_OK) {
        lierne_set_error(e->message);
    }
    return e->status;
}

lierne_status lierne_execution_wait(lierne_execution *e) {
    lierne_context *context = e->context;
    lierne_status status = lierne_context_alive(context);
    if (status == LIERNE_OK) {
        status = wait_finished(e);
        if (status != LIERNE_OK) {
            status = lierne_context_kill(context, status);
        }
    }
    e->abandoned |= status != LIERNE_OK;
    lierne_context_end_call(context, e->call, status);
    lierne_context_enter(context);
    lierne_context_remove_activity(context, &e->activity);
    e->running = false;
    lierne_context_leave(context);
    return status;
}
