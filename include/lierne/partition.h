/* Partitions: which rank owns which row, worked out by every rank for itself, the same on every
 * rank and device. Pure functions; thread-safe. What counts afterwards are the owners, never the
 * formula that they came from. */
#ifndef LIERNE_PARTITION_H
#define LIERNE_PARTITION_H

#include "lierne/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Contiguous shares in index order; the first nrows mod world ranks own one more. owner: nrows
 * ranks. Errors: INVALID (NULL with nrows > 0, nrows < 0, world < 1). */
LIERNE_API lierne_status lierne_partition_split(int32_t *owner, int64_t nrows, int world);

/* Shares along a Morton curve: rows near in space mostly have one owner. The i-th row along the
 * curve is rank floor(i * world / nrows)'s; rows in one cell stand in index order. With nrows <=
 * world, row i is rank i's; with world 1 all are rank 0's. positions: x, y, z of each row, F32 or
 * F64; cells are computed in that type. Errors: INVALID (NULL with nrows > 0, nrows < 0, world < 1,
 * dtype, a position that is not finite: names the row), OVERFLOW (an extent beyond the type,
 * positions beyond memory), NO_MEMORY. */
LIERNE_API lierne_status lierne_partition_morton(int32_t *owner, const void *positions,
                                                 lierne_dtype dtype, int64_t nrows, int world);

/* The code of each row along the curve: 10 bits per axis, x in the lowest of each three. The cell
 * along an axis is trunc((p - min) / extent * 1023), with the axis' minimum and one extent for all
 * axes: the largest, at least 1e-8. Errors as lierne_partition_morton. */
LIERNE_API lierne_status lierne_morton_codes(uint32_t *codes, const void *positions,
                                             lierne_dtype dtype, int64_t nrows);

#ifdef __cplusplus
}
#endif
#endif
