/* How a rank waits for flags that others of its node set, and how it is woken.
 *
 * The memory order is Dekker's: who sets a flag looks afterwards whether the other is asleep, and
 * who goes to sleep says so before it looks at its flags for the last time. tests/model/bell.pml
 * checks that no wake-up is lost. */
#ifndef LIERNE_BELL_H
#define LIERNE_BELL_H

#include "backend/shm/segment.h"

/* The waiting of one rank. Zero-initialise but for spins. */
typedef struct lierne_bell {
    unsigned spins; /* polls without progress before the first yield */
    unsigned polls; /* in a row without progress */
    unsigned seen;  /* the bell before the last look */
} lierne_bell;

/* To be called after flags were set, and before those who wait for them are woken. */
static inline void lierne_bell_fence(void) {
    atomic_thread_fence(memory_order_seq_cst);
}
/* Between two looks at a flag. */
static inline void lierne_bell_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}
/* Wakes the owner of a segment if it is asleep. */
void lierne_bell_wake(lierne_segment_head *of);

/* One step of a wait, after a poll that found nothing: spins, then yields, then sleeps until
 * somebody rings, or a millisecond. The caller polls again after each step, also between the last
 * look and the sleep. Returns whether it slept. */
bool lierne_bell_wait(lierne_bell *bell, lierne_segment_head *own);
/* After a poll that found something: the next wait begins anew. */
void lierne_bell_reset(lierne_bell *bell, lierne_segment_head *own);

#endif
