/* A simulated world whose ranks have planned a case of collective_case.h, over the transports and
 * on the streams that the environment asks for. */
#ifndef COLLECTIVE_WORLD_H
#define COLLECTIVE_WORLD_H

#include "streams.h"
#include "transports.h"
#include "unit/collective_case.h"

typedef struct collective_world {
    const collective_case *c;
    int n;
    lierne_sim *sim;
    lierne_plan *plans[COLLECTIVE_RANKS];
    test_transports *transports;
    test_streams *streams;
} collective_world;

/* n: ranks of the world, of which those of the case are some. c must stay where it is. */
void collective_world_open(collective_world *w, const collective_case *c, int n);
void collective_world_close(collective_world *w);

#endif
