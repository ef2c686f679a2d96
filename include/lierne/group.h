/* Groups: ordered ranks of a context with an identity, a purpose and a priority. Traffic of one
 * purpose that must not wait for that of another one gets a group of its own: a transport that
 * needs a communicator per group (NCCL does) makes one for each; self, sim and mpi need none.
 *
 * Identity. A group is known by its uid, a number that its context never uses again. Two groups of
 * equal ranks and purpose, created one after the other, are two groups. The groups that plans need
 * inside (lierne/megatron.h) are shared by ordered ranks and purpose instead; they have no handle.
 *
 * Budget. A context has at most max_groups (lierne_context_spec) groups on a rank, those that plans
 * share included, because a communicator may cost hundreds of megabytes of device memory. One more
 * is NO_RESOURCE, and the message names purpose and size of the groups that are alive. A group that
 * the rank is no member of costs it nothing.
 *
 * Thread safety: as the context (lierne/context.h). */
#ifndef LIERNE_GROUP_H
#define LIERNE_GROUP_H

#include "lierne/context.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lierne_group lierne_group;

/* How urgent the traffic of a group is, for transports that have priorities. */
typedef enum lierne_priority { LIERNE_PRIORITY_NORMAL, LIERNE_PRIORITY_HIGH } lierne_priority;

#define LIERNE_MAX_PURPOSE 15 /* characters of a purpose */

/* An enumeration of groups without a rank in common, of one purpose. Begin with
 * LIERNE_GROUP_SPEC_INIT, or set size to sizeof(lierne_group_spec), ngroups to 1 and the rest to
 * zero. lierne_grid_get_groups (lierne/grid.h) writes ranks, ngroups and group_size; one list of
 * ranks is ngroups 1. */
typedef struct lierne_group_spec {
    size_t size;
    const char *purpose; /* 1 to LIERNE_MAX_PURPOSE characters of a-z A-Z 0-9 _ - . */
    lierne_priority priority;
    int ngroups;      /* at least 1 */
    int group_size;   /* ranks of every group, at least 1; not read if sizes is given */
    const int *sizes; /* ranks of each group, at least 1, where they differ; else NULL */
    const int *ranks; /* ranks of the context, group after group. Their order is the group's: it is
                         kept, compared, and need not ascend */
} lierne_group_spec;
#define LIERNE_GROUP_SPEC_INIT                                                                     \
    { .size = sizeof(lierne_group_spec), .ngroups = 1 }

/* Creates the groups of an enumeration. *out is this rank's, NULL if it is a member of none. The
 * same as lierne_group_create_all with one spec. */
LIERNE_API lierne_status lierne_group_create(lierne_group **out, lierne_context *context,
                                             const lierne_group_spec *spec);

/* Creates the groups of n enumerations at once. out has n entries: out[i] is this rank's group of
 * specs[i], NULL if it is a member of none. specs is copied. Destroy each with
 * lierne_group_destroy; all before the context.
 *
 * Collective over the context, members or not, because all ranks of a context agree with each
 * other: each rank gives the same specs, and waits for all others (over sim: a thread per rank).
 * Nothing is created before all have agreed. Then, with transports that have communicators, members
 * create theirs one after the other, ordered by smallest rank, size and uid, within the context's
 * deadline. On an error, which is the same on every rank, nothing is created and all out are NULL.
 *
 * Errors: INVALID (context, out, specs or an entry NULL, n below 1, purpose, priority, a size, a
 * rank that is outside of the context or twice in a spec), NO_RESOURCE (max_groups), MISMATCH
 * (ranks give different specs; the message names the field), NO_MEMORY, TIMEOUT, PEER_FAILED,
 * TRANSPORT. */
LIERNE_API lierne_status lierne_group_create_all(lierne_group **out, lierne_context *context,
                                                 const lierne_group_spec *const *specs, int n);

/* Destroys *group and sets *group to NULL, whatever the result: a second call with the same
 * variable does nothing and returns OK, so that the paths after success and after an error may both
 * call it. NULL, or *group NULL, does nothing.
 *
 * Collective over the members of the group, in the same order on all of them, as MPI_Comm_free is.
 * Transports without communicators do not communicate: over self, sim and mpi it never waits. With
 * communicators it waits for the other members at most the context's timeout; calls in flight do
 * not progress meanwhile. Of a dead context a group is destroyed without communication. Errors:
 * TIMEOUT, PEER_FAILED, TRANSPORT (the context is dead then; the group is destroyed). */
LIERNE_API lierne_status lierne_group_destroy(lierne_group **group);

/* The number of ranks, this rank's place among them (0 to size - 1), and the world ranks in the
 * group's order, which the group owns. -1, -1 and NULL for NULL. Not collective. */
LIERNE_API int lierne_group_get_size(const lierne_group *group);
LIERNE_API int lierne_group_get_rank(const lierne_group *group);
LIERNE_API const int *lierne_group_get_ranks(const lierne_group *group);

/* The purpose, which the group owns (NULL for NULL), and the priority (NORMAL for NULL). Not
 * collective. */
LIERNE_API const char *lierne_group_get_purpose(const lierne_group *group);
LIERNE_API lierne_priority lierne_group_get_priority(const lierne_group *group);

/* The uid, from 1 on: equal on all members, and never that of another group of the context, alive
 * or destroyed. -1 for NULL. Not collective. */
LIERNE_API int64_t lierne_group_get_uid(const lierne_group *group);

#ifdef __cplusplus
}
#endif
#endif
