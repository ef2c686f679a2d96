/* The transport of the ranks of one node, in memory that they share. It needs no MPI: whoever
 * creates a context hands every rank the names of the segments of its node.
 *
 * It exposes. The sender of a message has a line, in which it says where the data is; the receiver
 * looks there. What the line says is decided in every call, by the sender (choose in shm_send.c).
 */
#ifndef LIERNE_SHM_H
#define LIERNE_SHM_H

#include "backend/shm/bell.h"
#include "runtime/control/control.h"
#include "runtime/control/members.h"
#include "runtime/transport/transport.h"

/* Where the data of a message is. */
typedef enum lierne_way {
    LIERNE_IN_WINDOW, /* in the sender's segment, as it lies: the receiver reads the blocks there */
    LIERNE_PACKED,    /* in the message's slot in the sender's segment */
    LIERNE_PRIVATE_MEMORY, /* in the sender's own memory: the receiver pulls it */
    LIERNE_IN_PIECES,      /* comes through the slot, piece by piece */
    LIERNE_WAYS
} lierne_way;

/* Another rank of the node. */
typedef struct lierne_shm_peer {
    int index; /* as the transport counts ranks */
    lierne_segment segment;
} lierne_shm_peer;

typedef struct lierne_shm_area lierne_shm_area;

typedef struct lierne_shm {
    lierne_segment own;
    lierne_shm_peer *peers; /* by index */
    int npeers;
    bool pulls; /* every rank may read the memory of every other one of its node */
    lierne_bell bell;
    uint64_t sent[LIERNE_WAYS];    /* messages */
    lierne_shm_area *destroyed;    /* of batches with messages that receivers may not have taken */
    const lierne_control *control; /* knows whether a peer that cannot be read gave up */
    void *control_self;
    lierne_members members; /* for messages; not its own */
} lierne_shm;

/* Creates the state, with the segment of this rank, and no peers yet. Errors: NO_MEMORY,
 * UNSUPPORTED (the system refuses it). */
lierne_status lierne_shm_create(lierne_shm **out);
/* Adds a peer, in ascending order of the index. Errors: NO_MEMORY, UNSUPPORTED. */
lierne_status lierne_shm_add_peer(lierne_shm *shm, int index, lierne_segment_name name);
/* Whether the system lets this rank read the memory of all its peers. */
bool lierne_shm_can_pull(const lierne_shm *shm);
/* Before the first plan. pulls: every rank of the node can read the memory of its peers. crowded:
 * there are more ranks than cores, so a wait yields at once. control knows which peers gave up; it
 * may be NULL. */
void lierne_shm_start(lierne_shm *shm, bool pulls, bool crowded, const lierne_control *control,
                      void *control_self, const lierne_members *members);
/* NULL is allowed. */
void lierne_shm_destroy(lierne_shm *shm);

/* shm_shared.c: memory that ranks of a node write and read together, of
 * lierne_transport_shares. */
lierne_status lierne_shm_shared_create(void **shared, void **memory, size_t bytes,
                                       lierne_record *name);
lierne_status lierne_shm_shared_open(void **shared, void **memory, size_t bytes,
                                     const lierne_record *name);
void lierne_shm_shared_close(void *shared);

LIERNE_PRIVATE extern const lierne_transport lierne_shm_transport;

#endif
