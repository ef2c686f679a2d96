/* Groups of planners: ordered ranks with a purpose. Plans of a context that need equal ranks for an
 * equal purpose share one group, which is freed with the last of them. A group identifies the set
 * of ranks that a stage runs on, for transports that need a communicator per group. Over self, sim
 * and mpi the messages of a group use the context's own transport. */
#ifndef LIERNE_GROUP_H
#define LIERNE_GROUP_H

#include "context/context.h"

typedef struct lierne_group {
    char purpose[16];
    int n;
    int *ranks;
    size_t references;
} lierne_group;

/* Gets a group, or creates it. Not collective. */
lierne_status lierne_group_get(lierne_group **out, lierne_context *context, const char *purpose,
                               const int *ranks, int n);
/* Releases a group; the last release frees it. NULL is allowed. */
void lierne_group_release(lierne_context *context, lierne_group *group);

#endif
