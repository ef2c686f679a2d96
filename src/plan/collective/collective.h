/* The collectives' planner: what all specs have in common, and what routes are made of. */
#ifndef LIERNE_COLLECTIVE_INTERNAL_H
#define LIERNE_COLLECTIVE_INTERNAL_H

#include "lierne/collective.h"
#include "plan/plan.h"
#include "plan/spec_table.h"

typedef enum lierne_collective_kind {
    LIERNE_ALL_GATHER,
    LIERNE_REDUCE_SCATTER,
    LIERNE_ALL_REDUCE,
    LIERNE_BROADCAST,
    LIERNE_ALL_TO_ALL,
    LIERNE_BARRIER
} lierne_collective_kind;

/* What a spec says; what a collective does not have is zero. */
typedef struct lierne_collective {
    lierne_collective_kind kind;
    const int *ranks;
    int nranks;
    int64_t count;
    const int64_t *counts; /* the same on every rank */
    lierne_dtype dtype;
    lierne_reduction reduction;
    lierne_collective_algorithm algorithm;
    const int *root; /* NULL: it has none */
    bool own_counts; /* an all-to-all whose ranks have send_counts */
    int max_inflight;
    lierne_group *group;
    const char *name;
} lierne_collective;

/* The ranks of a collective, in their order. */
typedef struct lierne_team {
    const lierne_members *members;
    const int *ranks; /* NULL: all members */
    int n;
    int me; /* this rank's place; -1: it is not in the list */
} lierne_team;

/* Checks all of a spec, and finds its team, which points to ranks of the spec. */
lierne_status lierne_collective_check(lierne_team *team, const lierne_context *context,
                                      const lierne_collective *spec);
/* Checks count, or the n counts of a list called name. */
lierne_status lierne_collective_check_counts(const lierne_team *team, int rank, const char *name,
                                             int64_t count, const int64_t *counts,
                                             lierne_dtype dtype);
int lierne_team_rank(const lierne_team *team, int i);
/* -1 for a rank that is not in the list. */
int lierne_team_find(const lierne_team *team, int rank);

/* Adds what ranks must have given alike. The fields point into spec. */
void lierne_collective_compare(lierne_plan_fields *fields, const lierne_team *team,
                               const lierne_collective *spec);

/* Parts of a buffer, one of each rank: n + 1 entries, where part i begins, and the length. To be
 * freed with lierne_mem_free. By counts, or count each where that is NULL; those of a two-shot
 * algorithm; all of it one rank's. */
lierne_status lierne_parts_by_count(int64_t **parts, int n, int64_t count, const int64_t *counts);
lierne_status lierne_parts_two_shot(int64_t **parts, int n, int64_t count, lierne_dtype dtype);
lierne_status lierne_parts_at(int64_t **parts, int n, int64_t count, int owner);
/* AUTO becomes what LIERNE_COLLECTIVE says, if it is set. Errors: INVALID. */
lierne_status lierne_collective_read_environment(lierne_collective_algorithm *algorithm, int rank);
/* ONE_SHOT or TWO_SHOT: what was asked for, or for AUTO what n ranks and so many bytes need. */
lierne_collective_algorithm lierne_collective_choose(lierne_collective_algorithm asked, int n,
                                                     int64_t bytes);

/* Routes: each function adds the stages of a rank that is in the team. */

/* in = own part, out = all parts. Each part is divided first, where divisor is above 1. */
lierne_status lierne_route_all_gather(lierne_route *route, const lierne_team *team,
                                      const int64_t *parts, int64_t divisor);
/* in = all parts, out = own part, reduced. */
lierne_status lierne_route_reduce_scatter(lierne_route *route, const lierne_team *team,
                                          const int64_t *parts, lierne_reduction reduction);
/* in and out = all parts, reduced. parts is not read by the one-shot algorithm, but for its end. */
lierne_status lierne_route_one_shot(lierne_route *route, const lierne_team *team,
                                    const int64_t *parts, lierne_reduction reduction);
lierne_status lierne_route_two_shot(lierne_route *route, const lierne_team *team,
                                    const int64_t *parts, lierne_reduction reduction);
/* root: a place in the team. Part i takes its way through rank i. */
lierne_status lierne_route_broadcast(lierne_route *route, const lierne_team *team,
                                     const int64_t *parts, int root);
lierne_status lierne_route_reduce_to(lierne_route *route, const lierne_team *team,
                                     const int64_t *parts, int root);
/* in = part i for rank i, out = part i from rank i. */
lierne_status lierne_route_all_to_all(lierne_route *route, const lierne_team *team,
                                      const int64_t *sent, const int64_t *received);
lierne_status lierne_route_barrier(lierne_route *route, const lierne_team *team);

/* A side with an empty route. */
lierne_status lierne_collective_side(lierne_plan_side *side, int rank, int64_t in, int64_t out,
                                     int64_t min_elements);
/* Both sides of a rank that is not in the team. */
lierne_status lierne_collective_absent(lierne_plan_side *sides, int rank);
/* Before anything else of a constructor: NULL, a dead context. */
lierne_status lierne_collective_begin(lierne_plan **out, lierne_context *context);

#endif
