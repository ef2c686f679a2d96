/* Boxes of elements and where they go, put together where they continue each other. */
#ifndef LIERNE_MERGE_H
#define LIERNE_MERGE_H

#include "layout/dense_halo.h"

/* A box of elements that lies as a strided box in two buffers. */
typedef struct lierne_move {
    lierne_overlap box;
    lierne_patch to;
    lierne_patch from; /* as `to` where only one buffer matters */
    int axis;          /* along which it is to be merged; of the sort */
} lierne_move;
typedef LIERNE_VEC(lierne_move) lierne_moves;

/* Merges moves whose boxes, and whose places in both buffers, continue each other along an axis:
 * fewer and longer rows. The result depends on the list alone, and is in the order of elements. */
void lierne_moves_merge(lierne_moves *moves, int naxes);

#endif
