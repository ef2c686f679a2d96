/* 15_samples_in_steps: other samples in every step, assigned and moved with two communications.
 *
 * Introduces lierne_samples_*. Each rank knows the lengths of its own images only. The update
 * gathers them, and every rank computes the assignment and what it sends and receives. The encoder
 * of this example merges four rows into one, so the results that return have a quarter of the rows.
 * Run with any number of ranks: mpirun -n 4 build/examples/15_samples_in_steps */
#include <lierne.h>
#include <lierne/mpi.h>

#include <stdio.h>
#include <stdlib.h>

enum { IMAGES = 6, STEPS = 3, MOST_ROWS = 4096, MERGE = 4 };

static void must(lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "%s: %s\n", lierne_status_name(status), lierne_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Rows of image i of a rank; rank 0 has read the long ones. */
static int64_t length_of(int rank, int step, int i) {
    return MERGE * (4 + (rank * 7 + step * 5 + i * 11) % 13) * (rank == 0 ? 4 : 1);
}

/* Both plans have the images of this step from now on. Returns the rows of this rank's images. */
static int64_t next_step(lierne_samples *samples, int rank, int step) {
    int64_t rows[IMAGES], merged[IMAGES], sum = 0;
    for (int i = 0; i < IMAGES; i++) {
        rows[i] = length_of(rank, step, i);
        merged[i] = rows[i] / MERGE;
        sum += rows[i];
    }
    const lierne_items items = {.size = sizeof items,
                                .nitems = IMAGES,
                                .ncosts = 1,
                                .cost = rows,
                                .rows = rows,
                                .returned_rows = merged};
    const lierne_balance_spec balance = LIERNE_BALANCE_SPEC_INIT;
    must(lierne_samples_update(samples, &items, &balance, NULL));
    return sum;
}

static int64_t highest(const lierne_samples *samples, lierne_samples_place place, int world) {
    lierne_samples_lists lists = {.size = sizeof lists};
    int64_t most = 0;
    must(lierne_samples_get_lists(&lists, samples, place));
    for (int p = 0; p < world; p++) {
        most = lists.loads[p] > most ? lists.loads[p] : most;
    }
    return most;
}

/* The encoder: a result is the sum of four rows of one image. */
static void encode(float *out, const float *in, const lierne_samples_lists *lists) {
    for (int64_t row = 0; row < lists->cu_seqlens[lists->nsegments] / MERGE; row++) {
        out[row] =
            in[MERGE * row] + in[MERGE * row + 1] + in[MERGE * row + 2] + in[MERGE * row + 3];
    }
}

static void run_step(lierne_samples *samples, int rank, int world, int step) {
    static float pixels[MOST_ROWS], moved[MOST_ROWS], encoded[MOST_ROWS], results[MOST_ROWS];
    lierne_plan *dispatch, *to_home;
    lierne_samples_lists lists = {.size = sizeof lists};
    lierne_assignment_report report = {.size = sizeof report};
    int64_t rows = next_step(samples, rank, step), wrong = 0, all;
    must(lierne_samples_get_plan(&dispatch, samples, 0)); /* the same ones in every step */
    must(lierne_samples_get_plan(&to_home, samples, 1));
    for (int64_t i = 0; i < rows; i++) {
        pixels[i] = (float)(1000 * rank + i);
    }
    must(lierne_plan_forward(dispatch, moved, pixels, NULL));
    must(lierne_samples_get_lists(&lists, samples, LIERNE_SAMPLES_DISPATCHED));
    encode(encoded, moved, &lists);
    must(lierne_plan_forward(to_home, results, encoded, NULL));
    for (int64_t i = 0; i < rows / MERGE; i++) {
        wrong += results[i] != 4 * pixels[MERGE * i] + 6;
    }
    MPI_Reduce(&wrong, &all, 1, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    must(lierne_samples_get_report(&report, samples));
    if (rank == 0) {
        printf("step %d: the busiest rank has %lld rows, not %lld; %lld moved, %lld results "
               "wrong\n",
               step, (long long)highest(samples, LIERNE_SAMPLES_DISPATCHED, world),
               (long long)highest(samples, LIERNE_SAMPLES_HOME, world),
               (long long)report.moved_rows, (long long)all);
    }
}

int main(int argc, char **argv) {
    static const lierne_samples_tensor tensors[] = {{LIERNE_SAMPLES_DISPATCH, LIERNE_DTYPE_F32, 1},
                                                    {LIERNE_SAMPLES_RETURN, LIERNE_DTYPE_F32, 1}};
    int rank, world;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    lierne_context *context;
    lierne_samples *samples;
    const lierne_samples_spec spec = {.size = sizeof spec,
                                      .max_local_items = IMAGES,
                                      .ncosts = 1,
                                      .max_rows = MOST_ROWS,
                                      .ntensors = 2,
                                      .tensors = tensors};
    must(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL));
    must(lierne_samples_create(&samples, context, &spec));
    for (int step = 0; step < STEPS; step++) {
        run_step(samples, rank, world, step);
    }
    must(lierne_samples_destroy(samples));
    must(lierne_context_destroy(context));
    MPI_Finalize();
    return 0;
}
