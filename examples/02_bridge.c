/* 02_bridge: an encoder's activations go to an LLM's layout, and the gradient comes back.
 *
 * Introduces lierne_context_create_mpi, lierne_plan_create_bridge, lierne_plan_forward and
 * lierne_plan_adjoint. Run with 8 ranks: mpirun -n 8 build/examples/02_bridge */
#include <lierne.h>
#include <lierne/mpi.h>

#include <stdio.h>
#include <stdlib.h>

static void must(lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "%s: %s\n", lierne_status_name(status), lierne_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* A grid over the 8 ranks, tp fastest. */
static lierne_grid *grid(int64_t tp, int64_t cp, int64_t dp) {
    const char *names[] = {"tp", "cp", "dp"};
    const int64_t sizes[] = {tp, cp, dp};
    lierne_grid_spec spec = {
        .size = sizeof spec, .ndims = 3, .names = names, .sizes = sizes, .world_size = 8};
    lierne_grid *g;
    must(lierne_grid_create(&g, &spec));
    return g;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    lierne_context *context;
    must(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL));
    int rank = lierne_context_get_rank(context);

    /* 8 samples of 16 rows of 4: 2 per dp rank of the encoder, 4 per dp rank of the LLM. */
    const int64_t shape[] = {8, 16, 4};
    lierne_grid *encoder = grid(2, 1, 4), *llm = grid(2, 2, 2);
    lierne_bridge_spec spec = LIERNE_BRIDGE_SPEC_INIT;
    spec.src = encoder;
    spec.dst = llm;
    spec.naxes = 3;
    spec.shape = shape;
    spec.dtype = LIERNE_DTYPE_F32;
    spec.sequence_axis = 1; /* batch_axis is 0, and the gradient partial over cp, by default */
    lierne_plan *plan;
    must(lierne_plan_create_bridge(&plan, context, &spec));

    /* Forward: the encoder's dp of this rank is rank / 2; element i of sample g is 1000 g + i. */
    float x[2 * 64], y[4 * 64], gy[4 * 64], gx[2 * 64];
    for (int i = 0; i < 128; i++) {
        x[i] = (float)(1000 * (rank / 2 * 2 + i / 64) + i % 64);
    }
    must(lierne_plan_forward(plan, y, x, NULL));

    /* Adjoint: each cp rank has a contribution to the gradient; here 1 and 2 times the output. */
    int cp = rank / 2 % 2, wrong = 0, all;
    for (int i = 0; i < 256; i++) {
        wrong += y[i] != (float)(1000 * (rank / 4 * 4 + i / 64) + i % 64);
        gy[i] = (float)(cp + 1) * y[i];
    }
    must(lierne_plan_adjoint(plan, gx, gy, NULL));
    for (int i = 0; i < 128; i++) {
        wrong += gx[i] != 3 * x[i]; /* the sum over cp, once, of the own samples only */
    }

    MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("tp2 dp4 -> tp2 cp2 dp2: %d wrong elements\n", all);
    }
    must(lierne_plan_destroy(plan));
    must(lierne_context_destroy(context));
    lierne_grid_destroy(encoder);
    lierne_grid_destroy(llm);
    MPI_Finalize();
    return rank == 0 && all != 0;
}
