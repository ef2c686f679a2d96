/* A box that lies apart in a buffer would have to be packed; a piece of it that does not lie apart
 * is sent from and received into its place. So boxes are cut into the pieces of the end where they
 * are longer: that end then packs nothing, and the other end packs piece by piece, if at all. */
#include "build/cut.h"

/* The slowest axis from which on a box lies in one piece. */
static int solid_axis(int naxes, const int64_t *size, const int64_t *shape) {
    int a = naxes - 1;
    while (a > 0 && size[a] == shape[a]) {
        a--;
    }
    return a;
}

int lierne_cut_axis(int naxes, const int64_t *size, const int64_t *mine, const int64_t *theirs,
                    int64_t *elements) {
    int a = solid_axis(naxes, size, mine), b = solid_axis(naxes, size, theirs);
    int axis = a < b ? a : b;
    *elements = 1;
    for (int d = axis; d < naxes; d++) {
        *elements *= size[d];
    }
    return axis;
}

lierne_overlap lierne_cut_first(const lierne_overlap *box, int axis) {
    lierne_overlap piece = *box;
    for (int a = 0; a < axis; a++) {
        piece.size[a] = 1;
    }
    return piece;
}

bool lierne_cut_next(lierne_overlap *piece, const lierne_overlap *box, int axis) {
    for (int a = axis - 1; a >= 0; a--) {
        piece->start[a]++;
        piece->local_a[a]++;
        piece->local_b[a]++;
        if (piece->start[a] < box->start[a] + box->size[a]) {
            return true;
        }
        piece->start[a] = box->start[a];
        piece->local_a[a] = box->local_a[a];
        piece->local_b[a] = box->local_b[a];
    }
    return false;
}
