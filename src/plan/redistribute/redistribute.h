/* The planner of redistributions, for other planners that state layouts. */
#ifndef LIERNE_REDISTRIBUTE_INTERNAL_H
#define LIERNE_REDISTRIBUTE_INTERNAL_H

#include "lierne/redistribute.h"
#include "plan/fields.h"

/* All of a side: what lierne_plan_side_fill does, and the route and least elements of the
 * redistribution from one layout to the other, on the context's nodes. shared: the plan owns the
 * output, shared where ranks can. */
lierne_status lierne_plan_side_redistribute(lierne_plan_side *side, const lierne_context *context,
                                            const lierne_layout *from, const lierne_layout *to,
                                            lierne_routing routing, bool shared);

#endif
