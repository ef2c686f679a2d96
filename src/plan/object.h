/* A plan from inside: what plan.c makes and executes, query.c tells about, derive.c makes others
 * of. */
#ifndef LIERNE_PLAN_OBJECT_H
#define LIERNE_PLAN_OBJECT_H

#include "plan/plan.h"

struct lierne_request {
    lierne_plan *plan;
    lierne_execution *job;
    size_t number; /* of the call, per direction */
    int decision;  /* that the call was the same on all ranks; -1: not compared */
};

struct lierne_plan {
    lierne_context *context;
    int decision;
    lierne_plan_parts parts;
    int64_t view[2];
    lierne_request *requests[2]; /* max_inflight each */
    size_t started[2];
    int held; /* by exchanges */
};

lierne_status lierne_plan_check_direction(const lierne_plan *plan, lierne_direction direction);

#endif
