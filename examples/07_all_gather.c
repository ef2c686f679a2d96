/* 07_all_gather: every rank gets what all ranks have.
 *
 * Introduces lierne_plan_create_all_gather, with one count and with a count per rank, and its
 * adjoint. Rank r contributes 100 r + i, so that element i of its block is out[r C + i] = 100 r + i
 * everywhere. Run with any number of ranks: mpirun -n 4 build/examples/07_all_gather */
#include <lierne.h>
#include <lierne/mpi.h>

#include <stdio.h>
#include <stdlib.h>

enum { C = 64 };

static void must(lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "%s: %s\n", lierne_status_name(status), lierne_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Gathers counts[r] elements of each rank r; returns how many are wrong here. */
static int gather(lierne_context *context, const int64_t *counts) {
    int n = lierne_context_get_world_size(context), rank = lierne_context_get_rank(context);
    const lierne_all_gather_spec spec = {.size = sizeof spec,
                                         .counts = counts,
                                         .dtype = LIERNE_DTYPE_F32};
    lierne_plan *plan;
    int64_t own, all;
    int wrong = 0;
    must(lierne_plan_create_all_gather(&plan, context, &spec));
    must(lierne_plan_get_elements(&own, &all, plan, LIERNE_DIRECTION_FORWARD));
    float *in = calloc((size_t)own + 1, sizeof *in), *out = calloc((size_t)all + 1, sizeof *out);
    for (int64_t i = 0; i < own; i++) {
        in[i] = (float)(100 * rank + i);
    }
    must(lierne_plan_forward(plan, out, in, NULL));
    for (int64_t r = 0, at = 0; r < n; r++) {
        for (int64_t i = 0; i < counts[r]; i++) {
            wrong += out[at++] != (float)(100 * r + i);
        }
    }
    /* Each element was copied to n ranks, so n gradients of it come back and are added. */
    must(lierne_plan_adjoint(plan, in, out, NULL));
    for (int64_t i = 0; i < own; i++) {
        wrong += in[i] != (float)(n * (100 * rank + i));
    }
    free(in);
    free(out);
    must(lierne_plan_destroy(plan));
    return wrong;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    lierne_context *context;
    must(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL));
    int n = lierne_context_get_world_size(context), wrong[2];
    int64_t *even = calloc((size_t)n, sizeof *even), *uneven = calloc((size_t)n, sizeof *uneven);
    for (int r = 0; r < n; r++) {
        even[r] = C;
        uneven[r] = r % 3 * C / 2; /* some ranks have nothing */
    }
    wrong[0] = gather(context, even);
    wrong[1] = gather(context, uneven);
    MPI_Allreduce(MPI_IN_PLACE, wrong, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (lierne_context_get_rank(context) == 0) {
        printf("all-gather of %d elements per rank: %d wrong\n", C, wrong[0]);
        printf("all-gather of 0, %d or %d elements per rank: %d wrong\n", C / 2, C, wrong[1]);
    }
    free(even);
    free(uneven);
    must(lierne_context_destroy(context));
    MPI_Finalize();
    return wrong[0] + wrong[1] > 0;
}
