/* The slots of messages that a call has enqueued on a stream: its next poll returns all of them. */
#ifndef LIERNE_TRANSPORT_POSTED_H
#define LIERNE_TRANSPORT_POSTED_H

#include "runtime/transport/transport.h"

typedef struct lierne_posted {
    size_t *slots; /* has space for those of a batch */
    size_t n;
} lierne_posted;

static inline void lierne_posted_add(lierne_posted *posted, const lierne_posting *postings,
                                     size_t n) {
    for (size_t i = 0; i < n; i++) {
        posted->slots[posted->n++] = postings[i].slot;
    }
}

static inline void lierne_posted_take(lierne_posted *posted, size_t *done, size_t *ndone) {
    for (size_t i = 0; i < posted->n; i++) {
        done[i] = posted->slots[i];
    }
    *ndone = posted->n;
    posted->n = 0;
}

#endif
