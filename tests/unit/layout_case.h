/* Random layouts of one or two axes, and a model of them that knows the owner of every position and
 * no ranges. */
#ifndef LAYOUT_CASE_H
#define LAYOUT_CASE_H

#include "lierne.h"

#include <stdbool.h>

enum { LAYOUT_CASE_SIZE = 24, LAYOUT_CASE_DIMS = 3, LAYOUT_CASE_WORLD = 80 };

/* A grid of n dims whose first rank is offset. */
lierne_grid *layout_case_grid(int n, const int64_t *sizes, int offset);

typedef struct layout_case {
    int ndims, naxes, offset, nranks;
    int64_t sizes[LAYOUT_CASE_DIMS], shape[2];
    lierne_placement placements[LAYOUT_CASE_DIMS];
    int64_t counts[LAYOUT_CASE_DIMS][4];
    int32_t rows[LAYOUT_CASE_DIMS][LAYOUT_CASE_SIZE];
    uint32_t full;
} layout_case;

typedef struct layout_indices {
    int n;
    int at[LAYOUT_CASE_SIZE];
} layout_indices;

/* A number below n; the sequence is that of srand. */
int layout_case_any(int n);
/* A grid and storage for a tensor of this shape; layout_case_create chooses the placements. They
 * point into *t, which must stay where it is. */
layout_case layout_case_random(int naxes, const int64_t *shape);
lierne_layout *layout_case_create(layout_case *t);

/* Whether a rank, counted from the grid's first, holds anything; what it then has of an axis: cuts
 * by cut_order and then from the slowest dim, and of what is left the indices that all maps give
 * it. */
bool layout_case_holds(const layout_case *t, int rank);
layout_indices layout_case_part(const layout_case *t, int rank, int axis);

#endif
