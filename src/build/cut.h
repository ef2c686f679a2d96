/* Where what passes between two ranks is cut into messages of their own. */
#ifndef LIERNE_CUT_H
#define LIERNE_CUT_H

#include "layout/layout.h"

/* The slowest axis from which on a box of this size lies in one piece at one end at least, in
 * buffers of these shapes; *elements: of such a piece. */
int lierne_cut_axis(int naxes, const int64_t *size, const int64_t *mine, const int64_t *theirs,
                    int64_t *elements);

/* The first piece of a box that is cut at an axis, and the one after it; false after the last. */
lierne_overlap lierne_cut_first(const lierne_overlap *box, int axis);
bool lierne_cut_next(lierne_overlap *piece, const lierne_overlap *box, int axis);

#endif
