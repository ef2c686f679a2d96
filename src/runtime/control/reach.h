/* Connections over TCP to the ports of other ranks (port.h).
 *
 * Each goes one way: the rank that connects says who it is and what for, and then sends. So whether
 * a rank runs and whether it takes part are told apart: its system accepts connections for it while
 * it runs, and rejects them once its process has ended; its own connection comes when it calls. */
#ifndef LIERNE_REACH_H
#define LIERNE_REACH_H

#include "runtime/control/port.h"

#include <poll.h>

#define LIERNE_REACH_GUESTS 32                    /* connections that have not said who they are */
#define LIERNE_REACH_MAGIC  0x686361657265696cull /* "liereach" */
#define LIERNE_REACH_CHECK  (1ull << 32)          /* a purpose: the others are attempts */

/* What both sides of a connection know first. */
typedef struct lierne_reach_hello {
    uint64_t magic;
    uint64_t secret; /* of the rank that is connected to */
    uint64_t purpose;
    uint64_t rank; /* that connects */
} lierne_reach_hello;

typedef struct lierne_reach_guest {
    int connection; /* -1: free */
    lierne_reach_hello hello;
    size_t have;
} lierne_reach_guest;

/* A connection to a rank and one from it. */
typedef struct lierne_reach_peer {
    bool to; /* which of them are wanted */
    bool from;
    int out; /* -1: not there */
    int in;
    bool said;    /* out is there for the rank, and this one has said who it is */
    bool refused; /* nobody listens at its port: its process has ended */
    bool over;    /* in is at its end, where what it sent before may still be read */
} lierne_reach_peer;

typedef struct lierne_reach {
    int listener;
    const lierne_address *addresses; /* per rank */
    int rank;
    int world;
    uint64_t purpose; /* connections of other purposes are dropped */
    lierne_reach_peer *peers;
    lierne_reach_guest guests[LIERNE_REACH_GUESTS];
    int oldest; /* guest */
    struct pollfd *polled;
    double next_try;
} lierne_reach;

/* Begins without connections, and wants none: the caller sets to and from of peers. listener to
 * purpose are set. Errors: NO_MEMORY; close is to be called all the same. */
lierne_status lierne_reach_open(lierne_reach *reach);
/* Waits at most some milliseconds for something to happen, and does what can be done. Errors:
 * TRANSPORT (no descriptor is left). */
lierne_status lierne_reach_step(lierne_reach *reach, int milliseconds);
/* Whether what is wanted of a rank is there, or never will be. */
bool lierne_reach_done(const lierne_reach *reach, int rank);
/* Closes what is there; a caller that keeps a connection sets it to -1. */
void lierne_reach_close(lierne_reach *reach);

#endif
