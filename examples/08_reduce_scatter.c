/* 08_reduce_scatter: every rank gets the sum of its part.
 *
 * Introduces lierne_plan_create_reduce_scatter and lierne_plan_create_all_reduce, an average, and
 * the error of a plan without an adjoint. Element i of rank r is 100 r + i, so the sum at rank d is
 * out[j] = n (d C + j) + 100 n (n - 1) / 2. Run with any number of ranks:
 * mpirun -n 4 build/examples/08_reduce_scatter */
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

/* The sum of 100 r + i over n ranks r. */
static double sum_of(int n, int64_t i) {
    return (double)(n * i + 50 * (int64_t)n * (n - 1));
}

/* Executes a plan of n C elements and compares its out, which begins at element first. */
static int execute(lierne_context *context, lierne_plan *plan, int64_t first, double divisor) {
    int n = lierne_context_get_world_size(context), wrong = 0;
    int64_t nin, nout;
    must(lierne_plan_get_elements(&nin, &nout, plan, LIERNE_DIRECTION_FORWARD));
    double *in = calloc((size_t)nin, sizeof *in), *out = calloc((size_t)nout, sizeof *out);
    for (int64_t i = 0; i < nin; i++) {
        in[i] = (double)(100 * lierne_context_get_rank(context) + i);
    }
    must(lierne_plan_forward(plan, out, in, NULL));
    for (int64_t j = 0; j < nout; j++) {
        wrong += out[j] != sum_of(n, first + j) / divisor;
    }
    free(in);
    free(out);
    must(lierne_plan_destroy(plan));
    return wrong;
}

static int reduce(lierne_context *context, lierne_reduction reduction) {
    const lierne_all_reduce_spec spec = {.size = sizeof spec,
                                         .count = lierne_context_get_world_size(context) * C,
                                         .dtype = LIERNE_DTYPE_F64,
                                         .reduction = reduction};
    lierne_plan *plan;
    must(lierne_plan_create_all_reduce(&plan, context, &spec));
    if (reduction == LIERNE_REDUCTION_MAX) {
        int refused = lierne_plan_adjoint(plan, NULL, NULL, NULL) == LIERNE_ERR_INVALID;
        if (lierne_context_get_rank(context) == 0) {
            printf("%s\n", lierne_last_error());
        }
        must(lierne_plan_destroy(plan));
        return !refused;
    }
    return execute(context, plan, 0, (double)lierne_context_get_world_size(context));
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    lierne_context *context;
    must(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL));
    const lierne_reduce_scatter_spec spec = {.size = sizeof spec,
                                             .count = C,
                                             .dtype = LIERNE_DTYPE_F64,
                                             .reduction = LIERNE_REDUCTION_SUM};
    lierne_plan *plan;
    int wrong[3];
    must(lierne_plan_create_reduce_scatter(&plan, context, &spec));
    wrong[0] = execute(context, plan, (int64_t)lierne_context_get_rank(context) * C, 1);
    wrong[1] = reduce(context, LIERNE_REDUCTION_AVG);
    wrong[2] = reduce(context, LIERNE_REDUCTION_MAX);
    MPI_Allreduce(MPI_IN_PLACE, wrong, 3, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (lierne_context_get_rank(context) == 0) {
        printf("reduce-scatter, %d sums per rank: %d wrong\n", C, wrong[0]);
        printf("all-reduce, averages: %d wrong\n", wrong[1]);
    }
    must(lierne_context_destroy(context));
    MPI_Finalize();
    return wrong[0] + wrong[1] + wrong[2] > 0;
}
