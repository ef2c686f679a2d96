/* Copies and sums between blocks of host memory. No function here fails or allocates. */
#ifndef LIERNE_HOST_H
#define LIERNE_HOST_H

#include "lierne/plan.h"
#include "route/route.h"
#include "runtime/memory/simd.h"

/* to = from, element by element; the blocks have the same counts. size: bytes of an element. */
void lierne_host_copy(size_t size, void *to, const lierne_block *to_block, const void *from,
                      const lierne_block *from_block);

/* The same as one of several copies, which are `whole` bytes together: if they do not fit into the
 * cache, none of them should go there. */
void lierne_host_copy_of(size_t whole, size_t size, void *to, const lierne_block *to_block,
                         const void *from, const lierne_block *from_block);

#define LIERNE_PAST_CACHE ((size_t)4 << 20) /* least bytes of copies that bypass the cache */
/* Whether copies of `whole` bytes, in contiguous runs of `run`, should bypass the cache. */
bool lierne_nontemporal_pays(size_t run, size_t whole);

/* memcpy that bypasses the cache, for much more than fits into it. Ordered with later stores only
 * after lierne_nontemporal_fence. next: where the next copy of as many bytes reads, or NULL. */
void lierne_nontemporal_copy(void *to, const void *from, size_t bytes, const void *next);
/* The same with four pages written in turn, or line after line: lierne_nontemporal_copy takes what
 * is faster on this processor. */
void lierne_nontemporal_copy_by(bool pages, void *to, const void *from, size_t bytes,
                                const void *next);
void lierne_nontemporal_fence(void);

/* lierne_host_copy_of for two lists of blocks, which have as many elements altogether, however they
 * are cut. */
void lierne_host_copy_blocks(size_t whole, size_t size, void *to, const lierne_block *to_blocks,
                             size_t nto, const void *from, const lierne_block *from_blocks,
                             size_t nfrom);

/* A place in a list of blocks: the run (the innermost loop) at index `outer` of block `block`,
 * element `inner`. Zero but for blocks: the first element. */
typedef struct lierne_walk {
    const lierne_block *blocks;
    size_t block;
    int64_t outer;
    int64_t inner;
} lierne_walk;

/* Copies the next n elements of a walk, of which so many are left, one behind another into `to`. */
void lierne_walk_gather(size_t size, void *to, const void *from, lierne_walk *walk, int64_t n);

/* Sets all bytes of every element of a block to 0. */
void lierne_host_zero(size_t size, void *to, const lierne_block *block);

/* to = from[0] + from[1] + ... in this order, or their product, maximum or minimum; n is at least
 * 1. f16 and bf16 are added in float32 and rounded once, to nearest even; integers wrap; a maximum
 * or minimum with a NaN is NaN, and every NaN becomes the canonical one. A divisor above 1 divides
 * the result before it is rounded; integers have none. to may be one of from. */
typedef struct lierne_contribution {
    const void *base;
    const lierne_block *block;
} lierne_contribution;
void lierne_host_reduce(lierne_dtype dtype, lierne_reduction reduction, int64_t divisor, void *to,
                        const lierne_block *to_block, const lierne_contribution *from, size_t n);
/* The same by kernels where there are (lierne_simd_sum), or by loops in C alone. */
void lierne_host_reduce_by(bool simd, lierne_dtype dtype, lierne_reduction reduction,
                           int64_t divisor, void *to, const lierne_block *to_block,
                           const lierne_contribution *from, size_t n);

/* Contiguous rows, with or without an index list. */
typedef struct lierne_rows {
    char *base;
    const int64_t *list; /* or NULL: 0, 1, ... */
    int64_t step;        /* bytes from a row to the next, of any sign */
} lierne_rows;
/* Copies n rows; adds n rows (to += from); to = from[0] + from[1] + ... of rows without lists, of
 * which some may be `to`, n at least 2. add and sum do nothing and return false for dtypes that are
 * not summed in their own type; a kernel adds rows of its own dtype. */
void lierne_rows_copy(const lierne_rows *to, const lierne_rows *from, int64_t n, size_t bytes);
bool lierne_rows_add(lierne_dtype dtype, const lierne_rows *to, const lierne_rows *from, int64_t n,
                     int64_t width);
/* Most elements of a row of several contributions for which a kernel does not pay, since each row
 * would be a call of its own. lierne_rows_sum takes longer rows only of to += from[1]. */
#define LIERNE_SHORT_ROW 64
bool lierne_rows_sum(lierne_dtype dtype, const lierne_rows *to, const lierne_rows *from, size_t n,
                     int64_t rows, int64_t width);
void lierne_rows_add_by(lierne_sum_kernel *kernel, size_t size, const lierne_rows *to,
                        const lierne_rows *from, int64_t n, int64_t width);

#endif
