/* What ranks must send so that overlaps are summed. */
#ifndef LIERNE_SUMS_H
#define LIERNE_SUMS_H

#include "plan/redistribute/balance.h"

/* Sets b->sent, and sizes of reducers with which the busiest sender need not send more. Reducers
 * that send less come first in an overlap. loose: divides sums also where each receiver may as well
 * make them itself, if that suits the senders. */
lierne_status lierne_sums_bound(lierne_balance *b, const lierne_planner *p, bool loose);

#endif
