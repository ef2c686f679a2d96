/* 18_diffusion: heat that spreads on a periodic field, which is cut over a 2-D grid of ranks.
 *
 * Introduces dense halos: a layout whose parts overlap by one element, a plan that fills the
 * margins in place, and computing between begin and end: lierne_halo_get_split says which values of
 * a part read no margin that other ranks fill.
 * Every value has the bits that one rank alone gives it, because each is the same sum of the same
 * numbers. Run with any number of ranks: mpirun -n 4 build/examples/18_diffusion */
#include <lierne.h>
#include <lierne/mpi.h>
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 46, COLUMNS = 35, STEPS = 100 };

/* A rank's part, with one element of margin around it. */
typedef struct part {
    int64_t rows, columns; /* without margins */
    int64_t row, column;   /* where it begins in the field */
    double *now, *next;
    lierne_split_box boxes[5]; /* the interior, and up to four boxes around it */
    size_t nboxes;
} part;

static void must(lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "%s: %s\n", lierne_status_name(status), lierne_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static double *take(int64_t count) {
    double *memory = calloc((size_t)count, sizeof *memory);
    if (!memory) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

static double initial(int64_t i, int64_t j) {
    return (double)((7 * i + 11 * j + i * j) % 13) / 3;
}

static double spread(double here, double up, double down, double left, double right) {
    return here + 0.2 * (up + down + left + right - 4 * here);
}

/* The field as rows x columns of ranks hold it: rank r is at row r / columns. */
static lierne_layout *cut_field(const int *ranks) {
    const lierne_grid_spec grid_spec = {.size = sizeof grid_spec,
                                        .ndims = 2,
                                        .names = (const char *[]){"sx", "sy"},
                                        .sizes = (int64_t[]){ranks[1], ranks[0]},
                                        .world_size = ranks[0] * ranks[1]};
    const lierne_placement placements[] = {{.kind = LIERNE_PLACEMENT_SHARD, .axis = 1},
                                           {.kind = LIERNE_PLACEMENT_SHARD, .axis = 0}};
    const lierne_dense_halo halos[] = {
        {.axis = 0, .boundary = LIERNE_BOUNDARY_PERIODIC, .lo = 1, .hi = 1},
        {.axis = 1, .boundary = LIERNE_BOUNDARY_PERIODIC, .lo = 1, .hi = 1}};
    lierne_grid *grid;
    lierne_layout *layout;
    must(lierne_grid_create(&grid, &grid_spec));
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = 2,
                                     .shape = (int64_t[]){ROWS, COLUMNS},
                                     .dtype = LIERNE_DTYPE_F64,
                                     .placements = placements,
                                     .nhalos = 2,
                                     .halos = halos,
                                     .stencil = LIERNE_STENCIL_STAR};
    must(lierne_layout_create(&layout, &spec));
    lierne_grid_destroy(grid);
    return layout;
}

/* Source and destination are the same layout, so the margins are filled in place. */
static lierne_plan *plan_margins(lierne_context *context, const lierne_layout *layout) {
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = layout, .dst = layout};
    lierne_plan *plan;
    must(lierne_plan_create_redistribute(&plan, context, &spec));
    return plan;
}

static part open_part(const lierne_layout *layout, int rank) {
    lierne_box core = {{0}, {0}, {0}};
    size_t count;
    must(lierne_layout_get_boxes(&core, 1, &count, layout, rank));
    part p = {core.size[0], core.size[1], core.start[0], core.start[1], .nboxes = 0};
    must(lierne_halo_get_split(p.boxes, 5, &p.nboxes, layout, layout, rank));
    p.now = take((p.rows + 2) * (p.columns + 2));
    p.next = take((p.rows + 2) * (p.columns + 2));
    for (int64_t i = 0; i < p.rows; i++) {
        for (int64_t j = 0; j < p.columns; j++) {
            p.now[(i + 1) * (p.columns + 2) + j + 1] = initial(p.row + i, p.column + j);
        }
    }
    return p;
}

static void compute(const part *p, const lierne_split_box *box) {
    int64_t stride = p->columns + 2;
    for (int64_t i = box->start[0]; i < box->start[0] + box->size[0]; i++) {
        for (int64_t j = box->start[1]; j < box->start[1] + box->size[1]; j++) {
            int64_t at = (i + 1) * stride + j + 1;
            p->next[at] = spread(p->now[at], p->now[at - stride], p->now[at + stride],
                                 p->now[at - 1], p->now[at + 1]);
        }
    }
}

static void compute_all(const part *p, bool interior) {
    for (size_t b = 0; b < p->nboxes; b++) {
        if (p->boxes[b].interior == interior) {
            compute(p, &p->boxes[b]);
        }
    }
}

/* The interior while the margins travel, then the border around it. */
static void step(lierne_plan *plan, part *p) {
    lierne_request *request;
    must(lierne_plan_forward_begin(&request, plan, p->now, p->now, NULL));
    compute_all(p, true);
    must(lierne_request_end(request));
    compute_all(p, false);
    double *swap = p->now;
    p->now = p->next;
    p->next = swap;
}

/* What one rank computes alone, with neither margins nor messages. */
static double *run_alone(void) {
    double *now = take(ROWS * COLUMNS), *next = take(ROWS * COLUMNS);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        now[i] = initial(i / COLUMNS, i % COLUMNS);
    }
    for (int k = 0; k < STEPS; k++) {
        for (int i = 0; i < ROWS; i++) {
            for (int j = 0; j < COLUMNS; j++) {
                const double *row = now + i * COLUMNS;
                next[i * COLUMNS + j] =
                    spread(row[j], now[(i + ROWS - 1) % ROWS * COLUMNS + j],
                           now[(i + 1) % ROWS * COLUMNS + j], row[(j + COLUMNS - 1) % COLUMNS],
                           row[(j + 1) % COLUMNS]);
            }
        }
        double *swap = now;
        now = next;
        next = swap;
    }
    free(next);
    return now;
}

/* Values of the part whose bits are not those of the field. */
static int64_t count_different(const part *p, const double *field) {
    int64_t different = 0;
    for (int64_t i = 0; i < p->rows; i++) {
        for (int64_t j = 0; j < p->columns; j++) {
            different += memcmp(&p->now[(i + 1) * (p->columns + 2) + j + 1],
                                &field[(p->row + i) * COLUMNS + p->column + j], sizeof *field) != 0;
        }
    }
    return different;
}

int main(int argc, char **argv) {
    int rank, world, ranks[2] = {0};
    lierne_context *context;
    lierne_report report = {.size = sizeof report};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    MPI_Dims_create(world, 2, ranks);
    must(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL));
    lierne_layout *layout = cut_field(ranks);
    lierne_plan *plan = plan_margins(context, layout);
    part p = open_part(layout, rank);
    for (int k = 0; k < STEPS; k++) {
        step(plan, &p);
    }
    double *field = run_alone();
    int64_t mine[2] = {p.rows * p.columns, count_different(&p, field)}, all[2];
    must(lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_FORWARD));
    MPI_Reduce(mine, all, 2, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%d x %d ranks, %d steps: %lld of %lld values differ from one rank's\n", ranks[0],
               ranks[1], STEPS, (long long)all[1], (long long)all[0]);
        printf("rank 0 receives %lld elements in %lld messages per step\n",
               (long long)report.received_bytes / 8, (long long)report.received_messages);
    }
    free(field);
    free(p.now);
    free(p.next);
    must(lierne_plan_destroy(plan));
    lierne_layout_destroy(layout);
    must(lierne_context_destroy(context));
    MPI_Finalize();
    return 0;
}
