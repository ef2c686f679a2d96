/* The routing of the plans under test: that of the environment variable LIERNE_TEST_ROUTING,
 * "direct" or "balanced"; otherwise AUTO. */
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

#endif
