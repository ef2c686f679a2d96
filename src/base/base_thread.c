/* Threads of the library: signals are for the caller's. */
#include "base/base.h"

#include <signal.h>

bool lierne_thread_start(pthread_t *thread, void *(*run)(void *), void *self) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(thread, NULL, run, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed == 0;
}
