/* For the tests of groups: what the ranks of a simulated world share, and a transport that needs a
 * communicator per group and moves nothing. Creating one waits for all members, as MPI and NCCL do,
 * so an order in which members wait for each other ends in TIMEOUT. */
#ifndef GROUP_CASE_H
#define GROUP_CASE_H

#include "base/base.h"
#include "lierne/group.h"
#include "lierne/sim.h"
#include "rank_threads.h"

#include <pthread.h>
#include <stdbool.h>

#define GROUP_RANKS   8  /* of a world, at most */
#define GROUP_LOG     8  /* calls of group_create that a rank records */
#define GROUP_AT_ONCE 64 /* groups in creation at a time */

/* What goes wrong in group_create of a rank. FAILS: returns NO_MEMORY after it has met the others.
 * STAYS_AWAY: returns TIMEOUT at once, and the others wait in vain. */
typedef enum group_fault { NO_FAULT, FAILS, STAYS_AWAY } group_fault;

/* The members of a group that have come. */
typedef struct group_meeting {
    int64_t uid;
    int count;
} group_meeting;

typedef struct group_state group_state;

/* A rank of the transport. */
typedef struct group_rank {
    group_state *shared;
    int rank;
    int ncreated; /* calls */
    int64_t created[GROUP_LOG];
} group_rank;

/* All zero at first, but for what a test sets. */
struct group_state {
    int variant; /* the test's own */
    int fault_rank;
    group_fault fault;

    rank_faults faults;
    lierne_status kept[GROUP_RANKS]; /* a status of each rank, with its message */
    char message[GROUP_RANKS][LIERNE_MESSAGE_SIZE];
    size_t live; /* allocations */

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    int communicators; /* alive, over all ranks */
    int alone;         /* destructions of the group with uid 1 that waited for nobody */
    group_meeting creations[GROUP_AT_ONCE]; /* by uid, modulo their number */
    group_meeting destructions[GROUP_AT_ONCE];
    group_rank ranks[GROUP_RANKS];
};

/* Keeps this rank's status and message. */
void group_keep(group_state *s, const lierne_context *context, lierne_status status);

/* Runs work on every rank, as ranks_run; then nothing may be wrong or left. */
void group_run(int world, const lierne_context_spec *spec,
               void (*work)(lierne_context *context, void *shared), group_state *s);
/* Checks that each rank kept this status, with the same message, which contains text. */
void group_check_alike(const group_state *s, int world, lierne_status status, const char *text);

lierne_group_spec group_spec_of(const char *purpose, int ngroups, int size, const int *ranks);

/* Gives this rank's context the transport. Called by each rank before its first group. */
void group_attach(group_state *s, lierne_context *context);

#endif
