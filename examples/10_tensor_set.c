/* 10_tensor_set: a trainer's weights to an inference engine.
 *
 * Introduces lierne_plan_create_set: one plan for many tensors, each with two layouts of its own.
 * Two ranks train with tensor parallelism, two ranks serve the whole model each, so every weight
 * has different layouts on the two sides. Each side has one buffer with all its weights. Digests
 * check that all weights arrived. Run it with 4 ranks: mpirun -n 4 build/examples/10_tensor_set */
#include <lierne.h>
#include <lierne/mpi.h>

#include <stdio.h>
#include <stdlib.h>

enum { WEIGHTS = 3, TRAINERS = 2, SERVERS = 2 };
static const char *const names[WEIGHTS] = {"wq", "wo", "norm"};
static const int64_t shapes[WEIGHTS][2] = {{8, 6}, {6, 8}, {1, 6}};

static void must(lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "%s: %s\n", lierne_status_name(status), lierne_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static lierne_grid *grid(int first, int ranks) {
    const char *dims[] = {"tp"};
    const int64_t sizes[] = {ranks};
    const lierne_grid_spec spec = {.size = sizeof spec,
                                   .ndims = 1,
                                   .names = dims,
                                   .sizes = sizes,
                                   .rank_offset = first,
                                   .world_size = TRAINERS + SERVERS};
    lierne_grid *g;
    must(lierne_grid_create(&g, &spec));
    return g;
}

/* Weight i: cut along its rows or columns, or whole on every rank. */
static lierne_layout *layout(const lierne_grid *g, int i, lierne_placement_kind kind) {
    const lierne_placement placement = {.kind = kind, .axis = i};
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = g,
                                     .naxes = 2,
                                     .shape = shapes[i],
                                     .dtype = LIERNE_DTYPE_F32,
                                     .placements = &placement};
    lierne_layout *l;
    must(lierne_layout_create(&l, &spec));
    return l;
}

/* Where each weight begins in this rank's buffer. */
static void place(const void **at, float *buffer, lierne_layout *const *layouts, int rank) {
    for (int i = 0; i < WEIGHTS; i++) {
        int64_t shape[LIERNE_MAX_AXES];
        must(lierne_layout_get_shape(shape, layouts[i], rank));
        at[i] = buffer;
        buffer += shape[0] * shape[1];
    }
}

/* Moves the weights once, as at every update of the engine, and compares digests of both sides. */
static void update(lierne_context *context, lierne_plan *plan, lierne_layout *const *src,
                   lierne_layout *const *dst, int64_t *sizes) {
    const void *sent[WEIGHTS], *served[WEIGHTS];
    int rank = lierne_context_get_rank(context);
    must(lierne_plan_get_elements(&sizes[0], &sizes[1], plan, LIERNE_DIRECTION_FORWARD));
    float *in = calloc((size_t)sizes[0] + 1, sizeof *in);
    float *out = calloc((size_t)sizes[1] + 1, sizeof *out);
    place(sent, in, src, rank);
    place(served, out, dst, rank);
    for (int64_t i = 0; i < sizes[0]; i++) { /* norm, at the end, is the same on every trainer */
        in[i] = (float)(i + (&in[i] < (const float *)sent[2] ? 100 * (rank + 1) : 0));
    }
    must(lierne_plan_forward(plan, out, in, NULL));
    const lierne_digest_check_spec check = {.size = sizeof check,
                                            .ntensors = WEIGHTS,
                                            .src = (const lierne_layout *const *)src,
                                            .dst = (const lierne_layout *const *)dst,
                                            .key = 1}; /* at best the number of the update */
    must(lierne_digest_check(context, &check, served, sent));
    free(in);
    free(out);
}

int main(int argc, char **argv) {
    lierne_context *context;
    lierne_layout *src[WEIGHTS], *dst[WEIGHTS];
    lierne_plan *plan;
    int64_t sizes[2], all[2];
    MPI_Init(&argc, &argv);
    must(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL));
    lierne_grid *trainer = grid(0, TRAINERS), *engine = grid(TRAINERS, SERVERS);
    for (int i = 0; i < WEIGHTS; i++) {
        src[i] = layout(trainer, i, i < 2 ? LIERNE_PLACEMENT_SHARD : LIERNE_PLACEMENT_REPLICATE);
        dst[i] = layout(engine, i, LIERNE_PLACEMENT_REPLICATE);
    }
    const lierne_set_spec spec = {.size = sizeof spec,
                                  .ntensors = WEIGHTS,
                                  .src = (const lierne_layout *const *)src,
                                  .dst = (const lierne_layout *const *)dst};
    must(lierne_plan_create_set(&plan, context, &spec));
    update(context, plan, src, dst, sizes);
    MPI_Reduce(sizes, all, 2, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (lierne_context_get_rank(context) == 0) {
        printf("%s, %s and %s: %lld elements trained, %lld served, all digests equal\n", names[0],
               names[1], names[2], (long long)all[0], (long long)all[1]);
    }
    for (int i = 0; i < WEIGHTS; i++) {
        lierne_layout_destroy(src[i]);
        lierne_layout_destroy(dst[i]);
    }
    lierne_grid_destroy(trainer);
    lierne_grid_destroy(engine);
    must(lierne_plan_destroy(plan));
    must(lierne_context_destroy(context));
    MPI_Finalize();
    return 0;
}
