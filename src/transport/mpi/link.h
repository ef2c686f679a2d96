/* A link: this rank's end of a private communicator, and what collective decisions need. */
#ifndef LIERNE_LINK_H
#define LIERNE_LINK_H

#include "transport/abort_flags.h"
#include "transport/transport.h"

#include <mpi.h>

#define LIERNE_LINK_PAGE      32        /* fields told at once when ranks disagree */
#define LIERNE_LINK_SINK      (1 << 17) /* words; memory that is not written costs none */
#define LIERNE_LINK_POST_TAGS 2

/* Where a rank is: its node, and its process in a space of process numbers. Words of 64 bits, so
 * that ranks can gather them. */
typedef struct lierne_seat {
    uint64_t node;
    uint64_t rank;
    uint64_t space;
    uint64_t process;
    uint64_t flags; /* descriptor of abort flags that this process opened */
} lierne_seat;
#define LIERNE_SEAT_WORDS 5
#define LIERNE_NO_FLAGS   UINT64_MAX

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
    int tags;     /* tags 0 to tags - 1 are for messages, LIERNE_LINK_POST_TAGS more for letters */
    size_t chunk; /* longest piece of a message, in bytes */
    double timeout;  /* seconds */
    lierne_deadline deadline; /* of the running collective */
    int decisions;
    unsigned posts;
    bool abandoned; /* a collective missed its deadline and may still run */
    int64_t ballot[LIERNE_LARGEST];
    int64_t tally[LIERNE_LARGEST];
    lierne_notice notice;
    lierne_field page[LIERNE_LINK_PAGE];
    lierne_seat *seats;
    bool crowded; /* this machine may have more ranks than cores: waiting gives up the core */
    unsigned idle_polls;
    int *watches; /* per rank: a descriptor that is readable once its process ended, or -1 */
    double next_look;
    int opened; /* descriptor of this rank's abort flags until all ranks have mapped them, or -1 */
    lierne_abort_flags *flags; /* of the node, or NULL */
    int *flag;                 /* per rank: its flag, or -1 on another node */
    bool ready;                /* ranks can tell each other that they give up */
    MPI_Comm notices;          /* where flags do not reach all ranks, or MPI_COMM_NULL */
    MPI_Request hearing;
    lierne_notice heard;    /* the last notice */
    lierne_notice first;    /* the first one */
    lierne_notice farewell; /* this rank's own */
    bool gave_up;           /* some rank sent a notice */
    int *gone;              /* per rank: the status of its notice */
    bool *met;              /* per rank: messages were exchanged with it */
    int64_t sink[LIERNE_LINK_SINK]; /* where letters go that there is no memory for */
} lierne_link;

extern const lierne_wire lierne_mpi_wire;

/* LIERNE_TRANSPORT with MPI's text for code. */
lierne_status lierne_link_failed(const lierne_link *l, int code, const char *what);

/* Sets the deadline that the following waits share. */
void lierne_link_arm(lierne_link *l);
/* Waits for a collective that returned `started` when it was started. TIMEOUT at the deadline: the
 * link is abandoned then. */
lierne_status lierne_link_wait(lierne_link *l, int started, MPI_Request *request, const char *what);

/* What to do while nothing happens: lets other work move on, looks whether peers live and what time
 * it is. The link is abandoned on failure. */
lierne_status lierne_link_pause(lierne_link *l, const char *what);
/* Reduces words of the ballot into the tally, with the deadline set before. Collective. */
lierne_status lierne_link_reduce(lierne_link *l, int words, MPI_Op operation);

/* Duplicates comm. Collective. */
lierne_status lierne_link_open(lierne_link *l, MPI_Comm comm);
/* Frees the link. Collective unless dead. */
void lierne_link_close(lierne_link *l, bool dead);

/* Takes a decision: see agree in transport.h. Returns whether one was taken, *decision is it; the
 * message is set if it is an error. */
lierne_status lierne_link_agree(lierne_link *l, lierne_status mine, const lierne_field *fields,
                                size_t n, lierne_status *decision);

/* post and largest of the wire. */
lierne_status lierne_link_post(void *link, const lierne_letter *letters, size_t n,
                               lierne_letters *received);
lierne_status lierne_link_largest(void *link, int64_t *values, size_t n);

/* An id of the space that this process's number is valid in; 0 if it has none. */
uint64_t lierne_link_space(void);
/* Begins to watch the processes of ranks in the same space of process numbers. */
void lierne_link_watch(lierne_link *l);
void lierne_link_unwatch(lierne_link *l);
/* PEER_FAILED if the process of a rank has ended. */
lierne_status lierne_link_alive(void *link, int peer);

/* give_up, any_gave_up and gave_up of the wire. */
void lierne_link_give_up(void *link, lierne_status status);
bool lierne_link_any_gave_up(void *link);
lierne_status lierne_link_gave_up(void *link, int peer);
/* The error of the lowest rank that is known to have given up. */
lierne_status lierne_link_check_all(lierne_link *l);
/* Maps the node's abort flags; returns whether they reach all ranks. */
bool lierne_link_map_flags(lierne_link *l);
/* Waits until all ranks have mapped them, and opens a way for notices where they do not reach all
 * ranks. Collective. */
lierne_status lierne_link_share_flags(lierne_link *l, bool reached);
/* The link is abandoned where MPI may still write a notice. */
void lierne_link_stop_listening(lierne_link *l);
void lierne_link_drop_flags(lierne_link *l);

/* Whether all ranks close their link, at most after the timeout. Collective. */
bool lierne_link_all_close(lierne_link *l);

/* A hash of bytes that continues hash (0 at first). */
uint64_t lierne_link_hash(uint64_t hash, const void *data, size_t bytes);

/* For tests: cuts the messages of an MPI context into pieces of at most `bytes`, the same on every
 * rank, from the next message on. */
void lierne_link_set_chunk(lierne_context *context, size_t bytes);

#endif
