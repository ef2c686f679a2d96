/* Copies over blocks, and zeros.
 *
 * The innermost loop of a block is its run. The two innermost loops are copied as rows, whose loops
 * (host_rows.c) have the common lengths of a run as constants: rows of a few bytes would otherwise
 * cost more to find than to move. The elements of a strided run are such rows, too. */
#include "runtime/memory/host.h"
#include "runtime/memory/cursor.h"

#include <string.h>

static void copy_past_cache(size_t size, void *to, const lierne_block *to_block, const void *from,
                            const lierne_block *from_block) {
    cursor c = {0};
    const char *run = (const char *)from + (size_t)offset_of(from_block, &c) * size;
    for (const char *next_from = run; run; run = next_from) {
        char *to_run = (char *)to + (size_t)offset_of(to_block, &c) * size;
        next_from = next_run(to_block, &c)
                        ? (const char *)from + (size_t)offset_of(from_block, &c) * size
                        : NULL;
        lierne_nontemporal_copy(to_run, run, (size_t)run_count(to_block) * size, next_from);
    }
    lierne_nontemporal_fence();
}

/* The runs of the two innermost loops, from the cursor on. */
static lierne_rows runs_at(const void *base, const lierne_block *block, const cursor *c,
                           size_t size) {
    int64_t offset = block->rows ? block->offset : offset_of(block, c);
    int64_t step = block->ndims > 1 ? block->stride[block->ndims - 2] : 0;
    return (lierne_rows){.base = (char *)base + (size_t)offset * size,
                         .list = block->rows,
                         .step = (size_t)step * size};
}

/* The elements of the run at the cursor. */
static lierne_rows elements_at(const void *base, const lierne_block *block, const cursor *c,
                               size_t size) {
    return (lierne_rows){.base = (char *)base + (size_t)offset_of(block, c) * size,
                         .step = (size_t)run_stride(block) * size};
}

static void copy_run(size_t whole, char *to, const char *from, size_t bytes) {
    if (!lierne_nontemporal_pays(bytes, whole)) {
        if (bytes > 0) { /* memcpy takes no NULL, which a buffer without elements may be */
            memcpy(to, from, bytes);
        }
        return;
    }
    lierne_nontemporal_copy(to, from, bytes, NULL);
    lierne_nontemporal_fence();
}

void lierne_host_copy_of(size_t whole, size_t size, void *to, const lierne_block *to_block,
                         const void *from, const lierne_block *from_block) {
    int64_t n = run_count(to_block);
    bool contiguous = run_stride(to_block) == 1 && run_stride(from_block) == 1;
    if (contiguous && to_block->ndims == 1) { /* the most frequent one */
        copy_run(whole, (char *)to + (size_t)to_block->offset * size,
                 (const char *)from + (size_t)from_block->offset * size, (size_t)n * size);
        return;
    }
    if (block_empty(to_block)) {
        return;
    }
    if (contiguous && lierne_nontemporal_pays((size_t)n * size, whole)) {
        copy_past_cache(size, to, to_block, from, from_block);
        return;
    }
    cursor c = {0};
    int64_t runs = to_block->ndims > 1 ? to_block->count[to_block->ndims - 2] : 1;
    if (contiguous) {
        do {
            lierne_rows t = runs_at(to, to_block, &c, size);
            lierne_rows f = runs_at(from, from_block, &c, size);
            lierne_rows_copy(&t, &f, runs, (size_t)n * size);
        } while (next(to_block, &c, to_block->ndims - 3));
        return;
    }
    do {
        lierne_rows t = elements_at(to, to_block, &c, size);
        lierne_rows f = elements_at(from, from_block, &c, size);
        lierne_rows_copy(&t, &f, n, size);
    } while (next_run(to_block, &c));
}

void lierne_host_copy(size_t size, void *to, const lierne_block *to_block, const void *from,
                      const lierne_block *from_block) {
    size_t whole = (size_t)lierne_block_elements(to_block) * size;
    lierne_host_copy_of(whole, size, to, to_block, from, from_block);
}

void lierne_host_zero(size_t size, void *to, const lierne_block *block) {
    cursor c = {0};
    if (block_empty(block)) {
        return;
    }
    do {
        char *run = (char *)to + (size_t)offset_of(block, &c) * size;
        size_t step = (size_t)run_stride(block) * size, n = (size_t)run_count(block);
        if (step == size) {
            memset(run, 0, n * size);
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            memset(run + i * step, 0, size);
        }
    } while (next_run(block, &c));
}
