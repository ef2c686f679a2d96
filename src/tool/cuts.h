/* How the dims of a layout cut an axis, without the library's formulas. */
#ifndef LIERNE_TOOL_CUTS_H
#define LIERNE_TOOL_CUTS_H

#include "lierne/layout.h"

#include <stdbool.h>

int cut_ndims(const lierne_layout_spec *spec);
int cut_size(const lierne_layout_spec *spec, int d);
/* Whether a dim cuts an axis in shares or zigzag. */
bool cut_is_of(const lierne_placement *p, int axis);

/* Whose index k of n is: of shares that differ by one at most, and of a zigzag. */
int64_t cut_share_of(int64_t n, int64_t shares, int64_t k);
int64_t cut_zigzag_of(int64_t n, int64_t ranks, int64_t k);

/* What the dims that cut an axis leave of n positions, the slowest first: positions [0, n) in keep.
 * Returns how many. */
int64_t cut_positions(int64_t *keep, int64_t n, const lierne_layout_spec *spec, const int *coords,
                      int axis);

#endif
