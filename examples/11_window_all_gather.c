/* 11_window_all_gather: an all-gather of your own, by direct loads.
 *
 * Introduces lierne/window.h: memory of every rank of the node that all of them reach, and a
 * barrier in two halves. Rank r writes 100 r + i + k in round k; after the wait every rank reads
 * the others' buffers in place. No buffer is waited for before it is written again: two take turns.
 * Run with any number of ranks of one node: mpirun -n 4 build/examples/11_window_all_gather */
#include <lierne.h>
#include <lierne/mpi.h>

#include <stdio.h>

enum { C = 64, ROUNDS = 1000 };

static void must(lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "%s: %s\n", lierne_status_name(status), lierne_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Gathers this rank's C elements of a round with those of all others, out[r C + i] = in of rank r.
 */
static void all_gather(lierne_window *window, float *out, const float *in) {
    float *own = lierne_window_get_writable(window, lierne_window_get_rank(window));
    for (int i = 0; i < C; i++) {
        own[i] = in[i];
    }
    must(lierne_window_notify(window, NULL)); /* mine is written */
    must(lierne_window_wait(window, NULL));   /* everybody's is */
    for (int r = 0; r < lierne_window_get_size(window); r++) {
        const float *theirs = lierne_window_get_readable(window, r);
        for (int i = 0; i < C; i++) {
            out[r * C + i] = theirs[i];
        }
    }
}

int main(int argc, char **argv) {
    static float in[C], out[64 * C];
    MPI_Init(&argc, &argv);
    lierne_context *context;
    lierne_window *window;
    must(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL));
    const lierne_window_spec spec = {.size = sizeof spec, .bytes = sizeof in};
    must(lierne_window_create(&window, context, &spec));
    int n = lierne_window_get_size(window), rank = lierne_window_get_rank(window), wrong = 0;
    for (int k = 0; k < ROUNDS && n <= 64; k++) {
        for (int i = 0; i < C; i++) {
            in[i] = (float)(100 * rank + i + k);
        }
        all_gather(window, out, in);
        for (int r = 0; r < n; r++) {
            for (int i = 0; i < C; i++) {
                wrong += out[r * C + i] != (float)(100 * r + i + k);
            }
        }
    }
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%d all-gathers in a window of %d ranks: %d wrong\n", ROUNDS, n, wrong);
    }
    must(lierne_window_destroy(window));
    must(lierne_context_destroy(context));
    MPI_Finalize();
    return wrong > 0;
}
