/* Bytes are counted over the routes that lierne plan has. Those of an order are the routes of the
 * same bridge on a grid with the dims in that order. */
#include "advise.h"

#include <string.h>

int64_t advise_bytes(const advise_order *order) {
    return order->bytes[LIERNE_DIRECTION_FORWARD] + order->bytes[LIERNE_DIRECTION_ADJOINT];
}

int64_t advise_between(const advise_order *order) {
    return order->between[LIERNE_DIRECTION_FORWARD] + order->between[LIERNE_DIRECTION_ADJOINT];
}

static void count_messages(const advice *a, advise_order *order, int d, int rank,
                           const lierne_messages *messages) {
    int64_t bytes = (int64_t)lierne_dtype_size(a->bridge->spec.dtype);
    for (size_t m = 0; m < messages->count; m++) {
        const lierne_message *message = &messages->at[m];
        bool other = a->nodes && a->nodes[message->peer] != a->nodes[rank];
        order->bytes[d] += bytes * message->elements;
        order->between[d] += other ? bytes * message->elements : 0;
    }
}

static lierne_status count_direction(const advice *a, advise_order *order, int d, int rank,
                                     const lierne_plan *plan) {
    const lierne_route *route;
    lierne_status status = lierne_plan_get_route(&route, plan, (lierne_direction)d);
    for (size_t i = 0; status == LIERNE_OK && i < route->stages.count; i++) {
        count_messages(a, order, d, rank, &route->stages.at[i].recvs);
    }
    return status;
}

static lierne_status count_rank(const advice *a, advise_order *order, int rank,
                                const lierne_bridge_spec *spec) {
    lierne_report report = {.size = sizeof report};
    lierne_plan *plan;
    lierne_status status =
        tool_bridge_plan(&plan, lierne_sim_get_context(a->sim, rank), NULL, spec, TOOL_DIRECT);
    for (int d = LIERNE_DIRECTION_FORWARD; status == LIERNE_OK && d <= LIERNE_DIRECTION_ADJOINT;
         d++) {
        status = lierne_plan_get_report(&report, plan, (lierne_direction)d);
        order->balanced |= status == LIERNE_OK && strcmp(report.algorithm, "balanced") == 0;
        status = status == LIERNE_OK ? count_direction(a, order, d, rank, plan) : status;
    }
    lierne_plan_destroy(plan);
    return status;
}

static lierne_status create_grid(lierne_grid **grid, const advice *a, const int *dims) {
    const char *names[LIERNE_MAX_DIMS];
    int64_t sizes[LIERNE_MAX_DIMS];
    for (int d = 0; d < a->ndims; d++) {
        names[d] = lierne_grid_get_dim_name(a->grid, a->view, dims[d]);
        sizes[d] = lierne_grid_get_dim_size(a->grid, a->view, dims[d]);
    }
    const lierne_grid_spec spec = {.size = sizeof spec,
                                   .ndims = a->ndims,
                                   .names = names,
                                   .sizes = sizes,
                                   .rank_offset = lierne_grid_get_rank_offset(a->grid),
                                   .world_size = lierne_grid_get_world_size(a->grid)};
    return lierne_grid_create(grid, &spec);
}

lierne_status advise_count(const advice *a, advise_order *order) {
    lierne_bridge_spec spec = a->bridge->spec;
    const lierne_placement **given = a->dst ? &spec.dst_placements : &spec.src_placements;
    lierne_placement placements[LIERNE_MAX_DIMS];
    lierne_grid *grid;
    for (int d = 0; *given && d < a->ndims; d++) {
        placements[d] = (*given)[order->dims[d]];
    }
    *given = *given ? placements : NULL;
    lierne_status status = create_grid(&grid, a, order->dims);
    *(a->dst ? &spec.dst : &spec.src) = grid;
    *(a->dst ? &spec.dst_view : &spec.src_view) = NULL;
    if (status == LIERNE_OK) {
        status = lierne_bridge_check(&spec); /* sim would keep the first rank's error */
    }
    for (int rank = 0; status == LIERNE_OK && rank < a->bridge->world; rank++) {
        status = count_rank(a, order, rank, &spec);
    }
    lierne_grid_destroy(grid);
    return status;
}
