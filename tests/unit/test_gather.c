/* Elements of blocks gathered a few at a time, and copied into blocks that are cut elsewhere,
 * against all of them copied one by one. */
#include "route_executor.h"
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

/* The elements of a block in its order; returns how many. */
static int64_t list(int32_t *to, const int32_t *from, const lierne_block *b) {
    int64_t n = route_block_elements(b);
    for (int64_t i = 0; i < n; i++) {
        to[i] = from[route_block_element(b, i)];
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

/* Blocks whose elements lie apart, from each other and from those of the other blocks. */
static lierne_block apart(int64_t *rows, int at) {
    lierne_block b = {.ndims = 1 + below(3), .offset = at * ELEMENTS};
    int64_t step = 1 + below(2);
    for (int d = b.ndims - 1; d >= 0; d--) {
        b.count[d] = 1 + below(d == 0 ? 9 : 5);
        b.stride[d] = step;
        step *= b.count[d] + below(2);
    }
    if (b.ndims == 2 && below(2) == 0) {
        b.rows = rows;
        for (int64_t i = 0; i < b.count[0]; i++) {
            rows[i] = (i * 7 + 3) % 20;
        }
    }
    return b;
}

Test(gather, blocks_are_cut_anywhere, .timeout = 600) {
    static int32_t from[ELEMENTS], values[ELEMENTS], want[(BLOCKS + 1) * ELEMENTS];
    static int32_t got[(BLOCKS + 1) * ELEMENTS];
    static int64_t to_rows[BLOCKS][16], from_rows[BLOCKS][16];
    for (int i = 0; i < ELEMENTS; i++) {
        from[i] = i;
    }
    for (int trial = 0; trial < TRIALS; trial++) {
        lierne_block to[BLOCKS + 1], of[BLOCKS + 1];
        int64_t nto = 0, nof = 0, n = 0;
        for (int b = 0; b < BLOCKS; b++) {
            to[b] = apart(to_rows[b], b);
            of[b] = random_block(from_rows[b]);
            nto += route_block_elements(&to[b]);
            nof += route_block_elements(&of[b]);
        }
        /* One more run makes them as long as each other. */
        to[BLOCKS] = of[BLOCKS] = (lierne_block){.ndims = 1, .stride = {1}};
        to[BLOCKS].offset = BLOCKS * ELEMENTS;
        to[BLOCKS].count[0] = nof > nto ? nof - nto : 0;
        of[BLOCKS].count[0] = nto > nof ? nto - nof : 0;
        for (int b = 0; b <= BLOCKS; b++) {
            n += list(values + n, from, &of[b]);
        }
        memset(want, 0xa5, sizeof want);
        memset(got, 0xa5, sizeof got);
        for (int64_t b = 0, i = 0; b <= BLOCKS; b++) {
            for (int64_t e = 0; e < route_block_elements(&to[b]); e++) {
                want[route_block_element(&to[b], e)] = values[i++];
            }
        }
        size_t whole = trial % 3 == 0 ? LIERNE_PAST_CACHE : (size_t)n * sizeof *got;
        lierne_host_copy_blocks(whole, sizeof *got, got, to, BLOCKS + 1, from, of, BLOCKS + 1);
        cr_assert_eq(memcmp(got, want, sizeof want), 0, "trial %d", trial);
    }
}
