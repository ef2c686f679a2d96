/* Layouts and redistributions of tests in one call: tensors of any shape, with a placement per dim.
 * NULL or an error: lierne_last_error. */
#ifndef LIERNE_TESTS_LAYOUTS_H
#define LIERNE_TESTS_LAYOUTS_H

#include "mesh.h"

#include "lierne/redistribute.h"

/* A layout on a grid, and one on a grid of its own in a world of this many ranks. */
lierne_layout *layout_on(const lierne_grid *grid, lierne_dtype dtype, int naxes,
                         const int64_t *shape, const lierne_placement *placements);
lierne_layout *layout_over(const mesh *dims, int world, lierne_dtype dtype, int naxes,
                           const int64_t *shape, const lierne_placement *placements);

/* Of an i64 tensor [tokens, width], whose axis 0 is packed and cut over the one dim of the grid. */
lierne_layout *layout_packed(const lierne_grid *grid, const lierne_segments *segments,
                             const lierne_packing *packing, lierne_placement_kind kind,
                             int64_t width);

/* A plan between two layouts over these dims, with max_inflight requests. Collective. */
lierne_status plan_between(lierne_plan **plan, lierne_context *context, const mesh *dims,
                           lierne_dtype dtype, int naxes, const int64_t *shape,
                           const lierne_placement *from, const lierne_placement *to, int requests);

#endif
