/* The gradients of margins. */
#ifndef LIERNE_HALO_TERMS_H
#define LIERNE_HALO_TERMS_H

#include "plan/redistribute/planner.h"

/* Adds what p->margins has in its margins to the gradients that the route delivers, of the rank's
 * cells: from of p->margins, to of p->to; either may be NULL. Sets the least elements. */
lierne_status lierne_add_terms(lierne_planner *p, const lierne_cell *from, const lierne_cell *to);

#endif
