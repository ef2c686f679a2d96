/* The watchdog is a thread, because the caller may be waiting for the stream that never gets ready,
 * and nobody else is there to end that.
 *
 * It only records what it finds, and lets transports end what hangs on the device. The context dies
 * in the caller's own thread, in its next call: telling other ranks may need MPI, which not every
 * thread may call. */
#include "runtime/context/watchdog.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

#define PERIOD 50000000 /* nanoseconds between two looks */

struct lierne_watchdog {
    const lierne_context *context;
    void (*enter)(int device);
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    lierne_watched *first;
    bool closing, aborted;
    lierne_status failed;
    const char *call;
    char message[LIERNE_MESSAGE_SIZE];
};

/* Errors that a transport has noticed by itself. */
static lierne_status check_transports(const lierne_watchdog *w) {
    for (int i = 0; i < w->context->ncarriers; i++) {
        const lierne_carrier *c = &w->context->carriers[i];
        const lierne_transport_watched *watched = c->transport->watched;
        LIERNE_TRY(watched ? watched->check(c->self) : LIERNE_OK);
    }
    return LIERNE_OK;
}

/* Takes off the list what has passed. */
static lierne_status look(lierne_watchdog *w) {
    double now = lierne_now();
    bool any = w->first != NULL; /* a call that a transport ended has passed, too */
    for (lierne_watched **at = &w->first, *one = *at; one; one = *at) {
        bool passed = false;
        w->call = one->call;
        LIERNE_TRY(one->check(one, now, &passed));
        one->listed = !passed;
        if (passed) {
            *at = one->next;
        } else {
            at = &one->next;
        }
    }
    if (w->first) {
        w->call = w->first->call;
    }
    return any ? check_transports(w) : LIERNE_OK;
}

/* Without the lock: ending what hangs may take a while. */
static void abort_transports(lierne_watchdog *w) {
    lierne_watchdog_leave(w);
    for (int i = 0; i < w->context->ncarriers; i++) {
        const lierne_carrier *c = &w->context->carriers[i];
        if (c->transport->watched) {
            c->transport->watched->abort(c->self);
        }
    }
    lierne_watchdog_enter(w);
}

static void pause_for(lierne_watchdog *w) {
    if (!w->first || w->failed != LIERNE_OK) {
        pthread_cond_wait(&w->changed, &w->lock);
    } else {
        lierne_thread_wait(&w->changed, &w->lock, PERIOD);
    }
}

/* Looks, unless a failure was found before. */
static void find_failure(lierne_watchdog *w) {
    if (w->failed == LIERNE_OK && (w->failed = look(w)) != LIERNE_OK) {
        snprintf(w->message, sizeof w->message, "%s", lierne_error_text());
    }
}

/* Once, also where the context is closed before this thread has seen what another one found. */
static void end_failed(lierne_watchdog *w) {
    if (w->failed != LIERNE_OK && !w->aborted) {
        w->aborted = true;
        abort_transports(w);
    }
}

static void *run_watchdog(void *self) {
    lierne_watchdog *w = self;
    if (w->enter) {
        w->enter(w->context->device);
    }
    lierne_watchdog_enter(w);
    while (!w->closing) {
        find_failure(w);
        end_failed(w);
        if (!w->closing) {
            pause_for(w);
        }
    }
    end_failed(w);
    lierne_watchdog_leave(w);
    return NULL;
}

void lierne_watchdog_look(lierne_watchdog *w) {
    lierne_watchdog_enter(w);
    find_failure(w);
    pthread_cond_signal(&w->changed); /* the thread ends what hangs, which may take a while */
    lierne_watchdog_leave(w);
}

lierne_status lierne_watchdog_create(lierne_context *context, void (*enter)(int device)) {
    lierne_watchdog *w;
    pthread_condattr_t attributes;
    if (context->watchdog) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc(&w, 1, sizeof *w));
    w->context = context;
    w->enter = enter;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    if (!lierne_thread_start(&w->thread, run_watchdog, w)) {
        pthread_cond_destroy(&w->changed);
        pthread_mutex_destroy(&w->lock);
        lierne_mem_free(w);
        return LIERNE_FAIL(LIERNE_ERR_NO_MEMORY,
                           "there is no thread for the watchdog of the context");
    }
    context->watchdog = w;
    return LIERNE_OK;
}

void lierne_watchdog_destroy(lierne_watchdog *w) {
    if (!w) {
        return;
    }
    lierne_watchdog_enter(w);
    w->closing = true;
    pthread_cond_signal(&w->changed);
    lierne_watchdog_leave(w);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    lierne_mem_free(w);
}

void lierne_watchdog_enter(lierne_watchdog *w) {
    pthread_mutex_lock(&w->lock);
}

void lierne_watchdog_leave(lierne_watchdog *w) {
    pthread_mutex_unlock(&w->lock);
}

void lierne_watchdog_add(lierne_watchdog *w, lierne_watched *watched) {
    if (watched->listed) {
        return;
    }
    watched->listed = true;
    watched->next = w->first;
    w->first = watched;
    if (!watched->next) { /* the thread sleeps */
        pthread_cond_signal(&w->changed);
    }
}

void lierne_watchdog_remove(lierne_watchdog *w, lierne_watched *watched) {
    for (lierne_watched **at = &w->first; *at; at = &(*at)->next) {
        if (*at == watched) {
            *at = watched->next;
            watched->listed = false;
            return;
        }
    }
}

bool lierne_watchdog_hurry(lierne_watchdog *w) {
    pthread_cond_signal(&w->changed);
    return w->failed != LIERNE_OK;
}

lierne_status lierne_watchdog_failure(lierne_watchdog *w, const char **call) {
    lierne_watchdog_enter(w);
    lierne_status failed = w->failed;
    if (failed != LIERNE_OK) {
        *call = w->call;
        lierne_set_error(w->message);
    }
    lierne_watchdog_leave(w);
    return failed;
}
