/* Elements of blocks gathered a few at a time, against all of them copied one by one. */
#include "runtime/memory/host.h"

#include <criterion/criterion.h>
#include <string.h>

enum { ELEMENTS = 2000, BLOCKS = 4, TRIALS = 4000 };

static uint64_t draw(void) {
    static uint64_t x = 88172645463325252u;
    x ^= x << 13;
    x ^= x >> 7;
    return x ^= x << 17;
}

static int below(int n) {
    return (int)(draw() % (uint64_t)n);
}

/* Up to three loops, some without elements, some over a list of rows. */
static lierne_block random_block(int64_t *rows) {
    lierne_block b = {.ndims = 1 + below(3), .offset = below(50)};
    for (int d = 0; d < b.ndims; d++) {
        b.count[d] = below(9) == 0 ? 0 : 1 + below(d == 0 ? 9 : 5);
        b.stride[d] = below(3) == 0 ? 1 : 1 + below(40);
    }
    if (b.ndims == 2 && below(2) == 0) {
        b.rows = rows;
        for (int64_t i = 0; i < b.count[0]; i++) {
            rows[i] = below(20);
        }
    }
    return b;
}

/* The elements of a block in its order, by its definition; returns how many. */
static int64_t list(int32_t *to, const int32_t *from, const lierne_block *b) {
    int64_t n = 1, at[3];
    for (int d = 0; d < b->ndims; d++) {
        n *= b->count[d];
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t left = i, place = b->offset;
        for (int d = b->ndims - 1; d >= 0; d--) {
            at[d] = left % b->count[d];
            left /= b->count[d];
            place += (d == 0 && b->rows ? b->rows[at[0]] : at[d]) * b->stride[d];
        }
        to[i] = from[place];
    }
    return n;
}

Test(gather, parts_are_the_whole, .timeout = 600) {
    static int32_t from[ELEMENTS], want[ELEMENTS], got[ELEMENTS + 1];
    static int64_t rows[BLOCKS][16];
    for (int i = 0; i < ELEMENTS; i++) {
        from[i] = i;
    }
    for (int trial = 0; trial < TRIALS; trial++) {
        lierne_block blocks[BLOCKS];
        int64_t n = 0;
        for (int b = 0; b < BLOCKS; b++) {
            blocks[b] = random_block(rows[b]);
            n += list(want + n, from, &blocks[b]);
        }
        lierne_walk walk = {.blocks = blocks};
        memset(got, 0xa5, sizeof got);
        for (int64_t i = 0, part; i < n; i += part) {
            part = 1 + below(trial % 2 ? 7 : 200);
            part = part < n - i ? part : n - i;
            lierne_walk_gather(sizeof *got, got + i, from, &walk, part);
        }
        cr_assert_eq(memcmp(got, want, (size_t)n * sizeof *got), 0, "trial %d", trial);
        cr_assert_eq(got[n], (int32_t)0xa5a5a5a5, "trial %d: writes behind the end", trial);
    }
}
