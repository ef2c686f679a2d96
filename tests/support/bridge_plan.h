/* The cases of bridge_model.h as specs and plans of the library. */
#ifndef LIERNE_TESTS_BRIDGE_PLAN_H
#define LIERNE_TESTS_BRIDGE_PLAN_H

#include "bridge_model.h"

/* A bridge of f32 [b, s, h] between two grids, all else as default. shape is kept, not copied. */
lierne_bridge_spec bridge_spec_of(const lierne_grid *src, const lierne_grid *dst,
                                  const int64_t *shape);

/* A sample of [4, hidden] f32 per rank, from dp ranks of their own to the mesh dst. */
bridge_case case_of_samples(int world, int hidden, mesh dst);

/* A rank's plan of a case. Collective. */
lierne_status case_plan(lierne_plan **plan, lierne_context *context, const bridge_case *c);

/* lierne_redistribute_get_bound of a direction, in bytes. */
lierne_status case_bound(const bridge_case *c, lierne_direction d, int64_t *received,
                         int64_t *sent);
/* lierne_redistribute_get_node_bound of a direction, with the nodes of the case. */
lierne_status case_node_bound(const bridge_case *c, lierne_direction d, lierne_node_bound *bound);

/* "tp2cp1dp4@0 -> ..." with everything else, for messages; in a static buffer. */
const char *case_text(const bridge_case *c);

#endif
