/* Members ascend, so that their order is that of the ranks: the lowest index that failed is the
 * lowest rank, and messages in the order of indices are in the order of ranks. */
#include "runtime/control/members.h"

#include <stdio.h>

int lierne_members_search(const lierne_members *members, int rank) {
    return lierne_search_int(members->ranks, members->count, rank);
}

/* The last index of the consecutive ranks that begin at an index. */
static int end_of_run(const lierne_members *members, int index) {
    while (index + 1 < members->count && members->ranks[index + 1] == members->ranks[index] + 1) {
        index++;
    }
    return index;
}

void lierne_members_print(char *text, size_t size, const lierne_members *members) {
    if (!members->ranks) {
        snprintf(text, size, "in 0 to %d", members->count - 1);
        return;
    }
    size_t used = (size_t)snprintf(text, size, "a member of the context (");
    for (int i = 0, last; i < members->count; i = last + 1) {
        const char *comma = i ? ", " : "";
        last = end_of_run(members, i);
        if (used + 40 > size) {
            used += (size_t)snprintf(text + used, size - used, ", ...");
            break;
        }
        used += (size_t)(last > i ? snprintf(text + used, size - used, "%s%d to %d", comma,
                                             members->ranks[i], members->ranks[last])
                                  : snprintf(text + used, size - used, "%s%d", comma,
                                             members->ranks[i]));
    }
    snprintf(text + used, size - used, ")");
}
