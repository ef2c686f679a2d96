/* Virtual ranks: the ranks of a simulated world are threads, each with a stream on one device.
 * Their messages go through pinned host memory, which the lines say; times are the host's, from the
 * first begin to the last stream. */
#include "gpu.h"

#include "lierne.h"
#include "lierne/cuda.h"
#include "lierne/sim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 8, ROUNDS = 7 };

typedef lierne_plan *gpu_make_plan(lierne_context *context);

typedef struct world {
    lierne_sim *sim;
    gpu_make_plan *make;
    const char *title; /* NULL: nothing is printed */
    const volatile bool *stop;
    void (*started)(void);
    pthread_barrier_t barrier;
    int64_t bytes[RANKS], host_bytes[RANKS];
    double best;
} world;

typedef struct virtual_rank {
    world *world;
    int rank;
} virtual_rank;

static lierne_plan *make_bridge(lierne_context *context) {
    static const char *const names[] = {"tp", "cp", "dp"};
    static const int64_t encoder_sizes[] = {2, 1, 4}, llm_sizes[] = {2, 2, 2};
    static const int64_t shape[] = {8, 4096, 4096};
    lierne_grid_spec encoder = {.size = sizeof encoder,
                                .ndims = 3,
                                .names = names,
                                .sizes = encoder_sizes,
                                .world_size = RANKS};
    lierne_grid_spec llm = encoder;
    lierne_grid *grids[2] = {NULL, NULL};
    lierne_bridge_spec spec = LIERNE_BRIDGE_SPEC_INIT;
    lierne_plan *plan = NULL;
    llm.sizes = llm_sizes;
    gpu_must(lierne_grid_create(&grids[0], &encoder) == LIERNE_OK, "a grid");
    gpu_must(lierne_grid_create(&grids[1], &llm) == LIERNE_OK, "a grid");
    spec.src = grids[0];
    spec.dst = grids[1];
    spec.naxes = 3;
    spec.shape = shape;
    spec.dtype = LIERNE_BF16;
    spec.sequence_axis = 1;
    gpu_must(lierne_plan_create_bridge(&plan, context, &spec) == LIERNE_OK, "planning a bridge");
    lierne_grid_destroy(grids[0]);
    lierne_grid_destroy(grids[1]);
    return plan;
}

/* 20,000 ghosts of 256 bytes per rank, from all others. */
static lierne_plan *make_rows(lierne_context *context) {
    enum { OWNED = 50000, GHOSTS = 20000 };
    lierne_references_spec spec = LIERNE_REFERENCES_SPEC_INIT;
    lierne_plan *plan = NULL;
    int32_t *rank = malloc(GHOSTS * sizeof *rank);
    int64_t *row = malloc(GHOSTS * sizeof *row);
    int me = lierne_context_get_rank(context);
    for (int i = 0; i < GHOSTS; i++) {
        rank[i] = (me + 1 + i % (RANKS - 1)) % RANKS;
        row[i] = (int64_t)i * 7919 % OWNED;
    }
    spec.nowned = OWNED;
    spec.nghosts = GHOSTS;
    spec.rank = rank;
    spec.row = row;
    spec.width = 64;
    spec.dtype = LIERNE_F32;
    gpu_must(lierne_plan_create_references(&plan, context, &spec) == LIERNE_OK, "planning rows");
    free(rank);
    free(row);
    return plan;
}

/* Forward and adjoint. */
static void call_both(lierne_plan *plan, void *const *buffers, cudaStream_t stream) {
    gpu_must(lierne_forward(plan, buffers[1], buffers[0], stream) == LIERNE_OK, "a forward");
    gpu_must(lierne_adjoint(plan, buffers[3], buffers[2], stream) == LIERNE_OK, "an adjoint");
}

static void measure(world *w, int rank, lierne_plan *plan, void *const *buffers,
                    cudaStream_t stream) {
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&w->barrier);
        double start = gpu_now();
        call_both(plan, buffers, stream);
        gpu_must(cudaStreamSynchronize(stream) == cudaSuccess, "cudaStreamSynchronize");
        pthread_barrier_wait(&w->barrier);
        double seconds = gpu_now() - start;
        if (rank == 0) {
            w->best = round == 0 || seconds < w->best ? seconds : w->best;
        }
    }
}

/* All ranks make as many rounds: after each one, rank 0 looks at *stop for all. */
static void repeat(world *w, int rank, lierne_plan *plan, void *const *buffers,
                   cudaStream_t stream) {
    static bool ends;
    for (bool first = true, done = false; !done; first = false) {
        call_both(plan, buffers, stream);
        gpu_must(cudaStreamSynchronize(stream) == cudaSuccess, "cudaStreamSynchronize");
        if (rank == 0 && first) {
            w->started();
        }
        if (rank == 0) {
            ends = *w->stop;
        }
        pthread_barrier_wait(&w->barrier);
        done = ends;
        pthread_barrier_wait(&w->barrier);
    }
}

static void count_bytes(world *w, int rank, const lierne_plan *plan) {
    for (int d = 0; d < 2; d++) {
        lierne_report report = {.size = sizeof report};
        gpu_must(lierne_plan_get_report(&report, plan, (lierne_direction)d) == LIERNE_OK,
                 "a report");
        w->bytes[rank] += report.sent_bytes;
        w->host_bytes[rank] += report.host_bytes;
    }
}

static void *run_rank(void *argument) {
    const virtual_rank *r = argument;
    world *w = r->world;
    lierne_context *context = lierne_sim_get_context(w->sim, r->rank);
    void *buffers[4];
    gpu_must(lierne_context_use_cuda(context) == LIERNE_OK, "lierne_context_use_cuda");
    lierne_plan *plan = w->make(context);
    cudaStream_t stream = gpu_stream();
    lierne_dtype dtype;
    gpu_must(lierne_plan_get_dtype(&dtype, plan) == LIERNE_OK, "a dtype");
    for (int d = 0; d < 2; d++) {
        int64_t in, out;
        gpu_must(lierne_plan_get_elements(&in, &out, plan, (lierne_direction)d) == LIERNE_OK,
                 "sizes");
        buffers[2 * d] = gpu_memory((size_t)in * lierne_dtype_size(dtype) + 1);
        buffers[2 * d + 1] = gpu_memory((size_t)out * lierne_dtype_size(dtype) + 1);
    }
    count_bytes(w, r->rank, plan);
    (w->stop ? repeat : measure)(w, r->rank, plan, buffers, stream);
    gpu_must(lierne_plan_destroy(plan) == LIERNE_OK, "destroying a plan");
    for (int i = 0; i < 4; i++) {
        cudaFree(buffers[i]);
    }
    cudaStreamDestroy(stream);
    return NULL;
}

static void print(const world *w) {
    int64_t bytes = 0, host = 0;
    for (int r = 0; r < RANKS; r++) {
        bytes += w->bytes[r];
        host += w->host_bytes[r];
    }
    double bound = 2 * (double)bytes / gpu_copy_rate((size_t)256 << 20);
    printf("  %s, forward and adjoint: %.3f ms; %.1f MB between ranks, %.2f times the copy bound; "
           "%.1f MB to and from host memory\n",
           w->title, w->best * 1e3, (double)bytes / 1e6, w->best / bound, (double)host / 1e6);
}

static void run_world(world *w) {
    pthread_t threads[RANKS];
    virtual_rank ranks[RANKS];
    gpu_must(lierne_sim_create(&w->sim, RANKS, NULL) == LIERNE_OK, "a simulated world");
    pthread_barrier_init(&w->barrier, NULL, RANKS);
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (virtual_rank){w, r};
        pthread_create(&threads[r], NULL, run_rank, &ranks[r]);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
    }
    gpu_must(lierne_sim_destroy(w->sim) == LIERNE_OK, "destroying a world");
    pthread_barrier_destroy(&w->barrier);
}

void gpu_bench_ranks(void) {
    world worlds[2] = {{.make = make_bridge, .title = "bridge of 256 MiB bf16"},
                       {.make = make_rows, .title = "20,000 rows of 256 B per rank"}};
    printf("\n%d virtual ranks\n", RANKS);
    for (int i = 0; i < 2; i++) {
        run_world(&worlds[i]);
        print(&worlds[i]);
    }
}

void gpu_run_bridge_until(const volatile bool *stop, void (*started)(void)) {
    world w = {.make = make_bridge, .stop = stop, .started = started};
    run_world(&w);
}
