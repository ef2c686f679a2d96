/* 03_graph: a layer of message passing on a graph whose nodes are owned by different ranks.
 *
 * Introduces lierne_partition_morton, lierne_plan_create_graph, lierne_plan_get_graph_lists, and
 * begin and end: edges between own nodes are computed while communication is in flight, in both
 * directions. Run with 1 to 8 ranks: mpirun -n 4 build/examples/03_graph */
#include <lierne.h>
#include <lierne/mpi.h>

#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 8, NODES = SIDE * SIDE, SOURCES = 3, EDGES = SOURCES * NODES, WIDTH = 4 };

static void must(lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "%s: %s\n", lierne_status_name(status), lierne_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* The graph: a periodic square. A node has edges from those to its right, above it, and
 * both; steps < 0 gives the nodes that hear it. */
static int64_t neighbour(int64_t node, int which, int step) {
    int64_t x = node % SIDE + (which != 1 ? step : 0), y = node / SIDE + (which != 0 ? step : 0);
    return (x + SIDE) % SIDE + (y + SIDE) % SIDE * SIDE;
}

/* Integers, so that sums have no rounding and every wrong number is found. */
static double feature(int64_t node, int column) {
    return (double)((7 * node + 3 * column) % 11);
}

static double upstream(int64_t node, int column) {
    return (double)((5 * node + column) % 13);
}

/* Every rank computes all owners; they are the same on all ranks. */
static void share_nodes(int32_t *owner, int world) {
    double positions[NODES][3] = {{0}};
    for (int i = 0; i < NODES; i++) {
        positions[i][0] = i % SIDE;
        positions[i][1] = (double)(i / SIDE);
    }
    must(lierne_partition_morton(owner, positions, LIERNE_DTYPE_F64, NODES, world));
}

/* A rank gives the edges whose targets it owns, in numbers of the whole graph. */
static lierne_plan *plan_graph(lierne_context *context) {
    int32_t owner[NODES];
    int64_t source[EDGES], target[EDGES];
    lierne_graph_spec spec = {.size = sizeof spec,
                              .nrows = NODES,
                              .owner = owner,
                              .source = source,
                              .target = target,
                              .dtype = LIERNE_DTYPE_F64,
                              .width = WIDTH};
    lierne_plan *plan;
    share_nodes(owner, lierne_context_get_world_size(context));
    for (int64_t t = 0; t < NODES; t++) {
        for (int s = 0; s < SOURCES && owner[t] == lierne_context_get_rank(context); s++) {
            source[spec.nedges] = neighbour(t, s, 1);
            target[spec.nedges++] = t;
        }
    }
    must(lierne_plan_create_graph(&plan, context, &spec));
    return plan;
}

/* to[b] += from[a] for some of the edges a -> b. */
static void pass(double (*to)[WIDTH], const double (*from)[WIDTH], const int64_t *b,
                 const int64_t *a, const int64_t *edges, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        for (int c = 0; c < WIDTH; c++) {
            to[b[edges[i]]][c] += from[a[edges[i]]][c];
        }
    }
}

/* y[t] = sum of h[s] over edges s -> t. h has own nodes first, then ghosts, as edges
 * count. */
static void layer(double (*y)[WIDTH], double (*h)[WIDTH], lierne_plan *plan,
                  const lierne_graph_lists *g) {
    lierne_request *request;
    must(lierne_plan_forward_begin(&request, plan, h[g->nowned], h, NULL));
    pass(y, h, g->edge_target, g->edge_source, g->local_edges, g->nlocal_edges);
    must(lierne_request_end(request));
    pass(y, h, g->edge_target, g->edge_source, g->remote_edges, g->nremote_edges);
}

/* The gradient of h from that of y. Ghosts first: they are sent while the rest is computed. */
static void layer_adjoint(double (*gh)[WIDTH], const double (*gy)[WIDTH], lierne_plan *plan,
                          const lierne_graph_lists *g) {
    lierne_request *request;
    double home[NODES][WIDTH];
    pass(gh, gy, g->edge_source, g->edge_target, g->remote_edges, g->nremote_edges);
    must(lierne_plan_adjoint_begin(&request, plan, home, gh[g->nowned], NULL));
    pass(gh, gy, g->edge_source, g->edge_target, g->local_edges, g->nlocal_edges);
    must(lierne_request_end(request));
    for (int64_t i = 0; i < g->nowned; i++) {
        for (int c = 0; c < WIDTH; c++) {
            gh[i][c] += home[i][c];
        }
    }
}

/* The expected value at a node: of h forward, of the gradient backward. */
static double expected(double (*value)(int64_t, int), int64_t node, int column, int step) {
    double sum = 0;
    for (int s = 0; s < SOURCES; s++) {
        sum += value(neighbour(node, s, step), column);
    }
    return sum;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    lierne_context *context;
    must(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL));
    lierne_plan *plan = plan_graph(context);
    lierne_graph_lists g = {.size = sizeof g};
    must(lierne_plan_get_graph_lists(&g, plan));

    double h[NODES][WIDTH], y[NODES][WIDTH] = {{0}}, gy[NODES][WIDTH], gh[NODES][WIDTH] = {{0}};
    double sums[3] = {0}, all[3]; /* wrong values, <F h, gy>, <h, F* gy> */
    for (int64_t i = 0; i < g.nowned; i++) {
        for (int c = 0; c < WIDTH; c++) {
            h[i][c] = feature(g.owned[i], c);
            gy[i][c] = upstream(g.owned[i], c);
        }
    }
    layer(y, h, plan, &g);
    layer_adjoint(gh, gy, plan, &g);
    for (int64_t i = 0; i < g.nowned; i++) {
        for (int c = 0; c < WIDTH; c++) {
            sums[0] += y[i][c] != expected(feature, g.owned[i], c, 1);
            sums[0] += gh[i][c] != expected(upstream, g.owned[i], c, -1);
            sums[1] += y[i][c] * gy[i][c];
            sums[2] += h[i][c] * gh[i][c];
        }
    }
    MPI_Allreduce(sums, all, 3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (lierne_context_get_rank(context) == 0) {
        printf("%d nodes, %d edges: %.0f wrong values\n", NODES, EDGES, all[0]);
        printf("<F x, y> = %.0f, <x, F* y> = %.0f\n", all[1], all[2]);
    }
    must(lierne_plan_destroy(plan));
    must(lierne_context_destroy(context));
    MPI_Finalize();
    return all[0] != 0 || all[1] != all[2];
}
