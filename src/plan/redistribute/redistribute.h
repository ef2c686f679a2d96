/* The one planner of layout to layout: what each rank sends and receives so that a tensor held in
 * one layout comes to be held in another. Builders say which layouts; nothing here knows why. */
#ifndef LIERNE_REDISTRIBUTE_H
#define LIERNE_REDISTRIBUTE_H

#include "layout/layout.h"
#include "route/route.h"

/* Plans one rank's part. The route's in is the rank's buffer under `from`, its out the one under
 * `to`; two stages are added at most. Every rank that needs an element receives it once, unless it
 * holds it; where `from` has PARTIAL dims, the summands of an element are added in ascending order
 * of their coordinates. Both layouts have the same shape; `to` has no PARTIAL dim. nodes: of every
 * rank, or NULL. min_elements: this rank's share of what must be received at least.
 * Costs time and memory in proportion to the ranks that the rank has data in common with. */
lierne_status lierne_redistribute(lierne_route *route, const lierne_layout *from,
                                  const lierne_layout *to, const int *nodes, int64_t *min_elements);

#endif
