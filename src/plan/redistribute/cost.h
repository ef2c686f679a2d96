/* What the routings of balanced overlaps take. */
#ifndef LIERNE_COST_H
#define LIERNE_COST_H

#include "plan/redistribute/balance.h"

/* Estimates by p->links, in nanoseconds: *direct of one stage, or two with sums; *balanced of what
 * b has. The same on all ranks of the overlaps. */
lierne_status lierne_cost_compare(int64_t *direct, int64_t *balanced, const lierne_planner *p,
                                  const lierne_balance *b);

#endif
