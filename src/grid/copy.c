/* A view as a grid of its own, for planners that work on one factorisation of the ranks. */
#include "grid/grid.h"

lierne_status lierne_grid_copy_view(lierne_grid **out, const lierne_grid *grid, const char *view) {
    int64_t sizes[LIERNE_MAX_DIMS];
    const lierne_view *v;
    *out = NULL;
    LIERNE_TRY(lierne_view_get(&v, grid, view));
    for (int d = 0; d < v->ndims; d++) {
        sizes[d] = v->sizes[d];
    }
    const lierne_grid_spec spec = {.size = sizeof spec,
                                   .ndims = v->ndims,
                                   .names = (const char *const *)v->names,
                                   .sizes = sizes,
                                   .rank_offset = grid->offset,
                                   .name = grid->name,
                                   .world_size = grid->world};
    return lierne_grid_create(out, &spec);
}
