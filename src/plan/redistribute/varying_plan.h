/* Plans of redistributions whose segments change: what does not change is found while planning, and
 * the rest is filled in anew, in memory that planning sized. */
#ifndef LIERNE_VARYING_PLAN_H
#define LIERNE_VARYING_PLAN_H

#include "lierne/redistribute.h"
#include "plan/plan.h"
#include "plan/redistribute/planner.h"
#include "plan/redistribute/tokens.h"

/* What a part of the other side means: a message of this rank, or a copy. The pieces of the part
 * are multiplied by boxes of the other axes. */
typedef struct lierne_varying_link {
    int peer;    /* this rank: a copy */
    int message; /* among those of the half */
    size_t first_column;
    size_t ncolumns;
} lierne_varying_link;

/* The sends or the receives of a direction. */
typedef struct lierne_varying_half {
    size_t *first; /* links of a part begin at first[part] */
    LIERNE_VEC(lierne_varying_link) links;
    lierne_overlaps columns;
    size_t most;          /* boxes that a piece is multiplied by */
    lierne_block *blocks; /* of all messages; of receives, the targets of copies are apart */
    size_t *next;         /* of each message */
} lierne_varying_half;

/* Of one direction. */
typedef struct lierne_varying_way {
    lierne_varying_half halves[2]; /* sends, receives */
    lierne_op *copies;             /* then the padding that is set to zero */
    lierne_place *sources;
    lierne_varying engine;
} lierne_varying_way;

/* This rank on one side. */
typedef struct lierne_varying_side {
    bool holds;
    lierne_cell cell;
    lierne_boxes columns; /* of its cell, of the other axes */
    lierne_span_list tokens;
    lierne_span_list padding;
    lierne_cut_pieces pieces; /* of tokens */
    size_t most_spans, most_pieces;
    int64_t shape[LIERNE_MAX_AXES];
} lierne_varying_side;

/* A description: layouts whose packings have space for max_segments. */
typedef struct lierne_varying_state {
    lierne_layout *layouts[2];
    lierne_locator locators[2];
} lierne_varying_state;

typedef struct lierne_varying_plan {
    int axis;
    int rank;
    int64_t max_segments;
    int64_t max_rows;
    lierne_varying_state states[2];
    int current; /* of states */
    int64_t update;
    lierne_varying_side sides[2]; /* source, destination */
    lierne_varying_way ways[2];   /* forward, adjoint */
} lierne_varying_plan;

/* Makes both sides of the parts. Errors: INVALID, UNSUPPORTED, CAPACITY, NO_MEMORY. *out is to be
 * destroyed also on failure, after the routes of the parts. */
lierne_status lierne_varying_plan_create(lierne_varying_plan **out, lierne_plan_parts *parts,
                                         const lierne_context *context,
                                         const lierne_redistribute_spec *spec);
void lierne_varying_plan_destroy(lierne_varying_plan *v);
/* That of a plan; NULL if its segments never change. */
lierne_varying_plan *lierne_varying_plan_of(const lierne_plan *plan);

/* The tables, and memory for what fill writes. */
lierne_status lierne_varying_tables_create(lierne_varying_plan *v, lierne_plan_parts *parts,
                                           lierne_planner *planner);
void lierne_varying_tables_destroy(lierne_varying_plan *v);

/* Writes what the current description says into the sides of a plan, and into the engine's. */
void lierne_varying_fill(lierne_varying_plan *v, lierne_plan_side *const sides[2]);

/* CAPACITY if a buffer of some rank has more than max_rows. */
lierne_status lierne_varying_check_rows(const lierne_varying_plan *v,
                                        const lierne_varying_state *state);

#endif
