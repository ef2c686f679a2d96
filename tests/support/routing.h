/* The routing of the plans under test: that of the environment variable LIERNE_TEST_ROUTING,
 * "direct" or "balanced"; otherwise AUTO. max_peers: the fewest that n ranks can have, if
 * LIERNE_TEST_PEERS is set; otherwise 0. */
#ifndef TEST_ROUTING_H
#define TEST_ROUTING_H

#include "lierne/plan.h"

#include <stdlib.h>
#include <string.h>

static inline lierne_routing test_routing(void) {
    const char *asked = getenv("LIERNE_TEST_ROUTING");
    return !asked                           ? LIERNE_ROUTING_AUTO
           : strcmp(asked, "balanced") == 0 ? LIERNE_ROUTING_BALANCED
                                            : LIERNE_ROUTING_DIRECT;
}

/* The peers of n ranks that stand in a square. */
static inline int fewest_peers(int n) {
    int columns = 1;
    while (columns * columns < n) {
        columns++;
    }
    return columns - 1 + (n + columns - 1) / columns - 1;
}

static inline int test_max_peers(int n) {
    return getenv("LIERNE_TEST_PEERS") ? fewest_peers(n) : 0;
}

#endif
