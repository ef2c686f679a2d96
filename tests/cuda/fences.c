/* The order of calls on CUDA streams (backend/cuda/cuda_stream.c) without a GPU: CUDA's runtime is
 * played. Calls of one execution use the same memory, so each must come after all calls before it:
 * on one stream or two, within a capture, between the launches of graphs, and where a call that is
 * not captured comes between two that are. The caller's device is what it was, also after errors.
 * Last line: N passed, N failed. */
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/launch_tasks.h"
#include "node_ranks.h"
#include "runtime/context/context.h"

#include <stdio.h>

/* A stream knows the calls that its next work comes after, as bits; in a capture, those of the
 * graph, and whether that work comes after a wait for an event outside. */
typedef struct place {
    unsigned calls;
    bool waited;
} place;

struct CUstream_st {
    place now;
    unsigned long long capture; /* 0: none */
    place within;
};

/* Recorded outside, and within a graph: captured is that graph. */
struct CUevent_st {
    unsigned calls;
    bool records; /* the graph that is captured does, when it is launched */
    unsigned long long captured;
    place within;
};

enum { MOST_CALLS = 16, CONTEXT_DEVICE = 3 };
static struct {
    bool in_graph;
    place before; /* in its graph */
} calls[MOST_CALLS];
static int ncalls, current_device, events;
static struct CUevent_st *outside; /* the event that graphs wait for and record */
static enum cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
static bool fails;

static cudaError_t result(void) {
    return fails ? cudaErrorUnknown : cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *other) {
    enum cudaStreamCaptureMode before = mode;
    mode = *other;
    *other = before;
    return cudaSuccess;
}

static cudaError_t get_capture(const struct CUstream_st *stream,
                               enum cudaStreamCaptureStatus *status, unsigned long long *id) {
    *status = stream->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    *id = stream->capture - (stream->capture > 0); /* 0 is the id of a capture, too */
    return cudaSuccess;
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *n) {
    (void)graph, (void)nodes, (void)edges, (void)n;
    return get_capture(stream, status, id);
}
#elif CUDART_VERSION >= 12000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **nodes, size_t *n) {
    (void)graph, (void)nodes, (void)n;
    return get_capture(stream, status, id);
}
#else
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id) {
    return get_capture(stream, status, id);
}
#endif

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    struct CUevent_st *e = NULL;
    if (flags != cudaEventDisableTiming || lierne_alloc(&e, 1, sizeof *e) != LIERNE_OK) {
        return cudaErrorInvalidValue;
    }
    *event = e;
    events++;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    events--;
    lierne_mem_free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    check(current_device == CONTEXT_DEVICE, "an event is recorded on its device");
    if (stream->capture) {
        event->captured = stream->capture;
        event->within = stream->within;
    } else {
        event->calls = stream->now.calls;
    }
    return result();
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    check(flags == cudaEventRecordExternal && stream->capture, "a node that records");
    event->records = true;
    outside = event;
    return result();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    check(mode == cudaStreamCaptureModeRelaxed, "a query does not spoil another thread's capture");
    return event->calls ? cudaErrorNotReady : result();
}

/* An event that was recorded in a graph is not one that another graph, or a stream, waits for. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    if (!stream->capture) {
        stream->now.calls |= event->calls;
        return flags == 0 ? result() : cudaErrorInvalidValue;
    }
    if (flags == cudaEventWaitExternal) {
        stream->within.waited = true;
        outside = event;
        return result();
    }
    if (event->captured != stream->capture) {
        return cudaErrorStreamCaptureIsolation;
    }
    stream->within.calls |= event->within.calls;
    stream->within.waited |= event->within.waited;
    return result();
}

static lierne_status alloc_host(void **out, size_t bytes) {
    return lierne_alloc(out, 1, bytes);
}

static void free_host(void *memory) {
    lierne_mem_free(memory);
}

const lierne_memory lierne_cuda_memory = {.alloc_host = alloc_host, .free_host = free_host};

cudaError_t lierne_kernel_advance(uint64_t *epoch, cudaStream_t stream) {
    *epoch += stream != NULL;
    return result();
}

lierne_status lierne_cuda_check(cudaError_t error, const char *call) {
    return error == cudaSuccess ? LIERNE_OK : LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "%s", call);
}

lierne_status lierne_cuda_enter(int device, int *previous) {
    *previous = current_device;
    current_device = device;
    return LIERNE_OK;
}

void lierne_cuda_leave(int device, int previous) {
    (void)device;
    current_device = previous;
}

lierne_status lierne_cuda_stream_create(void **stream, int device, bool urgent) {
    (void)device, (void)urgent;
    *stream = NULL;
    return LIERNE_OK;
}

void lierne_cuda_stream_destroy(void *stream) {
    (void)stream;
}

static const lierne_stream_driver *const driver = &lierne_cuda_stream_driver;

/* A call of the execution on a stream; returns its number. */
static int call(struct CUstream_st *stream, void *fence) {
    int number = ncalls++;
    current_device = 1;
    check(driver->begin(stream, fence) == LIERNE_OK, "begin");
    check(current_device == CONTEXT_DEVICE, "work is enqueued on the context's device");
    place *at = stream->capture ? &stream->within : &stream->now;
    calls[number].in_graph = stream->capture;
    calls[number].before = *at;
    at->calls |= 1u << number;
    check(driver->finish(stream, fence) == LIERNE_OK, "finish");
    check(current_device == 1, "the caller's device is what it was");
    return number;
}

static bool is_after(int later, int earlier) {
    return calls[later].before.calls & 1u << earlier;
}

static void capture(struct CUstream_st *streams, int n) {
    static unsigned long long last;
    last++;
    for (int i = 0; i < n; i++) {
        streams[i].capture = last;
        streams[i].within = (place){0};
    }
}

static void end_capture(struct CUstream_st *streams, int n) {
    for (int i = 0; i < n; i++) {
        streams[i].capture = 0;
    }
}

/* What a launch of the graph that was captured last waits for, and records. */
static unsigned launch(int first) {
    unsigned before = outside ? outside->calls : 0;
    if (outside && outside->records) {
        outside->calls |= before | 1u << first;
    }
    return before;
}

static void outside_graphs(void *fence) {
    struct CUstream_st s[2] = {0};
    int a = call(&s[0], fence), b = call(&s[1], fence), c = call(&s[1], fence);
    int d = call(&s[0], fence);
    check(is_after(b, a) && is_after(c, b) && is_after(d, c), "calls on two streams");
}

static void within_one(void *fence) {
    struct CUstream_st s[3] = {0};
    capture(s, 2);
    int a = call(&s[0], fence), b = call(&s[1], fence), plain = call(&s[2], fence);
    int c = call(&s[0], fence), d = call(&s[1], fence);
    end_capture(s, 2);
    check(is_after(b, a), "calls on two streams of a capture");
    check(is_after(c, b) && is_after(d, c),
          "a call outside does not cut the order of those within");
    check(calls[a].before.waited && outside && outside->records,
          "a graph waits for the calls before its launch, and is waited for");
    check(launch(a) & 1u << plain, "a graph comes after a call that was begun before its launch");
    int after = call(&s[2], fence);
    check(is_after(after, a), "a call comes after a graph that was launched before");
}

static void in_two(void *fence) {
    struct CUstream_st s[1] = {0};
    capture(s, 1);
    int a = call(s, fence);
    end_capture(s, 1);
    capture(s, 1);
    int b = call(s, fence);
    end_capture(s, 1);
    launch(a);
    check(calls[b].before.waited && launch(b) & 1u << a, "one graph after the other");
}

/* The first one's next call would not know the one before it. */
static void overlapping(void *fence) {
    struct CUstream_st s[2] = {0};
    capture(&s[0], 1);
    call(&s[0], fence);
    capture(&s[1], 1);
    call(&s[1], fence);
    current_device = 1;
    check(driver->begin(&s[0], fence) == LIERNE_ERR_UNSUPPORTED && current_device == 1,
          "a capture that goes on after another one is rejected");
    call(&s[1], fence);
    capture(s, 1);
    call(&s[0], fence);
}

static void run(void (*scene)(void *fence)) {
    void *fence = NULL;
    ncalls = 0;
    outside = NULL;
    current_device = CONTEXT_DEVICE;
    check(driver->fence_create(&fence) == LIERNE_OK, "a fence");
    scene(fence);
    driver->fence_destroy(fence);
    check(events == 0 && lierne_mem_live() == 0, "nothing is left");
}

/* Whatever fails, the device is the caller's again. */
static void errors(void *fence) {
    struct CUstream_st s = {0};
    call(&s, fence);
    fails = true;
    check(driver->begin(&s, fence) == LIERNE_ERR_TRANSPORT && current_device == 1,
          "a begin that fails");
    fails = false;
    check(driver->begin(&s, fence) == LIERNE_OK, "begin");
    fails = true;
    check(driver->finish(&s, fence) == LIERNE_ERR_TRANSPORT && current_device == 1,
          "a finish that fails");
    fails = false;
}

static void marks(void *fence) {
    struct CUstream_st s = {.now = {.calls = 1}};
    void *event = NULL;
    bool passed = false;
    (void)fence;
    check(driver->event_create(&event) == LIERNE_OK, "an event");
    check(driver->event_query(event, &passed) == LIERNE_OK && passed, "one that is not recorded");
    check(driver->event_record(&s, event) == LIERNE_OK && current_device == CONTEXT_DEVICE,
          "recording leaves the device alone");
    current_device = 1;
    check(driver->event_query(event, &passed) == LIERNE_OK && !passed && current_device == 1 &&
              mode == cudaStreamCaptureModeGlobal,
          "a query leaves the device and the mode of captures alone");
    driver->event_destroy(event);
    lierne_context context = {.memory = &lierne_cuda_memory};
    lierne_epochs *epochs = NULL;
    check(driver->epochs_create(&epochs, &context, 2) == LIERNE_OK && epochs[1].begun == 0,
          "epochs");
    check(driver->advance(&s, &epochs[1].ended) == LIERNE_OK && epochs[1].ended == 1 &&
              epochs[0].begun == 0 && epochs[0].ended == 0,
          "a step that advances one");
    driver->epochs_destroy(epochs, &context);
    driver->enter_thread(2);
    check(current_device == 2 && mode == cudaStreamCaptureModeRelaxed, "a thread of lierne's own");
    mode = cudaStreamCaptureModeGlobal;
}

int main(void) {
    run(outside_graphs);
    run(within_one);
    run(in_two);
    run(overlapping);
    run(errors);
    run(marks);
    return print_checks();
}
