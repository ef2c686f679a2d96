/* Layouts as the planner sees them: cells and members.
 *
 * A cell is one combination of coordinates of the dims that cut the tensor (SHARD, SHARD_ZIGZAG,
 * SHARD_ROWS). Cells partition the tensor. The members of a cell are the ranks that differ only in
 * the other dims: replicas of one value, except that along PARTIAL dims they hold summands. */
#ifndef LIERNE_LAYOUT_INTERNAL_H
#define LIERNE_LAYOUT_INTERNAL_H

#include "base/base.h"
#include "lierne/layout.h"

/* A piece of an axis: global indices [start, start + size), at local index local. */
typedef struct lierne_span {
    int64_t start;
    int64_t size;
    int64_t local;
} lierne_span;

/* What a cell has of an axis. Two are enough: only zigzag cuts in two, and at most one dim cuts an
 * axis that way. */
#define LIERNE_MAX_SPANS 2
typedef struct lierne_spans {
    int count;
    lierne_span at[LIERNE_MAX_SPANS];
} lierne_spans;

struct lierne_layout {
    int ndims;
    int offset;
    int nranks;
    int world;
    int sizes[LIERNE_MAX_DIMS];
    int strides[LIERNE_MAX_DIMS];                 /* in ranks */
    lierne_placement placements[LIERNE_MAX_DIMS]; /* counts as running sums, owned; rows owned */
    int ncuts;
    int cuts[LIERNE_MAX_DIMS]; /* dims that cut, slowest first */
    int rows_dim;              /* the dim of SHARD_ROWS, or -1 */
    int partials;              /* product of the sizes of the PARTIAL dims */
    int naxes;
    int64_t shape[LIERNE_MAX_AXES];
    lierne_dtype dtype;
    uint32_t full_axes;
};

/* Coordinates that name a cell: -1 on dims that do not cut. */
typedef struct lierne_cell {
    int coords[LIERNE_MAX_DIMS];
} lierne_cell;
typedef LIERNE_VEC(lierne_cell) lierne_cells;
typedef LIERNE_VEC(lierne_box) lierne_boxes;
typedef LIERNE_VEC(int) lierne_ranks;

/* First index of the c-th of n balanced shares of total: the first ones one larger. */
int64_t lierne_share(int64_t total, int64_t n, int64_t c);

/* The cell that a rank is a member of; false if it holds nothing. */
bool lierne_layout_cell(const lierne_layout *layout, int rank, lierne_cell *cell);

/* The index of a rank among the summands (mixed radix over the PARTIAL dims, fastest first). */
int lierne_layout_partial(const lierne_layout *layout, int rank);

/* Spans of a cell on every axis, local indices set; rows are not cut out of them. */
void lierne_layout_spans(const lierne_layout *layout, const lierne_cell *cell, lierne_spans *spans);

/* Boxes of a cell, disjoint; shape of its members' buffer. boxes or shape may be NULL. */
lierne_status lierne_layout_cell_boxes(const lierne_layout *layout, const lierne_cell *cell,
                                       lierne_boxes *boxes, int64_t *shape);

/* All cells that meet these spans (rows not considered), in ascending order of coordinates. */
lierne_status lierne_layout_cells(const lierne_layout *layout, const lierne_spans *spans,
                                  lierne_cells *cells);

/* Ranks that hold a cell, ascending: of one summand, or of all of them (partial -1). */
lierne_status lierne_layout_members(const lierne_layout *layout, const lierne_cell *cell,
                                    int partial, lierne_ranks *ranks);

/* A box of two cells: global start and size, and where it lies in either's buffer. */
typedef struct lierne_overlap {
    int64_t start[LIERNE_MAX_AXES];
    int64_t size[LIERNE_MAX_AXES];
    int64_t local_a[LIERNE_MAX_AXES];
    int64_t local_b[LIERNE_MAX_AXES];
} lierne_overlap;
typedef LIERNE_VEC(lierne_overlap) lierne_overlaps;

/* The intersection of two lists of boxes, in an order that depends on the lists only. */
lierne_status lierne_boxes_intersect(int naxes, const lierne_boxes *a, const lierne_boxes *b,
                                     lierne_overlaps *out);
int64_t lierne_overlap_elements(int naxes, const lierne_overlap *overlap);

#endif
