/* Moving and adding elements between blocks of host memory. Nothing here fails or allocates. */
#ifndef LIERNE_PACK_H
#define LIERNE_PACK_H

#include "route/route.h"

/* to = from, element by element; the blocks have the same counts. size: bytes of an element. */
void lierne_pack_copy(size_t size, void *to, const lierne_block *to_block, const void *from,
                      const lierne_block *from_block);

/* memcpy past the cache, for much more than fits into it; ordered with what follows only after
 * lierne_stream_end. */
void lierne_stream_copy(void *to, const void *from, size_t bytes);
void lierne_stream_end(void);

/* Bytes 0 in every element of a block. */
void lierne_pack_zero(size_t size, void *to, const lierne_block *block);

/* to = from[0] + from[1] + ... in this order, n at least 1. f16 and bf16 are added in float32 and
 * rounded once, to nearest even; integers wrap. to may be one of from. */
typedef struct lierne_summand {
    const void *base;
    const lierne_block *block;
} lierne_summand;
void lierne_pack_sum(lierne_dtype dtype, void *to, const lierne_block *to_block,
                     const lierne_summand *from, size_t n);

#endif
