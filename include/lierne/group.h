/* Groups: ordered ranks of a context with an identity, a purpose and a priority. Give traffic of
 * one purpose a group of its own if it must not wait for other traffic: each group is a queue of
 * lierne/schedule.h.
 *
 * Domains. A spec of a plan may name a group: this rank's of one lierne_group_spec, which must have
 * all ranks that the plan has messages with (INVALID); ranks without messages may give NULL. Ranks
 * with messages must give groups of one spec, or all NULL, the context's own domain (MISMATCH). A
 * plan is in its group until it is destroyed, also when it is updated; plans made of it are, too.
 * It is not part of a plan's text.
 * Over transports that match messages in the order of calls (nccl, ipc), calls in one domain need
 * one order on all ranks, and calls in different domains on different streams do not wait for each
 * other. Calls on one stream need one order in any case. Over all other transports a domain changes
 * nothing.
 *
 * Communicators. Over NCCL each group has a communicator of its own, which costs memory and
 * start-up time (lierne/nccl.h). With all other transports, creating and destroying groups moves no
 * data.
 *
 * Identity. A group is known by its uid, a number that its context never uses again. Two groups of
 * equal ranks and purpose are two groups. Groups that plans need internally (lierne/megatron.h) are
 * shared by plans with the same ordered ranks and purpose; they have no handle.
 *
 * Budget. A context has at most max_groups (lierne_context_spec) groups on a rank, including those
 * that plans share, because a communicator may cost hundreds of megabytes of device memory. One
 * more is NO_RESOURCE, and the message names purpose and size of the groups that are alive. Groups
 * without this rank do not count.
 *
 * Thread safety: that of the context (lierne/context.h). */
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

/* Disjoint groups of one purpose. Begin with LIERNE_GROUP_SPEC_INIT, or set size to
 * sizeof(lierne_group_spec), ngroups to 1 and the rest to zero. lierne_grid_get_groups
 * (lierne/grid.h) writes ranks, ngroups and group_size; for one list of ranks ngroups is 1. */
typedef struct lierne_group_spec {
    size_t size;
    const char *purpose; /* 1 to LIERNE_MAX_PURPOSE characters of a-z A-Z 0-9 _ - . */
    lierne_priority priority;
    int ngroups;      /* at least 1 */
    int group_size;   /* ranks of every group, at least 1; not read if sizes is given */
    const int *sizes; /* ranks of each group, at least 1, where they differ; else NULL */
    const int *ranks; /* ranks of the context, group after group, in the order of each group: it
                         need not ascend, and must be the same on all ranks */
} lierne_group_spec;
#define LIERNE_GROUP_SPEC_INIT                                                                     \
    { .size = sizeof(lierne_group_spec), .ngroups = 1 }

/* Creates the groups of one spec. *out is this rank's group, NULL if it is in none of them. Equal
 * to lierne_group_create_all with one spec. */
LIERNE_API lierne_status lierne_group_create(lierne_group **out, lierne_context *context,
                                             const lierne_group_spec *spec);

/* Creates the groups of n specs at once. out has n entries: out[i] is this rank's group of
 * specs[i], NULL if it is in none of them. specs is copied. Destroy each group with
 * lierne_group_destroy, before the context.
 *
 * Collective over the context: all its ranks call with the same specs, also ranks that are in no
 * group, and wait for each other (in a simulated world: a thread per rank). Nothing is created
 * before all ranks have agreed. Every rank gets the same error; then nothing is created and all out
 * are NULL.
 *
 * Errors: INVALID (context, out, specs or an entry NULL, n below 1, purpose, priority, a size, a
 * rank that is outside of the context or twice in a spec), NO_RESOURCE (max_groups), MISMATCH
 * (ranks give different specs; the message names the field), NO_MEMORY, TIMEOUT, PEER_FAILED,
 * TRANSPORT. */
LIERNE_API lierne_status lierne_group_create_all(lierne_group **out, lierne_context *context,
                                                 const lierne_group_spec *const *specs, int n);

/* Destroys a group, also on an error but BUSY. NULL is allowed.
 *
 * Collective over the members of the group, in the same order on all of them, as MPI_Comm_free is.
 * It waits only for transports with a communicator per group (above), at most the context's
 * timeout; calls in flight do not progress while it waits. A group of a dead context is destroyed
 * without communication. Errors: BUSY (plans in the group are alive; nothing is destroyed),
 * TIMEOUT, PEER_FAILED, TRANSPORT (the context is dead then; the group is destroyed). */
LIERNE_API lierne_status lierne_group_destroy(lierne_group *group);

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
