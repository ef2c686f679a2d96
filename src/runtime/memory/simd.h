/* Sums of contiguous floats by instructions that not every processor has. */
#ifndef LIERNE_SIMD_H
#define LIERNE_SIMD_H

#include "lierne/layout.h"

#include <stddef.h>

/* to = from[0] + from[1] + ... in this order, of n arrays of count elements; n is at least 1. to
 * may be one of from. f16 and bf16 are added in float32 and rounded once, to nearest even; every
 * NaN becomes the canonical one. */
typedef void lierne_sum_kernel(void *to, const void *const *from, size_t n, size_t count);

/* The kernel of a dtype on this processor; NULL where there is none and loops in C must serve. */
lierne_sum_kernel *lierne_simd_sum(lierne_dtype dtype);

/* Adds n rows of width elements: to += from (runtime/memory/host.h). */
struct lierne_rows;
typedef void lierne_rows_kernel(const struct lierne_rows *to, const struct lierne_rows *from,
                                int64_t n, int64_t width);

/* The same for rows of so many elements: NULL, too, where they are too short for it to pay. */
lierne_rows_kernel *lierne_simd_add_rows(lierne_dtype dtype, int64_t width);

#endif
