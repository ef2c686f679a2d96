/* The ports that the ranks of a context of several nodes keep, in order to reach each other after a
 * death. */
#ifndef LIERNE_PORTS_H
#define LIERNE_PORTS_H

#include "runtime/control/processes.h"

struct lierne_reach;

typedef struct lierne_ports {
    int listener;               /* of this rank; -1: none */
    lierne_address *addresses;  /* per rank; NULL: there are none */
    struct lierne_reach *check; /* until it is known whether they are reached */
} lierne_ports;

/* Listens at the address that LIERNE_ADDRESS names. Without it the listener is -1 and *own zeros.
 * Errors: INVALID (no numeric address), TRANSPORT (the system's error: not one of this host),
 * NO_MEMORY. lierne_ports_close is to be called all the same. */
LIERNE_PRIVATE lierne_status lierne_ports_open(lierne_ports *ports, lierne_address *own, int world);
LIERNE_PRIVATE void lierne_ports_close(lierne_ports *ports);

/* The ranks of a context, once rank infos were gathered. */
typedef struct lierne_ports_ranks {
    const lierne_rank_info *infos; /* in the order of ranks */
    int rank;
    int world;
    double timeout;
    lierne_status (*alive)(void *state, int rank); /* as of a control */
    void *state;
} lierne_ports_ranks;
/* Keeps the addresses. Where there are several nodes, it finds out whether another rank, of another
 * node, reaches this one at its port, within half of the timeout; *reached says so. Errors, of all
 * ranks alike: INVALID (some have ports, some have none). Collective. */
LIERNE_PRIVATE lierne_status lierne_ports_meet(lierne_ports *ports, const lierne_ports_ranks *ranks,
                                               bool *reached);
/* The error of all ranks where one was not reached. reached: this one. */
LIERNE_PRIVATE lierne_status lierne_ports_not_reached(int rank, bool reached);

#endif
