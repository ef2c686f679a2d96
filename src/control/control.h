/* Control: what ranks tell each other to plan and to stay alive.
 *
 * A control is one table of functions: agreement, sparse exchange, maxima, liveness, close. It
 * moves no tensor data (transport/transport.h does) and knows neither contexts nor plans: its state
 * is the first argument of every function. A context has exactly one (context/context.h). */
#ifndef LIERNE_CONTROL_H
#define LIERNE_CONTROL_H

#include "base/base.h"

/* A value on which all ranks must agree, with its name for the message. */
typedef struct lierne_field {
    char name[32];
    int64_t value;
} lierne_field;

/* What planners tell another rank: words of 64 bits. */
typedef struct lierne_control_message {
    int peer;
    size_t count;
    int64_t *words;
} lierne_control_message;
typedef LIERNE_VEC(lierne_control_message) lierne_control_messages;

#define LIERNE_MAX_REDUCED 8 /* values of one allreduce_max */

typedef struct lierne_control {
    const char *name;

    /* Collective. If mine is an error on some rank, *decision is that of the lowest such rank, with
     * its message, on every rank. Else, if a field differs, MISMATCH with a message that names the
     * lowest rank that differs from rank 0, the field and both values. *id numbers the agreement,
     * the same on every rank. Returns an error where the ranks could not agree: TIMEOUT,
     * PEER_FAILED, TRANSPORT, MISMATCH (another rank ends its context). */
    lierne_status (*agree)(void *self, lierne_status mine, const lierne_field *fields, size_t n,
                           int *id, lierne_status *decision);
    /* Where agree cannot wait for all ranks, because one thread calls for all of them; else NULL:
     * the decision so far, and the decision once every rank has taken part (returned as agree
     * does). */
    lierne_status (*agreement_status)(void *self, int id);
    lierne_status (*await_agreement)(void *self, int id, lierne_status *decision);

    /* Collective, waits for all ranks. Sends messages, at most one to a rank, itself allowed, to
     * ranks that do not expect them, and adds those that came to received (empty before), by
     * ascending sender; words are then the caller's (lierne_control_messages_destroy). Costs time
     * and memory in proportion to the messages. Errors: NO_MEMORY (received is empty; the other
     * ranks are not disturbed), TIMEOUT, PEER_FAILED, TRANSPORT. */
    lierne_status (*sparse_exchange)(void *self, const lierne_control_message *messages, size_t n,
                                     lierne_control_messages *received);
    /* Whether a sparse exchange failed while messages were under way: peers may still read their
     * memory. NULL where that cannot be. */
    bool (*reads_messages)(void *self);

    /* Collective, waits for all ranks: values, at most LIERNE_MAX_REDUCED of them, become their
     * maxima over the ranks. Errors: TIMEOUT, PEER_FAILED, TRANSPORT. */
    lierne_status (*allreduce_max)(void *self, int64_t *values, size_t n);

    /* Liveness. PEER_FAILED if the process of a rank is known to have ended; NULL where nobody can
     * tell. */
    lierne_status (*alive)(void *self, int peer);
    /* Tells the other ranks that this one gave up, with status and the thread's message, before it
     * returns. Called once. NULL where there are no others, as the next two. */
    void (*give_up)(void *self, lierne_status status);
    /* Whether any rank is known to have given up; costs next to nothing. */
    bool (*any_gave_up)(void *self);
    /* The error of a peer that is known to have given up. */
    lierne_status (*gave_up)(void *self, int peer);

    /* Nothing happened: lets other ranks of this machine work. Returns whether it slept, so that
     * the clock should be looked at. May be NULL. */
    bool (*idle)(void *self);
    /* A lock around everything that moves executions on; NULL where a context needs none. */
    void (*enter)(void *self);
    void (*leave)(void *self);

    /* Ends the control and frees its state. dead: does not communicate. */
    void (*close)(void *self, bool dead);
} lierne_control;

/* What a control calls while it waits: other ranks may wait for what this one has begun to send. */
typedef struct lierne_control_hook {
    bool (*progress)(void *user); /* returns whether anything happened */
    void *user;
} lierne_control_hook;

LIERNE_PRIVATE void lierne_control_messages_destroy(lierne_control_messages *messages);
/* Adds a message from a rank, with room for count words that are still to be written. */
LIERNE_PRIVATE lierne_status lierne_control_messages_add(lierne_control_messages *messages,
                                                         int from, size_t count);
/* Adds a copy of a message that a rank sent. */
lierne_status lierne_control_messages_copy(lierne_control_messages *messages, int from,
                                           const lierne_control_message *message);

/* The control of a world of one rank; it has no state. */
extern const lierne_control lierne_self_control;

#endif
