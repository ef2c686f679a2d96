/* A simulated world: what its control and its transport share. */
#ifndef LIERNE_SIM_WORLD_H
#define LIERNE_SIM_WORLD_H

#include "control/control.h"

#include <pthread.h>
#include <stdatomic.h>

/* A message of the transport on its way. */
typedef struct lierne_sim_message {
    struct lierne_sim_message *next;
    int from;
    int tag;
    size_t bytes;
    char data[];
} lierne_sim_message;

/* An agreement, as far as ranks have taken part. */
typedef struct lierne_sim_agreement {
    lierne_status status;
    char message[LIERNE_MESSAGE_SIZE];
    size_t nfields;
    lierne_field *fields; /* of the first rank */
    int first;
    int taken; /* ranks that took part */
} lierne_sim_agreement;

typedef struct lierne_sim_world lierne_sim_world;

/* The state of control and transport of one rank. Zero until something happens to it. */
typedef struct lierne_sim_rank {
    lierne_sim_world *world;
    int rank;
    atomic_int gave_up;    /* the status with which this rank gave up */
    char *gave_up_message; /* or NULL, where there was no memory for it */
    lierne_sim_message *first;
    lierne_sim_message **last; /* NULL: nothing was ever sent here */
    int agreements;            /* that this rank took part in */
    size_t barriers;           /* likewise */
    const void *shared;        /* what it shows to the others at the present barrier */
    size_t nshared;
} lierne_sim_rank;

struct lierne_sim_world {
    int nranks;
    double timeout;
    lierne_control_hook
        hook; /* moves on what is in flight on all ranks; called with the lock held */
    lierne_sim_rank *ranks;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* signalled when the lock is given back after a change */
    bool dirty;             /* something changed that a waiting rank may wait for */
    LIERNE_VEC(lierne_sim_agreement) agreements;
    bool full;     /* one could not be noted: neither can those after it, or ranks would disagree */
    size_t came;   /* ranks, to barriers, all together */
    size_t looked; /* ranks that have seen what the others show */
    int timed_out; /* a rank that gave up waiting for others, or -1 */
    atomic_bool any_gave_up;
};

/* Fills a world that is zero; close it also after a failure. */
lierne_status lierne_sim_world_open(lierne_sim_world *world, int nranks, double timeout,
                                    lierne_control_hook hook);
/* Frees what the world points to. */
void lierne_sim_world_close(lierne_sim_world *world);

/* The lock of the world. Ranks that wait sleep until another one has changed something (dirty) and
 * given it back: ranks that only yielded would hold each other up on a busy machine. */
void lierne_sim_enter(void *rank);
void lierne_sim_leave(void *rank);

extern const lierne_control lierne_sim_control;

#endif
