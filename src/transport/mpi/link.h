/* A link: this rank's end of a private communicator, and what collective decisions need. */
#ifndef LIERNE_LINK_H
#define LIERNE_LINK_H

#include "transport/transport.h"

#include <mpi.h>

#define LIERNE_LINK_PAGE 32 /* fields told at once when ranks disagree */

/* Where a rank is: its node, and its process in a space of process numbers. Words of 64 bits, so
 * that ranks can gather them. */
typedef struct lierne_seat {
    uint64_t node;
    uint64_t rank;
    uint64_t space;
    uint64_t process;
} lierne_seat;
#define LIERNE_SEAT_WORDS 4

typedef struct lierne_notice {
    int status;
    char message[LIERNE_MESSAGE_SIZE];
} lierne_notice;

/* Everything that a collective call reads or writes lives in here and never on a stack: after a
 * missed deadline MPI may still write it, so then the link is left behind. */
typedef struct lierne_link {
    lierne_context *context; /* NULL until there is one */
    MPI_Comm comm;
    int rank;
    int world;
    int tags;        /* tags 0 to tags - 1 are legal */
    size_t chunk;    /* longest piece of a message, in bytes */
    double timeout;  /* seconds */
    double deadline; /* of the running collective */
    int decisions;
    bool abandoned; /* a collective missed its deadline and may still run */
    int64_t ballot[3];
    int64_t tally[3];
    lierne_notice notice;
    lierne_field page[LIERNE_LINK_PAGE];
    lierne_seat *seats;
    bool crowded; /* this machine may have more ranks than cores: waiting gives up the core */
    unsigned idle_polls;
    int *watches; /* per rank: a descriptor that is readable once its process ended, or -1 */
    double next_look;
} lierne_link;

extern const lierne_wire lierne_mpi_wire;

/* LIERNE_TRANSPORT with MPI's text for code. */
lierne_status lierne_link_failed(const lierne_link *l, int code, const char *what);

/* Sets the deadline that the following waits share. */
void lierne_link_arm(lierne_link *l);
/* Waits for a collective that returned `started` when it was started. TIMEOUT at the deadline: the
 * link is abandoned then. */
lierne_status lierne_link_wait(lierne_link *l, int started, MPI_Request *request, const char *what);

/* Duplicates comm. Collective. */
lierne_status lierne_link_open(lierne_link *l, MPI_Comm comm);
/* Frees the link. Collective unless dead. */
void lierne_link_close(lierne_link *l, bool dead);

/* Takes a decision: see agree in transport.h. Returns whether one was taken, *decision is it; the
 * message is set if it is an error. */
lierne_status lierne_link_agree(lierne_link *l, lierne_status mine, const lierne_field *fields,
                                size_t n, lierne_status *decision);

/* An id of the space that this process's number is valid in; 0 if it has none. */
uint64_t lierne_link_space(void);
/* Begins to watch the processes of ranks in the same space of process numbers. */
void lierne_link_watch(lierne_link *l);
void lierne_link_unwatch(lierne_link *l);
/* PEER_FAILED if the process of a rank has ended. */
lierne_status lierne_link_alive(void *link, int peer);

/* Whether all ranks close their link, at most after the timeout. Collective. */
bool lierne_link_all_close(lierne_link *l);

/* A hash of bytes that continues hash (0 at first). */
uint64_t lierne_link_hash(uint64_t hash, const void *data, size_t bytes);

/* For tests: cuts the messages of an MPI context into pieces of at most `bytes`, the same on every
 * rank, from the next message on. */
void lierne_link_set_chunk(lierne_context *context, size_t bytes);

#endif
