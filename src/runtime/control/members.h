/* The members of a context: the ranks of a larger world that it has, or all of them.
 *
 * Controls and transports know their own communicator only, whose ranks are the indices of the
 * members; planners, routes and users know ranks of the world. src/context and src/execute map one
 * to the other. Controls and transports use this for the ranks in their messages only. */
#ifndef LIERNE_MEMBERS_H
#define LIERNE_MEMBERS_H

#include "base/base.h"

typedef struct lierne_members {
    int world;  /* ranks of the world */
    int count;  /* ranks of the context */
    int *ranks; /* of each member, ascending; NULL: all ranks of the world */
} lierne_members;

/* The rank of a member. */
static inline int lierne_members_rank(const lierne_members *members, int index) {
    return members->ranks ? members->ranks[index] : index;
}
/* Searches the ranks, which must not be NULL. */
int lierne_members_search(const lierne_members *members, int rank);
/* The index of a rank, -1 for one that is no member. Inline, because graphs ask it for every row.
 */
static inline int lierne_members_index(const lierne_members *members, int rank) {
    if (members->ranks) {
        return lierne_members_search(members, rank);
    }
    return rank >= 0 && rank < members->count ? rank : -1;
}
/* What a rank must be, after "must be ", as far as it fits: "in 0 to 7", or "a member of the
 * context (0 to 3, 8)". */
void lierne_members_print(char *text, size_t size, const lierne_members *members);

#endif
