/* The chunk of a padded segment in which an offset lies (find_chunk of src/layout/locator.c) is the
 * one that a search of all chunks finds, for segments of up to 64 rows: of 3 and 4 coordinates, in
 * zigzag and by shares of both rules.
 *
 * cbmc: src/layout/cut.c --unwind 9 -DN=3 -DZIGZAG=0 -DCHUNKED=0
 * cbmc: src/layout/cut.c --unwind 9 -DN=3 -DZIGZAG=0 -DCHUNKED=1
 * cbmc: src/layout/cut.c --unwind 9 -DN=3 -DZIGZAG=1 -DCHUNKED=0
 * cbmc: src/layout/cut.c --unwind 9 -DN=4 -DZIGZAG=1 -DCHUNKED=0 */
#include "layout/locator.c"
#include "proofs/proofs.h"

#define ROWS 64

int64_t lierne_packed_share(const lierne_packed *packed, int64_t length, int c) {
    const lierne_placement p = {.share = packed->share};
    return lierne_share_start(&p, length, packed->ncuts, c);
}

/* The first offset of the k-th chunk. */
static int64_t start_of(const lierne_packed *p, int64_t length, int k) {
    return ZIGZAG ? length / (2 * N) * k : lierne_packed_share(p, length, k);
}

int main(void) {
    lierne_packed p = {.ncuts = N, .zigzag = ZIGZAG};
    p.share = CHUNKED ? LIERNE_SHARE_RULE_CHUNK : LIERNE_SHARE_RULE_BALANCED;
    int64_t length = any_int64(1, ROWS), offset = any_int64(0, ROWS - 1);
    int k = 0, chunks = ZIGZAG ? 2 * N : N;
    ASSUME(offset < length && (!ZIGZAG || length % (2 * N) == 0));
    while (start_of(&p, length, k + 1) <= offset) {
        k++;
    }
    const chunk at = find_chunk(&p, length, offset);
    assert(k < chunks);
    assert(at.coord == (ZIGZAG && k >= N ? 2 * N - 1 - k : k));
    assert(at.start == start_of(&p, length, k) && at.end == start_of(&p, length, k + 1));
    assert(at.before == (ZIGZAG && k >= N ? length / (2 * N) : 0));
}
