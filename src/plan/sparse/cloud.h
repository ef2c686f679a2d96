/* The positions that partitions share: checked, read as doubles, and how far they extend. */
#ifndef LIERNE_SPARSE_CLOUD_H
#define LIERNE_SPARSE_CLOUD_H

#include "base/base.h"
#include "lierne/sparse.h"

enum { LIERNE_CLOUD_AXES = 3 };

typedef struct lierne_cloud {
    const void *positions;
    lierne_dtype dtype;
    int64_t nrows;
    double low[LIERNE_CLOUD_AXES];
    double extent; /* the largest of all axes, in the type of the positions */
} lierne_cloud;

/* INVALID (a negative number, NULL, below one rank). */
lierne_status lierne_partition_check_rows(const void *out, const void *in, int64_t nrows);
lierne_status lierne_partition_check_world(int world);
/* INVALID (dtype, a position that is not finite), OVERFLOW. */
lierne_status lierne_cloud_open(lierne_cloud *c, const void *positions, lierne_dtype dtype,
                                int64_t nrows);

static inline double lierne_cloud_coordinate(const lierne_cloud *c, int64_t row, int axis) {
    int64_t at = LIERNE_CLOUD_AXES * row + axis;
    return c->dtype == LIERNE_DTYPE_F32 ? (double)((const float *)c->positions)[at]
                                        : ((const double *)c->positions)[at];
}

#endif
