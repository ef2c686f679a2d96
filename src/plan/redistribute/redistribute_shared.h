/* Routes whose output is one for all ranks of a node that need the same. */
#ifndef LIERNE_REDISTRIBUTE_SHARED_H
#define LIERNE_REDISTRIBUTE_SHARED_H

#include "plan/redistribute/planner.h"

/* Before the overlaps are planned. own: the rank's cell of the destination, or NULL. */
lierne_status lierne_shared_begin(lierne_planner *p, const lierne_cell *own);
/* Adds the part at work to what this rank writes. */
lierne_status lierne_shared_add_part(const lierne_planner *p, const lierne_cell_overlap *x);
/* After the last stage. */
lierne_status lierne_shared_end(const lierne_planner *p);

#endif
