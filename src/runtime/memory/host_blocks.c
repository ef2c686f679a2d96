/* Copies between two lists of blocks that are cut in different ways, as those of the two ends of a
 * message may be. Runs, the innermost loops, are walked on both sides; what goes at once is what is
 * left of the shorter one. */
#include "runtime/memory/host.h"

#include <string.h>

static int64_t run_of(const lierne_block *b) {
    return b->count[b->ndims - 1];
}

static int64_t offset_of(const lierne_walk *w) {
    const lierne_block *b = &w->blocks[w->block];
    int64_t at = b->offset + w->inner * b->stride[b->ndims - 1], left = w->outer;
    for (int d = b->ndims - 2; d >= 0; d--) {
        int64_t index = left % b->count[d];
        at += (d == 0 && b->rows ? b->rows[index] : index) * b->stride[d];
        left /= b->count[d];
    }
    return at;
}

static void move_on(lierne_walk *w, int64_t n) {
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

/* A side's run: where it is, and its step. */
typedef struct run {
    char *at;
    int64_t step;
} run;

/* next: where the next run reads, or NULL. */
static void copy_run(size_t whole, size_t size, run to, run from, int64_t n, const char *next) {
    size_t bytes = (size_t)n * size;
    if (to.step == (int64_t)size && from.step == (int64_t)size) {
        if (lierne_nontemporal_pays(bytes, whole)) {
            lierne_nontemporal_copy(to.at, from.at, bytes, next);
        } else {
            memcpy(to.at, from.at, bytes);
        }
        return;
    }
    lierne_rows t = {.base = to.at, .step = to.step}, f = {.base = from.at, .step = from.step};
    lierne_rows_copy(&t, &f, n, size);
}

static bool same_counts(const lierne_block *a, const lierne_block *b) {
    bool same = a->ndims == b->ndims;
    for (int d = 0; same && d < a->ndims; d++) {
        same = a->count[d] == b->count[d];
    }
    return same;
}

static int64_t stride_of(const lierne_walk *w) {
    const lierne_block *b = &w->blocks[w->block];
    return b->stride[b->ndims - 1];
}

static run run_at(const void *base, const lierne_walk *w, size_t size) {
    return (run){(char *)base + (size_t)offset_of(w) * size, stride_of(w) * (int64_t)size};
}

/* Whole indices of the outermost loop of a block, from the walk's place on, that n elements have.
 */
static int64_t whole_indices(const lierne_walk *w, int64_t n) {
    const lierne_block *b = &w->blocks[w->block];
    if (b->ndims < 2) {
        return 0;
    }
    int64_t each = lierne_block_elements(b) / b->count[0], done = w->outer * run_of(b) + w->inner;
    int64_t left = b->count[0] - done / each;
    return done % each != 0 ? 0 : n / each < left ? n / each : left;
}

/* The block of k indices of the outermost loop, of which the place is the first; walks past it. */
static lierne_block take_indices(lierne_walk *w, int64_t k) {
    lierne_block part = w->blocks[w->block];
    int64_t each = lierne_block_elements(&part) / part.count[0];
    int64_t first = w->outer * run_of(&part) / each;
    part.rows = part.rows ? part.rows + first : NULL;
    part.offset += part.rows ? 0 : first * part.stride[0];
    part.count[0] = k;
    w->outer += k * each / run_of(&part) - 1;
    w->inner = 0;
    move_on(w, run_of(&part));
    return part;
}

/* Copies what a run of one side has of whole indices of the other's outermost loop; returns whether
 * there are any. Run by run, the search for the next one would keep the processor from reading it
 * before the last one is there. */
static bool copy_indices(size_t whole, size_t size, void *to, lierne_walk *t, const void *from,
                         lierne_walk *f) {
    bool gathers = stride_of(t) == 1;
    lierne_walk *one = gathers ? t : f, *many = gathers ? f : t;
    int64_t left = run_of(&one->blocks[one->block]) - one->inner;
    int64_t k = gathers || stride_of(f) == 1 ? whole_indices(many, left) : 0;
    if (k < 2) {
        return false;
    }
    const lierne_block part = take_indices(many, k);
    const lierne_block packed = lierne_block_packed(&part, offset_of(one));
    lierne_host_copy_of(whole, size, to, gathers ? &packed : &part, from,
                        gathers ? &part : &packed);
    move_on(one, lierne_block_elements(&part));
    return true;
}

void lierne_host_copy_blocks(size_t whole, size_t size, void *to, const lierne_block *to_blocks,
                             size_t nto, const void *from, const lierne_block *from_blocks,
                             size_t nfrom) {
    lierne_walk t = {.blocks = to_blocks}, f = {.blocks = from_blocks};
    while (t.block < nto && f.block < nfrom) {
        const lierne_block *a = &to_blocks[t.block], *b = &from_blocks[f.block];
        if (lierne_block_elements(a) == 0 || lierne_block_elements(b) == 0) {
            t.block += lierne_block_elements(a) == 0;
            f.block += lierne_block_elements(b) == 0;
            continue;
        }
        bool fresh = t.outer + t.inner + f.outer + f.inner == 0;
        if (fresh && same_counts(a, b)) {
            lierne_host_copy_of(whole, size, to, a, from, b);
            t.block++;
            f.block++;
            continue;
        }
        if (copy_indices(whole, size, to, &t, from, &f)) {
            continue;
        }
        int64_t n =
            run_of(a) - t.inner < run_of(b) - f.inner ? run_of(a) - t.inner : run_of(b) - f.inner;
        run to_run = run_at(to, &t, size), from_run = run_at(from, &f, size);
        move_on(&t, n);
        move_on(&f, n);
        bool more = whole >= LIERNE_PAST_CACHE && &from_blocks[f.block] == b;
        copy_run(whole, size, to_run, from_run, n, more ? run_at(from, &f, size).at : NULL);
    }
    if (whole >= LIERNE_PAST_CACHE) {
        lierne_nontemporal_fence();
    }
}

static int64_t gather_indices(size_t size, void *to, const void *from, lierne_walk *w, int64_t k) {
    const lierne_block part = take_indices(w, k), packed = lierne_block_packed(&part, 0);
    lierne_host_copy(size, to, &packed, from, &part);
    return lierne_block_elements(&part);
}

static int64_t gather_run(size_t size, void *to, const void *from, lierne_walk *w, int64_t n) {
    int64_t left = run_of(&w->blocks[w->block]) - w->inner;
    int64_t moved = n < left ? n : left;
    copy_run(0, size, (run){to, (int64_t)size}, run_at(from, w, size), moved, NULL);
    move_on(w, moved);
    return moved;
}

void lierne_walk_gather(size_t size, void *to, const void *from, lierne_walk *w, int64_t n) {
    for (char *at = to; n > 0;) {
        if (lierne_block_elements(&w->blocks[w->block]) == 0) {
            w->block++;
            continue;
        }
        int64_t k = whole_indices(w, n);
        int64_t moved =
            k > 0 ? gather_indices(size, at, from, w, k) : gather_run(size, at, from, w, n);
        at += (size_t)moved * size;
        n -= moved;
    }
}
