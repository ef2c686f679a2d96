/* Control: what ranks tell each other in order to plan and to detect failures.
 *
 * A control is one table: agreement, sparse exchange, allreduce with max, waiting, close; and
 * capabilities that some controls have. It moves no tensor data (runtime/transport/transport.h
 * does) and knows neither contexts nor plans: its state is the first argument of every function. A
 * context has exactly one control (runtime/context/context.h). */
#ifndef LIERNE_CONTROL_H
#define LIERNE_CONTROL_H

#include "runtime/control/field.h"

struct lierne_survivors;

/* A message of a planner to another rank: words of 64 bits. */
typedef struct lierne_control_message {
    int peer;
    size_t count;
    int64_t *words;
} lierne_control_message;
typedef LIERNE_VEC(lierne_control_message) lierne_control_messages;

/* What a rank brings to an agreement. */
typedef struct lierne_control_agreement {
    lierne_status mine;
    const lierne_field *fields;
    size_t n;
} lierne_control_agreement;

#define LIERNE_MAX_REDUCED 8 /* values of one allreduce_max */

/* The table of a control ends with its capabilities: what only some controls have. Each is a struct
 * of which every function is set, or NULL. */

/* Its agree cannot wait for all ranks, because one thread may call for all of them. */
typedef struct lierne_control_pending {
    /* The decision of an agreement so far. */
    lierne_status (*status)(void *self, int id);
    /* Waits until every rank has taken part, and returns the decision as agree does. */
    lierne_status (*await)(void *self, int id, lierne_status *decision);
} lierne_control_pending;

/* There are other ranks, and one may give up. */
typedef struct lierne_control_failures {
    /* Tells the other ranks that this one gave up, with status and the thread's message, before it
     * returns. Called once. */
    void (*give_up)(void *self, lierne_status status);
    /* Whether any rank is known to have given up. Cheap enough for a polling loop. */
    bool (*any_gave_up)(void *self);
    /* The error of a peer that is known to have given up; OK otherwise. */
    lierne_status (*gave_up)(void *self, int peer);
} lierne_control_failures;

/* Ranks are processes: they may end, or read what they were sent later than its sender waits. */
typedef struct lierne_control_processes {
    /* PEER_FAILED if the process of a rank is known to have ended, or the rank to have destroyed
     * its context alone. What it sent before has arrived. */
    lierne_status (*alive)(void *self, int peer);
    /* Whether a sparse exchange failed with messages pending: peers may still read the buffers that
     * they were sent from. */
    bool (*has_pending_buffers)(void *self);
} lierne_control_processes;

/* The processes of all ranks are of one node and share memory, so that those that are left when a
 * rank has died can agree (survivors.h). */
typedef struct lierne_control_survivors {
    /* Fills in what the state has of it; false where the memory does not reach all ranks. */
    bool (*find)(void *self, struct lierne_survivors *survivors);
} lierne_control_survivors;

/* Threads of several ranks use one state: the lock around everything that progresses executions. */
typedef struct lierne_control_lock {
    void (*enter)(void *self);
    void (*leave)(void *self);
} lierne_control_lock;

typedef struct lierne_control {
    const char *name;

    /* What every control has. */

    /* Collective. If `mine` is an error on some rank, *decision is that of the lowest such rank,
     * with its message, on every rank. Otherwise, if a field differs, it is MISMATCH, and the
     * message names the lowest rank that differs from rank 0, the field and both values. *id is the
     * number of the agreement, the same on every rank. Returns an error if the ranks could not
     * agree: TIMEOUT, PEER_FAILED, TRANSPORT, MISMATCH (another rank destroys its context). */
    lierne_status (*agree)(void *self, lierne_status mine, const lierne_field *fields, size_t n,
                           int *id, lierne_status *decision);
    /* Collective, waits for all ranks. Sends messages to ranks that do not expect them, at most one
     * per rank, itself allowed. Adds the messages that arrived to received (empty before), in
     * ascending order of the sender; the caller frees them with lierne_control_messages_destroy.
     * Time and memory are proportional to the messages. Errors: NO_MEMORY (received is empty; the
     * other ranks succeed), TIMEOUT, PEER_FAILED, TRANSPORT. */
    lierne_status (*sparse_exchange)(void *self, const lierne_control_message *messages, size_t n,
                                     lierne_control_messages *received);
    /* Collective, waits for all ranks. Replaces n values, at most LIERNE_MAX_REDUCED, by their
     * maxima over the ranks. Errors: TIMEOUT, PEER_FAILED, TRANSPORT. */
    lierne_status (*allreduce_max)(void *self, int64_t *values, size_t n);
    /* Called after a poll without progress: lets other ranks of this machine run. Returns whether
     * it slept, in which case the caller must check the clock. */
    bool (*idle)(void *self);
    /* Ends the control and frees its state. If dead, it does not communicate. */
    void (*close)(void *self, bool dead);

    /* Capabilities, or NULL. progress is one function: called from time to time by a rank that
     * waits for messages of a transport only, where messages of this control, and those of the
     * caller that a peer may wait for, move only while it is called. */
    void (*progress)(void *self);
    /* agree and sparse_exchange at the price of one. *memory: NO_MEMORY where this rank had none
     * for what arrived. received is for use where the decision is OK; where it is not, ranks may
     * have sent nothing. Returns an error as agree does. */
    lierne_status (*agree_exchange)(void *self, const lierne_control_agreement *agreement,
                                    const lierne_control_message *messages, size_t n,
                                    lierne_control_messages *received, lierne_status *memory,
                                    lierne_status *decision);
    const lierne_control_pending *pending;
    const lierne_control_failures *failures;
    const lierne_control_processes *processes;
    const lierne_control_survivors *survivors;
    const lierne_control_lock *lock;
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

/* Fails with the error of a rank that gave up, whose message may be that of another rank. */
LIERNE_PRIVATE lierne_status lierne_control_gave_up(lierne_status status, int rank,
                                                    const char *message);
/* The error of rank `own`, which waits for a rank that has destroyed its context alone. */
LIERNE_PRIVATE lierne_status lierne_control_left(int own, int rank);

#endif
