#include "backend/shm/bell.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define YIELDS    20
#define NAP_NANOS 1000000 /* a peer that dies rings no bell, so a sleep is short */

void lierne_bell_wake(lierne_segment_head *of) {
    if (atomic_load_explicit(&of->asleep, memory_order_relaxed)) {
        atomic_fetch_add_explicit(&of->bell, 1, memory_order_release);
        syscall(SYS_futex, &of->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

/* The caller looks at its flags once more before the next step. */
static void announce(lierne_bell *bell, lierne_segment_head *own) {
    bell->seen = atomic_load_explicit(&own->bell, memory_order_acquire);
    atomic_store_explicit(&own->asleep, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

bool lierne_bell_wait(lierne_bell *bell, lierne_segment_head *own) {
    const struct timespec nap = {.tv_nsec = NAP_NANOS};
    unsigned step = bell->polls++;
    if (step < bell->spins) {
        lierne_bell_relax();
        return false;
    }
    if (step < bell->spins + YIELDS) {
        sched_yield();
        return false;
    }
    if (step == bell->spins + YIELDS) {
        announce(bell, own);
        return false;
    }
    syscall(SYS_futex, &own->bell, FUTEX_WAIT, bell->seen, &nap, NULL, 0);
    bell->seen = atomic_load_explicit(&own->bell, memory_order_acquire);
    return true;
}

void lierne_bell_reset(lierne_bell *bell, lierne_segment_head *own) {
    if (bell->polls > bell->spins + YIELDS) {
        atomic_store_explicit(&own->asleep, 0, memory_order_relaxed);
    }
    bell->polls = 0;
}
