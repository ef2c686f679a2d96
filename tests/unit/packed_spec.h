/* Three packed segments on four ranks, for tests of what is rejected. */
#ifndef PACKED_SPEC_H
#define PACKED_SPEC_H

#include "lierne.h"
#include "lierne/sim.h"

/* Three segments of 6, 3 and 7 tokens, padded for a cp of 2, as [tokens, 2]: a grid of cp x dp. */
typedef struct packed_spec {
    int64_t cu[4];
    int64_t padded[4];
    int64_t order[3];
    int64_t lead[3];
    int32_t owner[3];
    int64_t shape[2];
    lierne_segments segments;
    lierne_packing packing;
    lierne_placement placements[2];
    lierne_grid *grid;
    lierne_layout_spec spec;
} packed_spec;

void packed_spec_open(packed_spec *s);
lierne_layout *packed_spec_layout(packed_spec *s);

/* Four ranks of one thread, and a plan of each. */
typedef struct packed_world {
    lierne_sim *sim;
    lierne_plan *plans[4];
} packed_world;

void packed_world_open(packed_world *w);
void packed_world_close(packed_world *w);
lierne_status packed_world_plan_rank(packed_world *w, int rank, const lierne_layout *src,
                                     const lierne_layout *dst);
/* Opens the world; plans on each rank until one fails. */
lierne_status packed_world_plan(packed_world *w, const lierne_layout *src,
                                const lierne_layout *dst);

#endif
