/* Contiguous bytes of parts, one stretch after the other. */
#ifndef LIERNE_CURSOR_H
#define LIERNE_CURSOR_H

#include "runtime/transport/transport.h"

/* The place that a walk over parts has come to. */
typedef struct lierne_cursor {
    const lierne_part *parts;
    size_t nparts; /* left, from parts on */
    size_t block;
    int64_t outer; /* stretch of the block */
    size_t inner;  /* byte of the stretch */
} lierne_cursor;

lierne_cursor lierne_cursor_at(const lierne_part *parts, size_t nparts);
/* The next bytes that are contiguous, at most `most`, which is not 0; their number, 0 at the end.
 * The bytes of blocks without elements are skipped. */
size_t lierne_cursor_next(lierne_cursor *cursor, char **at, size_t most);

/* Bytes of all parts together, and of their shortest stretch that contiguous loops form; 0 without
 * any. */
size_t lierne_parts_bytes(const lierne_part *parts, size_t nparts);
size_t lierne_parts_stretch(const lierne_part *parts, size_t nparts);

#endif
