/* The planner of redistributions, for other planners that state layouts. */
#ifndef LIERNE_REDISTRIBUTE_INTERNAL_H
#define LIERNE_REDISTRIBUTE_INTERNAL_H

#include "lierne/redistribute.h"
#include "plan/fields.h"

/* The ranks of both layouts' grids, ascending, into space for the whole world; how many. */
int lierne_redistribute_ranks(int *ranks, const lierne_layout *from, const lierne_layout *to);

/* How a side moves what it moves. */
typedef struct lierne_side_rules {
    lierne_routing routing;
    bool shared;                  /* the plan owns the output, shared where ranks can */
    int max_peers;                /* 0: any number */
    const lierne_layout *margins; /* the layout moved from, with margins whose gradients are added
                                     where it goes; NULL: none */
} lierne_side_rules;

/* All of a side: what lierne_plan_side_fill does, and the route and least elements of the
 * redistribution from one layout to the other, on the context's nodes. */
lierne_status lierne_plan_side_redistribute(lierne_plan_side *side, const lierne_context *context,
                                            const lierne_layout *from, const lierne_layout *to,
                                            const lierne_side_rules *rules);

/* A direction of the redistribution of one tensor without PARTIAL, without nodes. */
typedef struct lierne_tensor_route {
    lierne_route *route;
    int64_t min_elements;
    size_t core_sends; /* of the first stage; those after them send terms, which land in scratch */
} lierne_tensor_route;

lierne_status lierne_tensor_route_create(lierne_tensor_route *out, const lierne_layout *src,
                                         const lierne_layout *dst, int rank, bool adjoint);

#endif
