/* Graph exchanges on real ranks: random graphs and random references, of every kind that has made
 * other libraries hang or lose rows. Every rank makes the whole world's case from one seed,
 * computes by itself what it must get (tests/mpi/rows.c) and compares all bits, of random floats
 * also. */
#include "mpi/graphs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GRAPHS = 60, REFERENCES = 60 };

/* <F x, y> == <x, F* y> of what the library itself gives, on small integers. */
static void check_dot(lierne_plan *plan, const forest *f, const shape *s, const char *what) {
    int64_t nowned = f->nowned[test_rank], nghosts = f->nghosts[test_rank];
    buffer x = buffer_new(s, nowned), y = buffer_new(s, nghosts);
    buffer fx = buffer_new(s, nghosts), fy = buffer_new(s, nowned);
    long long part[2] = {0, 0}, sum[2];
    buffer_fill(s, &x, 0, nowned, VALUES, test_rank);
    buffer_fill(s, &y, 0, nghosts, GRADIENTS, test_rank);
    CHECK(lierne_plan_forward(plan, fx.at, x.at, NULL) == LIERNE_OK &&
              lierne_plan_adjoint(plan, fy.at, y.at, NULL) == LIERNE_OK,
          "%s: %s", what, lierne_last_error());
    for (int64_t i = 0; i < nghosts * s->width; i++) {
        int64_t row = i / s->width, col = i % s->width;
        part[0] += (long long)(buffer_get(s, &fx, row, col) * buffer_get(s, &y, row, col));
    }
    for (int64_t i = 0; i < nowned * s->width; i++) {
        int64_t row = i / s->width, col = i % s->width;
        part[1] += (long long)(buffer_get(s, &x, row, col) * buffer_get(s, &fy, row, col));
    }
    MPI_Allreduce(part, sum, 2, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum[0] == sum[1], "%s: <Fx, y> is %lld and <x, F*y> %lld", what, sum[0], sum[1]);
    buffer_free(&x), buffer_free(&y), buffer_free(&fx), buffer_free(&fy);
}

static void check_reduce(lierne_plan *plan, const forest *f, const shape *s, lierne_reduction op,
                         const char *what) {
    int64_t nowned = f->nowned[test_rank], nghosts = f->nghosts[test_rank];
    buffer y = buffer_new(s, nghosts), out = buffer_new(s, nowned), wanted = buffer_new(s, nowned);
    double *cells = malloc((size_t)(nowned * s->width + 1) * sizeof *cells);
    buffer_fill(s, &y, 0, nghosts, GRADIENTS, test_rank);
    buffer_fill(s, &out, 0, nowned, BEFORE, test_rank);
    forest_reduce(f, s, op, BEFORE, NULL, test_rank, cells);
    buffer_set(s, &wanted, 0, nowned, cells);
    CHECK(lierne_plan_reduce(plan, op, out.at, y.at, NULL) == LIERNE_OK, "%s: %s", what,
          lierne_last_error());
    CHECK(memcmp(out.at, wanted.at, wanted.bytes) == 0, "%s: wrong %s", what,
          op == LIERNE_REDUCTION_MAX ? "max" : "min");
    free(cells);
    buffer_free(&y), buffer_free(&out), buffer_free(&wanted);
}

/* The transpose, and the transpose of that. Collective. */
static void check_transposed(lierne_plan *plan, const forest *f, const shape *s, const char *what) {
    lierne_plan *once = NULL, *twice = NULL;
    if (CHECK(lierne_plan_create_transposed(&once, plan) == LIERNE_OK, "%s: %s", what,
              lierne_last_error()) &&
        CHECK(lierne_plan_create_transposed(&twice, once) == LIERNE_OK, "%s: %s", what,
              lierne_last_error())) {
        forest_check(once, f, s, false, true, what);
        forest_check(twice, f, s, false, false, what);
    }
    CHECK(lierne_plan_destroy(once) == LIERNE_OK && lierne_plan_destroy(twice) == LIERNE_OK, "%s",
          what);
}

/* Written down and read again. Collective. */
static void check_reread(lierne_context *context, lierne_plan *plan, const forest *f,
                         const shape *s, bool accumulate, const char *what) {
    lierne_plan *read = NULL;
    char *text = NULL;
    CHECK(lierne_plan_serialize(&text, plan) == LIERNE_OK, "%s: %s", what, lierne_last_error());
    lierne_status status = lierne_plan_deserialize(&read, context, text, text ? strlen(text) : 0);
    if (CHECK(status == LIERNE_OK, "%s, read: %s", what, lierne_last_error())) {
        forest_check(read, f, s, accumulate, false, what);
    }
    lierne_text_destroy(text);
    lierne_plan_destroy(read);
}

/* A row is sent once to each rank that needs it, and nothing else is sent. */
static void check_bytes(lierne_plan *plan, const forest *f, const shape *s, const char *what) {
    int64_t wanted = 0;
    lierne_report report = {.size = sizeof report};
    for (int64_t k = 0; k < f->nghosts[test_rank]; k++) {
        const root *g = &f->ghosts[test_rank][k];
        bool first = g->rank != test_rank;
        for (int64_t j = 0; j < k; j++) {
            const root *h = &f->ghosts[test_rank][j];
            first = first && (h->rank != g->rank || h->row != g->row);
        }
        wanted += first;
    }
    wanted *= s->width * (int64_t)lierne_dtype_size(s->dtype);
    CHECK(lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_FORWARD) == LIERNE_OK &&
              report.min_bytes == wanted && report.received_bytes >= wanted,
          "%s: %lld bytes, at least %lld, wanted %lld", what, (long long)report.received_bytes,
          (long long)report.min_bytes, (long long)wanted);
    bool direct = strcmp(report.algorithm, "direct") == 0;
    CHECK(direct ? report.received_bytes == wanted : strcmp(report.algorithm, "all_gather") == 0,
          "%s: %lld bytes, %s", what, (long long)report.received_bytes, report.algorithm);
    CHECK(lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_ADJOINT) == LIERNE_OK &&
              report.sent_bytes == wanted,
          "%s: the adjoint sends %lld bytes, wanted %lld", what, (long long)report.sent_bytes,
          (long long)wanted);
}

/* What holds for graphs, for references, and for plans retyped from one of them. Collective. */
static void check_rows(lierne_plan *plan, const forest *f, const shape *s, bool accumulate,
                       const char *what) {
    forest_check(plan, f, s, accumulate, false, what);
    check_bytes(plan, f, s, what);
    check_reduce(plan, f, s, LIERNE_REDUCTION_MAX, what);
    check_reduce(plan, f, s, LIERNE_REDUCTION_MIN, what);
    if (!accumulate) {
        check_transposed(plan, f, s, what);
    }
    if (s->exact && !accumulate) {
        check_dot(plan, f, s, what);
    }
}

/* Rows of another type through the same plan. Collective. */
static void check_retyped(lierne_plan *plan, const forest *f, uint64_t seed, bool accumulate,
                          const char *what) {
    shape s = shape_random(seed, seed % 2 == 0);
    lierne_plan *retyped = NULL;
    const lierne_retyped_spec spec = {.size = sizeof spec,
                                      .dtype = s.dtype,
                                      .width = s.width,
                                      .in_stride = s.stride,
                                      .out_stride = s.stride};
    if (CHECK(lierne_plan_create_retyped(&retyped, plan, &spec) == LIERNE_OK, "%s: %s", what,
              lierne_last_error())) {
        check_rows(retyped, f, &s, accumulate, what);
    }
    lierne_plan_destroy(retyped);
}

/* What ghosts fetch and owned rows become, as rows of another type. Collective. */
static void check_fetch(lierne_plan *like, const forest *f, uint64_t seed, const char *what) {
    shape s = shape_random(seed, seed % 3 == 0);
    int64_t nowned = f->nowned[test_rank], nghosts = f->nghosts[test_rank];
    buffer in = buffer_new(&s, nowned + nghosts), out = buffer_new(&s, nowned + nghosts);
    buffer wanted = buffer_new(&s, nowned + nghosts);
    double *cells = malloc((size_t)((nowned + nghosts) * s.width + 1) * sizeof *cells);
    lierne_plan *plan = NULL;
    const lierne_fetch_and_add_spec spec = {.size = sizeof spec,
                                            .dtype = s.dtype,
                                            .width = s.width,
                                            .stride = s.stride};
    buffer_fill(&s, &in, 0, nowned, BEFORE, test_rank);
    buffer_fill(&s, &in, nowned, nghosts, GRADIENTS, test_rank);
    forest_fetch(f, &s, test_rank, cells);
    buffer_set(&s, &wanted, 0, nowned + nghosts, cells);
    if (CHECK(lierne_plan_create_fetch_and_add(&plan, like, &spec) == LIERNE_OK, "%s: %s", what,
              lierne_last_error())) {
        buffer_check(plan, LIERNE_DIRECTION_FORWARD, &in, &out, &wanted, what);
        CHECK(lierne_plan_forward(plan, in.at, in.at, NULL) == LIERNE_OK &&
                  memcmp(in.at, wanted.at, wanted.bytes) == 0,
              "%s, fetched in place: %s", what, lierne_last_error());
    }
    lierne_plan_destroy(plan);
    free(cells);
    buffer_free(&in), buffer_free(&out), buffer_free(&wanted);
}

static void check_all(lierne_context *context, lierne_plan *plan, const forest *f, const shape *s,
                      bool accumulate, const char *what) {
    check_rows(plan, f, s, accumulate, what);
    check_reread(context, plan, f, s, accumulate, what);
    check_retyped(plan, f, s->seed + 1, accumulate, what);
    check_fetch(plan, f, s->seed + 2, what);
}

static void run_graph(lierne_context *context, int number, lierne_graph_algorithm algorithm) {
    graph g;
    forest f;
    own_edges own;
    lierne_plan *plan = NULL;
    uint64_t seed = (uint64_t)(number * 10 + test_world);
    shape s = shape_random(seed, number % 3 == 0);
    size_t before = lierne_mem_live();
    graph_random(&g, (kind)(number % KINDS), seed);
    graph_forest(&g, &f);
    lierne_graph_spec spec = graph_spec(&g, &s, &own);
    spec.algorithm = algorithm;
    spec.accumulate = number / 2 % 3 == 0;
    if (CHECK(lierne_plan_create_graph(&plan, context, &spec) == LIERNE_OK, "%s: %s", g.kind,
              lierne_last_error())) {
        graph_lists_check(plan, &g, &f, &own);
        check_all(context, plan, &f, &s, spec.accumulate, g.kind);
    }
    CHECK_OK(lierne_plan_destroy(plan));
    CHECK(lierne_mem_live() == before, "%s: leaked", g.kind);
    forest_free(&f);
}

static void run_pairs(lierne_context *context, int number, lierne_graph_algorithm algorithm) {
    forest f;
    lierne_plan *plan = NULL;
    uint64_t seed = (uint64_t)(number * 10 + test_world);
    shape s = shape_random(seed, number % 3 == 0);
    bool accumulate = number / 2 % 3 == 0;
    size_t before = lierne_mem_live();
    forest_random(&f, seed, NULL);
    if (CHECK(forest_plan(&plan, context, &f, &s, algorithm, accumulate) == LIERNE_OK,
              "references: %s", lierne_last_error())) {
        check_all(context, plan, &f, &s, accumulate, "references");
    }
    CHECK_OK(lierne_plan_destroy(plan));
    CHECK(lierne_mem_live() == before, "references: leaked");
    forest_free(&f);
}

/* Ghosts of ghosts: the second plan's rows are the first one's ghosts. Small integers only, as the
 * order of additions is that of two exchanges. */
static void run_composed(lierne_context *context, int number) {
    forest f, g, both;
    lierne_plan *first = NULL, *second = NULL, *plan = NULL;
    uint64_t seed = (uint64_t)(number * 10 + test_world);
    shape s = shape_random(seed, true);
    size_t before = lierne_mem_live();
    forest_random(&f, seed, NULL);
    forest_random(&g, seed + 1, f.nghosts);
    both = g;
    for (int r = 0; r < test_world; r++) {
        both.nowned[r] = f.nowned[r];
        for (int64_t k = 0; k < g.nghosts[r]; k++) {
            both.ghosts[r][k] = f.ghosts[g.ghosts[r][k].rank][g.ghosts[r][k].row];
        }
    }
    forest_random(&g, seed + 1, f.nghosts);
    CHECK(forest_plan(&first, context, &f, &s, LIERNE_GRAPH_ALGORITHM_AUTO, false) == LIERNE_OK &&
              forest_plan(&second, context, &g, &s, LIERNE_GRAPH_ALGORITHM_DIRECT, false) ==
                  LIERNE_OK,
          "%s", lierne_last_error());
    if (CHECK_OK(lierne_plan_create_composed(&plan, first, second))) {
        lierne_plan_destroy(first), lierne_plan_destroy(second);
        first = second = NULL;
        forest_check(plan, &both, &s, false, false, "composed");
        check_dot(plan, &both, &s, "composed");
    }
    lierne_plan_destroy(first), lierne_plan_destroy(second), lierne_plan_destroy(plan);
    CHECK(lierne_mem_live() == before, "composed: leaked");
    forest_free(&f), forest_free(&g), forest_free(&both);
}

/* A number that is none wins, from whichever rank, and stays where it is. */
static void run_nan(lierne_context *context, lierne_dtype dtype, lierne_reduction op) {
    forest f = {.world = test_world};
    lierne_plan *plan = NULL;
    shape s = {.dtype = dtype, .width = 2, .stride = 2, .exact = true};
    for (int r = 0; r < test_world; r++) { /* every rank has a copy of rank 0's only row */
        f.nowned[r] = r == 0;
        f.nghosts[r] = 1;
        f.ghosts[r] = calloc(1, sizeof(root));
    }
    CHECK_OK(forest_plan(&plan, context, &f, &s, LIERNE_GRAPH_ALGORITHM_AUTO, false));
    for (int from = 0; from <= test_world; from++) {
        buffer y = buffer_new(&s, 1), out = buffer_new(&s, f.nowned[test_rank]);
        buffer_fill(&s, &y, 0, 1, GRADIENTS, test_rank);
        buffer_fill(&s, &out, 0, f.nowned[test_rank], BEFORE, test_rank);
        if (test_rank == from % test_world) {
            buffer_put(&s, from < test_world ? &y : &out, 0, 1, NAN);
        }
        CHECK_OK(lierne_plan_reduce(plan, op, out.at, y.at, NULL));
        CHECK(test_rank ||
                  (isnan(buffer_get(&s, &out, 0, 1)) && !isnan(buffer_get(&s, &out, 0, 0))),
              "%s: a NaN of rank %d is lost, or in a wrong place", lierne_dtype_name(dtype), from);
        buffer_free(&y), buffer_free(&out);
    }
    lierne_plan_destroy(plan);
    forest_free(&f);
}

static void run_all(lierne_context *context) {
    for (int i = 0; i < GRAPHS; i++) {
        run_graph(context, i, LIERNE_GRAPH_ALGORITHM_DIRECT);
        run_graph(context, i,
                  i % 2 ? LIERNE_GRAPH_ALGORITHM_ALL_GATHER : LIERNE_GRAPH_ALGORITHM_AUTO);
    }
    for (int i = 0; i < REFERENCES; i++) {
        run_pairs(context, i, LIERNE_GRAPH_ALGORITHM_DIRECT);
        run_pairs(context, i,
                  i % 2 ? LIERNE_GRAPH_ALGORITHM_ALL_GATHER : LIERNE_GRAPH_ALGORITHM_AUTO);
        run_composed(context, i);
    }
    for (lierne_dtype dtype = LIERNE_DTYPE_F64; dtype <= LIERNE_DTYPE_F16; dtype++) {
        run_nan(context, dtype, LIERNE_REDUCTION_MAX);
        run_nan(context, dtype, LIERNE_REDUCTION_MIN);
    }
}

int main(int argc, char **argv) {
    return test_main(&argc, &argv, run_all);
}
