/* A layout says where a tensor lives on a grid: for each dim of the grid one placement, in the
 * words of PyTorch's DTensor (Shard, Replicate, Partial), with more: SHARD_ZIGZAG, the
 * load-balanced context-parallel split; SHARD_ROWS, an owner for every index from a map; AT, for a
 * tensor that only one coordinate holds, such as a pipeline stage; and cuts of packed sequences
 * (lierne/packing.h): SHARD_SEGMENTS, SEGMENT_ZIGZAG and SEGMENT_SHARD.
 *
 * A tensor has a global shape of 1 to LIERNE_MAX_AXES axes, row-major. A rank's local tensor has
 * as many axes, each cut to what the rank holds, row-major without gaps.
 *
 * From DTensor to a layout:
 *
 *   A mesh lists the slowest dim first, a grid the fastest: reverse the placements.
 *
 *   Shard(a) is SHARD with share LIERNE_SHARE_RULE_CHUNK. In both, dims that shard the same axis
 * cut it one after the other, the slowest dim first.
 *
 *   _StridedShard(a, split_factor) on a dim, with Shard(a) on a faster dim of split_factor ranks
 * (or on several whose sizes multiply to it), are the same cuts in the other order: give the
 * strided dim the higher cut_order. If the sizes do not divide, or there is no such faster dim, the
 *   strided shard may be no nested cut: state it by index, with SHARD_ROWS and axis2 = -1 on every
 *   dim that shards the axis.
 *
 * No function here communicates or is collective. A getter of one rank takes time and memory in
 * proportion to what that rank holds; with a map of two axes, to what the other dims leave of the
 * map. A layout copies all its arguments: the grid, its view, shape, placements, counts and rows
 * may be freed or changed after the call, and views added to the grid later do not change the
 * layout. Functions that take a const layout may run at once in many threads. */
#ifndef LIERNE_LAYOUT_H
#define LIERNE_LAYOUT_H

#include "lierne/dense_halo.h"
#include "lierne/grid.h"
#include "lierne/packing.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LIERNE_MAX_AXES 4

/* Element types. The numbers are part of the ABI. NONE is what a spec of zeros has: no function
 * that takes elements accepts it (INVALID). BITS8 to BITS128 are opaque elements of 1 to 16 bytes,
 * for types without arithmetic in lierne: bool, fp8, int16, complex. They are copied bit for bit.
 * Creating a plan that sums them in either direction is INVALID; all-gathers and broadcasts of
 * lierne/collective.h have no adjoint instead. PARTIAL gradients, and rows with several ghosts, are
 * summed; a replicated value whose gradients are equal is copied in both directions. */
typedef enum lierne_dtype {
    LIERNE_DTYPE_NONE = 0,
    LIERNE_DTYPE_F64 = 1,
    LIERNE_DTYPE_F32 = 2,
    LIERNE_DTYPE_BF16 = 3,
    LIERNE_DTYPE_F16 = 4,
    LIERNE_DTYPE_I64 = 5,
    LIERNE_DTYPE_I32 = 6,
    LIERNE_DTYPE_I8 = 7,
    LIERNE_DTYPE_U8 = 8,
    LIERNE_DTYPE_BITS8 = 9,
    LIERNE_DTYPE_BITS16 = 10,
    LIERNE_DTYPE_BITS32 = 11,
    LIERNE_DTYPE_BITS64 = 12,
    LIERNE_DTYPE_BITS128 = 13
} lierne_dtype;

/* Bytes of an element, 0 for NONE and for a number that is no dtype; name ("f64"), NULL for those.
 */
LIERNE_API size_t lierne_dtype_size(lierne_dtype dtype);
LIERNE_API const char *lierne_dtype_name(lierne_dtype dtype);
/* The dtype of a name. Errors: INVALID (NULL; no such name, the message lists the names). */
LIERNE_API lierne_status lierne_dtype_parse(lierne_dtype *out, const char *name);

typedef enum lierne_placement_kind {
    LIERNE_PLACEMENT_REPLICATE = 0, /* every coordinate holds the same */
    LIERNE_PLACEMENT_SHARD = 1,     /* the axis is cut into one contiguous share per coordinate */
    LIERNE_PLACEMENT_SHARD_ZIGZAG =
        2, /* 2n chunks; coordinate c holds chunks c and 2n-1-c, in that order */
    LIERNE_PLACEMENT_SHARD_ROWS = 3, /* a map names the owner of every index: see rows below */
    LIERNE_PLACEMENT_PARTIAL =
        4,                   /* every coordinate holds a contribution; the value is their sum */
    LIERNE_PLACEMENT_AT = 5, /* only coordinate `at` holds it */
    LIERNE_PLACEMENT_SHARD_SEGMENTS = 6, /* whole segments, by the packing's owner; one dim */
    LIERNE_PLACEMENT_SEGMENT_ZIGZAG =
        7, /* of every padded segment, coordinate c of n has chunks c and 2n-1-c of 2n equal ones */
    LIERNE_PLACEMENT_SEGMENT_SHARD =
        8 /* of every padded segment one contiguous share, by `share` */
} lierne_placement_kind;

/* How SHARD divides `size` indices among the n coordinates of its dim. */
typedef enum lierne_share_rule {
    /* Sizes differ by one at most, the larger first: 5 among 4 is 2 1 1 1. As torch.tensor_split
     * and numpy.array_split divide. */
    LIERNE_SHARE_RULE_BALANCED = 0,
    /* ceil(size / n) each, the last ones shorter or empty: 5 among 4 is 2 2 1 0. As torch.chunk and
     * DTensor divide. */
    LIERNE_SHARE_RULE_CHUNK = 1
} lierne_share_rule;

/* One placement. A field is read only for the kinds that its comment names. share and cut_order may
 * always be 0: balanced shares, and the slowest dim cuts an axis first. */
typedef struct lierne_placement {
    lierne_placement_kind kind;
    /* SHARD, SHARD_ZIGZAG, SHARD_ROWS: the axis. SHARD_SEGMENTS, SEGMENT_ZIGZAG, SEGMENT_SHARD: the
     * packed axis. */
    int axis;
    /* AT: the coordinate. */
    int at;
    /* SHARD_ROWS: the inner axis of a map of two axes; -1: the map is of `axis` alone. Any number
     * of dims may have a map of one axis, also of the same one; only one dim a map of two. */
    int axis2;
    /* SHARD: the size of each coordinate's share, at least 0, adding up to the axis; only for the
     * dim that cuts the axis first. NULL: `share` decides. */
    const int64_t *counts;
    /* SHARD_ROWS: the owner, a coordinate of this dim, of index i of the axis at rows[i]; of index
     * (i, j) of (axis, axis2) at rows[i * shape[axis2] + j]. Indices are global, and the map is the
     * same on every rank. */
    const int32_t *rows;
    /* SHARD without counts, SEGMENT_SHARD: the sizes of the shares. */
    lierne_share_rule share;
    /* SHARD, SHARD_ZIGZAG: if several dims cut one axis, the dim with the lower cut_order cuts
     * first (if equal, the slower dim), and each next dim cuts the parts that the one before made.
     * 0 to LIERNE_MAX_DIMS - 1. */
    int cut_order;
} lierne_placement;

/* How a rank's buffer stores an axis that is cut. COMPACT: the rank's own part only, in ascending
 * order. FULL (see full_axes): the whole axis, of which only the own part is read or written.
 *
 * SHARD_ROWS combines with other dims: an index belongs to the rank that all maps and all cuts of
 * its axis name. A map of two axes is stored as axis2 is. COMPACT: the two axes become one axis of
 * own rows, in the order of (axis, axis2); the bit of `axis` in full_axes is not read. FULL: all
 * rows that the other dims leave of the two axes; a SHARD of axis2 stays compact, and so does one
 * of `axis` unless its own bit in full_axes is set. */
typedef enum lierne_storage { LIERNE_STORAGE_FULL = 0, LIERNE_STORAGE_COMPACT = 1 } lierne_storage;

/* Cuts of a packed axis. SHARD_SEGMENTS comes first, then the one segment cut (SEGMENT_ZIGZAG or
 * SEGMENT_SHARD), if any. SHARD and SHARD_ZIGZAG of the axis follow by cut_order, each of the rows
 * that are left, padding included, in the order of the buffer: so SHARD over cp without a segment
 * cut is one contiguous share of the whole padded sequence, and SHARD over tp behind a
 * SEGMENT_ZIGZAG over cp is a contiguous part of the cp rank's rows (sequence parallelism). A cut
 * takes the same tokens whether buffers have padding rows or not.
 *
 * Buffers of a packed axis. COMPACT: the rows that the rank has. FULL: all rows that SHARD_SEGMENTS
 * leaves to the rank, of which only its own are read or written. */

typedef struct lierne_layout lierne_layout;

/* A layout to create. Set size to sizeof(lierne_layout_spec) and the rest to zero first. */
typedef struct lierne_layout_spec {
    size_t size;
    const lierne_grid *grid;
    const char *view;     /* the placements are those of its dims; NULL: "base" */
    int naxes;            /* 1 to LIERNE_MAX_AXES */
    const int64_t *shape; /* global shape, naxes sizes, each at least 0 */
    lierne_dtype dtype;
    const lierne_placement *placements; /* one per dim of the view, in the order of the dims; may be
                                           NULL if the view has no dims */
    uint32_t full_axes;                 /* bit a set: axis a is stored FULL, else COMPACT */
    /* A packed axis (lierne/packing.h): packing is not NULL, packed_axis is the axis, and
     * shape[packed_axis] the number of tokens. segments and packing: both, or neither. */
    int packed_axis;
    const lierne_segments *segments;
    const lierne_packing *packing;
    /* Halos (lierne/dense_halo.h), at most one per axis, in any order. */
    int nhalos;
    const lierne_dense_halo *halos; /* may be NULL if nhalos is 0 */
    lierne_stencil stencil;
    lierne_halo_storage halo_storage;
} lierne_layout_spec;

/* Creates a layout. *out is NULL on failure; free it with lierne_layout_destroy. Errors: INVALID
 * (NULL; a size; naxes, an axis, a coordinate, a dtype, a kind, a share rule or a cut_order out of
 * range; counts that do not add up to the axis, that come with a share rule or that follow another
 * cut of the axis, also over a dim of size 1; two zigzags of an axis, or counts before one; bits of
 * full_axes beyond the axes; rows NULL, an owner out of range, two maps of two axes, one whose axes
 * are the same; compact rows of two axes that are not neighbours), INDIVISIBLE (zigzag over n > 1:
 * the axis by 2n and by the dims that cut it before), UNKNOWN_VIEW, OVERFLOW (more than 2^60 bytes,
 * empty axes counted as 1), NO_MEMORY.
 *
 * Of a packing, in this order: INVALID (a segment cut or SHARD_SEGMENTS of an axis without packing;
 * one of segments and packing without the other; packed_axis; boundaries that do not begin with 0
 * or descend), OVERFLOW (more than 2^60 tokens, or bytes of padded rows), INVALID (boundaries that
 * do not end with the size of the axis; align below 0, or given with padded boundaries; padded
 * boundaries that do not begin with 0 or descend; a lead below 0; a segment without space for lead
 * and tokens; order that is no permutation; store, padding or row_order out of range; counts or a
 * map of the axis; two dims SHARD_SEGMENTS, two segment cuts; owner missing, out of range, or given
 * without SHARD_SEGMENTS; SEQUENCE_MAJOR with UNPADDED or with unequal padded lengths), INDIVISIBLE
 * (a padded length by 2n of a SEGMENT_ZIGZAG over n > 1; the rows that are left to a SHARD_ZIGZAG
 * by 2n).
 *
 * Of halos: INVALID (nhalos below 0 or above naxes, or above 0 with halos NULL; an axis out of
 * range, with two halos, or stored FULL; a boundary, stencil or halo_storage out of range; lo + hi
 * below 0; lo or hi below 0 with boundary NONE, a star, margin storage or documents; stride or
 * outputs below 0, outputs without a stride; a stride with a star, margin storage or documents;
 * strided windows that leave the axis with boundary NONE, or that need an element of an axis
 * without any; nsegments below 0, above 0 with segments NULL, or 0 with segments and elements;
 * segments that do not begin with 0, descend, or do not end with the size of the axis; counts that
 * do not add up to the outputs),
 * OVERFLOW (lo, hi or the outputs times the stride beyond 2^60; a buffer that may have more than
 * 2^60 bytes), UNSUPPORTED (halos and a packing; a map of two axes that includes the axis). */
LIERNE_API lierne_status lierne_layout_create(lierne_layout **out, const lierne_layout_spec *spec);
/* Frees a layout. NULL is allowed. */
LIERNE_API void lierne_layout_destroy(lierne_layout *layout);

/* Shape of a rank's buffer: naxes sizes, written into shape (compact rows of two axes: the outer of
 * the two in memory has the number of own rows, the other is 1; a packed axis: its rows, padding
 * rows included where the store is PADDED; an axis with a halo: all windows of the rank; margin
 * storage: [total, 1, ...]). A rank that holds nothing (outside the grid, or not AT its coordinate)
 * has zeros. Errors: INVALID (NULL), NO_MEMORY. */
LIERNE_API lierne_status lierne_layout_get_shape(int64_t *shape, const lierne_layout *layout,
                                                 int rank);

/* Elements of a rank's buffer (the product of its shape) and, of these, elements that it owns
 * (fewer where the storage is full; padding is nobody's, and margins are another rank's or images).
 * Either output may be NULL. Errors: INVALID (layout NULL), NO_MEMORY. */
LIERNE_API lierne_status lierne_layout_get_elements(int64_t *stored, int64_t *owned,
                                                    const lierne_layout *layout, int rank);

/* One box of what a rank owns: global indices [start, start + size) on each axis, at these local
 * indices of the rank's buffer. */
typedef struct lierne_box {
    int64_t start[LIERNE_MAX_AXES];
    int64_t size[LIERNE_MAX_AXES];
    int64_t local[LIERNE_MAX_AXES];
} lierne_box;

/* The boxes that make up what a rank owns, disjoint, in ascending order of start, the first axis
 * slowest (with a map of two axes: the other axes slowest, then its axis, then axis2). On a packed
 * axis start and size count tokens, and rows that are in no box are padding. With halos, boxes are
 * the cores at their place in the buffer; margin storage, and windows without cores, have none.
 * Writes their
 * number into count and, unless boxes is NULL, the first `capacity` of them into boxes, which is
 * the caller's. Errors: INVALID (layout or count NULL), NO_MEMORY. */
LIERNE_API lierne_status lierne_layout_get_boxes(lierne_box *boxes, size_t capacity, size_t *count,
                                                 const lierne_layout *layout, int rank);

/* After deaths (lierne_context_shrink, lierne/node.h). former has an entry for each rank of the
 * world that is left: the rank that it had in the layout's world, -1 for a rank that was not there.
 * Those that are not -1 ascend. lierne_context_get_former_rank has them.
 *
 * The layout of the same tensor, which rank r of nranks holds as rank former[r] did; what no rank
 * holds is lost. It is a source for lierne_plan_create_redistribute, which moves what survives and
 * leaves what is lost in outputs as it is (lierne/redistribute.h, Survivors). It may be made from
 * such a layout again, after another death. *out is NULL on failure; free it with
 * lierne_layout_destroy. It keeps nothing of its arguments. Pure. Errors: INVALID (NULL, nranks not
 * in 1 to LIERNE_MAX_RANKS, former out of range or not ascending), UNSUPPORTED (a halo), NO_MEMORY.
 */
LIERNE_API lierne_status lierne_layout_create_surviving(lierne_layout **out,
                                                        const lierne_layout *layout,
                                                        const int *former, int nranks);

/* The boxes of a tensor that no rank of former holds: nobody has a replica or, under PARTIAL, a
 * contribution has none. Disjoint; boxes that continue each other along an axis are one, looked at
 * along the last axis first; in ascending order of start, the first axis slowest. local is 0.
 * Writes their number into count and, unless boxes is NULL, the first `capacity` of them into
 * boxes, which is the caller's. Pure. Costs time in proportion to the ranks of the layout's grid
 * and the boxes of all lost cells. Errors: as lierne_layout_create_surviving. */
LIERNE_API lierne_status lierne_layout_find_lost(lierne_box *boxes, size_t capacity, size_t *count,
                                                 const lierne_layout *layout, const int *former,
                                                 int nranks);

/* A window of a rank on one axis with a halo. */
typedef struct lierne_halo_window {
    int64_t start; /* its first position, which may be below 0 */
    int64_t size;
    int64_t local;      /* of its first position in the axis of a padded buffer */
    int64_t core_start; /* the span that it extends; of outputs with a stride */
    int64_t core_size;  /* 0 where the halo has starts */
} lierne_halo_window;

/* The windows of a rank on an axis with a halo, ascending. Writes their number into count and,
 * unless windows is NULL, the first `capacity` of them into windows, which is the caller's. Errors:
 * INVALID (layout or count NULL; an axis without a halo), NO_MEMORY. */
LIERNE_API lierne_status lierne_layout_get_windows(lierne_halo_window *windows, size_t capacity,
                                                   size_t *count, const lierne_layout *layout,
                                                   int rank, int axis);

/* A box of margin storage: the positions [start, start + size) on each axis with a halo, row-major
 * from element `offset` of the buffer on. On an axis without a halo start is 0 and size what the
 * rank stores of the axis. */
typedef struct lierne_margin {
    int64_t start[LIERNE_MAX_AXES];
    int64_t size[LIERNE_MAX_AXES];
    int64_t offset;
} lierne_margin;

/* The boxes of a rank's buffer with margin storage, in the order of the buffer, empty ones left
 * out. Writes their number into count and, unless margins is NULL, the first `capacity` of them
 * into margins, which is the caller's. Errors: INVALID (layout or count NULL; a layout without
 * margin storage), NO_MEMORY. */
LIERNE_API lierne_status lierne_layout_get_margins(lierne_margin *margins, size_t capacity,
                                                   size_t *count, const lierne_layout *layout,
                                                   int rank);

/* Outputs of a rank, in its local numbers: the elements of its spans one after the other, of the
 * outputs with a stride. On an axis without a halo they are what the rank has of the axis. */
typedef struct lierne_split_box {
    int64_t start[LIERNE_MAX_AXES];
    int64_t size[LIERNE_MAX_AXES];
    bool interior;
} lierne_split_box;

/* Which outputs of a rank can be computed between begin and end of a redistribution from src to
 * dst, a layout with halos: those of the interior need no element of another rank. An output i of a
 * window needs the positions stride i - lo to stride i + hi (stride 1 without one) of its axis;
 * what a boundary fills, or leaves out, is no element of anybody. Each axis is looked at by itself:
 * of every window the longest run of such outputs, the first of equal ones. For every combination
 * of the windows of the axes, the first axis slowest: the interior, which is the product of the
 * runs, then what is left, as disjoint boxes: below and above the run on the first axis, then,
 * within that run, on the second, and so on; all of the combination where a run is empty. Boxes
 * without outputs are left out.
 *
 * What it reads between begin and end: in place, the buffer, in which nothing writes the rank's
 * part; else the input, or the output, of which begin has written what the interior needs. Only the
 * input where calls are posted in order (NCCL, memory of a device): a begin behind a call in flight
 * may write later.
 *
 * Under a source with a PARTIAL dim of more than one rank nothing is held. Writes the number of
 * boxes into count and, unless boxes is NULL, the first `capacity` of them into boxes, which is the
 * caller's. Pure. Errors: INVALID (count, src or dst NULL; dst without halos; other axes or
 * shapes), UNSUPPORTED (a map of two axes; a halo of dst with starts; a source without its cores),
 * NO_MEMORY. */
LIERNE_API lierne_status lierne_halo_get_split(lierne_split_box *boxes, size_t capacity,
                                               size_t *count, const lierne_layout *src,
                                               const lierne_layout *dst, int rank);

#ifdef __cplusplus
}
#endif
#endif
