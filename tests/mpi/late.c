/* Who gives up leaves no trap for who comes late. A rank that missed its deadline, and freed its
 * plan, still lends the messages that it had started: the late rank gets the data that was sent,
 * and what it sends itself lands in memory that is still there. Blocks are strided and large, so
 * that messages are staged in the job's own memory and wait for the receiver; not so large that
 * some wait for a place there, as these would never be sent. The letters with which ranks plan are
 * lent in the same way. */
#include "lierne/halo.h"
#include "mpi/common.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TIMEOUT 0.5 /* seconds */
#define SAMPLES 2   /* of each lane */
#define ROWS    200
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

static double asleep; /* seconds for which the next look for letters is put off */

/* The library's, too. */
int MPI_Improbe(int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message,
                MPI_Status *status) {
    usleep((useconds_t)(asleep * 1e6));
    asleep = 0;
    return PMPI_Improbe(source, tag, comm, flag, message, status);
}

/* Letters of several hundred kilobytes, which MPI reads where they lie when the receiver looks. */
#define POINTS 40000

static lierne_status plan_swap(lierne_context *context) {
    static int64_t rows[POINTS];
    const int64_t *lists[] = {rows};
    const int64_t number = POINTS;
    const int other = 1 - test_rank;
    lierne_plan *plan;
    lierne_halo_spec spec = {.size = sizeof spec,
                             .nlocal = POINTS,
                             .nghost = POINTS,
                             .nswap = 1,
                             .sendproc = &other,
                             .recvproc = &other,
                             .sendnum = &number,
                             .recvnum = &number,
                             .sendlist = lists,
                             .dtype = LIERNE_F32,
                             .width = 1};
    return lierne_plan_halo(&plan, context, &spec);
}

static lierne_status make_brick(lierne_context *context) {
    static double points[3 * POINTS];
    lierne_brick *brick;
    lierne_brick_spec spec = {.size = sizeof spec,
                              .grid = {2, 1, 1},
                              .box = {1, 1, 1},
                              .cutoff = 0.3,
                              .nlocal = POINTS,
                              .positions = points};
    for (int i = 0; i < POINTS; i++) {
        points[3 * i] = 0.25 + 0.5 * test_rank;
    }
    return lierne_brick_create(&brick, context, &spec);
}

/* The late rank finds letters of one that has given up, and then nobody to go on with. */
static void read_late(int late, lierne_status (*plan)(lierne_context *context)) {
    lierne_context *context;
    lierne_context_spec spec = {.size = sizeof spec,
                                .timeout = test_rank == late ? 4 * TIMEOUT : TIMEOUT};
    CHECK(lierne_init_mpi(&context, MPI_COMM_WORLD, &spec) == LIERNE_OK, "%s", lierne_last_error());
    asleep = test_rank == late ? 2 * TIMEOUT : 0;
    CHECK(plan(context) == LIERNE_TIMEOUT, "a rank gave up, yet planning ended");
    reuse_memory();
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(lierne_free(context) == LIERNE_OK, "%s", lierne_last_error());
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    test_start(&argc, &argv, 60);
    CHECK(test_world == 2, "%d ranks, this is for two", test_world);
    for (int late = 0; late < 2; late++) {
        come_late(late);
        read_late(late, plan_swap);
        read_late(late, make_brick);
    }
    return test_finish();
}
