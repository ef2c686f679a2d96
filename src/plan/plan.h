/* What a builder hands over to become a plan. */
#ifndef LIERNE_PLAN_INTERNAL_H
#define LIERNE_PLAN_INTERNAL_H

#include "group/group.h"
#include "lierne/plan.h"
#include "route/route.h"

#define LIERNE_MAX_INFLIGHT 64
#define LIERNE_PLAN_GROUPS 2

typedef struct lierne_plan_side {
    lierne_route *route;
    int naxes;
    int64_t in[LIERNE_MAX_AXES];
    int64_t out[LIERNE_MAX_AXES];
    int64_t min_elements;              /* this rank's share of the lower bound */
    LIERNE_VEC(lierne_block) owned;    /* blocks of out that must be written */
} lierne_plan_side;

/* Everything that is in here belongs to the plan that is made of it, or is freed with it. */
typedef struct lierne_plan_parts {
    lierne_dtype dtype;
    int max_inflight;
    lierne_plan_side side[2];
    lierne_group *groups[LIERNE_PLAN_GROUPS];
} lierne_plan_parts;

/* Collective. status is the outcome of the local planning; fields are what all ranks must have
 * given alike. Takes the parts, whatever happens. */
lierne_status lierne_plan_new(lierne_plan **out, lierne_context *context, lierne_status status,
                              lierne_plan_parts *parts, const lierne_field *fields, size_t nfields);

#endif
