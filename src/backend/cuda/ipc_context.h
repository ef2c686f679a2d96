/* Windows between the processes of a node, for a context whose memory is a device's. */
#ifndef LIERNE_CONTEXT_IPC_H
#define LIERNE_CONTEXT_IPC_H

#include "backend/cuda/ipc_transport.h"
#include "runtime/context/context.h"

/* Adds the transport, where two members of the context are on one node, every one of them can map
 * the windows of the others of its node, and LIERNE_TRANSPORTS allows it; else the context stays as
 * it is, and its dump says why. Does nothing where the context has it: of several drivers that are
 * tried in turn all ranks use the first one that serves all of them. Collective over the context,
 * before its first plan. Errors, on all ranks alike: NO_MEMORY, TIMEOUT, PEER_FAILED, TRANSPORT. */
LIERNE_PRIVATE lierne_status lierne_context_open_ipc(lierne_context *context,
                                                     const lierne_ipc_driver *driver);

#endif
