/* A communicator ends, and then the memory of its windows is freed: they were deregistered when the
 * ranks parted (leave), or have ended with it. */
#include "backend/nccl/nccl_transport.h"

/* Destroying waits for the other ranks without a deadline; finalising first does not. */
static bool is_finalised(lierne_nccl *n) {
    return !n->broken &&
           lierne_nccl_check(n, n->call.ncclCommFinalize(n->comm), "ncclCommFinalize") ==
               LIERNE_OK &&
           lierne_nccl_wait(n, "ncclCommFinalize") == LIERNE_OK;
}

void lierne_nccl_end(lierne_nccl *n) {
    if (n->comm && n->owned && is_finalised(n)) {
        n->call.ncclCommDestroy(n->comm);
    } else if (n->comm && n->owned) {
        n->call.ncclCommAbort(n->comm);
    }
    n->comm = NULL;
    lierne_nccl_heap_close(n);
    lierne_mem_free(n->met);
    pthread_mutex_destroy(&n->lock);
}
