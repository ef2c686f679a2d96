/* 13_unequal_samples: samples differ in size, and no rank waits for another one.
 *
 * Introduces lierne/samples.h. Every rank has samples of its own, whose rows cost as much as they
 * are. All ranks learn all lengths, and each computes the same assignment for itself. A sample is a
 * segment of a packed axis (lierne/packing.h) and an assignment says who owns it, so one plan takes
 * the rows to where they are computed, another one takes results home, and their adjoints take
 * gradients the same ways back.
 * Run with any number of ranks: mpirun -n 4 build/examples/13_unequal_samples */
#include <lierne.h>
#include <lierne/mpi.h>

#include <stdio.h>
#include <stdlib.h>

enum { MINE = 8, WIDTH = 16 };

static void must(lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "%s: %s\n", lierne_status_name(status), lierne_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Rows [rows, WIDTH] of all samples, each on the rank that owns it. Segments follow one another in
 * ascending order in a buffer. */
static lierne_layout *layout_of(const lierne_grid *grid, const int64_t *boundaries, int n,
                                const int32_t *owner) {
    const lierne_segments segments = {sizeof segments, n, boundaries};
    const lierne_packing packing = {.size = sizeof packing, .owner = owner};
    const lierne_placement whole = {.kind = LIERNE_PLACEMENT_SHARD_SEGMENTS, .axis = 0};
    const int64_t shape[] = {boundaries[n], WIDTH};
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = 2,
                                     .shape = shape,
                                     .dtype = LIERNE_DTYPE_F32,
                                     .placements = &whole,
                                     .segments = &segments,
                                     .packing = &packing};
    lierne_layout *layout;
    must(lierne_layout_create(&layout, &spec));
    return layout;
}

/* The plan that takes the rows of all samples from one layout to another. */
static lierne_plan *plan_of(lierne_context *context, const lierne_layout *src,
                            const lierne_layout *dst) {
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    lierne_plan *plan;
    must(lierne_plan_create_redistribute(&plan, context, &spec));
    return plan;
}

int main(int argc, char **argv) {
    int rank, world;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    lierne_context *context;
    must(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL));

    /* The lengths of all samples: those of rank 0 are four times as long. */
    int n = MINE * world;
    int64_t mine[MINE], *rows = malloc((size_t)n * sizeof *rows);
    int64_t *counts = malloc((size_t)world * sizeof *counts), most = 0;
    int64_t *boundaries = calloc((size_t)n + 1, sizeof *boundaries);
    int32_t *home = malloc((size_t)n * sizeof *home);
    for (int i = 0; i < MINE; i++) {
        mine[i] = (64 + 37 * i + 11 * rank) * (rank == 0 ? 4 : 1);
    }
    MPI_Allgather(mine, MINE, MPI_INT64_T, rows, MINE, MPI_INT64_T, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) {
        home[i] = i / MINE;
        counts[i / MINE] = MINE;
        boundaries[i + 1] = boundaries[i] + rows[i];
    }
    for (int r = 0; r < world; r++) {
        int64_t load = boundaries[(r + 1) * MINE] - boundaries[r * MINE];
        most = load > most ? load : most;
    }

    /* The same assignment on every rank, without a message. */
    const lierne_items items = {sizeof items, n, 1, rows, NULL, NULL, NULL};
    const lierne_balance_spec balance = LIERNE_BALANCE_SPEC_INIT;
    lierne_assignment_report report = {.size = sizeof report};
    lierne_assignment *assignment;
    must(lierne_assignment_create(&assignment, &items, counts, world, &balance));
    must(lierne_assignment_get_report(&report, assignment));

    const char *const names[] = {"dp"};
    const int64_t sizes[] = {world};
    const lierne_grid_spec flat = {
        .size = sizeof flat, .ndims = 1, .names = names, .sizes = sizes, .world_size = world};
    lierne_grid *grid;
    must(lierne_grid_create(&grid, &flat));
    lierne_layout *at_home = layout_of(grid, boundaries, n, home);
    lierne_layout *assigned =
        layout_of(grid, boundaries, n, lierne_assignment_get_ranks(assignment));
    lierne_plan *dispatch = plan_of(context, at_home, assigned);
    lierne_plan *back = plan_of(context, assigned, at_home);

    /* A step: rows go where they are computed, and results come home in their order. */
    int64_t own = (boundaries[(rank + 1) * MINE] - boundaries[rank * MINE]) * WIDTH;
    int64_t given = lierne_assignment_get_loads(assignment)[rank] * WIDTH, wrong = 0;
    float *in = malloc((size_t)own * sizeof *in), *out = malloc((size_t)own * sizeof *out);
    float *work = malloc((size_t)(given + 1) * sizeof *work);
    for (int64_t i = 0; i < own; i++) {
        in[i] = (float)((boundaries[rank * MINE] * WIDTH + i) % 8191);
    }
    must(lierne_plan_forward(dispatch, work, in, NULL));
    for (int64_t i = 0; i < given; i++) {
        work[i] = 2 * work[i] + 1;
    }
    must(lierne_plan_forward(back, out, work, NULL));
    for (int64_t i = 0; i < own; i++) {
        wrong += out[i] != 2 * in[i] + 1;
    }
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%d samples: the busiest rank computes %lld rows, not %lld; at least %lld must\n", n,
               (long long)report.max_load, (long long)most, (long long)report.lower_bound);
        printf("%lld of %lld rows moved, %lld elements wrong\n", (long long)report.moved_rows,
               (long long)boundaries[n], (long long)wrong);
    }
    free(in), free(out), free(work), free(rows), free(counts), free(boundaries), free(home);
    lierne_plan_destroy(dispatch), lierne_plan_destroy(back);
    lierne_layout_destroy(at_home), lierne_layout_destroy(assigned);
    lierne_grid_destroy(grid);
    lierne_assignment_destroy(assignment);
    must(lierne_context_destroy(context));
    MPI_Finalize();
    return wrong > 0;
}
