/* The state of the transport: the segments of this rank and of its peers. */
#include "backend/shm/shm_transport.h"

#include "backend/shm/pull.h"

#include <string.h>

#define SPINS 1000 /* polls; about what a message of a megabyte takes */

lierne_status lierne_shm_create(lierne_shm **out) {
    lierne_shm *shm;
    *out = NULL;
    LIERNE_TRY(lierne_alloc(&shm, 1, sizeof *shm));
    lierne_status status = lierne_segment_open(&shm->own);
    if (status != LIERNE_OK) {
        lierne_mem_free(shm);
        return status;
    }
    *out = shm;
    return LIERNE_OK;
}

lierne_status lierne_shm_add_peer(lierne_shm *shm, int index, lierne_segment_name name) {
    LIERNE_TRY(lierne_realloc(&shm->peers, (size_t)shm->npeers + 1, sizeof *shm->peers));
    lierne_shm_peer *peer = &shm->peers[shm->npeers];
    LIERNE_TRY(lierne_segment_attach(&peer->segment, name));
    peer->index = index;
    shm->npeers++;
    return LIERNE_OK;
}

/* Reads the token in the peer's own mapping of its head. */
static bool can_pull(const lierne_shm_peer *peer) {
    const lierne_segment_head *head = peer->segment.head;
    lierne_block block = lierne_block_range(0, sizeof head->token);
    uint64_t token = 0;
    const lierne_part to = {.base = &token, .size = 1, .blocks = &block, .nblocks = 1};
    lierne_part from = to;
    from.base = (const void *)(uintptr_t)head->address;
    return lierne_pull((pid_t)peer->segment.name.process, &to, 1, &from, 1) == 0 &&
           token == head->token;
}

bool lierne_shm_can_pull(const lierne_shm *shm) {
    bool can = true;
    for (int i = 0; i < shm->npeers; i++) {
        can &= can_pull(&shm->peers[i]);
    }
    return can;
}

void lierne_shm_start(lierne_shm *shm, bool pulls, bool crowded, const lierne_control *control,
                      void *control_self, const lierne_members *members) {
    shm->pulls = pulls;
    shm->bell.spins = crowded ? 0 : SPINS;
    shm->control = control;
    shm->control_self = control_self;
    shm->members = *members;
}

void lierne_shm_destroy(lierne_shm *shm) {
    for (int i = 0; shm && i < shm->npeers; i++) {
        lierne_segment_close(&shm->peers[i].segment);
    }
    if (shm) {
        lierne_segment_close(&shm->own);
        lierne_mem_free(shm->peers);
        lierne_mem_free(shm);
    }
}
