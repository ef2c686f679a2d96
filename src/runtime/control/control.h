/* Control: what ranks tell each other in order to plan and to detect failures.
 *
 * A control is one table of functions: agreement, sparse exchange, allreduce with max, liveness,
 * close. It moves no tensor data (runtime/transport/transport.h does) and knows neither contexts
 * nor plans: its state is the first argument of every function. A context has exactly one control
 * (runtime/context/context.h). */
#ifndef LIERNE_CONTROL_H
#define LIERNE_CONTROL_H

#include "runtime/control/field.h"

/* A message of a planner to another rank: words of 64 bits. */
typedef struct lierne_control_message {
    int peer;
    size_t count;
    int64_t *words;
} lierne_control_message;
typedef LIERNE_VEC(lierne_control_message) lierne_control_messages;

#define LIERNE_MAX_REDUCED 8 /* values of one allreduce_max */

typedef struct lierne_control {
    const char *name;

    /* Collective. If `mine` is an error on some rank, *decision is that of the lowest such rank,
     * with its message, on every rank. Otherwise, if a field differs, it is MISMATCH, and the
     * message names the lowest rank that differs from rank 0, the field and both values. *id is the
     * number of the agreement, the same on every rank. Returns an error if the ranks could not
     * agree: TIMEOUT, PEER_FAILED, TRANSPORT, MISMATCH (another rank destroys its context). */
    lierne_status (*agree)(void *self, lierne_status mine, const lierne_field *fields, size_t n,
                           int *id, lierne_status *decision);
    /* NULL unless agree cannot wait for all ranks because one thread may call for all of them.
     * agreement_status returns the decision so far. await_agreement waits until every rank has
     * taken part and returns the decision as agree does. */
    lierne_status (*agreement_status)(void *self, int id);
    lierne_status (*await_agreement)(void *self, int id, lierne_status *decision);

    /* Collective, waits for all ranks. Sends messages to ranks that do not expect them, at most one
     * per rank, itself allowed. Adds the messages that arrived to received (empty before), in
     * ascending order of the sender; the caller frees them with lierne_control_messages_destroy.
     * Time and memory are proportional to the messages. Errors: NO_MEMORY (received is empty; the
     * other ranks succeed), TIMEOUT, PEER_FAILED, TRANSPORT. */
    lierne_status (*sparse_exchange)(void *self, const lierne_control_message *messages, size_t n,
                                     lierne_control_messages *received);
    /* Whether a sparse exchange failed with messages pending: peers may still read the buffers that
     * they were sent from. NULL if that cannot happen. */
    bool (*has_pending_buffers)(void *self);

    /* Collective, waits for all ranks. Replaces n values, at most LIERNE_MAX_REDUCED, by their
     * maxima over the ranks. Errors: TIMEOUT, PEER_FAILED, TRANSPORT. */
    lierne_status (*allreduce_max)(void *self, int64_t *values, size_t n);

    /* Liveness: PEER_FAILED if the process of a rank is known to have ended. NULL if the control
     * cannot know. */
    lierne_status (*alive)(void *self, int peer);
    /* Tells the other ranks that this one gave up, with status and the thread's message, before it
     * returns. Called once. This and the next two are NULL if there are no other ranks. */
    void (*give_up)(void *self, lierne_status status);
    /* Whether any rank is known to have given up. Cheap enough for a polling loop. */
    bool (*any_gave_up)(void *self);
    /* The error of a peer that is known to have given up; OK otherwise. */
    lierne_status (*gave_up)(void *self, int peer);

    /* Called after a poll without progress: lets other ranks of this machine run. Returns whether
     * it slept, in which case the caller must check the clock. May be NULL. */
    bool (*idle)(void *self);
    /* Called from time to time by a rank that waits for messages of a transport only: MPI moves
     * messages, also those of the caller that a peer may wait for, only while it is called. NULL
     * where nothing needs it. */
    void (*progress)(void *self);
    /* The lock around everything that progresses executions. NULL if a context needs none. */
    void (*enter)(void *self);
    void (*leave)(void *self);

    /* Ends the control and frees its state. If dead, it does not communicate. */
    void (*close)(void *self, bool dead);
} lierne_control;

/* What a control calls while it waits, because other ranks may wait for executions of this one. */
typedef struct lierne_control_hook {
    bool (*progress)(void *user); /* returns whether anything progressed */
    void *user;
} lierne_control_hook;

LIERNE_PRIVATE void lierne_control_messages_destroy(lierne_control_messages *messages);
/* Adds a message from a rank, with space for count words, which the caller then writes. */
LIERNE_PRIVATE lierne_status lierne_control_messages_add(lierne_control_messages *messages,
                                                         int from, size_t count);
/* Sorts them by rank. */
LIERNE_PRIVATE void lierne_control_messages_sort(lierne_control_messages *messages);
/* Adds a copy of a message as one from a rank. */
lierne_status lierne_control_messages_copy(lierne_control_messages *messages, int from,
                                           const lierne_control_message *message);

/* The control of a world of one rank; it has no state. */
extern const lierne_control lierne_self_control;

#endif
