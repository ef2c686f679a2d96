/* What changes from step to step, on real ranks: row maps, rows per sample, and coalesced bridges.
 * tp1 dpN -> tp1 cpN dp1: every rank receives the whole batch. */
#include "mpi/common.h"

#include "lierne/plan.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 12, SAMPLES = 2, MOST = 4, WIDTH = 40 };

static lierne_context *context;
static lierne_grid *src, *dst;
static int64_t shape[3];

static lierne_bridge_spec spec_of(void) {
    shape[0] = SAMPLES * test_world, shape[1] = MOST, shape[2] = WIDTH;
    return bridge_spec_of(src, dst, shape);
}

static float value(int step, int64_t g, int64_t s, int64_t h) {
    return (float)(1000 * (step + 1) + 100 * g + 10 * s + h);
}

/* The owner of row i in a step. */
static int32_t owner(int step, int64_t i) {
    return (int32_t)((i * (step + 2) / 3 + step) % test_world);
}

static void row_maps(void) {
    lierne_bridge_spec spec = spec_of();
    int64_t rows = shape[0] * MOST;
    int32_t *map = malloc((size_t)rows * sizeof *map);
    float *in = malloc((size_t)rows * WIDTH * sizeof *in), out[SAMPLES * MOST * WIDTH];
    lierne_plan *plan, *other;
    memset(map, 0, (size_t)rows * sizeof *map);
    spec.gradient_owner = LIERNE_GRADIENT_OWNER_ROWS;
    spec.gradient_storage = LIERNE_STORAGE_COMPACT;
    spec.row_owner = map;
    CHECK_OK(lierne_plan_create_bridge(&plan, context, &spec));
    for (int step = 0; step < STEPS; step++) {
        int64_t n = 0, elements;
        int wrong = 0;
        for (int64_t i = 0; i < rows; i++) {
            map[i] = owner(step, i);
            for (int64_t h = 0; h < WIDTH && map[i] == test_rank; h++) {
                in[n++] = value(step, i / MOST, i % MOST, h);
            }
        }
        CHECK_OK(lierne_plan_update_rows(plan, map));
        CHECK(lierne_plan_get_elements(&elements, NULL, plan, LIERNE_DIRECTION_ADJOINT) == 0 &&
                  elements == n,
              "%lld elements", (long long)elements);
        memset(out, 0xa5, sizeof out);
        CHECK_OK(lierne_plan_adjoint(plan, out, in, NULL));
        for (int i = 0; i < SAMPLES * MOST * WIDTH; i++) {
            int64_t g = SAMPLES * test_rank + i / (MOST * WIDTH);
            wrong += out[i] != value(step, g, i / WIDTH % MOST, i % WIDTH);
        }
        CHECK(wrong == 0, "step %d: %d wrong", step, wrong);
    }
    if (test_rank == test_world - 1) {
        map[0] = (map[0] + 1) % test_world;
    }
    if (test_world > 1) {
        test_same_error(lierne_plan_update_rows(plan, map), LIERNE_ERR_MISMATCH,
                        "maps that differ");
    }
    map[0] = 0;
    CHECK_OK(lierne_plan_create_bridge(&other, context, &spec));
    if (test_world > 1) {
        lierne_status status =
            lierne_plan_update_rows(test_rank == test_world - 1 ? other : plan, map);
        test_same_error(status, LIERNE_ERR_MISMATCH, "a map for another plan");
        CHECK(strstr(lierne_last_error(), "plan differs"), "%s", lierne_last_error());
    }
    CHECK(lierne_plan_destroy(plan) == LIERNE_OK && lierne_plan_destroy(other) == LIERNE_OK,
          "free");
    free(map), free(in);
}

static int64_t rows_of(int step, int64_t g) {
    return step == 1 ? 0 : (5 * g + step * g + 2 * step) % (MOST + 1);
}

static int64_t fill(int step, int64_t from, int64_t to, float factor, float *x) {
    int64_t n = 0;
    for (int64_t g = from; g < to; g++) {
        for (int64_t i = 0; i < rows_of(step, g) * WIDTH; i++) {
            x[n++] = factor * value(step, g, i / WIDTH, i % WIDTH);
        }
    }
    return n;
}

static void variable_rows(void) {
    lierne_bridge_spec spec = spec_of();
    int64_t all = shape[0], first = SAMPLES * test_rank, rows[SAMPLES];
    size_t capacity = (size_t)(all * MOST * WIDTH) + 1;
    float *y = malloc(capacity * sizeof *y), *want = malloc(capacity * sizeof *want);
    float x[SAMPLES * MOST * WIDTH + 1];
    lierne_plan *plan, *other;
    spec.variable_rows = 1;
    CHECK_OK(lierne_plan_create_bridge(&plan, context, &spec));
    for (int step = 0; step < STEPS; step++) {
        for (int k = 0; k < SAMPLES; k++) {
            rows[k] = rows_of(step, first + k);
        }
        CHECK_OK(lierne_plan_update_counts(plan, rows));
        int64_t n = fill(step, first, first + SAMPLES, 1, x), m = fill(step, 0, all, 1, want);
        memset(y, 0xa5, capacity * sizeof *y);
        CHECK_OK(lierne_plan_forward(plan, y, x, NULL));
        CHECK(memcmp(y, want, (size_t)m * sizeof *y) == 0, "step %d: forward", step);
        fill(step, 0, all, (float)(test_rank + 1), y);
        fill(step, first, first + SAMPLES, (float)(test_world * (test_world + 1) / 2), want);
        memset(x, 0xa5, sizeof x);
        CHECK_OK(lierne_plan_adjoint(plan, x, y, NULL));
        CHECK(memcmp(x, want, (size_t)n * sizeof *x) == 0, "step %d: adjoint", step);
    }
    rows[0] = test_rank == test_world - 1 ? MOST + 1 : 1;
    test_same_error(lierne_plan_update_counts(plan, rows), LIERNE_ERR_INVALID,
                    "a count out of range");
    CHECK_OK(lierne_plan_create_bridge(&other, context, &spec));
    rows[0] = 1;
    if (test_world > 1) {
        lierne_status status =
            lierne_plan_update_counts(test_rank == test_world - 1 ? other : plan, rows);
        test_same_error(status, LIERNE_ERR_MISMATCH, "counts for another plan");
        CHECK(strstr(lierne_last_error(), "plan differs"), "%s", lierne_last_error());
    }
    CHECK(lierne_plan_destroy(plan) == LIERNE_OK && lierne_plan_destroy(other) == LIERNE_OK,
          "free");
    free(y), free(want);
}

/* Two plans of one spec: input i of plan p on a rank, and the contribution that a rank has of
 * output i.
 */
typedef struct pair {
    lierne_plan *plans[2];
    lierne_coalesced *coalesced;
    size_t own, all;
    bool window;
    float *in[2], *out[2], *gradient[2], *back[2];
} pair;

static float input(int p, size_t i) {
    return (float)((int64_t)(i + 1) * (p + 1));
}

static float upstream(int p, size_t i, int rank) {
    return (float)((int64_t)(i % 17) * (rank + 1) + p + 1);
}

static float sum_of_upstream(int p, size_t i) {
    return (float)((int64_t)(i % 17) * test_world * (test_world + 1) / 2 + (p + 1) * test_world);
}

static float *take(size_t n, bool window) {
    void *memory = NULL;
    if (window) {
        CHECK_OK(lierne_context_alloc(&memory, context, n * sizeof(float)));
    }
    return window ? memory : malloc(n * sizeof(float));
}

/* window: what is sent lies in memory that peers read in place. */
static void open_pair(pair *x, bool window) {
    lierne_bridge_spec spec = spec_of();
    x->window = window;
    x->own = SAMPLES * MOST * WIDTH, x->all = x->own * (size_t)test_world;
    for (int p = 0; p < 2; p++) {
        CHECK_OK(lierne_plan_create_bridge(&x->plans[p], context, &spec));
        x->in[p] = take(x->own, window), x->gradient[p] = take(x->all, window);
        x->back[p] = take(x->own, false), x->out[p] = take(x->all, false);
        for (size_t i = 0; i < x->own; i++) {
            x->in[p][i] = input(p, x->own * (size_t)test_rank + i);
        }
        for (size_t i = 0; i < x->all; i++) {
            x->gradient[p][i] = upstream(p, i, test_rank);
        }
    }
    CHECK_OK(lierne_coalesced_create(&x->coalesced, x->plans, 2));
}

static void close_pair(pair *x) {
    CHECK(lierne_coalesced_destroy(x->coalesced) == LIERNE_OK, "coalesced plans");
    for (int p = 0; p < 2; p++) {
        CHECK(lierne_plan_destroy(x->plans[p]) == LIERNE_OK, "plan");
        free(x->out[p]), free(x->back[p]);
        if (x->window) {
            CHECK_OK(lierne_context_dealloc(context, x->in[p]));
            CHECK_OK(lierne_context_dealloc(context, x->gradient[p]));
        } else {
            free(x->in[p]), free(x->gradient[p]);
        }
    }
}

static void begin(pair *x, lierne_direction d) {
    float *const *out = d == LIERNE_DIRECTION_FORWARD ? x->out : x->back;
    float *const *in = d == LIERNE_DIRECTION_FORWARD ? x->in : x->gradient;
    for (int p = 0; p < 2; p++) {
        memset(out[p], 0xa5, (d == LIERNE_DIRECTION_FORWARD ? x->all : x->own) * sizeof(float));
    }
    CHECK_OK(
        lierne_coalesced_begin(x->coalesced, d, (void *const *)out, (const void *const *)in, NULL));
}

static void end(pair *x, lierne_direction d) {
    int wrong = 0;
    CHECK_OK(lierne_coalesced_end(x->coalesced, d));
    for (int p = 0; p < 2; p++) {
        for (size_t i = 0; i < x->all && d == LIERNE_DIRECTION_FORWARD; i++) {
            wrong += x->out[p][i] != input(p, i);
        }
        for (size_t i = 0; i < x->own && d == LIERNE_DIRECTION_ADJOINT; i++) {
            wrong += x->back[p][i] != sum_of_upstream(p, x->own * (size_t)test_rank + i);
        }
    }
    CHECK(wrong == 0, "direction %d: %d wrong", (int)d, wrong);
}

/* One direction, the other, and both at once, which each rank begins and ends in another order. */
static void coalesced_plans(bool window) {
    pair x;
    int64_t sent;
    open_pair(&x, window);
    CHECK(lierne_coalesced_get_messages(&sent, NULL, x.coalesced, LIERNE_DIRECTION_FORWARD) ==
                  LIERNE_OK &&
              sent == test_world - 1,
          "%lld messages", (long long)sent);
    begin(&x, LIERNE_DIRECTION_FORWARD), end(&x, LIERNE_DIRECTION_FORWARD);
    begin(&x, LIERNE_DIRECTION_ADJOINT), end(&x, LIERNE_DIRECTION_ADJOINT);
    for (int round = 0; round < 20; round++) {
        lierne_direction d = (lierne_direction)((test_rank + round) % 2);
        begin(&x, d), begin(&x, (lierne_direction)(1 - d));
        d = (lierne_direction)((test_rank + round / 2) % 2);
        end(&x, d), end(&x, (lierne_direction)(1 - d));
    }
    close_pair(&x);
}

/* A rank that has the plans in another order would take the data of one for that of the other. */
static void another_order(void) {
    pair x;
    lierne_coalesced *other = NULL;
    open_pair(&x, false);
    lierne_plan *turned[2] = {x.plans[1], x.plans[0]};
    for (int who = 0; who < test_world && test_world > 1; who++) {
        lierne_status status =
            lierne_coalesced_create(&other, test_rank == who ? turned : x.plans, 2);
        test_same_error(status, LIERNE_ERR_MISMATCH, "plans in another order");
        CHECK(strstr(lierne_last_error(), "plans[0] differs") && !other, "%s", lierne_last_error());
    }
    begin(&x, LIERNE_DIRECTION_FORWARD), end(&x, LIERNE_DIRECTION_FORWARD);
    close_pair(&x);
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    size_t before = lierne_mem_live();
    mesh from = mesh_of("tcd", 1, 1, test_world), to = mesh_of("tcd", 1, test_world, 1);
    src = mesh_grid(&from, test_world);
    dst = mesh_grid(&to, test_world);
    CHECK_OK(test_context_create(&context, MPI_COMM_WORLD, NULL));
    row_maps();
    variable_rows();
    coalesced_plans(false);
    coalesced_plans(true);
    another_order();
    CHECK(lierne_context_destroy(context) == LIERNE_OK, "context");
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
    CHECK(lierne_mem_live() == before, "leaked");
    return test_finish();
}
