/* The balanced route of a rank. */
#ifndef LIERNE_BALANCED_H
#define LIERNE_BALANCED_H

#include "plan/redistribute/planner.h"

/* Fills the route of a rank, and sets p->balanced, where its routing asks for a balanced one or
 * chooses it. Otherwise the route stays without stages. */
lierne_status lierne_balanced_fill(lierne_planner *p);

#endif
