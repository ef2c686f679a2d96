/* Which coordinates have a token: the reverse of walking over the tokens of a cell (packed.c).
 *
 * A part of an axis is a combination of coordinates of the dims that cut it, by number: the owner
 * of segments slowest, then the segment cut, then shares of the rows that these leave. */
#ifndef LIERNE_LOCATOR_H
#define LIERNE_LOCATOR_H

#include "layout/packed.h"

/* Rows [start, end) of what a segment cut leaves, which one combination of shares has. */
typedef struct lierne_band {
    int64_t start;
    int64_t end;
    size_t share;
} lierne_band;

typedef struct lierne_locator {
    const lierne_layout *layout;
    const lierne_packed *packed; /* NULL: the axis is an ordinary one, whose tokens are its rows */
    int axis;
    size_t ngroups; /* combinations of an owner and a coordinate of the segment cut */
    size_t nshares;
    size_t nparts;
    /* Only where shares cut what a segment cut leaves: the bands of each group, ascending, which
     * begin at first[group]; the one that was found last; and of each segment the first row of the
     * coordinates of its cut, `width` of them, as these are equal or not. */
    lierne_band *bands;
    size_t *first;
    size_t *found;
    int64_t *rows;
    int64_t *counts;
    size_t width;
} lierne_locator;

/* Whether coordinates follow from a packing or from sizes, on an axis that one side has packed. */
bool lierne_locator_serves(const lierne_layout *layout, int axis);

/* Memory for a layout whose packing has space for so many segments; fill takes what its packing
 * says now, and allocates nothing. To be destroyed also on failure. */
lierne_status lierne_locator_create(lierne_locator *l, const lierne_layout *layout, int axis);
void lierne_locator_fill(lierne_locator *l);
void lierne_locator_destroy(lierne_locator *l);

/* The part of a cell. */
size_t lierne_locator_part(const lierne_locator *l, const lierne_cell *cell);
/* Sets the coordinates of a part in a cell. */
void lierne_locator_cell(const lierne_locator *l, size_t part, lierne_cell *cell);
/* The part that has a token of a segment, and in *end, which is beyond the token and in the segment
 * or its end, where it changes. The segment means nothing where the axis is an ordinary one. */
size_t lierne_locate(lierne_locator *l, int64_t segment, int64_t token, int64_t *end);

/* What alone decides about parts, in the two forms that nearly all layouts have: the chunks of a
 * zigzag of segments, or the bands of rows that follow one another. */
typedef enum lierne_locator_form {
    LIERNE_LOCATOR_ANY,
    LIERNE_LOCATOR_CHUNKS,
    LIERNE_LOCATOR_BANDS
} lierne_locator_form;
lierne_locator_form lierne_locator_form_of(const lierne_locator *l);
/* The band of a group that has a row. */
const lierne_band *lierne_find_band(lierne_locator *l, size_t group, int64_t row);

/* The most rows of a packed axis that any part has in its buffer, which is full or unpadded: found
 * in one pass over the segments. counts: memory for lierne_locator_counts numbers. */
int64_t lierne_locator_most_rows(lierne_locator *l, int64_t *counts);
size_t lierne_locator_counts(const lierne_locator *l);

#endif
