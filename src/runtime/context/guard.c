/* The guard of a context that a thread of the library progresses.
 *
 * A context is for one thread at a time. While a guard is there, the thread and the caller take
 * turns by its lock; calls that do not take it are kept out by lierne_context_alive, which every
 * call that communicates begins with. So only what is used beside the thread needs the lock. */
#include "runtime/context/context.h"

/* The guard that this thread has entered. */
static _Thread_local const lierne_guard *entered;

void lierne_guard_enter(lierne_guard *guard) {
    if (guard) {
        pthread_mutex_lock(&guard->lock);
        entered = guard;
    }
}

void lierne_guard_leave(lierne_guard *guard) {
    if (guard) {
        entered = NULL;
        pthread_mutex_unlock(&guard->lock);
    }
}

void lierne_guard_wait(lierne_guard *guard) {
    pthread_cond_wait(&guard->changed, &guard->lock);
    entered = guard;
}

lierne_status lierne_context_check_guard(const lierne_context *context) {
    const lierne_guard *guard = atomic_load_explicit(&context->guard, memory_order_acquire);
    return !guard || guard == entered
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_BUSY,
                             "rank %d: the thread of a run progresses the context: call "
                             "lierne_run_end first",
                             context->rank);
}
