/* What changes from step to step, on real ranks: row maps, rows per sample, and several bridges in
 * one exchange. tp1 dpN -> tp1 cpN dp1: everything comes together on every rank. */
#include "mpi/common.h"

#include "lierne/exchange.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 12, SAMPLES = 2, MOST = 4, WIDTH = 5 };

static lierne_context *context;
static lierne_grid *src, *dst;
static int64_t shape[3];

static lierne_bridge_spec spec_of(void) {
    shape[0] = SAMPLES * test_world, shape[1] = MOST, shape[2] = WIDTH;
    return (lierne_bridge_spec){.size = sizeof(lierne_bridge_spec), .src = src, .dst = dst,
                                .naxes = 3, .shape = shape, .dtype = LIERNE_F32,
                                .sequence_axis = 1};
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
    spec.gradient_owner = LIERNE_GRADIENT_ROWS;
    spec.gradient_storage = LIERNE_COMPACT;
    spec.row_owner = map;
    CHECK(lierne_plan_bridge(&plan, context, &spec) == LIERNE_OK, "%s", lierne_last_error());
    for (int step = 0; step < STEPS; step++) {
        int64_t n = 0, elements;
        int wrong = 0;
        for (int64_t i = 0; i < rows; i++) {
            map[i] = owner(step, i);
            for (int64_t h = 0; h < WIDTH && map[i] == test_rank; h++) {
                in[n++] = value(step, i / MOST, i % MOST, h);
            }
        }
        CHECK(lierne_plan_update_rows(plan, map) == LIERNE_OK, "%s", lierne_last_error());
        CHECK(lierne_plan_elements(plan, LIERNE_ADJOINT, &elements, NULL) == 0 && elements == n,
              "%lld elements", (long long)elements);
        memset(out, 0xa5, sizeof out);
        CHECK(lierne_adjoint(plan, out, in, NULL) == LIERNE_OK, "%s", lierne_last_error());
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
        test_same_error(lierne_plan_update_rows(plan, map), LIERNE_MISMATCH, "maps that differ");
    }
    map[0] = 0;
    CHECK(lierne_plan_bridge(&other, context, &spec) == LIERNE_OK, "%s", lierne_last_error());
    if (test_world > 1) {
        lierne_status status =
            lierne_plan_update_rows(test_rank == test_world - 1 ? other : plan, map);
        test_same_error(status, LIERNE_MISMATCH, "a map for another plan");
        CHECK(strstr(lierne_last_error(), "plan differs"), "%s", lierne_last_error());
    }
    CHECK(lierne_plan_free(plan) == LIERNE_OK && lierne_plan_free(other) == LIERNE_OK, "free");
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
    size_t room = (size_t)(all * MOST * WIDTH) + 1;
    float *y = malloc(room * sizeof *y), *want = malloc(room * sizeof *want);
    float x[SAMPLES * MOST * WIDTH + 1];
    lierne_plan *plan, *other;
    spec.variable_rows = 1;
    CHECK(lierne_plan_bridge(&plan, context, &spec) == LIERNE_OK, "%s", lierne_last_error());
    for (int step = 0; step < STEPS; step++) {
        for (int k = 0; k < SAMPLES; k++) {
            rows[k] = rows_of(step, first + k);
        }
        CHECK(lierne_plan_update_counts(plan, rows) == LIERNE_OK, "%s", lierne_last_error());
        int64_t n = fill(step, first, first + SAMPLES, 1, x), m = fill(step, 0, all, 1, want);
        memset(y, 0xa5, room * sizeof *y);
        CHECK(lierne_forward(plan, y, x, NULL) == LIERNE_OK, "%s", lierne_last_error());
        CHECK(memcmp(y, want, (size_t)m * sizeof *y) == 0, "step %d: forward", step);
        fill(step, 0, all, (float)(test_rank + 1), y);
        fill(step, first, first + SAMPLES, (float)(test_world * (test_world + 1) / 2), want);
        memset(x, 0xa5, sizeof x);
        CHECK(lierne_adjoint(plan, x, y, NULL) == LIERNE_OK, "%s", lierne_last_error());
        CHECK(memcmp(x, want, (size_t)n * sizeof *x) == 0, "step %d: adjoint", step);
    }
    rows[0] = test_rank == test_world - 1 ? MOST + 1 : 1;
    test_same_error(lierne_plan_update_counts(plan, rows), LIERNE_INVALID, "a count out of range");
    CHECK(lierne_plan_bridge(&other, context, &spec) == LIERNE_OK, "%s", lierne_last_error());
    rows[0] = 1;
    if (test_world > 1) {
        lierne_status status =
            lierne_plan_update_counts(test_rank == test_world - 1 ? other : plan, rows);
        test_same_error(status, LIERNE_MISMATCH, "counts for another plan");
        CHECK(strstr(lierne_last_error(), "plan differs"), "%s", lierne_last_error());
    }
    CHECK(lierne_plan_free(plan) == LIERNE_OK && lierne_plan_free(other) == LIERNE_OK, "free");
    free(y), free(want);
}

static void exchange(void) {
    lierne_bridge_spec spec = spec_of();
    lierne_plan *plans[2];
    lierne_exchange *x;
    size_t own = SAMPLES * MOST * WIDTH, all = own * (size_t)test_world;
    float *in[2], *out[2];
    int64_t sent;
    for (int p = 0; p < 2; p++) {
        CHECK(lierne_plan_bridge(&plans[p], context, &spec) == LIERNE_OK, "%s", lierne_last_error());
        in[p] = malloc(own * sizeof *in[p]);
        out[p] = malloc(all * sizeof *out[p]);
        for (size_t i = 0; i < own; i++) {
            in[p][i] = (float)(own * (size_t)test_rank + i + 1) * (float)(p + 1);
        }
        memset(out[p], 0xa5, all * sizeof *out[p]);
    }
    CHECK(lierne_exchange_create(&x, plans, 2) == LIERNE_OK, "%s", lierne_last_error());
    CHECK(lierne_exchange_messages(x, LIERNE_FORWARD, &sent, NULL) == LIERNE_OK &&
              sent == test_world - 1, "%lld messages", (long long)sent);
    CHECK(lierne_exchange_begin(x, LIERNE_FORWARD, (void *const *)out, (const void *const *)in,
                                NULL) == LIERNE_OK, "%s", lierne_last_error());
    CHECK(lierne_exchange_end(x, LIERNE_FORWARD) == LIERNE_OK, "%s", lierne_last_error());
    int wrong = 0;
    for (size_t i = 0; i < 2 * all; i++) {
        wrong += out[i / all][i % all] != (float)(i % all + 1) * (float)(i / all + 1);
    }
    CHECK(wrong == 0, "%d wrong", wrong);
    CHECK(lierne_exchange_free(x) == LIERNE_OK, "exchange");
    for (int p = 0; p < 2; p++) {
        CHECK(lierne_plan_free(plans[p]) == LIERNE_OK, "plan");
        free(in[p]), free(out[p]);
    }
}

int main(int argc, char **argv) {
    test_start(&argc, &argv, 100);
    size_t before = lierne_mem_live();
    mesh from = mesh_of("tcd", 1, 1, test_world), to = mesh_of("tcd", 1, test_world, 1);
    src = mesh_grid(&from);
    dst = mesh_grid(&to);
    CHECK(lierne_init_mpi(&context, MPI_COMM_WORLD, NULL) == LIERNE_OK, "%s", lierne_last_error());
    row_maps();
    variable_rows();
    exchange();
    CHECK(lierne_free(context) == LIERNE_OK, "context");
    lierne_grid_free(src), lierne_grid_free(dst);
    CHECK(lierne_mem_live() == before, "leaked");
    return test_finish();
}
