/* Plans that follow a step: another row map, another number of rows per sample. */
#include "runtime/context/context.h"
#include "tasks.h"
#include "unit/expect.h"
#include "unit/plan_case.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

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
    spec.gradient_owner = LIERNE_GRADIENT_OWNER_ROWS;
    spec.gradient_storage = LIERNE_STORAGE_COMPACT;
    spec.row_owner = rows;
    for (int r = 0; r < 4; r++) {
        assert_ok(lierne_plan_create_bridge(&plans[r], lierne_sim_get_context(sim, r), &spec));
    }
    lierne_grid_destroy(src), lierne_grid_destroy(dst); /* the plan has copies */
    for (int step = 0; step < 20; step++) {
        for (int i = 0; i < 32; i++) {
            rows[i] = (i * (step + 3) / 5 + step) % 4;
        }
        for (int r = 0; r < 4; r++) {
            int64_t shape[3], n = 0;
            assert_ok(lierne_plan_update_rows(plans[r], rows));
            for (int i = 0; i < 32; i++) {
                if (rows[i] == r) {
                    in[r][2 * n] = (float)(100 * step + 2 * i);
                    in[r][2 * n++ + 1] = (float)(100 * step + 2 * i + 1);
                }
            }
            lierne_plan_get_shape(NULL, shape, NULL, plans[r], LIERNE_DIRECTION_ADJOINT);
            cr_assert(shape[0] == n && (shape[1] == 1 || n == 0), "%d rows", (int)shape[0]);
        }
        memset(out, 0xa5, sizeof out);
        for (int r = 0; r < 4; r++) {
            assert_ok(lierne_plan_adjoint_begin(&q[r], plans[r], out[r], in[r], NULL));
        }
        for (int r = 0; r < 4; r++) {
            assert_ok(lierne_request_end(q[r]));
        }
        for (int i = 0; i < 128; i++) { /* source dp rank of rank r is r / 2: samples 4 r / 2 on */
            int r = i / 32, element = r / 2 * 32 + i % 32;
            cr_assert(out[r][i % 32] == (float)(100 * step + element), "step %d rank %d", step, r);
        }
        cr_assert_eq(lierne_plan_check((const lierne_plan *const *)plans, 3), LIERNE_ERR_INVALID);
        assert_ok(lierne_plan_check((const lierne_plan *const *)plans, 4));
        if (step == 1) {
            before = lierne_mem_live();
        }
    }
    cr_assert_leq(lierne_mem_live(), before + 200, "planning again keeps nothing");
    rows[3] = 4;
    for (int r = 0; r < 4; r++) {
        assert_error(lierne_plan_update_rows(plans[r], rows), LIERNE_ERR_INVALID,
                     "row 3 has owner 4");
    }
    cr_assert_eq(lierne_plan_update_rows(plans[0], NULL), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_plan_update_rows(NULL, rows), LIERNE_ERR_INVALID);
    for (int r = 0; r < 4; r++) {
        lierne_plan_destroy(plans[r]);
    }
    assert_ok(lierne_sim_destroy(sim));
}

Test(plan, only_a_plan_with_a_row_map_takes_one) {
    lierne_grid *src = grid(1, 1, 1, 1);
    lierne_bridge_spec spec = spec_of(src, src);
    lierne_context *self;
    lierne_plan *plan, *retyped;
    int32_t rows[32] = {0};
    const lierne_retyped_spec type = {.size = sizeof type, .dtype = LIERNE_DTYPE_I32, .width = 1};
    lierne_context_create_self(&self, NULL);
    assert_ok(lierne_plan_create_bridge(&plan, self, &spec));
    assert_error(lierne_plan_update_rows(plan, rows), LIERNE_ERR_INVALID, "has no row map");
    lierne_plan_destroy(plan);
    spec.gradient_owner = LIERNE_GRADIENT_OWNER_ROWS;
    spec.row_owner = rows;
    assert_ok(lierne_plan_create_bridge(&plan, self, &spec));
    assert_ok(lierne_plan_create_retyped(&retyped, plan, &type)); /* the map leaves the last axis */
    assert_ok(lierne_plan_destroy(retyped));
    lierne_status status = LIERNE_ERR_NO_MEMORY;
    for (size_t k = 1; status != LIERNE_OK; k++) {
        size_t before = lierne_mem_live();
        lierne_mem_fail_at(k);
        status = lierne_plan_update_rows(plan, rows);
        lierne_mem_fail_at(0);
        cr_assert(status == LIERNE_OK || status == LIERNE_ERR_NO_MEMORY);
        /* An update keeps the memory of both directions for the next one. */
        cr_assert_eq(lierne_mem_live(), before + (status == LIERNE_OK ? 2 : 0), "k = %zu", k);
    }
    lierne_plan_destroy(plan);
    lierne_context_destroy(self);
    lierne_grid_destroy(src);
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
static void samples_of(int64_t parts, int64_t mine, int64_t *from, int64_t *to) {
    *from = BATCH / parts * mine + (mine < BATCH % parts ? mine : BATCH % parts);
    *to = *from + BATCH / parts + (mine < BATCH % parts);
}

static int64_t fill_samples(int step, int64_t from, int64_t to, float factor, float *x) {
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
    int64_t src_dp, src_rank, dst_dp, dst_rank, cp, cp_coord;
    int bad;
    void *stream;
} variable_worker;

/* A device that is played, with a stream for lierne's own calls, and memory that it shares with the
 * host: how many pieces of it there are, and were. */
static lierne_memory device_memory;
static lierne_stream_driver device_driver;
static char own_stream;
static atomic_int shared, ever_shared;

static lierne_status alloc_shared(void **out, size_t bytes) {
    atomic_fetch_add(&shared, 1);
    atomic_fetch_add(&ever_shared, 1);
    return test_device_memory.alloc_host(out, bytes);
}

static void free_shared(void *memory) {
    atomic_fetch_sub(&shared, 1);
    test_device_memory.free_host(memory);
}

static void use_device(variable_worker *w) {
    device_memory = test_untouched_memory("device");
    device_memory.alloc_host = alloc_shared;
    device_memory.free_host = free_shared;
    device_driver = test_device_driver;
    device_driver.required = true;
    device_driver.detached = true;
    w->context->own_stream = &own_stream;
    w->context->memory = &device_memory;
    w->context->stream_driver = &device_driver;
    w->stream = w;
}

static int variable_step(variable_worker *w, lierne_plan *plan, int step) {
    int64_t from, to, rows[BATCH], in, out, n, m;
    float x[BATCH * MOST * WIDTH + 1], y[BATCH * MOST * WIDTH + 1], want[BATCH * MOST * WIDTH + 1];
    lierne_report report = {.size = sizeof report};
    int bad = 0;
    samples_of(w->src_dp, w->src_rank, &from, &to);
    for (int64_t g = from; g < to; g++) {
        rows[g - from] = rows_of(step, g);
    }
    bad |= lierne_plan_update_counts(plan, rows) != LIERNE_OK;
    n = fill_samples(step, from, to, 1, x);
    lierne_plan_get_elements(&in, &out, plan, LIERNE_DIRECTION_FORWARD);
    bad |= lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_FORWARD) != LIERNE_OK ||
           report.min_bytes != report.received_bytes;
    samples_of(w->dst_dp, w->dst_rank, &from, &to);
    m = fill_samples(step, from, to, 1, want);
    bad |= in != n || out != m;
    memset(y, 0xa5, sizeof y);
    bad |= lierne_plan_forward(plan, y, x, w->stream) != LIERNE_OK;
    bad |= memcmp(y, want, (size_t)m * sizeof *y) != 0;
    bad |= ((unsigned char *)(y + m))[0] != 0xa5;
    /* Contributions are cp + 1 times the output: their sum is cp (cp + 1) / 2 times the input. */
    fill_samples(step, from, to, (float)(w->cp_coord + 1), y);
    memset(x, 0xa5, sizeof x);
    bad |= lierne_plan_adjoint(plan, x, y, w->stream) != LIERNE_OK;
    samples_of(w->src_dp, w->src_rank, &from, &to);
    fill_samples(step, from, to, (float)(w->cp * (w->cp + 1) / 2), want);
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
    /* On sim a rank that gave nothing wrong, as an empty dp rank does, would wait for those that
     * did.
     */
    w->bad |=
        (w->src_dp <= BATCH && lierne_plan_update_counts(plan, bad_rows) != LIERNE_ERR_INVALID)
        << 20;
    w->bad |= (lierne_plan_destroy(plan) != LIERNE_OK) << 21;
    return NULL;
}

static void variable_rows(int64_t tp, int64_t src_dp, int64_t dst_tp, int64_t cp, int64_t dst_dp,
                          bool device) {
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
                                       0,
                                       NULL};
        if (device) {
            use_device(&workers[r]);
        }
    }
    for (int r = 0; r < world; r++) {
        pthread_create(&threads[r], NULL, variable_work, &workers[r]);
    }
    for (int r = 0; r < world; r++) {
        pthread_join(threads[r], NULL);
        cr_assert_eq(workers[r].bad, 0, "tp%d dp%d -> tp%d cp%d dp%d, rank %d: %x", (int)tp,
                     (int)src_dp, (int)dst_tp, (int)cp, (int)dst_dp, r, (unsigned)workers[r].bad);
    }
    assert_ok(lierne_sim_destroy(sim));
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
    cr_assert_eq(lierne_mem_live(), before);
}

static void variable_pairs(bool device) {
    variable_rows(2, 4, 2, 2, 2, device);
    variable_rows(1, 8, 2, 4, 1, device);
    variable_rows(4, 2, 1, 2, 4, device);
    variable_rows(4, 1, 1, 4, 1, device);
    variable_rows(2, 3, 3, 1, 2, device); /* uneven data-parallel sizes */
    variable_rows(1, 8, 1, 1, 8, device);
    variable_rows(8, 1, 1, 8, 1, device); /* eight contributions, eight receivers: two stages */
}

Test(plan, samples_with_another_number_of_rows_every_step) {
    variable_pairs(false);
}

/* The counts travel as the rows do: on a stream of lierne's, in memory that a device can read. */
Test(plan, the_same_on_a_device) {
    variable_pairs(true);
    cr_assert_eq(shared, 0, "%d pieces of shared memory are left", shared);
    cr_assert_geq(ever_shared, 2 * (8 + 8 + 8 + 4 + 6 + 8 + 8));
}

/* Every allocation of an update that can fail where no transport connects messages: the error says
 * how much was asked for, and the next update works. */
static void update_without(lierne_context *context, const lierne_bridge_spec *spec) {
    const int64_t rows[2] = {2, 1};
    lierne_plan *plan;
    lierne_status status = LIERNE_ERR_NO_MEMORY;
    assert_ok(lierne_plan_create_bridge(&plan, context, spec));
    for (size_t k = 1; status != LIERNE_OK; k++) {
        lierne_mem_fail_at(k);
        status = lierne_plan_update_counts(plan, rows);
        lierne_mem_fail_at(0);
        cr_assert(status == LIERNE_OK || status == LIERNE_ERR_NO_MEMORY, "%s", lierne_last_error());
        cr_expect(status == LIERNE_OK || !strstr(lierne_last_error(), " 0 items"), "%s",
                  lierne_last_error());
        cr_assert_eq(lierne_plan_update_counts(plan, rows), LIERNE_OK, "allocation %zu: %s", k,
                     lierne_last_error());
    }
    expect_ok(lierne_plan_destroy(plan));
}

Test(plan, counts_without_memory_leave_the_context_alive) {
    const int64_t shape[3] = {2, 3, 1};
    lierne_grid *g = grid(1, 1, 1, 1);
    lierne_bridge_spec spec = spec_of(g, g);
    lierne_context *self;
    spec.shape = shape;
    spec.variable_rows = 1;
    assert_ok(lierne_context_create_self(&self, NULL));
    update_without(self, &spec);
    expect_ok(lierne_context_destroy(self));
    lierne_grid_destroy(g);
}
