/* 04_halo: points in a periodic box that is divided into bricks; each brick gets the points of its
 * neighbours within a cutoff.
 *
 * Introduces lierne_brick_create, lierne_plan_create_halo, working in place,
 * lierne_plan_create_flattened and lierne_plan_get_report. Run with 1 to 8 ranks: mpirun -n 8
 * build/examples/04_halo */
#include <lierne.h>
#include <lierne/mpi.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 8, POINTS = SIDE * SIDE * SIDE }; /* a point in the middle of every unit cube */
#define CUTOFF 2.6

static void must(lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "%s: %s\n", lierne_status_name(status), lierne_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* The points in this rank's brick. */
static int64_t own_points(double *positions, const int *grid, int rank) {
    const int brick[3] = {rank / grid[2] / grid[1], rank / grid[2] % grid[1], rank % grid[2]};
    int64_t n = 0;
    for (int i = 0; i < POINTS; i++) {
        const double p[3] = {i / SIDE / SIDE + 0.5, i / SIDE % SIDE + 0.5, i % SIDE + 0.5};
        int inside = 1;
        for (int d = 0; d < 3; d++) {
            inside &= (int)(p[d] * grid[d] / SIDE) == brick[d];
            positions[3 * n + d] = p[d];
        }
        n += inside;
    }
    return n;
}

/* The number of a point, the same for all of its images. */
static double number_of(const double *p) {
    double number = 0;
    for (int d = 0; d < 3; d++) {
        number = SIDE * number + fmod(floor(p[d]) + SIDE, SIDE);
    }
    return number;
}

/* How many bricks have the point or an image of it along each axis: those within the cutoff. */
static double copies_of(const double *p, const int *grid) {
    double copies = 1;
    for (int d = 0; d < 3; d++) {
        int near = 0;
        for (int k = 0; k < 3 * grid[d]; k++) {
            double low = (double)SIDE * (k - grid[d]) / grid[d];
            near += p[d] >= low - CUTOFF && p[d] <= low + (double)SIDE / grid[d] + CUTOFF;
        }
        copies *= near;
    }
    return copies;
}

/* Fills ghosts, then gives every copy of a point the gradient 1: its owner gets their number. Both
 * directions work on one array. Returns how many values are wrong. */
static int64_t exchange(lierne_plan *plan, const lierne_brick_spec *space, const double *ghosts,
                        int64_t nghost) {
    int64_t n = space->nlocal, wrong = 0;
    double *rows = calloc((size_t)(n + nghost) + 1, sizeof *rows);
    if (!rows) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int64_t i = 0; i < n; i++) {
        rows[i] = number_of(space->positions + 3 * i);
    }
    must(lierne_plan_forward(plan, rows, rows, NULL));
    for (int64_t k = 0; k < nghost; k++) {
        wrong += rows[n + k] != number_of(ghosts + 3 * k);
    }
    for (int64_t i = 0; i < n + nghost; i++) {
        rows[i] = 1;
    }
    must(lierne_plan_adjoint(plan, rows, rows, NULL));
    for (int64_t i = 0; i < n + nghost; i++) {
        wrong += rows[i] != (i < n ? copies_of(space->positions + 3 * i, space->grid) : 0);
    }
    free(rows);
    return wrong;
}

/* Prints the cost of the forward, summed over all ranks. */
static void print_cost(const char *name, const lierne_plan *plan) {
    lierne_report report = {.size = sizeof report};
    must(lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_FORWARD));
    int64_t mine[2] = {report.sent_bytes, report.sent_messages}, all[2];
    MPI_Reduce(mine, all, 2, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (lierne_context_get_rank(lierne_plan_get_context(plan)) == 0) {
        printf("%s: %lld bytes in %lld messages, stages: %lld\n", name, (long long)all[0],
               (long long)all[1], (long long)report.stages);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    lierne_context *context;
    must(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL));
    int rank = lierne_context_get_rank(context);

    lierne_brick_spec space = {.size = sizeof space,
                               .box = {SIDE, SIDE, SIDE},
                               .periodic = {1, 1, 1},
                               .cutoff = CUTOFF};
    double positions[3 * (POINTS + 1)];
    MPI_Dims_create(lierne_context_get_world_size(context), 3, space.grid);
    space.nlocal = own_points(positions, space.grid, rank);
    space.positions = positions;
    lierne_brick *brick;
    must(lierne_brick_create(&brick, context, &space));

    /* A row per point: here one number, in a force field a row of features. */
    lierne_halo_spec spec = LIERNE_HALO_SPEC_INIT;
    spec.dtype = LIERNE_DTYPE_F64;
    must(lierne_brick_get_swaps(&spec, brick));
    lierne_plan *swaps, *flat;
    must(lierne_plan_create_halo(&swaps, context, &spec));
    must(lierne_plan_create_flattened(&flat, swaps, 0));

    int64_t sums[2] = {spec.nghost, 0}, all[2];
    sums[1] += exchange(swaps, &space, lierne_brick_get_ghosts(brick), spec.nghost);
    sums[1] += exchange(flat, &space, lierne_brick_get_ghosts(brick), spec.nghost);
    MPI_Allreduce(sums, all, 2, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%d points in %d x %d x %d bricks, %lld ghosts: %lld wrong values\n", POINTS,
               space.grid[0], space.grid[1], space.grid[2], (long long)all[0], (long long)all[1]);
    }
    print_cost("swaps", swaps);
    print_cost("flattened", flat);

    must(lierne_plan_destroy(flat));
    must(lierne_plan_destroy(swaps));
    lierne_brick_destroy(brick);
    must(lierne_context_destroy(context));
    MPI_Finalize();
    return all[1] != 0;
}
