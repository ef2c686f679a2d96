/* Steps on flags, and memory of programs in the window of a rank: a mailbox without messages, whose
 * own flag stays empty, so that its space is free again at once. */
#include "backend/cuda/ipc_transport.h"

_Static_assert(LIERNE_ROUND_FLAGS <= LIERNE_IPC_FLAGS, "one step has them all");

lierne_ipc_step lierne_ipc_begin_step(const lierne_ipc *ipc, bool waits) {
    return (lierne_ipc_step){.broken = (uint32_t *)(void *)ipc->chunks[0].at,
                             .words = ipc->words,
                             .nanoseconds = (uint64_t)(ipc->timeout * 1e9),
                             .waits = waits};
}

void lierne_ipc_add_flag(lierne_ipc_step *step, const lierne_ipc *ipc, uint32_t *at, int peer,
                         uint32_t value) {
    step->flags[step->n++] =
        (lierne_ipc_flag){.at = at,
                          .broken = (const uint32_t *)(const void *)ipc->peers[peer].chunks[0].at,
                          .value = value,
                          .peer = peer};
}

static lierne_ipc_place place_of(const lierne_record *name) {
    return (lierne_ipc_place){name->words[0], name->words[1]};
}

static lierne_status clear_bytes(const lierne_ipc *ipc, void *memory, size_t bytes) {
    void *zeros;
    LIERNE_TRY(lierne_alloc(&zeros, bytes, 1));
    lierne_status status = ipc->driver->write(memory, zeros, bytes, ipc->stream);
    lierne_mem_free(zeros);
    return status;
}

static lierne_status alloc_memory(void *self, void **memory, lierne_record *name, size_t bytes,
                                  size_t zeros) {
    lierne_ipc *ipc = self;
    lierne_ipc_place place;
    LIERNE_TRY(lierne_ipc_take_mailbox(ipc, &place, bytes));
    char *at = lierne_ipc_own_address(ipc, &place) + LIERNE_IPC_SLOT;
    lierne_status status = clear_bytes(ipc, at, zeros);
    if (status != LIERNE_OK) {
        lierne_ipc_retire_mailbox(ipc, &place);
        return status;
    }
    *memory = at;
    *name = (lierne_record){{place.chunk, place.offset}};
    return LIERNE_OK;
}

static void free_memory(void *self, const lierne_record *name) {
    const lierne_ipc_place place = place_of(name);
    lierne_ipc_retire_mailbox(self, &place);
}

static lierne_status map_memory(void *self, void **memory, int peer, const lierne_record *name) {
    const lierne_ipc_place place = place_of(name);
    char *at;
    LIERNE_TRY(lierne_ipc_peer_address(&at, self, peer, &place));
    *memory = at + LIERNE_IPC_SLOT;
    return LIERNE_OK;
}

static lierne_status enqueue_flags(void *self, const lierne_round_flag *flags, size_t n,
                                   uint32_t value, bool waits, void *stream) {
    const lierne_ipc *ipc = self;
    lierne_ipc_step step = lierne_ipc_begin_step(ipc, waits);
    LIERNE_TRY(lierne_ipc_check(ipc));
    for (size_t i = 0; i < n; i++) {
        lierne_ipc_add_flag(&step, ipc, flags[i].at, flags[i].peer, value);
    }
    LIERNE_TRY(ipc->driver->run(&step, stream, ipc->device));
    return lierne_ipc_check(ipc);
}

const lierne_transport_rounds lierne_ipc_rounds = {.alloc = alloc_memory,
                                                   .free = free_memory,
                                                   .map = map_memory,
                                                   .enqueue = enqueue_flags};
