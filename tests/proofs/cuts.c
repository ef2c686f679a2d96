/* What an axis cut (lierne_axis_cut of src/layout/cut.c) leaves to a coordinate is what counting
 * the items that are left gives, for every item of axes of up to 24: by shares of both rules, by
 * counts, and in zigzag, for 3 coordinates (zigzag: 4 too), of one piece or of the two that zigzag
 * leaves. It writes at most two pieces, neither empty, ascending.
 *
 * cbmc: src/layout/cut.c --unwind 10 -DN=3 -DZIGZAG=0 -DCHUNK=0 -DCOUNTS=0
 * cbmc: src/layout/cut.c --unwind 10 -DN=3 -DZIGZAG=0 -DCHUNK=1 -DCOUNTS=0
 * cbmc: src/layout/cut.c --unwind 10 -DN=3 -DZIGZAG=0 -DCHUNK=0 -DCOUNTS=1
 * cbmc: src/layout/cut.c --unwind 10 -DN=3 -DZIGZAG=1 -DCHUNK=0 -DCOUNTS=0
 * cbmc: src/layout/cut.c --unwind 10 -DN=4 -DZIGZAG=1 -DCHUNK=0 -DCOUNTS=0 */
#include "layout/layout.h"
#include "proofs/proofs.h"

#define ITEMS 24

static lierne_pieces any_pieces(void) {
    lierne_pieces p = {.count = any_int(0, 2)};
    int64_t end = 0;
    for (int i = 0; i < p.count; i++) {
        p.at[i].start = any_int64(end, ITEMS);
        p.at[i].size = any_int64(1, ITEMS);
        ASSUME(i == 0 || p.at[i].start > end); /* pieces that meet are one */
        end = p.at[i].start + p.at[i].size;
        ASSUME(end <= ITEMS);
    }
    return p;
}

/* How many items of the pieces come before item i; whether i is in one. */
static int64_t position(const lierne_pieces *p, int64_t i, bool *in) {
    int64_t before = 0;
    *in = false;
    for (int k = 0; k < p->count; k++) {
        int64_t start = p->at[k].start, end = start + p->at[k].size;
        *in = *in || (start <= i && i < end);
        before += i < start ? 0 : i < end ? i - start : end - start;
    }
    return before;
}

/* Whether coordinate c of n gets the item at a position, of total. */
static bool gets(const lierne_placement *p, int64_t total, int n, int c, int64_t at) {
    if (p->kind == LIERNE_PLACEMENT_SHARD_ZIGZAG) {
        int64_t chunk = total / (2 * n), of = 0, first = chunk; /* the chunk that at is in */
        for (int k = 0; k < 2 * N && at >= first; k++) {
            of++;
            first += chunk;
        }
        return of == c || of == 2 * n - 1 - c;
    }
    return lierne_share_start(p, total, n, c) <= at && at < lierne_share_start(p, total, n, c + 1);
}

int main(void) {
    static int64_t sums[N + 1];
    lierne_layout layout = {.ndims = 1, .sizes = {N}};
    lierne_placement *p = &layout.placements[0];
    lierne_pieces before = any_pieces(), after = before;
    int64_t total = lierne_pieces_length(&before), i = any_int64(0, ITEMS - 1);
    int c = any_int(0, N - 1);
    p->kind = ZIGZAG ? LIERNE_PLACEMENT_SHARD_ZIGZAG : LIERNE_PLACEMENT_SHARD;
    p->share = CHUNK ? LIERNE_SHARE_RULE_CHUNK : LIERNE_SHARE_RULE_BALANCED;
    /* As check_zigzag of src/layout/nesting.c wants it: not after another zigzag. */
    ASSUME(!ZIGZAG || (before.count <= 1 && total % (2 * N) == 0));
    for (int k = 1; COUNTS && k <= N; k++) {
        sums[k] = any_int64(sums[k - 1], ITEMS);
    }
    ASSUME(!COUNTS || sums[N] == total);
    p->counts = COUNTS ? sums : NULL;
    lierne_axis_cut(&layout, 0, c, &after);
    bool was, is;
    int64_t at = position(&before, i, &was);
    position(&after, i, &is);
    assert(is == (was && gets(p, total, N, c, at)));
    assert(after.count >= 0 && after.count <= 2);
    for (int k = 0; k < after.count; k++) {
        assert(after.at[k].size > 0);
        assert(k == 0 || after.at[k].start > after.at[0].start + after.at[0].size);
    }
}
