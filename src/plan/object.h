/* A plan from inside: plan.c makes it, call.c executes it, plan_query.c describes it, compose.c
 * makes other plans of it, plan_serialize.c writes it. */
#ifndef LIERNE_PLAN_OBJECT_H
#define LIERNE_PLAN_OBJECT_H

#include "plan/plan.h"

struct lierne_request {
    lierne_plan *plan;
    lierne_execution *execution;
    size_t number;      /* of the call, per direction */
    int decision;       /* id of the agreement on the call; -1: not compared */
    lierne_spare spare; /* of the execution before the plan's last update */
};

struct lierne_plan {
    lierne_dependent dependent; /* of the context; the first member */
    lierne_context *context;
    int decision;
    int series; /* the first of match ids; -1: none yet */
    lierne_plan_parts parts;
    lierne_group *group;              /* that counts this plan, or NULL */
    int64_t alias[2];                 /* see lierne_plan_get_alias */
    lierne_request *requests[2];      /* max_inflight each */
    lierne_shared_output *outputs[2]; /* of each direction's execution; NULL: the caller's */
    lierne_connection *connection;    /* of the requests, or NULL */
    char transports[2][64];           /* that serve each direction */
    bool needs_stream[2];             /* a call without one is an error */
    size_t started[2];
    lierne_counters *counters; /* with the name */
    int held;                  /* by how many coalesced plans and others */
    int kept;                  /* of them, those that let it change meanwhile */
    bool grows;                /* it may become another plan (lierne_plan_exchange) */
    int64_t coalesced_calls[2];
    bool compares; /* the next call compares the segments, which no message does, with all ranks */
};

/* plan_log.c. What the log says of a new plan. fields: what ranks compared; call: of agreeing and
 * connecting, where the other ranks are waited for. */
void lierne_plan_log(const lierne_plan *plan, const lierne_field *fields, size_t nfields,
                     const lierne_call *call);

/* plan_name.c. Whether the name is one. add_name: a copy of n fields, and the name after them.
 * Errors: INVALID; NO_MEMORY. */
lierne_status lierne_plan_check_name(const lierne_plan_parts *parts, int rank);
lierne_status lierne_plan_add_name(lierne_field **out, const lierne_field *fields, size_t n,
                                   const char *name);

/* "forward", "adjoint": for messages. */
extern const char *const lierne_direction_names[2];

/* Bytes of this rank's buffer. */
size_t lierne_plan_bytes(const lierne_plan *plan, int direction, lierne_buffer buffer);

/* The plan of a dependent, or NULL if it is something else. */
static inline const lierne_plan *lierne_plan_of(const lierne_dependent *dependent) {
    return dependent->is_plan ? (const lierne_plan *)dependent : NULL;
}

/* INVALID without a plan, for no direction, and for the adjoint of a plan that has none. */
lierne_status lierne_plan_check_side(const lierne_plan *plan, lierne_direction direction);

#endif
