/* Memory that the ranks of a context have registered with each other: chunks, which all of them add
 * together, so that chunk i has the same size on every rank. What execution allocates while
 * planning are blocks of it. Each rank takes and frees its blocks by itself. */
#ifndef LIERNE_HEAP_H
#define LIERNE_HEAP_H

#include "runtime/transport/extents.h"

/* Places are bytes, counted through all chunks in their order: the same on all ranks. */
typedef struct lierne_heap_chunk {
    char *at;
    int64_t place;
    int64_t bytes;
    void *handle; /* the transport's; NULL: not registered */
} lierne_heap_chunk;
typedef struct lierne_heap {
    LIERNE_VEC(lierne_heap_chunk) chunks;
    lierne_extents blocks; /* that are taken, by place */
    bool grows;            /* the same on all ranks */
} lierne_heap;

/* Adds a chunk, whose memory stays the caller's. Errors: NO_MEMORY. */
LIERNE_PRIVATE lierne_status lierne_heap_add(lierne_heap *heap, void *memory, int64_t bytes);
/* Bytes of all chunks. */
LIERNE_PRIVATE int64_t lierne_heap_bytes(const lierne_heap *heap);
/* What a block of so many bytes takes of a chunk. */
int64_t lierne_heap_align(int64_t bytes);
/* A block of so many bytes, at least 1, from a multiple of 256 bytes on; NULL where there is no
 * space. */
void *lierne_heap_take(lierne_heap *heap, int64_t bytes);
/* Gives a block back; false: memory is none. */
bool lierne_heap_give(lierne_heap *heap, const void *memory);
/* The place of memory; -1: it is in no chunk. */
int64_t lierne_heap_place(const lierne_heap *heap, const void *memory);
/* Whether a block of the chunk is taken: such a chunk must not be freed. */
LIERNE_PRIVATE bool lierne_heap_is_used(const lierne_heap *heap, const lierne_heap_chunk *chunk);
/* Frees the lists, not the memory of the chunks. */
LIERNE_PRIVATE void lierne_heap_destroy(lierne_heap *heap);

#endif
