/* Layouts as the planner sees them: cells and members.
 *
 * A cell is one combination of coordinates of the dims that cut the tensor (SHARD, SHARD_ZIGZAG,
 * SHARD_ROWS, cuts of a packed axis). Cells partition the tensor. The members of a cell are the
 * ranks that differ only in the other dims: replicas of one value, except that along PARTIAL dims
 * each holds one contribution. */
#ifndef LIERNE_LAYOUT_INTERNAL_H
#define LIERNE_LAYOUT_INTERNAL_H

#include "base/base.h"
#include "lierne/layout.h"

/* Whether a placement gives each coordinate a share of one axis, by its size alone. */
static inline bool lierne_cuts_in_shares(lierne_placement_kind kind) {
    return kind == LIERNE_PLACEMENT_SHARD || kind == LIERNE_PLACEMENT_SHARD_ZIGZAG;
}

/* A span of an axis: global indices [start, start + size), at local index local. */
typedef struct lierne_span {
    int64_t start;
    int64_t size;
    int64_t local;
} lierne_span;
typedef LIERNE_VEC(lierne_span) lierne_span_list;

/* What shares leave of an axis. Two are enough: only zigzag cuts in two, and at most one dim cuts
 * an axis that way. */
#define LIERNE_MAX_PIECES 2
typedef struct lierne_pieces {
    int count;
    lierne_span at[LIERNE_MAX_PIECES];
} lierne_pieces;

/* What a cell has of an axis, ascending: its pieces, less what maps of this axis alone give to
 * others. at is pieces or list, so a copy of the struct must not be used. */
typedef struct lierne_spans {
    size_t count;
    const lierne_span *at;
    lierne_pieces pieces;
    lierne_span_list list;
} lierne_spans;

/* A map of one axis, by owner: owner c has the spans [first[c], first[c + 1]) of at, ascending. */
typedef struct lierne_owners {
    size_t *first;
    lierne_span *at;
} lierne_owners;

struct lierne_layout {
    int ndims;
    int offset;
    int nranks;
    int world;
    const int *ranks; /* of the grid, ascending, where they do not follow one another: borrowed;
                         NULL: nranks of them from offset on */
    int sizes[LIERNE_MAX_DIMS];
    int strides[LIERNE_MAX_DIMS];                 /* in ranks */
    lierne_placement placements[LIERNE_MAX_DIMS]; /* counts as running sums, owned; rows owned */
    lierne_owners *owners;                        /* of maps of one axis, per dim, or NULL */
    int ncuts;
    int cuts[LIERNE_MAX_DIMS]; /* dims that cut, in the order in which they do, maps of one axis
                                  last */
    int nmaps;                 /* of one axis */
    int rows_dim;              /* the dim of a map of two axes, or -1 */
    int nat;
    int at_dims[LIERNE_MAX_DIMS]; /* dims of which one coordinate holds the tensor */
    int partials;                 /* product of the sizes of the PARTIAL dims */
    int naxes;
    int64_t shape[LIERNE_MAX_AXES];
    lierne_dtype dtype;
    uint32_t full_axes;
    struct lierne_packed *packed;       /* of the packed axis (packed.h), or NULL */
    const struct lierne_joints *joints; /* the packed axis is a joined one (joints.h), or NULL */
    int joint_side;
    struct lierne_halos *halos; /* dense_halo.h, or NULL */
    bool cores_only;            /* as a source: margins hold nothing */
    /* Of survivors: the place in the grid of each rank of the world, and the rank at each place, -1
     * where there is none; else NULL. */
    int *place_of;
    int *rank_at;
};

/* Sorts the dims that cut by the order in which they do, and checks what cuts that follow one
 * another need of one another. */
lierne_status lierne_layout_nest(lierne_layout *layout);
/* The check alone, of another shape or packing. */
lierne_status lierne_layout_check_nesting(const lierne_layout *layout);

/* Whether an axis is packed: then its cuts follow from the packing, not from its size. */
bool lierne_is_packed(const lierne_layout *layout, int axis);

/* Coordinates that name a cell: -1 on dims that do not cut. */
typedef struct lierne_cell {
    int coords[LIERNE_MAX_DIMS];
} lierne_cell;
typedef LIERNE_VEC(lierne_cell) lierne_cells;
typedef LIERNE_VEC(lierne_box) lierne_boxes;
typedef LIERNE_VEC(int) lierne_ranks;

/* First index of the c-th of n balanced shares of total: the first ones one larger. */
int64_t lierne_share(int64_t total, int64_t n, int64_t c);

/* First index of coordinate c of n of a SHARD, in the total that it cuts; c = n: the total. */
int64_t lierne_share_start(const lierne_placement *p, int64_t total, int n, int c);

/* Whether a rank may have less than a whole axis. */
bool lierne_layout_divides(const lierne_layout *layout, int axis);

/* Whether a placement is a map of one axis. */
bool lierne_is_axis_map(const lierne_placement *p);

/* The place of a rank in the grid, -1 for one that is not in it. */
int lierne_layout_index(const lierne_layout *layout, int rank);
/* The rank at a place of the grid, -1 if it did not survive. */
static inline int lierne_layout_rank(const lierne_layout *layout, int index) {
    return layout->rank_at ? layout->rank_at[index]
           : layout->ranks ? layout->ranks[index]
                           : layout->offset + index;
}

/* The cell that a rank is a member of; false if it holds nothing. */
bool lierne_layout_cell(const lierne_layout *layout, int rank, lierne_cell *cell);

/* The index of a rank's contribution (mixed radix over the PARTIAL dims, fastest first). */
int lierne_layout_partial(const lierne_layout *layout, int rank);

/* What the placements cut of an axis: its size, the outputs of strided windows, or the windows of
 * starts, of which a coordinate has one. */
int64_t lierne_extent(const lierne_layout *layout, int axis);

/* The pieces of an axis before any cut, and what coordinate coord of dim d leaves of them. */
static inline void lierne_axis_whole(const lierne_layout *layout, int axis, lierne_pieces *pieces) {
    int64_t size = lierne_extent(layout, axis);
    pieces->count = size > 0;
    pieces->at[0] = (lierne_span){.start = 0, .size = size};
}
void lierne_axis_cut(const lierne_layout *layout, int d, int coord, lierne_pieces *pieces);
int64_t lierne_pieces_length(const lierne_pieces *pieces);

/* Fills owners[d] from the map of dim d. */
lierne_status lierne_owners_create(lierne_layout *layout, int d);
void lierne_owners_destroy(lierne_layout *layout); /* all of them */
/* Takes what is not owner's out of the spans. */
lierne_status lierne_owners_keep(const lierne_owners *owners, int owner, lierne_spans *spans);

/* What a cell has of every axis, naxes of them, local indices set; a map of two axes takes nothing
 * out of them. spans needs no initial value, and is to be destroyed also on failure. */
lierne_status lierne_spans_create(lierne_spans *spans, const lierne_layout *layout,
                                  const lierne_cell *cell);
void lierne_spans_destroy(lierne_spans *spans, int naxes);

/* Boxes of a cell, disjoint; shape of its members' buffer. boxes or shape may be NULL. */
lierne_status lierne_layout_cell_boxes(const lierne_layout *layout, const lierne_cell *cell,
                                       lierne_boxes *boxes, int64_t *shape);

/* The boxes of the axes without a halo, those with one being [0, 1), and what buffers store of
 * these axes. */
lierne_status lierne_layout_other_axes(const lierne_layout *layout, const lierne_cell *cell,
                                       lierne_boxes *boxes, int64_t *stored);

/* The rows in the buffer of a cell's members that no element is in, of a layout with a packing:
 * adds boxes of those that an output sets to zero, of which start means nothing, and to *kept,
 * which may be NULL, the elements of padding that it does not touch. */
lierne_status lierne_layout_cell_rest(const lierne_layout *layout, const lierne_cell *cell,
                                      lierne_boxes *zero, int64_t *kept);

/* All cells of a layout that overlap a cell of another layout of the same tensor (and some that do
 * not where a map of two axes cuts, the layout is packed or one of them has a halo), in ascending
 * order of coordinates, the first cut slowest. Margins of a layout overlap unless it is cores_only.
 */
lierne_status lierne_layout_overlapping(lierne_cells *cells, const lierne_layout *layout,
                                        const lierne_layout *other, const lierne_cell *cell);

/* The cells of a layout without a halo that have something of what is wanted, which is spans of
 * each axis, ascending (and some that have not where a map of two axes cuts). The same order. */
lierne_status lierne_layout_search(lierne_cells *cells, const lierne_layout *layout,
                                   const lierne_spans *wanted);

/* Ranks that hold a cell, ascending: of one contribution, or of all of them (partial -1). */
lierne_status lierne_layout_members(const lierne_layout *layout, const lierne_cell *cell,
                                    int partial, lierne_ranks *ranks);

/* A box of two cells: global start and size, where it lies in either's buffer, and of which boxes
 * of the lists that were intersected it is a part. */
typedef struct lierne_overlap {
    int64_t start[LIERNE_MAX_AXES];
    int64_t size[LIERNE_MAX_AXES];
    int64_t local_a[LIERNE_MAX_AXES];
    int64_t local_b[LIERNE_MAX_AXES];
    size_t index_a;
    size_t index_b;
} lierne_overlap;
typedef LIERNE_VEC(lierne_overlap) lierne_overlaps;

/* The intersection of two lists of boxes, in an order that depends on the lists only. */
lierne_status lierne_boxes_intersect(int naxes, const lierne_boxes *a, const lierne_boxes *b,
                                     lierne_overlaps *out);
int64_t lierne_overlap_elements(int naxes, const lierne_overlap *overlap);

/* Makes the lists of who survived, of zeros. */
lierne_status lierne_survivors_alloc(lierne_layout *layout);
/* Whether all contributions of a cell have a member. */
lierne_status lierne_layout_survives(bool *survives, const lierne_layout *layout,
                                     const lierne_cell *cell);
/* Adds what a cell of one layout and the cells of another one have in common, by its places in the
 * cell: of the other layout, the cells that survive, or those that do not. */
lierne_status lierne_layout_common(lierne_boxes *common, const lierne_layout *layout,
                                   const lierne_cell *cell, const lierne_layout *other,
                                   bool survives);
/* Joins boxes that are one together, also in their places, and sorts them by start. */
lierne_status lierne_boxes_join(lierne_boxes *boxes, int naxes);

/* Creates a layout that is another one on the dims of a view of a grid, of as many dims. Errors: as
 * lierne_layout_create; UNSUPPORTED (a packing, survivors); INVALID (other dims; counts of a dim
 * whose size differs). The message names the layout `name`. */
lierne_status lierne_layout_regrid(lierne_layout **out, const lierne_layout *layout,
                                   const lierne_grid *grid, const char *view, const char *name);

/* Creates a layout that is another one but for the shape, which has as many axes. Errors: as
 * lierne_layout_create; INVALID (counts or a map of an axis whose size differs). */
lierne_status lierne_layout_reshape(lierne_layout **out, const lierne_layout *layout,
                                    const int64_t *shape);

/* A hash of all that a layout says; that of equal layouts is the same on every rank. */
uint64_t lierne_layout_hash(const lierne_layout *layout);

/* Whether a dtype has no arithmetic: it can be copied, not summed. */
bool lierne_dtype_is_opaque(lierne_dtype dtype);
/* INVALID unless it has elements. rank: of the message, or -1. */
lierne_status lierne_check_dtype(lierne_dtype dtype, int rank);

#endif
