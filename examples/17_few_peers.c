/* 17_few_peers: an all-to-all in which no rank has more peers than a square of ranks needs.
 *
 * Introduces max_peers: tokens to experts on other ranks, as many to each as the sender says. What
 * goes to a rank in another row and column of the square stops over at a third rank. Nothing else
 * changes: the buffers, the calls and the adjoint, which brings results back.
 *
 * mpirun -n 9 build/examples/17_few_peers */
#include <lierne.h>
#include <lierne/mpi.h>
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>

static void must(lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "%s: %s\n", lierne_status_name(status), lierne_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Tokens from one rank to another: between none and three. */
static int64_t tokens_of(int from, int to) {
    return (from + 2 * to) % 4;
}

/* The most peers of a rank in a square of n ranks. */
static int peers_of(int n) {
    int columns = 1;
    while (columns * columns < n) {
        columns++;
    }
    return columns - 1 + (n + columns - 1) / columns - 1;
}

static lierne_plan *plan_tokens(lierne_context *context, int rank, int world) {
    int64_t *counts = malloc((size_t)world * sizeof *counts);
    lierne_plan *plan;
    for (int to = 0; to < world; to++) {
        counts[to] = tokens_of(rank, to);
    }
    const lierne_all_to_all_spec spec = {.size = sizeof spec,
                                         .send_counts = counts,
                                         .dtype = LIERNE_DTYPE_F32,
                                         .max_peers = peers_of(world)};
    must(lierne_plan_create_all_to_all(&plan, context, &spec));
    free(counts);
    return plan;
}

/* The value of a token says where it comes from and goes. */
static float token(int from, int to, int64_t i) {
    return (float)(100 * from + 10 * to) + (float)i;
}

/* Sends the tokens and takes them back; how many are not where they belong. */
static int move(lierne_plan *plan, int rank, int world) {
    int64_t in, out, at = 0;
    int wrong = 0;
    must(lierne_plan_get_elements(&in, &out, plan, LIERNE_DIRECTION_FORWARD));
    float *own = malloc(((size_t)in + 1) * sizeof *own);
    float *got = malloc(((size_t)out + 1) * sizeof *got);
    for (int to = 0; to < world; to++) {
        for (int64_t i = 0; i < tokens_of(rank, to); i++) {
            own[at++] = token(rank, to, i);
        }
    }
    must(lierne_plan_forward(plan, got, own, NULL));
    at = 0;
    for (int from = 0; from < world; from++) {
        for (int64_t i = 0; i < tokens_of(from, rank); i++) {
            wrong += got[at] != token(from, rank, i);
            got[at++] += 0.5f; /* what an expert makes of it */
        }
    }
    must(lierne_plan_adjoint(plan, own, got, NULL));
    at = 0;
    for (int to = 0; to < world; to++) {
        for (int64_t i = 0; i < tokens_of(rank, to); i++) {
            wrong += own[at++] != token(rank, to, i) + 0.5f;
        }
    }
    free(own);
    free(got);
    return wrong;
}

int main(int argc, char **argv) {
    int rank, world, wrong[2] = {0};
    int64_t forwarded[2] = {0};
    lierne_report report = {.size = sizeof report};
    lierne_context *context;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    must(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL));
    lierne_plan *plan = plan_tokens(context, rank, world);
    wrong[0] = move(plan, rank, world);
    must(lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_FORWARD));
    forwarded[0] = report.forwarded_bytes;
    MPI_Reduce(&wrong[0], &wrong[1], 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&forwarded[0], &forwarded[1], 1, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%d ranks, at most %d peers each, %d stages\n", world, (int)report.most_peers,
               (int)report.stages);
        printf("%d tokens took two steps, %d are wrong\n", (int)(forwarded[1] / 4), wrong[1]);
    }
    must(lierne_plan_destroy(plan));
    must(lierne_context_destroy(context));
    MPI_Finalize();
    return 0;
}
