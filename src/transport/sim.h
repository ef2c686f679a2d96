/* What the files of the sim wire share: a world, and the seat of each of its ranks. */
#ifndef LIERNE_SIM_H
#define LIERNE_SIM_H

#include "transport/transport.h"

#include <pthread.h>
#include <stdatomic.h>

/* A message on its way. */
typedef struct lierne_sim_letter {
    struct lierne_sim_letter *next;
    int from;
    int tag;
    size_t bytes;
    char data[];
} lierne_sim_letter;

/* A decision, as far as ranks have taken part. */
typedef struct lierne_sim_decision {
    lierne_status status;
    char message[LIERNE_MESSAGE_SIZE];
    size_t nfields;
    lierne_field *fields; /* of the first rank */
    int first;
    int taken; /* ranks that took part */
} lierne_sim_decision;

typedef struct lierne_sim_seat {
    lierne_sim *sim;
    lierne_context *context; /* NULL: nobody asked for it */
    atomic_int gave_up; /* the status with which this rank gave up */
    lierne_sim_letter *first;
    lierne_sim_letter **last; /* NULL: nothing was ever sent here */
    int decisions;     /* that this rank took part in */
    size_t meetings;   /* likewise */
    const void *offer; /* what it shows to the others at the present meeting */
    size_t noffer;
} lierne_sim_seat;

struct lierne_sim {
    int nranks;
    lierne_sim_seat *seats;     /* zero but for those whose context was asked for, or sent to */
    lierne_context *contexts;   /* by rank */
    lierne_context common;      /* what all contexts begin as; owns their nodes */
    pthread_mutex_t lock;
    LIERNE_VEC(lierne_sim_decision) decisions;
    bool full;   /* one could not be noted: neither can those after it, or ranks would disagree */
    size_t came; /* ranks, to meetings, all together */
    size_t looked;
    int gone; /* a rank that gave up waiting for others, or -1 */
    atomic_bool any_gave_up;
};

/* Lets the jobs of all ranks move on, with the lock held; returns whether one did. */
bool lierne_sim_move(const lierne_sim *sim);

/* Functions of the wire. */
void lierne_sim_enter(void *seat);
void lierne_sim_leave(void *seat);
bool lierne_sim_any_gave_up(void *seat);
lierne_status lierne_sim_gave_up(void *seat, int peer);
lierne_status lierne_sim_agree(void *seat, lierne_status mine, const lierne_field *fields, size_t n,
                               int *id);
lierne_status lierne_sim_agreed(void *seat, int id);
lierne_status lierne_sim_settled(void *seat, int id);
lierne_status lierne_sim_post(void *seat, const lierne_letter *letters, size_t n,
                              lierne_letters *received);
lierne_status lierne_sim_largest(void *seat, int64_t *values, size_t n);

#endif
