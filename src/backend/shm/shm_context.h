/* Shared memory of a context over several processes: what its ranks must tell each other to use it.
 *
 * Each rank opens a segment and puts its name into the rank info that all gather; maps those of its
 * node; and, once all know how that went, starts the transport or takes it out of the context, the
 * same on every rank. */
#ifndef LIERNE_CONTEXT_SHM_H
#define LIERNE_CONTEXT_SHM_H

#include "runtime/context/context.h"

/* How it went on a rank; shm can only be used in a way that no rank is missing. */
typedef enum lierne_shm_answer {
    LIERNE_SHM_SHARED, /* it mapped the segments of its node */
    LIERNE_SHM_PULLS,  /* and can read the other memory of their processes */
    LIERNE_SHM_ALONE,  /* it has no rank of its node beside it */
    LIERNE_SHM_ANSWERS
} lierne_shm_answer;

/* The ranks of a context, once rank infos were gathered. */
typedef struct lierne_shm_ranks {
    const lierne_rank_info *infos; /* in the order of ranks */
    const int *flag;               /* per rank; -1: on another node */
    int n;
    bool flags; /* the abort flags of the node are mapped */
} lierne_shm_ranks;

/* Opens this rank's segment, where the context has the transport, and writes its name into the info
 * of this rank. A rank that the system refuses it says so there. */
LIERNE_PRIVATE void lierne_context_open_shm(lierne_context *context, lierne_rank_info *own);
/* Maps the segments of the node, and writes the answers of this rank. */
LIERNE_PRIVATE void lierne_context_map_shm(lierne_context *context, const lierne_shm_ranks *ranks,
                                           bool answers[LIERNE_SHM_ANSWERS]);
/* Starts the transport, or takes it out. An answer is true where it is on every rank. Errors:
 * UNSUPPORTED (the context has no other transport), on every rank. */
LIERNE_PRIVATE lierne_status lierne_context_start_shm(lierne_context *context,
                                                      const bool answers[LIERNE_SHM_ANSWERS],
                                                      bool crowded);

#endif
