/* Calls captured into CUDA graphs: a forward and its adjoint in one graph, launched 10,000 times,
 * or as often as the argument says, on two streams, with inputs that change and with calls between
 * that are not captured, against host memory, bit by bit; two captured calls of one plan on two
 * streams of one capture; what cannot be captured, and a plan that must not change. Without a
 * device it says so. Last line: N passed, N failed. */
#include "lierne.h"
#include "lierne/cuda.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OWNED = 700, GHOSTS = 1500, WIDTH = 12, INPUTS = 5 };
enum { ROWS_BYTES = OWNED * WIDTH * 2, GHOSTS_BYTES = GHOSTS * WIDTH * 2 }; /* of bf16 */

static int passed, failed, replays = 10000;

static void check(int good, const char *what) {
    passed += good;
    failed += !good;
    if (!good) {
        printf("FAIL %s: %s; %s\n", what, lierne_last_error(),
               cudaGetErrorString(cudaGetLastError()));
    }
}

static lierne_plan *make_plan(lierne_context *context, int inflight) {
    static int32_t rank[GHOSTS];
    static int64_t row[GHOSTS];
    lierne_references_spec spec = LIERNE_REFERENCES_SPEC_INIT;
    lierne_plan *plan = NULL;
    for (int i = 0; i < GHOSTS; i++) {
        row[i] = i * 131 % OWNED;
    }
    spec.nowned = OWNED;
    spec.nghosts = GHOSTS;
    spec.rank = rank;
    spec.row = row;
    spec.width = WIDTH;
    spec.dtype = LIERNE_DTYPE_BF16;
    spec.max_inflight = inflight;
    check(lierne_plan_create_references(&plan, context, &spec) == LIERNE_OK, "planning");
    return plan;
}

/* Inputs without NaN; ghosts and the gradients of rows, as host memory has them. */
static unsigned char rows[INPUTS][ROWS_BYTES], ghosts[INPUTS][GHOSTS_BYTES];
static unsigned char gradients[INPUTS][ROWS_BYTES];

static void fill(lierne_plan *host) {
    for (int k = 0; k < INPUTS; k++) {
        for (int i = 0; i < ROWS_BYTES; i++) {
            rows[k][i] = (unsigned char)((i * 31 + k * 7) % 59);
        }
        check(lierne_plan_forward(host, ghosts[k], rows[k], NULL) == LIERNE_OK, "host");
        check(lierne_plan_adjoint(host, gradients[k], ghosts[k], NULL) == LIERNE_OK, "host");
    }
}

typedef struct device {
    void *in, *out, *back, *aside;
    cudaStream_t streams[2];
} device;

static cudaGraphExec_t capture(lierne_plan *plan, const device *d) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaStream_t stream = d->streams[0];
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess, "capture");
    check(lierne_plan_forward(plan, d->out, d->in, stream) == LIERNE_OK, "a forward is captured");
    check(lierne_plan_adjoint(plan, d->back, d->out, stream) == LIERNE_OK,
          "an adjoint is captured");
    check(cudaStreamEndCapture(stream, &graph) == cudaSuccess, "the end of a capture");
    check(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess, "cudaGraphInstantiate");
    cudaGraphDestroy(graph);
    return exec;
}

/* Whether a replay, or a call, left these values. */
static int has(const void *device_memory, const unsigned char *expected, size_t bytes,
               cudaStream_t stream) {
    static unsigned char got[GHOSTS_BYTES];
    cudaMemcpyAsync(got, device_memory, bytes, cudaMemcpyDeviceToHost, stream);
    return cudaStreamSynchronize(stream) == cudaSuccess && memcmp(got, expected, bytes) == 0;
}

static void replay(lierne_plan *plan, const device *d, cudaGraphExec_t exec) {
    int wrong = 0;
    for (int i = 0; i < replays; i++) {
        int k = i * 3 % INPUTS;
        cudaStream_t stream = d->streams[i / 100 % 2];
        wrong += cudaMemcpyAsync(d->in, rows[k], ROWS_BYTES, cudaMemcpyHostToDevice, stream) !=
                 cudaSuccess;
        cudaMemsetAsync(d->out, 0xa5, GHOSTS_BYTES, stream);
        cudaMemsetAsync(d->back, 0xa5, ROWS_BYTES, stream);
        wrong += cudaGraphLaunch(exec, stream) != cudaSuccess;
        if (i % 50 == 0) { /* on the other stream: it shares the plan's memory with the replay */
            wrong +=
                lierne_plan_forward(plan, d->aside, d->in, d->streams[!(i / 100 % 2)]) != LIERNE_OK;
            wrong += cudaStreamSynchronize(d->streams[!(i / 100 % 2)]) != cudaSuccess;
        }
        wrong += !has(d->out, ghosts[k], GHOSTS_BYTES, stream);
        wrong += !has(d->back, gradients[k], ROWS_BYTES, stream);
        wrong += i % 50 == 0 && !has(d->aside, ghosts[k], GHOSTS_BYTES, stream);
    }
    check(wrong == 0, "replays and the calls between have the bits of the host");
}

/* Two calls of one direction on two streams that are joined: an edge of the graph orders them. */
static void fork_and_join(lierne_plan *plan, const device *d) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaEvent_t fork, join;
    cudaEventCreateWithFlags(&fork, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&join, cudaEventDisableTiming);
    cudaStreamBeginCapture(d->streams[0], cudaStreamCaptureModeGlobal);
    cudaEventRecord(fork, d->streams[0]);
    cudaStreamWaitEvent(d->streams[1], fork, 0);
    check(lierne_plan_forward(plan, d->out, d->in, d->streams[0]) == LIERNE_OK,
          "on a first stream");
    check(lierne_plan_forward(plan, d->aside, d->in, d->streams[1]) == LIERNE_OK,
          "on a second one");
    cudaEventRecord(join, d->streams[1]);
    cudaStreamWaitEvent(d->streams[0], join, 0);
    check(cudaStreamEndCapture(d->streams[0], &graph) == cudaSuccess, "two streams are captured");
    check(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess, "cudaGraphInstantiate");
    cudaMemcpyAsync(d->in, rows[1], ROWS_BYTES, cudaMemcpyHostToDevice, d->streams[0]);
    check(cudaGraphLaunch(exec, d->streams[0]) == cudaSuccess, "cudaGraphLaunch");
    check(has(d->out, ghosts[1], GHOSTS_BYTES, d->streams[0]), "the first call");
    check(has(d->aside, ghosts[1], GHOSTS_BYTES, d->streams[0]), "the second call");
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
}

static void reject(lierne_context *context, const device *d) {
    lierne_plan *two = make_plan(context, 2);
    cudaGraph_t graph = NULL;
    cudaStreamBeginCapture(d->streams[0], cudaStreamCaptureModeGlobal);
    check(lierne_plan_forward(two, d->out, d->in, d->streams[0]) == LIERNE_ERR_UNSUPPORTED &&
              strstr(lierne_last_error(), "max_inflight"),
          "two requests are rejected");
    check(cudaStreamEndCapture(d->streams[0], &graph) == cudaSuccess, "the capture is not spoilt");
    cudaGraphDestroy(graph);
    check(lierne_plan_destroy(two) == LIERNE_OK, "destroy");
}

static void run(lierne_context *host, lierne_context *context) {
    device d;
    lierne_plan *expected = make_plan(host, 1), *plan = make_plan(context, 1);
    fill(expected);
    cudaMalloc(&d.in, ROWS_BYTES);
    cudaMalloc(&d.out, GHOSTS_BYTES);
    cudaMalloc(&d.back, ROWS_BYTES);
    cudaMalloc(&d.aside, GHOSTS_BYTES);
    for (int i = 0; i < 2; i++) {
        cudaStreamCreateWithFlags(&d.streams[i], cudaStreamNonBlocking);
    }
    cudaGraphExec_t exec = capture(plan, &d);
    replay(plan, &d, exec);
    fork_and_join(plan, &d);
    reject(context, &d);
    cudaGraphExecDestroy(exec);
    check(lierne_plan_destroy(plan) == LIERNE_OK, "destroy");
    check(lierne_plan_destroy(expected) == LIERNE_OK, "destroy");
    for (int i = 0; i < 2; i++) {
        cudaStreamDestroy(d.streams[i]);
    }
    cudaFree(d.in);
    cudaFree(d.out);
    cudaFree(d.back);
    cudaFree(d.aside);
}

int main(int argc, char **argv) {
    int devices = 0;
    replays = argc > 1 ? atoi(argv[1]) : replays;
    lierne_context *host = NULL, *context = NULL;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("skipped: there is no CUDA device\n");
    } else {
        check(lierne_context_create_self(&host, NULL) == LIERNE_OK, "context");
        check(lierne_context_create_self(&context, NULL) == LIERNE_OK, "context");
        check(lierne_context_use_cuda(context) == LIERNE_OK, "lierne_context_use_cuda");
        run(host, context);
        check(lierne_context_destroy(context) == LIERNE_OK, "destroy");
        check(lierne_context_destroy(host) == LIERNE_OK, "destroy");
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
