/* What functions of lierne's own can do beyond those of the caller (lierne/oob.h). */
#ifndef LIERNE_OOB_CALLS_H
#define LIERNE_OOB_CALLS_H

#include "base/base.h"
#include "lierne/oob.h"

/* All but progress and close may be NULL. user is that of the calls. */
typedef struct lierne_oob_hooks {
    /* Moves what can be moved; then test only looks. */
    void (*progress)(void *user);
    /* Waits a moment for something to arrive. */
    void (*sleep)(void *user);
    /* Whether nothing will come from a peer any more. */
    bool (*ended)(void *user, int peer);
    /* Ends the connections, so that the others see it. */
    void (*cut)(void *user);
    void (*close)(void *user);
} lierne_oob_hooks;

#endif
