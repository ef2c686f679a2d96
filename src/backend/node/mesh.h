/* Connections between all ranks of a node, and what moves over them: the functions of lierne/oob.h
 * over sockets.
 *
 * Functions are listed in the order in which their files depend on each other. */
#ifndef LIERNE_NODE_MESH_H
#define LIERNE_NODE_MESH_H

#include "backend/oob/oob_calls.h"
#include "lierne/context.h"
#include "runtime/control/members.h"

#include <poll.h>

#define LIERNE_MESH_SEND_BUFFER                                                                    \
    (1 << 20) /* bytes that a socket holds, as far as the system allows */

/* In front of every message. */
typedef struct lierne_mesh_header {
    int64_t tag;
    uint64_t bytes;
} lierne_mesh_header;

/* Something in flight: a message, or an all-gather, whose messages have it as their parent. */
typedef struct lierne_mesh_request {
    struct lierne_mesh_request *next;
    struct lierne_mesh_request *parent; /* NULL: none */
    bool receives;
    bool ended;
    bool unexpected; /* data is the request's own */
    bool pooled;
    int peer; /* -1: an all-gather */
    int64_t tag;
    char *data;
    size_t bytes;
    size_t moved;   /* of a send: with its header */
    size_t pending; /* of an all-gather: messages that have not ended */
} lierne_mesh_request;

typedef struct lierne_mesh_list {
    lierne_mesh_request *first;
    lierne_mesh_request **last; /* NULL: it was never used */
} lierne_mesh_list;

typedef struct lierne_mesh_peer {
    bool closed;          /* nothing moves any more */
    lierne_status broken; /* why messages of the peer cannot be read any more, or OK */
    char *reason;         /* its message, NULL if there was no memory for it */
    lierne_mesh_list sends;
    lierne_mesh_list receives;
    lierne_mesh_list unexpected; /* messages that arrived, or arrive, before their receive */
    lierne_mesh_header header;   /* of the message that arrives */
    size_t have;                 /* bytes of the header */
    lierne_mesh_request *reading;
} lierne_mesh_peer;

typedef struct lierne_mesh {
    int rank;
    int world;
    const lierne_members *members;      /* names of ranks in messages; NULL: those of the mesh */
    bool (*lost)(void *user, int rank); /* whether a rank that has not joined never will; or NULL */
    void *lost_user;
    int *sockets;          /* per rank; -1: none */
    struct pollfd *polled; /* per rank */
    lierne_mesh_peer *peers;
    lierne_mesh_request *pool;
    lierne_mesh_request *spare; /* those of the pool that are free */
} lierne_mesh;

/* mesh.c. A mesh without connections. */
lierne_status lierne_mesh_open(lierne_mesh **out, int rank, int world);
/* Ends the connections and frees the mesh; NULL is allowed. */
void lierne_mesh_close(void *mesh);
/* Its functions: those of lierne/oob.h, and the hooks. */
lierne_oob_calls lierne_mesh_calls(lierne_mesh *mesh);
extern const lierne_oob_hooks lierne_mesh_hooks;

/* join.c. Connects to all other ranks of a job. key tells jobs apart, name is for messages. Errors:
 * INVALID, MISMATCH, TIMEOUT, PEER_FAILED, NO_MEMORY, TRANSPORT (lierne_context_create_node).
 * Collective. */
lierne_status lierne_mesh_join(lierne_mesh *mesh, const char *name, uint64_t key, double timeout);

/* launcher.c. What a launcher has put into the environment. */
#define LIERNE_JOB_NAME 512
typedef struct lierne_launch {
    int rank;
    int world;
    char name[LIERNE_JOB_NAME];
} lierne_launch;
/* Errors: INVALID (no launcher's variables, one that is no number, a world that is not on one
 * node).
 */
lierne_status lierne_launch_find(lierne_launch *launch);

/* node_context.c. Creates the context of a rank of a job; mine: an error of this rank, or OK. */
typedef struct lierne_node_opening {
    double seconds;                     /* that it may take; 0: the timeout of the context */
    bool (*lost)(void *user, int rank); /* as in lierne_mesh, or NULL */
    /* Connects to the others instead of lierne_mesh_join; NULL: they are of one node. */
    lierne_status (*connect)(void *user, int *sockets);
    void *user;
} lierne_node_opening;
lierne_status lierne_node_open(lierne_context **out, const lierne_launch *job,
                               const lierne_context_spec *context, lierne_status mine,
                               const lierne_node_opening *how);

#endif
