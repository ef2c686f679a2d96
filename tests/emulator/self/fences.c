/* The order of calls on CUDA streams (backend/cuda/cuda_stream.c). Calls of one execution use the
 * same memory, so each must come after all calls before it: on one stream or two, within a capture,
 * between the launches of graphs, and where a call that is not captured comes between two that are.
 * A call here sets the same bytes, and the emulated device finds two of them without an order. The
 * caller's device is what it was, also after errors. Last line: N passed, N failed. */
#include "backend/cuda/cuda_stream.h"
#include "node_ranks.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <unistd.h>

enum { OWN, CALLERS, STREAMS = 4, BYTES = 64 }; /* devices */

static const lierne_stream_driver *const driver = &lierne_cuda_stream_driver;
static cudaStream_t streams[STREAMS], elsewhere;
static void *memory;

static int current_device(void) {
    int device = -1;
    cudaGetDevice(&device);
    return device;
}

static void call(int stream, void *fence) {
    check(driver->begin(streams[stream], fence) == LIERNE_OK, "begin");
    check(current_device() == OWN, "work is enqueued on the context's device");
    check(cudaMemsetAsync(memory, 1, BYTES, streams[stream]) == cudaSuccess, "work");
    check(driver->finish(streams[stream], fence) == LIERNE_OK, "finish");
    check(current_device() == CALLERS, "the caller's device is what it was");
}

static void begin_capture(int stream) {
    check(cudaStreamBeginCapture(streams[stream], cudaStreamCaptureModeRelaxed) == cudaSuccess,
          "a capture");
}

static cudaGraphExec_t end_capture(int stream) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    check(cudaStreamEndCapture(streams[stream], &graph) == cudaSuccess &&
              cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess,
          "a graph");
    cudaGraphDestroy(graph);
    return exec;
}

static void launch(cudaGraphExec_t exec, int stream) {
    check(cudaGraphLaunch(exec, streams[stream]) == cudaSuccess, "a launch");
}

/* The second stream comes after what the first one has so far; in a capture, too. */
static void follow(int second, int first) {
    cudaEvent_t event;
    cudaSetDevice(OWN);
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess &&
              cudaEventRecord(event, streams[first]) == cudaSuccess &&
              cudaStreamWaitEvent(streams[second], event, 0) == cudaSuccess,
          "an event");
    cudaEventDestroy(event);
    cudaSetDevice(CALLERS);
}

static void outside_graphs(void *fence) {
    call(0, fence);
    call(1, fence);
    call(1, fence);
    call(0, fence);
}

static void within_one(void *fence) {
    begin_capture(0);
    follow(1, 0);
    call(0, fence);
    call(1, fence);
    call(2, fence); /* outside */
    call(0, fence);
    call(1, fence);
    follow(0, 1);
    cudaGraphExec_t exec = end_capture(0);
    launch(exec, 3);
    call(2, fence);
    launch(exec, 0);
    launch(exec, 1);
    cudaGraphExecDestroy(exec);
}

static void in_two(void *fence) {
    cudaGraphExec_t execs[2];
    for (int i = 0; i < 2; i++) {
        begin_capture(0);
        call(0, fence);
        execs[i] = end_capture(0);
    }
    for (int i = 0; i < 6; i++) {
        launch(execs[i % 2], i % 3);
    }
    cudaGraphExecDestroy(execs[0]);
    cudaGraphExecDestroy(execs[1]);
}

/* The first one's next call would not know the one before it. */
static void overlapping(void *fence) {
    begin_capture(0);
    call(0, fence);
    begin_capture(1);
    call(1, fence);
    check(driver->begin(streams[0], fence) == LIERNE_ERR_UNSUPPORTED && current_device() == CALLERS,
          "a capture that goes on after another one is rejected");
    call(1, fence);
    cudaGraphExecDestroy(end_capture(0));
    begin_capture(0);
    call(0, fence);
    cudaGraphExecDestroy(end_capture(0));
    cudaGraphExecDestroy(end_capture(1));
}

/* Events of one device are not recorded on streams of another. */
static void errors(void *fence) {
    call(0, fence);
    check(driver->begin(elsewhere, fence) == LIERNE_OK, "begin");
    check(driver->finish(elsewhere, fence) == LIERNE_ERR_TRANSPORT && current_device() == CALLERS,
          "a finish that fails");
    cudaGetLastError();
}

static void marks(void *fence) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    void *event = NULL;
    bool passed = false;
    (void)fence;
    cudaSetDevice(OWN);
    check(driver->event_create(&event) == LIERNE_OK, "an event");
    check(driver->event_query(event, &passed) == LIERNE_OK && passed, "one that is not recorded");
    check(driver->event_record(streams[0], event) == LIERNE_OK && current_device() == OWN,
          "recording leaves the device alone");
    cudaSetDevice(CALLERS);
    check(cudaStreamBeginCapture(streams[1], cudaStreamCaptureModeGlobal) == cudaSuccess,
          "a capture that forbids queries");
    check(driver->event_query(event, &passed) == LIERNE_OK && current_device() == CALLERS,
          "a query leaves the device alone");
    cudaGraphExecDestroy(end_capture(1));
    driver->event_destroy(event);
    driver->enter_thread(OWN);
    cudaThreadExchangeStreamCaptureMode(&mode);
    check(current_device() == OWN && mode == cudaStreamCaptureModeRelaxed,
          "a thread of lierne's own");
}

static void run(void (*scene)(void *fence)) {
    void *fence = NULL;
    cudaSetDevice(OWN);
    check(driver->fence_create(&fence) == LIERNE_OK, "a fence");
    cudaSetDevice(CALLERS);
    scene(fence);
    for (int i = 0; i < STREAMS; i++) {
        check(cudaStreamSynchronize(streams[i]) == cudaSuccess, "calls have an order");
    }
    driver->fence_destroy(fence);
    check(lierne_mem_live() == 0, "nothing is left");
}

int main(int argc, char **argv) {
    (void)argc;
    if (!getenv("EMULATOR_DEVICES")) {
        setenv("EMULATOR_DEVICES", "2", 1);
        execv("/proc/self/exe", argv);
    }
    check(cudaMalloc(&memory, BYTES) == cudaSuccess, "memory");
    for (int i = 0; i < STREAMS; i++) {
        cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking);
    }
    cudaSetDevice(CALLERS);
    cudaStreamCreateWithFlags(&elsewhere, cudaStreamNonBlocking);
    run(outside_graphs);
    run(within_one);
    run(in_two);
    run(overlapping);
    run(errors);
    run(marks);
    return print_checks();
}
