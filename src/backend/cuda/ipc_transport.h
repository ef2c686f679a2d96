/* The transport of ranks of one node whose memory is a device's: windows, which are memory of the
 * device that the processes of the node map, and flags in them. It needs no MPI and no NCCL.
 *
 * Every message has a mailbox in the sender's window, which is made when the plan is. The sender's
 * stream copies into it, the receiver's stream copies out of it; flags tell when. The host takes no
 * part in a call, so all addresses are known when it is enqueued. */
#ifndef LIERNE_IPC_H
#define LIERNE_IPC_H

#include "backend/cuda/ipc_flags.h"
#include "runtime/control/members.h"
#include "runtime/control/processes.h"
#include "runtime/transport/extents.h"
#include "runtime/transport/transport.h"

#define LIERNE_IPC_CHUNKS 128 /* of a window; they grow with it */

/* What another process needs to map a chunk. The words are the driver's own. */
typedef struct lierne_ipc_handle {
    int64_t words[10];
} lierne_ipc_handle;

/* What the transport needs of a device. Everything but close, copy and run is called while
 * planning, with the context's device current, or when the context ends, and may wait for the
 * device. stream: of alloc, write and read, the context's own, on which nothing else is then. */
typedef struct lierne_ipc_driver {
    const char *shares; /* by what it shares memory, for the dump */
    size_t granule;     /* chunks have whole multiples of it, in bytes */
    /* NULL, or how many streams of a process a device serves at once: others wait for them. */
    int (*count_queues)(void);
    /* Zeroed memory that others can map. free: with quiet unset a peer may still have it mapped.
     * Errors: NO_MEMORY, UNSUPPORTED (the device cannot share memory). */
    lierne_status (*alloc)(void **memory, lierne_ipc_handle *handle, size_t bytes, void *stream);
    void (*free)(void *memory, const lierne_ipc_handle *handle, bool quiet);
    /* A chunk of a peer's, which may be in this process. Errors: UNSUPPORTED. */
    lierne_status (*open)(void **memory, const lierne_ipc_handle *handle, size_t bytes);
    void (*close)(void *memory, const lierne_ipc_handle *handle, int device);
    /* Between the host and a window, at once. */
    lierne_status (*write)(void *to, const void *from, size_t bytes, void *stream);
    lierne_status (*read)(void *to, const void *from, size_t bytes, void *stream);
    void (*wait)(int device); /* until its streams have passed what was enqueued */
    lierne_status (*alloc_words)(lierne_ipc_words **words);
    void (*free_words)(lierne_ipc_words *words);
    /* Enqueue on a stream of a device. */
    lierne_status (*copy)(void *to, const void *from, size_t bytes, void *stream, int device);
    lierne_status (*run)(const lierne_ipc_step *step, void *stream, int device);
} lierne_ipc_driver;

/* The first bytes of a window: peers read its table when they need a chunk. */
typedef struct lierne_ipc_head {
    uint32_t broken; /* the rank failed: what is in the window may change */
    uint32_t nchunks;
    int64_t bytes[LIERNE_IPC_CHUNKS];
    lierne_ipc_handle handles[LIERNE_IPC_CHUNKS];
} lierne_ipc_head;

/* A chunk of this rank's window. */
typedef struct lierne_ipc_chunk {
    char *at;
    uint64_t begin; /* bytes of the chunks before it */
} lierne_ipc_chunk;

/* A chunk of a peer's window. */
typedef struct lierne_ipc_mapped {
    char *at; /* NULL: not mapped */
    lierne_ipc_handle handle;
} lierne_ipc_mapped;

/* Another rank of the context. */
typedef struct lierne_ipc_peer {
    lierne_ipc_mapped *chunks; /* NULL: it has no window here */
    int watch;                 /* of its process */
} lierne_ipc_peer;

/* Where something is in a rank's window. */
typedef struct lierne_ipc_place {
    int64_t chunk;
    int64_t offset;
} lierne_ipc_place;

typedef struct lierne_ipc {
    const lierne_ipc_driver *driver;
    int device;
    void *stream; /* the context's own */
    double timeout;
    lierne_ipc_head head; /* as it is in the first chunk; broken is not kept here */
    lierne_ipc_chunk chunks[LIERNE_IPC_CHUNKS];
    lierne_ipc_peer *peers; /* by index; world of them */
    int world;
    int index; /* of this rank */
    lierne_ipc_words *words;
    lierne_members members;               /* for messages; not its own */
    lierne_extents taken;                 /* the head and mailboxes, through all chunks */
    size_t batches;                       /* alive: streams may not have passed their calls */
    size_t mailboxes;                     /* of them */
    LIERNE_VEC(lierne_ipc_place) retired; /* of others, which a peer may still read */
    bool left;                            /* no peer has this rank's window mapped any more */
    uint64_t sent, bytes;                 /* messages, and what was copied into the window */
} lierne_ipc;

/* ipc_window.c. Creates the state and the first chunk, whose handle peers need. Errors: NO_MEMORY,
 * UNSUPPORTED; what there is then is to be freed with lierne_ipc_destroy, if *out is not NULL. */
lierne_status lierne_ipc_create(lierne_ipc **out, const lierne_ipc_driver *driver, int device,
                                void *stream, double timeout, const lierne_members *members,
                                int index);
/* Maps the first chunk of a peer. Errors: UNSUPPORTED. */
lierne_status lierne_ipc_add_peer(lierne_ipc *ipc, int index, const lierne_ipc_handle *handle,
                                  int64_t bytes);
/* Unmaps the windows of all peers: before the ranks part, which then free their own. */
void lierne_ipc_leave(lierne_ipc *ipc);
void lierne_ipc_destroy(lierne_ipc *ipc);

/* An empty mailbox of this rank's window: a flag, and LIERNE_IPC_SLOT bytes behind it space for
 * that many bytes. Errors: NO_MEMORY, UNSUPPORTED. */
#define LIERNE_IPC_SLOT 256
lierne_status lierne_ipc_take_mailbox(lierne_ipc *ipc, lierne_ipc_place *place, size_t bytes);
/* Gives it back: its space is used again when the peer has emptied it. */
void lierne_ipc_retire_mailbox(lierne_ipc *ipc, const lierne_ipc_place *place);
char *lierne_ipc_own_address(const lierne_ipc *ipc, const lierne_ipc_place *place);
/* Where it is in this process; maps the chunk at the first use. Errors: UNSUPPORTED, TRANSPORT. */
lierne_status lierne_ipc_peer_address(char **out, lierne_ipc *ipc, int peer,
                                      const lierne_ipc_place *place);

/* The error that ended a step; that of a peer whose process has ended. */
lierne_status lierne_ipc_check(const lierne_ipc *ipc);
lierne_status lierne_ipc_check_peers(const lierne_ipc *ipc);

/* ipc_rounds.c. A step without flags yet; adds one, of at most LIERNE_IPC_FLAGS. */
lierne_ipc_step lierne_ipc_begin_step(const lierne_ipc *ipc, bool waits);
void lierne_ipc_add_flag(lierne_ipc_step *step, const lierne_ipc *ipc, uint32_t *at, int peer,
                         uint32_t value);

extern const lierne_transport_rounds lierne_ipc_rounds;
extern const lierne_transport lierne_ipc_transport;

#endif
