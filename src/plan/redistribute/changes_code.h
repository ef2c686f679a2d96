/* What encoding and decoding share. */
#ifndef LIERNE_CHANGES_CODE_H
#define LIERNE_CHANGES_CODE_H

#include "plan/redistribute/changes.h"

#include <string.h>

enum {
    GAPS = LIERNE_CHANGE_GAPS,
    MAP = LIERNE_CHANGE_MAP,
    DENSE = LIERNE_CHANGE_DENSE,
    FORMS = LIERNE_CHANGE_FORMS,
    WORD = 64,
    PIECE_WORDS = LIERNE_CHANGE_BYTES / WORD,
    HEAD = 3
};

static inline size_t piece_of(size_t n, size_t size) {
    size_t most = LIERNE_CHANGE_BYTES / size;
    return n < most ? n : most;
}

static inline int parameter(size_t n, size_t count) {
    return lierne_change_parameter((int32_t)n, (int32_t)count);
}

/* memcpy of a length that the compiler knows. */
static inline void copy(unsigned char *to, const unsigned char *from, size_t size) {
    switch (size) {
    case 1:
        *to = *from;
        break;
    case 2:
        memcpy(to, from, 2);
        break;
    case 4:
        memcpy(to, from, 4);
        break;
    default:
        memcpy(to, from, 8);
    }
}

#endif
