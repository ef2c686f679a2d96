/* Samples between processes: random steps against an oracle, also where contexts check calls; the
 * same message on all ranks; updates that allocate nothing; long rows in any memory; a rank that
 * calls something else; the same where the ranks are those of a larger world, with gaps. */
#include "mpi/common.h"
#include "unit/sample_steps.h"

#include <stdlib.h>
#include <string.h>

enum { LOCAL = 4, MOST_ROWS = 256, WIDTH = 3, STEPS = 60 };

static int members[SAMPLE_STEPS_RANKS]; /* every second rank of a world */

static lierne_context_spec spaced_spec(void) {
    for (int i = 0; i < test_world; i++) {
        members[i] = 2 * i;
    }
    return (lierne_context_spec){.size = sizeof(lierne_context_spec),
                                 .timeout = PATIENT,
                                 .members = members,
                                 .nmembers = test_world,
                                 .world_size = 2 * test_world};
}

static void run_steps(lierne_context *context, uint64_t seed) {
    sample_steps t = {.seed = seed, .steps = STEPS};
    if (lierne_context_get_world_size(context) > test_world) {
        t.nmembers = test_world;
        memcpy(t.members, members, sizeof members);
    }
    sample_steps_run(&t, context);
    CHECK(t.wrong == 0, "seed %d: %s", (int)seed, t.what);
    CHECK(t.moved > STEPS / 3 && t.rejected > 0, "%d steps moved, %d had an error", (int)t.moved,
          (int)t.rejected);
}

static lierne_samples *create_samples(lierne_context *context, lierne_plan **plan) {
    const lierne_samples_tensor tensor = {LIERNE_SAMPLES_DISPATCH, LIERNE_DTYPE_F64, WIDTH};
    const lierne_samples_spec spec = {.size = sizeof spec,
                                      .max_local_items = LOCAL,
                                      .ncosts = 1,
                                      .max_rows = MOST_ROWS,
                                      .ntensors = 1,
                                      .tensors = &tensor};
    lierne_samples *samples = NULL;
    CHECK_OK(lierne_samples_create(&samples, context, &spec));
    CHECK_OK(lierne_samples_get_plan(plan, samples, 0));
    return samples;
}

/* Item j of rank r costs and has 1 + (3 r + 5 j + 7 step) mod 11 rows; rank 0's cost 20 more. */
static lierne_status update(lierne_samples *samples, int step, int64_t nitems, int tolerance) {
    int64_t cost[LOCAL + 1], rows[LOCAL + 1];
    lierne_balance_spec balance = LIERNE_BALANCE_SPEC_INIT;
    for (int j = 0; j <= LOCAL; j++) {
        rows[j] = 1 + (3 * test_rank + 5 * j + 7 * step) % 11;
        cost[j] = rows[j] + (test_rank == 0 ? 20 : 0);
    }
    const lierne_items items = {
        .size = sizeof items, .nitems = nitems, .ncosts = 1, .cost = cost, .rows = rows};
    balance.tolerance = tolerance;
    return lierne_samples_update(samples, &items, &balance, NULL);
}

static void run_without_memory(lierne_context *context) {
    lierne_plan *plan;
    lierne_samples *samples = create_samples(context, &plan);
    double *in = test_buffer(MOST_ROWS * WIDTH * sizeof *in);
    double *out = test_buffer(MOST_ROWS * WIDTH * sizeof *out);
    for (int step = 0; step < 6; step++) {
        lierne_mem_fail_at(step >= 2);
        CHECK_OK(update(samples, step, LOCAL - step % 3, 20));
        lierne_mem_fail_at(0);
        CHECK_OK(lierne_plan_forward(plan, out, in, NULL));
    }
    CHECK_OK(lierne_samples_destroy(samples));
}

/* Rows that are long enough to be read where the sender has them. */
enum { WIDE = 40, LONG = 90, MOST_LONG = LONG * LOCAL * SAMPLE_STEPS_RANKS };

static int64_t long_rows(int64_t number, int step) {
    return (number * 37 + step * 11) % LONG + (number % LOCAL ? 0 : 5);
}

/* The rows of the items of a list, one behind the other; returns how many there are. */
static int64_t fill_rows(int64_t *to, const int64_t *items, int64_t n, int step) {
    int64_t rows = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < long_rows(items[i], step); k++, rows++) {
            for (int c = 0; c < WIDE; c++) {
                to[rows * WIDE + c] = items[i] * 1000000 + k * 1000 + c * 7 + step;
            }
        }
    }
    return rows;
}

static void move_long(lierne_samples *samples, lierne_plan *plan, int step, int64_t *const at[3]) {
    lierne_samples_lists home = {.size = sizeof home}, there = {.size = sizeof there};
    CHECK_OK(lierne_samples_get_lists(&home, samples, LIERNE_SAMPLES_HOME));
    CHECK_OK(lierne_samples_get_lists(&there, samples, LIERNE_SAMPLES_DISPATCHED));
    int64_t n = fill_rows(at[0], home.items, home.nitems, step) * WIDE;
    CHECK_OK(lierne_plan_forward(plan, at[1], at[0], NULL));
    int64_t m = fill_rows(at[2], there.items, there.nitems, step) * WIDE;
    CHECK(memcmp(at[1], at[2], (size_t)m * sizeof **at) == 0, "step %d: dispatched rows", step);
    memset(at[2], 0, (size_t)n * sizeof **at);
    CHECK_OK(lierne_plan_adjoint(plan, at[2], at[1], NULL));
    CHECK(memcmp(at[2], at[0], (size_t)n * sizeof **at) == 0, "step %d: rows at home", step);
}

/* In memory of the context, in memory of this test, and in both by turns. */
static void run_long_rows(lierne_context *context) {
    const lierne_samples_tensor tensor = {LIERNE_SAMPLES_DISPATCH, LIERNE_DTYPE_I64, WIDE};
    const lierne_samples_spec spec = {.size = sizeof spec,
                                      .max_local_items = LOCAL,
                                      .ncosts = 1,
                                      .max_rows = MOST_LONG,
                                      .ntensors = 1,
                                      .tensors = &tensor};
    lierne_samples *samples = NULL;
    lierne_plan *plan = NULL;
    int64_t *at[2][3];
    CHECK_OK(lierne_samples_create(&samples, context, &spec));
    CHECK_OK(lierne_samples_get_plan(&plan, samples, 0));
    for (int k = 0; k < 3; k++) {
        void *memory;
        CHECK_OK(lierne_context_alloc(&memory, context, MOST_LONG * WIDE * sizeof **at[0]));
        at[0][k] = memory;
        at[1][k] = test_buffer(MOST_LONG * WIDE * sizeof **at[0]);
    }
    for (int step = 0; step < 12; step++) {
        int64_t cost[LOCAL];
        for (int j = 0; j < LOCAL; j++) {
            cost[j] = long_rows(test_rank * LOCAL + j, step);
        }
        const lierne_items items = {.size = sizeof items,
                                    .nitems = LOCAL - step % 2,
                                    .ncosts = 1,
                                    .cost = cost};
        lierne_balance_spec balance = LIERNE_BALANCE_SPEC_INIT;
        balance.mode = step % 3 ? LIERNE_BALANCE_LPT : LIERNE_BALANCE_SHED;
        CHECK_OK(step % 2 ? LIERNE_OK : lierne_samples_update(samples, &items, &balance, NULL));
        move_long(samples, plan, step / 2 * 2,
                  step % 4 < 2   ? at[0]
                  : step % 4 < 3 ? at[1]
                                 : (int64_t *const[]){at[0][0], at[1][1], at[0][2]});
    }
    CHECK_OK(lierne_samples_destroy(samples));
    for (int k = 0; k < 3; k++) {
        CHECK_OK(lierne_context_dealloc(context, at[0][k]));
    }
}

static void run_same_errors(lierne_context *context) {
    lierne_plan *plan;
    lierne_samples *samples = create_samples(context, &plan);
    bool last = test_rank == test_world - 1;
    test_same_error(update(samples, 0, last ? LOCAL + 1 : LOCAL, 20), LIERNE_ERR_CAPACITY,
                    "more items than the capacity");
    if (test_world > 1) {
        test_same_error(update(samples, 0, LOCAL, last ? 21 : 20), LIERNE_ERR_MISMATCH,
                        "another tolerance");
    }
    CHECK_OK(update(samples, 1, LOCAL, 20));
    CHECK_OK(lierne_samples_destroy(samples));
}

/* The last rank calls the plan while the others update. Nobody waits for long, nobody gets OK. */
static void run_other_call(bool checks, bool spaced) {
    lierne_context_spec spec = {.size = sizeof spec, .timeout = PATIENT};
    spec = spaced ? spaced_spec() : spec;
    spec.check = checks;
    lierne_context *context = NULL;
    lierne_plan *plan;
    CHECK_OK(test_context_create(&context, MPI_COMM_WORLD, &spec));
    lierne_samples *samples = create_samples(context, &plan);
    double *in = test_buffer(MOST_ROWS * WIDTH * sizeof *in);
    double *out = test_buffer(MOST_ROWS * WIDTH * sizeof *out);
    CHECK_OK(update(samples, 0, LOCAL, 20));
    CHECK_OK(lierne_plan_forward(plan, out, in, NULL));
    test_hurry(context, 1);
    lierne_status status = test_rank == test_world - 1 ? lierne_plan_forward(plan, out, in, NULL)
                                                       : update(samples, 1, LOCAL, 20);
    if (checks) {
        test_same_error(status, LIERNE_ERR_MISMATCH, "an update beside a call of a plan");
    } else {
        CHECK(status != LIERNE_OK, "an update beside a call of a plan: OK");
    }
    CHECK_OK(lierne_samples_destroy(samples));
    MPI_Barrier(MPI_COMM_WORLD); /* a rank that fails first waits for the others */
    lierne_context_destroy(context);
}

static void run(lierne_context *context) {
    run_steps(context, 1);
    run_steps(context, 2);
    run_without_memory(context);
    run_long_rows(context);
    run_same_errors(context);
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = PATIENT, .check = 1};
    lierne_context *checking = NULL;
    CHECK_OK(test_context_create(&checking, MPI_COMM_WORLD, &spec));
    run_steps(checking, 3);
    run_same_errors(checking);
    CHECK_OK(lierne_context_destroy(checking));
    const lierne_context_spec other = spaced_spec();
    lierne_context *spaced = NULL;
    CHECK_OK(test_context_create(&spaced, MPI_COMM_WORLD, &other));
    run_steps(spaced, 4);
    CHECK_OK(lierne_context_destroy(spaced));
}

/* Contexts that died keep what peers may still read, so memory is counted before. */
int main(int argc, char **argv) {
    test_start(&argc, &argv);
    size_t before = lierne_mem_live();
    lierne_context *context = test_context(PATIENT);
    run(context);
    CHECK_OK(lierne_context_destroy(context));
    CHECK(lierne_mem_live() == before, "%zu allocations leaked", lierne_mem_live() - before);
    if (test_world > 1) {
        run_other_call(true, false);
        run_other_call(false, false);
        run_other_call(false, true);
    }
    return test_finish();
}
