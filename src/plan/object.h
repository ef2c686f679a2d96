/* A plan from inside: plan.c makes and executes it, query.c describes it, compose.c makes other
 * plans of it, serialize.c writes it. */
#ifndef LIERNE_PLAN_OBJECT_H
#define LIERNE_PLAN_OBJECT_H

#include "plan/plan.h"

struct lierne_request {
    lierne_plan *plan;
    lierne_execution *execution;
    size_t number; /* of the call, per direction */
    int decision;  /* id of the agreement on the call; -1: not compared */
};

struct lierne_plan {
    lierne_context *context;
    int decision;
    lierne_plan_parts parts;
    int64_t alias[2];            /* see lierne_plan_get_alias */
    lierne_request *requests[2]; /* max_inflight each */
    char transports[2][64];      /* that serve each direction */
    size_t started[2];
    int held; /* by how many coalesced plans */
};

/* func: the public function that the message names. */
lierne_status lierne_plan_check_direction(const lierne_plan *plan, lierne_direction direction,
                                          const char *func);

#endif
