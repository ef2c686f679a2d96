/* A transport moves the messages of a stage between ranks and knows nothing else: it is a table of
 * a few functions. The route says what the messages mean; execute/ decides which transport serves
 * which message, waits, has the deadline, and does all sums.
 *
 * A transport works in one of two ways. One that moves takes contiguous bytes at the sender and
 * delivers them at the receiver. One that exposes tells the receiver where the sender's buffers are
 * readable and when; execution then copies straight from there and releases them. */
#ifndef LIERNE_TRANSPORT_H
#define LIERNE_TRANSPORT_H

#include "base/base.h"
#include "route/route.h"

/* Blocks of one buffer, one after another; a message has one part per plan that it serves. */
typedef struct lierne_part {
    const void *base; /* of the buffer */
    const lierne_block *blocks;
    size_t nblocks;
} lierne_part;

/* A message of a stage that begins, or of one whose staging slot became free. */
typedef struct lierne_posting {
    size_t slot; /* of the batch; free again when poll has returned it */
    int peer;
    bool receives;
    size_t bytes;
    void *data;               /* where a transport that moves reads (sends) or writes (receives) */
    const lierne_part *parts; /* what a transport that exposes shows the receiver (sends) */
    size_t nparts;
} lierne_posting;

/* A group (lierne/group.h), as a transport sees it. */
typedef struct lierne_transport_group {
    int64_t uid; /* equal on all members, never used again */
    const char *purpose;
    int priority;     /* lierne_priority */
    const int *ranks; /* in the group's order; as the transport counts them */
    int n;
    int rank; /* this rank's place among them */
} lierne_transport_group;

typedef struct lierne_transport {
    const char *name;
    bool exposes; /* whether it exposes or moves */
    /* It has no match ids: messages between two ranks match in the order in which they are posted.
     * Execution then posts whole executions one after another, in the order of their begins. */
    bool ordered;

    /* Whether it serves this rank and a peer: the same at both ends. NULL: every peer. */
    bool (*reaches)(void *self, int peer);

    /* A batch holds up to capacity messages in flight, each in a slot of its own. withdraw gives up
     * those in flight, after an error, and returns whether their buffers are quiet; if not, peers
     * may still read and write them. batch_destroy frees a batch that was withdrawn
     * or has nothing in flight. */
    lierne_status (*batch_create)(void *self, size_t capacity, void **batch);
    bool (*withdraw)(void *batch);
    void (*batch_destroy)(void *batch);

    /* Starts messages. data and parts stay borrowed until poll returns the slot. Messages between
     * the same two ranks with the same match id match in the order in which they are posted, and
     * messages with different ids never do. Both ends must give the same size; otherwise post or
     * poll returns TRANSPORT. */
    lierne_status (*post)(void *batch, int match, const lierne_posting *postings, size_t n);

    /* Writes the slots that completed since the last poll into done, which has space for capacity
     * of them. A send that was exposed is complete when the receiver has released it. */
    lierne_status (*poll)(void *batch, size_t *done, size_t *ndone);

    /* Of a transport that exposes, for a receive that poll has returned: the sender's parts, as
     * many as the receiver has, readable at these addresses until release. */
    const lierne_part *(*exposed)(void *batch, size_t slot);
    void (*release)(void *batch, size_t slot);

    /* Both NULL unless the transport needs a communicator per group. Each is collective over the
     * members, which all call for their groups in one order, waits for them at most timeout
     * seconds, and is called without the control's lock. group_create writes what it made, which is
     * not NULL. After an error that only some members got, it is as if the others had succeeded:
     * they then call group_destroy alone. Errors of both: TIMEOUT, PEER_FAILED, TRANSPORT (the
     * context dies); of group_create also others, after which the member takes part in further
     * groups. group_destroy frees the communicator in any case; with alone set, other members do
     * not call, and it must not wait for them. */
    lierne_status (*group_create)(void *self, const lierne_transport_group *group, double timeout,
                                  void **communicator);
    lierne_status (*group_destroy)(void *communicator, double timeout, bool alone);
} lierne_transport;

/* The transport of a world of one rank, whose routes have no messages. It has no state. */
extern const lierne_transport lierne_self_transport;

#endif
