/* Calls between processes that are captured into CUDA graphs: the first forward and adjoint of a
 * plan in one graph, launched 10,000 times (a sum) or 1,000 times, or as often as the argument
 * says, with inputs that change, and with calls between that are not captured. Every result against
 * the same plan on host memory, bit by bit. */
#include "common.h"

#include <stdlib.h>
#include <string.h>

enum { INPUTS = 5 };

typedef struct buffers {
    unsigned char *in[INPUTS], *out[INPUTS]; /* of the host */
    unsigned char *got;
    void *device_in, *device_out, *aside;
    size_t in_bytes, out_bytes;
} buffers;

static void *device_memory(size_t bytes) {
    void *memory = NULL;
    must(cudaMalloc(&memory, bytes + 1) == cudaSuccess, "cudaMalloc");
    return memory;
}

/* No NaN in any dtype. */
static void fill(buffers *b, lierne_plan *host, int d) {
    b->in_bytes = ranks_bytes(host, d, 0);
    b->out_bytes = ranks_bytes(host, d, 1);
    for (int k = 0; k < INPUTS; k++) {
        b->in[k] = malloc(b->in_bytes + 1);
        b->out[k] = malloc(b->out_bytes + 1);
        for (size_t i = 0; i < b->in_bytes; i++) {
            b->in[k][i] = (unsigned char)((i * 31 + (size_t)(rank * 17 + k * 7)) % 59);
        }
        memset(b->out[k], 0xa5, b->out_bytes);
        check((d ? lierne_plan_adjoint : lierne_plan_forward)(host, b->out[k], b->in[k], NULL) ==
                  LIERNE_OK,
              "on host memory");
    }
    b->got = malloc(b->out_bytes + 1);
    b->device_in = device_memory(b->in_bytes);
    b->device_out = device_memory(b->out_bytes);
    b->aside = device_memory(b->out_bytes);
}

static void drop(buffers *b) {
    for (int k = 0; k < INPUTS; k++) {
        free(b->in[k]);
        free(b->out[k]);
    }
    free(b->got);
    cudaFree(b->device_in);
    cudaFree(b->device_out);
    cudaFree(b->aside);
}

static bool has(const buffers *b, const void *memory, int k, cudaStream_t stream) {
    cudaMemcpyAsync(b->got, memory, b->out_bytes, cudaMemcpyDeviceToHost, stream);
    return cudaStreamSynchronize(stream) == cudaSuccess &&
           memcmp(b->got, b->out[k], b->out_bytes) == 0;
}

static cudaGraphExec_t capture(lierne_plan *plan, const buffers b[2], cudaStream_t stream) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess, "a capture");
    check(lierne_plan_forward(plan, b[0].device_out, b[0].device_in, stream) == LIERNE_OK,
          "a first forward is captured");
    check(lierne_plan_adjoint(plan, b[1].device_out, b[1].device_in, stream) == LIERNE_OK,
          "a first adjoint is captured");
    check(cudaStreamEndCapture(stream, &graph) == cudaSuccess, "the end of a capture");
    must(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess, "cudaGraphInstantiate");
    cudaGraphDestroy(graph);
    return exec;
}

static bool replay_once(lierne_plan *plan, const buffers b[2], cudaGraphExec_t exec, int i,
                        cudaStream_t stream) {
    int k = i * 3 % INPUTS, d = i / 10 % 2;
    bool right = true;
    for (int j = 0; j < 2; j++) {
        cudaMemcpyAsync(b[j].device_in, b[j].in[k], b[j].in_bytes, cudaMemcpyHostToDevice, stream);
        cudaMemsetAsync(b[j].device_out, 0xa5, b[j].out_bytes, stream);
    }
    right &= cudaGraphLaunch(exec, stream) == cudaSuccess;
    if (i % 10 == 0) {
        right &= (d ? lierne_plan_adjoint : lierne_plan_forward)(plan, b[d].aside, b[d].device_in,
                                                                 stream) == LIERNE_OK;
        right &= has(&b[d], b[d].aside, k, stream);
    }
    return right && has(&b[0], b[0].device_out, k, stream) &&
           has(&b[1], b[1].device_out, k, stream);
}

static void run(lierne_context *host, lierne_context *device, int kind, int times) {
    lierne_plan *expected = ranks_plan(host, kind), *plan = ranks_plan(device, kind);
    buffers b[2];
    cudaStream_t stream = NULL;
    int wrong = 0;
    fill(&b[0], expected, 0);
    fill(&b[1], expected, 1);
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "a stream");
    cudaGraphExec_t exec = capture(plan, b, stream);
    for (int i = 0; i < times; i++) {
        wrong += !replay_once(plan, b, exec, i, stream);
    }
    check(wrong == 0, "replays, and the calls between, have the bits of host memory");
    cudaGraphExecDestroy(exec);
    check(lierne_plan_destroy(plan) == LIERNE_OK, "plan");
    check(lierne_plan_destroy(expected) == LIERNE_OK, "plan");
    cudaStreamDestroy(stream);
    drop(&b[0]);
    drop(&b[1]);
}

int main(int argc, char **argv) {
    int asked = argc > 1 ? atoi(argv[1]) : 0;
    lierne_context *host = NULL, *device = NULL;
    ranks_open(&host, &device, 60);
    for (int kind = 0; kind < RANKS_KINDS; kind++) {
        run(host, device, kind, asked ? asked : kind == 0 ? 10000 : 1000);
    }
    check(lierne_context_destroy(device) == LIERNE_OK, "context");
    check(lierne_context_destroy(host) == LIERNE_OK, "context");
    return ranks_end();
}
