/* Who sends how much to whom, as a matrix of at most 64 cells on a side. */
#ifndef LIERNE_TOOL_MATRIX_H
#define LIERNE_TOOL_MATRIX_H

#include "svg.h"

#include <stddef.h>

/* Of one rank to another; several of a pair are added up. */
typedef struct matrix_entry {
    int from, to;
    int64_t amount;
} matrix_entry;

typedef struct matrix_input {
    const matrix_entry *at;
    size_t count;
    int64_t messages;
    int world;
    const int *nodes; /* of each rank, or NULL */
    const char *unit; /* "rows"; NULL: bytes */
} matrix_input;

/* From y on downwards. */
void matrix_draw(svg *s, int y, const matrix_input *input);

#endif
