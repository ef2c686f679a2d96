/* A box that is not contiguous in a buffer must be packed there; a contiguous piece of it is sent
 * from and received into its place. So boxes are cut into the contiguous pieces of the end where
 * these are longer: that end packs nothing, and the other end packs piece by piece, if at all.
 * Where it does, pieces are short enough that what was received is unpacked while the cache has it.
 */
#include "plan/redistribute/chunk.h"

/* The slowest axis from which on a box lies in one piece. */
static int solid_axis(int naxes, const int64_t *size, const int64_t *shape) {
    int a = naxes - 1;
    while (a > 0 && size[a] == shape[a]) {
        a--;
    }
    return a;
}

lierne_chunking lierne_chunking_of(int naxes, const int64_t *size, const int64_t *mine,
                                   const int64_t *theirs, int64_t window) {
    int a = solid_axis(naxes, size, mine), b = solid_axis(naxes, size, theirs);
    lierne_chunking cut = {.axis = a < b ? a : b, .elements = 1};
    for (int d = cut.axis; d < naxes; d++) {
        cut.elements *= size[d];
    }
    cut.lines = size[cut.axis];
    if (a != b && cut.elements > 2 * window) {
        int64_t line = cut.elements / cut.lines;
        cut.lines = line < window ? window / line : 1;
    }
    return cut;
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

lierne_overlap lierne_chunking_first(const lierne_overlap *box, const lierne_chunking *cut) {
    lierne_overlap piece = *box;
    for (int a = 0; a < cut->axis; a++) {
        piece.size[a] = 1;
    }
    piece.size[cut->axis] = smaller(cut->lines, box->size[cut->axis]);
    return piece;
}

bool lierne_chunking_next(lierne_overlap *piece, const lierne_overlap *box,
                          const lierne_chunking *cut) {
    for (int a = cut->axis; a >= 0; a--) {
        int64_t step = piece->size[a], end = box->start[a] + box->size[a];
        piece->start[a] += step;
        piece->local_a[a] += step;
        piece->local_b[a] += step;
        if (piece->start[a] < end) {
            piece->size[a] = smaller(step, end - piece->start[a]);
            return true;
        }
        piece->start[a] = box->start[a];
        piece->local_a[a] = box->local_a[a];
        piece->local_b[a] = box->local_b[a];
        piece->size[a] = a == cut->axis ? smaller(cut->lines, box->size[a]) : 1;
    }
    return false;
}
