/* Virtual ranks: threads of one process, each with a stream on one device. They are the ranks of a
 * node, whose messages go through windows, or of a simulated world, whose messages go through
 * pinned host memory; the lines say which. Times are the host's, from the first begin to the last
 * stream. */
#include "gpu.h"

#include "lierne.h"
#include "lierne/cuda.h"
#include "lierne/node.h"
#include "lierne/sim.h"

#include <pthread.h>
#include <stdio.h>

enum { RANKS = GPU_RANKS, ROUNDS = 7 };

typedef struct world {
    const char *job; /* of a node; NULL: a simulated world */
    lierne_sim *sim;
    gpu_make_plan *make;
    const char *title; /* NULL: nothing is printed */
    const volatile bool *stop;
    void (*started)(void);
    pthread_barrier_t barrier;
    gpu_bytes bytes[RANKS];
    double best;
} world;

typedef struct virtual_rank {
    world *world;
    int rank;
} virtual_rank;

static void measure(world *w, int rank, lierne_plan *plan, void *const *buffers,
                    cudaStream_t stream) {
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&w->barrier);
        double start = gpu_now();
        gpu_call_both(plan, buffers, stream);
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
        gpu_call_both(plan, buffers, stream);
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

static lierne_context *open_context(const world *w, int rank) {
    const lierne_node_spec node = {.size = sizeof node,
                                   .rank = rank,
                                   .world = RANKS,
                                   .name = w->job};
    lierne_context *context = NULL;
    if (!w->job) {
        return lierne_sim_get_context(w->sim, rank);
    }
    gpu_must(lierne_context_create_node(&context, &node) == LIERNE_OK, "a context of a node");
    return context;
}

/* What allocates or frees may wait for all streams of the device, and so for calls of other ranks:
 * no rank does so while others call. */
static void *run_rank(void *argument) {
    const virtual_rank *r = argument;
    world *w = r->world;
    lierne_context *context = open_context(w, r->rank);
    void *buffers[4];
    gpu_must(lierne_context_use_cuda(context) == LIERNE_OK, "lierne_context_use_cuda");
    lierne_plan *plan = w->make(context);
    cudaStream_t stream = gpu_stream();
    gpu_make_buffers(buffers, plan);
    w->bytes[r->rank] = gpu_count_bytes(plan);
    pthread_barrier_wait(&w->barrier);
    (w->stop ? repeat : measure)(w, r->rank, plan, buffers, stream);
    pthread_barrier_wait(&w->barrier);
    gpu_must(lierne_plan_destroy(plan) == LIERNE_OK, "destroying a plan");
    gpu_must(!w->job || lierne_context_destroy(context) == LIERNE_OK, "destroying a context");
    for (int i = 0; i < 4; i++) {
        cudaFree(buffers[i]);
    }
    cudaStreamDestroy(stream);
    return NULL;
}

static void print(const world *w) {
    gpu_bytes all = {0};
    for (int r = 0; r < RANKS; r++) {
        all.sent += w->bytes[r].sent;
        all.host += w->bytes[r].host;
        all.window += w->bytes[r].window;
    }
    double bound = 2 * (double)all.sent / gpu_copy_rate((size_t)256 << 20);
    printf("  %s, forward and adjoint: %.3f ms; %.1f MB between ranks, %.2f times the copy bound; "
           "%.1f MB copied into windows, %.1f MB to and from host memory\n",
           w->title, w->best * 1e3, (double)all.sent / 1e6, w->best / bound,
           (double)all.window / 1e6, (double)all.host / 1e6);
}

static void run_world(world *w) {
    pthread_t threads[RANKS];
    virtual_rank ranks[RANKS];
    gpu_must(w->job || lierne_sim_create(&w->sim, RANKS, NULL) == LIERNE_OK, "a simulated world");
    pthread_barrier_init(&w->barrier, NULL, RANKS);
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (virtual_rank){w, r};
        pthread_create(&threads[r], NULL, run_rank, &ranks[r]);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
    }
    gpu_must(w->job || lierne_sim_destroy(w->sim) == LIERNE_OK, "destroying a world");
    pthread_barrier_destroy(&w->barrier);
}

void gpu_bench_ranks(void) {
    world worlds[] = {{.job = "gpu-bridge",
                       .make = gpu_make_bridge,
                       .title = GPU_BRIDGE ", windows"},
                      {.job = "gpu-rows", .make = gpu_make_rows, .title = GPU_ROWS ", windows"},
                      {.make = gpu_make_bridge, .title = GPU_BRIDGE ", a simulated world"},
                      {.make = gpu_make_rows, .title = GPU_ROWS ", a simulated world"}};
    printf("\n%d virtual ranks\n", RANKS);
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        run_world(&worlds[i]);
        print(&worlds[i]);
    }
}

void gpu_run_bridge_until(const volatile bool *stop, void (*started)(void)) {
    world w = {.job = "gpu-product", .make = gpu_make_bridge, .stop = stop, .started = started};
    run_world(&w);
}
