/* Windows in memory of the host: one block of memory that the ranks of the node share, which lives
 * in every process that has mapped it. */
#include "runtime/window/window.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#define ALIGNMENT     256
#define SPINS         20   /* polls before the first that lets other ranks run */
#define YIELDS        200  /* of those, before the first that may sleep */
#define CLOCK         32   /* polls per look at the clock */
#define CHECK_EVERY   0.02 /* seconds between checks whether the others are alive */
#define MOST_LISTED   16
#define MOST_RECORDED 8

static lierne_status reserve_shared(lierne_window *w) {
    size_t half = w->layout.flags + w->layout.buffer, bytes;
    if (w->n > 1 && !lierne_context_shares(w->context)) {
        char names[160];
        lierne_context_list_transports(names, sizeof names, w->context);
        return LIERNE_FAIL(
            LIERNE_ERR_UNSUPPORTED,
            "rank %d: the %d ranks of its node share no memory (transports: %s): add to "
            "LIERNE_TRANSPORTS the one that does (docs/transports.md)",
            w->context->rank, w->n, names);
    }
    if (!lierne_mul_size(half, (size_t)w->n, &bytes)) {
        return LIERNE_FAIL(LIERNE_ERR_NO_MEMORY, "%d windows of %lld bytes", w->n,
                           (long long)w->bytes);
    }
    /* Two buffers of these bytes, one behind the other; a rank on its own has one. */
    bytes = w->n > 1 ? bytes : 2 * bytes + ALIGNMENT;
    return lierne_shared_output_create(&w->shared, w->context, bytes, w->ranks, (size_t)w->n);
}

static lierne_status connect_ranks(lierne_window *w) {
    lierne_shared_output *const outputs[] = {w->shared};
    LIERNE_TRY(lierne_shared_outputs_connect(w->context, outputs, 1));
    char *base = lierne_shared_output_get(w->shared, 0);
    base += (ALIGNMENT - (uintptr_t)base % ALIGNMENT) % ALIGNMENT;
    for (int p = 0; p < w->n; p++) {
        w->at[p] = base + (size_t)p * lierne_window_part(&w->layout);
    }
    return LIERNE_OK;
}

static lierne_status reject_stream(const lierne_window *w, const void *stream) {
    return !stream
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                             "rank %d: stream must be NULL: the window is in memory of the host",
                             w->context->rank);
}

static _Atomic uint32_t *flag_of(const lierne_window *w, int of, int by) {
    return (_Atomic uint32_t *)lierne_window_flag(w, of, w->round, by);
}

static lierne_status notify_ranks(lierne_window *w, void *stream) {
    (void)stream;
    for (int p = 0; p < w->n; p++) {
        atomic_store_explicit(flag_of(w, p, w->place), w->round, memory_order_release);
    }
    return LIERNE_OK;
}

static bool is_missing(const lierne_window *w, int place) {
    return atomic_load_explicit(flag_of(w, w->place, place), memory_order_acquire) != w->round;
}

static int find_missing(const lierne_window *w, int from) {
    while (from < w->n && !is_missing(w, from)) {
        from++;
    }
    return from;
}

static lierne_status time_out(const lierne_window *w) {
    char list[160] = "";
    size_t used = 0;
    int missing = 0;
    for (int p = find_missing(w, 0); p < w->n; p = find_missing(w, p + 1)) {
        if (missing++ < MOST_LISTED && used + 16 < sizeof list) {
            used += (size_t)snprintf(list + used, sizeof list - used, used ? ", %d" : "%d",
                                     w->ranks[p]);
        }
    }
    return LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                       "rank %d: round %lu of the window: %d of %d ranks have not notified within "
                       "%g s: rank %s",
                       w->context->rank, (unsigned long)w->round, missing, w->n,
                       w->context->timeout, list);
}

/* The error of a rank that does not come any more. One that came and then ended is no error. */
static lierne_status check_missing(const lierne_window *w, int from, bool alive) {
    for (int p = find_missing(w, from); p < w->n; p = find_missing(w, p + 1)) {
        lierne_status status = lierne_context_gave_up(w->context, w->ranks[p]);
        if (status == LIERNE_OK && alive) {
            status = lierne_context_peer_alive(w->context, w->ranks[p]);
        }
        if (status != LIERNE_OK && is_missing(w, p)) {
            return status;
        }
    }
    return LIERNE_OK;
}

typedef struct wait_state {
    lierne_deadline deadline; /* timeout 0: not started */
    double next_check;
    unsigned polls;
    int recorded; /* ranks that were missing when that was last recorded */
} wait_state;

/* Once while nothing changes: a long wait must not fill the ring. */
static void record_missing(const lierne_window *w, wait_state *s) {
    int peers[MOST_RECORDED], missing = 0;
    for (int p = find_missing(w, 0); p < w->n; p = find_missing(w, p + 1)) {
        if (missing < MOST_RECORDED) {
            peers[missing] = w->ranks[p];
        }
        missing++;
    }
    lierne_entry entry = {.kind = LIERNE_RECORD_WAIT,
                          .time = lierne_recorder_now(&w->context->recorder)};
    for (int i = 0; missing != s->recorded && i < missing && i < MOST_RECORDED; i++) {
        entry.peer = peers[i];
        lierne_window_record(w, entry);
    }
    s->recorded = missing;
    lierne_recorder_flush_late(&w->context->recorder);
}

static lierne_status check_clock(const lierne_window *w, wait_state *s, int from) {
    const lierne_control *control = w->context->control;
    double now = lierne_now();
    if (s->deadline.timeout == 0) {
        lierne_deadline_start(&s->deadline, w->context->timeout, now);
        s->next_check = now + CHECK_EVERY;
    }
    if (control->progress) {
        control->progress(w->context->control_self);
    }
    bool alive = now > s->next_check;
    if (alive) {
        s->next_check = now + CHECK_EVERY;
        lierne_context_beat(w->context);
        record_missing(w, s);
    }
    LIERNE_TRY(check_missing(w, from, alive));
    return lierne_deadline_passed(&s->deadline, now) && find_missing(w, from) < w->n ? time_out(w)
                                                                                     : LIERNE_OK;
}

/* After a look that found a rank missing. */
static lierne_status idle_a_moment(const lierne_window *w, wait_state *s, int from) {
    if (s->polls++ < SPINS) {
        return LIERNE_OK;
    }
    lierne_context_enter(w->context);
    bool moved = lierne_context_poll(w->context);
    lierne_context_leave(w->context);
    bool slept = false;
    sched_yield();
    if (s->polls > SPINS + YIELDS && !moved) {
        slept = w->context->control->idle(w->context->control_self);
    }
    return slept || s->polls % CLOCK == 0 ? check_clock(w, s, from) : LIERNE_OK;
}

static lierne_status wait_for_ranks(lierne_window *w, void *stream) {
    wait_state state = {.polls = 0};
    (void)stream;
    for (int p = find_missing(w, 0); p < w->n; p = find_missing(w, p)) {
        lierne_status status = idle_a_moment(w, &state, p);
        if (status != LIERNE_OK) {
            record_missing(w, &state);
            return status;
        }
    }
    return LIERNE_OK;
}

static lierne_status drain_nothing(lierne_window *w) {
    (void)w;
    return LIERNE_OK;
}

static void destroy_shared(lierne_window *w, bool quiet) {
    lierne_shared_output_destroy(w->shared, quiet);
}

const lierne_window_memory lierne_window_on_host = {.reserve = reserve_shared,
                                                    .connect = connect_ranks,
                                                    .check_stream = reject_stream,
                                                    .notify = notify_ranks,
                                                    .wait = wait_for_ranks,
                                                    .drain = drain_nothing,
                                                    .destroy = destroy_shared};
