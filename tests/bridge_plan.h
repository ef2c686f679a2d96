/* The cases of bridge_model.h as specs and plans of the library. */
#ifndef LIERNE_TESTS_BRIDGE_PLAN_H
#define LIERNE_TESTS_BRIDGE_PLAN_H

#include "bridge_model.h"

/* A rank's plan of a case. Collective. */
lierne_status case_plan(lierne_plan **plan, lierne_context *context, const bridge_case *c);

/* lierne_redistribute_get_bound of a direction, in bytes. */
lierne_status case_bound(const bridge_case *c, lierne_direction d, int64_t *received,
                         int64_t *sent);
/* lierne_redistribute_get_node_bound of a direction, with the nodes of the case. */
lierne_status case_node_bound(const bridge_case *c, lierne_direction d, lierne_node_bound *bound);

/* "tp2cp1dp4@0 -> ..." with everything else, for messages; in a static buffer. */
const char *case_text(const bridge_case *c);

#endif
