/* How the data that one rank sends to another is cut into messages. */
#ifndef LIERNE_CHUNK_H
#define LIERNE_CHUNK_H

#include "layout/layout.h"

/* Pieces of a box: of the axes before `axis` one index each, of it `lines`, of those after it all.
 */
typedef struct lierne_chunking {
    int axis;
    int64_t lines;
    int64_t elements; /* of a piece that lies in one piece at one end at least */
} lierne_chunking;

/* Cuts a box of this size in buffers of these shapes at the slowest axis from which on it lies in
 * one piece at one end at least; where that is one end only, into pieces of about window elements.
 */
lierne_chunking lierne_chunking_of(int naxes, const int64_t *size, const int64_t *mine,
                                   const int64_t *theirs, int64_t window);

/* The first piece of a box, and the one after it; false after the last. */
lierne_overlap lierne_chunking_first(const lierne_overlap *box, const lierne_chunking *cut);
bool lierne_chunking_next(lierne_overlap *piece, const lierne_overlap *box,
                          const lierne_chunking *cut);

#endif
