/* See packed_spec.h. */
#include "unit/packed_spec.h"

#include "mesh.h"
#include "unit/expect.h"

#include <criterion/criterion.h>

void packed_spec_open(packed_spec *s) {
    const mesh dims = {.ndims = 2, .names = {"cp", "dp"}, .sizes = {2, 2}};
    *s = (packed_spec){.cu = {0, 6, 9, 16},
                       .padded = {0, 8, 12, 20},
                       .order = {0, 1, 2},
                       .owner = {0, 1, 0},
                       .shape = {16, 2},
                       .placements = {{.kind = LIERNE_PLACEMENT_SEGMENT_ZIGZAG},
                                      {.kind = LIERNE_PLACEMENT_SHARD_SEGMENTS}}};
    s->segments =
        (lierne_segments){.size = sizeof s->segments, .nsegments = 3, .cu_seqlens = s->cu};
    s->packing = (lierne_packing){.size = sizeof s->packing,
                                  .cu_seqlens_padded = s->padded,
                                  .owner = s->owner};
    s->grid = mesh_grid(&dims, 4);
    s->spec = (lierne_layout_spec){.size = sizeof s->spec,
                                   .grid = s->grid,
                                   .naxes = 2,
                                   .shape = s->shape,
                                   .dtype = LIERNE_DTYPE_F32,
                                   .placements = s->placements,
                                   .segments = &s->segments,
                                   .packing = &s->packing};
}

lierne_layout *packed_spec_layout(packed_spec *s) {
    lierne_layout *layout;
    assert_ok(lierne_layout_create(&layout, &s->spec));
    return layout;
}

void packed_world_open(packed_world *w) {
    *w = (packed_world){0};
    assert_ok(lierne_sim_create(&w->sim, 4, NULL));
}

lierne_status packed_world_plan_rank(packed_world *w, int rank, const lierne_layout *src,
                                     const lierne_layout *dst) {
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    return lierne_plan_create_redistribute(&w->plans[rank], lierne_sim_get_context(w->sim, rank),
                                           &spec);
}

lierne_status packed_world_plan(packed_world *w, const lierne_layout *src,
                                const lierne_layout *dst) {
    lierne_status status = LIERNE_OK;
    packed_world_open(w);
    for (int r = 0; r < 4 && status == LIERNE_OK; r++) {
        status = packed_world_plan_rank(w, r, src, dst);
    }
    return status;
}

void packed_world_close(packed_world *w) {
    for (int r = 0; r < 4; r++) {
        (void)lierne_plan_destroy(w->plans[r]);
    }
    (void)lierne_sim_destroy(w->sim);
}
