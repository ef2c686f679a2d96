/* Weights to an engine: all of them, and only what changed (lierne/delta.h), taking turns in one
 * run.
 *
 *   mpirun -n 2 weights [MIB [ROUNDS]]
 *
 * Rank 0 has MIB of bf16 weights, 64 unless given, and rank 1 gets them. CSV: for each share of
 * changed weights the medians of both ways, the slower rank's time, and the bytes of a call. Over a
 * link of 1 Gbit/s, where the machine allows namespaces (as root):
 *
 *   unshare -n sh -c 'ip link set lo up && tc qdisc add dev lo root tbf rate 1gbit burst 256kb \
 *       latency 100ms && LIERNE_TRANSPORTS=mpi mpirun --mca btl tcp,self \
 *       --mca btl_tcp_if_include lo -n 2 weights' */
#include <lierne.h>
#include <lierne/mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROUNDS = 100 };

static int rank;

static void must(lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "%s: %s\n", lierne_status_name(status), lierne_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static uint64_t draw(uint64_t *state) { /* splitmix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static lierne_plan *create_plan(lierne_context *context, int64_t n) {
    static const char *const name = "tp";
    static const int64_t one = 1;
    lierne_layout *layouts[2];
    lierne_plan *plan;
    for (int side = 0; side < 2; side++) {
        const lierne_placement none = {.kind = LIERNE_PLACEMENT_REPLICATE};
        const lierne_grid_spec grid_spec = {.size = sizeof grid_spec,
                                            .ndims = 1,
                                            .names = &name,
                                            .sizes = &one,
                                            .rank_offset = side,
                                            .world_size = 2};
        lierne_grid *grid;
        must(lierne_grid_create(&grid, &grid_spec));
        const lierne_layout_spec spec = {.size = sizeof spec,
                                         .grid = grid,
                                         .naxes = 1,
                                         .shape = &n,
                                         .dtype = LIERNE_DTYPE_BF16,
                                         .placements = &none};
        must(lierne_layout_create(&layouts[side], &spec));
        lierne_grid_destroy(grid);
    }
    const lierne_set_spec spec = {.size = sizeof spec,
                                  .ntensors = 1,
                                  .src = (const lierne_layout *const *)&layouts[0],
                                  .dst = (const lierne_layout *const *)&layouts[1]};
    must(lierne_plan_create_set(&plan, context, &spec));
    lierne_layout_destroy(layouts[0]);
    lierne_layout_destroy(layouts[1]);
    return plan;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct ways {
    lierne_plan *plan;
    lierne_delta *delta;
    int64_t n;
    uint16_t *in, *out[2];
} ways;

/* Milliseconds of the slower rank. */
static double run(const ways *w, int which) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime(), own, most;
    must(which ? lierne_delta_forward(w->delta, w->out[1], w->in)
               : lierne_plan_forward(w->plan, w->out[0], w->in, NULL));
    own = 1e3 * (MPI_Wtime() - start);
    MPI_Allreduce(&own, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

static void print_share(const ways *w, double percent, int rounds, uint64_t *random) {
    double times[2][MOST_ROUNDS];
    lierne_delta_report report = {.size = sizeof report};
    for (int round = 0; round < rounds; round++) {
        for (int64_t i = 0; rank == 0 && i < w->n; i++) {
            bool changes = (double)(draw(random) % 1000000) < percent * 1e4;
            w->in[i] = (uint16_t)(w->in[i] + changes);
        }
        for (int which = 0; which < 2; which++) {
            times[which][round] = run(w, which);
        }
        if (rank == 1 && memcmp(w->out[0], w->out[1], (size_t)w->n * 2) != 0) {
            fprintf(stderr, "FAIL weights: a delta has other bits\n");
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    must(lierne_delta_get_report(&report, w->delta));
    for (int which = 0; which < 2; which++) {
        qsort(times[which], (size_t)rounds, sizeof times[which][0], ascending);
    }
    if (rank == 0) {
        double dense = times[0][rounds / 2], changed = times[1][rounds / 2];
        printf("%g,%.1f,%.1f,%.2f,%.2f,%.3f\n", percent, dense, changed, dense / changed,
               (double)report.dense_bytes / 1048576, (double)report.sent_bytes / 1048576);
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    static const double shares[] = {0, 0.05, 0.5, 2, 10, 30};
    MPI_Init(&argc, &argv);
    int ranks, rounds = argc > 2 ? atoi(argv[2]) : 5;
    uint64_t random = 1;
    lierne_context *context;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2 || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "weights needs 2 ranks and 1 to %d rounds\n", MOST_ROUNDS);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    ways w = {.n = (int64_t)(argc > 1 ? atoi(argv[1]) : 64) << 19};
    must(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL));
    w.plan = create_plan(context, w.n);
    must(lierne_delta_create(&w.delta, w.plan));
    w.in = malloc((size_t)w.n * 2);
    w.out[0] = calloc((size_t)w.n, 2);
    w.out[1] = calloc((size_t)w.n, 2);
    for (int64_t i = 0; i < w.n; i++) {
        w.in[i] = (uint16_t)draw(&random);
    }
    (void)run(&w, 0);
    (void)run(&w, 1);
    if (rank == 0) {
        printf("percent,all_ms,changed_ms,times_as_fast,all_mib,changed_mib\n");
    }
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        print_share(&w, shares[i], rounds, &random);
    }
    if (rank == 0) {
        printf("%d passed, 0 failed\n", (int)(sizeof shares / sizeof *shares));
    }
    must(lierne_delta_destroy(w.delta));
    must(lierne_plan_destroy(w.plan));
    free(w.in);
    free(w.out[0]);
    free(w.out[1]);
    must(lierne_context_destroy(context));
    MPI_Finalize();
    return 0;
}
