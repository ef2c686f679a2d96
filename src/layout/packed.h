/* Packings inside of a layout: the description, and the rows of a cell. */
#ifndef LIERNE_PACKED_H
#define LIERNE_PACKED_H

#include "layout/layout.h"

/* A packing with what all of its forms say alike: no array is NULL. The arrays have space for
 * `capacity` segments; filling them allocates nothing. */
typedef struct lierne_packed {
    int axis;
    int64_t capacity;
    int64_t n;       /* segments */
    int64_t *cu;     /* n + 1 */
    int64_t *padded; /* length of each padded segment */
    int64_t *lead;
    int64_t *order;
    int64_t *spare;   /* for checks */
    int32_t *owner;   /* 0 without SHARD_SEGMENTS */
    bool ascending;   /* order is */
    bool leads;       /* some lead is above 0; else all of the array is 0 */
    int64_t numbered; /* order[k] is k below this one, from the last time that it was NULL */
    int64_t total;    /* padded length of all segments */
    lierne_packing_store store;
    lierne_padding padding;
    lierne_row_order row_order;
    /* The dims that cut segments, or -1, and what they do. */
    int owner_dim;
    int segment_dim;
    int nowners;
    int ncuts;
    bool zigzag;
    lierne_share_rule share;
    /* Padded rows that are left to coordinate c of the segment cut of owner o:
     * rows[o * (ncuts + 1) + c]. */
    int64_t *rows;
} lierne_packed;

/* a / b of numbers that are not negative: most lengths fit 32 bits, which divide much faster. */
static inline int64_t lierne_quotient(int64_t a, int64_t b) {
    return ((uint64_t)a | (uint64_t)b) >> 32 ? a / b : (int64_t)((uint32_t)a / (uint32_t)b);
}

/* Takes the packing of a spec whose grid the layout has, if there is one, and checks all but
 * what a SHARD_ZIGZAG needs. */
lierne_status lierne_packing_create(lierne_layout *layout, const lierne_layout_spec *spec);
/* A copy for a layout with another shape. */
lierne_status lierne_packing_copy(lierne_layout *layout, const lierne_layout *old,
                                  const int64_t *shape);
/* Makes space for so many segments, at least as many as there are. */
lierne_status lierne_packing_reserve(lierne_packed *packed, int64_t capacity);
void lierne_packing_destroy(lierne_packed *packed);

/* INVALID or OVERFLOW unless there are boundaries, and these are some. */
lierne_status lierne_segments_check(const lierne_segments *segments);

/* Fills a packing from a description that fits its capacity, in two steps: segments and their
 * padding, and who has them. What it has after a failure means nothing. */
lierne_status lierne_packed_take(lierne_packed *packed, const lierne_segments *segments,
                                 const lierne_packing *packing);
lierne_status lierne_packed_cut(lierne_packed *packed, const lierne_packing *packing);

/* First padded offset of coordinate c of the segment cut, SEGMENT_SHARD, in a padded segment. */
int64_t lierne_packed_share(const lierne_packed *packed, int64_t length, int c);

/* The spans of tokens of a cell, ascending, and its spans of padding rows, in the order of the
 * buffer, with start 0. The lists are empty before. */
lierne_status lierne_packed_tokens(lierne_span_list *list, const lierne_layout *layout,
                                   const lierne_cell *cell);
/* Both in one walk; padding may be NULL. With it, no span goes on where the cuts of the cell end a
 * run. */
lierne_status lierne_packed_spans(lierne_span_list *list, lierne_span_list *padding,
                                  const lierne_layout *layout, const lierne_cell *cell);
lierne_status lierne_packed_padding(lierne_span_list *list, const lierne_layout *layout,
                                    const lierne_cell *cell);
/* Rows of the packed axis in the buffer of a cell's members. */
int64_t lierne_packed_length(const lierne_layout *layout, const lierne_cell *cell);

#endif
