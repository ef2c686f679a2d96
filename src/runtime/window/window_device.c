/* Windows in memory of a device, of a transport that has it: flags are set and awaited by work on
 * the stream, which has the deadline. The host learns of a failure as it does in calls that it has
 * ended: the watchdog looks while the stream has rounds to pass. */
#include "runtime/window/window.h"

#include <time.h>

#define MOMENT 1.0 /* seconds that a stream is waited for when the context is dead */

/* The transport whose memory the ranks map, or NULL. */
static const lierne_carrier *find_carrier(const lierne_context *context) {
    for (int i = 0; i < context->ncarriers; i++) {
        if (context->carriers[i].transport->rounds) {
            return &context->carriers[i];
        }
    }
    return NULL;
}

static const lierne_transport_rounds *rounds_of(const lierne_window *w) {
    return w->carrier->transport->rounds;
}

static const lierne_stream_driver *driver_of(const lierne_window *w) {
    return w->context->stream_driver;
}

static uint64_t read_passed(const lierne_window *w) {
    return __atomic_load_n(&w->epochs->ended, __ATOMIC_ACQUIRE);
}

static bool is_drained(const lierne_window *w) {
    return !w->epochs || read_passed(w) >= w->enqueued;
}

/* Deadlines are those of the work itself: its transport is looked at while this is listed. */
static lierne_status check_rounds(lierne_watched *watched, double now, bool *passed) {
    const lierne_window *w =
        (const lierne_window *)(void *)((char *)watched - offsetof(lierne_window, watched));
    (void)now;
    *passed = is_drained(w);
    return LIERNE_OK;
}

static lierne_status reserve_watch(lierne_window *w) {
    const lierne_stream_driver *driver = driver_of(w);
    w->watched.check = check_rounds;
    if (!driver->detached) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_watchdog_create(w->context, driver->enter_thread));
    return driver->epochs_create(&w->epochs, w->context, 1);
}

static lierne_status reserve_memory(lierne_window *w) {
    size_t part = lierne_window_part(&w->layout);
    void *memory;
    w->carrier = find_carrier(w->context);
    if (w->n > 1 && !w->carrier) {
        char names[160];
        lierne_context_list_transports(names, sizeof names, w->context);
        return LIERNE_FAIL(
            LIERNE_ERR_UNSUPPORTED,
            "rank %d: the %d ranks of its node share no memory of devices (transports: %s): "
            "add to LIERNE_TRANSPORTS the one that does (docs/transports.md)",
            w->context->rank, w->n, names);
    }
    lierne_status status = w->n > 1 ? rounds_of(w)->alloc(w->carrier->self, &memory, &w->name, part,
                                                          2 * w->layout.flags)
                                    : w->context->memory->alloc(&memory, part);
    LIERNE_TRY(status);
    w->at[w->place] = memory;
    return reserve_watch(w);
}

/* The name of this rank's memory, to every other rank of the node; list has space for them. */
static lierne_status exchange_names(lierne_window *w, lierne_control_message *list, bool listed,
                                    lierne_control_messages *received) {
    size_t n = 0;
    for (int p = 0; p < w->n && listed; p++) {
        if (p != w->place) {
            list[n++] = (lierne_control_message){w->ranks[p], LIERNE_RECORD_WORDS, w->name.words};
        }
    }
    return lierne_context_sparse_exchange(w->context, list, n, received);
}

static lierne_status map_peers(lierne_window *w, const lierne_control_messages *received) {
    if (received->count != (size_t)w->n - 1) {
        return LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "rank %d: %zu of %d ranks named their windows",
                           w->context->rank, received->count, w->n - 1);
    }
    for (size_t i = 0; i < received->count; i++) {
        const lierne_control_message *m = &received->at[i];
        lierne_record name = {{0}};
        void *memory;
        int p = 0;
        while (p < w->n && w->ranks[p] != m->peer) {
            p++;
        }
        for (size_t k = 0; k < m->count && k < LIERNE_RECORD_WORDS; k++) {
            name.words[k] = m->words[k];
        }
        LIERNE_TRY(p < w->n
                       ? rounds_of(w)->map(w->carrier->self, &memory,
                                           lierne_context_index(w->context, m->peer), &name)
                       : LIERNE_FAIL(LIERNE_ERR_TRANSPORT,
                                     "rank %d names memory that this rank does not use", m->peer));
        w->at[p] = memory;
    }
    return LIERNE_OK;
}

/* A rank without memory for its messages still takes part, and says so afterwards. */
static lierne_status connect_ranks(lierne_window *w) {
    lierne_control_message *list;
    lierne_control_messages received = {0};
    lierne_status mine = lierne_alloc(&list, (size_t)w->n, sizeof *list);
    lierne_status status = exchange_names(w, list, mine == LIERNE_OK, &received);
    status = mine == LIERNE_OK ? status : mine;
    if (status == LIERNE_OK && w->n > 1) {
        status = map_peers(w, &received);
    }
    lierne_control_messages_destroy(&received);
    lierne_context_free_message_memory(w->context, list);
    return lierne_context_agree_all(w->context, status, NULL, 0, NULL);
}

static lierne_status check_stream(const lierne_window *w, const void *stream) {
    const lierne_stream_driver *driver = driver_of(w);
    bool captures = false;
    if (!stream) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "rank %d: stream is NULL, and a window in %s memory needs one: for the "
                           "default stream pass cudaStreamLegacy or cudaStreamPerThread",
                           w->context->rank, w->context->memory->name);
    }
    LIERNE_TRY(driver->check ? driver->check(stream, w->context->device, &captures) : LIERNE_OK);
    return !captures ? LIERNE_OK
                     : LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                                   "rank %d: the stream is being captured, and each round of a "
                                   "window has another number: end the capture before",
                                   w->context->rank);
}

/* Enqueues that this rank sets its flags at the others, or waits for theirs. */
static lierne_status enqueue_flags(const lierne_window *w, void *stream, bool waits) {
    lierne_round_flag flags[LIERNE_ROUND_FLAGS];
    size_t n = 0;
    for (int p = 0; p < w->n; p++) {
        if (p != w->place) {
            flags[n++] =
                (lierne_round_flag){.at = waits ? lierne_window_flag(w, w->place, w->round, p)
                                                : lierne_window_flag(w, p, w->round, w->place),
                                    .peer = lierne_context_index(w->context, w->ranks[p])};
        }
        if (n == LIERNE_ROUND_FLAGS || (n > 0 && p == w->n - 1)) {
            LIERNE_TRY(rounds_of(w)->enqueue(w->carrier->self, flags, n, w->round, waits, stream));
            n = 0;
        }
    }
    return LIERNE_OK;
}

static lierne_status notify_ranks(lierne_window *w, void *stream) {
    return enqueue_flags(w, stream, false);
}

/* Listed before the stream can pass it, so that the watchdog sees a failure of its last round. */
static lierne_status wait_for_ranks(lierne_window *w, void *stream) {
    LIERNE_TRY(enqueue_flags(w, stream, true));
    if (!w->epochs) {
        return LIERNE_OK;
    }
    lierne_watchdog_enter(w->context->watchdog);
    w->enqueued++;
    w->watched.call = lierne_call_name;
    lierne_watchdog_add(w->context->watchdog, &w->watched);
    lierne_watchdog_leave(w->context->watchdog);
    return driver_of(w)->advance(stream, &w->epochs->ended);
}

static lierne_status drain_stream(lierne_window *w) {
    const struct timespec nap = {.tv_nsec = 100000};
    double start = lierne_now();
    double most = w->context->dead == LIERNE_OK ? w->context->timeout : MOMENT;
    while (!is_drained(w) && lierne_now() - start < most) {
        nanosleep(&nap, NULL);
    }
    return is_drained(w) ? LIERNE_OK
                         : LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                                       "rank %d: a stream has not passed round %lu of the window "
                                       "within %g s",
                                       w->context->rank, (unsigned long)w->round, most);
}

static void destroy_memory(lierne_window *w, bool quiet) {
    if (w->watched.listed) {
        lierne_watchdog_enter(w->context->watchdog);
        lierne_watchdog_remove(w->context->watchdog, &w->watched);
        lierne_watchdog_leave(w->context->watchdog);
    }
    bool now = lierne_lifetime_find(NULL, quiet) == LIERNE_LIFETIME_USE;
    if (now && w->epochs) {
        driver_of(w)->epochs_destroy(w->epochs, w->context);
    }
    if (now && w->n == 1 && w->at && w->at[0]) {
        w->context->memory->free(w->at[0]);
    } else if (now && w->n > 1 && w->at && w->at[w->place]) {
        rounds_of(w)->free(w->carrier->self, &w->name);
    }
}

const lierne_window_memory lierne_window_on_device = {.reserve = reserve_memory,
                                                      .connect = connect_ranks,
                                                      .check_stream = check_stream,
                                                      .notify = notify_ranks,
                                                      .wait = wait_for_ranks,
                                                      .drain = drain_stream,
                                                      .destroy = destroy_memory};
