/* What moves inside nodes and between them, counted over the routes: a node's bytes are those of
 * its ranks. */
#include "plan.h"

#include <inttypes.h>
#include <stdlib.h>

struct plan_nodes {
    int64_t between; /* received from other nodes */
    int64_t inside;  /* received from other ranks of the node */
    int64_t most_sent;
    int64_t most_received;
    int64_t most_of_rank;
    lierne_node_bound bound;
    int64_t *sent; /* of each node, to others */
    int64_t *received;
};

static lierne_status open_direction(plan_summary *summary, lierne_direction d, size_t n) {
    plan_nodes *nodes = summary->cost[d].nodes = calloc(1, sizeof *nodes);
    if (!nodes) {
        return LIERNE_ERR_NO_MEMORY;
    }
    nodes->bound.size = sizeof nodes->bound;
    nodes->sent = calloc(n, sizeof *nodes->sent);
    nodes->received = calloc(n, sizeof *nodes->received);
    return nodes->sent && nodes->received ? LIERNE_OK : LIERNE_ERR_NO_MEMORY;
}

/* The bounds of both directions, which are those of all ranks. */
static lierne_status query_bounds(plan_summary *summary, const int *of) {
    lierne_layout *src, *dst, *gradient;
    lierne_status status =
        lierne_layout_create_bridge(&src, &dst, &gradient, &summary->bridge->spec);
    for (int d = LIERNE_DIRECTION_FORWARD; status == LIERNE_OK && d <= LIERNE_DIRECTION_ADJOINT;
         d++) {
        status = lierne_redistribute_get_node_bound(&summary->cost[d].nodes->bound,
                                                    d ? gradient : src, d ? src : dst, of);
    }
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_layout_destroy(gradient);
    return status;
}

lierne_status plan_nodes_open(plan_summary *summary) {
    const int *of = lierne_config_get_nodes(summary->bridge->config);
    lierne_status status = LIERNE_OK;
    int most = 0;
    for (int rank = 0; of && rank < summary->bridge->world; rank++) {
        most = of[rank] > most ? of[rank] : most;
    }
    for (int d = LIERNE_DIRECTION_FORWARD;
         of && status == LIERNE_OK && d <= LIERNE_DIRECTION_ADJOINT; d++) {
        status = open_direction(summary, (lierne_direction)d, (size_t)most + 1);
    }
    return of && status == LIERNE_OK && summary->only < 0 ? query_bounds(summary, of) : status;
}

void plan_nodes_close(plan_summary *summary) {
    for (int d = LIERNE_DIRECTION_FORWARD; d <= LIERNE_DIRECTION_ADJOINT; d++) {
        plan_nodes *nodes = summary->cost[d].nodes;
        if (nodes) {
            free(nodes->sent);
            free(nodes->received);
        }
        free(nodes);
    }
}

static void raise_to(int64_t *most, int64_t value) {
    *most = value > *most ? value : *most;
}

/* Elements of messages with ranks of other nodes; *all: with any. */
static int64_t count(const lierne_messages *messages, const int *of, int rank, int64_t *all) {
    int64_t others = 0;
    for (size_t m = 0; m < messages->count; m++) {
        *all += messages->at[m].elements;
        others += of[messages->at[m].peer] == of[rank] ? 0 : messages->at[m].elements;
    }
    return others;
}

lierne_status plan_nodes_add(plan_summary *summary, const lierne_plan *plan, int rank,
                             lierne_direction direction) {
    const lierne_route *route;
    plan_nodes *nodes = summary->cost[direction].nodes;
    const int *of = lierne_config_get_nodes(summary->bridge->config);
    int64_t bytes = (int64_t)lierne_dtype_size(summary->bridge->spec.dtype);
    int64_t sent = 0, received = 0, all_sent = 0, all = 0;
    lierne_status status = lierne_plan_get_route(&route, plan, direction);
    if (!nodes || status != LIERNE_OK) {
        return status;
    }
    for (size_t i = 0; i < route->stages.count; i++) {
        sent += bytes * count(&route->stages.at[i].sends, of, rank, &all_sent);
        received += bytes * count(&route->stages.at[i].recvs, of, rank, &all);
    }
    nodes->sent[of[rank]] += sent;
    nodes->received[of[rank]] += received;
    nodes->between += received;
    nodes->inside += all * bytes - received;
    raise_to(&nodes->most_sent, nodes->sent[of[rank]]);
    raise_to(&nodes->most_received, nodes->received[of[rank]]);
    raise_to(&nodes->most_of_rank, received);
    return LIERNE_OK;
}

/* What is not between nodes is inside, if all that must cross does so once. */
static int64_t least_inside(const plan_cost *cost) {
    return cost->min_bytes - cost->nodes->bound.between_bytes;
}

void plan_nodes_json(const plan_cost *cost, bool bounds) {
    const plan_nodes *n = cost->nodes;
    printf(",\"between_nodes_bytes\":%" PRId64 ",\"inside_nodes_bytes\":%" PRId64
           ",\"max_node_sent_bytes\":%" PRId64 ",\"max_node_received_bytes\":%" PRId64
           ",\"max_rank_from_nodes_bytes\":%" PRId64,
           n->between, n->inside, n->most_sent, n->most_received, n->most_of_rank);
    if (bounds) {
        printf(",\"bound_between_nodes_bytes\":%" PRId64 ",\"bound_inside_nodes_bytes\":%" PRId64
               ",\"bound_node_sent_bytes\":%" PRId64 ",\"bound_node_received_bytes\":%" PRId64
               ",\"bound_rank_from_nodes_bytes\":%" PRId64,
               n->bound.between_bytes, least_inside(cost), n->bound.sent_bytes,
               n->bound.received_bytes, n->bound.rank_received_bytes);
    }
}

typedef struct line {
    const char *name;
    int64_t bytes[2];
    int64_t bound[2];
} line;

void plan_nodes_text_rank(const plan_cost cost[2]) {
    const plan_nodes *f = cost[0].nodes, *a = cost[1].nodes;
    const int64_t from[] = {f->between, a->between}, inside[] = {f->inside, a->inside};
    const int64_t to[] = {f->most_sent, a->most_sent};
    plan_print_bytes("received from other nodes", from, NULL);
    plan_print_bytes("received inside the node", inside, NULL);
    plan_print_bytes("sent to other nodes", to, NULL);
}

void plan_nodes_text(const plan_cost cost[2]) {
    line lines[] = {{.name = "between nodes"},
                    {.name = "inside nodes"},
                    {.name = "most sent by a node"},
                    {.name = "most received by a node"},
                    {.name = "most a rank gets from nodes"}};
    for (int d = 0; d < 2; d++) {
        const plan_nodes *n = cost[d].nodes;
        const int64_t bytes[] = {n->between, n->inside, n->most_sent, n->most_received,
                                 n->most_of_rank};
        const int64_t bound[] = {n->bound.between_bytes, least_inside(&cost[d]),
                                 n->bound.sent_bytes, n->bound.received_bytes,
                                 n->bound.rank_received_bytes};
        for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
            lines[i].bytes[d] = bytes[i];
            lines[i].bound[d] = bound[i];
        }
    }
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        plan_print_bytes(lines[i].name, lines[i].bytes, lines[i].bound);
    }
}
