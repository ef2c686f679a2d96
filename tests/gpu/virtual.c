/* Ranks of one process on one GPU: threads, each with a stream, whose contexts are those of a
 * simulated world. What they make of random bytes has the bits that a second world makes of them on
 * host memory: bridges with sums and with a zigzag, rows whose gradients meet, an all-to-all; both
 * directions, again and again, and two calls in flight. All memory is there before the first call
 * and freed after the last one, because either may wait for every stream of the device. Without a
 * device it says so. Last line: N passed, N failed. */
#include "lierne.h"
#include "lierne/cuda.h"
#include "lierne/sim.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 8, REPEATS = 3, FLIGHTS = 2 };

static atomic_int passed, failed;

static void check(bool good, int rank, const char *what) {
    atomic_fetch_add(good ? &passed : &failed, 1);
    if (!good) {
        printf("FAIL rank %d, %s: %s\n", rank, what, lierne_last_error());
    }
}

/* What cannot go on without it: the other ranks would wait. */
static void must(bool good, int rank, const char *what) {
    if (!good) {
        printf("FAIL rank %d, %s: %s\n0 passed, 1 failed\n", rank, what, lierne_last_error());
        exit(1);
    }
}

/* A rank of the two worlds. */
typedef struct virtual_rank {
    int rank;
    lierne_context *host, *device;
    pthread_barrier_t *barrier;
    cudaStream_t stream;
} virtual_rank;

/* Encoder tp2 dp4 beside an LLM tp2 cp2 dp2, with the batch slowest or not. */
static lierne_plan *make_bridge(lierne_context *context, lierne_gradient_owner owner, int batch,
                                lierne_dtype dtype) {
    static const char *const names[] = {"tp", "cp", "dp"};
    static const int64_t sizes[2][3] = {{2, 1, 4}, {2, 2, 2}};
    const int64_t shape[3] = {batch ? 64 : 8, batch ? 8 : 64, 40};
    lierne_bridge_spec spec = LIERNE_BRIDGE_SPEC_INIT;
    lierne_grid *grids[2];
    lierne_plan *plan = NULL;
    for (int i = 0; i < 2; i++) {
        const lierne_grid_spec g = {
            .size = sizeof g, .ndims = 3, .names = names, .sizes = sizes[i], .world_size = RANKS};
        must(lierne_grid_create(&grids[i], &g) == LIERNE_OK, -1, "a grid");
    }
    spec.src = grids[0];
    spec.dst = grids[1];
    spec.naxes = 3;
    spec.shape = shape;
    spec.batch_axis = batch;
    spec.sequence_axis = 1 - batch;
    spec.dtype = dtype;
    spec.gradient_owner = owner;
    spec.max_inflight = FLIGHTS;
    lierne_plan_create_bridge(&plan, context, &spec);
    lierne_grid_destroy(grids[0]);
    lierne_grid_destroy(grids[1]);
    return plan;
}

static lierne_plan *make_partial(lierne_context *context) {
    return make_bridge(context, LIERNE_GRADIENT_OWNER_PARTIAL, 0, LIERNE_DTYPE_BF16);
}

static lierne_plan *make_zigzag(lierne_context *context) {
    return make_bridge(context, LIERNE_GRADIENT_OWNER_ZIGZAG, 1, LIERNE_DTYPE_F32);
}

static lierne_plan *make_rows(lierne_context *context) {
    enum { OWNED = 300, GHOSTS = 900 };
    lierne_references_spec spec = LIERNE_REFERENCES_SPEC_INIT;
    int32_t rank[GHOSTS];
    int64_t row[GHOSTS];
    lierne_plan *plan = NULL;
    int me = lierne_context_get_rank(context);
    for (int i = 0; i < GHOSTS; i++) {
        rank[i] = (me + i * i) % RANKS;
        row[i] = (int64_t)(i * 7 + me) % OWNED;
    }
    spec.nowned = OWNED;
    spec.nghosts = GHOSTS;
    spec.rank = rank;
    spec.row = row;
    spec.width = 24;
    spec.dtype = LIERNE_DTYPE_F16;
    spec.max_inflight = FLIGHTS;
    lierne_plan_create_references(&plan, context, &spec);
    return plan;
}

static lierne_plan *make_exchange(lierne_context *context) {
    lierne_all_to_all_spec spec = {.size = sizeof spec};
    lierne_plan *plan = NULL;
    spec.count = 700;
    spec.dtype = LIERNE_DTYPE_I32;
    spec.max_inflight = FLIGHTS;
    lierne_plan_create_all_to_all(&plan, context, &spec);
    return plan;
}

/* The buffers of one direction of both worlds. */
typedef struct buffers {
    size_t in_bytes, out_bytes;
    unsigned char *in, *expected, *got;
    void *device_in, *device_out[FLIGHTS];
} buffers;

static void *host_memory(size_t bytes) {
    void *memory = malloc(bytes + 1);
    must(memory != NULL, -1, "memory");
    return memory;
}

static void *device_memory(size_t bytes) {
    void *memory = NULL;
    must(cudaMalloc(&memory, bytes + 1) == cudaSuccess, -1, "cudaMalloc");
    return memory;
}

static void open_buffers(buffers *b, const virtual_rank *r, const lierne_plan *plan,
                         lierne_direction d) {
    int64_t nin = 0, nout = 0;
    lierne_dtype dtype;
    must(lierne_plan_get_dtype(&dtype, plan) == LIERNE_OK &&
             lierne_plan_get_elements(&nin, &nout, plan, d) == LIERNE_OK,
         r->rank, "sizes");
    b->in_bytes = (size_t)nin * lierne_dtype_size(dtype);
    b->out_bytes = (size_t)nout * lierne_dtype_size(dtype);
    b->in = host_memory(b->in_bytes);
    b->expected = host_memory(b->out_bytes);
    b->got = host_memory(b->out_bytes);
    b->device_in = device_memory(b->in_bytes);
    for (int f = 0; f < FLIGHTS; f++) {
        b->device_out[f] = device_memory(b->out_bytes);
    }
}

static void close_buffers(buffers *b) {
    free(b->in);
    free(b->expected);
    free(b->got);
    cudaFree(b->device_in);
    for (int f = 0; f < FLIGHTS; f++) {
        cudaFree(b->device_out[f]);
    }
}

static void copy(const virtual_rank *r, void *to, const void *from, size_t bytes) {
    must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, r->stream) == cudaSuccess &&
             cudaStreamSynchronize(r->stream) == cudaSuccess,
         r->rank, "a copy");
}

/* Bytes below 60: no NaN and no infinity of any dtype. */
static void fill(buffers *b, unsigned seed) {
    for (size_t i = 0; i < b->in_bytes; i++) {
        seed = seed * 1103515245u + 12345u;
        b->in[i] = (unsigned char)((seed >> 16) % 60);
    }
    memset(b->expected, 0xa5, b->out_bytes);
}

static void compare(const virtual_rank *r, buffers *b, lierne_plan *host, lierne_plan *device,
                    lierne_direction d) {
    lierne_request *requests[FLIGHTS];
    for (int f = 0; f < FLIGHTS; f++) {
        copy(r, b->device_out[f], b->expected, b->out_bytes); /* poison */
    }
    copy(r, b->device_in, b->in, b->in_bytes);
    must((d ? lierne_plan_adjoint : lierne_plan_forward)(host, b->expected, b->in, NULL) ==
             LIERNE_OK,
         r->rank, "a call on the host");
    for (int f = 0; f < FLIGHTS; f++) {
        must((d ? lierne_plan_adjoint_begin
                : lierne_plan_forward_begin)(&requests[f], device, b->device_out[f], b->device_in,
                                             r->stream) == LIERNE_OK,
             r->rank, "a begin");
    }
    for (int f = 0; f < FLIGHTS; f++) {
        must(lierne_request_end(requests[f]) == LIERNE_OK, r->rank, "an end");
    }
    for (int f = 0; f < FLIGHTS; f++) {
        copy(r, b->got, b->device_out[f], b->out_bytes);
        check(memcmp(b->got, b->expected, b->out_bytes) == 0, r->rank, "bits of the host");
    }
}

static void run_plan(const virtual_rank *r, lierne_plan *(*make)(lierne_context *)) {
    lierne_plan *host = make(r->host), *device = make(r->device);
    buffers b[2];
    must(host && device, r->rank, "planning");
    for (int d = 0; d < 2; d++) {
        open_buffers(&b[d], r, host, (lierne_direction)d);
    }
    pthread_barrier_wait(r->barrier);
    for (int i = 0; i < 2 * REPEATS; i++) {
        fill(&b[i % 2], (unsigned)(100 * i + r->rank + 1));
        compare(r, &b[i % 2], host, device, (lierne_direction)(i % 2));
    }
    pthread_barrier_wait(r->barrier);
    close_buffers(&b[0]);
    close_buffers(&b[1]);
    check(lierne_plan_destroy(host) == LIERNE_OK, r->rank, "destroying a plan");
    check(lierne_plan_destroy(device) == LIERNE_OK, r->rank, "destroying a plan");
}

static void *run_rank(void *argument) {
    virtual_rank *r = argument;
    must(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking) == cudaSuccess, r->rank,
         "cudaStreamCreate");
    must(lierne_context_use_cuda(r->device) == LIERNE_OK, r->rank, "lierne_context_use_cuda");
    run_plan(r, make_partial);
    run_plan(r, make_zigzag);
    run_plan(r, make_rows);
    run_plan(r, make_exchange);
    cudaStreamDestroy(r->stream);
    return NULL;
}

static void run_world(void) {
    lierne_sim *host, *device;
    pthread_barrier_t barrier;
    pthread_t threads[RANKS];
    virtual_rank ranks[RANKS];
    must(lierne_sim_create(&device, RANKS, NULL) == LIERNE_OK, -1, "a world");
    must(lierne_sim_create(&host, RANKS, NULL) == LIERNE_OK, -1, "a world");
    pthread_barrier_init(&barrier, NULL, RANKS);
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (virtual_rank){r, lierne_sim_get_context(host, r),
                                  lierne_sim_get_context(device, r), &barrier, NULL};
        must(pthread_create(&threads[r], NULL, run_rank, &ranks[r]) == 0, r, "a thread");
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
    }
    pthread_barrier_destroy(&barrier);
    check(lierne_sim_destroy(device) == LIERNE_OK, -1, "destroying a world");
    check(lierne_sim_destroy(host) == LIERNE_OK, -1, "destroying a world");
}

int main(void) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("skipped: there is no CUDA device\n");
    } else {
        run_world();
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
