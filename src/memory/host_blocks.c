/* Copies between two lists of blocks that are cut in different ways, as those of the two ends of a
 * message may be. Runs, the innermost loops, are walked on both sides; what goes at once is what is
 * left of the shorter one. */
#include "memory/host.h"

#include <string.h>

/* The place in a list of blocks: the run at index `outer` of block `block`, element `inner`. */
typedef struct walk {
    const lierne_block *blocks;
    size_t block;
    int64_t outer;
    int64_t inner;
} walk;

static int64_t run_of(const lierne_block *b) {
    return b->count[b->ndims - 1];
}

static int64_t offset_of(const walk *w) {
    const lierne_block *b = &w->blocks[w->block];
    int64_t at = b->offset + w->inner * b->stride[b->ndims - 1], left = w->outer;
    for (int d = b->ndims - 2; d >= 0; d--) {
        int64_t index = left % b->count[d];
        at += (d == 0 && b->rows ? b->rows[index] : index) * b->stride[d];
        left /= b->count[d];
    }
    return at;
}

static void move_on(walk *w, int64_t n) {
    const lierne_block *b = &w->blocks[w->block];
    w->inner += n;
    if (w->inner == run_of(b)) {
        w->inner = 0;
        w->outer++;
    }
    if (w->outer * run_of(b) == lierne_block_elements(b)) {
        w->outer = 0;
        w->block++;
    }
}

static void copy_run(size_t size, char *to, size_t to_step, const char *from, size_t from_step,
                     int64_t n) {
    if (to_step == size && from_step == size) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    lierne_rows t = {.base = to, .step = to_step}, f = {.base = (char *)from, .step = from_step};
    lierne_rows_copy(&t, &f, n, size);
}

static bool same_counts(const lierne_block *a, const lierne_block *b) {
    bool same = a->ndims == b->ndims;
    for (int d = 0; same && d < a->ndims; d++) {
        same = a->count[d] == b->count[d];
    }
    return same;
}

static size_t step_of(const walk *w, size_t size) {
    const lierne_block *b = &w->blocks[w->block];
    return (size_t)b->stride[b->ndims - 1] * size;
}

void lierne_host_copy_blocks(size_t size, void *to, const lierne_block *to_blocks, size_t nto,
                             const void *from, const lierne_block *from_blocks, size_t nfrom) {
    walk t = {.blocks = to_blocks}, f = {.blocks = from_blocks};
    while (t.block < nto && f.block < nfrom) {
        const lierne_block *a = &to_blocks[t.block], *b = &from_blocks[f.block];
        if (lierne_block_elements(a) == 0 || lierne_block_elements(b) == 0) {
            t.block += lierne_block_elements(a) == 0;
            f.block += lierne_block_elements(b) == 0;
            continue;
        }
        bool fresh = t.outer + t.inner + f.outer + f.inner == 0;
        if (fresh && same_counts(a, b)) {
            lierne_host_copy(size, to, a, from, b);
            t.block++;
            f.block++;
            continue;
        }
        int64_t n =
            run_of(a) - t.inner < run_of(b) - f.inner ? run_of(a) - t.inner : run_of(b) - f.inner;
        copy_run(size, (char *)to + (size_t)offset_of(&t) * size, step_of(&t, size),
                 (const char *)from + (size_t)offset_of(&f) * size, step_of(&f, size), n);
        move_on(&t, n);
        move_on(&f, n);
    }
}
