/* graph_a2a.json, cases: every rank plans its own edges, with each algorithm and dtype. Sums are
 * compared with the definition (star_forest.c), which is compared with the file first: so they can
 * be checked for numbers that 16 bits hold, too. */
#include "graph_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const lierne_dtype dtypes[] = {LIERNE_DTYPE_F64, LIERNE_DTYPE_F32, LIERNE_DTYPE_I64,
                                      LIERNE_DTYPE_I32, LIERNE_DTYPE_F16, LIERNE_DTYPE_BF16};
enum { NDTYPES = sizeof dtypes / sizeof dtypes[0], NALGORITHMS = 3 };

/* One way to run a case. full: also everything that is the same for all dtypes. */
typedef struct variant {
    const golden_graph_case *graph;
    golden_world *world;
    golden_type type;
    lierne_graph_algorithm algorithm;
    bool accumulate;
    bool full;
} variant;

static bool narrow(const variant *v) {
    return v->type.dtype == LIERNE_DTYPE_F16 || v->type.dtype == LIERNE_DTYPE_BF16;
}

static golden_value *upstream(const variant *v) {
    return narrow(v) ? golden_tiny : golden_h;
}

static double owned(const variant *v, int rank, int64_t row, int64_t column) {
    return narrow(v) ? golden_tiny(rank, row + 1, column)
                     : golden_f(v->graph->owned[rank][row], column);
}

static void fill_adjoint(golden_row_case *row_case, const variant *v, int rank) {
    const golden_forest *f = &v->graph->forest;
    int64_t width = v->type.width, nx = row_case->nx * width;
    for (int64_t i = 0; i < row_case->ny * width; i++) {
        row_case->y[i] = upstream(v)(rank, i / width, i % width);
    }
    if (v->accumulate) {
        row_case->before = golden_alloc(nx, sizeof(double));
        for (int64_t i = 0; i < nx; i++) {
            row_case->fty[i] = row_case->before[i] = golden_tiny(rank + 5, i / width, i % width);
        }
    }
    golden_forest_sum(f, rank, false, width, upstream(v), row_case->fty);
    memcpy(row_case->most, row_case->x, (size_t)nx * sizeof(double));
    memcpy(row_case->least, row_case->x, (size_t)nx * sizeof(double));
    golden_forest_extreme(f, rank, false, width, upstream(v), 1, row_case->most);
    golden_forest_extreme(f, rank, false, width, upstream(v), -1, row_case->least);
}

/* Ranks agree on the width of a row, not on where the next one starts. */
static golden_type type_of(const variant *v, int rank) {
    golden_type type = v->type;
    type.stride += type.stride > type.width ? rank % 2 : 0;
    return type;
}

static golden_row_case duty_of(const variant *v, int rank) {
    const golden_forest *f = &v->graph->forest;
    int64_t width = v->type.width;
    golden_row_case row_case =
        golden_row_case_new(type_of(v, rank), false, f->nowned[rank], f->nghosts[rank]);
    for (int64_t i = 0; i < row_case.nx; i++) {
        double copies = (double)golden_forest_copies(f, rank, i);
        for (int64_t c = 0; c < width; c++) {
            row_case.x[i * width + c] = owned(v, rank, i, c);
            row_case.ffx[i * width + c] =
                copies * row_case.x[i * width + c] + 0.0; /* no negative zero */
        }
    }
    for (int64_t k = 0; k < row_case.ny; k++) {
        for (int64_t c = 0; c < width; c++) {
            row_case.fx[k * width + c] = owned(v, f->rank[rank][k], f->row[rank][k], c);
        }
    }
    fill_adjoint(&row_case, v, rank);
    return row_case;
}

static lierne_graph_spec spec_of(const variant *v, int rank) {
    lierne_graph_spec spec = golden_graph_spec(v->graph, rank, type_of(v, rank));
    spec.algorithm = v->algorithm;
    spec.accumulate = v->accumulate;
    return spec;
}

/* The same rows from pairs. */
static void check_pairs(golden_case *c, lierne_context *context, const variant *v,
                        const golden_row_case *row_case, const cJSON *item) {
    int rank = lierne_context_get_rank(context);
    const golden_forest *f = &v->graph->forest;
    lierne_references_spec spec = {.size = sizeof spec,
                                   .nowned = f->nowned[rank],
                                   .nghosts = f->nghosts[rank],
                                   .rank = f->rank[rank],
                                   .row = f->row[rank],
                                   .dtype = v->type.dtype,
                                   .width = v->type.width,
                                   .stride = row_case->type.stride,
                                   .algorithm = v->algorithm,
                                   .accumulate = v->accumulate};
    lierne_plan *plan = NULL;
    lierne_graph_lists lists = {.size = sizeof lists};
    lierne_status status = lierne_plan_create_references(&plan, context, &spec);
    if (golden_expect_status(c, "lierne_plan_create_references", status, LIERNE_OK)) {
        golden_row_case_expect(c, "pairs", plan, row_case);
        golden_graph_expect_reports(c, plan, v->graph, item,
                                    v->type.width * (int64_t)lierne_dtype_size(v->type.dtype));
        status = lierne_plan_get_graph_lists(&lists, plan);
        golden_expect_status(c, "lists of pairs", status, LIERNE_OK);
        golden_expect(c, !lists.owned && !lists.ghosts && !lists.edge_source && lists.nedges == 0,
                      "pairs have edges");
        golden_expect(c, lists.nowned == row_case->nx && lists.nghosts == row_case->ny,
                      "pairs have %lld rows and %lld ghosts", (long long)lists.nowned,
                      (long long)lists.nghosts);
    }
    golden_expect_status(c, "lierne_plan_destroy", lierne_plan_destroy(plan), LIERNE_OK);
}

/* Lists, edges among them, survive being written. */
static void check_written(golden_case *c, lierne_context *context, const lierne_plan *plan,
                          const cJSON *item) {
    char *text = NULL;
    lierne_plan *read = NULL;
    lierne_status status = lierne_plan_serialize(&text, plan);
    golden_expect_status(c, "lierne_plan_serialize", status, LIERNE_OK);
    status = lierne_plan_deserialize(&read, context, text ? text : "", text ? strlen(text) : 0);
    if (golden_expect_status(c, "lierne_plan_deserialize", status, LIERNE_OK)) {
        golden_graph_expect_lists(c, read, item);
    }
    lierne_text_destroy(text);
    golden_expect_status(c, "lierne_plan_destroy", lierne_plan_destroy(read), LIERNE_OK);
}

/* A plan of a graph without edges becomes one of this graph, and stays so when an update fails. */
static void check_update(golden_case *c, lierne_context *context, const variant *v,
                         const golden_row_case *row_case, const cJSON *item) {
    lierne_graph_spec spec = spec_of(v, lierne_context_get_rank(context)), bad = spec;
    int64_t outside = spec.nrows;
    lierne_plan *plan = NULL;
    bad.nedges = 0;
    lierne_status status = lierne_plan_create_graph(&plan, context, &bad);
    if (golden_expect_status(c, "a graph without edges", status, LIERNE_OK)) {
        status = lierne_plan_update_graph(plan, &spec);
        golden_expect_status(c, "lierne_plan_update_graph", status, LIERNE_OK);
        bad.nedges = lierne_context_get_rank(context) == 0;
        bad.source = bad.target = &outside;
        status = lierne_plan_update_graph(plan, &bad);
        golden_expect_status(c, "an update that must fail", status, LIERNE_ERR_INDEX_RANGE);
        golden_graph_expect_lists(c, plan, item);
        golden_row_case_expect(c, "the updated plan", plan, row_case);
    }
    golden_expect_status(c, "lierne_plan_destroy", lierne_plan_destroy(plan), LIERNE_OK);
}

/* The sums over edges that a layer makes, and their gradient, in the indices that lierne gave. The
 * plan accumulates: what own edges give stands in the gradient before. */
static void check_layer(golden_case *c, lierne_plan *plan, const golden_row_case *row_case,
                        const cJSON *item) {
    enum { W = GOLDEN_GRAPH_WIDTH };
    int64_t nown = row_case->nx * W, n = nown + row_case->ny * W;
    lierne_graph_lists l = {.size = sizeof l};
    double *rows = golden_alloc(n, sizeof *rows), *sums = golden_alloc(nown, sizeof *sums);
    double *gradient = golden_alloc(n, sizeof *gradient);
    lierne_status status = lierne_plan_get_graph_lists(&l, plan);
    golden_expect_status(c, "lierne_plan_get_graph_lists", status, LIERNE_OK);
    memcpy(rows, row_case->x, (size_t)nown * sizeof *rows);
    status = lierne_plan_forward(plan, rows + nown, rows, NULL);
    golden_expect_status(c, "lierne_plan_forward", status, LIERNE_OK);
    for (int64_t e = 0; e < l.nedges * W; e++) {
        int64_t from = l.edge_source[e / W], to = l.edge_target[e / W], column = e % W;
        sums[to * W + column] += rows[from * W + column];
        gradient[from * W + column] += golden_h(7, to, column);
    }
    status = lierne_plan_adjoint(plan, gradient, gradient + nown, NULL);
    golden_expect_status(c, "lierne_plan_adjoint", status, LIERNE_OK);
    golden_expect_list(c, "agg", golden_get(item, "agg"), sums, nown);
    golden_expect_list(c, "agg_backward", golden_get(item, "agg_backward"), gradient, nown);
    free(rows);
    free(sums);
    free(gradient);
}

/* The definition against the file, once per rank. */
static void check_oracle(golden_case *c, const golden_row_case *row_case, const cJSON *item) {
    int64_t width = row_case->type.width;
    golden_expect_list(c, "forward by definition", golden_get(item, "forward"), row_case->fx,
                       row_case->ny * width);
    golden_expect_list(c, "backward by definition", golden_get(item, "backward"), row_case->fty,
                       row_case->nx * width);
}

static void check_fully(golden_case *c, lierne_context *context, const variant *v,
                        const golden_row_case *row_case, const cJSON *item) {
    lierne_plan *plan = v->world->plans[lierne_context_get_rank(context)];
    golden_graph_expect_lists(c, plan, item);
    golden_graph_expect_reports(c, plan, v->graph, item,
                                v->type.width * (int64_t)lierne_dtype_size(v->type.dtype));
    golden_row_case_reduce(c, plan, row_case);
    golden_row_case_algebra(c, context, plan, row_case);
    check_written(c, context, plan, item);
    check_pairs(c, context, v, row_case, item);
    check_update(c, context, v, row_case, item);
}

/* What one rank does. A check that fails does not keep it from calls that the others wait in. */
static void work(lierne_context *context, void *shared) {
    const variant *v = shared;
    int rank = lierne_context_get_rank(context);
    golden_case *c = &v->world->cases[rank];
    golden_row_case row_case = duty_of(v, rank);
    lierne_graph_spec spec = spec_of(v, rank);
    lierne_status status = lierne_plan_create_graph(&v->world->plans[rank], context, &spec);
    if (golden_expect_status(c, "lierne_plan_create_graph", status, LIERNE_OK)) {
        golden_row_case_expect(c, "the plan", v->world->plans[rank], &row_case);
        if (!v->accumulate) {
            golden_row_case_dots(c, v->world->plans[rank], &row_case, v->world->dots[rank]);
        }
        if (v->full) {
            check_fully(c, context, v, &row_case, golden_graph_rank(c->item, rank));
        }
    }
    golden_row_case_free(&row_case);
}

/* The file's own numbers. */
static void work_numbers(lierne_context *context, void *shared) {
    const variant *v = shared;
    int rank = lierne_context_get_rank(context);
    golden_case *c = &v->world->cases[rank];
    const cJSON *item = golden_graph_rank(c->item, rank);
    golden_row_case row_case = duty_of(v, rank);
    lierne_graph_spec spec = spec_of(v, rank);
    check_oracle(c, &row_case, item);
    spec.accumulate = 1;
    lierne_status status = lierne_plan_create_graph(&v->world->plans[rank], context, &spec);
    if (golden_expect_status(c, "lierne_plan_create_graph", status, LIERNE_OK)) {
        check_layer(c, v->world->plans[rank], &row_case, item);
    }
    golden_row_case_free(&row_case);
}

/* By the model of lierne/sparse.h, in which a message costs more than all the bytes of a case here:
 * the rank with the most peers decides, and where that is a tie, bytes do, of which a gather has
 * more. */
static bool auto_gathers(const golden_case *c, const variant *v) {
    int64_t most = 0, rounds = 0;
    for (int r = 0; r < v->world->n; r++) {
        int64_t rows, peers;
        const cJSON *rank = golden_graph_rank(c->item, r);
        golden_graph_count(golden_get(rank, "send_counts"), &rows, &peers);
        most = peers > most ? peers : most;
        golden_graph_count(golden_get(rank, "recv_counts"), &rows, &peers);
        most = peers > most ? peers : most;
    }
    while (1 << rounds < v->world->n) {
        rounds++;
    }
    return rounds < most;
}

static void expect_algorithm(golden_case *c, const variant *v, const char *algorithm) {
    bool gathers = v->algorithm == LIERNE_GRAPH_ALGORITHM_AUTO
                       ? auto_gathers(c, v)
                       : v->algorithm == LIERNE_GRAPH_ALGORITHM_ALL_GATHER;
    const char *wanted = gathers && v->world->n > 1 ? "all_gather" : "direct";
    golden_expect(c, strcmp(algorithm, wanted) == 0, "algorithm %d became '%s', expected '%s'",
                  (int)v->algorithm, algorithm, wanted);
}

/* The remote rows that ranks need are the least that must be sent. */
static void expect_totals(golden_case *c, const variant *v) {
    int64_t wanted = 0, ranks;
    int64_t row = v->type.width * (int64_t)lierne_dtype_size(v->type.dtype);
    for (int r = 0; r < v->world->n; r++) {
        wanted += row * golden_forest_distinct(&v->graph->forest, r, &ranks);
    }
    for (int d = 0; d < 2; d++) {
        lierne_report all = golden_world_report(c, v->world, (lierne_direction)d);
        golden_expect(c, all.min_bytes == wanted, "%lld bytes are the least, expected %lld",
                      (long long)all.min_bytes, (long long)wanted);
        golden_expect(c, all.sent_bytes == all.received_bytes, "%lld bytes sent, %lld received",
                      (long long)all.sent_bytes, (long long)all.received_bytes);
        golden_expect(c, all.sent_messages == all.received_messages, "messages do not pair up");
        if (d == LIERNE_DIRECTION_FORWARD) {
            expect_algorithm(c, v, all.algorithm);
        }
    }
}

static void run_variant(golden_case *c, variant *v, bool numbers) {
    char what[80];
    golden_world world = golden_world_new(c, v->graph->world);
    v->world = &world;
    snprintf(what, sizeof what, "%s, algorithm %d, stride %d%s", lierne_dtype_name(v->type.dtype),
             (int)v->algorithm, (int)v->type.stride, v->accumulate ? ", accumulating" : "");
    if (golden_world_run(&world, numbers ? work_numbers : work, v)) {
        golden_world_check(c, &world);
        expect_totals(c, v);
        golden_world_expect_adjoint(c, &world);
    }
    golden_world_end(c, &world, what);
}

void golden_graph(golden_case *c) {
    enum { W = GOLDEN_GRAPH_WIDTH };
    golden_graph_case graph = golden_graph_read(c->item);
    for (int i = 0; i < 2 * NALGORITHMS * NDTYPES && !c->failed; i++) {
        int algorithm = i / NDTYPES % NALGORITHMS, dtype = i % NDTYPES;
        variant v = {.graph = &graph,
                     .type = {dtypes[dtype], W, W + ((i + i / NDTYPES) % 2 ? 0 : 2)},
                     .algorithm = (lierne_graph_algorithm)algorithm,
                     .accumulate = i / NDTYPES >= NALGORITHMS,
                     .full = dtype == 2 * algorithm};
        run_variant(c, &v, false);
    }
    for (int algorithm = 0; algorithm < NALGORITHMS && !c->failed; algorithm++) {
        variant v = {.graph = &graph,
                     .type = {LIERNE_DTYPE_F64, W, W},
                     .algorithm = (lierne_graph_algorithm)algorithm};
        run_variant(c, &v, true);
    }
    golden_graph_free(&graph);
}
