/* The buffers of a redistribution of a file, counted out without the library's formulas. */
#ifndef LIERNE_TOOL_REDISTRIBUTION_ROWS_H
#define LIERNE_TOOL_REDISTRIBUTION_ROWS_H

#include "lierne/layout.h"

#include <stdbool.h>

/* The positions of one axis of a rank's buffer. */
typedef struct redistribution_axis {
    int64_t n, room;
    int64_t *element; /* of the axis that each shows, or -1 */
    bool *core;
    /* Of each window: where its zones lo, core and hi begin, and where it ends. */
    int64_t nwindows;
    int64_t (*zones)[4];
    bool halo;
} redistribution_axis;

/* Those of a rank with these coordinates. False: no memory. close in any case. */
bool redistribution_axis_open(redistribution_axis *l, const lierne_layout_spec *spec,
                              const int *coords, int axis);
void redistribution_axis_close(redistribution_axis *l);

/* The places of the buffer of a rank that has these coordinates: the number of the element that
 * each shows, row-major in the whole tensor, or -1. Of a source, margins show none. The list is the
 * caller's. False: no memory. */
bool redistribution_places(int64_t **out, int64_t *count, const lierne_layout_spec *spec,
                           const int *coords, bool source);

#endif
