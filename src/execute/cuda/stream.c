/* CUDA streams. A begin runs the steps of the executor on the host, and each of them enqueues
 * kernels and messages: nothing waits, and the stream has their order.
 *
 * Two calls of one execution use the same scratch and staging. On one stream they follow each
 * other; on two, an event makes the second wait on the device. */
#include "execute/cuda/stream.h"
#include "memory/cuda/memory.h"

/* An event and the device that it belongs to; events and streams of two devices do not go together.
 */
typedef struct event {
    cudaEvent_t event;
    int device;
    int previous; /* of a fence: the device that was current when the running call began */
    bool recorded;
} event;

static lierne_status check(const void *stream) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaStreamIsCapturing((cudaStream_t)stream, &status);
    if (error == cudaErrorStreamCaptureImplicit) {
        cudaGetLastError();
        return LIERNE_FAIL(LIERNE_UNSUPPORTED,
                           "the stream is the default one, which takes no work while another "
                           "stream is being captured into a CUDA graph");
    }
    LIERNE_TRY(lierne_cuda_check(error, "cudaStreamIsCapturing"));
    return status == cudaStreamCaptureStatusNone
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_UNSUPPORTED,
                             "the stream is being captured into a CUDA graph: a replay would know "
                             "no deadline and none of the calls between; end the capture first");
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
    lierne_mem_free(f);
}

/* Between begin and finish, on the event's device. */
static lierne_status event_record(void *stream, void *self) {
    event *f = self;
    lierne_status status = lierne_cuda_check(cudaEventRecord(f->event, stream), "cudaEventRecord");
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

static lierne_status begin(void *stream, void *self) {
    event *f = self;
    LIERNE_TRY(lierne_cuda_enter(f->device, &f->previous));
    lierne_status status = f->recorded ? lierne_cuda_check(cudaStreamWaitEvent(stream, f->event, 0),
                                                           "cudaStreamWaitEvent")
                                       : LIERNE_OK;
    if (status != LIERNE_OK) {
        lierne_cuda_leave(f->device, f->previous);
    }
    return status;
}

static lierne_status finish(void *stream, void *self) {
    event *f = self;
    lierne_status status = event_record(stream, f);
    lierne_cuda_leave(f->device, f->previous);
    return status;
}

const lierne_stream_driver lierne_cuda_stream_driver = {
    .name = "cuda",
    .required = true,
    .detached = true,
    .check = check,
    .fence_create = event_create,
    .fence_destroy = event_destroy,
    .begin = begin,
    .finish = finish,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .enter_thread = enter_thread,
};
