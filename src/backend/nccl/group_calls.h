/* Cuts the messages of a stage into group calls (ncclGroupStart, ncclGroupEnd) of bounded size.
 *
 * NCCL hangs on groups of tens of thousands of operations, and waits inside a group until the peers
 * have begun theirs. So both ends of a message must put it into group calls that correspond, and
 * all ranks must reach these in one order. Both follow from one number, which each end computes
 * alike. */
#ifndef LIERNE_GROUP_CALLS_H
#define LIERNE_GROUP_CALLS_H

#include "runtime/transport/transport.h"

#define LIERNE_GROUP_CALL_OPERATIONS 256 /* most sends and receives of a group call */

/* The number of the group call that the index-th message of a stage from rank src to rank dst is
 * in, of calls with at most `most` operations (2 or more). For given index and (dst - src) mod
 * world a rank has at most one send and one receive: `most` / 2 of these pairs, in ascending order,
 * are a group call. Every rank makes its group calls in ascending order, and has nothing to do in
 * some. */
int64_t lierne_group_call_of(int src, int dst, int64_t index, int world, int most);

/* Cuts what a rank posts. Zero-initialise. */
typedef struct lierne_group_cutter {
    int rank;
    int world;
    int64_t *counts; /* messages so far to each rank, then from each rank */
    lierne_keyed *order;
    lierne_keyed *spare;
} lierne_group_cutter;
/* capacity: most messages of a cut. Errors: NO_MEMORY; destroy it then too. */
LIERNE_PRIVATE lierne_status lierne_group_cutter_create(lierne_group_cutter *cutter, int rank,
                                                        int world, size_t capacity);
LIERNE_PRIVATE void lierne_group_cutter_destroy(lierne_group_cutter *cutter);
/* Writes the postings of a stage to cutter->order: ascending keys are the numbers of group calls,
 * values are indices of postings. Allocates nothing. */
LIERNE_PRIVATE void lierne_group_cut(lierne_group_cutter *cutter, const lierne_posting *postings,
                                     size_t n, int most);

#endif
