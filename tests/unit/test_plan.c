/* Plans as users see them: aliases, requests, threads, deadlines, disagreement, bad input, running
 * out of memory. */
#include "algorithm.h"
#include "base/base.h"
#include "lierne.h"
#include "lierne/sim.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static lierne_grid *grid(int world, int64_t tp, int64_t cp, int64_t dp) {
    static const char *const names[3] = {"tp", "cp", "dp"};
    int64_t sizes[3] = {tp, cp, dp};
    lierne_grid *g;
    lierne_grid_spec spec = {
        .size = sizeof spec, .ndims = 3, .names = names, .sizes = sizes, .world_size = world};
    cr_assert_eq(lierne_grid_create(&g, &spec), LIERNE_OK, "%s", lierne_last_error());
    return g;
}

/* [b, s, h] = [8, 4, 2] of f32, tp2 dp4 -> tp2 cp2 dp2 on 8 ranks unless changed. */
static const int64_t shape842[3] = {8, 4, 2};
static lierne_bridge_spec spec_of(const lierne_grid *src, const lierne_grid *dst) {
    return (lierne_bridge_spec){.size = sizeof(lierne_bridge_spec),
                                .src = src,
                                .dst = dst,
                                .naxes = 3,
                                .shape = shape842,
                                .dtype = LIERNE_F32,
                                .batch_axis = 0,
                                .sequence_axis = 1};
}

static lierne_sim *sim_of(int n, double timeout) {
    lierne_context_spec spec = {.size = sizeof spec, .timeout = timeout};
    lierne_sim *sim;
    cr_assert_eq(lierne_sim_create(&sim, n, &spec), LIERNE_OK);
    return sim;
}

Test(plan, fan_out_along_the_leading_axis_is_an_alias) {
    lierne_grid *src = grid(4, 4, 1, 1), *dst = grid(4, 1, 1, 4);
    lierne_bridge_spec spec = spec_of(src, dst);
    lierne_sim *sim = sim_of(4, 5);
    lierne_plan *plans[4];
    float in[64], out[16];
    for (int i = 0; i < 64; i++) {
        in[i] = (float)(i + 1);
    }
    for (int r = 0; r < 4; r++) {
        int64_t offset;
        cr_assert_eq(lierne_plan_create_bridge(&plans[r], lierne_sim_get_context(sim, r), &spec),
                     LIERNE_OK);
        cr_assert_eq(lierne_plan_get_alias(&offset, plans[r], LIERNE_FORWARD), LIERNE_OK);
        cr_assert_eq(offset, 16 * r);
        cr_assert_eq(lierne_forward(plans[r], NULL, in, NULL), LIERNE_OK);
        memset(out, 0xa5, sizeof out);
        cr_assert_eq(lierne_forward(plans[r], out, in, NULL), LIERNE_OK);
        cr_assert_eq(memcmp(out, in + offset, sizeof out), 0);
        cr_assert_eq(lierne_plan_get_alias(&offset, plans[r], LIERNE_ADJOINT), LIERNE_OK);
        cr_assert_eq(offset, -1, "the adjoint gathers");
    }
    spec.batch_axis = 1;
    spec.sequence_axis = 0;
    for (int r = 0; r < 4; r++) {
        lierne_plan *strided;
        int64_t offset;
        cr_assert_eq(lierne_plan_create_bridge(&strided, lierne_sim_get_context(sim, r), &spec),
                     LIERNE_OK);
        lierne_plan_get_alias(&offset, strided, LIERNE_FORWARD);
        cr_assert_eq(offset, -1, "a narrow of an inner axis is no alias");
        cr_assert_eq(lierne_forward(strided, NULL, in, NULL), LIERNE_INVALID);
        lierne_plan_destroy(strided);
        lierne_plan_destroy(plans[r]);
    }
    cr_assert_eq(lierne_sim_destroy(sim), LIERNE_OK);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

typedef struct worker {
    lierne_context *context;
    const lierne_bridge_spec *spec;
    test_algorithm algorithm;
    int rounds;
    int bad;
} worker;

static void *work(void *arg) {
    worker *w = arg;
    lierne_plan *plan;
    float in[64], out[64], back[64];
    if (test_plan_bridge(&plan, w->context, w->spec, w->algorithm) != LIERNE_OK) {
        w->bad = 1;
        return NULL;
    }
    int dp = lierne_context_get_rank(w->context) / 2; /* of the source: tp2 dp4 */
    for (int i = 0; i < w->rounds; i++) {
        for (int k = 0; k < 16; k++) {
            in[k] = (float)(16 * dp + k + i);
        }
        memset(out, 0xa5, sizeof out);
        w->bad |= lierne_forward(plan, out, in, NULL) != LIERNE_OK;
        for (int k = 0; k < 32; k++) {
            w->bad |= out[k] != (float)(dp / 2 * 32 + k + i);
        }
        w->bad |= lierne_adjoint(plan, back, out, NULL) != LIERNE_OK;
        for (int k = 0; k < 16; k++) { /* both cp ranks gave the whole: their sum */
            w->bad |= back[k] != 2 * in[k];
        }
    }
    w->bad |= lierne_plan_destroy(plan) != LIERNE_OK;
    return NULL;
}

Test(plan, blocking_calls_on_a_thread_per_rank) {
    lierne_grid *src = grid(8, 2, 1, 4), *dst = grid(8, 2, 2, 2);
    for (int a = 0; a < 2; a++) {
        lierne_bridge_spec spec = spec_of(src, dst);
        lierne_sim *sim = sim_of(8, 30);
        pthread_t threads[8];
        worker workers[8];
        for (int r = 0; r < 8; r++) {
            workers[r] = (worker){lierne_sim_get_context(sim, r), &spec, (test_algorithm)a, 50, 0};
            cr_assert_eq(pthread_create(&threads[r], NULL, work, &workers[r]), 0);
        }
        for (int r = 0; r < 8; r++) {
            pthread_join(threads[r], NULL);
            cr_assert(!workers[r].bad, "rank %d", r);
        }
        cr_assert_eq(lierne_sim_destroy(sim), LIERNE_OK);
    }
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

Test(plan, requests_in_flight_and_busy) {
    lierne_grid *src = grid(2, 1, 1, 2), *dst = grid(2, 2, 1, 1);
    lierne_bridge_spec spec = spec_of(src, dst);
    spec.max_inflight = 2;
    lierne_sim *sim = sim_of(2, 5);
    lierne_plan *plans[2];
    lierne_request *q[2][3];
    float in[2][3][32], out[2][3][64];
    for (int r = 0; r < 2; r++) {
        cr_assert_eq(lierne_plan_create_bridge(&plans[r], lierne_sim_get_context(sim, r), &spec),
                     LIERNE_OK);
    }
    for (int i = 0; i < 2; i++) {
        for (int r = 0; r < 2; r++) {
            for (int k = 0; k < 32; k++) {
                in[r][i][k] = (float)(1000 * i + 100 * r + k);
            }
            cr_assert_eq(lierne_forward_begin(&q[r][i], plans[r], out[r][i], in[r][i], NULL), 0);
        }
    }
    cr_assert_eq(lierne_forward_begin(&q[0][2], plans[0], out[0][2], in[0][2], NULL), LIERNE_BUSY);
    cr_assert(strstr(lierne_last_error(), "all 2 requests are in flight"));
    cr_assert_null(q[0][2]);
    cr_assert_eq(lierne_plan_destroy(plans[0]), LIERNE_BUSY);
    for (int i = 1; i >= 0; i--) { /* ended in reverse order */
        for (int r = 0; r < 2; r++) {
            cr_assert_eq(lierne_end(q[r][i]), LIERNE_OK);
            cr_assert(out[r][i][0] == (float)(1000 * i) &&
                      out[r][i][32] == (float)(1000 * i + 100));
        }
    }
    /* The second of two ended first: a third can begin while the first is in flight. */
    for (int i = 0; i < 2; i++) {
        for (int r = 0; r < 2; r++) {
            cr_assert_eq(lierne_forward_begin(&q[r][i], plans[r], out[r][i], in[r][i], NULL), 0);
        }
    }
    for (int k = 0; k < 100; k++) { /* after 64 calls tags repeat: the first must end before */
        lierne_status status[2];
        for (int r = 0; r < 2; r++) {
            cr_assert_eq(lierne_end(q[r][1]), k < 63 ? LIERNE_OK : LIERNE_INVALID);
            status[r] = lierne_forward_begin(&q[r][2], plans[r], out[r][2], in[r][1], NULL);
            q[r][1] = q[r][2] ? q[r][2] : q[r][1];
        }
        cr_assert(status[0] == status[1]);
        cr_assert_eq(status[0], k < 62 ? LIERNE_OK : LIERNE_BUSY, "call %d: %s", k,
                     lierne_last_error());
    }
    for (int r = 0; r < 2; r++) {
        cr_assert_eq(lierne_end(q[r][0]), LIERNE_OK);
        cr_assert(out[r][2][32] == 1100.0f);
    }
    cr_assert_eq(lierne_end(q[0][0]), LIERNE_INVALID, "ending twice");
    cr_assert_eq(lierne_end(NULL), LIERNE_OK);
    for (int r = 0; r < 2; r++) {
        cr_assert_eq(lierne_plan_destroy(plans[r]), LIERNE_OK);
    }
    lierne_sim_destroy(sim);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

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
    const lierne_route *route;
    float x[128] = {0};
    cr_assert_eq(lierne_context_create_self(&self, NULL), LIERNE_OK);
    cr_assert_eq(lierne_plan_create_bridge(&plan, self, &spec), LIERNE_OK);
    cr_assert_eq(lierne_forward(NULL, x, x + 64, NULL), LIERNE_INVALID);
    expect_error_of("lierne_forward");
    cr_assert_eq(lierne_adjoint(plan, x, NULL, NULL), LIERNE_INVALID);
    expect_error_of("lierne_adjoint");
    cr_assert_eq(lierne_reduce(plan, LIERNE_MAX, x, x + 64, NULL), LIERNE_INVALID);
    expect_error_of("lierne_reduce");
    cr_assert_eq(lierne_plan_get_route(&route, plan, (lierne_direction)2), LIERNE_INVALID);
    expect_error_of("lierne_plan_get_route");
    cr_assert(strstr(lierne_last_error(), "direction is 2, must be 0"));
    cr_assert_eq(lierne_plan_get_elements(NULL, NULL, NULL, LIERNE_FORWARD), LIERNE_INVALID);
    expect_error_of("lierne_plan_get_elements");
    cr_assert_eq(lierne_forward_begin(&first, plan, x, x + 64, NULL), LIERNE_OK);
    cr_assert_eq(lierne_forward_begin(&second, plan, x, x + 64, NULL), LIERNE_BUSY);
    expect_error_of("lierne_forward_begin");
    cr_assert_eq(lierne_plan_destroy(plan), LIERNE_BUSY);
    expect_error_of("lierne_plan_destroy");
    cr_assert_eq(lierne_end(first), LIERNE_OK);
    cr_assert_eq(lierne_plan_create_composed(&other, plan, NULL), LIERNE_INVALID);
    expect_error_of("lierne_plan_create_composed");
    cr_assert_eq(lierne_plan_create_graph(&other, self, NULL), LIERNE_INVALID);
    expect_error_of("lierne_plan_create_graph");
    cr_assert_eq(lierne_plan_update_graph(plan, NULL), LIERNE_INVALID);
    expect_error_of("lierne_plan_update_graph");
    cr_assert_eq(lierne_plan_destroy(plan), LIERNE_OK);
    cr_assert_eq(lierne_context_destroy(self), LIERNE_OK);
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
    cr_assert_eq(lierne_context_create_self(&self, NULL), LIERNE_OK);
    cr_assert_eq(lierne_plan_create_bridge(&plan, self, &spec), LIERNE_OK, "%s",
                 lierne_last_error());
    cr_assert_eq(lierne_context_destroy(self), LIERNE_INVALID, "a plan is alive");
    cr_assert_eq(lierne_forward(NULL, x, x + 64, NULL), LIERNE_INVALID);
    cr_assert_eq(lierne_forward(plan, x, NULL, NULL), LIERNE_INVALID);
    cr_assert_eq(lierne_forward(plan, x, x + 32, NULL), LIERNE_INVALID);
    cr_assert(strstr(lierne_last_error(), "overlap"));
    cr_assert_eq(lierne_forward(plan, x, x + 64, &offset), LIERNE_UNSUPPORTED);
    cr_assert(strstr(lierne_last_error(), "stream"));
    cr_assert_eq(lierne_forward_begin(NULL, plan, x, x + 64, NULL), LIERNE_INVALID);
    cr_assert_eq(lierne_plan_get_alias(&offset, plan, (lierne_direction)2), LIERNE_INVALID);
    cr_assert_eq(lierne_plan_get_alias(NULL, plan, LIERNE_FORWARD), LIERNE_INVALID);
    cr_assert_eq(lierne_plan_get_report(&report, plan, LIERNE_FORWARD), LIERNE_INVALID);
    cr_assert_eq(lierne_plan_print(NULL, plan, LIERNE_FORWARD), LIERNE_INVALID);
    cr_assert_eq(lierne_plan_check(NULL, 1), LIERNE_INVALID);
    cr_assert_eq(lierne_plan_check((const lierne_plan *const[]){plan}, 0), LIERNE_INVALID);
    cr_assert_eq(lierne_plan_check((const lierne_plan *const[]){plan}, 1), LIERNE_OK);
    x[64] = 7;
    cr_assert_eq(lierne_forward(plan, x, x + 64, NULL), LIERNE_OK);
    cr_assert(x[0] == 7);
    cr_assert_eq(lierne_plan_destroy(plan), LIERNE_OK);
    cr_assert_eq(lierne_plan_destroy(NULL), LIERNE_OK);
    cr_assert_eq(lierne_context_destroy(self), LIERNE_OK);
    cr_assert_eq(lierne_context_destroy(NULL), LIERNE_OK);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

/* Every bad spec gives its status, and the message has the value and the bound. */
static void refused_by(test_algorithm algorithm, lierne_bridge_spec spec, lierne_status status,
                       const char *part, int world) {
    lierne_sim *sim = sim_of(world, 5);
    lierne_plan *plan = (lierne_plan *)&spec;
    cr_assert_eq(test_plan_bridge(&plan, lierne_sim_get_context(sim, 0), &spec, algorithm), status,
                 "%s: %s", part, lierne_last_error());
    cr_assert(strstr(lierne_last_error(), part), "'%s' is not in '%s'", part, lierne_last_error());
    cr_assert_null(plan);
    cr_assert_eq(lierne_sim_destroy(sim), LIERNE_OK);
}

static void rejected(lierne_bridge_spec spec, lierne_status status, const char *part, int world) {
    refused_by(TEST_DIRECT, spec, status, part, world);
}

static void collective_refused(lierne_bridge_spec spec, lierne_status status, const char *part,
                               int world) {
    refused_by(TEST_COLLECTIVE, spec, status, part, world);
}

Test(plan, bad_specs_are_rejected_with_value_and_bound) {
    lierne_grid *src = grid(8, 2, 1, 4), *dst = grid(8, 2, 2, 2), *cp = grid(8, 2, 2, 2);
    lierne_grid *odd = grid(8, 1, 1, 3), *swapped;
    const lierne_bridge_spec good = spec_of(src, dst);
    const int64_t odd_shape[3] = {7, 6, 2}, counts[4] = {3, 3, 1, 2}, negative[3] = {8, -4, 2};
    int32_t rows[32] = {0};
    lierne_bridge_spec s;
    s = good, s.size = 3, rejected(s, LIERNE_INVALID, "size", 8);
    s = good, s.src = NULL, rejected(s, LIERNE_INVALID, "source grid is NULL", 8);
    s = good, rejected(s, LIERNE_INVALID, "on a world of 8 ranks, the context on one of 4", 4);
    s = good, s.naxes = 4, rejected(s, LIERNE_INVALID, "naxes is 4, must be 2 or 3", 8);
    s = good, s.shape = negative, rejected(s, LIERNE_INVALID, "-4", 8);
    s = good, s.batch_axis = 3, rejected(s, LIERNE_INVALID, "batch_axis is 3", 8);
    s = good, s.sequence_axis = 0, rejected(s, LIERNE_INVALID, "sequence_axis 0", 8);
    s = good, s.dtype = (lierne_dtype)99, rejected(s, LIERNE_INVALID, "dtype 99", 8);
    s = good, s.max_inflight = 65, rejected(s, LIERNE_INVALID, "65, must be in 0 to 64", 8);
    s = good, s.routing = (lierne_routing)-1;
    rejected(s, LIERNE_INVALID, "routing is -1, must be in 0 to 2", 8);
    s = good, s.src_counts = counts, rejected(s, LIERNE_INVALID, "add up to 9", 8);
    s = good, s.gradient_owner = LIERNE_GRADIENT_ROWS;
    rejected(s, LIERNE_INVALID, "row_owner is NULL", 8);
    rows[5] = 2, s.row_owner = rows, rejected(s, LIERNE_INVALID, "row 5 has owner 2", 8);
    s = good, s.gradient_storage = LIERNE_COMPACT, rejected(s, LIERNE_INVALID, "compact", 8);
    s = good, s.gradient_owner = LIERNE_GRADIENT_ZIGZAG, s.sequence_axis = -1;
    rejected(s, LIERNE_INVALID, "needs a sequence axis", 8);
    s = good, s.gradient_owner = LIERNE_GRADIENT_ZIGZAG, s.shape = odd_shape;
    rejected(s, LIERNE_INDIVISIBLE, "divisible by 4, it has 6", 8);
    s = good, s.require_divisible = 1, s.shape = odd_shape, rejected(s, LIERNE_INDIVISIBLE, "7", 8);
    s = good, s.require_divisible = 1, s.src = odd, rejected(s, LIERNE_INDIVISIBLE, "dp 3", 8);
    s = good, s.src = cp, rejected(s, LIERNE_UNSUPPORTED, "source cp is 2, must be 1", 8);
    s = good, s.src = odd;
    collective_refused(s, LIERNE_UNSUPPORTED, "source grid has 3 ranks", 8);
    s = good, s.shape = odd_shape;
    collective_refused(s, LIERNE_INDIVISIBLE, "fan_in: the batch of 7 samples does not divide", 8);
    const char *const names[2] = {"dp", "tp"};
    const int64_t sizes[2] = {4, 2};
    lierne_grid_spec g = {
        .size = sizeof g, .ndims = 2, .names = names, .sizes = sizes, .world_size = 8};
    lierne_grid_create(&swapped, &g);
    s = good, s.src = swapped;
    collective_refused(s, LIERNE_MISALIGNED, "on 4 ranks: 2, 3, 4, 5", 8);
    lierne_grid_destroy(src), lierne_grid_destroy(dst), lierne_grid_destroy(cp),
        lierne_grid_destroy(odd);
    lierne_grid_destroy(swapped);
}

Test(plan, ranks_that_disagree_get_mismatch) {
    lierne_grid *src = grid(4, 2, 1, 2), *dst = grid(4, 4, 1, 1), *other = grid(4, 2, 2, 1);
    lierne_sim *sim = sim_of(4, 5);
    lierne_bridge_spec good = spec_of(src, dst), bad = good;
    const int64_t shape[3] = {8, 4, 3};
    lierne_plan *first, *second;
    float x[64] = {1}, y[64];
    bad.shape = shape;
    cr_assert_eq(lierne_plan_create_bridge(&first, lierne_sim_get_context(sim, 0), &good),
                 LIERNE_OK);
    cr_assert_eq(lierne_plan_create_bridge(&second, lierne_sim_get_context(sim, 1), &bad),
                 LIERNE_MISMATCH);
    cr_assert(strstr(lierne_last_error(),
                     "shape[2] differs between ranks: 2 on rank 0, 3 on rank 1"),
              "%s", lierne_last_error());
    cr_assert_null(second);
    cr_assert_eq(lierne_plan_create_bridge(&second, lierne_sim_get_context(sim, 2), &good),
                 LIERNE_MISMATCH);
    cr_assert_eq(lierne_forward(first, y, x, NULL), LIERNE_MISMATCH, "who came first is told too");
    lierne_plan_destroy(first);
    bad = good, bad.dst = other;
    cr_assert_eq(lierne_plan_create_bridge(&second, lierne_sim_get_context(sim, 1), &good),
                 LIERNE_OK);
    lierne_plan_destroy(second);
    cr_assert_eq(lierne_plan_create_bridge(&second, lierne_sim_get_context(sim, 0), &bad),
                 LIERNE_MISMATCH);
    cr_assert(strstr(lierne_last_error(), "dst.dim[0].size"), "%s", lierne_last_error());
    cr_assert_eq(lierne_sim_destroy(sim), LIERNE_OK);
    lierne_grid_destroy(src), lierne_grid_destroy(dst), lierne_grid_destroy(other);
}

Test(plan, a_rank_that_waits_for_nobody_times_out) {
    lierne_grid *src = grid(2, 1, 1, 2), *dst = grid(2, 2, 1, 1);
    lierne_bridge_spec spec = spec_of(src, dst);
    lierne_sim *sim = sim_of(2, 0.2);
    lierne_plan *plans[2];
    lierne_request *request;
    float x[32] = {1}, y[64];
    for (int r = 0; r < 2; r++) {
        cr_assert_eq(lierne_plan_create_bridge(&plans[r], lierne_sim_get_context(sim, r), &spec),
                     LIERNE_OK);
    }
    double start = lierne_now();
    cr_assert_eq(lierne_forward(plans[0], y, x, NULL), LIERNE_TIMEOUT);
    cr_assert(lierne_now() - start < 10);
    cr_assert(strstr(lierne_last_error(), "rank 0: forward, call 1, stage 0 of 1: 1 of 2 messages "
                                          "missing after 0.2 s, with rank 1"),
              "%s", lierne_last_error());
    cr_assert_eq(lierne_forward_begin(&request, plans[0], y, x, NULL), LIERNE_TIMEOUT,
                 "it is dead");
    const char *dead =
        "lierne_forward_begin: the context is dead, destroy it; lierne_forward failed: rank 0: ";
    cr_assert_eq(strncmp(lierne_last_error(), dead, strlen(dead)), 0, "%s", lierne_last_error());
    char dump[1024], little[10];
    cr_assert_eq(lierne_context_dump(dump, sizeof dump, lierne_sim_get_context(sim, 0)), LIERNE_OK);
    cr_assert(strstr(dump, "rank 0 of 2 over sim: 2 calls\n"), "%s", dump);
    cr_assert(strstr(dump, "in flight: call 1, forward of plan 0, stage 0 of 1"), "%s", dump);
    cr_assert(strstr(dump, "waits for rank 1 (sim)\n"), "%s", dump);
    cr_assert(strstr(dump, "call 0: planning of plan -1, LIERNE_OK after"), "%s", dump);
    cr_assert_eq(lierne_context_dump(little, sizeof little, lierne_sim_get_context(sim, 1)),
                 LIERNE_OK);
    cr_assert_eq(lierne_forward(plans[1], y, x, NULL), LIERNE_TIMEOUT, "rank 0 gave up before");
    cr_assert(strstr(lierne_last_error(),
                     "lierne_forward: rank 0 gave up: lierne_forward: rank 0: "),
              "%s", lierne_last_error());
    cr_assert_str_eq(little, "rank 1 of");
    cr_assert_eq(lierne_context_dump(dump, sizeof dump, NULL), LIERNE_INVALID);
    cr_assert_eq(lierne_context_dump(dump, 0, lierne_sim_get_context(sim, 1)), LIERNE_INVALID);
    lierne_plan *third;
    cr_assert_eq(lierne_plan_create_bridge(&third, lierne_sim_get_context(sim, 0), &spec),
                 LIERNE_TIMEOUT);
    for (int r = 0; r < 2; r++) {
        cr_assert_eq(lierne_plan_destroy(plans[r]), LIERNE_OK);
    }
    cr_assert_eq(lierne_sim_destroy(sim), LIERNE_OK);
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
}

/* Where the context checks, calls that differ are found before data moves. */
Test(plan, calls_are_compared_where_the_context_checks) {
    lierne_grid *src = grid(2, 1, 1, 2), *dst = grid(2, 2, 1, 1);
    lierne_bridge_spec spec = spec_of(src, dst);
    lierne_context_spec context = {.size = sizeof context, .timeout = 60, .check = 1};
    float x[64] = {1, 2, 3}, y[64], z[64];
    for (int kind = 0; kind < 2; kind++) {
        lierne_sim *sim;
        lierne_plan *a[2], *b[2];
        lierne_request *q[2];
        cr_assert_eq(lierne_sim_create(&sim, 2, &context), LIERNE_OK);
        for (int r = 0; r < 2; r++) {
            lierne_plan_create_bridge(&a[r], lierne_sim_get_context(sim, r), &spec);
            lierne_plan_create_bridge(&b[r], lierne_sim_get_context(sim, r), &spec);
        }
        for (int r = 0; r < 2; r++) {
            cr_assert_eq(lierne_forward_begin(&q[r], a[r], r ? z : y, x, NULL), LIERNE_OK);
        }
        cr_assert_eq(lierne_end(q[0]), LIERNE_OK);
        cr_assert_eq(lierne_end(q[1]), LIERNE_OK);
        cr_assert_eq(lierne_forward_begin(&q[0], a[0], y, x, NULL), LIERNE_OK);
        memset(z, 0x5a, sizeof z);
        cr_assert_eq(kind ? lierne_forward(b[1], z, x, NULL) : lierne_adjoint(a[1], z, x, NULL),
                     LIERNE_MISMATCH);
        cr_assert(strstr(lierne_last_error(),
                         kind ? "plan differs between ranks: 0 on rank 0, 1 on "
                                "rank 1"
                              : "ranks make different calls: forward on rank 0, "
                                "adjoint on rank 1: "),
                  "%s", lierne_last_error());
        cr_assert_eq(((unsigned char *)z)[0], 0x5a, "nothing moved");
        cr_assert_eq(lierne_end(q[0]), LIERNE_MISMATCH, "who called first is told");
        for (int r = 0; r < 2; r++) {
            lierne_plan_destroy(a[r]), lierne_plan_destroy(b[r]);
        }
        cr_assert_eq(lierne_sim_destroy(sim), LIERNE_OK);
    }
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
}

Test(plan, bad_contexts) {
    lierne_context *c;
    lierne_sim *sim;
    lierne_context_spec spec = {.size = 1};
    cr_assert_eq(lierne_context_create_self(NULL, NULL), LIERNE_INVALID);
    cr_assert_eq(lierne_context_create_self(&c, &spec), LIERNE_INVALID);
    spec = (lierne_context_spec){.size = sizeof spec, .timeout = -1};
    cr_assert_eq(lierne_context_create_self(&c, &spec), LIERNE_INVALID);
    cr_assert_null(c);
    cr_assert_eq(lierne_sim_create(&sim, 0, NULL), LIERNE_INVALID);
    cr_assert_eq(lierne_sim_create(&sim, 1 << 25, NULL), LIERNE_INVALID);
    setenv("LIERNE_TIMEOUT_MS", "soon", 1);
    cr_assert_eq(lierne_context_create_self(&c, NULL), LIERNE_INVALID);
    cr_assert(strstr(lierne_last_error(), "LIERNE_TIMEOUT_MS is 'soon'"));
    setenv("LIERNE_TIMEOUT_MS", "250", 1);
    cr_assert_eq(lierne_context_create_self(&c, NULL), LIERNE_OK);
    cr_assert_eq(lierne_context_get_rank(c), 0);
    cr_assert_eq(lierne_context_get_world_size(c), 1);
    cr_assert_eq(lierne_context_get_ngroups(c), 0);
    cr_assert_eq(lierne_context_destroy(c), LIERNE_OK);
    unsetenv("LIERNE_TIMEOUT_MS");
    cr_assert_eq(lierne_sim_create(&sim, 2, NULL), LIERNE_OK);
    cr_assert_eq(lierne_context_destroy(lierne_sim_get_context(sim, 0)), LIERNE_INVALID);
    cr_assert_null(lierne_sim_get_context(sim, 2));
    cr_assert_eq(lierne_sim_destroy(sim), LIERNE_OK);
    cr_assert_eq(lierne_sim_destroy(NULL), LIERNE_OK);
}

/* A map that changes every step: the gradient of row (g, s) comes from its owner of the step. */
Test(plan, a_row_map_is_replaced_without_a_new_plan) {
    lierne_grid *src = grid(4, 2, 1, 2), *dst = grid(4, 1, 4, 1);
    lierne_sim *sim = sim_of(4, 5);
    lierne_plan *plans[4];
    lierne_request *q[4];
    int32_t rows[32];
    float in[4][64], out[4][32];
    size_t before = 0;
    for (int i = 0; i < 32; i++) {
        rows[i] = i % 4;
    }
    lierne_bridge_spec spec = spec_of(src, dst);
    spec.gradient_owner = LIERNE_GRADIENT_ROWS;
    spec.gradient_storage = LIERNE_COMPACT;
    spec.row_owner = rows;
    for (int r = 0; r < 4; r++) {
        cr_assert_eq(lierne_plan_create_bridge(&plans[r], lierne_sim_get_context(sim, r), &spec),
                     LIERNE_OK);
    }
    lierne_grid_destroy(src), lierne_grid_destroy(dst); /* the plan has copies */
    for (int step = 0; step < 20; step++) {
        for (int i = 0; i < 32; i++) {
            rows[i] = (i * (step + 3) / 5 + step) % 4;
        }
        for (int r = 0; r < 4; r++) {
            int64_t shape[3], n = 0;
            cr_assert_eq(lierne_plan_update_rows(plans[r], rows), LIERNE_OK, "%s",
                         lierne_last_error());
            for (int i = 0; i < 32; i++) {
                if (rows[i] == r) {
                    in[r][2 * n] = (float)(100 * step + 2 * i);
                    in[r][2 * n++ + 1] = (float)(100 * step + 2 * i + 1);
                }
            }
            lierne_plan_get_shape(NULL, shape, NULL, plans[r], LIERNE_ADJOINT);
            cr_assert(shape[0] == n && (shape[1] == 1 || n == 0), "%d rows", (int)shape[0]);
        }
        memset(out, 0xa5, sizeof out);
        for (int r = 0; r < 4; r++) {
            cr_assert_eq(lierne_adjoint_begin(&q[r], plans[r], out[r], in[r], NULL), LIERNE_OK);
        }
        for (int r = 0; r < 4; r++) {
            cr_assert_eq(lierne_end(q[r]), LIERNE_OK, "%s", lierne_last_error());
        }
        for (int i = 0; i < 128; i++) { /* source lane of rank r is r / 2: samples 4 r / 2 on */
            int r = i / 32, element = r / 2 * 32 + i % 32;
            cr_assert(out[r][i % 32] == (float)(100 * step + element), "step %d rank %d", step, r);
        }
        cr_assert_eq(lierne_plan_check((const lierne_plan *const *)plans, 3), LIERNE_INVALID);
        cr_assert_eq(lierne_plan_check((const lierne_plan *const *)plans, 4), LIERNE_OK);
        if (step == 1) {
            before = lierne_mem_live();
        }
    }
    cr_assert_leq(lierne_mem_live(), before + 200, "planning again keeps nothing");
    rows[3] = 4;
    for (int r = 0; r < 4; r++) {
        cr_assert_eq(lierne_plan_update_rows(plans[r], rows), LIERNE_INVALID);
        cr_assert(strstr(lierne_last_error(), "row 3 has owner 4"));
    }
    cr_assert_eq(lierne_plan_update_rows(plans[0], NULL), LIERNE_INVALID);
    cr_assert_eq(lierne_plan_update_rows(NULL, rows), LIERNE_INVALID);
    for (int r = 0; r < 4; r++) {
        lierne_plan_destroy(plans[r]);
    }
    cr_assert_eq(lierne_sim_destroy(sim), LIERNE_OK);
}

Test(plan, only_a_plan_with_a_row_map_takes_one) {
    lierne_grid *src = grid(1, 1, 1, 1);
    lierne_bridge_spec spec = spec_of(src, src);
    lierne_context *self;
    lierne_plan *plan;
    int32_t rows[32] = {0};
    lierne_context_create_self(&self, NULL);
    cr_assert_eq(lierne_plan_create_bridge(&plan, self, &spec), LIERNE_OK);
    cr_assert_eq(lierne_plan_update_rows(plan, rows), LIERNE_INVALID);
    cr_assert(strstr(lierne_last_error(), "has no row map"));
    lierne_plan_destroy(plan);
    spec.gradient_owner = LIERNE_GRADIENT_ROWS;
    spec.row_owner = rows;
    cr_assert_eq(lierne_plan_create_bridge(&plan, self, &spec), LIERNE_OK);
    lierne_status status = LIERNE_NO_MEMORY;
    for (size_t k = 1; status != LIERNE_OK; k++) {
        size_t before = lierne_mem_live();
        lierne_mem_fail_at(k);
        status = lierne_plan_update_rows(plan, rows);
        lierne_mem_fail_at(0);
        cr_assert(status == LIERNE_OK || status == LIERNE_NO_MEMORY);
        /* An update keeps the memory of both directions for the next one. */
        cr_assert_eq(lierne_mem_live(), before + (status == LIERNE_OK ? 2 : 0), "k = %zu", k);
    }
    lierne_plan_destroy(plan);
    lierne_context_destroy(self);
    lierne_grid_destroy(src);
}

Test(plan, groups_are_shared_and_freed_with_the_last_plan) {
    lierne_grid *src = grid(8, 2, 1, 4), *dst = grid(8, 2, 2, 2);
    lierne_bridge_spec spec = spec_of(src, dst);
    lierne_sim *sim = sim_of(8, 5);
    lierne_plan *a, *b;
    lierne_report report = {.size = sizeof report};
    const lierne_megatron_spec megatron = {sizeof megatron, LIERNE_MEGATRON_COLLECTIVE, &spec};
    lierne_context *context = lierne_sim_get_context(sim, 3);
    cr_assert_eq(lierne_plan_create_megatron(&a, context, &megatron), LIERNE_OK);
    cr_assert_eq(lierne_context_get_ngroups(lierne_sim_get_context(sim, 3)), 2);
    cr_assert_eq(lierne_plan_create_megatron(&b, context, &megatron), LIERNE_OK);
    cr_assert_eq(lierne_context_get_ngroups(lierne_sim_get_context(sim, 3)), 2);
    cr_assert_eq(lierne_plan_get_report(&report, b, LIERNE_ADJOINT), LIERNE_OK);
    cr_assert_eq(report.groups, 2);
    lierne_plan_destroy(a);
    cr_assert_eq(lierne_context_get_ngroups(lierne_sim_get_context(sim, 3)), 2);
    lierne_plan_destroy(b);
    cr_assert_eq(lierne_context_get_ngroups(lierne_sim_get_context(sim, 3)), 0);
    lierne_sim_destroy(sim);
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
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
        spec.gradient_owner = owner < 4 ? (lierne_gradient_owner)owner : LIERNE_GRADIENT_PARTIAL;
        spec.row_owner = owner == LIERNE_GRADIENT_ROWS ? rows : NULL;
        test_algorithm algorithm = owner < 4 ? TEST_DIRECT : TEST_COLLECTIVE;
        lierne_status status = LIERNE_NO_MEMORY;
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
            cr_assert(status == LIERNE_OK || status == LIERNE_NO_MEMORY, "%s", lierne_last_error());
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
    lierne_status first = LIERNE_NO_MEMORY;
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

/* Variable rows: a thread per rank, because giving counts blocks. The model: sample g has
 * rows_of(step, g) rows; element i of its row s is value(g, s, i). */
enum { BATCH = 6, MOST = 5, WIDTH = 3 };
static int64_t rows_of(int step, int64_t g) {
    return step == 0 ? MOST : step == 1 ? 0 : (7 * g + 3 * step + g * step) % (MOST + 1);
}
static float value_of(int64_t g, int64_t s, int64_t i) {
    return (float)(100 * g + 10 * s + i + 1);
}

/* The shares of a dp rank: balanced, the first ones one larger. */
static void lane_of_rank(int64_t lanes, int64_t mine, int64_t *from, int64_t *to) {
    *from = BATCH / lanes * mine + (mine < BATCH % lanes ? mine : BATCH % lanes);
    *to = *from + BATCH / lanes + (mine < BATCH % lanes);
}

static int64_t fill_lane(int step, int64_t from, int64_t to, float factor, float *x) {
    int64_t n = 0;
    for (int64_t g = from; g < to; g++) {
        for (int64_t s = 0; s < rows_of(step, g); s++) {
            for (int64_t i = 0; i < WIDTH; i++) {
                x[n++] = factor * value_of(g, s, i);
            }
        }
    }
    return n;
}

typedef struct variable_worker {
    lierne_context *context;
    const lierne_bridge_spec *spec;
    int64_t src_dp, src_lane, dst_dp, dst_lane, cp, cp_coord;
    int bad;
} variable_worker;

static int variable_step(variable_worker *w, lierne_plan *plan, int step) {
    int64_t from, to, rows[BATCH], in, out, n, m;
    float x[BATCH * MOST * WIDTH + 1], y[BATCH * MOST * WIDTH + 1], want[BATCH * MOST * WIDTH + 1];
    int bad = 0;
    lane_of_rank(w->src_dp, w->src_lane, &from, &to);
    for (int64_t g = from; g < to; g++) {
        rows[g - from] = rows_of(step, g);
    }
    bad |= lierne_plan_update_counts(plan, rows) != LIERNE_OK;
    n = fill_lane(step, from, to, 1, x);
    lierne_plan_get_elements(&in, &out, plan, LIERNE_FORWARD);
    lane_of_rank(w->dst_dp, w->dst_lane, &from, &to);
    m = fill_lane(step, from, to, 1, want);
    bad |= in != n || out != m;
    memset(y, 0xa5, sizeof y);
    bad |= lierne_forward(plan, y, x, NULL) != LIERNE_OK;
    bad |= memcmp(y, want, (size_t)m * sizeof *y) != 0;
    bad |= ((unsigned char *)(y + m))[0] != 0xa5;
    /* Contributions are cp + 1 times the output: their sum is cp (cp + 1) / 2 times the input. */
    fill_lane(step, from, to, (float)(w->cp_coord + 1), y);
    memset(x, 0xa5, sizeof x);
    bad |= lierne_adjoint(plan, x, y, NULL) != LIERNE_OK;
    lane_of_rank(w->src_dp, w->src_lane, &from, &to);
    fill_lane(step, from, to, (float)(w->cp * (w->cp + 1) / 2), want);
    bad |= memcmp(x, want, (size_t)n * sizeof *x) != 0;
    return bad | (lierne_plan_check((const lierne_plan *const *)&plan, 1) != LIERNE_OK);
}

static void *variable_work(void *arg) {
    variable_worker *w = arg;
    lierne_plan *plan;
    int64_t bad_rows[BATCH] = {1, 2, 3, 1, 1, 1};
    size_t ok = lierne_plan_create_bridge(&plan, w->context, w->spec) == LIERNE_OK;
    if (!ok) {
        w->bad = 1;
        return NULL;
    }
    for (int step = 0; step < 12; step++) {
        w->bad |= variable_step(w, plan, step) << step;
    }
    bad_rows[0] = MOST + 1; /* rejected, and the old counts stay */
    /* On sim a rank that gave nothing wrong, as an empty lane does, would wait for those that did.
     */
    w->bad |= (w->src_dp <= BATCH && lierne_plan_update_counts(plan, bad_rows) != LIERNE_INVALID)
              << 20;
    w->bad |= (lierne_plan_destroy(plan) != LIERNE_OK) << 21;
    return NULL;
}

static void variable_rows(int64_t tp, int64_t src_dp, int64_t dst_tp, int64_t cp, int64_t dst_dp) {
    const int64_t shape[3] = {BATCH, MOST, WIDTH};
    int world = (int)(tp * src_dp);
    size_t before = lierne_mem_live();
    lierne_grid *src = grid(world, tp, 1, src_dp), *dst = grid(world, dst_tp, cp, dst_dp);
    lierne_bridge_spec spec = spec_of(src, dst);
    spec.shape = shape;
    spec.variable_rows = 1;
    lierne_sim *sim = sim_of(world, 20);
    pthread_t threads[8];
    variable_worker workers[8];
    for (int r = 0; r < world; r++) {
        workers[r] = (variable_worker){lierne_sim_get_context(sim, r),
                                       &spec,
                                       src_dp,
                                       r / tp,
                                       dst_dp,
                                       r / (dst_tp * cp),
                                       cp,
                                       r / dst_tp % cp,
                                       0};
        pthread_create(&threads[r], NULL, variable_work, &workers[r]);
    }
    for (int r = 0; r < world; r++) {
        pthread_join(threads[r], NULL);
        cr_assert_eq(workers[r].bad, 0, "tp%d dp%d -> tp%d cp%d dp%d, rank %d: %x", (int)tp,
                     (int)src_dp, (int)dst_tp, (int)cp, (int)dst_dp, r, (unsigned)workers[r].bad);
    }
    cr_assert_eq(lierne_sim_destroy(sim), LIERNE_OK);
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
    cr_assert_eq(lierne_mem_live(), before);
}

Test(plan, samples_with_another_number_of_rows_every_step) {
    variable_rows(2, 4, 2, 2, 2);
    variable_rows(1, 8, 2, 4, 1);
    variable_rows(4, 2, 1, 2, 4);
    variable_rows(4, 1, 1, 4, 1);
    variable_rows(2, 3, 3, 1, 2); /* uneven data-parallel sizes */
    variable_rows(1, 8, 1, 1, 8);
    variable_rows(8, 1, 1, 8, 1); /* eight contributions, eight receivers: two stages */
}

Test(plan, variable_rows_reject_what_they_cannot_do) {
    lierne_grid *src = grid(4, 2, 1, 2), *dst = grid(4, 1, 2, 2);
    lierne_bridge_spec spec = spec_of(src, dst);
    lierne_bridge_spec s;
    spec.variable_rows = 1;
    s = spec, s.batch_axis = 1, s.sequence_axis = 0;
    rejected(s, LIERNE_INVALID, "needs axes batch, sequence, hidden", 4);
    collective_refused(spec, LIERNE_UNSUPPORTED, "variable_rows must be 0", 4);
    s = spec, s.gradient_owner = LIERNE_GRADIENT_ZIGZAG;
    rejected(s, LIERNE_UNSUPPORTED, "gradient_owner is 1", 4);
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
}
