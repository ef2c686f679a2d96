/* The thread of a run: it does what lierne_run_test does, while the caller computes.
 *
 * It waits for a run to begin, and while nothing moves it sleeps shortly, because the caller's
 * computation needs the processor more. What it finds stays in the run: the caller's lierne_run_end
 * tells. */
#include "runtime/execute/stream.h"
#include "step/schedule_run.h"

#include <sched.h>
#include <time.h>

enum {
    YIELDS = 100, /* looks that found nothing, before it sleeps */
    NAP = 50000   /* nanoseconds */
};

static void pause_after(int looks) {
    const struct timespec nap = {.tv_nsec = NAP};
    if (looks < YIELDS) {
        sched_yield();
    } else {
        nanosleep(&nap, NULL);
    }
}

static void enter_device(const lierne_run *run) {
    const lierne_stream_driver *driver = run->streams ? run->context->stream_driver : NULL;
    if (driver && driver->enter_thread) {
        driver->enter_thread(run->context->device);
    }
}

static void *run_thread(void *self) {
    lierne_run *run = self;
    lierne_run_thread *t = run->thread;
    const char *outer = lierne_call_enter("lierne_run_end"); /* which tells of errors */
    int looks = 0;
    enter_device(run);
    lierne_guard_enter(&t->guard);
    while (!t->closing) {
        bool moved = false;
        if (!lierne_run_is_open(run) || lierne_run_advance(run, &moved) != LIERNE_OK ||
            !lierne_run_is_open(run)) {
            pthread_cond_broadcast(&t->guard.changed);
            lierne_guard_wait(&t->guard);
            looks = 0;
            continue;
        }
        looks = moved ? 0 : looks + 1;
        lierne_guard_leave(&t->guard);
        pause_after(looks);
        lierne_guard_enter(&t->guard);
    }
    lierne_guard_leave(&t->guard);
    lierne_call_leave(&outer);
    return NULL;
}

static lierne_status check_context(const lierne_context *context) {
    return context->one_thread[0]
               ? LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "rank %d: progress_thread is set, but %s",
                             context->rank, context->one_thread)
               : LIERNE_OK;
}

lierne_status lierne_run_thread_create(lierne_run *run) {
    lierne_run_thread *t;
    LIERNE_TRY(check_context(run->context));
    LIERNE_TRY(lierne_alloc(&t, 1, sizeof *t));
    pthread_mutex_init(&t->guard.lock, NULL);
    pthread_cond_init(&t->guard.changed, NULL);
    run->thread = t;
    if (lierne_thread_start(&t->thread, run_thread, run)) {
        return LIERNE_OK;
    }
    pthread_cond_destroy(&t->guard.changed);
    pthread_mutex_destroy(&t->guard.lock);
    lierne_mem_free(t);
    run->thread = NULL;
    return LIERNE_FAIL(LIERNE_ERR_NO_RESOURCE, "rank %d: there is no thread for the run",
                       run->context->rank);
}

void lierne_run_thread_destroy(lierne_run *run) {
    lierne_run_thread *t = run->thread;
    if (!t) {
        return;
    }
    lierne_guard_enter(&t->guard);
    t->closing = true;
    pthread_cond_broadcast(&t->guard.changed);
    lierne_guard_leave(&t->guard);
    pthread_join(t->thread, NULL);
    pthread_cond_destroy(&t->guard.changed);
    pthread_mutex_destroy(&t->guard.lock);
    lierne_mem_free(t);
    run->thread = NULL;
}
