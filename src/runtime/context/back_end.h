/* How a back end registers: a line in src/backend/back_ends.c, which is the only place outside of
 * its folder that names it. All of this is known without its library. Its tables come later, with a
 * context: a control, a memory kind and a stream driver as members of it, a transport by
 * lierne_context_add_transport. */
#ifndef LIERNE_BACK_END_H
#define LIERNE_BACK_END_H

#include "runtime/memory/device.h"

typedef struct lierne_back_end {
    const char *name; /* its folder */
    /* The name of its transport, for LIERNE_TRANSPORTS; NULL: it has none. Of the transports that
     * reach a peer, that with the highest priority serves it, unless LIERNE_TRANSPORTS orders them;
     * among equals, that which was added first. */
    const char *transport;
    int priority;
    const lierne_device_memory *device_memory; /* of its memory kind, or NULL */
} lierne_back_end;

/* Ends with one without a name. */
extern const lierne_back_end lierne_back_ends[];

#endif
