/* A transport moves messages between ranks and knows nothing else: it is a table of a few
 * functions. What the messages mean is in the route; who waits, and until when, is in execute/. */
#ifndef LIERNE_TRANSPORT_H
#define LIERNE_TRANSPORT_H

#include "base/base.h"

typedef struct lierne_transport {
    const char *name;

    /* A batch holds up to capacity messages in flight, each in a slot of its own. A slot is free
     * again when poll has named it. batch_destroy gives up what is in flight, and returns whether
     * the memory of the messages is quiet; otherwise peers may still read and write it. */
    lierne_status (*batch_create)(void *self, size_t capacity, void **batch);
    bool (*batch_destroy)(void *batch);

    /* Start a message; data stays borrowed until poll names the slot. Messages between the same
     * two ranks with the same tag arrive in the order in which they were started; sizes of both
     * ends must be equal (TRANSPORT otherwise, from here or from poll). */
    lierne_status (*send)(void *batch, size_t slot, int peer, int tag, const void *data,
                          size_t bytes);
    lierne_status (*recv)(void *batch, size_t slot, int peer, int tag, void *data, size_t bytes);

    /* Writes the slots that finished since the last poll into done (room for capacity). */
    lierne_status (*poll)(void *batch, size_t *done, size_t *ndone);
} lierne_transport;

/* The transport of a world of one rank, where routes have no messages; it has no state. */
extern const lierne_transport lierne_self_transport;

#endif
