/* What a builder hands over to become a plan. */
#ifndef LIERNE_PLAN_INTERNAL_H
#define LIERNE_PLAN_INTERNAL_H

#include "execute/execute.h"
#include "group/group.h"
#include "lierne/plan.h"
#include "route/route.h"

/* Collective calls, as ranks compare them in the field "call". */
enum {
    LIERNE_CALL_BRIDGE = 0,
    LIERNE_CALL_EXECUTE = 1, /* and the direction */
    LIERNE_CALL_ROW_MAP = 3,
    LIERNE_CALL_COALESCED = 4,
    LIERNE_CALL_EXECUTE_COALESCED = 5, /* and the direction */
    LIERNE_CALL_COUNTS = 7,
    LIERNE_CALL_REDUCE = 8, /* and the reduction */
    LIERNE_CALL_STAR_FOREST = 11,
    LIERNE_CALL_STAR_FOREST_NEW,
    LIERNE_CALL_STAR_FOREST_UPDATE,
    LIERNE_CALL_READ,
    LIERNE_CALL_HALO,
    LIERNE_CALL_HALO_NEW,
    LIERNE_CALL_RESTRICT,
    LIERNE_CALL_BRICK,
    LIERNE_CALL_TRANSPOSE,
    LIERNE_CALL_COMPOSE,
    LIERNE_CALL_REDISTRIBUTE,
    LIERNE_CALL_MEGATRON
};

#define LIERNE_MAX_INFLIGHT 64
#define LIERNE_PLAN_GROUPS  2

typedef struct lierne_plan_side {
    lierne_route *route;
    int naxes;
    int64_t in[LIERNE_MAX_AXES];
    int64_t out[LIERNE_MAX_AXES];
    int64_t min_elements;           /* this rank's share of the lower bound */
    LIERNE_VEC(lierne_block) owned; /* blocks of out that must be written */
} lierne_plan_side;

/* What a builder keeps to plan again; starts with how to free it, and how to write it as a JSON
 * object (lierne_plan_serialize), or NULL. */
typedef struct lierne_saved_spec {
    void (*free)(struct lierne_saved_spec *recipe);
    void (*write)(const struct lierne_saved_spec *recipe, lierne_text *text);
} lierne_saved_spec;

/* Everything that is in here belongs to the plan that is made of it, or is freed with it. */
typedef struct lierne_plan_parts {
    lierne_dtype dtype;
    int max_inflight;
    lierne_plan_side side[2];
    lierne_group *groups[LIERNE_PLAN_GROUPS];
    lierne_saved_spec *recipe; /* or NULL */
    const char *algorithm[2];  /* of each direction, for the report; static */
    bool in_place;             /* in and out may be the same */
    bool rows;                 /* ghosts and owned rows: lierne_reduce has a meaning */
    bool accumulate;           /* the adjoint adds to out */
    bool waits;                /* for all ranks while it is made, so that none has a plan alone */
} lierne_plan_parts;

/* Collective. status is the outcome of the local planning; fields are what all ranks must have
 * given alike. Takes the parts, whatever happens. */
lierne_status lierne_plan_new(lierne_plan **out, lierne_context *context, lierne_status status,
                              lierne_plan_parts *parts, const lierne_field *fields, size_t nfields);

/* Frees parts that no plan was made of. */
void lierne_plan_parts_free(lierne_context *context, lierne_plan_parts *parts);

/* Collective. Gives a plan other parts, of the same dtype; without a recipe in them it keeps its
 * own. Takes the parts, whatever happens; on a failure on any rank every rank keeps the old ones.
 */
lierne_status lierne_plan_replace(lierne_plan *plan, lierne_status status, lierne_plan_parts *parts,
                                  const lierne_field *fields, size_t nfields);

/* The recipe of a plan whose builder frees recipes so; NULL for another builder's plan. */
lierne_saved_spec *lierne_plan_saved_spec(const lierne_plan *plan,
                                          void (*free)(lierne_saved_spec *));
lierne_context *lierne_plan_context(const lierne_plan *plan);
/* The decision to make it, which numbers it; the tag of messages of its n-th call. */
int lierne_plan_number(const lierne_plan *plan);
int lierne_plan_tag(int decision, int direction, size_t call);
/* For builders that adapt a plan in place: a direction's side; then its jobs follow. */
lierne_plan_side *lierne_plan_side_of(lierne_plan *plan, lierne_direction direction);
void lierne_plan_refresh(lierne_plan *plan);
/* For an exchange: a direction's route, the rules for its buffers, and how many exchanges hold the
 * plan (by is added). */
lierne_execution_input lierne_plan_execution_input(const lierne_plan *plan,
                                                   lierne_direction direction);
lierne_status lierne_plan_check_buffers(const lierne_plan *plan, int direction, const void *out,
                                        const void *in, const void *stream);
void lierne_plan_hold(lierne_plan *plan, int by);
/* Around a call that executes. compare: where the context checks, a decision of all ranks that each
 * may (mine) and that fields are the same, numbered in *decision; elsewhere mine, and -1. end:
 * waits for the job; where the transport agrees without waiting, first for the decision of all
 * ranks, which may be that nothing will come. */
lierne_status lierne_plan_compare_call(lierne_context *context, lierne_status mine,
                                       const lierne_field *fields, size_t n, int *decision);
lierne_status lierne_plan_end_call(lierne_context *context, int decision, lierne_execution *job);
/* BUSY if a request is in flight or an exchange holds the plan. */
lierne_status lierne_plan_check_idle(const lierne_plan *plan);

#endif
