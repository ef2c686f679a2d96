/* A layout: where a tensor lives on a grid. For each dim of the grid one placement, in the words
 * of PyTorch's DTensor (Shard, Replicate, Partial), with three more: SHARD_ZIGZAG, the
 * load-balanced context-parallel split; SHARD_ROWS, ownership row by row from a map; and AT, for
 * tensors that only one pipeline stage holds.
 *
 * A tensor has a global shape of 1 to LIERNE_MAX_AXES axes, row-major. A rank's local tensor has
 * as many axes, each cut to what the rank holds, row-major without gaps.
 *
 * Pure data: nothing here communicates, and a question about one rank costs time and memory in
 * proportion to what that rank holds. A layout copies all that it is given but keeps a pointer to
 * its grid, which must outlive it. Functions on a const layout may run at once in many threads. */
#ifndef LIERNE_LAYOUT_H
#define LIERNE_LAYOUT_H

#include "lierne/grid.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LIERNE_MAX_AXES 4

/* Element types. The numbers are part of the ABI. */
typedef enum lierne_dtype {
    LIERNE_F64 = 0,
    LIERNE_F32 = 1,
    LIERNE_BF16 = 2,
    LIERNE_F16 = 3,
    LIERNE_I64 = 4,
    LIERNE_I32 = 5,
    LIERNE_I8 = 6,
    LIERNE_U8 = 7
} lierne_dtype;

/* Bytes of an element; 0 for a number that is no dtype. Name: "f64" ...; NULL likewise. */
LIERNE_API size_t lierne_dtype_size(lierne_dtype dtype);
LIERNE_API const char *lierne_dtype_name(lierne_dtype dtype);
/* The dtype of a name. Errors: INVALID (NULL, no such name; the message lists the names). */
LIERNE_API lierne_status lierne_dtype_parse(lierne_dtype *out, const char *name);

typedef enum lierne_placement_kind {
    LIERNE_REPLICATE = 0,    /* every coordinate holds the same */
    LIERNE_SHARD = 1,        /* the axis is cut into one contiguous share per coordinate */
    LIERNE_SHARD_ZIGZAG = 2, /* 2n chunks; coordinate c holds chunks c and 2n-1-c, in that order */
    LIERNE_SHARD_ROWS = 3,   /* an owner per (row, position): see rows below */
    LIERNE_PARTIAL = 4,      /* every coordinate holds a summand of the value */
    LIERNE_AT = 5            /* only coordinate `at` holds it */
} lierne_placement_kind;

/* One placement. Where several dims cut the same axis, the slowest dim cuts first. */
typedef struct lierne_placement {
    lierne_placement_kind kind;
    int axis;              /* SHARD, SHARD_ZIGZAG: the axis; SHARD_ROWS: the slower of its two */
    int at;                /* AT: the coordinate */
    int axis2;             /* SHARD_ROWS: the other axis of the map, not the same */
    const int64_t *counts; /* SHARD: share of each coordinate, at least 0, adding up to what is cut;
                              NULL means balanced: equal shares, the first ones one larger where
                              the size does not divide */
    const int32_t *rows;   /* SHARD_ROWS: coordinate that owns index (i, j) of (axis, axis2), at
                              rows[i * shape[axis2] + j]; global, the same on every rank */
} lierne_placement;

/* What a rank's buffer holds of an axis that dims cut: COMPACT, the own part only, in ascending
 * order of chunks; FULL (see full_axes), all of it, of which only the own part is read or written.
 * Of SHARD_ROWS the storage of axis2 counts. COMPACT: the two axes become one, of own rows, in the
 * order of (axis, axis2). FULL: all rows of what the other dims leave of the two axes, since a map
 * cuts nothing out of them; a SHARD of axis2 stays compact. */
typedef enum lierne_storage { LIERNE_FULL = 0, LIERNE_COMPACT = 1 } lierne_storage;

typedef struct lierne_layout lierne_layout;

/* A layout to create. Set size to sizeof(lierne_layout_spec) and the rest to zero first. */
typedef struct lierne_layout_spec {
    size_t size;
    const lierne_grid *grid;
    const char *view;     /* the placements are those of its dims; NULL: "base" */
    int naxes;            /* 1 to LIERNE_MAX_AXES */
    const int64_t *shape; /* global shape, each at least 0 */
    lierne_dtype dtype;
    const lierne_placement *placements; /* one per dim of the view, in the order of the dims */
    uint32_t full_axes;                 /* bit a set: axis a is stored FULL, else COMPACT */
} lierne_layout_spec;

/* Creates a layout. Errors: INVALID (NULL, sizes, an axis or coordinate out of range, a dtype, two
 * SHARD_ROWS, counts that do not add up, an owner out of range; rows stored compact whose axes are
 * not neighbours), INDIVISIBLE (zigzag over n > 1: the axis by 2n), UNKNOWN_VIEW, OVERFLOW (more
 * than 2^60 bytes, empty axes counted as 1), NO_MEMORY. */
LIERNE_API lierne_status lierne_layout_create(lierne_layout **out, const lierne_layout_spec *spec);
/* Frees a layout. NULL is allowed. */
LIERNE_API void lierne_layout_destroy(lierne_layout *layout);

/* Shape of a rank's buffer, naxes sizes (compact rows: the slower axis has the number of own rows,
 * the other is 1). A rank that holds nothing (outside the grid, or not AT its coordinate) has
 * zeros. Errors: INVALID (NULL), NO_MEMORY. */
LIERNE_API lierne_status lierne_layout_get_shape(int64_t *shape, const lierne_layout *layout,
                                                 int rank);

/* Elements of a rank's buffer (the product of its shape) and, of these, elements that it owns
 * (fewer where the storage is full). Either may be NULL. */
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
 * slowest (SHARD_ROWS: of its axis, then axis2). Writes their number into count and, unless boxes
 * is NULL, as many boxes as fit into capacity. Errors: INVALID (NULL), NO_MEMORY. */
LIERNE_API lierne_status lierne_layout_get_boxes(lierne_box *boxes, size_t capacity, size_t *count,
                                                 const lierne_layout *layout, int rank);

#ifdef __cplusplus
}
#endif
#endif
