/* Who sums what. */
#ifndef LIERNE_REDUCERS_H
#define LIERNE_REDUCERS_H

#include "plan/redistribute/balance.h"

/* Whether a rank holds a contribution to an overlap. */
bool lierne_shared_holds(const lierne_planner *p, const lierne_shared *s, int rank);
/* Where a member stands among all of them. */
int lierne_balance_index(const lierne_balance *b, int rank);
/* Cuts of a range among so many parts are made at multiples of this many elements: of rows, where
 * these are short enough. */
int64_t lierne_shared_grain(const lierne_planner *p, const lierne_shared *s, int64_t size,
                            size_t parts);

/* Lists who sums an overlap: receivers that hold a contribution, if there are any; where that moves
 * no more, each receiver sums for itself, and nothing is divided. */
lierne_status lierne_reducers_list(lierne_balance *b, const lierne_planner *p, lierne_shared *s);
/* Divides the sums of all overlaps among their reducers, whose sizes are those that suit the
 * senders; sets b->received. loose: for them, the busiest receiver may have more than else. */
lierne_status lierne_reducers_divide(lierne_balance *b, const lierne_planner *p, bool loose);

#endif
