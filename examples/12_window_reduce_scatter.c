/* 12_window_reduce_scatter: a reduce-scatter of your own, of more than a window holds.
 *
 * Introduces rounds as a pipeline: what is larger than a buffer is moved in pieces, one round each,
 * and a piece is written while other ranks still add the one before. Every rank adds in ascending
 * order of the ranks, so the sums have the bits of lierne_plan_create_reduce_scatter. Element i of
 * rank r is 100 r + i, so the sum at rank d is out[j] = n (d C + j) + 100 n (n - 1) / 2. Run with
 * any number of ranks of one node: mpirun -n 4 build/examples/12_window_reduce_scatter */
#include <lierne.h>
#include <lierne/mpi.h>

#include <stdio.h>
#include <stdlib.h>

enum { C = 1000, PIECE = 64 };

static void must(lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "%s: %s\n", lierne_status_name(status), lierne_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Elements first to first + count - 1 of every rank's part. */
static void reduce_piece(lierne_window *window, double *out, const double *in, int first,
                         int count) {
    int n = lierne_window_get_size(window), rank = lierne_window_get_rank(window);
    double *own = lierne_window_get_writable(window, rank);
    for (int d = 0; d < n; d++) {
        for (int j = 0; j < count; j++) {
            own[d * PIECE + j] = in[d * C + first + j];
        }
    }
    must(lierne_window_notify(window, NULL));
    must(lierne_window_wait(window, NULL));
    for (int j = 0; j < count; j++) {
        double sum = 0;
        for (int r = 0; r < n; r++) {
            const double *theirs = lierne_window_get_readable(window, r);
            sum += theirs[rank * PIECE + j];
        }
        out[first + j] = sum;
    }
}

static void reduce_scatter(lierne_window *window, double *out, const double *in) {
    for (int first = 0; first < C; first += PIECE) {
        reduce_piece(window, out, in, first, C - first < PIECE ? C - first : PIECE);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    lierne_context *context;
    lierne_window *window;
    must(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL));
    int n = lierne_context_get_world_size(context), rank = lierne_context_get_rank(context);
    const lierne_window_spec spec = {.size = sizeof spec,
                                     .bytes = (int64_t)sizeof(double) * n * PIECE};
    must(lierne_window_create(&window, context, &spec));
    double *in = calloc((size_t)n * C, sizeof *in), *out = calloc(C, sizeof *out);
    int wrong = 0;
    for (int i = 0; i < n * C; i++) {
        in[i] = 100 * rank + i;
    }
    reduce_scatter(window, out, in);
    for (int j = 0; j < C; j++) {
        wrong += out[j] != (double)n * (rank * C + j) + 50.0 * n * (n - 1);
    }
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("a reduce-scatter in rounds of %d elements, %d sums per rank: %d wrong\n", PIECE, C,
               wrong);
    }
    free(in);
    free(out);
    must(lierne_window_destroy(window));
    must(lierne_context_destroy(context));
    MPI_Finalize();
    return wrong > 0;
}
