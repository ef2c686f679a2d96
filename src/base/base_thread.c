/* Threads of the library: signals are for the caller's, waits end. */
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

struct timespec lierne_time_after(struct timespec now, int64_t nanoseconds) {
    nanoseconds += now.tv_nsec;
    return (struct timespec){.tv_sec = now.tv_sec + nanoseconds / 1000000000,
                             .tv_nsec = nanoseconds % 1000000000};
}

void lierne_thread_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t nanoseconds) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const struct timespec until = lierne_time_after(now, nanoseconds);
    pthread_cond_timedwait(condition, lock, &until);
}
