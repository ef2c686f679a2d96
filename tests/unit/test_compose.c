/* Plans made of plans: which ones are rejected, and combined buffers; tests/golden and tests/mpi
 * compare their results with serial models. A world of one rank, so all ghosts are of own rows. */
#include "base/base.h"
#include "bridge_plan.h"
#include "collectives.h"
#include "plan/plan.h"
#include "rank_threads.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <lierne.h>
#include <lierne/sim.h>
#include <string.h>

/* A plan from nowned rows to copies of some of them. */
static lierne_plan *copies(lierne_sim *sim, int64_t nowned, const int64_t *row, int64_t n,
                           lierne_dtype dtype, int accumulate) {
    static const int32_t rank[8];
    const lierne_references_spec spec = {.size = sizeof spec,
                                         .nowned = nowned,
                                         .nghosts = n,
                                         .rank = rank,
                                         .row = row,
                                         .dtype = dtype,
                                         .width = 1,
                                         .accumulate = accumulate};
    lierne_plan *plan = NULL;
    assert_ok(lierne_plan_create_references(&plan, lierne_sim_get_context(sim, 0), &spec));
    return plan;
}

static void close_sim(lierne_sim *sim) {
    expect_ok(lierne_sim_destroy(sim));
    cr_expect_eq(lierne_mem_live(), 0);
}

Test(compose, only_plans_that_fit_are_composed) {
    lierne_sim *sim, *other;
    cr_assert(lierne_sim_create(&sim, 1, NULL) == LIERNE_OK &&
              lierne_sim_create(&other, 1, NULL) == LIERNE_OK);
    const int64_t rows[] = {2, 0, 2, 1};
    lierne_plan *first = copies(sim, 3, rows, 2, LIERNE_DTYPE_I64, 0);
    lierne_plan *bad[] = {copies(sim, 1, rows + 1, 1, LIERNE_DTYPE_I64, 0),
                          copies(sim, 3, rows, 4, LIERNE_DTYPE_I64, 0),
                          copies(sim, 2, rows + 1, 1, LIERNE_DTYPE_F64, 0),
                          copies(sim, 2, rows + 1, 1, LIERNE_DTYPE_I64, 1),
                          copies(other, 2, rows + 1, 1, LIERNE_DTYPE_I64, 0),
                          NULL};
    const char *says[] = {"forward: one plan writes 2 elements, the other reads 1",
                          "forward: one plan writes 2 elements, the other reads 3",
                          "dtypes i64 and f64 differ",
                          "accumulates",
                          "different contexts",
                          "NULL"};
    for (int i = 0; i < 6; i++) {
        lierne_plan *plan = first;
        lierne_status status = lierne_plan_create_composed(&plan, first, bad[i]);
        cr_expect(status == LIERNE_ERR_INVALID && !plan, "%s: %s", says[i],
                  lierne_status_name(status));
        expect_says(says[i]);
        expect_ok(lierne_plan_destroy(bad[i]));
    }
    cr_expect_eq(lierne_plan_create_composed(NULL, first, first), LIERNE_ERR_INVALID);
    expect_ok(lierne_plan_destroy(first));
    expect_ok(lierne_sim_destroy(other));
    close_sim(sim);
}

/* The plans of a run whose groups have communicators of their own are copies. */
Test(compose, a_copy_for_a_run_does_the_same) {
    static const int64_t rows[] = {2, 0}, in[3] = {7, 8, 9};
    lierne_all_reduce_spec most =
        all_reduce_of(1, LIERNE_DTYPE_I64, LIERNE_COLLECTIVE_ALGORITHM_AUTO);
    int64_t out[3];
    lierne_sim *sim;
    most.reduction = LIERNE_REDUCTION_MAX;
    assert_ok(lierne_sim_create(&sim, 1, NULL));
    lierne_context *context = lierne_sim_get_context(sim, 0);
    lierne_plan *plans[2] = {copies(sim, 3, rows, 2, LIERNE_DTYPE_I64, 0)}, *made[2];
    assert_ok(lierne_plan_create_all_reduce(&plans[1], context, &most));
    for (int i = 0; i < 2; i++) {
        assert_ok(lierne_plan_copy(&made[i], context, plans[i], NULL, i));
    }
    assert_ok(lierne_plan_forward(made[0], out, in, NULL));
    cr_expect(out[0] == 9 && out[1] == 7, "%lld %lld", (long long)out[0], (long long)out[1]);
    assert_error(lierne_plan_adjoint(made[1], out, in, NULL), LIERNE_ERR_INVALID,
                 "its reduction is LIERNE_REDUCTION_MAX");
    for (int i = 0; i < 2; i++) {
        assert_ok(lierne_plan_destroy(made[i]));
        assert_ok(lierne_plan_destroy(plans[i]));
    }
    close_sim(sim);
}

typedef struct copying {
    lierne_plan *plans[2], *made[2];
    lierne_status status[2];
} copying;

static void copy_plan(lierne_context *context, void *shared) {
    copying *c = shared;
    int rank = lierne_context_get_rank(context);
    c->status[rank] = lierne_plan_copy(&c->made[rank], context, c->plans[rank], NULL, 0);
}

/* Whether two ranks copy a plan, of whose allocations one fails, on whatever rank that is. */
static bool copies_without(size_t allocation) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 5};
    const lierne_all_gather_spec gather = all_gather_of(1, LIERNE_DTYPE_I64);
    size_t before = lierne_mem_live();
    copying c;
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, 2, &spec));
    for (int r = 0; r < 2; r++) {
        assert_ok(
            lierne_plan_create_all_gather(&c.plans[r], lierne_sim_get_context(sim, r), &gather));
    }
    lierne_mem_fail_at(allocation);
    rank_threads(sim, 2, copy_plan, &c);
    lierne_mem_fail_at(0);
    cr_assert_eq(c.status[0], c.status[1], "allocation %zu: %d, %d", allocation, c.status[0],
                 c.status[1]);
    cr_assert(c.status[0] == LIERNE_OK || c.status[0] == LIERNE_ERR_NO_MEMORY);
    for (int r = 0; r < 2 && c.status[0] == LIERNE_OK; r++) {
        assert_ok(lierne_plan_destroy(c.made[r])); /* which the context does not do */
    }
    bool alive = lierne_context_get_status(lierne_sim_get_context(sim, 0)) == LIERNE_OK;
    assert_ok(lierne_sim_destroy_all(sim));
    cr_assert(!alive || lierne_mem_live() == before, "allocation %zu: a leak", allocation);
    return c.status[0] == LIERNE_OK;
}

Test(compose, a_copy_that_one_rank_cannot_make_is_made_on_none) {
    size_t k = 1;
    while (k < 1000 && !copies_without(k)) {
        k++;
    }
    cr_expect(k > 20 && k < 1000, "%zu allocations", k);
}

/* Two rows of width elements, stride gapped, to ghosts with the same stride. */
static lierne_plan *wide(lierne_sim *sim, int64_t nowned, int64_t width, int64_t stride) {
    static const int32_t rank[2];
    static const int64_t row[2] = {1, 0};
    const lierne_references_spec spec = {.size = sizeof spec,
                                         .nowned = nowned,
                                         .nghosts = 2,
                                         .rank = rank,
                                         .row = row,
                                         .dtype = LIERNE_DTYPE_I64,
                                         .width = width,
                                         .stride = stride};
    lierne_plan *plan = NULL;
    assert_ok(lierne_plan_create_references(&plan, lierne_sim_get_context(sim, 0), &spec));
    return plan;
}

/* Elements between rows are not written, so the second plan must not read them. */
Test(compose, rows_with_gaps_fit_the_same_rows_only) {
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, 1, NULL));
    const int64_t in[] = {1, 2, -1, 3, 4};
    int64_t out[] = {0, 0, -7, 0, 0};
    lierne_plan *gapped = wide(sim, 2, 2, 3), *dense = wide(sim, 5, 1, 1), *plan;
    cr_expect_eq(lierne_plan_create_composed(&plan, gapped, dense), LIERNE_ERR_INVALID);
    expect_says("gaps between the rows");
    assert_ok(lierne_plan_create_composed(&plan, gapped, gapped));
    expect_ok(lierne_plan_forward(plan, out, in, NULL));
    cr_expect(out[0] == 1 && out[1] == 2 && out[2] == -7 && out[3] == 3 && out[4] == 4);
    expect_ok(lierne_plan_destroy(plan));
    cr_expect(lierne_plan_destroy(gapped) == LIERNE_OK && lierne_plan_destroy(dense) == LIERNE_OK);
    close_sim(sim);
}

/* A bridge of a tensor of three axes, then its rows: both ends report three axes. */
Test(compose, shapes_of_plans_of_different_kinds) {
    const int64_t shape[] = {2, 2, 3};
    lierne_sim *sim;
    lierne_grid *grid = grid_of(1, 1, 1, 1);
    lierne_plan *bridge, *plan, *rows;
    assert_ok(lierne_sim_create(&sim, 1, NULL));
    lierne_bridge_spec spec = bridge_spec_of(grid, grid, shape);
    spec.dtype = LIERNE_DTYPE_I64;
    assert_ok(lierne_plan_create_bridge(&bridge, lierne_sim_get_context(sim, 0), &spec));
    rows = wide(sim, 4, 3, 3);
    assert_ok(lierne_plan_create_composed(&plan, bridge, rows));
    for (int d = 0; d < 2; d++) {
        int64_t ends[2][LIERNE_MAX_AXES] = {{0}};
        int naxes;
        expect_ok(lierne_plan_get_shape(&naxes, ends[d], ends[!d], plan, (lierne_direction)d));
        cr_expect_eq(naxes, 3);
        cr_expect(ends[0][0] == 2 && ends[0][1] == 2 && ends[0][2] == 3);
        cr_expect(ends[1][0] == 2 && ends[1][1] == 3 && ends[1][2] == 1);
    }
    cr_expect(lierne_plan_destroy(plan) == LIERNE_OK && lierne_plan_destroy(bridge) == LIERNE_OK);
    expect_ok(lierne_plan_destroy(rows));
    lierne_grid_destroy(grid);
    close_sim(sim);
}

Test(compose, the_transpose_of_a_plan_in_place_is_in_place) {
    const int self = 0;
    const int64_t one = 1, row = 0, *rows = &row;
    const lierne_halo_spec spec = {.size = sizeof spec,
                                   .nlocal = 2,
                                   .nghost = 1,
                                   .nswap = 1,
                                   .sendproc = &self,
                                   .recvproc = &self,
                                   .sendnum = &one,
                                   .recvnum = &one,
                                   .sendlist = &rows,
                                   .dtype = LIERNE_DTYPE_I64,
                                   .width = 1};
    int64_t array[] = {10, 20, 5};
    lierne_sim *sim;
    lierne_plan *plan, *turned;
    assert_ok(lierne_sim_create(&sim, 1, NULL));
    assert_ok(lierne_plan_create_halo(&plan, lierne_sim_get_context(sim, 0), &spec));
    assert_ok(lierne_plan_create_transposed(&turned, plan));
    expect_ok(lierne_plan_forward(turned, array, array, NULL));
    cr_expect(array[0] == 15 && array[1] == 20 && array[2] == 0);
    expect_ok(lierne_plan_adjoint(turned, array, array, NULL));
    cr_expect(array[0] == 15 && array[1] == 20 && array[2] == 15);
    cr_expect(lierne_plan_destroy(plan) == LIERNE_OK && lierne_plan_destroy(turned) == LIERNE_OK);
    close_sim(sim);
}
