/* Finds what fails in calls that the caller has ended while a stream still works on them. Such a
 * call has no wait that could find it. */
#ifndef LIERNE_WATCHDOG_H
#define LIERNE_WATCHDOG_H

#include "runtime/context/context.h"

/* What is watched. A member of the struct that embeds it; starts as zeros. */
typedef struct lierne_watched {
    struct lierne_watched *next;
    bool listed;
    /* Called by the watchdog's thread, or by one that asks for the status, under the lock: whether
     * the stream has passed all of it, or the error that it found, of the public function `call`.
     */
    lierne_status (*check)(struct lierne_watched *watched, double now, bool *passed);
    const char *call;
} lierne_watched;

/* Creates the watchdog of a context, which it belongs to, and starts its thread, unless it has one.
 * enter: NULL, or called first in that thread, with the context's device. Errors: NO_MEMORY. */
LIERNE_PRIVATE lierne_status lierne_watchdog_create(lierne_context *context,
                                                    void (*enter)(int device));
/* Ends the thread. NULL is allowed. */
LIERNE_PRIVATE void lierne_watchdog_destroy(lierne_watchdog *w);

/* The lock: what a check reads changes only under it. */
void lierne_watchdog_enter(lierne_watchdog *w);
void lierne_watchdog_leave(lierne_watchdog *w);
/* Both under the lock. Adds what may be listed already; removes what may not be listed. */
void lierne_watchdog_add(lierne_watchdog *w, lierne_watched *watched);
void lierne_watchdog_remove(lierne_watchdog *w, lierne_watched *watched);

/* Under the lock. Makes it look at once, unless it has found a failure: it returns that, and looks
 * no more then. */
bool lierne_watchdog_hurry(lierne_watchdog *w);

/* Looks at once, in the caller's thread: what a stream has passed is known when this returns. */
void lierne_watchdog_look(lierne_watchdog *w);
/* OK, or the first failure, with its message; *call: of the public function that began it. */
lierne_status lierne_watchdog_failure(lierne_watchdog *w, const char **call);

#endif
