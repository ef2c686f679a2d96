/* Ranks that plan and destroy in the same order have equal places, which is what NCCL's algorithms
 * for windows need (runtime/execute/all_gathers.c asks whether they have). */
#include "runtime/transport/heap.h"

#define ALIGN 256 /* bytes, as memory of cudaMalloc */

int64_t lierne_heap_align(int64_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

lierne_status lierne_heap_add(lierne_heap *heap, void *memory, int64_t bytes) {
    const lierne_heap_chunk chunk = {memory, lierne_heap_bytes(heap), bytes, NULL};
    LIERNE_TRY(lierne_extents_reserve(&heap->blocks)); /* plans leave nothing behind */
    return LIERNE_VEC_PUSH(&heap->chunks, chunk);
}

int64_t lierne_heap_bytes(const lierne_heap *heap) {
    size_t n = heap->chunks.count;
    return n > 0 ? heap->chunks.at[n - 1].place + heap->chunks.at[n - 1].bytes : 0;
}

static lierne_extent extent_of(const lierne_heap_chunk *chunk) {
    return (lierne_extent){(uint64_t)chunk->place, (uint64_t)chunk->bytes};
}

void *lierne_heap_take(lierne_heap *heap, int64_t bytes) {
    uint64_t whole = (uint64_t)lierne_heap_align(bytes), place;
    if (lierne_extents_reserve(&heap->blocks) != LIERNE_OK) {
        return NULL;
    }
    for (size_t c = 0; c < heap->chunks.count; c++) {
        const lierne_heap_chunk *chunk = &heap->chunks.at[c];
        if (lierne_extents_take(&heap->blocks, extent_of(chunk), whole, &place)) {
            return chunk->at + ((int64_t)place - chunk->place);
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
    return place >= 0 && lierne_extents_give(&heap->blocks, (uint64_t)place, NULL);
}

bool lierne_heap_is_used(const lierne_heap *heap, const lierne_heap_chunk *chunk) {
    return lierne_extents_use(&heap->blocks, extent_of(chunk));
}

void lierne_heap_destroy(lierne_heap *heap) {
    lierne_mem_free(heap->chunks.at);
    lierne_mem_free(heap->blocks.at);
    *heap = (lierne_heap){.grows = false};
}
