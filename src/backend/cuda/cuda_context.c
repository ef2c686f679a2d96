/* Contexts for device memory, and what CUDA there is. */
#include "backend/cuda/cuda_ipc.h"
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/cuda_ranges.h"
#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/ipc_context.h"
#include "backend/cuda/launch_tasks.h"
#include "lierne/cuda.h"
#include "runtime/context/watchdog.h"

#include <stdio.h>

/* The current device, and a stream of lierne's own on it: one that waits for none of the caller's,
 * as the default streams of CUDA do for each other. Kernels are loaded now, because that may wait
 * for the device, and so for other ranks. */
static lierne_status start_device(int *device, void **stream) {
    LIERNE_TRY(lierne_cuda_check(cudaGetDevice(device), "cudaGetDevice"));
    LIERNE_TRY(lierne_cuda_check(lierne_kernel_load(), "loading the kernels"));
    return lierne_cuda_stream_create(stream, *device, false);
}

/* Everything that can fail on this rank alone. */
static lierne_status prepare_device(const lierne_context *context, int *device, void **stream) {
    if (context->nplans > 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: %zu plans of the context are alive, must be 0: choose the "
                           "memory before the first plan",
                           context->rank, context->nplans);
    }
    if (context->last_group_uid > 0 && !context->own_stream) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: groups were created before: call it before "
                           "lierne_group_create, after which windows would have one order of "
                           "messages for all groups",
                           context->rank);
    }
    lierne_status status = start_device(device, stream);
    return status == LIERNE_OK
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "rank %d: no CUDA device can be used: %s",
                             context->rank, lierne_error_text());
}

/* With the context, not with its first plan: it lives as long, and plans leave nothing behind. */
static lierne_status start_watchdog(lierne_context *context, int device) {
    if (context->own_stream) {
        return LIERNE_OK; /* an earlier call did */
    }
    context->device = device;
    LIERNE_TRY(lierne_context_reserve_kept(context));
    return lierne_watchdog_create(context, lierne_cuda_stream_driver.enter_thread);
}

/* What opens and fills them works on the context's own stream. */
static lierne_status open_windows(lierne_context *context, void *stream) {
    context->own_stream = stream;
    LIERNE_TRY(lierne_context_open_ipc(context, &lierne_cuda_vmm_driver));
    return lierne_context_open_ipc(context, &lierne_cuda_ipc_driver);
}

/* What a call that fails, or one that is not the first, has made. */
static void drop_stream(lierne_context *context, void *stream, bool again) {
    if (stream) {
        lierne_cuda_stream_destroy(stream);
    }
    if (!again) {
        context->own_stream = NULL;
        lierne_watchdog_destroy(context->watchdog);
        context->watchdog = NULL;
    }
}

lierne_status lierne_context_use_cuda(lierne_context *context) {
    LIERNE_PUBLIC_CALL();
    const lierne_field fields[1] = {{.name = "lierne_context_use_cuda"}};
    if (!context) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "context is NULL");
    }
    LIERNE_TRY(lierne_context_alive(context));
    int device = 0;
    void *stream = NULL;
    lierne_status status = prepare_device(context, &device, &stream);
    status = status == LIERNE_OK ? start_watchdog(context, device) : status;
    status = lierne_context_agree_all(context, status, fields, 1, NULL);
    bool again = context->own_stream != NULL;
    if (status == LIERNE_OK && !again) {
        status = open_windows(context, stream);
    }
    if (status != LIERNE_OK || again) {
        drop_stream(context, stream, again);
        return status;
    }
    context->destroy_own_stream = lierne_cuda_stream_destroy;
    context->memory = &lierne_cuda_memory;
    context->stream_driver = &lierne_cuda_stream_driver;
    context->ranges = lierne_cuda_find_ranges();
    return LIERNE_OK;
}

/* Continues text of size bytes, `used` of them used. */
static size_t add_device(char *text, size_t size, size_t used, int device) {
    struct cudaDeviceProp p;
    if (used >= size || cudaGetDeviceProperties(&p, device) != cudaSuccess) {
        return used;
    }
    return used + (size_t)snprintf(text + used, size - used, "; device %d: %s, sm_%d%d, %zu MiB%s",
                                   device, p.name, p.major, p.minor, p.totalGlobalMem >> 20,
                                   p.unifiedAddressing ? ", ipc" : "");
}

lierne_status lierne_cuda_get_summary(char *text, size_t size) {
    LIERNE_PUBLIC_CALL();
    int runtime = 0, driver = 0, devices = 0;
    if (!text || size == 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "text is NULL or size is 0");
    }
    cudaRuntimeGetVersion(&runtime);
    cudaDriverGetVersion(&driver);
    cudaError_t error = cudaGetDeviceCount(&devices);
    size_t used =
        (size_t)snprintf(text, size, "CUDA runtime %d.%d, ", runtime / 1000, runtime % 1000 / 10);
    if (used < size && driver == 0) {
        used += (size_t)snprintf(text + used, size - used, "no driver");
    } else if (used < size) {
        used += (size_t)snprintf(text + used, size - used, "driver for %d.%d", driver / 1000,
                                 driver % 1000 / 10);
    }
    if (used < size && !lierne_cuda_has_ranges) {
        used += (size_t)snprintf(text + used, size - used, ", built without NVTX");
    }
    if (used < size && error != cudaSuccess) {
        used += (size_t)snprintf(text + used, size - used, ": %s", cudaGetErrorString(error));
    }
    cudaGetLastError();
    for (int i = 0; i < devices; i++) {
        used = add_device(text, size, used, i);
    }
    return LIERNE_OK;
}
