/* Graph plans on a simulated world. Values come from a serial model that knows owners and ghosts
 * only: a ghost is a copy of its root; gradients are added in the documented order. */
#include <criterion/criterion.h>
#include <lierne.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/sparse/star_forest.h"
#include "ranks.h"
#include "seeds.h"

#define WORLD_MAX  8
#define GHOSTS_MAX 64
#define ROWS_MAX   400
#define POISON     -77777

typedef struct world {
    int n;
    int64_t nowned[WORLD_MAX];
    int64_t nghosts[WORLD_MAX];
    int32_t rank[WORLD_MAX][GHOSTS_MAX];
    int64_t row[WORLD_MAX][GHOSTS_MAX];
    int64_t width, stride;
    lierne_graph_algorithm algorithm;
    int accumulate;
    int inflight[WORLD_MAX];
    bool no_out[WORLD_MAX];
    /* Results. */
    int64_t ghosts[WORLD_MAX][GHOSTS_MAX * 8];
    int64_t gradient[WORLD_MAX][ROWS_MAX * 8];
    int64_t received[2];
    const char *taken;
    lierne_status status[WORLD_MAX];
    char message[WORLD_MAX][256];
    int broken[WORLD_MAX]; /* line of an expectation that did not hold */
} world;

#define EXPECT(condition)                                                                          \
    if (!(condition)) {                                                                            \
        w->broken[r] = __LINE__;                                                                   \
    }

static int64_t value(int rank, int64_t row, int64_t c) {
    return 1 + (rank * 1009 + row * 31 + c * 7) % 501;
}

static int64_t upstream(int rank, int64_t ghost, int64_t c) {
    return 1 + (rank * 53 + ghost * 29 + c * 13) % 127 - 60;
}

/* Random references, below `ghosts` of them to below `rows` rows; some to own rows, some repeated.
 */
static void draw(world *w, unsigned seed, int rows, int ghosts) {
    srand(seed);
    w->n = 1 + rand() % WORLD_MAX;
    w->width = 1 + rand() % 3;
    w->stride = w->width + rand() % 3;
    int64_t all = 0;
    for (int r = 0; r < w->n; r++) {
        w->nowned[r] = rand() % 4 == 0 ? 0 : rand() % rows;
        all += w->nowned[r];
    }
    for (int r = 0; r < w->n; r++) {
        w->nghosts[r] = all == 0 || rand() % 5 == 0 ? 0 : rand() % ghosts;
        for (int64_t k = 0; k < w->nghosts[r]; k++) {
            do {
                w->rank[r][k] = rand() % w->n;
            } while (w->nowned[w->rank[r][k]] == 0);
            w->row[r][k] = rand() % w->nowned[w->rank[r][k]];
        }
    }
}

static lierne_references_spec spec_of(const world *w, int r, lierne_dtype dtype) {
    return (lierne_references_spec){.size = sizeof(lierne_references_spec),
                                    .nowned = w->nowned[r],
                                    .nghosts = w->nghosts[r],
                                    .rank = w->rank[r],
                                    .row = w->row[r],
                                    .dtype = dtype,
                                    .width = w->width,
                                    .stride = w->stride,
                                    .algorithm = w->algorithm,
                                    .accumulate = w->accumulate,
                                    .max_inflight = w->inflight[r]};
}

static void run_rank(lierne_context *context, void *shared) {
    world *w = shared;
    int r = lierne_context_get_rank(context);
    lierne_plan *plan = NULL;
    lierne_references_spec spec = spec_of(w, r, LIERNE_DTYPE_I64);
    w->status[r] = lierne_plan_create_references(w->no_out[r] ? NULL : &plan, context, &spec);
    snprintf(w->message[r], sizeof w->message[r], "%s", lierne_last_error());
    if (w->status[r] != LIERNE_OK) {
        EXPECT(plan == NULL)
        return;
    }
    int64_t owned[ROWS_MAX * 8], in[GHOSTS_MAX * 8], n_in, n_out;
    for (int i = 0; i < GHOSTS_MAX * 8; i++) {
        w->ghosts[r][i] = in[i] = POISON;
    }
    for (int i = 0; i < ROWS_MAX * 8; i++) {
        owned[i] = POISON;
        w->gradient[r][i] = w->accumulate && i % w->stride < w->width ? 5 : POISON;
    }
    for (int64_t i = 0; i < w->nowned[r]; i++) {
        for (int64_t c = 0; c < w->width; c++) {
            owned[i * w->stride + c] = value(r, i, c);
        }
    }
    for (int64_t k = 0; k < w->nghosts[r]; k++) {
        for (int64_t c = 0; c < w->width; c++) {
            in[k * w->stride + c] = upstream(r, k, c);
        }
    }
    EXPECT(w->n > 1 || lierne_plan_check((const lierne_plan *const *)&plan, 1) == LIERNE_OK)
    EXPECT(lierne_plan_get_elements(&n_in, &n_out, plan, LIERNE_DIRECTION_FORWARD) == LIERNE_OK)
    EXPECT(n_out == (w->nghosts[r] ? (w->nghosts[r] - 1) * w->stride + w->width : 0))
    /* NULL where a rank has nothing: it must serve the others all the same. */
    EXPECT(lierne_plan_forward(plan, n_out ? w->ghosts[r] : NULL, n_in ? owned : NULL, NULL) ==
           LIERNE_OK)
    EXPECT(lierne_plan_adjoint(plan, n_in ? w->gradient[r] : NULL, n_out ? in : NULL, NULL) ==
           LIERNE_OK)
    if (r == 0) {
        lierne_report report = {.size = sizeof report};
        EXPECT(lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_FORWARD) == LIERNE_OK)
        w->taken = report.algorithm;
    }
    EXPECT(lierne_plan_destroy(plan) == LIERNE_OK)
}

static void run(world *w) {
    ranks_run(w->n, NULL, run_rank, w);
    for (int r = 0; r < w->n; r++) {
        cr_assert_eq(w->broken[r], 0, "rank %d: the expectation in line %d failed", r,
                     w->broken[r]);
    }
}

static void check_values(const world *w, const char *what) {
    static int64_t expected[WORLD_MAX][ROWS_MAX][8];
    for (int r = 0; r < w->n; r++) {
        for (int64_t i = 0; i < w->nowned[r]; i++) {
            for (int64_t c = 0; c < w->width; c++) {
                expected[r][i][c] = w->accumulate ? 5 : 0;
            }
        }
    }
    for (int r = 0; r < w->n; r++) {
        for (int64_t k = 0; k < w->nghosts[r]; k++) {
            for (int64_t c = 0; c < w->stride; c++) {
                int64_t got = w->ghosts[r][k * w->stride + c];
                int64_t want = c < w->width ? value(w->rank[r][k], w->row[r][k], c) : POISON;
                cr_assert_eq(got, want, "%s: ghost %d of rank %d: %lld, must be %lld", what, (int)k,
                             r, (long long)got, (long long)want);
                expected[w->rank[r][k]][w->row[r][k]][c] += c < w->width ? upstream(r, k, c) : 0;
            }
        }
    }
    for (int r = 0; r < w->n; r++) {
        for (int64_t i = 0; i < w->nowned[r]; i++) {
            for (int64_t c = 0; c < w->width; c++) {
                cr_assert_eq(w->gradient[r][i * w->stride + c], expected[r][i][c],
                             "%s: gradient of row %d of rank %d", what, (int)i, r);
            }
            for (int64_t c = w->width; c < w->stride; c++) {
                cr_assert_eq(w->gradient[r][i * w->stride + c], POISON);
            }
        }
    }
}

/* References with every algorithm, with and without accumulate. */
static void run_drawn(unsigned usual, int rows, int ghosts) {
    static world w;
    seed_range seeds = test_seeds(usual);
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        memset(&w, 0, sizeof w);
        draw(&w, (unsigned)seed + 1, rows, ghosts);
        for (int a = 0; a < 3; a++) {
            for (w.accumulate = 0; w.accumulate < 2; w.accumulate++) {
                char what[64];
                snprintf(what, sizeof what, "seed %d, algorithm %d", (int)seed, a);
                w.algorithm = (lierne_graph_algorithm)a;
                run(&w);
                for (int r = 0; r < w.n; r++) {
                    cr_assert_eq(w.status[r], LIERNE_OK, "%s: %s", what, w.message[r]);
                }
                check_values(&w, what);
                cr_assert(a != LIERNE_GRAPH_ALGORITHM_DIRECT || strcmp(w.taken, "direct") == 0);
                cr_assert(a != LIERNE_GRAPH_ALGORITHM_ALL_GATHER || w.n == 1 ||
                          strcmp(w.taken, "all_gather") == 0);
            }
        }
    }
}

Test(graph, random_references) {
    run_drawn(300, 24, GHOSTS_MAX);
}

/* With few shared rows, sums are planned from the contributions alone. */
Test(graph, few_ghosts_of_many_rows) {
    run_drawn(100, ROWS_MAX, 4);
}

/* All ranks own equally many rows and need all rows, so that both algorithms move the same bytes.
 * Three ranks send two messages with either one, which is a tie; four send three or two. */
Test(graph, of_equal_costs_direct_is_taken) {
    static const char *const taken[] = {"direct", "all_gather"};
    static world w;
    for (int i = 0; i < 2; i++) {
        memset(&w, 0, sizeof w);
        w.n = 3 + i;
        w.width = w.stride = 2;
        for (int r = 0; r < w.n; r++) {
            w.nowned[r] = 5;
            for (int k = 0; k < 5 * (w.n - 1); k++) {
                w.rank[r][k] = (r + 1 + k / 5) % w.n;
                w.row[r][k] = k % 5;
            }
            w.nghosts[r] = 5 * (w.n - 1);
        }
        run(&w);
        for (int r = 0; r < w.n; r++) {
            cr_assert_eq(w.status[r], LIERNE_OK, "%s", w.message[r]);
        }
        check_values(&w, taken[i]);
        cr_assert_str_eq(w.taken, taken[i], "%d ranks", w.n);
    }
}

static void run_rejected(world *w, lierne_status wanted, const char *says) {
    run(w);
    for (int r = 0; r < w->n; r++) {
        cr_assert_eq(w->status[r], wanted, "%s: %s", lierne_status_name(w->status[r]),
                     w->message[r]);
        cr_assert(strstr(w->message[r], says), "%s", w->message[r]);
        cr_assert_str_eq(w->message[r], w->message[0]);
    }
}

/* Rank r has a ghost of rank r + 1. */
static void draw_ring(world *w) {
    memset(w, 0, sizeof *w);
    w->n = 4;
    w->width = w->stride = 1;
    for (int r = 0; r < w->n; r++) {
        w->nowned[r] = 3;
        w->nghosts[r] = 1;
        w->rank[r][0] = (r + 1) % 4;
        w->row[r][0] = r % 3;
    }
}

/* A bad row or rank on one rank alone is the same error on all of them. */
Test(graph, bad_references) {
    static const int64_t rows[] = {3, -1, INT64_MAX};
    static world w;
    for (int a = 0; a < 3; a++) {
        for (int bad = 0; bad < 5; bad++) {
            draw_ring(&w);
            w.algorithm = (lierne_graph_algorithm)a;
            if (bad < 3) {
                w.row[2][0] = rows[bad];
            } else {
                w.rank[2][0] = bad == 3 ? 4 : -1;
            }
            run_rejected(&w, bad < 3 ? LIERNE_ERR_INDEX_RANGE : LIERNE_ERR_PEER_RANGE, "rank 2");
        }
    }
}

/* A rank that passes out NULL makes no rank wait. */
Test(graph, no_out_on_one_rank) {
    static world w;
    draw_ring(&w);
    w.no_out[2] = true;
    run_rejected(&w, LIERNE_ERR_INVALID, "rank 2: out is NULL");
}

/* One row of 2^61 bytes is valid; what its owner would send or sum for eight ranks is 2^64 bytes.
 */
Test(graph, sums_that_do_not_fit) {
    static world w;
    for (int a = 0; a < 3; a++) {
        memset(&w, 0, sizeof w);
        w.n = WORLD_MAX;
        w.algorithm = (lierne_graph_algorithm)a;
        w.width = w.stride = (int64_t)1 << 58;
        w.nowned[0] = 1;
        for (int r = 0; r < w.n; r++) {
            w.nghosts[r] = 1;
        }
        run_rejected(&w, LIERNE_ERR_COUNT_RANGE, "do not fit");
    }
}

/* max_inflight 0 means 1, also beside ranks that say 1. */
Test(graph, default_of_requests_in_flight) {
    static world w;
    draw_ring(&w);
    w.inflight[1] = w.inflight[2] = 1;
    run(&w);
    for (int r = 0; r < w.n; r++) {
        cr_assert_eq(w.status[r], LIERNE_OK, "%s", w.message[r]);
    }
    check_values(&w, "0 and 1 in flight");
}

/* Two ranks with two rows each. Rank 0 has edges 2 -> 0 and 0 -> target. */
typedef struct targets {
    int64_t target;
    int allowed;
    lierne_status status[2];
    char message[2][256];
    int64_t edge_target;
} targets;

static void plan_targets(lierne_context *context, void *shared) {
    targets *t = shared;
    int r = lierne_context_get_rank(context);
    lierne_graph_spec spec = LIERNE_GRAPH_SPEC_INIT;
    spec.nrows = 4, spec.owner = (int32_t[]){0, 0, 1, 1};
    spec.nedges = r == 0 ? 2 : 0;
    spec.source = (int64_t[]){2, 0}, spec.target = (int64_t[]){0, t->target};
    spec.dtype = LIERNE_DTYPE_F32, spec.remote_targets = r == 0 && t->allowed;
    lierne_plan *plan = NULL;
    t->status[r] = lierne_plan_create_graph(&plan, context, &spec);
    snprintf(t->message[r], sizeof t->message[r], "%s", lierne_last_error());
    lierne_graph_lists lists = {.size = sizeof lists};
    if (r == 0 && plan && lierne_plan_get_graph_lists(&lists, plan) == LIERNE_OK) {
        t->edge_target = lists.edge_target[1];
    }
    lierne_plan_destroy(plan);
}

/* A target of another rank is a ghost, if an edge has it as its source and one rank alone says so.
 */
Test(graph, remote_targets) {
    static const struct {
        int64_t target;
        int allowed;
        lierne_status status;
        int64_t edge_target;
        const char *says;
    } cases[] = {{1, 1, LIERNE_OK, 1, ""},
                 {2, 1, LIERNE_OK, 2, ""},
                 {2, 0, LIERNE_ERR_EDGE_TARGET_NOT_OWNED, -1, "target 2, which rank 1 owns"},
                 {3, 1, LIERNE_ERR_EDGE_TARGET_NOT_OWNED, -1, "and no edge has as its source"},
                 {-1, 1, LIERNE_ERR_INDEX_RANGE, -1, "edge 1 is 0 -> -1"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        targets t = {.target = cases[i].target, .allowed = cases[i].allowed, .edge_target = -1};
        ranks_run(2, NULL, plan_targets, &t);
        for (int r = 0; r < 2; r++) {
            cr_assert_eq(t.status[r], cases[i].status, "case %zu: %s", i, t.message[r]);
            cr_assert(strstr(t.message[r], cases[i].says), "case %zu: %s", i, t.message[r]);
        }
        cr_assert_eq(t.edge_target, cases[i].edge_target, "case %zu", i);
    }
}

/* What a plan keeps is there once. */
Test(graph, no_memory_for_the_plan) {
    const lierne_graph_spec spec = {.size = sizeof spec, .dtype = LIERNE_DTYPE_F32, .width = 1};
    lierne_context *context;
    lierne_plan *plan;
    cr_assert_eq(lierne_context_create_self(&context, NULL), LIERNE_OK);
    lierne_mem_fail_at(1);
    cr_expect_eq(lierne_plan_create_graph(&plan, context, &spec), LIERNE_ERR_NO_MEMORY);
    lierne_mem_fail_at(0);
    cr_expect(strstr(lierne_last_error(), "no memory for 1 items of "), "%s", lierne_last_error());
    cr_assert_eq(lierne_context_destroy(context), LIERNE_OK);
}

static size_t count_allocations(const int64_t *to, const int64_t *from, int64_t n) {
    const lierne_row_sums sums = {.to = {LIERNE_BUFFER_OUT, 0, 1},
                                  .nrows = 100,
                                  .from = {LIERNE_BUFFER_IN, 0, 1},
                                  .width = 1};
    lierne_status status = LIERNE_ERR_NO_MEMORY;
    size_t k = 0;
    while (status == LIERNE_ERR_NO_MEMORY) {
        lierne_route *route;
        lierne_stage *stage;
        cr_assert_eq(lierne_route_create(&route, 0, 100, 100), LIERNE_OK);
        cr_assert_eq(lierne_route_add_stage(route, &stage), LIERNE_OK);
        lierne_mem_fail_at(++k);
        status = lierne_star_forest_sums(route, &stage->sums, &sums, to, from, n);
        lierne_mem_fail_at(0);
        lierne_route_destroy(route);
    }
    cr_assert_eq(status, LIERNE_OK);
    return k;
}

/* Rows that are distinct and ascend, and behind them their contributions, are what an operation
 * lists: they need no table. */
Test(graph, lists_of_an_operation_are_taken_as_they_are) {
    const int64_t lists[] = {3, 40, 77, 5, 9, 2}, apart[] = {5, 9, 2};
    cr_expect_lt(count_allocations(lists, lists + 3, 3), count_allocations(lists, apart, 3));
}
