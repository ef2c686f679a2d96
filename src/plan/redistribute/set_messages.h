/* Messages of a tensor set, which its tensors share. */
#ifndef LIERNE_SET_MESSAGES_H
#define LIERNE_SET_MESSAGES_H

#include "plan/redistribute/set.h"
#include "route/route.h"

/* In bytes: a piece that is as long has a message of its own; what shorter ones fill. */
enum { LIERNE_SET_LEAST_PIECE = 256 << 10, LIERNE_SET_FULL_MESSAGE = 4 << 20 };

/* What shares messages, since it lands in one buffer in one stage: what is delivered; terms of
 * gradients; terms that are sums themselves. */
typedef enum lierne_set_traffic {
    LIERNE_SET_VALUES,
    LIERNE_SET_TERMS,
    LIERNE_SET_SUMS,
    LIERNE_SET_TRAFFICS
} lierne_set_traffic;

/* The message to a peer that takes further small pieces. */
typedef struct lierne_open_message {
    int peer;
    size_t index;
} lierne_open_message;
typedef LIERNE_VEC(lierne_open_message) lierne_open_messages;

/* Those of a route, to send and to receive. */
typedef struct lierne_set_open {
    lierne_open_messages at[LIERNE_SET_TRAFFICS][2];
} lierne_set_open;

void lierne_set_open_clear(lierne_set_open *open);
/* The message of a peer that has space; *index is its place. */
lierne_status lierne_set_open_for(lierne_open_messages *open, lierne_messages *messages, int peer,
                                  int64_t full, lierne_buffer buffer, size_t *index);

/* set_halos.c. Adds the tensors of a class one of whose layouts has a halo; from: the side of the
 * set that is `in`. */
lierne_status lierne_set_add_halos(lierne_route *route, int64_t *min_elements,
                                   lierne_set_open *open, const lierne_set *set,
                                   const lierne_set_class *members, int from);

#endif
