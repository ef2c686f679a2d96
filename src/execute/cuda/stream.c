/* CUDA streams. A begin runs the steps of the executor on the host, and each of them enqueues
 * kernels and messages: nothing waits, and the stream has their order.
 *
 * Two calls of one execution use the same scratch and staging. On one stream they follow each
 * other; on two, an event makes the second wait on the device. */
#include "execute/cuda/stream.h"
#include "memory/cuda/memory.h"

typedef struct fence {
    cudaEvent_t event; /* the end of the last call */
    int device;
    int previous; /* the device that was current when the running call began */
    bool recorded;
} fence;

static lierne_status check(const void *stream) {
    enum cudaStreamCaptureStatus status;
    LIERNE_TRY(lierne_cuda_check(cudaStreamIsCapturing((cudaStream_t)stream, &status),
                                 "cudaStreamIsCapturing"));
    return status == cudaStreamCaptureStatusNone
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_UNSUPPORTED,
                             "the stream is being captured into a CUDA graph: a replay would know "
                             "no deadline and none of the calls between; end the capture first");
}

static lierne_status fence_create(void **out) {
    fence *f;
    LIERNE_TRY(lierne_alloc(&f, 1, sizeof *f));
    *out = f;
    LIERNE_TRY(lierne_cuda_check(cudaGetDevice(&f->device), "cudaGetDevice"));
    return lierne_cuda_check(cudaEventCreateWithFlags(&f->event, cudaEventDisableTiming),
                             "cudaEventCreate");
}

static void fence_destroy(void *self) {
    fence *f = self;
    if (f->event) {
        cudaEventDestroy(f->event);
    }
    lierne_mem_free(f);
}

static lierne_status begin(void *stream, void *self) {
    fence *f = self;
    LIERNE_TRY(lierne_cuda_check(cudaGetDevice(&f->previous), "cudaGetDevice"));
    if (f->previous != f->device) {
        LIERNE_TRY(lierne_cuda_check(cudaSetDevice(f->device), "cudaSetDevice"));
    }
    return f->recorded
               ? lierne_cuda_check(cudaStreamWaitEvent(stream, f->event, 0), "cudaStreamWaitEvent")
               : LIERNE_OK;
}

static lierne_status finish(void *stream, void *self) {
    fence *f = self;
    lierne_status status = lierne_cuda_check(cudaEventRecord(f->event, stream), "cudaEventRecord");
    f->recorded |= status == LIERNE_OK;
    if (f->previous != f->device) {
        cudaSetDevice(f->previous);
    }
    return status;
}

const lierne_stream_driver lierne_cuda_stream_driver = {
    .name = "cuda",
    .required = true,
    .check = check,
    .fence_create = fence_create,
    .fence_destroy = fence_destroy,
    .begin = begin,
    .finish = finish,
};
