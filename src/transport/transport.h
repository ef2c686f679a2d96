/* A transport moves messages between ranks and nothing else: it is a table of a few functions. The
 * route says what the messages mean; execute/ waits for them and has the deadline. */
#ifndef LIERNE_TRANSPORT_H
#define LIERNE_TRANSPORT_H

#include "base/base.h"

typedef struct lierne_transport {
    const char *name;

    /* A batch holds up to capacity messages in flight, each in a slot of its own. A slot is free
     * again after poll has returned it. batch_destroy abandons messages in flight and returns
     * whether their buffers are quiet; if not, peers may still read and write them. */
    lierne_status (*batch_create)(void *self, size_t capacity, void **batch);
    bool (*batch_destroy)(void *batch);

    /* Start a message. data stays borrowed until poll returns the slot. Messages between the same
     * two ranks with the same tag are matched in the order in which they were started. Both ends
     * must give the same size; otherwise send, recv or poll returns TRANSPORT. */
    lierne_status (*send)(void *batch, size_t slot, int peer, int tag, const void *data,
                          size_t bytes);
    lierne_status (*recv)(void *batch, size_t slot, int peer, int tag, void *data, size_t bytes);

    /* Writes the slots that completed since the last poll into done, which has space for capacity
     * of them. */
    lierne_status (*poll)(void *batch, size_t *done, size_t *ndone);
} lierne_transport;

/* The transport of a world of one rank, whose routes have no messages. It has no state. */
extern const lierne_transport lierne_self_transport;

#endif
