/* What the planning of one rank's route works on. */
#ifndef LIERNE_PLANNER_H
#define LIERNE_PLANNER_H

#include "layout/dense_halo.h"
#include "lierne/plan.h"
#include "plan/fields.h"
#include "plan/plan.h"
#include "plan/redistribute/frame.h"
#include "route/route.h"
#include "runtime/control/members.h"

typedef struct lierne_planner {
    lierne_route *route;
    const lierne_layout *from;
    const lierne_layout *to;
    const lierne_layout *margins; /* `from` with its margins, whose gradients are added; or NULL */
    const int *nodes;             /* of each member, or NULL */
    lierne_members members;
    int rank;
    lierne_routing routing;
    bool balanced; /* the route is one of balanced.c */
    bool shared;   /* ranks of a node that need the same write one output, each a part of it */
    bool alone;    /* every receiver is a reducer, of all that it needs */
    const struct lierne_tokens *tokens; /* of the cell whose overlaps are planned, or NULL */
    const lierne_frame *frame;          /* of two tensors that are not one; or NULL */
    const lierne_needs *needs; /* of the destination's cell at work, if it has a halo; or NULL */
    lierne_plan_side *side;    /* where shared is set, gets what this rank shares and writes */
    lierne_links links;
    int64_t direct_ns; /* what AUTO compared; 0: nothing */
    int64_t balanced_ns;
    int64_t in_shape[LIERNE_MAX_AXES];
    int64_t out_shape[LIERNE_MAX_AXES];
    int64_t min_elements;
    size_t core_sends; /* of the first stage; those after them send what margins give */
} lierne_planner;

/* How many axes have the boxes of what two cells have in common. */
static inline int lierne_planner_axes(const lierne_planner *p) {
    return p->frame ? p->frame->naxes : p->from->naxes;
}

/* A cell of the source and one of the destination with elements in common. */
typedef struct lierne_cell_overlap {
    lierne_cell from;
    lierne_cell to;
    lierne_overlaps boxes;
    lierne_overlaps shown; /* of a destination with a halo: boxes cut by how often they are shown */
    lierne_needs needs;    /* where the destination has a halo */
    int64_t elements;
    lierne_ranks receivers; /* ascending */
    lierne_ranks reducers;  /* ascending; receivers or some of them */
    bool divided;           /* reducer k sums part k and sends it on */
    bool none_holds;        /* no receiver holds a contribution */
    bool all_hold;          /* every receiver holds one */
    int seed;               /* starts the rotation over replicas */
    lierne_ranks senders;   /* of one contribution, per reducer */
    lierne_overlaps part;   /* of the reducer at work */
    int64_t part_elements;
} lierne_cell_overlap;

/* Finds the boxes of an overlap whose cells are set. To be cleared also on failure. */
lierne_status lierne_cell_overlap_fill(const lierne_planner *p, lierne_cell_overlap *x);
void lierne_cell_overlap_clear(lierne_cell_overlap *x);
/* Sets the part at work to elements [start, start + size) of the overlap, counted over its boxes,
 * each with the last axis fastest. */
lierne_status lierne_cell_overlap_take(const lierne_planner *p, lierne_cell_overlap *x,
                                       int64_t start, int64_t size);

/* Whether a rank holds something of a cell; whether two cells are one. */
bool lierne_in_cell(const lierne_layout *layout, int rank, const lierne_cell *cell);
bool lierne_same_cell(const lierne_layout *layout, const lierne_cell *a, const lierne_cell *b);
/* The node of a rank; only where nodes are known. */
int lierne_planner_node(const lierne_planner *p, int rank);
/* Whether an ascending list has a rank. */
bool lierne_ranks_have(const int *ranks, size_t n, int rank);

/* Who of some holders sends to each of the overlap's reducers if one of them is to send all of it:
 * fills x->senders. choose comes first: it fills the receivers and the reducers. */
lierne_status lierne_cell_overlap_choose(const lierne_planner *p, lierne_cell_overlap *x);
lierne_status lierne_cell_overlap_assign(const lierne_planner *p, lierne_cell_overlap *x,
                                         int partial);
/* Of a shared output: how many receivers write it on the node of receiver k, and which of them k
 * is. */
void lierne_cell_overlap_share(const lierne_planner *p, const lierne_cell_overlap *x, size_t k,
                               int64_t *n, int64_t *i);
/* This rank's share of what all ranks must receive at least of the overlap. */
int64_t lierne_cell_overlap_bound(const lierne_planner *p, const lierne_cell_overlap *x);

/* The padding rows of the rank's output that its packing sets to zero, and what a halo sets to
 * zero, in the first stage, but margins of a gradient in the last one, since in place they are the
 * input; own: its cell of the destination, or NULL. Of a shared output one rank of a node does it.
 */
lierne_status lierne_add_padding(lierne_planner *p, const lierne_cell *own);

/* Where a box of two cells lies in the rank's in or out; of several places in out: the primary. */
lierne_place lierne_place_box(const lierne_planner *p, const lierne_overlap *o,
                              lierne_buffer buffer);
/* A patch of a buffer. */
lierne_place lierne_place_patch(const lierne_layout *layout, const lierne_patch *patch,
                                lierne_buffer buffer);
/* The other places of what a rank puts together: of what it holds itself, copies of the input;
 * otherwise copies of the primary place, after the sums of a stage. */
lierne_status lierne_add_images(const lierne_planner *p, const lierne_overlaps *boxes,
                                lierne_stage *stage, bool own);
/* The messages of the part at work, of the rank's in or out; at_peer: the buffer at the other end,
 * where contributions land whole. */
lierne_status lierne_add_part(const lierne_planner *p, const lierne_cell_overlap *x,
                              lierne_messages *messages, int peer, lierne_buffer buffer,
                              lierne_buffer at_peer);

#endif
