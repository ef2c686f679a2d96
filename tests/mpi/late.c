/* Who gives up leaves no trap for who comes late. A rank that missed its deadline, and freed its
 * plan, still lends the messages that it had started: the late rank gets the data that was sent,
 * and what it sends itself lands in memory that is still there. Blocks are strided and large, so
 * that messages are staged in the job's own memory and wait for the receiver. */
#include "mpi/common.h"

#include <stdio.h>
#include <stdlib.h>

#define TIMEOUT 0.5 /* seconds */
#define SAMPLES 2   /* of each lane */
#define ROWS    300
#define HIDDEN  400

/* Lanes of ranks 0 and 1 into one lane on both: each rank sends its half of every row. */
static lierne_status plan_of(lierne_plan **plan, lierne_context *context) {
    bridge_case c = {.src = mesh_of("tcd", 1, 1, 2),
                     .dst = mesh_of("tcd", 2, 1, 1),
                     .size = {2 * SAMPLES, ROWS, HIDDEN},
                     .axis = {1, 0, 2},
                     .dtype = LIERNE_F32};
    return case_plan(plan, context, &c);
}

static float value(int row, int sample, int h) {
    return (float)((row * 2 * SAMPLES + sample) * HIDDEN + h);
}

static void check_output(const float *out) {
    long wrong = 0;
    for (int i = 0; i < ROWS * 2 * SAMPLES * HIDDEN; i++) {
        int h = i % HIDDEN, sample = i / HIDDEN % (2 * SAMPLES);
        wrong += out[i] != value(i / HIDDEN / (2 * SAMPLES), sample, h);
    }
    CHECK(wrong == 0, "%ld values are wrong", wrong);
}

/* Memory that was given back is given out again: whatever still reads it, reads something else. */
static void reuse_memory(void) {
    enum { BLOCKS = 64 };
    char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        size_t bytes = (size_t)1024 << i % 12;
        blocks[i] = malloc(bytes);
        for (size_t b = 0; blocks[i] && b < bytes; b++) {
            blocks[i][b] = 0x5a;
        }
    }
    for (int i = 0; i < BLOCKS; i++) {
        free(blocks[i]);
    }
}

static void come_late(int late) {
    lierne_context *context;
    lierne_plan *plan;
    lierne_context_spec spec = {.size = sizeof spec,
                                .timeout = test_rank == late ? 4 * TIMEOUT : TIMEOUT};
    float *in = calloc(ROWS * SAMPLES * HIDDEN, sizeof *in);
    float *out = calloc((size_t)ROWS * 2 * SAMPLES * HIDDEN, sizeof *out);
    for (int i = 0; i < ROWS * SAMPLES * HIDDEN; i++) {
        int h = i % HIDDEN, sample = test_rank * SAMPLES + i / HIDDEN % SAMPLES;
        in[i] = value(i / HIDDEN / SAMPLES, sample, h);
    }
    CHECK(lierne_init_mpi(&context, MPI_COMM_WORLD, &spec) == LIERNE_OK, "%s", lierne_last_error());
    CHECK(plan_of(&plan, context) == LIERNE_OK, "%s", lierne_last_error());
    if (test_rank != late) {
        CHECK(lierne_forward(plan, out, in, NULL) == LIERNE_TIMEOUT, "nobody came, yet it ended");
        CHECK(lierne_plan_free(plan) == LIERNE_OK, "%s", lierne_last_error());
        reuse_memory();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (test_rank == late) {
        CHECK(lierne_forward(plan, out, in, NULL) == LIERNE_OK, "%s", lierne_last_error());
        check_output(out);
        CHECK(lierne_plan_free(plan) == LIERNE_OK, "%s", lierne_last_error());
    }
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(lierne_free(context) == LIERNE_OK, "%s", lierne_last_error());
    MPI_Barrier(MPI_COMM_WORLD);
    free(in);
    free(out);
}

int main(int argc, char **argv) {
    test_start(&argc, &argv, 60);
    CHECK(test_world == 2, "%d ranks, this is for two", test_world);
    come_late(0);
    come_late(1);
    return test_finish();
}
