/* Random bridges on real ranks: the cases of tests/unit/test_bridge_general.c, each rank doing its
 * own part. Every rank makes the same case from the same seed. */
#include "lierne/mpi.h"
#include "unit/random_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASES = 150 };

static int rank, world;
static long passed, failed;

static void verdict(uint64_t seed, const char *wrong) {
    passed += wrong == NULL;
    failed += wrong != NULL;
    if (wrong) {
        printf("seed %llu, rank %d: %s\n", (unsigned long long)seed, rank, wrong);
    }
}

/* One direction: blocking, then begin and end, into poisoned outputs; the same bits. */
static const char *run(const bridge_case *c, lierne_plan *plan, lierne_direction d, double *dot) {
    int64_t n_in, n_out;
    lierne_request *request;
    double again = 0;
    lierne_plan_get_elements(&n_in, &n_out, plan, d);
    size_t size = lierne_dtype_size(c->dtype), in_bytes = (size_t)n_in * size;
    size_t out_bytes = (size_t)n_out * size;
    char *in = malloc(in_bytes + 1), *out = malloc(out_bytes + 1), *kept = malloc(in_bytes + 1);
    memset(in, 0x7b, in_bytes);
    case_fill(c, rank, d, in);
    memcpy(kept, in, in_bytes);
    memset(out, 0xa5, out_bytes);
    lierne_status status = (d ? lierne_plan_adjoint : lierne_plan_forward)(plan, out, in, NULL);
    const char *wrong = status ? lierne_last_error() : case_check(c, rank, d, out, dot);
    memset(out, 0x5a, out_bytes);
    status =
        (d ? lierne_plan_adjoint_begin : lierne_plan_forward_begin)(&request, plan, out, in, NULL);
    status = status ? status : lierne_request_end(request);
    if (!wrong) {
        wrong = status ? lierne_last_error() : case_check(c, rank, d, out, &again);
    }
    if (!wrong && memcmp(in, kept, in_bytes) != 0) {
        wrong = "the input was changed";
    }
    free(in), free(out), free(kept);
    return wrong;
}

static void run_seed(lierne_context *context, uint64_t seed) {
    static case_arrays arrays;
    bridge_case c;
    lierne_plan *plan;
    double dots[2] = {0}, sums[2];
    random_case(seed, world, &c, &arrays);
    if (case_plan(&plan, context, &c) != LIERNE_OK) {
        verdict(seed, lierne_last_error());
        return;
    }
    verdict(seed, run(&c, plan, LIERNE_DIRECTION_FORWARD, &dots[0]));
    verdict(seed, run(&c, plan, LIERNE_DIRECTION_ADJOINT, &dots[1]));
    MPI_Allreduce(dots, sums, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    verdict(seed, sums[0] == sums[1] ? NULL : "<Fx,y> differs from <x,F*y>");
    lierne_plan_destroy(plan);
}

int main(int argc, char **argv) {
    lierne_context *context;
    long counts[2], sums[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    if (lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL) != LIERNE_OK) {
        return 1;
    }
    for (uint64_t seed = 0; seed < CASES; seed++) {
        run_seed(context, 1000 * (uint64_t)world + seed);
    }
    verdict(0, lierne_context_destroy(context) == LIERNE_OK ? NULL : lierne_last_error());
    counts[0] = passed, counts[1] = failed;
    MPI_Allreduce(counts, sums, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%ld passed, %ld failed\n", sums[0], sums[1]);
    }
    MPI_Finalize();
    return sums[1] > 0;
}
