/* Which ranks have which elements, and what follows from that alone: formulas that bounds are
 * compared with. */
#ifndef HOLDING_H
#define HOLDING_H

#include "unit/random_case.h"
#include "unit/redistribute_case.h"

#include <stdbool.h>

enum { HOLDING_MOST = 600 }; /* elements of a case */

/* Of each element of a tensor of at most HOLDING_MOST: the ranks that have it under a layout, a
 * bit each. ranks is zero before. */
void holding_find(const lierne_layout *layout, const redistribute_case *c, unsigned *ranks);
int64_t holding_elements(const redistribute_case *c);
/* Whether the source has more than one contribution. */
bool holding_has_partial(const redistribute_case *c);

/* The least that the busiest of world ranks sends of n elements: of every element that is needed
 * and not held one copy comes from those that hold it, the others also from those that get it. */
int64_t holding_most_sent(const unsigned *have, const unsigned *need, int64_t n, int world);

/* Makes the tensor of a bridge so large that each dp rank has 64 KiB. */
void holding_enlarge(bridge_case *c);

#endif
