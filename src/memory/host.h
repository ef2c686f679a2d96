/* Moving and adding elements between blocks of host memory. Nothing here fails or allocates. */
#ifndef LIERNE_HOST_H
#define LIERNE_HOST_H

#include "lierne/plan.h"
#include "route/route.h"

/* to = from, element by element; the blocks have the same counts. size: bytes of an element. */
void lierne_host_copy(size_t size, void *to, const lierne_block *to_block, const void *from,
                      const lierne_block *from_block);

/* memcpy past the cache, for much more than fits into it; ordered with what follows only after
 * lierne_nontemporal_fence. */
void lierne_nontemporal_copy(void *to, const void *from, size_t bytes);
void lierne_nontemporal_fence(void);

/* Bytes 0 in every element of a block. */
void lierne_host_zero(size_t size, void *to, const lierne_block *block);

/* to = from[0] + from[1] + ... in this order, n at least 1, or the largest or smallest of them. f16
 * and bf16 are added in float32 and rounded once, to nearest even; integers wrap; of extremes a NaN
 * wins. to may be one of from. */
typedef struct lierne_contribution {
    const void *base;
    const lierne_block *block;
} lierne_contribution;
void lierne_host_reduce(lierne_dtype dtype, lierne_reduction reduction, void *to,
                        const lierne_block *to_block, const lierne_contribution *from, size_t n);

/* A block as rows of elements that follow one another, listed or not, or as one such row; false if
 * it is none. */
typedef struct lierne_rows {
    char *base;
    const int64_t *list; /* or NULL: 0, 1, ... */
    size_t step;         /* bytes from a row to the next */
} lierne_rows;
bool lierne_rows_of(lierne_rows *rows, const void *base, const lierne_block *block, size_t size);
/* n rows. to += from is false, and nothing done, for dtypes that are not added as they are stored.
 */
void lierne_rows_copy(const lierne_rows *to, const lierne_rows *from, int64_t n, size_t bytes);
bool lierne_rows_add(lierne_dtype dtype, const lierne_rows *to, const lierne_rows *from, int64_t n,
                     int64_t width);

#endif
