/* lierne_plan_create_megatron: what it rejects before any algorithm, and ranks that disagree. What
 * the algorithms do is in test_bridge.c and test_megatron_leader.c. */
#include "base/base.h"
#include "bridge_plan.h"
#include "lierne/megatron.h"
#include "lierne/sim.h"
#include "mesh.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <string.h>

enum { WORLD = 8 };

static lierne_grid *grid(int64_t tp, int64_t cp, int64_t dp, int offset) {
    mesh m = mesh_of("tcd", (int)tp, (int)cp, (int)dp);
    m.offset = offset;
    return mesh_grid(&m, WORLD);
}

static lierne_bridge_spec bridge_of(const lierne_grid *src, const lierne_grid *dst) {
    static const int64_t shape[3] = {8, 4, 2};
    return bridge_spec_of(src, dst, shape);
}

/* Rejected when planning and, unless the context is what is wrong, when checking. */
static void rejected(lierne_megatron_spec spec, int world, lierne_status wanted,
                     const char *words) {
    lierne_sim *sim;
    lierne_plan *plan = (lierne_plan *)&spec;
    assert_ok(lierne_sim_create(&sim, world, NULL));
    cr_assert_eq(lierne_plan_create_megatron(&plan, lierne_sim_get_context(sim, 0), &spec), wanted,
                 "%s", words);
    cr_assert_null(plan);
    assert_says(words);
    cr_assert_eq(strncmp(lierne_last_error(), "lierne_plan_create_megatron: ", 29), 0, "%s",
                 lierne_last_error());
    assert_ok(lierne_sim_destroy(sim));
    if (world == WORLD) {
        cr_assert_eq(lierne_megatron_check(&spec), wanted);
        assert_says(words);
        cr_assert_eq(strncmp(lierne_last_error(), "lierne_megatron_check: ", 23), 0, "%s",
                     lierne_last_error());
    }
}

Test(megatron, specs_that_are_rejected) {
    lierne_grid *src = grid(2, 1, 4, 0), *dst = grid(2, 2, 2, 0);
    lierne_bridge_spec bridge = bridge_of(src, dst), bad = bridge;
    const lierne_megatron_spec good = {sizeof good, LIERNE_MEGATRON_ALGORITHM_COLLECTIVE, &bridge};
    lierne_megatron_spec s = good;
    lierne_plan *plan;
    lierne_sim *sim;
    s.size = 3, rejected(s, WORLD, LIERNE_ERR_INVALID, "spec->size is 3");
    s = good, s.algorithm = (lierne_megatron_algorithm)0;
    rejected(s, WORLD, LIERNE_ERR_INVALID, "algorithm is 0, must be 1 (collective) or 2 (leader)");
    s = good, s.algorithm = (lierne_megatron_algorithm)3;
    rejected(s, WORLD, LIERNE_ERR_INVALID, "algorithm is 3");
    s = good, s.bridge = NULL, rejected(s, WORLD, LIERNE_ERR_INVALID, "spec->bridge is NULL");
    s = good, s.bridge = &bad, bad.naxes = 7, rejected(s, WORLD, LIERNE_ERR_INVALID, "naxes is 7");
    bad = bridge, bad.output = LIERNE_BRIDGE_OUTPUT_SHARDED;
    rejected(s, WORLD, LIERNE_ERR_INVALID, "output is 1");
    bad = bridge, bad.max_inflight = 65,
    rejected(s, WORLD, LIERNE_ERR_INVALID, "max_inflight is 65");
    bad = bridge, bad.shared_output = LIERNE_SHARING_FORWARD;
    rejected(s, WORLD, LIERNE_ERR_UNSUPPORTED, "shared_output is 1, must be 0");
    s = good, s.algorithm = LIERNE_MEGATRON_ALGORITHM_LEADER;
    rejected(s, WORLD, LIERNE_ERR_UNSUPPORTED, "must share none");
    rejected(good, WORLD + 1, LIERNE_ERR_INVALID, "a world of 8 ranks, the context one of 9");
    cr_assert_eq(lierne_plan_create_megatron(&plan, NULL, &good), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_megatron_check(NULL), LIERNE_ERR_INVALID);
    assert_ok(lierne_megatron_check(&good));
    assert_ok(lierne_sim_create(&sim, WORLD, NULL));
    lierne_context *context = lierne_sim_get_context(sim, 0);
    cr_assert_eq(lierne_plan_create_megatron(NULL, context, &good), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_plan_create_megatron(&plan, context, NULL), LIERNE_ERR_INVALID);
    cr_assert_null(plan);
    lierne_sim_destroy(sim);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

/* Rank 0 plans one spec, rank 1 another one. */
static void disagree(const lierne_megatron_spec *first, const lierne_megatron_spec *second,
                     const char *field) {
    lierne_plan *plans[2];
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, WORLD, NULL));
    assert_ok(lierne_plan_create_megatron(&plans[0], lierne_sim_get_context(sim, 0), first));
    cr_assert_eq(lierne_plan_create_megatron(&plans[1], lierne_sim_get_context(sim, 1), second),
                 LIERNE_ERR_MISMATCH, "%s", field);
    assert_says(field);
    lierne_plan_destroy(plans[0]);
    lierne_sim_destroy(sim);
}

Test(megatron, ranks_that_disagree) {
    static const int64_t other_shape[3] = {8, 4, 3};
    lierne_grid *src = grid(2, 1, 2, 0), *dst = grid(1, 1, 4, 4);
    lierne_grid *same = grid(4, 1, 2, 0), *same_dst = grid(2, 1, 4, 0), *flat = grid(2, 1, 4, 0);
    const lierne_bridge_spec bridge = bridge_of(src, dst);
    lierne_bridge_spec bad = bridge;
    const lierne_megatron_spec good = {sizeof good, LIERNE_MEGATRON_ALGORITHM_LEADER, &bridge};
    lierne_megatron_spec other = good;
    other.bridge = &bad;
    bad.shape = other_shape, disagree(&good, &other, "shape[2] differs between ranks");
    bad = bridge, bad.dtype = LIERNE_DTYPE_I32, disagree(&good, &other, "dtype differs");
    bad = bridge, bad.max_inflight = 2, disagree(&good, &other, "max_inflight differs");
    bad = bridge, bad.batch_axis = 1, bad.sequence_axis = 0;
    disagree(&good, &other, "batch_axis differs");
    const lierne_bridge_spec colocated = bridge_of(same, same_dst);
    const lierne_megatron_spec collective = {sizeof collective,
                                             LIERNE_MEGATRON_ALGORITHM_COLLECTIVE, &colocated};
    disagree(&good, &collective, "algorithm differs");
    bad = colocated, bad.src = flat, other.algorithm = LIERNE_MEGATRON_ALGORITHM_COLLECTIVE;
    disagree(&collective, &other, "src.dim[0].size differs");
    bad = colocated, bad.dst = same;
    disagree(&collective, &other, "dst.dim[0].size differs");
    lierne_grid_destroy(src), lierne_grid_destroy(dst), lierne_grid_destroy(same),
        lierne_grid_destroy(same_dst), lierne_grid_destroy(flat);
}
