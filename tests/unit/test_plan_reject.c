/* What makes no plan: bad arguments, specs and contexts, ranks that disagree, no memory. Every
 * error names the function, the value and the bound, and nothing is left. */
#include "unit/expect.h"
#include "unit/plan_case.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void expect_error_of(const char *function) {
    size_t n = strlen(function);
    const char *error = lierne_last_error();
    cr_assert(strncmp(error, function, n) == 0 && error[n] == ':', "'%s' is not of %s", error,
              function);
}

/* A message begins with the public function that was called. */
Test(plan, errors_name_the_function_that_was_called) {
    lierne_grid *src = grid(1, 1, 1, 1), *dst = grid(1, 1, 1, 1);
    lierne_bridge_spec spec = spec_of(src, dst);
    lierne_context *self;
    lierne_plan *plan, *other;
    lierne_request *first, *second;
    float x[128] = {0};
    const lierne_route *route = (const void *)x;
    assert_ok(lierne_context_create_self(&self, NULL));
    assert_ok(lierne_plan_create_bridge(&plan, self, &spec));
    cr_assert_eq(lierne_plan_forward(NULL, x, x + 64, NULL), LIERNE_ERR_INVALID);
    expect_error_of("lierne_plan_forward");
    cr_assert_eq(lierne_plan_adjoint(plan, x, NULL, NULL), LIERNE_ERR_INVALID);
    expect_error_of("lierne_plan_adjoint");
    cr_assert_eq(lierne_plan_reduce(plan, LIERNE_REDUCTION_MAX, x, x + 64, NULL),
                 LIERNE_ERR_INVALID);
    expect_error_of("lierne_plan_reduce");
    cr_assert_eq(lierne_plan_get_route(&route, plan, (lierne_direction)2), LIERNE_ERR_INVALID);
    expect_error_of("lierne_plan_get_route");
    cr_assert_null(route);
    assert_says("direction is 2, must be 0");
    cr_assert_eq(lierne_plan_get_elements(NULL, NULL, NULL, LIERNE_DIRECTION_FORWARD),
                 LIERNE_ERR_INVALID);
    expect_error_of("lierne_plan_get_elements");
    assert_ok(lierne_plan_forward_begin(&first, plan, x, x + 64, NULL));
    cr_assert_eq(lierne_plan_forward_begin(&second, plan, x, x + 64, NULL), LIERNE_ERR_BUSY);
    expect_error_of("lierne_plan_forward_begin");
    cr_assert_eq(lierne_plan_destroy(plan), LIERNE_ERR_BUSY);
    expect_error_of("lierne_plan_destroy");
    assert_ok(lierne_request_end(first));
    cr_assert_eq(lierne_plan_create_composed(&other, plan, NULL), LIERNE_ERR_INVALID);
    expect_error_of("lierne_plan_create_composed");
    cr_assert_eq(lierne_plan_create_graph(&other, self, NULL), LIERNE_ERR_INVALID);
    expect_error_of("lierne_plan_create_graph");
    cr_assert_eq(lierne_plan_update_graph(plan, NULL), LIERNE_ERR_INVALID);
    expect_error_of("lierne_plan_update_graph");
    assert_ok(lierne_plan_destroy(plan));
    assert_ok(lierne_context_destroy(self));
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

Test(plan, bad_arguments_start_nothing) {
    lierne_grid *src = grid(1, 1, 1, 1), *dst = grid(1, 1, 1, 1);
    lierne_bridge_spec spec = spec_of(src, dst);
    lierne_context *self;
    lierne_plan *plan;
    float x[128] = {0};
    int64_t offset;
    lierne_report report = {0};
    assert_ok(lierne_context_create_self(&self, NULL));
    assert_ok(lierne_plan_create_bridge(&plan, self, &spec));
    cr_assert_eq(lierne_context_destroy(self), LIERNE_ERR_INVALID, "a plan is alive");
    cr_assert_eq(lierne_plan_forward(NULL, x, x + 64, NULL), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_plan_forward(plan, x, NULL, NULL), LIERNE_ERR_INVALID);
    assert_error(lierne_plan_forward(plan, x, x + 32, NULL), LIERNE_ERR_INVALID, "overlap");
    assert_error(lierne_plan_forward(plan, x, x + 64, &offset), LIERNE_ERR_UNSUPPORTED, "stream");
    cr_assert_eq(lierne_plan_forward_begin(NULL, plan, x, x + 64, NULL), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_plan_get_alias(&offset, plan, (lierne_direction)2), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_plan_get_alias(NULL, plan, LIERNE_DIRECTION_FORWARD), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_FORWARD),
                 LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_plan_print(NULL, plan, LIERNE_DIRECTION_FORWARD), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_plan_check(NULL, 1), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_plan_check((const lierne_plan *const[]){plan}, 0), LIERNE_ERR_INVALID);
    assert_ok(lierne_plan_check((const lierne_plan *const[]){plan}, 1));
    x[64] = 7;
    assert_ok(lierne_plan_forward(plan, x, x + 64, NULL));
    cr_assert(x[0] == 7);
    assert_ok(lierne_plan_destroy(plan));
    assert_ok(lierne_plan_destroy(NULL));
    assert_ok(lierne_context_destroy(self));
    assert_ok(lierne_context_destroy(NULL));
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

/* Every bad spec gives its status, and the message has the value and the bound. */
static void rejected_by(test_algorithm algorithm, lierne_bridge_spec spec, lierne_status status,
                        const char *part, int world) {
    lierne_sim *sim = sim_of(world, 5);
    lierne_plan *plan = (lierne_plan *)&spec;
    cr_assert_eq(test_plan_bridge(&plan, lierne_sim_get_context(sim, 0), &spec, algorithm), status,
                 "%s: %s", part, lierne_last_error());
    assert_says(part);
    cr_assert_null(plan);
    assert_ok(lierne_sim_destroy(sim));
}

static void rejected(lierne_bridge_spec spec, lierne_status status, const char *part, int world) {
    rejected_by(TEST_DIRECT, spec, status, part, world);
}

static void collective_rejected(lierne_bridge_spec spec, lierne_status status, const char *part,
                                int world) {
    rejected_by(TEST_COLLECTIVE, spec, status, part, world);
}

Test(plan, bad_specs_are_rejected_with_value_and_bound) {
    lierne_grid *src = grid(8, 2, 1, 4), *dst = grid(8, 2, 2, 2), *cp = grid(8, 2, 2, 2);
    lierne_grid *odd = grid(8, 1, 1, 3), *swapped;
    const lierne_bridge_spec good = spec_of(src, dst);
    const int64_t odd_shape[3] = {7, 6, 2}, counts[4] = {3, 3, 1, 2}, negative[3] = {8, -4, 2};
    int32_t rows[32] = {0};
    lierne_bridge_spec s;
    s = good, s.size = 3, rejected(s, LIERNE_ERR_INVALID, "size", 8);
    s = good, s.src = NULL, rejected(s, LIERNE_ERR_INVALID, "source grid is NULL", 8);
    s = good, rejected(s, LIERNE_ERR_INVALID, "a world of 8 ranks, the context one of 4", 4);
    s = good, s.naxes = 4, rejected(s, LIERNE_ERR_INVALID, "naxes is 4, must be 2 or 3", 8);
    s = good, s.shape = negative, rejected(s, LIERNE_ERR_INVALID, "-4", 8);
    s = good, s.naxes = 2, s.sequence_axis = -1, s.rows_per_sample = 3;
    rejected(s, LIERNE_ERR_INVALID, "rows_per_sample is 3, must divide the 8 rows", 8);
    s.rows_per_sample = 4, s.row_order = (lierne_row_order)2;
    rejected(s, LIERNE_ERR_INVALID, "row_order is 2", 8);
    s = good, s.batch_axis = 3, rejected(s, LIERNE_ERR_INVALID, "batch_axis is 3", 8);
    s = good, s.sequence_axis = 0, rejected(s, LIERNE_ERR_INVALID, "sequence_axis 0", 8);
    s = good, s.sequence_axis = 3, rejected(s, LIERNE_ERR_INVALID, "sequence_axis 3", 8);
    s = good, s.dtype = (lierne_dtype)99, rejected(s, LIERNE_ERR_INVALID, "dtype is 99", 8);
    s = good, s.max_inflight = 65, rejected(s, LIERNE_ERR_INVALID, "65, must be in 0 to 64", 8);
    s = good, s.routing = (lierne_routing)-1;
    rejected(s, LIERNE_ERR_INVALID, "routing is -1, must be in 0 to 2", 8);
    s = good, s.src_counts = counts, rejected(s, LIERNE_ERR_INVALID, "add up to 9", 8);
    s = good, s.gradient_owner = LIERNE_GRADIENT_OWNER_ROWS;
    rejected(s, LIERNE_ERR_INVALID, "row_owner is NULL", 8);
    rows[5] = 2, s.row_owner = rows, rejected(s, LIERNE_ERR_INVALID, "row 5 has owner 2", 8);
    s = good, s.gradient_storage = LIERNE_STORAGE_COMPACT,
    rejected(s, LIERNE_ERR_INVALID, "compact", 8);
    s = good, s.gradient_owner = LIERNE_GRADIENT_OWNER_ZIGZAG, s.sequence_axis = -1;
    rejected(s, LIERNE_ERR_INVALID, "needs a sequence axis", 8);
    s = good, s.gradient_owner = LIERNE_GRADIENT_OWNER_ZIGZAG, s.shape = odd_shape;
    rejected(s, LIERNE_ERR_INDIVISIBLE, "divisible by 4, it has 6", 8);
    s = good, s.require_divisible = 1, s.shape = odd_shape,
    rejected(s, LIERNE_ERR_INDIVISIBLE, "7", 8);
    s = good, s.require_divisible = 1, s.src = odd, rejected(s, LIERNE_ERR_INDIVISIBLE, "dp 3", 8);
    s = good, s.src = cp, rejected(s, LIERNE_ERR_UNSUPPORTED, "source cp is 2, must be 1", 8);
    s = good, s.src = odd;
    collective_rejected(s, LIERNE_ERR_UNSUPPORTED, "source grid has 3 ranks", 8);
    s = good, s.shape = odd_shape;
    collective_rejected(s, LIERNE_ERR_INDIVISIBLE,
                        "fan_in: the batch of 7 samples is not divisible", 8);
    const char *const names[2] = {"dp", "tp"};
    const int64_t sizes[2] = {4, 2};
    lierne_grid_spec g = {
        .size = sizeof g, .ndims = 2, .names = names, .sizes = sizes, .world_size = 8};
    lierne_grid_create(&swapped, &g);
    s = good, s.src = swapped;
    collective_rejected(s, LIERNE_ERR_MISALIGNED, "on 4 ranks: 2, 3, 4, 5", 8);
    lierne_grid_destroy(src), lierne_grid_destroy(dst), lierne_grid_destroy(cp),
        lierne_grid_destroy(odd);
    lierne_grid_destroy(swapped);
}

Test(plan, variable_rows_reject_what_they_cannot_do) {
    lierne_grid *src = grid(4, 2, 1, 2), *dst = grid(4, 1, 2, 2);
    lierne_bridge_spec spec = spec_of(src, dst);
    lierne_bridge_spec s;
    spec.variable_rows = 1;
    s = spec, s.batch_axis = 1, s.sequence_axis = 0;
    rejected(s, LIERNE_ERR_INVALID, "needs axes batch, sequence, hidden", 4);
    collective_rejected(spec, LIERNE_ERR_UNSUPPORTED, "variable_rows must be 0", 4);
    s = spec, s.gradient_owner = LIERNE_GRADIENT_OWNER_ZIGZAG;
    rejected(s, LIERNE_ERR_UNSUPPORTED, "gradient_owner is 1", 4);
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
}

Test(plan, ranks_that_disagree_get_mismatch) {
    lierne_grid *src = grid(4, 2, 1, 2), *dst = grid(4, 4, 1, 1), *other = grid(4, 2, 2, 1);
    lierne_sim *sim = sim_of(4, 5);
    lierne_bridge_spec good = spec_of(src, dst), bad = good;
    const int64_t shape[3] = {8, 4, 3};
    lierne_plan *first, *second;
    float x[64] = {1}, y[64];
    bad.shape = shape;
    assert_ok(lierne_plan_create_bridge(&first, lierne_sim_get_context(sim, 0), &good));
    assert_error(lierne_plan_create_bridge(&second, lierne_sim_get_context(sim, 1), &bad),
                 LIERNE_ERR_MISMATCH, "shape[2] differs between ranks: 2 on rank 0, 3 on rank 1");
    cr_assert_null(second);
    cr_assert_eq(lierne_plan_create_bridge(&second, lierne_sim_get_context(sim, 2), &good),
                 LIERNE_ERR_MISMATCH);
    cr_assert_eq(lierne_plan_forward(first, y, x, NULL), LIERNE_ERR_MISMATCH,
                 "who came first is told too");
    lierne_plan_destroy(first);
    bad = good, bad.dst = other;
    assert_ok(lierne_plan_create_bridge(&second, lierne_sim_get_context(sim, 1), &good));
    lierne_plan_destroy(second);
    assert_error(lierne_plan_create_bridge(&second, lierne_sim_get_context(sim, 0), &bad),
                 LIERNE_ERR_MISMATCH, "dst.dim[0].size");
    assert_ok(lierne_sim_destroy(sim));
    lierne_grid_destroy(src), lierne_grid_destroy(dst), lierne_grid_destroy(other);
}

Test(plan, bad_contexts) {
    lierne_context *c;
    lierne_sim *sim;
    lierne_context_spec spec = {.size = 1};
    cr_assert_eq(lierne_context_create_self(NULL, NULL), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_context_create_self(&c, &spec), LIERNE_ERR_INVALID);
    spec = (lierne_context_spec){.size = sizeof spec, .timeout = -1};
    cr_assert_eq(lierne_context_create_self(&c, &spec), LIERNE_ERR_INVALID);
    cr_assert_null(c);
    cr_assert_eq(lierne_sim_create(&sim, 0, NULL), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_sim_create(&sim, 1 << 25, NULL), LIERNE_ERR_INVALID);
    setenv("LIERNE_TIMEOUT_MS", "soon", 1);
    assert_error(lierne_context_create_self(&c, NULL), LIERNE_ERR_INVALID,
                 "LIERNE_TIMEOUT_MS is 'soon'");
    setenv("LIERNE_TIMEOUT_MS", "250", 1);
    assert_ok(lierne_context_create_self(&c, NULL));
    cr_assert_eq(lierne_context_get_rank(c), 0);
    cr_assert_eq(lierne_context_get_world_size(c), 1);
    cr_assert_eq(lierne_context_get_ngroups(c), 0);
    assert_ok(lierne_context_destroy(c));
    unsetenv("LIERNE_TIMEOUT_MS");
    setenv("LIERNE_CHECK", "10", 1);
    assert_error(lierne_context_create_self(&c, NULL), LIERNE_ERR_INVALID,
                 "LIERNE_CHECK is '10', must be 0 or 1");
    unsetenv("LIERNE_CHECK");
    assert_ok(lierne_sim_create(&sim, 2, NULL));
    cr_assert_eq(lierne_context_destroy(lierne_sim_get_context(sim, 0)), LIERNE_ERR_INVALID);
    cr_assert_null(lierne_sim_get_context(sim, 2));
    assert_ok(lierne_sim_destroy(sim));
    assert_ok(lierne_sim_destroy(NULL));
}

/* The k-th allocation fails, for every k: an error and no leak; then planning succeeds. */
Test(plan, running_out_of_memory_leaves_nothing) {
    lierne_grid *src = grid(8, 2, 1, 4), *dst = grid(8, 2, 2, 2);
    int32_t rows[32];
    for (int i = 0; i < 32; i++) {
        rows[i] = i % 2;
    }
    for (int owner = 0; owner < 5; owner++) {
        lierne_bridge_spec spec = spec_of(src, dst);
        spec.gradient_owner =
            owner < 4 ? (lierne_gradient_owner)owner : LIERNE_GRADIENT_OWNER_PARTIAL;
        spec.row_owner = owner == LIERNE_GRADIENT_OWNER_ROWS ? rows : NULL;
        test_algorithm algorithm = owner < 4 ? TEST_DIRECT : TEST_COLLECTIVE;
        lierne_status status = LIERNE_ERR_NO_MEMORY;
        for (size_t k = 1; status != LIERNE_OK; k++) {
            size_t before = lierne_mem_live();
            lierne_sim *sim = NULL;
            lierne_plan *plan = NULL;
            cr_assert_lt(k, 10000);
            lierne_mem_fail_at(k);
            status = lierne_sim_create(&sim, 8, NULL);
            if (status == LIERNE_OK) {
                status = test_plan_bridge(&plan, lierne_sim_get_context(sim, 2), &spec, algorithm);
            }
            lierne_mem_fail_at(0);
            cr_assert(status == LIERNE_OK || status == LIERNE_ERR_NO_MEMORY, "%s",
                      lierne_last_error());
            cr_assert((status == LIERNE_OK) == (plan != NULL));
            lierne_plan_destroy(plan);
            lierne_sim_destroy(sim);
            cr_assert_eq(lierne_mem_live(), before, "k = %zu: leaked", k);
        }
    }
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
}

/* Wherever the first rank runs out of memory, no other rank gets a plan; nor does any rank get the
 * next plan if the world could not record the failure. */
Test(plan, a_rank_without_memory_fails_the_ranks_after_it) {
    lierne_grid *src = grid(2, 1, 1, 2), *dst = grid(2, 1, 2, 1);
    lierne_bridge_spec spec = spec_of(src, dst);
    lierne_status first = LIERNE_ERR_NO_MEMORY;
    for (size_t k = 1; first != LIERNE_OK; k++) {
        lierne_sim *sim = sim_of(2, 5);
        lierne_plan *plans[2][2];
        lierne_mem_fail_at(k);
        first = lierne_plan_create_bridge(&plans[0][0], lierne_sim_get_context(sim, 0), &spec);
        lierne_mem_fail_at(0);
        lierne_status again =
            lierne_plan_create_bridge(&plans[1][0], lierne_sim_get_context(sim, 0), &spec);
        cr_assert_eq(lierne_plan_create_bridge(&plans[0][1], lierne_sim_get_context(sim, 1), &spec),
                     first, "k = %zu: %s", k, lierne_last_error());
        cr_assert_eq(lierne_plan_create_bridge(&plans[1][1], lierne_sim_get_context(sim, 1), &spec),
                     again, "k = %zu: %s", k, lierne_last_error());
        for (int i = 0; i < 4; i++) {
            lierne_plan_destroy(plans[i / 2][i % 2]);
        }
        lierne_sim_destroy(sim);
    }
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
}
