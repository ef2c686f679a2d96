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

/* The elements of the run at the cursor. */
static lierne_rows elements_at(const void *base, const lierne_block *block, const cursor *c,
                               size_t size) {
    return (lierne_rows){.base = (char *)base + (size_t)offset_of(block, c) * size,
                         .step = run_stride(block) * (int64_t)size};
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
    lierne_block more[2];
    if (has_few_rows(to_block)) {
        more[0] = with_more_rows(to_block);
        more[1] = with_more_rows(from_block);
        to_block = &more[0];
        from_block = &more[1];
    }
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

#define ZERO_AS(bytes)                                                                             \
    for (int64_t i = 0; i < n; i++) {                                                              \
        memset(rows->base + i * rows->step, 0, bytes);                                             \
    }

/* Rows without a list. Those of a few bytes are stores. */
static void zero_rows(const lierne_rows *rows, int64_t n, size_t bytes) {
    if (bytes == 4) {
        ZERO_AS(4)
    } else if (bytes == 8) {
        ZERO_AS(8)
    } else if (bytes == 16) {
        ZERO_AS(16)
    } else {
        ZERO_AS(bytes)
    }
}

void lierne_host_zero(size_t size, void *to, const lierne_block *block) {
    cursor c = {0};
    lierne_block more;
    if (has_few_rows(block)) {
        more = with_more_rows(block);
        block = &more;
    }
    int64_t n = run_count(block);
    bool rows = run_stride(block) == 1 && block->ndims > 1 && !block->rows;
    if (block_empty(block)) {
        return;
    }
    do {
        lierne_rows t = rows ? runs_at(to, block, &c, size) : elements_at(to, block, &c, size);
        if (rows) {
            zero_rows(&t, block->count[block->ndims - 2], (size_t)n * size);
        } else if (run_stride(block) == 1) {
            memset(t.base, 0, (size_t)n * size);
        } else {
            zero_rows(&t, n, size);
        }
    } while (next(block, &c, block->ndims - (rows ? 3 : 2)));
}
