#include "plan/megatron/megatron.h"

lierne_status lierne_megatron_grids_create(lierne_megatron_grids *grids,
                                           const lierne_bridge_spec *given) {
    lierne_bridge_spec own, *spec = &own;
    *grids = (lierne_megatron_grids){0};
    LIERNE_TRY(lierne_spec_take(spec, sizeof *spec, given, "spec"));
    LIERNE_TRY(lierne_bridge_check_grids(spec));
    LIERNE_TRY(lierne_grid_copy_view(&grids->src, spec->src, spec->src_view));
    return lierne_grid_copy_view(&grids->dst, spec->dst, spec->dst_view);
}

void lierne_megatron_grids_destroy(lierne_megatron_grids *grids) {
    lierne_grid_destroy(grids->src);
    lierne_grid_destroy(grids->dst);
}
