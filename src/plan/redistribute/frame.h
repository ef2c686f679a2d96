/* Two tensors that have a box in common: its axes, and where they are in either tensor. */
#ifndef LIERNE_FRAME_H
#define LIERNE_FRAME_H

#include "layout/layout.h"
#include "lierne/redistribute.h"
#include "route/route.h"

/* Side 0 is the source of a route, side 1 its destination. Each axis of a tensor is an axis of the
 * frame; an axis of the frame that a tensor does not have is -1, and has one index. */
typedef struct lierne_frame {
    int naxes;
    int64_t size[LIERNE_MAX_AXES];
    int axis[2][LIERNE_MAX_AXES];
    int64_t start[2][LIERNE_MAX_AXES]; /* per axis of the tensor */
} lierne_frame;

/* The frame of a box between tensors of so many axes. from: the side of the set that is side 0. */
void lierne_frame_create(lierne_frame *frame, const lierne_set_box *box, int src_naxes,
                         int dst_naxes, int from);

/* Takes boxes of a side's tensor to the axes of the frame, without what lies outside of it. */
void lierne_frame_clip(lierne_boxes *boxes, const lierne_frame *frame, int side);

/* The cells of a side's layout that have something of a cell of the other side (and some that have
 * not where a map of two axes cuts). */
lierne_status lierne_frame_overlapping(lierne_cells *cells, const lierne_frame *frame, int side,
                                       const lierne_layout *layout, const lierne_layout *other,
                                       const lierne_cell *cell);

/* A box in the axes of the frame, as a block of a side's buffer. */
lierne_block lierne_frame_block(const lierne_frame *frame, int side, const int64_t *shape,
                                const int64_t *local, const int64_t *size);

#endif
