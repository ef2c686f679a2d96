/* What crosses between nodes, counted over the routes: a node's bytes are those of its ranks. */
#include "plan.h"

#include <stdlib.h>

bool plan_nodes_open(plan_summary *summary) {
    const int *nodes = lierne_config_get_nodes(summary->bridge->config);
    int most = 0;
    for (int rank = 0; nodes && rank < summary->bridge->world; rank++) {
        most = nodes[rank] > most ? nodes[rank] : most;
    }
    for (int d = LIERNE_FORWARD; nodes && d <= LIERNE_ADJOINT; d++) {
        summary->cost[d].node_sent = calloc((size_t)most + 1, sizeof *summary->cost[d].node_sent);
        if (!summary->cost[d].node_sent) {
            return false;
        }
    }
    return true;
}

void plan_nodes_close(plan_summary *summary) {
    free(summary->cost[LIERNE_FORWARD].node_sent);
    free(summary->cost[LIERNE_ADJOINT].node_sent);
}

lierne_status plan_nodes_add(plan_summary *summary, const lierne_plan *plan, int rank,
                             lierne_direction direction) {
    const lierne_route *route;
    plan_cost *cost = &summary->cost[direction];
    const int *nodes = lierne_config_get_nodes(summary->bridge->config);
    int64_t bytes = (int64_t)lierne_dtype_size(summary->bridge->spec.dtype);
    lierne_status status = lierne_plan_get_route(&route, plan, direction);
    for (size_t i = 0; nodes && status == LIERNE_OK && i < route->stages.count; i++) {
        const lierne_messages *sends = &route->stages.at[i].sends;
        for (size_t m = 0; m < sends->count; m++) {
            int64_t *sent = &cost->node_sent[nodes[rank]];
            if (nodes[sends->at[m].peer] != nodes[rank]) {
                cost->crossing_bytes += sends->at[m].elements * bytes;
                *sent += sends->at[m].elements * bytes;
                cost->max_node_sent = *sent > cost->max_node_sent ? *sent : cost->max_node_sent;
            }
        }
    }
    return status;
}
