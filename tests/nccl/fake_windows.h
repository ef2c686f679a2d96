/* Windows of the NCCL that is played: memory, registrations that all ranks must make, and what
 * real ones do not forgive. For fake.c. */
#ifndef LIERNE_TESTS_FAKE_WINDOWS_H
#define LIERNE_TESTS_FAKE_WINDOWS_H

#include "fake.h"

struct ncclComm {
    int world_id, rank, world, device;
    int registrations, gathers, splits; /* calls so far */
    unsigned met[2];                    /* ranks that it has sent to, and received from: bits */
    struct ncclWindow_vidmem *made;     /* by a registration under way, or NULL */
    ncclWindow_t *out;                  /* where that goes; NULL: none is under way */
    ncclComm_t *split, member;          /* what a split that stalled makes, and where that goes */
    int enqueued, passed;               /* group calls on streams */
    bool of_group;
    bool ended; /* destroyed or aborted: those do nothing more */
};

ncclResult_t fake_mem_alloc(void **memory, size_t bytes);
ncclResult_t fake_mem_free(void *memory);
ncclResult_t fake_window_register(ncclComm_t comm, void *memory, size_t bytes, ncclWindow_t *window,
                                  int flags);
ncclResult_t fake_window_deregister(ncclComm_t comm, ncclWindow_t window);
/* Whether the registration of a communicator that is under way is complete; writes its window. */
ncclResult_t fake_window_state(ncclComm_t comm);
/* A communicator ends: so do its windows. */
void fake_windows_end(ncclComm_t comm);
/* Counts a message; and an all-gather, whose blocks may lie in a window. */
void fake_windows_see_message(ncclComm_t comm, const void *data);
void fake_windows_see_gather(ncclComm_t comm, const void *all);

#endif
