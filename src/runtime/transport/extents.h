/* Space in chunks of memory: which bytes of them are taken. Memory that peers reach is given out so
 * (heap.h, segments of shm, windows of devices); who owns a chunk says how it is made. */
#ifndef LIERNE_EXTENTS_H
#define LIERNE_EXTENTS_H

#include "base/base.h"

/* Bytes offset to offset + bytes - 1. */
typedef struct lierne_extent {
    uint64_t offset;
    uint64_t bytes;
} lierne_extent;

/* Those that are taken, by offset; none overlaps another one. */
typedef LIERNE_VEC(lierne_extent) lierne_extents;

/* Makes space in the list for one more. Errors: NO_MEMORY. */
lierne_status lierne_extents_reserve(lierne_extents *taken);
/* Takes the first gap of a chunk that has so many bytes, at least 1, after a reserve; *offset is
 * where. Returns false where there is none. */
bool lierne_extents_take(lierne_extents *taken, lierne_extent chunk, uint64_t bytes,
                         uint64_t *offset);
/* Gives back the one that begins at offset, and writes it to *given, which may be NULL; false:
 * there is none. */
bool lierne_extents_give(lierne_extents *taken, uint64_t offset, lierne_extent *given);
/* Whether some byte of a chunk is taken. A chunk may be freed where none is: what a peer or a
 * stream may still use is never given back. */
bool lierne_extents_use(const lierne_extents *taken, lierne_extent chunk);

#endif
