/* Windows: this rank's, which grows by chunks, and those of its peers, of which chunks are mapped
 * when a plan needs them.
 *
 * A window's table of chunks is in the window itself. A peer that is told of a mailbox in a chunk
 * that it does not know reads the table there, so that no call of the control is needed. */
#include "backend/cuda/ipc_transport.h"
#include "runtime/memory/memory.h"

#include <string.h>

static lierne_status publish(lierne_ipc *ipc) {
    lierne_ipc_head *head = &ipc->head;
    size_t skipped = sizeof head->broken;
    return ipc->driver->write(ipc->chunks[0].at + skipped, (char *)head + skipped,
                              sizeof *head - skipped, ipc->stream);
}

static lierne_status add_chunk(lierne_ipc *ipc, size_t bytes) {
    uint32_t n = ipc->head.nchunks;
    size_t granule = ipc->driver->granule;
    void *memory;
    if (n == LIERNE_IPC_CHUNKS) {
        return LIERNE_FAIL(LIERNE_ERR_NO_MEMORY,
                           "%zu bytes of a window: its table of %d chunks is full", bytes,
                           LIERNE_IPC_CHUNKS);
    }
    size_t least = 0; /* a quarter of what there is: few chunks, and little that nobody needs */
    for (uint32_t c = 0; c < n; c++) {
        least += (size_t)ipc->head.bytes[c] / 4;
    }
    bytes = ((bytes > least ? bytes : least) + granule - 1) / granule * granule;
    LIERNE_TRY(ipc->driver->alloc(&memory, &ipc->head.handles[n], bytes, ipc->stream));
    const lierne_ipc_chunk *last = n ? &ipc->chunks[n - 1] : NULL;
    uint64_t begin = last ? last->begin + (uint64_t)ipc->head.bytes[n - 1] : 0;
    ipc->chunks[n] = (lierne_ipc_chunk){.at = memory, .begin = begin};
    ipc->head.bytes[n] = (int64_t)bytes;
    ipc->head.nchunks++;
    return publish(ipc);
}

/* Retiring cannot fail: there is space for every mailbox. The list lives as long as the window, so
 * that plans which were destroyed leave nothing on the heap. */
static lierne_status reserve_retired(lierne_ipc *ipc) {
    return lierne_vec_grow(&ipc->retired.at, ipc->retired.count + ipc->mailboxes,
                           &ipc->retired.capacity, sizeof *ipc->retired.at);
}

static lierne_extent extent_of(const lierne_ipc *ipc, uint32_t c) {
    return (lierne_extent){ipc->chunks[c].begin, (uint64_t)ipc->head.bytes[c]};
}

/* In whole slots; adds a chunk where none has space. */
static lierne_status take_space(lierne_ipc_place *place, lierne_ipc *ipc, size_t bytes) {
    size_t whole = (bytes + LIERNE_IPC_SLOT - 1) / LIERNE_IPC_SLOT * LIERNE_IPC_SLOT;
    uint64_t offset = 0;
    uint32_t c = 0;
    LIERNE_TRY(lierne_extents_reserve(&ipc->taken));
    while (c < ipc->head.nchunks &&
           !lierne_extents_take(&ipc->taken, extent_of(ipc, c), whole, &offset)) {
        c++;
    }
    if (c == ipc->head.nchunks) {
        LIERNE_TRY(add_chunk(ipc, whole));
        lierne_extents_take(&ipc->taken, extent_of(ipc, c), whole, &offset);
    }
    *place = (lierne_ipc_place){c, (int64_t)(offset - ipc->chunks[c].begin)};
    return LIERNE_OK;
}

lierne_status lierne_ipc_create(lierne_ipc **out, const lierne_ipc_driver *driver, int device,
                                void *stream, double timeout, const lierne_members *members,
                                int index) {
    lierne_ipc *ipc;
    *out = NULL;
    LIERNE_TRY(lierne_alloc(&ipc, 1, sizeof *ipc));
    *ipc = (lierne_ipc){.driver = driver,
                        .device = device,
                        .stream = stream,
                        .timeout = timeout,
                        .members = *members,
                        .world = members->count,
                        .index = index};
    *out = ipc;
    LIERNE_TRY(lierne_alloc(&ipc->peers, (size_t)ipc->world, sizeof *ipc->peers));
    for (int r = 0; r < ipc->world; r++) {
        ipc->peers[r].watch = LIERNE_NO_WATCH;
    }
    LIERNE_TRY(reserve_retired(ipc));
    LIERNE_TRY(driver->alloc_words(&ipc->words));
    LIERNE_TRY(add_chunk(ipc, sizeof(lierne_ipc_head)));
    lierne_ipc_place head;
    return take_space(&head, ipc, sizeof(lierne_ipc_head));
}

static lierne_status map_chunk(lierne_ipc *ipc, int index, int64_t chunk,
                               const lierne_ipc_handle *handle, int64_t bytes) {
    lierne_ipc_peer *peer = &ipc->peers[index];
    void *memory;
    LIERNE_TRY(ipc->driver->open(&memory, handle, (size_t)bytes));
    peer->chunks[chunk] = (lierne_ipc_mapped){memory, *handle};
    return LIERNE_OK;
}

lierne_status lierne_ipc_add_peer(lierne_ipc *ipc, int index, const lierne_ipc_handle *handle,
                                  int64_t bytes) {
    lierne_ipc_peer *peer = &ipc->peers[index];
    LIERNE_TRY(lierne_alloc(&peer->chunks, LIERNE_IPC_CHUNKS, sizeof *peer->chunks));
    return map_chunk(ipc, index, 0, handle, bytes);
}

void lierne_ipc_leave(lierne_ipc *ipc) {
    if (ipc->batches > 0) { /* calls that failed; the caller has waited for all others */
        ipc->driver->wait(ipc->device);
    }
    for (int r = 0; ipc->peers && r < ipc->world; r++) {
        lierne_ipc_peer *peer = &ipc->peers[r];
        for (int c = 0; peer->chunks && c < LIERNE_IPC_CHUNKS; c++) {
            if (peer->chunks[c].at) {
                ipc->driver->close(peer->chunks[c].at, &peer->chunks[c].handle, ipc->device);
            }
        }
        lierne_mem_free(peer->chunks);
        peer->chunks = NULL;
        lierne_processes_unwatch(&peer->watch, 1);
        peer->watch = LIERNE_NO_WATCH;
    }
}

void lierne_ipc_destroy(lierne_ipc *ipc) {
    if (!ipc) {
        return;
    }
    lierne_ipc_leave(ipc);
    bool now = lierne_lifetime_find(NULL, ipc->left) == LIERNE_LIFETIME_USE;
    for (uint32_t c = 0; c < ipc->head.nchunks; c++) {
        ipc->driver->free(ipc->chunks[c].at, &ipc->head.handles[c], now);
    }
    if (ipc->words) {
        ipc->driver->free_words(ipc->words);
    }
    lierne_mem_free(ipc->taken.at);
    lierne_mem_free(ipc->retired.at);
    lierne_mem_free(ipc->peers);
    lierne_mem_free(ipc);
}

char *lierne_ipc_own_address(const lierne_ipc *ipc, const lierne_ipc_place *place) {
    return ipc->chunks[place->chunk].at + place->offset;
}

/* Space that was used before has what was in it. */
static lierne_status clear_flag(const lierne_ipc *ipc, const lierne_ipc_place *place) {
    const uint32_t empty = 0;
    return ipc->driver->write(lierne_ipc_own_address(ipc, place), &empty, sizeof empty,
                              ipc->stream);
}

/* Takes the space of retired mailboxes back that are empty. */
static void sweep(lierne_ipc *ipc) {
    size_t kept = 0;
    for (size_t i = 0; i < ipc->retired.count; i++) {
        const lierne_ipc_place place = ipc->retired.at[i];
        uint32_t flag = 1;
        if (ipc->driver->read(&flag, lierne_ipc_own_address(ipc, &place), sizeof flag,
                              ipc->stream) != LIERNE_OK ||
            flag != 0) {
            ipc->retired.at[kept++] = place;
        } else {
            uint64_t offset = ipc->chunks[place.chunk].begin + (uint64_t)place.offset;
            lierne_extents_give(&ipc->taken, offset, NULL);
        }
    }
    ipc->retired.count = kept;
}

lierne_status lierne_ipc_take_mailbox(lierne_ipc *ipc, lierne_ipc_place *place, size_t bytes) {
    sweep(ipc);
    LIERNE_TRY(reserve_retired(ipc));
    LIERNE_TRY(take_space(place, ipc, bytes + LIERNE_IPC_SLOT));
    ipc->mailboxes++;
    return clear_flag(ipc, place);
}

void lierne_ipc_retire_mailbox(lierne_ipc *ipc, const lierne_ipc_place *place) {
    ipc->retired.at[ipc->retired.count++] = *place;
    ipc->mailboxes--;
}

lierne_status lierne_ipc_peer_address(char **out, lierne_ipc *ipc, int index,
                                      const lierne_ipc_place *place) {
    lierne_ipc_peer *peer = &ipc->peers[index];
    if (place->chunk < 0 || place->chunk >= LIERNE_IPC_CHUNKS) {
        return LIERNE_FAIL(LIERNE_ERR_TRANSPORT,
                           "rank %d names chunk %lld of its window, must be below %d",
                           lierne_members_rank(&ipc->members, index), (long long)place->chunk,
                           LIERNE_IPC_CHUNKS);
    }
    if (!peer->chunks[place->chunk].at) {
        lierne_ipc_head head;
        LIERNE_TRY(ipc->driver->read(&head, peer->chunks[0].at, sizeof head, ipc->stream));
        LIERNE_TRY(map_chunk(ipc, index, place->chunk, &head.handles[place->chunk],
                             head.bytes[place->chunk]));
    }
    *out = peer->chunks[place->chunk].at + place->offset;
    return LIERNE_OK;
}

lierne_status lierne_ipc_check(const lierne_ipc *ipc) {
    uint64_t failure = lierne_ipc_load_failure(&ipc->words->failure);
    int own = lierne_members_rank(&ipc->members, ipc->index);
    int peer = failure ? lierne_members_rank(&ipc->members, (int)(failure / 4)) : -1;
    switch (failure % 4) {
    case 0:
        return LIERNE_OK;
    case LIERNE_IPC_LATE:
        return LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                           "rank %d: ipc: rank %d did not send, or take, a message within %g s",
                           own, peer, ipc->timeout);
    case LIERNE_IPC_GAVE_UP:
        return LIERNE_FAIL(LIERNE_ERR_PEER_FAILED, "rank %d: ipc: rank %d gave up after an error",
                           own, peer);
    default:
        return LIERNE_FAIL(LIERNE_ERR_TRANSPORT,
                           "rank %d: ipc: the wait for rank %d was aborted after an error", own,
                           peer);
    }
}

lierne_status lierne_ipc_check_peers(const lierne_ipc *ipc) {
    for (int r = 0; r < ipc->world; r++) {
        if (lierne_process_ended(ipc->peers[r].watch)) {
            return LIERNE_FAIL(LIERNE_ERR_PEER_FAILED, "ipc: the process of rank %d has ended",
                               lierne_members_rank(&ipc->members, r));
        }
    }
    return LIERNE_OK;
}
