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

#endif
