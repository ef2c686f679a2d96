/* A rank that does not call, or replay a captured call, on a device: the calls of the others end at
 * once, and hang there. The watchdog finds that, ends what hangs, and tells; nobody waits longer
 * than a few timeouts. */
#include "common.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SECONDS = 30 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* All ranks of the node, over the host's context. */
static void meet(lierne_context *host) {
    const lierne_barrier_spec spec = {.size = sizeof spec};
    lierne_plan *plan = NULL;
    must(lierne_plan_create_barrier(&plan, host, &spec) == LIERNE_OK, "planning a barrier");
    check(lierne_plan_forward(plan, NULL, NULL, NULL) == LIERNE_OK, "a barrier");
    check(lierne_plan_destroy(plan) == LIERNE_OK, "plan");
}

static cudaGraphExec_t capture(lierne_plan *plan, void *out, const void *in, cudaStream_t stream) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess, "a capture");
    check(lierne_plan_forward(plan, out, in, stream) == LIERNE_OK, "a call is captured");
    must(cudaStreamEndCapture(stream, &graph) == cudaSuccess &&
             cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess,
         "a graph");
    cudaGraphDestroy(graph);
    return exec;
}

static void hang(lierne_context *device, lierne_plan *plan, void *out, const void *in,
                 cudaStream_t stream, cudaGraphExec_t exec) {
    double start = now();
    lierne_status status = LIERNE_OK;
    check(exec ? cudaGraphLaunch(exec, stream) == cudaSuccess
               : lierne_plan_forward(plan, out, in, stream) == LIERNE_OK,
          "a call that hangs has returned");
    check(now() - start < 1, "at once");
    while (status == LIERNE_OK && now() - start < MOST_SECONDS) {
        usleep(1000);
        status = lierne_context_get_status(device);
    }
    check(status == LIERNE_ERR_TIMEOUT || status == LIERNE_ERR_PEER_FAILED ||
              status == LIERNE_ERR_TRANSPORT,
          "it is an error");
    printf("rank %d after %.1f s: %s\n", rank, now() - start, lierne_last_error());
    check(lierne_plan_forward(plan, out, in, stream) == status, "the context is dead");
    check(cudaStreamSynchronize(stream) == cudaSuccess, "the stream goes on");
    check(now() - start < 2 * MOST_SECONDS, "in time");
}

static void run(bool replays) {
    lierne_context *host = NULL, *device = NULL;
    void *in = NULL, *out = NULL;
    cudaStream_t stream = NULL;
    ranks_open(&host, &device, 2);
    lierne_plan *plan = ranks_plan(device, 1);
    must(cudaMalloc(&in, ranks_bytes(plan, 0, 0)) == cudaSuccess, "cudaMalloc");
    must(cudaMalloc(&out, ranks_bytes(plan, 0, 1)) == cudaSuccess, "cudaMalloc");
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "a stream");
    must(cudaMemsetAsync(in, 0x11, ranks_bytes(plan, 0, 0), stream) == cudaSuccess, "cudaMemset");
    cudaGraphExec_t exec = replays ? capture(plan, out, in, stream) : NULL;
    check(exec ? cudaGraphLaunch(exec, stream) == cudaSuccess
               : lierne_plan_forward(plan, out, in, stream) == LIERNE_OK,
          "a call of all ranks");
    check(cudaStreamSynchronize(stream) == cudaSuccess &&
              lierne_context_get_status(device) == LIERNE_OK,
          "that passes");
    meet(host);
    if (rank != 1) {
        hang(device, plan, out, in, stream, exec);
    }
    meet(host);
    if (exec) {
        cudaGraphExecDestroy(exec);
    }
    check(lierne_plan_destroy(plan) == LIERNE_OK, "plan");
    lierne_context_destroy(device);
    check(lierne_context_destroy(host) == LIERNE_OK, "context");
    cudaStreamDestroy(stream);
    cudaFree(in);
    cudaFree(out);
}

int main(void) {
    run(false);
    run(true);
    return ranks_end();
}
