/* A communicator ends, and then the memory of its windows is freed: they were deregistered when the
 * ranks parted (leave), or have ended with it. */
#include "backend/nccl/nccl_transport.h"

/* Destroying waits for the other ranks without a deadline; finalising first does not. */
static lierne_status finalise(lierne_nccl *n) {
    LIERNE_TRY(lierne_nccl_check(n, n->call.ncclCommFinalize(n->comm), "ncclCommFinalize"));
    return lierne_nccl_wait(n, "ncclCommFinalize");
}

lierne_status lierne_nccl_end_comm(lierne_nccl *n) {
    bool owned = n->comm && n->owned;
    lierne_status status = owned && !n->broken ? finalise(n) : LIERNE_OK;
    if (owned && (n->broken || status != LIERNE_OK)) {
        n->call.ncclCommAbort(n->comm);
    } else if (owned) {
        n->call.ncclCommDestroy(n->comm);
    }
    n->comm = NULL;
    return status;
}

/* Of groups whose creation failed, or that calls outlived. */
static void end_groups(lierne_nccl *n) {
    while (n->groups) {
        lierne_nccl *group = n->groups;
        n->groups = group->next;
        lierne_nccl_end(group);
        lierne_mem_free(group);
    }
}

/* NCCL writes what a split makes until the parent's end has waited for it: so groups end after it,
 * and never where the parent is the caller's. */
lierne_status lierne_nccl_end(lierne_nccl *n) {
    lierne_status status = lierne_nccl_end_comm(n);
    n->splits &= !n->owned;
    if (!n->splits) {
        end_groups(n);
    }
    lierne_nccl_heap_close(n);
    lierne_mem_free(n->met);
    lierne_mem_free(n->places);
    pthread_mutex_destroy(&n->lock);
    return status;
}
