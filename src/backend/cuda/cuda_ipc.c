/* Windows by descriptors (cuda_vmm.h), and by cudaIpcGetMemHandle where the device or the system
 * refuses those.
 *
 * An older handle is one of a whole allocation, and cudaMalloc puts small ones together in blocks
 * of 2 MiB: so chunks are whole blocks. A process cannot open its own handles, but has the memory
 * already: virtual ranks of one process use the address, which a device of another such rank must
 * be allowed to access. */
#include "backend/cuda/cuda_ipc.h"
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/cuda_vmm.h"
#include "backend/cuda/launch_flags.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK ((size_t)2 << 20)

/* The words of a handle. */
typedef struct words {
    cudaIpcMemHandle_t handle;
    int64_t process;
    int64_t address;
} words;
_Static_assert(sizeof(words) <= sizeof(lierne_ipc_handle), "a handle has the space");

/* A number that no other process of the machine has: process ids repeat between containers. */
static int64_t own_process(void) {
    lierne_rank_info info;
    lierne_rank_info_fill(&info, 0, -1);
    return (int64_t)(info.space * 1000003 + (info.start << 22) + info.process);
}

static words words_of(const lierne_ipc_handle *handle) {
    words w;
    memcpy(&w, handle, sizeof w);
    return w;
}

/* cudaMemcpy would wait for the steps of other streams. */
static lierne_status transfer(void *to, const void *from, size_t bytes, void *stream) {
    LIERNE_TRY(lierne_cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream),
                                 "cudaMemcpyAsync"));
    return lierne_cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

static lierne_status clear(void *memory, size_t bytes, void *stream) {
    LIERNE_TRY(lierne_cuda_check(cudaMemsetAsync(memory, 0, bytes, stream), "cudaMemsetAsync"));
    return lierne_cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

static lierne_status refused(cudaError_t error, const char *call) {
    lierne_status status = lierne_cuda_check(error, call);
    return status == LIERNE_ERR_TRANSPORT ? LIERNE_ERR_UNSUPPORTED : status;
}

/* Loads the kernel of the current device, which would otherwise happen in a call. */
static lierne_status start_memory(void *memory, size_t bytes, void *stream) {
    struct cudaFuncAttributes attributes;
    LIERNE_TRY(refused(cudaFuncGetAttributes(&attributes, lierne_step_kernel),
                       "loading the kernel of flags"));
    return clear(memory, bytes, stream);
}

static lierne_status prepare_words(void *memory, words *w, size_t bytes, void *stream) {
    LIERNE_TRY(start_memory(memory, bytes, stream));
    LIERNE_TRY(refused(cudaIpcGetMemHandle(&w->handle, memory), "cudaIpcGetMemHandle"));
    w->process = own_process();
    w->address = (int64_t)(intptr_t)memory;
    return LIERNE_OK;
}

static lierne_status alloc_window(void **out, lierne_ipc_handle *handle, size_t bytes,
                                  void *stream) {
    words w = {.process = 0};
    LIERNE_TRY(lierne_cuda_check(cudaMalloc(out, bytes), "cudaMalloc"));
    lierne_status status = prepare_words(*out, &w, bytes, stream);
    if (status != LIERNE_OK) {
        cudaFree(*out);
        return status;
    }
    memcpy(handle, &w, sizeof w);
    return LIERNE_OK;
}

/* What a peer has mapped must not be freed before it has unmapped it: then it stays until the
 * process ends. */
static void free_window(void *memory, const lierne_ipc_handle *handle, bool quiet) {
    (void)handle;
    if (quiet) {
        cudaFree(memory);
    }
}

/* Lets the current device access memory of another one; for good, as others may need it, too. */
static lierne_status enable_access(const void *memory) {
    struct cudaPointerAttributes attributes;
    int device;
    LIERNE_TRY(refused(cudaGetDevice(&device), "cudaGetDevice"));
    LIERNE_TRY(refused(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes"));
    cudaError_t error = attributes.device == device
                            ? cudaSuccess
                            : cudaDeviceEnablePeerAccess(attributes.device, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
        cudaGetLastError(); /* others must not find it again */
        return LIERNE_OK;
    }
    return refused(error, "cudaDeviceEnablePeerAccess");
}

static lierne_status open_chunk(void **out, const lierne_ipc_handle *handle, size_t bytes) {
    words w = words_of(handle);
    (void)bytes;
    if (w.process == own_process()) {
        *out = (void *)(intptr_t)w.address;
        return enable_access(*out);
    }
    return refused(cudaIpcOpenMemHandle(out, w.handle, cudaIpcMemLazyEnablePeerAccess),
                   "cudaIpcOpenMemHandle");
}

static void close_chunk(void *memory, const lierne_ipc_handle *handle, int device) {
    int previous;
    if (words_of(handle).process != own_process() &&
        lierne_cuda_enter(device, &previous) == LIERNE_OK) {
        cudaIpcCloseMemHandle(memory);
        lierne_cuda_leave(device, previous);
    }
}

static lierne_cuda_share share_of(const lierne_ipc_handle *handle) {
    lierne_cuda_share share;
    memcpy(&share, handle, sizeof share);
    return share;
}
_Static_assert(sizeof(lierne_cuda_share) <= sizeof(lierne_ipc_handle), "a share has the space");

static void free_shared(void *memory, const lierne_ipc_handle *handle, bool quiet) {
    const lierne_cuda_share share = share_of(handle);
    if (quiet) {
        lierne_cuda_vmm_free(memory, &share);
    } else {
        lierne_cuda_vmm_withdraw(&share);
    }
}

static lierne_status alloc_shared(void **out, lierne_ipc_handle *handle, size_t bytes,
                                  void *stream) {
    lierne_cuda_share share;
    int device;
    LIERNE_TRY(lierne_cuda_check(cudaGetDevice(&device), "cudaGetDevice"));
    LIERNE_TRY(lierne_cuda_vmm_alloc(out, &share, bytes, device));
    memcpy(handle, &share, sizeof share);
    lierne_status status = start_memory(*out, bytes, stream);
    if (status != LIERNE_OK) {
        free_shared(*out, handle, true);
    }
    return status;
}

static lierne_status open_shared(void **out, const lierne_ipc_handle *handle, size_t bytes) {
    const lierne_cuda_share share = share_of(handle);
    int device;
    (void)bytes;
    LIERNE_TRY(lierne_cuda_check(cudaGetDevice(&device), "cudaGetDevice"));
    return lierne_cuda_vmm_open(out, &share, device);
}

static void close_shared(void *memory, const lierne_ipc_handle *handle, int device) {
    const lierne_cuda_share share = share_of(handle);
    int previous;
    if (lierne_cuda_enter(device, &previous) == LIERNE_OK) {
        lierne_cuda_vmm_close(memory, &share);
        lierne_cuda_leave(device, previous);
    }
}

/* As the driver reads it. */
static int count_queues(void) {
    const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    int n = text ? atoi(text) : 0;
    return n >= 1 && n <= 32 ? n : 8;
}

static void wait_for_device(int device) {
    int previous;
    if (lierne_cuda_enter(device, &previous) == LIERNE_OK) {
        cudaDeviceSynchronize();
        lierne_cuda_leave(device, previous);
    }
}

static lierne_status alloc_words(lierne_ipc_words **out) {
    void *memory;
    LIERNE_TRY(lierne_cuda_memory.alloc_host(&memory, sizeof **out));
    *out = memory;
    **out = (lierne_ipc_words){0};
    return LIERNE_OK;
}

static void free_words(lierne_ipc_words *w) {
    lierne_cuda_memory.free_host(w);
}

static lierne_status copy_window(void *to, const void *from, size_t bytes, void *stream,
                                 int device) {
    int previous;
    LIERNE_TRY(lierne_cuda_enter(device, &previous));
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
    lierne_cuda_leave(device, previous);
    return lierne_cuda_check(error, "cudaMemcpyAsync");
}

static lierne_status run_step(const lierne_ipc_step *step, void *stream, int device) {
    int previous;
    LIERNE_TRY(lierne_cuda_enter(device, &previous));
    void *arguments[] = {(void *)step};
    cudaError_t error = cudaLaunchKernel(lierne_step_kernel, (dim3){1, 1, 1},
                                         (dim3){(unsigned)step->n, 1, 1}, arguments, 0, stream);
    lierne_cuda_leave(device, previous);
    return lierne_cuda_check(error, "launching the kernel of flags");
}

#define ON_STREAMS                                                                                 \
    .granule = BLOCK, .count_queues = count_queues, .write = transfer, .read = transfer,           \
    .alloc_words = alloc_words, .free_words = free_words, .wait = wait_for_device,                 \
    .copy = copy_window, .run = run_step
const lierne_ipc_driver lierne_cuda_vmm_driver = {.shares = "descriptors",
                                                  ON_STREAMS,
                                                  .alloc = alloc_shared,
                                                  .free = free_shared,
                                                  .open = open_shared,
                                                  .close = close_shared};
const lierne_ipc_driver lierne_cuda_ipc_driver = {.shares = "handles of CUDA IPC",
                                                  ON_STREAMS,
                                                  .alloc = alloc_window,
                                                  .free = free_window,
                                                  .open = open_chunk,
                                                  .close = close_chunk};
