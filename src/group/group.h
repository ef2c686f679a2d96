/* Groups that builders need inside: ordered ranks with a purpose. Equal (ranks, purpose) is one
 * group, shared by all plans of a context and gone with the last of them. A group here is a name
 * for a set of ranks that a stage runs on; a transport whose wire needs a communicator per group
 * hangs it here. Over self, sim and mpi the messages of a group travel on the context's wire. */
#ifndef LIERNE_GROUP_H
#define LIERNE_GROUP_H

#include "context/context.h"

typedef struct lierne_group {
    char purpose[16];
    int n;
    int *ranks;
    size_t references;
} lierne_group;

/* Gets a group, making it if there is none. Not collective. */
lierne_status lierne_group_get(lierne_group **out, lierne_context *context, const char *purpose,
                               const int *ranks, int n);
/* Gives it back; NULL is allowed. */
void lierne_group_release(lierne_context *context, lierne_group *group);

#endif
