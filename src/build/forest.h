/* Star forests: every ghost is a copy of one row of one rank. What graph and halo builders come down
 * to once they know which. */
#ifndef LIERNE_FOREST_H
#define LIERNE_FOREST_H

#include "lierne/graph.h"
#include "plan/plan.h"

/* Pairs to plan, and how their arrays lie. whole: in and out of both directions are one array each, of
 * owned rows and then ghosts (lierne/halo.h), and may be the same; accumulate must not be set then. */
typedef struct lierne_forest_spec {
    lierne_pairs_spec pairs;
    bool whole;
    bool keep_ghosts; /* of a whole array: the adjoint leaves ghost rows of in as they are */
} lierne_forest_spec;

/* Collective; waits for all ranks. status: how the caller's own preparation ended on this rank. As
 * lierne_plan_pairs, whose errors it has; the plan is written and listed as one of pairs. */
lierne_status lierne_plan_forest(lierne_plan **out, lierne_context *context, lierne_status status,
                                 const lierne_forest_spec *spec);

#endif
