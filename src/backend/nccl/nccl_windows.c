/* Windows: memory of ncclMemAlloc that all ranks have registered with the communicator, for scratch
 * and staging slots. NCCL then sends it without a copy of its own, and all-gathers within it may
 * use what it has for symmetric memory.
 *
 * Only a communicator of lierne's has windows: to register is collective, and one of a caller's
 * may wait in it without a deadline. */
#include "backend/nccl/nccl_transport.h"
#include "runtime/memory/memory.h"

#include <stdio.h>

#define GRANULE (2 << 20) /* of a chunk, in bytes: a page of the device */

bool lierne_nccl_has_windows(const lierne_nccl_functions *nccl) {
    int version = 0;
    nccl->ncclGetVersion(&version);
    bool found = version >= NCCL_VERSION(2, 28, 0);
#define FOUND(name) found &= nccl->name != NULL;
    LIERNE_NCCL_WINDOW_FUNCTIONS(FOUND)
#undef FOUND
    return found;
}

static lierne_heap_chunk *last_chunk(const lierne_nccl *n) {
    return &n->heap.chunks.at[n->heap.chunks.count - 1];
}

/* At least a quarter of what there is: few registrations. */
lierne_status lierne_nccl_heap_reserve(void *self, int64_t bytes) {
    lierne_nccl *n = self;
    int64_t least = lierne_heap_bytes(&n->heap) / 4;
    void *memory = NULL;
    if (!lierne_nccl_has_windows(&n->call)) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "rank %d: this NCCL has no windows", n->rank);
    }
    bytes = ((bytes > least ? bytes : least) + GRANULE - 1) / GRANULE * GRANULE;
    LIERNE_TRY(lierne_nccl_enter(n));
    lierne_status status =
        lierne_nccl_check(n, n->call.ncclMemAlloc(&memory, (size_t)bytes), "ncclMemAlloc");
    lierne_nccl_leave(n);
    LIERNE_TRY(status);
    status = lierne_heap_add(&n->heap, memory, bytes);
    if (status != LIERNE_OK) {
        n->call.ncclMemFree(memory);
    }
    n->adds_chunk = status == LIERNE_OK;
    return status;
}

/* NCCL writes the window when the call has ended, until an abort: so not to this stack. Half of the
 * timeout leaves the ranks that wait for this one, to agree, the other half. */
lierne_status lierne_nccl_heap_enlist(void *self) {
    lierne_nccl *n = self;
    lierne_heap_chunk *chunk = last_chunk(n);
    n->window = NULL;
    LIERNE_TRY(lierne_nccl_enter(n));
    lierne_status status =
        lierne_nccl_check(n,
                          n->call.ncclCommWindowRegister(n->comm, chunk->at, (size_t)chunk->bytes,
                                                         &n->window, NCCL_WIN_COLL_SYMMETRIC),
                          "ncclCommWindowRegister");
    lierne_nccl_leave(n);
    LIERNE_TRY(status);
    LIERNE_TRY(lierne_nccl_wait_within(n, "ncclCommWindowRegister", n->timeout / 2));
    chunk->handle = n->window;
    return chunk->handle
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "rank %d: NCCL makes no window", n->rank);
}

/* Windows that are left, the end of the communicator ends, and an abort. */
static void deregister(lierne_nccl *n, lierne_heap_chunk *chunk) {
    if (chunk->handle && !n->broken && lierne_nccl_enter(n) == LIERNE_OK) {
        n->call.ncclCommWindowDeregister(n->comm, chunk->handle);
        lierne_nccl_leave(n);
        n->broken |= lierne_nccl_wait(n, "ncclCommWindowDeregister") != LIERNE_OK;
    }
    chunk->handle = NULL;
}

void lierne_nccl_heap_decide(void *self, bool kept) {
    lierne_nccl *n = self;
    if (!kept && n->adds_chunk) {
        deregister(n, last_chunk(n));
        n->call.ncclMemFree(last_chunk(n)->at);
        n->heap.chunks.count--;
    }
    n->heap.grows &= kept;
    n->adds_chunk = false;
}

lierne_heap *lierne_nccl_heap(void *self) {
    return &((lierne_nccl *)self)->heap;
}

void lierne_nccl_print(const void *self, char *text, size_t size) {
    const lierne_nccl *n = self;
    snprintf(text, size, "%lld bytes of windows", (long long)lierne_heap_bytes(&n->heap));
}

void lierne_nccl_heap_leave(void *self) {
    lierne_nccl *n = self;
    for (size_t i = n->heap.chunks.count; i-- > 0;) {
        deregister(n, &n->heap.chunks.at[i]);
    }
}

/* Whoever may still write to a block has not given it back. */
void lierne_nccl_heap_close(lierne_nccl *n) {
    for (size_t i = 0; i < n->heap.chunks.count; i++) {
        const lierne_heap_chunk *chunk = &n->heap.chunks.at[i];
        bool quiet = !lierne_heap_is_used(&n->heap, chunk);
        if (lierne_lifetime_find(NULL, quiet) == LIERNE_LIFETIME_USE) {
            n->call.ncclMemFree(chunk->at);
        }
    }
    lierne_heap_destroy(&n->heap);
}
