/* A plan whose shape changes per step: it must do what a new plan of that shape does, in both
 * directions, and keep what it had after an error. */
#include "base/base.h"
#include "lierne.h"
#include "lierne/sim.h"
#include "mesh.h"
#include "plan/object.h"
#include "runtime/execute/execution.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <string.h>

enum { WORLD = 8, MOST = 1 << 16 };

typedef struct world {
    lierne_sim *sim;
    lierne_grid *src, *dst;
    lierne_plan *plans[WORLD];
    bool layouts; /* plan the redistribution, not the bridge */
} world;

static void open_world(world *w) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 20};
    w->src = grid_of(2, 1, 4, WORLD), w->dst = grid_of(2, 2, 2, WORLD);
    assert_ok(lierne_sim_create(&w->sim, WORLD, &spec));
}

static void close_world(world *w) {
    assert_ok(lierne_sim_destroy_all(w->sim));
    lierne_grid_destroy(w->src), lierne_grid_destroy(w->dst);
    cr_assert_eq(lierne_mem_live(), 0);
}

static lierne_bridge_spec spec_of(const world *w, const int64_t *shape) {
    lierne_bridge_spec spec = LIERNE_BRIDGE_SPEC_INIT;
    spec.src = w->src, spec.dst = w->dst;
    spec.naxes = 3, spec.shape = shape, spec.sequence_axis = 1;
    spec.dtype = LIERNE_DTYPE_I32;
    return spec;
}

static lierne_status plan_rank(lierne_plan **plan, const world *w, int rank,
                               const lierne_bridge_spec *spec) {
    lierne_context *context = lierne_sim_get_context(w->sim, rank);
    lierne_layout *src, *dst, *gradient;
    if (!w->layouts) {
        return lierne_plan_create_bridge(plan, context, spec);
    }
    assert_ok(lierne_layout_create_bridge(&src, &dst, &gradient, spec));
    const lierne_redistribute_spec r = {
        .size = sizeof r, .src = src, .dst = dst, .adjoint_src = gradient, .adjoint_dst = src};
    lierne_status status = lierne_plan_create_redistribute(plan, context, &r);
    lierne_layout_destroy(src), lierne_layout_destroy(dst), lierne_layout_destroy(gradient);
    return status;
}

/* Runs a direction on every rank, with values that no two elements share. */
static void run(lierne_plan *const *plans, lierne_direction d, int32_t (*out)[MOST],
                int64_t *elements) {
    static int32_t in[WORLD][MOST];
    lierne_request *requests[WORLD];
    for (int r = 0; r < WORLD; r++) {
        int64_t n;
        assert_ok(lierne_plan_get_elements(&n, &elements[r], plans[r], d));
        cr_assert(n <= MOST && elements[r] <= MOST);
        for (int64_t i = 0; i < n; i++) {
            in[r][i] = (int32_t)(r * MOST + i + 1);
        }
        memset(out[r], 0xa5, sizeof out[r]);
        lierne_status status =
            d == LIERNE_DIRECTION_FORWARD
                ? lierne_plan_forward_begin(&requests[r], plans[r], out[r], in[r], NULL)
                : lierne_plan_adjoint_begin(&requests[r], plans[r], out[r], in[r], NULL);
        cr_assert_eq(status, LIERNE_OK, "%s", lierne_last_error());
    }
    for (int r = 0; r < WORLD; r++) {
        assert_ok(lierne_request_end(requests[r]));
    }
}

static void expect_as_new(const world *w, const int64_t *shape) {
    static int32_t got[WORLD][MOST], wanted[WORLD][MOST];
    lierne_plan *fresh[WORLD];
    lierne_bridge_spec spec = spec_of(w, shape);
    for (int r = 0; r < WORLD; r++) {
        cr_assert_eq(plan_rank(&fresh[r], w, r, &spec), LIERNE_OK, "%s", lierne_last_error());
    }
    for (int d = 0; d < 2; d++) {
        int64_t n[WORLD], m[WORLD];
        run(w->plans, (lierne_direction)d, got, n);
        run(fresh, (lierne_direction)d, wanted, m);
        for (int r = 0; r < WORLD; r++) {
            int naxes;
            int64_t a[4], b[4];
            lierne_report x = {.size = sizeof x}, y = {.size = sizeof y};
            cr_assert_eq(n[r], m[r]);
            cr_assert_eq(memcmp(got[r], wanted[r], sizeof got[r]), 0, "rank %d direction %d", r, d);
            lierne_plan_get_shape(&naxes, NULL, a, w->plans[r], (lierne_direction)d);
            lierne_plan_get_shape(&naxes, NULL, b, fresh[r], (lierne_direction)d);
            cr_assert(naxes == 3 && memcmp(a, b, 3 * sizeof *a) == 0);
            assert_ok(lierne_plan_get_report(&x, w->plans[r], (lierne_direction)d));
            assert_ok(lierne_plan_get_report(&y, fresh[r], (lierne_direction)d));
            cr_assert(x.received_bytes == y.received_bytes && x.min_bytes == y.min_bytes &&
                      x.scratch_bytes == y.scratch_bytes);
        }
    }
    assert_ok(lierne_plan_check((const lierne_plan *const *)w->plans, WORLD));
    for (int r = 0; r < WORLD; r++) {
        lierne_plan_destroy(fresh[r]);
    }
}

static void update_all(world *w, const int64_t *shape) {
    for (int r = 0; r < WORLD; r++) {
        assert_ok(lierne_plan_update_shape(w->plans[r], shape));
    }
}

static void follow(bool layouts) {
    static const int64_t shapes[][3] = {{8, 6, 4}, {4, 6, 4},  {12, 6, 4}, {7, 5, 3},
                                        {0, 6, 4}, {16, 8, 4}, {3, 4, 5},  {8, 6, 4}};
    world w = {.layouts = layouts};
    open_world(&w);
    lierne_bridge_spec spec = spec_of(&w, shapes[0]);
    for (int r = 0; r < WORLD; r++) {
        cr_assert_eq(plan_rank(&w.plans[r], &w, r, &spec), LIERNE_OK, "%s", lierne_last_error());
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        update_all(&w, shapes[i]);
        expect_as_new(&w, shapes[i]);
    }
    close_world(&w);
}

Test(shape, a_bridge_follows_its_batch) {
    follow(false);
}

Test(shape, a_redistribution_follows_its_shape) {
    follow(true);
}

static const void *memory_of(const world *w, int rank) {
    return w->plans[rank]->requests[LIERNE_DIRECTION_ADJOINT][0].execution->memory.at;
}

Test(shape, memory_is_used_again) {
    const int64_t large[3] = {16, 8, 4}, small[3] = {8, 8, 4};
    world w = {0};
    open_world(&w);
    lierne_bridge_spec spec = spec_of(&w, large);
    for (int r = 0; r < WORLD; r++) {
        cr_assert_eq(plan_rank(&w.plans[r], &w, r, &spec), LIERNE_OK);
    }
    const void *first = memory_of(&w, 0);
    update_all(&w, large);
    const void *second = memory_of(&w, 0);
    cr_assert_neq(first, second, "the old plan must outlive the agreement");
    for (int i = 0; i < 3; i++) {
        update_all(&w, small);
        cr_assert_eq(memory_of(&w, 0), first);
        update_all(&w, large);
        cr_assert_eq(memory_of(&w, 0), second);
    }
    expect_as_new(&w, large);
    close_world(&w);
}

static void rejected(world *w, const int64_t *shape, lierne_status wanted, const char *text) {
    lierne_status status = lierne_plan_update_shape(w->plans[0], shape);
    cr_assert_eq(status, wanted, "%s: %s", lierne_status_name(status), lierne_last_error());
    assert_says(text);
}

/* Plans rank 0 alone, in a world of its own each time: a failed update is every later rank's. The
 * caller's counts do not outlive the planning. */
static void try_one(lierne_bridge_spec spec, bool layouts, const int64_t *shape,
                    lierne_status wanted, const char *text) {
    world w = {.layouts = layouts};
    int64_t counts[4] = {0};
    if (spec.src_counts) {
        memcpy(counts, spec.src_counts, sizeof counts);
        spec.src_counts = counts;
    }
    open_world(&w);
    spec.src = w.src, spec.dst = w.dst;
    cr_assert_eq(plan_rank(&w.plans[0], &w, 0, &spec), LIERNE_OK, "%s", lierne_last_error());
    memset(counts, 0xff, sizeof counts);
    rejected(&w, shape, wanted, text);
    close_world(&w);
}

Test(shape, what_cannot_change_is_rejected) {
    static const int64_t shape[3] = {8, 8, 4}, larger[3] = {9, 8, 4}, odd[3] = {8, 6, 4},
                         negative[3] = {-1, 8, 4}, counts[4] = {2, 2, 2, 2},
                         huge[3] = {INT64_MAX / 2, 8, 4};
    static int32_t rows[64];
    world none = {0};
    const lierne_bridge_spec plain = spec_of(&none, shape);
    lierne_bridge_spec spec = plain;
    cr_assert_eq(lierne_plan_update_shape(NULL, shape), LIERNE_ERR_INVALID);
    try_one(plain, false, NULL, LIERNE_ERR_INVALID, "shape is NULL");
    try_one(plain, false, negative, LIERNE_ERR_INVALID, "-1");
    try_one(plain, true, negative, LIERNE_ERR_INVALID, "-1");
    try_one(plain, false, huge, LIERNE_ERR_OVERFLOW, "axis");
    spec.src_counts = counts;
    try_one(spec, false, larger, LIERNE_ERR_INVALID, "add up to 8");
    try_one(spec, true, larger, LIERNE_ERR_INVALID,
            "the counts of dim 2 divide it: make a new plan");
    spec = plain, spec.require_divisible = 1;
    try_one(spec, false, larger, LIERNE_ERR_INDIVISIBLE, "batch of 9");
    spec = plain, spec.gradient_owner = LIERNE_GRADIENT_OWNER_ZIGZAG;
    try_one(spec, false, odd, LIERNE_ERR_INDIVISIBLE, "zigzag");
    try_one(spec, true, odd, LIERNE_ERR_INDIVISIBLE, "zigzag");
    spec = plain, spec.gradient_owner = LIERNE_GRADIENT_OWNER_ROWS, spec.row_owner = rows;
    try_one(spec, false, larger, LIERNE_ERR_INVALID, "axis 0 of shape is 9, the row map has 8");
    try_one(spec, false, odd, LIERNE_ERR_INVALID, "axis 1 of shape is 6, the row map has 8");
    try_one(spec, true, larger, LIERNE_ERR_INVALID, "the rows of dim 1 divide it: make a new plan");
    spec = plain, spec.variable_rows = 1;
    world w = {0};
    open_world(&w);
    spec.src = w.src, spec.dst = w.dst;
    lierne_plan *transposed;
    for (int r = 0; r < WORLD; r++) {
        cr_assert_eq(plan_rank(&w.plans[r], &w, r, &spec), LIERNE_OK);
    }
    rejected(&w, larger, LIERNE_ERR_INVALID, "has variable rows of its shape");
    close_world(&w);
    open_world(&w);
    spec = spec_of(&w, shape);
    cr_assert_eq(plan_rank(&w.plans[0], &w, 0, &spec), LIERNE_OK);
    assert_error(lierne_plan_update_documents(w.plans[0], 0, 2, shape), LIERNE_ERR_INVALID,
                 "kind is bridge, must be redistribute");
    assert_ok(lierne_plan_create_transposed(&transposed, w.plans[0]));
    w.plans[0] = transposed;
    rejected(&w, shape, LIERNE_ERR_INVALID, "kind is transposed, must be bridge or redistribute");
    assert_error(lierne_plan_update_documents(w.plans[0], 0, 2, shape), LIERNE_ERR_INVALID,
                 "kind is transposed, must be redistribute");
    close_world(&w);
}

Test(shape, ranks_agree_on_the_shape) {
    const int64_t shape[3] = {8, 6, 4}, other[3] = {8, 6, 2};
    world w = {0};
    open_world(&w);
    lierne_bridge_spec spec = spec_of(&w, shape);
    for (int r = 0; r < WORLD; r++) {
        cr_assert_eq(plan_rank(&w.plans[r], &w, r, &spec), LIERNE_OK);
    }
    assert_ok(lierne_plan_update_shape(w.plans[0], shape));
    assert_error(lierne_plan_update_shape(w.plans[1], other), LIERNE_ERR_MISMATCH,
                 "shape[2] differs between ranks: 4 on rank 0, 2 on rank 1");
    close_world(&w);
}

/* What the plans of w do in the adjoint is what new plans of the spec do. */
static void expect_adjoint_as_new(const world *w, const lierne_bridge_spec *spec) {
    static int32_t got[WORLD][MOST], wanted[WORLD][MOST];
    lierne_plan *fresh[WORLD];
    int64_t n[WORLD];
    for (int r = 0; r < WORLD; r++) {
        cr_assert_eq(plan_rank(&fresh[r], w, r, spec), LIERNE_OK, "%s", lierne_last_error());
    }
    run(w->plans, LIERNE_DIRECTION_ADJOINT, got, n);
    run(fresh, LIERNE_DIRECTION_ADJOINT, wanted, n);
    cr_assert_eq(memcmp(got, wanted, sizeof got), 0);
    for (int r = 0; r < WORLD; r++) {
        lierne_plan_destroy(fresh[r]);
    }
}

/* Where rows are owned by a map, the axes that it does not index may change: with the map that the
 * plan was made with, and, of a bridge, with the one that replaced it. */
static void keep_map(bool layouts) {
    const int64_t shape[3] = {4, 6, 4}, wider[3] = {4, 6, 9}, narrower[3] = {4, 6, 2};
    int32_t rows[24];
    world w = {.layouts = layouts};
    open_world(&w);
    for (int i = 0; i < 24; i++) {
        rows[i] = i * 5 / 3 % 2;
    }
    lierne_bridge_spec spec = spec_of(&w, shape);
    spec.gradient_owner = LIERNE_GRADIENT_OWNER_ROWS, spec.row_owner = rows;
    for (int r = 0; r < WORLD; r++) {
        cr_assert_eq(plan_rank(&w.plans[r], &w, r, &spec), LIERNE_OK, "%s", lierne_last_error());
    }
    update_all(&w, wider);
    spec.shape = wider;
    expect_adjoint_as_new(&w, &spec);
    for (int i = 0; i < 24; i++) {
        rows[i] = i / 7 % 2;
    }
    for (int r = 0; r < WORLD && !layouts; r++) {
        assert_ok(lierne_plan_update_rows(w.plans[r], rows));
    }
    update_all(&w, narrower);
    for (int i = 0; i < 24 && layouts; i++) {
        rows[i] = i * 5 / 3 % 2;
    }
    spec.shape = narrower;
    expect_adjoint_as_new(&w, &spec);
    close_world(&w);
}

Test(shape, a_map_keeps_its_axes_and_the_others_change) {
    keep_map(true);
}

Test(shape, a_bridge_with_a_map_too) {
    keep_map(false);
}
