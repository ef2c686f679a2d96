/* Shares of an axis (src/layout/cut.c) are those that dealing its items one by one gives, for axes
 * of up to 40 items in up to 6 shares by either rule. In the 1,001 largest axes of a layout
 * (up to 2^60 items) no share overflows, the shares cover the axis, and their sizes are those of
 * the rule, for 7 and 2^24 - 3 shares.
 *
 * cbmc: src/layout/cut.c --unwind 42
 * cbmc: src/layout/cut.c --unwind 12 -DLARGE=7
 * cbmc: src/layout/cut.c --unwind 12 -DLARGE=16777213 */
#include "layout/layout.h"
#include "proofs/proofs.h"

#define ITEMS  40
#define SHARES 6
#define MOST   ((int64_t)1 << 60)
#define NEAR   1000

/* The share that gets item i when items are dealt: by one to each share in turn, or by full chunks.
 */
static int64_t dealt(int64_t total, int n, int c, bool chunks) {
    int64_t mine = 0, chunk = 0;
    while (chunks && chunk * n < total) {
        chunk++;
    }
    int turn = 0;
    int64_t filled = 0;
    for (int64_t i = 0; i < total; i++) {
        if (turn == c) {
            mine++;
        }
        filled++;
        if (!chunks || filled == chunk) {
            turn = turn + 1 == n ? 0 : turn + 1;
            filled = 0;
        }
    }
    return mine;
}

static void prove_small(void) {
    int64_t total = any_int64(0, ITEMS);
    int n = any_int(1, SHARES), c = any_int(0, SHARES - 1);
    lierne_placement p = {.kind = LIERNE_PLACEMENT_SHARD};
    bool chunks = nondet_bool();
    ASSUME(c < n);
    p.share = chunks ? LIERNE_SHARE_RULE_CHUNK : LIERNE_SHARE_RULE_BALANCED;
    int64_t start = lierne_share_start(&p, total, n, c);
    int64_t end = lierne_share_start(&p, total, n, c + 1);
    assert(start >= 0 && end <= total);
    assert(end - start == dealt(total, n, c, chunks));
}

/* n is a constant where this is called, so that division by it is cheap. */
static void prove_large(int n) {
    int64_t total = any_int64(MOST - NEAR, MOST);
    int c = any_int(0, n - 1);
    lierne_placement p = {.kind = LIERNE_PLACEMENT_SHARD};
    for (int rule = 0; rule < 2; rule++) {
        p.share = rule ? LIERNE_SHARE_RULE_CHUNK : LIERNE_SHARE_RULE_BALANCED;
        int64_t start = lierne_share_start(&p, total, n, c);
        int64_t size = lierne_share_start(&p, total, n, c + 1) - start;
        int64_t floor = total / n, more = total % n, ceiling = floor + (more > 0);
        assert(c > 0 || start == 0);
        assert(c < n - 1 || start + size == total);
        assert(rule ? size == ceiling || start + size == total : size == floor + (c < more));
    }
}

int main(void) {
#ifdef LARGE
    prove_large(LARGE);
#else
    prove_small();
#endif
}
