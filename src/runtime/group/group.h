/* The groups of a rank: those that were created, by identity, and those that plans share, by
 * ordered ranks and purpose. Both count against the context's budget. */
#ifndef LIERNE_GROUP_INTERNAL_H
#define LIERNE_GROUP_INTERNAL_H

#include "lierne/group.h"
#include "runtime/context/context.h"

struct lierne_group {
    lierne_dependent dependent; /* of the context, where it was created; the first member */
    lierne_context *context;
    int64_t uid; /* 0: shared by plans */
    int64_t set; /* uid of the first group of its spec: the same on all ranks of these groups */
    char purpose[LIERNE_MAX_PURPOSE + 1];
    lierne_priority priority;
    int n;
    int *ranks;
    int *indices;      /* of the ranks among the members of the context */
    int rank;          /* this rank's place among them, or -1 */
    int smallest;      /* rank */
    int64_t source;    /* uid of the group that a schedule isolated it from; 0: none */
    size_t references; /* of plans, or of runs of schedules */
    size_t nplans;     /* alive, whose messages are of its domain */
    lierne_domain domain;
};

/* group.c. Adds a group to the context's, with uid 0. Not collective. Errors: NO_RESOURCE,
 * NO_MEMORY. */
lierne_status lierne_group_add(lierne_group **out, lierne_context *context, const char *purpose,
                               const int *ranks, int n);
/* Removes and frees a group. NULL is allowed. */
void lierne_group_remove(lierne_context *context, lierne_group *group);

/* Whether group is a created one of the context, which has the ranks; any pointer may be given.
 * Errors: INVALID. */
lierne_status lierne_group_check(const lierne_context *context, const lierne_group *group);
bool lierne_group_has(const lierne_group *group, int rank);

/* What planners need: gets a group, or adds it; each get needs a release, the last of which removes
 * the group. NULL may be released. Not collective. These groups are not shown to transports: a
 * plan's messages are those of the context. */
lierne_status lierne_group_get(lierne_group **out, lierne_context *context, const char *purpose,
                               const int *ranks, int n);
void lierne_group_release(lierne_context *context, lierne_group *group);

/* communicators.c. How many of the context's transports need communicators. */
int lierne_groups_count_transports(const lierne_context *context);
/* Lets transports create what they need for groups: this rank's of n specs, or NULL. Collective
 * over the context, after an agreement; the same error on every rank. */
lierne_status lierne_groups_create_communicators(lierne_context *context,
                                                 lierne_group *const *groups, int n);
/* Destroys what transports created for a group. Errors: as lierne_group_destroy. */
lierne_status lierne_group_destroy_communicators(lierne_group *group);

#endif
