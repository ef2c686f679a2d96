/* The plan object: what planners make plans of, and what they may ask of them. */
#ifndef LIERNE_PLAN_INTERNAL_H
#define LIERNE_PLAN_INTERNAL_H

#include "lierne/plan.h"
#include "route/relay.h"
#include "runtime/execute/execute.h"
#include "runtime/group/group.h"

#define LIERNE_MAX_INFLIGHT 64
#define LIERNE_PLAN_GROUPS  2

typedef LIERNE_VEC(lierne_block) lierne_owned_blocks;

typedef struct lierne_plan_side {
    lierne_route *route;
    int naxes;
    int64_t in[LIERNE_MAX_AXES];
    int64_t out[LIERNE_MAX_AXES];
    int64_t min_elements; /* elements that this rank must receive under any schedule */
    bool balanced;        /* see lierne_routing */
    int64_t direct_ns;    /* see lierne_report */
    int64_t balanced_ns;
    lierne_relayed relayed;    /* where peers are limited */
    lierne_owned_blocks owned; /* blocks of out that must be written */
    int64_t untouched; /* elements of out that are padding and not written: see lierne_padding */
    bool partial;      /* writes some elements of out and leaves the others as they are */
    bool shared;       /* the plan owns out */
    const lierne_varying *varying; /* where blocks change: see varying.h; else NULL */
    /* Of sides that vary, appends what `owned` has of others. */
    lierne_status (*find_owned)(const lierne_varying *varying, lierne_owned_blocks *owned);
    LIERNE_VEC(int) sharers; /* ranks that share it, ascending; none: this one alone */
} lierne_plan_side;

/* What a planner keeps to plan again, as the first member of its own struct. free: frees it. write:
 * writes it as a JSON object (lierne_plan_serialize); NULL if the kind cannot be written. reshape:
 * fills the parts of a plan of another shape, with a saved spec of their own; NULL if the kind has
 * no shape. divide: so for other documents; NULL if the kind has none. recreate: collective; plans
 * anew on other grids in another context; NULL if more than grids is needed. */
struct lierne_plan_parts;
typedef struct lierne_documents {
    int axis;
    int64_t n;
    const int64_t *segments; /* n + 1 */
} lierne_documents;
typedef struct lierne_saved_spec {
    void (*free)(struct lierne_saved_spec *spec);
    void (*write)(const struct lierne_saved_spec *spec, lierne_text *text);
    lierne_status (*reshape)(const struct lierne_saved_spec *spec, lierne_context *context,
                             const int64_t *shape, struct lierne_plan_parts *parts);
    lierne_status (*divide)(const struct lierne_saved_spec *spec, lierne_context *context,
                            const lierne_documents *documents, struct lierne_plan_parts *parts);
    lierne_status (*recreate)(const struct lierne_saved_spec *spec, lierne_plan **out,
                              lierne_context *context, const lierne_recreate_spec *grids,
                              const char *name);
} lierne_saved_spec;

/* Rows of a plan: elements of each, and from one to the next in the forward's in and out (the
 * adjoint's out and in); in scratch rows follow one another. */
typedef struct lierne_plan_rows {
    int64_t width;
    int64_t in;
    int64_t out;
} lierne_plan_rows;

/* What a plan is made of. A plan owns all of it. */
typedef struct lierne_plan_parts {
    lierne_dtype dtype;
    int max_inflight;
    lierne_group *group; /* the domain of its messages, as the spec gives it; or NULL */
    lierne_plan_side side[2];
    lierne_group *groups[LIERNE_PLAN_GROUPS];
    lierne_saved_spec *saved_spec; /* or NULL */
    const char *kind;              /* for lierne_plan_get_kind; static storage */
    const char *name;              /* as the spec gives it, or NULL; lierne_plan_new copies it */
    const char *algorithm[2];      /* of each direction, for the report; static storage */
    const char *no_adjoint;        /* why the adjoint's route is empty and may not run; or NULL */
    bool in_place;                 /* in and out may be the same buffer */
    bool rows;                     /* a plan of rows: lierne_plan_reduce is defined */
    lierne_plan_rows row; /* what it moves whole, whatever its elements are; width 0: nothing */
    bool accumulate;      /* the adjoint adds to out */
    bool waits;           /* planning waits for all ranks, so that all have a plan or none */
} lierne_plan_parts;

/* Collective. Makes a plan of parts. status: how planning ended on this rank; fields: what must be
 * the same on every rank. Takes the parts in any case. On any rank's failure every rank gets the
 * same error. */
lierne_status lierne_plan_new(lierne_plan **out, lierne_context *context, lierne_status status,
                              lierne_plan_parts *parts, const lierne_field *fields, size_t nfields);

/* INVALID if the routes sum elements of an opaque dtype. */
lierne_status lierne_plan_parts_check_dtype(const lierne_plan_parts *parts, int rank);

/* plan_name.c. After an error: the thread's message says of which plan it is, where that has a
 * name. Returns status. */
lierne_status lierne_plan_name_error(lierne_status status, const char *name);

/* Frees parts that no plan was made of. */
void lierne_plan_parts_free(lierne_context *context, lierne_plan_parts *parts);

/* Collective. Replaces the parts of a plan by others of the same dtype; without a saved spec among
 * them the plan keeps its own. Takes the parts in any case; on any rank's failure every rank keeps
 * the old ones. */
lierne_status lierne_plan_replace(lierne_plan *plan, lierne_status status, lierne_plan_parts *parts,
                                  const lierne_field *fields, size_t nfields);

/* The steps of it, for plans that are replaced together, under one agreement. make_next: the plan
 * that is to take the place of another one, of the parts; not collective; *next is to be dropped
 * also on failure. connect: after the agreement, collective. take_next: exchanges the two;
 * decision: the number of the agreement, or that of the plan, whose calls then go on. */
lierne_status lierne_plan_make_next(lierne_plan **next, lierne_plan *plan,
                                    lierne_plan_parts *parts);
lierne_status lierne_plan_connect(const lierne_plan *plan, bool waits);
void lierne_plan_take_next(lierne_plan *plan, lierne_plan *next, int decision);
void lierne_plan_drop_next(lierne_plan *next); /* NULL is allowed */

/* Parts of a retyped plan, of what another plan is made of. */
lierne_status lierne_plan_retype_parts(lierne_plan_parts *parts, const lierne_plan *retyped,
                                       const lierne_plan_parts *like);
/* INVALID for a plan that lierne_plan_create_retyped did not make. which: its name. */
lierne_status lierne_plan_check_retyped(const lierne_plan *plan, const char *which);

/* The group of a plan, or NULL; its domain. */
lierne_group *lierne_plan_group(const lierne_plan *plan);
/* The saved spec of a plan if its `free` is this one, which identifies the planner; else NULL. */
lierne_saved_spec *lierne_plan_saved_spec(const lierne_plan *plan,
                                          void (*free)(lierne_saved_spec *));
/* Makes a plan part of another one, which destroys it: the context no longer counts it. */
void lierne_plan_own(lierne_plan *plan);
lierne_context *lierne_plan_context(const lierne_plan *plan);
/* match_ids.c. Takes series of match ids that no plan of any rank has, after the agreement with
 * this number: *series is the first. Collective; waits: as in the parts. Memory for it was reserved
 * before the agreement. Errors: NO_MEMORY, the same on every rank; those that kill the context.
 * drop: what was taken, or -1. match_id: of the messages of the n-th call in a direction. */
lierne_status lierne_plan_reserve_series(lierne_context *context);
lierne_status lierne_plan_take_series(int *series, lierne_context *context, int decision,
                                      int max_inflight, bool waits);
void lierne_plan_drop_series(lierne_context *context, int series);
int lierne_plan_match_id(int series, int max_inflight, int direction, size_t call);
/* For planners that change the routes of a plan: a direction of it, and the collective call that
 * makes its executions follow. It kills the context where a rank has no memory to do so. */
lierne_plan_side *lierne_plan_side_of(lierne_plan *plan, lierne_direction direction);
lierne_status lierne_plan_refresh(lierne_plan *plan);
/* The same of sides that vary: not collective. compared: the ranks know that they have the same
 * stamps; otherwise messages say so, or the next call compares them. */
lierne_status lierne_plan_vary(lierne_plan *plan, bool compared);
/* The same was said by other means since. */
void lierne_plan_set_compared(lierne_plan *plan);
/* Two plans that are part of something (lierne_plan_own) become each other; who holds them stays.
 * No request of them is in flight. */
void lierne_plan_exchange(lierne_plan *plan, lierne_plan *next);
/* Calls that were begun in a direction, also by coalesced plans, which count them. */
int64_t lierne_plan_calls(const lierne_plan *plan, lierne_direction direction);
void lierne_plan_count_call(lierne_plan *plan, lierne_direction direction);
/* Whether the next call has to compare the segments, because no message does. */
bool lierne_plan_compares(const lierne_plan *plan);
/* Says that others may exchange the plan: no coalesced plans may use its routes. */
void lierne_plan_set_grows(lierne_plan *plan);
/* Waits until the streams have passed all calls of a plan. Errors: those of
 * lierne_execution_drain. NULL is allowed. */
lierne_status lierne_plan_drain(const lierne_plan *plan);
/* INVALID for a plan that owns an output, or whose segments change: its route fits no other buffer
 * or call. which: its name. */
lierne_status lierne_plan_check_not_shared(const lierne_plan *plan, const char *which);
/* INVALID for a plan that owns an output, or that may become another one. */
lierne_status lierne_plan_check_coalescible(const lierne_plan *plan, const char *which);
/* Whether a request is. */
bool lierne_plan_in_flight(const lierne_plan *plan);
/* BUSY if a request is in flight or coalesced plans hold the plan. */
lierne_status lierne_plan_check_idle(const lierne_plan *plan);
/* The same before a plan changes; BUSY also if a call of it was captured into a graph. */
lierne_status lierne_plan_check_changeable(const lierne_plan *plan);
/* The same where one lierne_coalesced may hold the plan, which changes with it. */
lierne_status lierne_plan_check_changeable_held(const lierne_plan *plan);

/* Collective over the context. Makes a plan that does the same in the domain of a group, with one
 * request per direction, as part of something that destroys it (lierne_plan_own). number: that of
 * the plan, the same on every rank. plan: NULL on a rank that has no messages with the others. */
lierne_status lierne_plan_copy(lierne_plan **out, lierne_context *context, const lierne_plan *plan,
                               lierne_group *group, int number);

/* For coalesced plans: a direction's route, the rules for its buffers, and how many of them hold
 * the plan, changed by `by`. */
const lierne_route *lierne_plan_route(const lierne_plan *plan, lierne_direction direction);
lierne_status lierne_plan_check_buffers(const lierne_plan *plan, int direction, const void *out,
                                        const void *in, const void *stream);
void lierne_plan_hold(lierne_plan *plan, int by);
/* How many of them let it change, which they see in its stamps. */
void lierne_plan_keep(lierne_plan *plan, int by);
/* Begins a call that the ranks have compared before: nothing is compared where the context checks.
 */
lierne_status lierne_plan_begin_agreed(lierne_request **request, lierne_plan *plan,
                                       lierne_direction direction, void *out, const void *in,
                                       void *stream);
/* Before and after a call that executes. compare_call: where the context checks, the ranks agree
 * that each of them may call (mine), what, of which plan, and whether a graph captures it; *id is
 * that of the agreement.
 * Elsewhere the result is mine, and *id is -1. end_call: waits for the execution; where an
 * agreement does not wait for all ranks, first for the agreement, which may fail: then no data will
 * arrive. */
typedef struct lierne_compared_call {
    const char *name;
    int plan; /* its number */
    bool captured;
    const int64_t *stamp; /* NULL, or of segments that are compared also where nothing else is */
    int64_t calls;        /* that were begun before */
} lierne_compared_call;
lierne_status lierne_plan_compare_call(lierne_context *context, lierne_status mine,
                                       const lierne_compared_call *compared, int *id);
lierne_status lierne_plan_end_call(lierne_context *context, int id, lierne_execution *execution);

/* For planners that update coalesced plans. The plan i, NULL beyond the last one, and the context.
 */
lierne_plan *lierne_coalesced_plan(const lierne_coalesced *coalesced, int i);
lierne_context *lierne_coalesced_context(const lierne_coalesced *coalesced);
/* INVALID where another plan than this one is not retyped; BUSY where a call is in flight, or was
 * captured into a graph, or other coalesced plans hold one of them. */
lierne_status lierne_coalesced_check_changeable(const lierne_coalesced *coalesced,
                                                const lierne_plan *plan);
/* As lierne_plan_replace for one of the plans, which the others, retyped, follow: one agreement for
 * all. */
lierne_status lierne_coalesced_replace(lierne_coalesced *coalesced, const lierne_plan *plan,
                                       lierne_status status, lierne_plan_parts *parts,
                                       const lierne_field *fields, size_t nfields);

#endif
