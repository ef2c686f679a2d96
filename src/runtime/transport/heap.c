/* First fit. Plans are few and live long, so a sorted list of blocks is enough; and ranks that plan
 * and destroy in the same order have equal places, which is what NCCL's algorithms for windows need
 * (runtime/execute/all_gathers.c asks whether they have). */
#include "runtime/transport/heap.h"

#include <string.h>

#define ALIGN 256 /* bytes, as memory of cudaMalloc */

int64_t lierne_heap_align(int64_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

lierne_status lierne_heap_add(lierne_heap *heap, void *memory, int64_t bytes) {
    const lierne_heap_chunk chunk = {memory, lierne_heap_bytes(heap), bytes, NULL};
    return LIERNE_VEC_PUSH(&heap->chunks, chunk);
}

int64_t lierne_heap_bytes(const lierne_heap *heap) {
    size_t n = heap->chunks.count;
    return n > 0 ? heap->chunks.at[n - 1].place + heap->chunks.at[n - 1].bytes : 0;
}

/* The place of the first gap of a chunk that has so many bytes, or -1. *next: the first block
 * behind it. */
static int64_t find_gap(const lierne_heap *heap, const lierne_heap_chunk *chunk, int64_t bytes,
                        size_t *next) {
    int64_t place = chunk->place, end = chunk->place + chunk->bytes;
    size_t i = 0;
    while (i < heap->blocks.count && heap->blocks.at[i].place < chunk->place) {
        i++;
    }
    for (; i < heap->blocks.count && heap->blocks.at[i].place < end; i++) {
        const lierne_heap_block *b = &heap->blocks.at[i];
        if (b->place - place >= bytes) {
            *next = i;
            return place;
        }
        place = b->place + b->bytes;
    }
    *next = i;
    return end - place >= bytes ? place : -1;
}

static void *insert(lierne_heap *heap, const lierne_heap_chunk *chunk, size_t at,
                    lierne_heap_block block) {
    if (lierne_vec_grow(&heap->blocks.at, heap->blocks.count, &heap->blocks.capacity,
                        sizeof *heap->blocks.at) != LIERNE_OK) {
        return NULL;
    }
    lierne_heap_block *to = heap->blocks.at + at;
    memmove(to + 1, to, (heap->blocks.count++ - at) * sizeof *to);
    *to = block;
    return chunk->at + (block.place - chunk->place);
}

void *lierne_heap_take(lierne_heap *heap, int64_t bytes) {
    int64_t whole = lierne_heap_align(bytes);
    for (size_t c = 0; c < heap->chunks.count; c++) {
        const lierne_heap_chunk *chunk = &heap->chunks.at[c];
        size_t next;
        int64_t place = find_gap(heap, chunk, whole, &next);
        if (place >= 0) {
            return insert(heap, chunk, next, (lierne_heap_block){place, whole});
        }
    }
    return NULL;
}

int64_t lierne_heap_place(const lierne_heap *heap, const void *memory) {
    uintptr_t address = (uintptr_t)memory;
    for (size_t c = 0; c < heap->chunks.count; c++) {
        const lierne_heap_chunk *chunk = &heap->chunks.at[c];
        uintptr_t begin = (uintptr_t)chunk->at;
        if (address >= begin && address - begin < (uintptr_t)chunk->bytes) {
            return chunk->place + (int64_t)(address - begin);
        }
    }
    return -1;
}

bool lierne_heap_give(lierne_heap *heap, const void *memory) {
    int64_t place = lierne_heap_place(heap, memory);
    size_t i = 0;
    while (i < heap->blocks.count && heap->blocks.at[i].place != place) {
        i++;
    }
    if (i == heap->blocks.count) {
        return false;
    }
    lierne_heap_block *at = heap->blocks.at + i;
    memmove(at, at + 1, (--heap->blocks.count - i) * sizeof *at);
    return true;
}

bool lierne_heap_is_used(const lierne_heap *heap, const lierne_heap_chunk *chunk) {
    bool used = false;
    for (size_t i = 0; i < heap->blocks.count; i++) {
        int64_t place = heap->blocks.at[i].place;
        used |= place >= chunk->place && place - chunk->place < chunk->bytes;
    }
    return used;
}

void lierne_heap_destroy(lierne_heap *heap) {
    lierne_mem_free(heap->chunks.at);
    lierne_mem_free(heap->blocks.at);
    *heap = (lierne_heap){.grows = false};
}
