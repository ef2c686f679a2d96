/* Plans of every kind, executed from their public routes alone: the bits are lierne's. Bridges of
 * many kinds are in run_case (unit/bridge_case.h), the golden cases in tests/golden. */
#include "base/base.h"
#include "mesh.h"
#include "rank_threads.h"
#include "route_executor.h"
#include "unit/expect.h"
#include "unit/halo_case.h"

#include <criterion/criterion.h>
#include <lierne.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = 12, WORLD = HALO_WORLD };

/* A world whose ranks plan everything that plan_all makes; NULL where a kind was not planned. */
typedef struct world {
    halo_case swaps;
    lierne_dtype dtype;
    int64_t stride;
    uint64_t seed;
    int accumulate;
    lierne_plan *plans[KINDS][WORLD];
    int failed[WORLD];
} world;

/* The ranks' plans of the next kind; what cannot be planned fails the test. */
static lierne_plan **next(world *w, int *kind, int rank) {
    return &w->plans[(*kind)++][rank];
}

static lierne_status plan_halos(world *w, lierne_context *context, int *kind) {
    int rank = lierne_context_get_rank(context);
    uint8_t keep[HALO_ROWS];
    lierne_halo_spec spec = w->swaps.spec[rank];
    spec.dtype = w->dtype;
    spec.stride = w->stride;
    spec.keep_ghosts = w->seed % 2;
    memset(keep, 1, sizeof keep);
    lierne_plan **swaps = next(w, kind, rank);
    LIERNE_TRY(lierne_plan_create_halo(swaps, context, &spec));
    LIERNE_TRY(lierne_plan_create_flattened(next(w, kind, rank), *swaps, 0));
    LIERNE_TRY(lierne_plan_create_flattened(next(w, kind, rank), *swaps, 1));
    LIERNE_TRY(lierne_plan_create_restricted(next(w, kind, rank), *swaps, keep));
    return lierne_plan_create_transposed(next(w, kind, rank), *swaps);
}

/* Rows of any rank, some twice. */
static lierne_status plan_references(world *w, lierne_context *context, int *kind) {
    int rank = lierne_context_get_rank(context);
    int32_t ranks[40];
    int64_t rows[40];
    for (uint64_t k = 0; k < 40; k++) {
        uint64_t at = (uint64_t)rank * 40 + k;
        ranks[k] = (int32_t)halo_case_pick(w->seed, 1, at, (uint64_t)w->swaps.world);
        rows[k] = (int64_t)halo_case_pick(w->seed, 2, at, 9);
    }
    lierne_references_spec spec = {.size = sizeof spec,
                                   .nowned = 9,
                                   .nghosts = 40,
                                   .rank = ranks,
                                   .row = rows,
                                   .dtype = w->dtype,
                                   .width = HALO_WIDTH,
                                   .stride = w->stride,
                                   .accumulate = w->accumulate};
    lierne_plan **direct = next(w, kind, rank);
    spec.algorithm = LIERNE_GRAPH_ALGORITHM_DIRECT;
    LIERNE_TRY(lierne_plan_create_references(direct, context, &spec));
    spec.algorithm = LIERNE_GRAPH_ALGORITHM_ALL_GATHER;
    LIERNE_TRY(lierne_plan_create_references(next(w, kind, rank), context, &spec));
    if (w->accumulate) {
        return LIERNE_OK;
    }
    lierne_plan **transposed = next(w, kind, rank);
    LIERNE_TRY(lierne_plan_create_transposed(transposed, *direct));
    return lierne_plan_create_composed(next(w, kind, rank), *direct, *transposed);
}

/* Edges between any rows of a graph, whose rows are dealt out round by round. */
static lierne_status plan_graph(world *w, lierne_context *context, int *kind) {
    int rank = lierne_context_get_rank(context), n = w->swaps.world;
    int32_t owner[8 * WORLD];
    int64_t source[60], target[60];
    char *text;
    for (int i = 0; i < 8 * n; i++) {
        owner[i] = i % n;
    }
    for (uint64_t e = 0; e < 60; e++) {
        uint64_t at = (uint64_t)rank * 60 + e;
        source[e] = (int64_t)halo_case_pick(w->seed, 3, at, (uint64_t)(8 * n));
        target[e] = (int64_t)halo_case_pick(w->seed, 4, at, 8) * n + rank;
    }
    const lierne_graph_spec spec = {.size = sizeof spec,
                                    .nrows = 8 * n,
                                    .owner = owner,
                                    .nedges = 60,
                                    .source = source,
                                    .target = target,
                                    .dtype = w->dtype,
                                    .width = HALO_WIDTH,
                                    .stride = w->stride,
                                    .accumulate = w->accumulate};
    lierne_plan **graph = next(w, kind, rank);
    LIERNE_TRY(lierne_plan_create_graph(graph, context, &spec));
    LIERNE_TRY(lierne_plan_serialize(&text, *graph));
    lierne_status status =
        lierne_plan_deserialize(next(w, kind, rank), context, text, strlen(text));
    lierne_text_destroy(text);
    return status;
}

static void plan_all(lierne_context *context, void *shared) {
    world *w = shared;
    int kind = 0;
    lierne_status status = plan_halos(w, context, &kind);
    status = status ? status : plan_references(w, context, &kind);
    status = status ? status : plan_graph(w, context, &kind);
    w->failed[lierne_context_get_rank(context)] = status != LIERNE_OK;
}

static void compare_all(world *w) {
    lierne_sim *sim;
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 60};
    assert_ok(lierne_sim_create(&sim, w->swaps.world, &spec));
    rank_threads(sim, w->swaps.world, plan_all, w);
    for (int r = 0; r < w->swaps.world; r++) {
        cr_assert(!w->failed[r], "rank %d did not plan", r);
    }
    for (int kind = 0; kind < KINDS && w->plans[kind][0]; kind++) {
        const char *fault = route_compare(w->plans[kind], w->swaps.world);
        cr_expect(!fault, "seed %llu, kind %d: %s", (unsigned long long)w->seed, kind, fault);
    }
    for (int i = 0; i < KINDS * WORLD; i++) {
        expect_ok(lierne_plan_destroy(w->plans[i / WORLD][i % WORLD]));
    }
    assert_ok(lierne_sim_destroy(sim));
}

Test(route_execute, plans_of_rows_are_their_public_routes) {
    world *w = calloc(1, sizeof *w);
    cr_assert(w);
    for (uint64_t seed = 0; seed < 24; seed++) {
        memset(w, 0, sizeof *w);
        halo_case_random(&w->swaps, 1 + (int)(seed % HALO_WORLD), seed);
        w->seed = seed;
        w->dtype = (lierne_dtype)(LIERNE_DTYPE_F64 + seed % 8);
        w->stride = seed % 3 ? HALO_WIDTH + (int64_t)(seed % 3) : 0;
        w->accumulate = seed % 4 == 3;
        compare_all(w);
    }
    free(w);
    cr_assert_eq(lierne_mem_live(), 0);
}

/* Counts, and a row map, that change a plan's routes after planning. */
typedef struct changing {
    lierne_bridge_spec spec;
    int32_t *rows;
    lierne_plan *plans[WORLD];
    int failed[WORLD];
} changing;

static void plan_changing(lierne_context *context, void *shared) {
    changing *c = shared;
    int rank = lierne_context_get_rank(context);
    const int64_t counts[2] = {3, 5};
    lierne_status status = lierne_plan_create_bridge(&c->plans[rank], context, &c->spec);
    if (status == LIERNE_OK) {
        status = c->spec.variable_rows ? lierne_plan_update_counts(c->plans[rank], counts)
                                       : lierne_plan_update_rows(c->plans[rank], c->rows);
    }
    c->failed[rank] = status != LIERNE_OK;
}

static void compare_changing(changing *c) {
    lierne_sim *sim;
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 60};
    assert_ok(lierne_sim_create(&sim, WORLD, &spec));
    rank_threads(sim, WORLD, plan_changing, c);
    for (int r = 0; r < WORLD; r++) {
        cr_assert(!c->failed[r], "rank %d did not plan", r);
    }
    const char *fault = route_compare(c->plans, WORLD);
    cr_expect(!fault, "%s", fault);
    for (int r = 0; r < WORLD; r++) {
        expect_ok(lierne_plan_destroy(c->plans[r]));
    }
    assert_ok(lierne_sim_destroy(sim));
}

Test(route_execute, updated_plans_are_their_public_routes) {
    const int64_t shape[3] = {8, 6, 3};
    int32_t first[8 * 6], rows[8 * 6];
    lierne_grid *src = grid_of(2, 1, 4, WORLD), *dst = grid_of(2, 2, 2, WORLD);
    for (int i = 0; i < 8 * 6; i++) {
        first[i] = i % 2;
        rows[i] = (i / 3) % 2;
    }
    changing c = {.rows = rows,
                  .spec = {.size = sizeof(lierne_bridge_spec),
                           .src = src,
                           .dst = dst,
                           .naxes = 3,
                           .shape = shape,
                           .dtype = LIERNE_DTYPE_F32,
                           .sequence_axis = 1,
                           .variable_rows = 1}};
    compare_changing(&c);
    c.spec.variable_rows = 0;
    c.spec.gradient_owner = LIERNE_GRADIENT_OWNER_ROWS;
    c.spec.row_owner = first;
    compare_changing(&c);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
    cr_assert_eq(lierne_mem_live(), 0);
}
