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

enum { RANKS = GPU_RANKS, ROUNDS = 7 };

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

static void *run_rank(void *argument) {
    const virtual_rank *r = argument;
    world *w = r->world;
    lierne_context *context = lierne_sim_get_context(w->sim, r->rank);
    void *buffers[4];
    gpu_must(lierne_context_use_cuda(context) == LIERNE_OK, "lierne_context_use_cuda");
    lierne_plan *plan = w->make(context);
    cudaStream_t stream = gpu_stream();
    gpu_make_buffers(buffers, plan);
    const gpu_bytes bytes = gpu_count_bytes(plan);
    w->bytes[r->rank] = bytes.sent;
    w->host_bytes[r->rank] = bytes.host;
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
    world worlds[2] = {{.make = gpu_make_bridge, .title = GPU_BRIDGE},
                       {.make = gpu_make_rows, .title = GPU_ROWS}};
    printf("\n%d virtual ranks\n", RANKS);
    for (int i = 0; i < 2; i++) {
        run_world(&worlds[i]);
        print(&worlds[i]);
    }
}

void gpu_run_bridge_until(const volatile bool *stop, void (*started)(void)) {
    world w = {.make = gpu_make_bridge, .stop = stop, .started = started};
    run_world(&w);
}
