/* Memory, streams and clocks of the current device, and what its copies take. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS 7
#define CALLS  10 /* of a round */

void gpu_must(bool ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "%s does not work: %s; %s\n", what, lierne_last_error(),
                cudaGetErrorString(cudaGetLastError()));
        exit(1);
    }
}

void *gpu_memory(size_t bytes) {
    void *memory = NULL;
    gpu_must(cudaMalloc(&memory, bytes) == cudaSuccess, "cudaMalloc");
    gpu_must(cudaMemset(memory, 0x11, bytes) == cudaSuccess, "cudaMemset");
    gpu_must(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
    return memory;
}

cudaStream_t gpu_stream(void) {
    cudaStream_t stream = NULL;
    gpu_must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess,
             "cudaStreamCreateWithFlags");
    return stream;
}

double gpu_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double gpu_time(gpu_work *work, void *argument, cudaStream_t stream) {
    cudaEvent_t first, last;
    float best = 1e30F, ms = 0;
    gpu_must(cudaEventCreate(&first) == cudaSuccess && cudaEventCreate(&last) == cudaSuccess,
             "cudaEventCreate");
    for (int round = 0; round < ROUNDS; round++) {
        cudaEventRecord(first, stream);
        for (int i = 0; i < CALLS; i++) {
            work(argument, stream);
        }
        cudaEventRecord(last, stream);
        gpu_must(cudaEventSynchronize(last) == cudaSuccess, "the work of a benchmark");
        cudaEventElapsedTime(&ms, first, last);
        best = ms < best ? ms : best;
    }
    cudaEventDestroy(first);
    cudaEventDestroy(last);
    return (double)best / 1e3 / CALLS;
}

typedef struct copy {
    void *to;
    const void *from;
    size_t bytes;
} copy;

static void run_copy(void *argument, cudaStream_t stream) {
    const copy *c = argument;
    cudaMemcpyAsync(c->to, c->from, c->bytes, cudaMemcpyDeviceToDevice, stream);
}

double gpu_copy_rate(size_t bytes) {
    void *to = gpu_memory(bytes), *from = gpu_memory(bytes);
    copy c = {to, from, bytes};
    cudaStream_t stream = gpu_stream();
    double rate = 2 * (double)bytes / gpu_time(run_copy, &c, stream);
    cudaStreamDestroy(stream);
    cudaFree(to);
    cudaFree(from);
    return rate;
}
