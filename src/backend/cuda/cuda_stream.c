/* CUDA streams. A begin runs the steps of the executor on the host, and each of them enqueues
 * kernels and messages: nothing waits, and the stream has their order.
 *
 * Two calls of one execution use the same scratch and staging. On one stream they follow each
 * other; on two, an event makes the second wait on the device. A call that is captured waits for
 * that event, and records it, in nodes of the graph: so its replays have their place among the
 * other calls. Two calls within one capture cannot use these nodes, which know only other launches;
 * a second event is an edge between them. */
#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/launch_tasks.h"
#include "runtime/context/context.h"

#include <string.h>

/* An event and the device that it belongs to; events and streams of two devices do not go together.
 */
typedef struct event {
    cudaEvent_t event;
    int device;
    int previous; /* of a fence: the device that was current when the running call began */
    bool recorded;
    cudaEvent_t within;          /* of a fence: the last call that was captured */
    unsigned long long captured; /* the capture that it was in, as find_capture says; 0: none */
    unsigned long long earlier;  /* the one before */
} event;

/* *capture: 1 more than the id of the capture that a stream is in; 0: it is in none that goes on.
 */
static cudaError_t find_capture(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                unsigned long long *capture) {
    unsigned long long id = 0;
#if CUDART_VERSION >= 13000
    cudaError_t error = cudaStreamGetCaptureInfo(stream, status, &id, NULL, NULL, NULL, NULL);
#elif CUDART_VERSION >= 12000
    cudaError_t error = cudaStreamGetCaptureInfo(stream, status, &id, NULL, NULL, NULL);
#else
    cudaError_t error = cudaStreamGetCaptureInfo(stream, status, &id);
#endif
    *capture = error == cudaSuccess && *status == cudaStreamCaptureStatusActive ? id + 1 : 0;
    return error;
}

static lierne_status check_stream(const void *stream, int device, bool *captures) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long capture;
    int previous;
    LIERNE_TRY(lierne_cuda_enter(device, &previous));
    cudaError_t error = find_capture((cudaStream_t)stream, &status, &capture);
    lierne_cuda_leave(device, previous);
    *captures = capture > 0;
    if (error == cudaErrorStreamCaptureImplicit) {
        cudaGetLastError();
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "the stream is the default one, which takes no work while another "
                           "stream is being captured into a CUDA graph");
    }
    LIERNE_TRY(lierne_cuda_check(error, "cudaStreamGetCaptureInfo"));
    return status != cudaStreamCaptureStatusInvalidated
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                             "the stream is in a capture into a CUDA graph that an earlier error "
                             "invalidated: end that capture first");
}

static lierne_status event_create(void **out) {
    event *f;
    LIERNE_TRY(lierne_alloc(&f, 1, sizeof *f));
    *out = f;
    LIERNE_TRY(lierne_cuda_check(cudaGetDevice(&f->device), "cudaGetDevice"));
    return lierne_cuda_check(cudaEventCreateWithFlags(&f->event, cudaEventDisableTiming),
                             "cudaEventCreateWithFlags");
}

static void event_destroy(void *self) {
    event *f = self;
    if (f->event) {
        cudaEventDestroy(f->event);
    }
    if (f->within) {
        cudaEventDestroy(f->within);
    }
    lierne_mem_free(f);
}

/* A default stream is that of the device which is current. */
static lierne_status event_record(void *stream, void *self) {
    event *f = self;
    int previous;
    LIERNE_TRY(lierne_cuda_enter(f->device, &previous));
    lierne_status status = lierne_cuda_check(cudaEventRecord(f->event, stream), "cudaEventRecord");
    lierne_cuda_leave(f->device, previous);
    f->recorded |= status == LIERNE_OK;
    return status;
}

/* A thread begins on device 0, where its first call would make a context of hundreds of megabytes.
 */
static void enter_thread(int device) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaSetDevice(device);
    cudaThreadExchangeStreamCaptureMode(&mode);
}

/* While any thread captures a graph, a query is an error and spoils the capture, unless this thread
 * says that the two have nothing to do with each other. */
static cudaError_t query_relaxed(cudaEvent_t mark) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaError_t error = cudaEventQuery(mark);
    cudaThreadExchangeStreamCaptureMode(&mode);
    return error;
}

static lierne_status event_query(void *self, bool *passed) {
    event *f = self;
    int previous;
    *passed = !f->recorded;
    if (!f->recorded) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_cuda_enter(f->device, &previous));
    cudaError_t error = query_relaxed(f->event);
    lierne_cuda_leave(f->device, previous);
    *passed = error == cudaSuccess;
    return error == cudaErrorNotReady ? LIERNE_OK : lierne_cuda_check(error, "cudaEventQuery");
}

static lierne_status wait_for(cudaStream_t stream, cudaEvent_t mark, unsigned flags) {
    return lierne_cuda_check(cudaStreamWaitEvent(stream, mark, flags), "cudaStreamWaitEvent");
}

static lierne_status wait_for_last(cudaStream_t stream, const event *f) {
    enum cudaStreamCaptureStatus status;
    unsigned long long capture;
    LIERNE_TRY(lierne_cuda_check(find_capture(stream, &status, &capture), "finding a capture"));
    if (capture == 0) {
        return f->recorded ? wait_for(stream, f->event, 0) : LIERNE_OK;
    }
    if (capture == f->earlier) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "two captures have calls of this plan at the same time: end one capture "
                           "before another one has such calls");
    }
    return capture == f->captured ? wait_for(stream, f->within, 0)
                                  : wait_for(stream, f->event, cudaEventWaitExternal);
}

static lierne_status begin_fenced(void *stream, void *self) {
    event *f = self;
    LIERNE_TRY(lierne_cuda_enter(f->device, &f->previous));
    lierne_status status = wait_for_last(stream, f);
    if (status != LIERNE_OK) {
        lierne_cuda_leave(f->device, f->previous);
    }
    return status;
}

static lierne_status finish_captured(cudaStream_t stream, event *f) {
    LIERNE_TRY(lierne_cuda_check(cudaEventRecord(f->within, stream), "cudaEventRecord"));
    f->recorded = true;
    return lierne_cuda_check(cudaEventRecordWithFlags(f->event, stream, cudaEventRecordExternal),
                             "cudaEventRecordWithFlags");
}

/* A call outside a capture leaves `captured`: the next one within must find it. */
static lierne_status finish_last(cudaStream_t stream, event *f) {
    enum cudaStreamCaptureStatus status;
    unsigned long long capture;
    LIERNE_TRY(lierne_cuda_check(find_capture(stream, &status, &capture), "finding a capture"));
    if (capture == 0) {
        return event_record(stream, f);
    }
    f->earlier = capture == f->captured ? f->earlier : f->captured;
    f->captured = capture;
    return finish_captured(stream, f);
}

static lierne_status finish(void *stream, void *self) {
    event *f = self;
    lierne_status status = finish_last(stream, f);
    lierne_cuda_leave(f->device, f->previous);
    return status;
}

static lierne_status fence_create(void **out) {
    LIERNE_TRY(event_create(out));
    return lierne_cuda_check(cudaEventCreateWithFlags(&((event *)*out)->within,
                                                      cudaEventDisableTiming),
                             "cudaEventCreateWithFlags");
}

/* Pinned host memory, which a kernel writes and the watchdog reads without a call of CUDA. */
static lierne_status epochs_create(lierne_epochs **out, lierne_context *context, size_t n) {
    void *epochs = NULL;
    LIERNE_TRY(lierne_context_alloc_kept(&epochs, context, n * sizeof **out, true));
    *out = memset(epochs, 0, n * sizeof **out);
    return LIERNE_OK;
}

static void epochs_destroy(lierne_epochs *epochs, lierne_context *context) {
    lierne_context_free_kept(context, epochs, true, true);
}

static lierne_status advance(void *stream, uint64_t *epoch) {
    return lierne_cuda_check(lierne_kernel_advance(epoch, stream), "launching a kernel");
}

static lierne_status stream_wait(void *stream, void *self) {
    const event *f = self;
    return f->recorded ? wait_for(stream, f->event, 0) : LIERNE_OK;
}

const lierne_stream_driver lierne_cuda_stream_driver = {
    .name = "cuda",
    .required = true,
    .detached = true,
    .check = check_stream,
    .fence_create = fence_create,
    .fence_destroy = event_destroy,
    .begin = begin_fenced,
    .finish = finish,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .epochs_create = epochs_create,
    .epochs_destroy = epochs_destroy,
    .advance = advance,
    .stream_create = lierne_cuda_stream_create,
    .stream_destroy = lierne_cuda_stream_destroy,
    .stream_wait = stream_wait,
    .enter_thread = enter_thread,
};
