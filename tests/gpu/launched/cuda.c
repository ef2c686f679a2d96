/* The device of programs of tests/launched on a GPU. Ranks share the devices of the node in turn.
 * Copies are on the stream of the calls: one that does not wait for the default stream would not
 * wait for a copy there. */
#include "lierne/cuda.h"
#include "lierne/nccl.h"
#include "staging.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Not there where lierne is built without NCCL. */
extern __typeof__(lierne_context_use_nccl) lierne_context_use_nccl __attribute__((weak));

static cudaStream_t stream;

static void must(cudaError_t error, const char *what) {
    if (error != cudaSuccess) {
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
        exit(2);
    }
}

static lierne_status use(lierne_context *context) {
    int devices = 0;
    must(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    must(cudaSetDevice(lierne_context_get_rank(context) % devices), "cudaSetDevice");
    if (!stream) {
        must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    }
    bool nccl = strcmp(getenv("LIERNE_TEST_EXECUTOR"), "nccl") == 0;
    if (nccl && !lierne_context_use_nccl) {
        fprintf(stderr, "built without NCCL\n");
        exit(2);
    }
    lierne_status status = lierne_context_use_cuda(context);
    return status == LIERNE_OK && nccl ? lierne_context_use_nccl(context, NULL) : status;
}

static void *alloc(size_t bytes) {
    void *memory = NULL;
    must(cudaMalloc(&memory, bytes), "cudaMalloc");
    return memory;
}

static void release(void *memory) {
    must(cudaFree(memory), "cudaFree");
}

static void wait(void) {
    must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

static void copy(void *to, const void *from, size_t bytes) {
    must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    wait();
}

static void *stream_of_calls(void) {
    return stream;
}

const test_stager test_cuda_stager = {.use = use,
                                      .alloc = alloc,
                                      .free = release,
                                      .copy = copy,
                                      .stream = stream_of_calls,
                                      .wait = wait};
