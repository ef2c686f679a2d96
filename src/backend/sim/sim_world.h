/* The state that the control and the transport of a simulated world share. */
#ifndef LIERNE_SIM_WORLD_H
#define LIERNE_SIM_WORLD_H

#include "backend/sim/sim_mailbox.h"
#include "runtime/control/control.h"
#include "runtime/control/members.h"

#include <pthread.h>
#include <stdatomic.h>

/* An agreement of the ranks that have taken part so far. */
typedef struct lierne_sim_agreement {
    lierne_status status;
    char message[LIERNE_MESSAGE_SIZE];
    size_t nfields;
    lierne_field *fields; /* of the first rank */
    int first;
    int taken; /* ranks that took part */
} lierne_sim_agreement;

typedef struct lierne_sim_world lierne_sim_world;

/* The state of control and transport of one rank. All zero until the rank is first used. */
typedef struct lierne_sim_rank {
    lierne_sim_world *world;
    int rank;
    atomic_int gave_up;    /* the status with which this rank gave up */
    char *gave_up_message; /* NULL if there was no memory for it */
    lierne_sim_mailbox mailbox;
    int agreements;     /* number that this rank took part in */
    size_t barriers;    /* number that this rank took part in */
    const void *shared; /* its contribution to the current barrier */
    size_t nshared;
} lierne_sim_rank;

struct lierne_sim_world {
    int nranks;             /* those that have a context */
    lierne_members members; /* their names in messages */
    double timeout;
    lierne_control_hook hook; /* progresses the executions of all ranks; called with the lock */
    lierne_sim_rank *ranks;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* signalled before the lock is released after a change */
    bool dirty;             /* something changed that another rank may wait for */
    LIERNE_VEC(lierne_sim_agreement) agreements;
    bool full;       /* out of memory once: all later agreements fail too, so that ranks agree */
    size_t arrivals; /* of ranks at barriers, over all barriers */
    size_t reads;    /* of ranks that have read all contributions, over all barriers */
    int timed_out;   /* a rank that timed out at a barrier or an agreement, or -1 */
    atomic_bool any_gave_up;
};

/* Fills a world that is all zero, and borrows members->ranks. Close it also after a failure. */
lierne_status lierne_sim_world_open(lierne_sim_world *world, const lierne_members *members,
                                    double timeout, lierne_control_hook hook);
/* The rank of an index, for messages. */
int lierne_sim_name(const lierne_sim_world *world, int index);
/* Frees what the world points to. */
void lierne_sim_world_close(lierne_sim_world *world);

extern const lierne_control lierne_sim_control;

#endif
