/* Plans of redistributions whose segments change: what does not change is found while planning, and
 * the rest is filled in anew, in memory that planning sized. */
#ifndef LIERNE_VARYING_PLAN_H
#define LIERNE_VARYING_PLAN_H

#include "layout/joints.h"
#include "lierne/redistribute.h"
#include "plan/plan.h"
#include "plan/redistribute/planner.h"
#include "plan/redistribute/tokens.h"

/* What such a plan is made from. */
typedef struct lierne_varying_spec {
    int rank;
    const lierne_layout *layouts[2]; /* source; destination, with the PARTIAL dims of gradients */
    int64_t max_segments;
    int64_t max_rows;
    int max_peers; /* of a plan that is not fixed */
    /* Of a packed bridge. */
    bool joined;
    bool fixed; /* nothing changes, and the capacity is what is given: an ordinary route */
    const lierne_image_run *runs;
    int64_t nruns;
    int64_t max_runs;
    lierne_joints_rules rules;
} lierne_varying_spec;

/* What a part of the other side means: a message of this rank, or a copy. The pieces of the part
 * are multiplied by boxes of the other axes. */
typedef struct lierne_varying_link {
    int peer;    /* this rank: a copy */
    int message; /* among those of the half */
    size_t first_column;
    size_t ncolumns;
    int64_t width; /* elements of a row in these columns */
} lierne_varying_link;

/* Where the next run of a message is written. As a peer has one cell, the blocks of a message are
 * all runs, or none is. */
typedef struct lierne_varying_cursor {
    lierne_block *next;
    int64_t end; /* of the run before, or -1 */
    int64_t elements;
} lierne_varying_cursor;

/* The sends or the receives of a direction. */
typedef struct lierne_varying_half {
    size_t *first; /* links of a part begin at first[part] */
    int *message;  /* of a part whose pieces are one run each, of this message alone; else -1 */
    LIERNE_VEC(lierne_varying_link) links;
    lierne_overlaps columns;
    size_t most;          /* boxes that a piece is multiplied by */
    lierne_block *blocks; /* of all messages; of receives, the targets of copies are apart */
    lierne_varying_cursor *cursors; /* of each message */
    bool same;        /* the messages of the other direction's other half have these blocks */
    int64_t *covered; /* sends of rows that repeat: of each part, the end of what was sent */
    /* Of sums. Of each column, elements of a row in the columns of the part before it; of the most
     * columns, elements of a row. */
    int64_t *before;
    int64_t width;
} lierne_varying_half;

/* A part of a message over few peers: a message of the direct stage, or what passes. */
typedef struct lierne_varying_hop {
    int message;
    bool direct; /* it is all of the message */
    bool passes;
    size_t from;
} lierne_varying_hop;

/* What one rank sends to another, and stops over at this one. */
typedef struct lierne_varying_passing {
    const lierne_message *counted; /* the neighbour's that sends it */
    int from;
    int to;
    int64_t elements;
    int64_t at; /* in scratch */
} lierne_varying_passing;

/* A direction over few peers (route/relay.h): the direct stage, which becomes two. */
typedef struct lierne_varying_relay {
    lierne_stage direct;
    LIERNE_VEC(lierne_varying_passing) passing; /* by sender, then receiver */
    LIERNE_VEC(lierne_varying_hop) hops[4];     /* of first sends and receives, of second ones */
    lierne_block *blocks[4];
    int64_t scratch; /* where what passes begins */
} lierne_varying_relay;

/* Of one direction. */
typedef struct lierne_varying_way {
    lierne_varying_half halves[2]; /* sends, receives */
    lierne_varying_relay *relay;   /* or NULL */
    lierne_messages counted;       /* of a neighbour: how many elements it sends */
    bool lands;                    /* messages arrive in scratch: varying_sums.c */
    lierne_op *copies;             /* then the rows that are set to zero */
    lierne_place *sources;
    lierne_op *sums;
    lierne_place *terms; /* sources of sums */
    lierne_varying engine;
} lierne_varying_way;

/* This rank on one side. */
typedef struct lierne_varying_side {
    bool holds;
    lierne_cell cell;
    lierne_boxes columns;     /* of its cell, of the other axes */
    lierne_span_list own;     /* tokens; only where the axis is a joined one */
    lierne_span_list tokens;  /* what moves: those, or of the joined axis */
    lierne_span_list zeros;   /* rows of an output that are set to zero */
    int64_t kept;             /* rows of padding that are not touched */
    lierne_cut_pieces pieces; /* of tokens */
    bool *merged;             /* of these, too */
    size_t most_spans, most_pieces;
    int64_t shape[LIERNE_MAX_AXES];
    int64_t width; /* elements of a row of the buffer */
} lierne_varying_side;

/* A description: layouts whose packings have space for max_segments. */
typedef struct lierne_varying_state {
    lierne_layout *layouts[2];
    lierne_locator locators[2];
    lierne_joints joints;
} lierne_varying_state;

/* Memory for rows with several tokens, and for sums. */
typedef struct lierne_varying_spare {
    lierne_keyed *keys[2];
    lierne_cut_piece *pieces;
    int64_t *landing; /* of each piece, its place in scratch */
    size_t *active;   /* pieces that have the row at work, by token */
    lierne_block **blocks;
    int64_t *counts; /* of each part of a side (lierne_locator_counts) */
} lierne_varying_spare;

typedef struct lierne_varying_plan {
    int axis;
    int rank;
    int64_t max_segments;
    int64_t max_rows;
    int64_t max_runs;
    bool joined;
    bool fixed;
    lierne_joints_rules rules;
    int partials[2]; /* of a direction: contributions to what it delivers */
    lierne_varying_spare spare;
    lierne_varying_state *states; /* two */
    int current;                  /* of states */
    /* Where messages stop over: the ranks that have a part, and what those in the row and column of
     * this one send, which have states, lists and spare memory in common with it. */
    int *ranks;
    lierne_square square;
    bool relayed;
    LIERNE_VEC(struct lierne_varying_plan *) neighbours;
    int64_t update;
    lierne_varying_side sides[2]; /* source, destination */
    lierne_varying_way ways[2];   /* forward, adjoint */
} lierne_varying_plan;

/* Makes both sides of the parts. Errors: INVALID, UNSUPPORTED, CAPACITY, NO_MEMORY; of runs those
 * in lierne/packed_bridge.h. *out is to be destroyed also on failure, after the routes of the
 * parts. */
lierne_status lierne_varying_plan_create(lierne_varying_plan **out, lierne_plan_parts *parts,
                                         const lierne_context *context,
                                         const lierne_varying_spec *spec);
void lierne_varying_plan_destroy(lierne_varying_plan *v);
/* That of a plan; NULL if its segments never change. */
lierne_varying_plan *lierne_varying_plan_of(lierne_plan *plan);

/* The tables, and memory for what fill writes. */
lierne_status lierne_varying_tables_create(lierne_varying_plan *v, lierne_plan_parts *parts,
                                           lierne_planner *planner);
void lierne_varying_tables_destroy(lierne_varying_plan *v);
/* The most copies and sums of a direction, with those that pack and unpack its messages. */
size_t lierne_varying_most_tasks(const lierne_varying_plan *v, int d);
/* Of what another rank sends: the rest is borrowed. */
void lierne_varying_neighbour_destroy(lierne_varying_plan *n);

/* Memory for the messages over few peers, once the direct ones are known; the stages of a way, from
 * its direct one and what neighbours send. */
lierne_status lierne_varying_relay_create(lierne_varying_plan *v, lierne_plan_parts *parts,
                                          const lierne_planner *planner);
void lierne_varying_relay_fill(lierne_varying_plan *v, int d, lierne_plan_side *side);
void lierne_varying_relay_destroy(lierne_varying_plan *v);
/* The stage that a direction is filled into. */
static inline lierne_stage *lierne_varying_stage(const lierne_varying_plan *v, int d,
                                                 const lierne_plan_side *side) {
    return v->relayed ? &v->ways[d].relay->direct : &side->route->stages.at[0];
}
/* What another rank may send. *out is to be destroyed also on failure. */
lierne_status lierne_varying_neighbour_create(lierne_varying_plan **out, lierne_varying_plan *v,
                                              const lierne_planner *planner, int rank);

/* Writes what the current description says into the sides of a plan, and into the engine's. */
void lierne_varying_fill(lierne_varying_plan *v, lierne_plan_side *const sides[2]);

/* CAPACITY if a buffer of some rank has more than max_rows, or its rows go to more tokens. */
lierne_status lierne_varying_check_rows(const lierne_varying_plan *v, lierne_varying_state *state);

/* Rows of the axis, and a box of the other axes, of a tensor of this shape but with `most` rows. */
lierne_block lierne_varying_box(const lierne_varying_plan *v, const int64_t *shape, int64_t most,
                                int64_t row, int64_t rows, const int64_t *local,
                                const int64_t *size);
/* Rows of whole columns are one run where the axis is the first one. */
bool lierne_varying_is_run(const lierne_varying_plan *v, int side, const int64_t *size);
/* Field by field: compilers clear a whole block by an instruction that is slow to begin. */
static inline void lierne_varying_set_run(lierne_block *block, int64_t offset, int64_t count) {
    block->offset = offset;
    block->ndims = 1;
    block->count[0] = count;
    block->stride[0] = 1;
    for (int a = 1; a < LIERNE_MAX_AXES; a++) {
        block->count[a] = block->stride[a] = 0;
    }
    block->rows = NULL;
}
/* An operation of one source, or none, that writes the output; its block is still to be set. */
static inline void lierne_varying_set_op(lierne_op *op, lierne_place *source) {
    op->to.buffer = LIERNE_BUFFER_OUT;
    op->to.index = 0;
    op->accumulate = false;
    op->reduction = LIERNE_REDUCTION_SUM;
    op->divisor = 0;
    op->from = (lierne_places){.at = source, .count = source ? 1 : 0};
}
/* Whether a run that begins at an offset follows a block. */
static inline bool lierne_varying_follows(int64_t offset, const lierne_block *block) {
    return lierne_block_contiguous(block) && block->offset + block->count[0] == offset;
}
/* A run at the end of a message, without what blocks of several loops need. */
static inline void lierne_varying_add_run(lierne_varying_cursor *c, int64_t offset, int64_t count) {
    if (offset == c->end) {
        c->next[-1].count[0] += count;
    } else {
        lierne_varying_set_run(c->next++, offset, count);
    }
    c->end = offset + count;
    c->elements += count;
}

/* The block of a side's buffer: rows of the axis, and a box of the other axes. */
lierne_block lierne_varying_block(const lierne_varying_plan *v, int side, int64_t row, int64_t rows,
                                  const int64_t *local, const int64_t *size);
/* That of a piece and a box of columns, which has the places of both sides, from side `from` on. */
lierne_block lierne_varying_piece_block(const lierne_varying_plan *v, int side, int from,
                                        const lierne_token_piece *piece,
                                        const lierne_overlap *column);
/* Rows of a side, of a box of columns, joined. */
void lierne_varying_rows(lierne_block *out, const lierne_varying_plan *v, int side, int64_t row,
                         int64_t rows, const lierne_box *box);
/* That block at the end of a message. */
void lierne_varying_add_piece(const lierne_varying_plan *v, int side, int from,
                              lierne_message *message, lierne_varying_cursor *cursor,
                              const lierne_token_piece *piece, const lierne_overlap *column);
void lierne_varying_add_block(lierne_message *message, lierne_block block);
void lierne_varying_add_copy(lierne_varying_plan *v, int d, lierne_ops *copies,
                             const lierne_token_piece *piece, const lierne_overlap *column);

/* Where messages land in scratch. Memory for it; rows that repeat, sorted by row; the receives of a
 * way and what is done with them. */
lierne_status lierne_varying_spare_create(lierne_varying_plan *v);
void lierne_varying_spare_destroy(lierne_varying_plan *v);
/* Elements of max_rows rows: their bytes, of sends, receives and scratch together, fit an int64_t.
 * Errors: NO_MEMORY. */
lierne_status lierne_varying_count(int64_t *elements, const lierne_varying_plan *v,
                                   int64_t row_elements);
lierne_status lierne_varying_sums_create(lierne_varying_plan *v, int d);
void lierne_varying_sort_pieces(lierne_varying_plan *v, int side);
void lierne_varying_land(lierne_varying_plan *v, int d, lierne_stage *stage);

#endif
