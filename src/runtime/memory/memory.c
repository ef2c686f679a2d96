/* The table of host memory. */
#include "runtime/memory/memory.h"

static lierne_status alloc_host(void **out, size_t bytes) {
    char *memory;
    LIERNE_TRY(lierne_alloc_unset(&memory, bytes, 1));
    *out = memory;
    return LIERNE_OK;
}

lierne_lifetime lierne_lifetime_find(const lierne_memory *kind, bool quiet) {
    if (!quiet) {
        return LIERNE_LIFETIME_PROCESS;
    }
    return kind && kind->free_waits ? LIERNE_LIFETIME_CONTEXT : LIERNE_LIFETIME_USE;
}

const lierne_memory lierne_host_memory = {
    .name = "host",
    .alloc = alloc_host,
    .free = lierne_mem_free,
    .copy = lierne_host_copy,
    .copy_blocks = lierne_host_copy_blocks,
    .zero = lierne_host_zero,
    .reduce = lierne_host_reduce,
};
