/* What has no grid or layout is rejected by the call that gets it, so no caller need look. */
#include "layouts.h"

#include "lierne/context.h"

lierne_layout *layout_on(const lierne_grid *grid, lierne_dtype dtype, int naxes,
                         const int64_t *shape, const lierne_placement *placements) {
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = naxes,
                                     .shape = shape,
                                     .dtype = dtype,
                                     .placements = placements};
    lierne_layout *layout = NULL;
    lierne_layout_create(&layout, &spec);
    return layout;
}

lierne_layout *layout_packed(const lierne_grid *grid, const lierne_segments *segments,
                             const lierne_packing *packing, lierne_placement_kind kind,
                             int64_t width) {
    const int64_t shape[2] = {segments->cu_seqlens[segments->nsegments], width};
    const lierne_placement placement = {.kind = kind};
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = 2,
                                     .shape = shape,
                                     .dtype = LIERNE_DTYPE_I64,
                                     .placements = &placement,
                                     .segments = segments,
                                     .packing = packing};
    lierne_layout *layout = NULL;
    lierne_layout_create(&layout, &spec);
    return layout;
}

lierne_layout *layout_over(const mesh *dims, int world, lierne_dtype dtype, int naxes,
                           const int64_t *shape, const lierne_placement *placements) {
    lierne_grid *grid = mesh_grid(dims, world);
    lierne_layout *layout = layout_on(grid, dtype, naxes, shape, placements);
    lierne_grid_destroy(grid);
    return layout;
}

lierne_status plan_between(lierne_plan **plan, lierne_context *context, const mesh *dims,
                           lierne_dtype dtype, int naxes, const int64_t *shape,
                           const lierne_placement *from, const lierne_placement *to, int requests) {
    int world = lierne_context_get_world_size(context);
    lierne_layout *src = layout_over(dims, world, dtype, naxes, shape, from);
    lierne_layout *dst = layout_over(dims, world, dtype, naxes, shape, to);
    const lierne_redistribute_spec spec = {.size = sizeof spec,
                                           .src = src,
                                           .dst = dst,
                                           .max_inflight = requests};
    lierne_status status = lierne_plan_create_redistribute(plan, context, &spec);
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    return status;
}
