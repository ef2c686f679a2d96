/* A side of dense_halo.json: a layout, at times with halos. */
#ifndef LIERNE_TESTS_GOLDEN_DENSE_HALO_H
#define LIERNE_TESTS_GOLDEN_DENSE_HALO_H

#include "golden.h"

/* The arrays that the spec points to; to be freed with golden_side_free. */
typedef struct golden_side {
    lierne_grid *grid;
    int ndims;
    int64_t sizes[LIERNE_MAX_DIMS];
    int offset;
    lierne_placement placements[LIERNE_MAX_DIMS];
    int64_t *counts[LIERNE_MAX_DIMS];
    int32_t *rows[LIERNE_MAX_DIMS];
    lierne_dense_halo halos[LIERNE_MAX_DIMS];
    int64_t shape[LIERNE_MAX_DIMS];
    lierne_layout_spec spec;
} golden_side;

/* Reads a side of a tensor of the case's shape and world. */
bool golden_side_read(golden_case *c, golden_side *side, const char *name, lierne_dtype dtype);
void golden_side_free(golden_side *side);

/* A rank's coordinate of dim d; whether it holds something. */
int golden_side_coord(const golden_side *side, int rank, int d);
bool golden_side_holds(const golden_side *side, int rank);
/* The first rank of its replicas; the index and number of its contributions. */
int golden_side_first(const golden_side *side, int rank);
int64_t golden_side_partial(const golden_side *side, int rank, int64_t *n);

#endif
