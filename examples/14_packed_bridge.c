/* 14_packed_bridge: image rows go from an encoder straight to their tokens in a packed sequence.
 *
 * Introduces lierne/packed_bridge.h. Three samples of 6, 3 and 7 tokens are one sequence, which two
 * context-parallel ranks cut in zigzag; two images of 3 and 2 rows come from an encoder with data
 * parallelism over the same ranks. The runs come from the token ids. The output is the embedding
 * buffer: text rows, which are -1 here, stay in it. Then the next microbatch: other samples, the
 * same plan, and no communication to change it.
 * Run with two ranks: mpirun -n 2 build/examples/14_packed_bridge */
#include <lierne.h>
#include <lierne/mpi.h>

#include <stdio.h>
#include <stdlib.h>

enum { IMAGE = 9, MOST_RUNS = 8, MOST_ROWS = 64 };

static void must(lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "%s: %s\n", lierne_status_name(status), lierne_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* What all ranks know of a microbatch. */
typedef struct microbatch {
    lierne_segments images, segments;
    lierne_packing encoder, llm;
    lierne_image_run runs[MOST_RUNS];
    size_t nruns;
} microbatch;

static microbatch describe(const int64_t *rows, int images, const int32_t *owner, const int64_t *cu,
                           int segments, const int64_t *ids) {
    microbatch m = {.images = {sizeof m.images, images, rows},
                    .segments = {sizeof m.segments, segments, cu},
                    .encoder = {.size = sizeof m.encoder, .owner = owner},
                    .llm = {.size = sizeof m.llm, .align = 4}}; /* 2 cp */
    must(lierne_image_runs_find(m.runs, MOST_RUNS, &m.nruns, &m.segments, &m.images, ids, IMAGE));
    return m;
}

static lierne_layout *layout_of(const lierne_grid *grid, const lierne_segments *segments,
                                const lierne_packing *packing, lierne_placement_kind kind) {
    const lierne_placement cut = {.kind = kind};
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = 1, /* rows of one number, to print them */
                                     .shape = &segments->cu_seqlens[segments->nsegments],
                                     .dtype = LIERNE_DTYPE_F32,
                                     .placements = &cut,
                                     .segments = segments,
                                     .packing = packing};
    lierne_layout *layout;
    must(lierne_layout_create(&layout, &spec));
    return layout;
}

static lierne_plan *create_plan(lierne_context *context, const lierne_grid *grid,
                                const microbatch *m) {
    lierne_layout *src = layout_of(grid, &m->images, &m->encoder, LIERNE_PLACEMENT_SHARD_SEGMENTS),
                  *dst = layout_of(grid, &m->segments, &m->llm, LIERNE_PLACEMENT_SEGMENT_ZIGZAG);
    const lierne_packed_bridge_spec spec = {.size = sizeof spec,
                                            .src = src,
                                            .dst = dst,
                                            .runs = m->runs,
                                            .nruns = (int64_t)m->nruns,
                                            .max_segments = 8,
                                            .max_rows = MOST_ROWS,
                                            .max_runs = MOST_RUNS};
    lierne_plan *plan;
    must(lierne_plan_create_packed_bridge(&plan, context, &spec));
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    return plan;
}

/* Forward, and a gradient back: that of each token is the token's row. */
static void step(lierne_plan *plan, const char *name) {
    float rows[MOST_ROWS], embeddings[MOST_ROWS], gradient[MOST_ROWS];
    int64_t in[LIERNE_MAX_AXES], out[LIERNE_MAX_AXES];
    int naxes, rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    must(lierne_plan_get_shape(&naxes, in, out, plan, LIERNE_DIRECTION_FORWARD));
    for (int64_t i = 0; i < in[0]; i++) {
        rows[i] = (float)(10 * (rank + 1) + i);
    }
    for (int64_t i = 0; i < out[0]; i++) {
        embeddings[i] = -1;
    }
    must(lierne_plan_forward(plan, embeddings, rows, NULL));
    must(lierne_plan_adjoint(plan, gradient, embeddings, NULL));
    char line[256], all[2][256];
    int used = snprintf(line, sizeof line, "%s: rank %d:", name, rank);
    for (int64_t i = 0; i < out[0]; i++) {
        used += snprintf(line + used, sizeof line - (size_t)used, embeddings[i] < 0 ? " ." : " %g",
                         (double)embeddings[i]);
    }
    int same = 0;
    for (int64_t i = 0; i < in[0]; i++) {
        same += gradient[i] >= rows[i] && gradient[i] <= rows[i];
    }
    snprintf(line + used, sizeof line - (size_t)used, "; %d of %d gradients back", same,
             (int)in[0]);
    MPI_Gather(line, 256, MPI_CHAR, all, 256, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%s\n%s\n", all[0], all[1]);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    static const char *const names[] = {"ranks"};
    const int64_t sizes[] = {2};
    const lierne_grid_spec spec = {
        .size = sizeof spec, .ndims = 1, .names = names, .sizes = sizes, .world_size = 2};
    const int64_t rows[] = {0, 3, 5}, cu[] = {0, 6, 9, 16};
    const int64_t ids[] = {1, 9, 9, 9, 2, 3, 4, 5, 6, 7, 8, 1, 9, 9, 2, 3};
    const int64_t next_rows[] = {0, 4}, next_cu[] = {0, 2, 10};
    const int64_t next_ids[] = {1, 2, 3, 9, 9, 4, 9, 9, 5, 6};
    const int32_t owner[] = {0, 1}, next_owner[] = {1};
    lierne_context *context;
    lierne_grid *grid;
    must(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL));
    must(lierne_grid_create(&grid, &spec));
    const microbatch first = describe(rows, 2, owner, cu, 3, ids),
                     next = describe(next_rows, 1, next_owner, next_cu, 2, next_ids);
    lierne_plan *plan = create_plan(context, grid, &first);
    step(plan, "first");
    const lierne_segments_update update = {.size = sizeof update,
                                           .segments = &next.segments,
                                           .src = &next.encoder,
                                           .dst = &next.llm,
                                           .images = &next.images,
                                           .runs = next.runs,
                                           .nruns = (int64_t)next.nruns};
    must(lierne_plan_update_segments(plan, &update));
    step(plan, "next");
    must(lierne_plan_destroy(plan));
    lierne_grid_destroy(grid);
    must(lierne_context_destroy(context));
    MPI_Finalize();
    return 0;
}
