/* Reading a graph. What lierne learns from messages is counted here in the whole graph. */
#include "graph_case.h"

#include <stdlib.h>
#include <string.h>

const cJSON *golden_graph_rank(const cJSON *item, int rank) {
    return cJSON_GetArrayItem(golden_get(item, "ranks"), rank);
}

static void read_owners(golden_graph_case *graph, const cJSON *item) {
    int64_t *owner = golden_read_ints(golden_get(item, "assignment"), &graph->nrows);
    graph->owner = golden_alloc(graph->nrows, sizeof *graph->owner);
    graph->owned = golden_alloc(graph->world, sizeof *graph->owned);
    for (int r = 0; r < graph->world; r++) {
        graph->owned[r] = golden_alloc(graph->nrows, sizeof **graph->owned);
    }
    for (int64_t i = 0; i < graph->nrows; i++) {
        int r = graph->owner[i] = (int32_t)owner[i];
        graph->owned[r][graph->forest.nowned[r]++] = i;
    }
    free(owner);
}

static void read_edges(golden_graph_case *graph, const cJSON *item) {
    int64_t n, n2;
    const cJSON *edges = golden_get(item, "edges");
    int64_t *source = golden_read_ints(cJSON_GetArrayItem(edges, 0), &n);
    int64_t *target = golden_read_ints(cJSON_GetArrayItem(edges, 1), &n2);
    graph->edges = golden_alloc(graph->world, sizeof *graph->edges);
    for (int r = 0; r < graph->world; r++) {
        golden_edges *own = &graph->edges[r];
        own->source = golden_alloc(n, sizeof *own->source);
        own->target = golden_alloc(n, sizeof *own->target);
        for (int64_t e = 0; e < n && e < n2; e++) {
            if (graph->owner[target[e]] == r) {
                own->source[own->n] = source[e];
                own->target[own->n++] = target[e];
            }
        }
    }
    free(source);
    free(target);
}

static int64_t local_row(const golden_graph_case *graph, int64_t row) {
    int64_t local = 0;
    while (graph->owned[graph->owner[row]][local] != row) {
        local++;
    }
    return local;
}

static void read_roots(golden_graph_case *graph, const cJSON *item) {
    int64_t **needed = golden_alloc(graph->world, sizeof *needed);
    for (int r = 0; r < graph->world; r++) {
        const cJSON *list = golden_get(golden_graph_rank(item, r), "needed");
        needed[r] = golden_read_ints(list, &graph->forest.nghosts[r]);
    }
    golden_forest_roots(&graph->forest);
    for (int r = 0; r < graph->world; r++) {
        for (int64_t k = 0; k < graph->forest.nghosts[r]; k++) {
            graph->forest.rank[r][k] = graph->owner[needed[r][k]];
            graph->forest.row[r][k] = local_row(graph, needed[r][k]);
        }
        free(needed[r]);
    }
    free(needed);
}

golden_graph_case golden_graph_read(const cJSON *item) {
    golden_graph_case graph = {.world = (int)golden_int(item, "world", 0)};
    graph.forest = golden_forest_new(graph.world);
    read_owners(&graph, item);
    read_edges(&graph, item);
    read_roots(&graph, item);
    return graph;
}

void golden_graph_free(golden_graph_case *graph) {
    for (int r = 0; r < graph->world; r++) {
        free(graph->edges[r].source);
        free(graph->edges[r].target);
        free(graph->owned[r]);
    }
    free(graph->edges);
    free(graph->owned);
    free(graph->owner);
    golden_forest_free(&graph->forest);
}

lierne_graph_spec golden_graph_spec(const golden_graph_case *graph, int rank, golden_type type) {
    return (lierne_graph_spec){.size = sizeof(lierne_graph_spec),
                               .nrows = graph->nrows,
                               .owner = graph->owner,
                               .nedges = graph->edges[rank].n,
                               .source = graph->edges[rank].source,
                               .target = graph->edges[rank].target,
                               .dtype = type.dtype,
                               .width = type.width,
                               .stride = type.stride};
}

/* The file has a count for each rank of the world, lierne only the ranks with a count. */
static void expect_counts(golden_case *c, const char *what, const cJSON *counts,
                          const int32_t *ranks, const int64_t *values, int64_t n) {
    int world = cJSON_GetArraySize(counts);
    int64_t *all = golden_alloc(world, sizeof *all);
    for (int64_t i = 0; i < n; i++) {
        bool fits = ranks[i] >= 0 && ranks[i] < world && (i == 0 || ranks[i] > ranks[i - 1]);
        if (golden_expect(c, fits && values[i] > 0, "%s: %lld of rank %d", what,
                          (long long)values[i], ranks[i])) {
            all[ranks[i]] = values[i];
        }
    }
    golden_expect_ints(c, what, counts, all, world);
    free(all);
}

void golden_graph_expect_lists(golden_case *c, const lierne_plan *plan, const cJSON *rank) {
    lierne_graph_lists l = {.size = sizeof l};
    lierne_status status = lierne_plan_get_graph_lists(&l, plan);
    const cJSON *edges = golden_get(rank, "edge_index_local");
    if (!golden_expect_status(c, "lierne_plan_get_graph_lists", status, LIERNE_OK)) {
        return;
    }
    int64_t nsent = 0;
    for (int64_t i = 0; i < l.nreceivers; i++) {
        nsent += l.receiver_counts[i];
    }
    golden_expect_ints(c, "owned", golden_get(rank, "owned"), l.owned, l.nowned);
    golden_expect_ints(c, "needed", golden_get(rank, "needed"), l.ghosts, l.nghosts);
    expect_counts(c, "recv_counts", golden_get(rank, "recv_counts"), l.sender_ranks,
                  l.sender_counts, l.nsenders);
    expect_counts(c, "send_counts", golden_get(rank, "send_counts"), l.receiver_ranks,
                  l.receiver_counts, l.nreceivers);
    golden_expect_ints(c, "send_indices", golden_get(rank, "send_indices"), l.receiver_rows, nsent);
    golden_expect_ints(c, "edge sources", cJSON_GetArrayItem(edges, 0), l.edge_source, l.nedges);
    golden_expect_ints(c, "edge targets", cJSON_GetArrayItem(edges, 1), l.edge_target, l.nedges);
    golden_expect_ints(c, "local_edge_idx", golden_get(rank, "local_edge_idx"), l.local_edges,
                       l.nlocal_edges);
    golden_expect_ints(c, "remote_edge_idx", golden_get(rank, "remote_edge_idx"), l.remote_edges,
                       l.nremote_edges);
}

void golden_graph_count(const cJSON *counts, int64_t *rows, int64_t *ranks) {
    int64_t n, *values = golden_read_ints(counts, &n);
    *rows = *ranks = 0;
    for (int64_t i = 0; i < n; i++) {
        *rows += values[i];
        *ranks += values[i] > 0;
    }
    free(values);
}

static void expect_direct(golden_case *c, const lierne_report *report, int64_t row_bytes,
                          const cJSON *sent, const cJSON *received) {
    int64_t rows, ranks;
    golden_graph_count(received, &rows, &ranks);
    golden_expect(c, report->received_bytes == rows * row_bytes,
                  "received %lld bytes, expected %lld", (long long)report->received_bytes,
                  (long long)(rows * row_bytes));
    golden_expect(c, report->min_bytes == report->received_bytes, "%lld bytes are the least",
                  (long long)report->min_bytes);
    golden_expect(c, report->received_messages == ranks, "received %lld messages, expected %lld",
                  (long long)report->received_messages, (long long)ranks);
    golden_graph_count(sent, &rows, &ranks);
    golden_expect(c, report->sent_bytes == rows * row_bytes && report->sent_messages == ranks,
                  "sent %lld bytes in %lld messages", (long long)report->sent_bytes,
                  (long long)report->sent_messages);
}

/* Every row that the rank does not own, in one message per doubling. */
static void expect_gather(golden_case *c, const lierne_report *report,
                          const golden_graph_case *graph, int64_t row_bytes, const cJSON *rank) {
    int64_t foreign = graph->nrows - cJSON_GetArraySize(golden_get(rank, "owned"));
    int64_t needed = cJSON_GetArraySize(golden_get(rank, "needed"));
    int rounds = 0;
    while (1 << rounds < graph->world) {
        rounds++;
    }
    golden_expect(c, report->received_bytes == foreign * row_bytes,
                  "gathered %lld bytes, expected %lld", (long long)report->received_bytes,
                  (long long)(foreign * row_bytes));
    golden_expect(c, report->min_bytes == needed * row_bytes, "%lld bytes are the least",
                  (long long)report->min_bytes);
    golden_expect(c, report->received_messages <= rounds && report->sent_messages <= rounds,
                  "%lld messages received, %lld sent, in %d rounds",
                  (long long)report->received_messages, (long long)report->sent_messages, rounds);
}

void golden_graph_expect_reports(golden_case *c, const lierne_plan *plan,
                                 const golden_graph_case *graph, const cJSON *rank,
                                 int64_t row_bytes) {
    const cJSON *sent = golden_get(rank, "send_counts"),
                *received = golden_get(rank, "recv_counts");
    lierne_report forward = {.size = sizeof forward}, adjoint = {.size = sizeof adjoint};
    lierne_status status = lierne_plan_get_report(&forward, plan, LIERNE_DIRECTION_FORWARD);
    status = status ? status : lierne_plan_get_report(&adjoint, plan, LIERNE_DIRECTION_ADJOINT);
    if (!golden_expect_status(c, "lierne_plan_get_report", status, LIERNE_OK)) {
        return;
    }
    if (strcmp(forward.algorithm, "all_gather") == 0) {
        expect_gather(c, &forward, graph, row_bytes, rank);
    } else {
        golden_expect(c, strcmp(forward.algorithm, "direct") == 0, "forward is '%s'",
                      forward.algorithm);
        expect_direct(c, &forward, row_bytes, sent, received);
    }
    golden_expect(c, strcmp(adjoint.algorithm, "direct") == 0, "adjoint is '%s'",
                  adjoint.algorithm);
    expect_direct(c, &adjoint, row_bytes, received, sent);
}
