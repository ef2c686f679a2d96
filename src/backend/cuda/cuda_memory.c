/* Device memory. While planning, a program becomes one allocation on the device: tasks, blocks and
 * lists. In a call only addresses travel, as arguments of the launch. A program that changes has
 * two copies in pinned memory as well, from which a stream takes the next one when it has passed
 * the calls before: ordinary memory would make the host wait for that. Each copy is written again
 * two changes later, and only where the stream has not got that far does the host wait.
 *
 * A launch of nothing but contiguous copies goes to the copy engine, which leaves the processors to
 * the program's kernels. Many short ones are one kernel instead: a copy costs the host a
 * microsecond or two each. */
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/launch_changes.h"
#include "backend/cuda/launch_tasks.h"

#include <string.h>
#include <time.h>

#define MOST_COPIES 8 /* of a launch, for the copy engine */

typedef struct device_program {
    char *memory;
    size_t capacity;
    lierne_task_table table;
    cudaEvent_t taken[2]; /* of one that changes: a stream has passed what reads a copy */
    int next;             /* of the copies */
} device_program;

lierne_status lierne_cuda_check(cudaError_t error, const char *call) {
    if (error == cudaSuccess) {
        return LIERNE_OK;
    }
    cudaGetLastError(); /* an error that is not sticky must not be found again by others */
    return LIERNE_FAIL(error == cudaErrorMemoryAllocation ? LIERNE_ERR_NO_MEMORY
                                                          : LIERNE_ERR_TRANSPORT,
                       "%s: %s (%s)", call, cudaGetErrorName(error), cudaGetErrorString(error));
}

static lierne_status alloc_device(void **out, size_t bytes) {
    *out = NULL;
    return lierne_cuda_check(cudaMalloc(out, bytes ? bytes : 1), "cudaMalloc");
}

static void free_device(void *memory) {
    cudaFree(memory);
}

/* Some devices have no pools of memory: cudaMalloc then, whose free waits. */
static lierne_status alloc_ordered(void **out, size_t bytes, void *stream) {
    *out = NULL;
    cudaError_t error = cudaMallocAsync(out, bytes ? bytes : 1, stream);
    if (error == cudaErrorNotSupported) {
        cudaGetLastError();
        return alloc_device(out, bytes);
    }
    LIERNE_TRY(lierne_cuda_check(error, "cudaMallocAsync"));
    return lierne_cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

static void free_ordered(void *memory, void *stream) {
    if (memory && cudaFreeAsync(memory, stream) != cudaSuccess) {
        cudaGetLastError();
        cudaFree(memory);
    }
}

static lierne_status alloc_host(void **out, size_t bytes) {
    *out = NULL;
    return lierne_cuda_check(cudaHostAlloc(out, bytes ? bytes : 1, cudaHostAllocPortable),
                             "cudaHostAlloc");
}

static void release_host(void *memory) {
    cudaFreeHost(memory);
}

lierne_status lierne_cuda_enter(int device, int *previous) {
    LIERNE_TRY(lierne_cuda_check(cudaGetDevice(previous), "cudaGetDevice"));
    return *previous == device ? LIERNE_OK
                               : lierne_cuda_check(cudaSetDevice(device), "cudaSetDevice");
}

void lierne_cuda_leave(int device, int previous) {
    if (previous != device) {
        cudaSetDevice(previous);
    }
}

static lierne_status create_stream(cudaStream_t *stream, bool urgent) {
    int least = 0, greatest = 0;
    LIERNE_TRY(lierne_cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                                 "cudaDeviceGetStreamPriorityRange"));
    return lierne_cuda_check(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking,
                                                          urgent ? greatest : least),
                             "cudaStreamCreateWithPriority");
}

lierne_status lierne_cuda_stream_create(void **out, int device, bool urgent) {
    int previous;
    cudaStream_t stream = NULL;
    LIERNE_TRY(lierne_cuda_enter(device, &previous));
    lierne_status status = create_stream(&stream, urgent);
    lierne_cuda_leave(device, previous);
    *out = stream;
    return status;
}

lierne_status lierne_cuda_stream_idle(bool *idle, void *stream) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaError_t error = cudaStreamQuery(stream);
    cudaThreadExchangeStreamCaptureMode(&mode);
    *idle = error == cudaSuccess;
    return error == cudaErrorNotReady ? LIERNE_OK : lierne_cuda_check(error, "cudaStreamQuery");
}

void lierne_cuda_stream_destroy(void *stream) {
    cudaStreamDestroy(stream);
}

static const char *what_is(const struct cudaPointerAttributes *a) {
    return a->type == cudaMemoryTypeUnregistered ? "ordinary host memory"
           : a->type == cudaMemoryTypeDevice     ? "memory of a device that this one cannot access"
                                                 : "memory with another address on the device";
}

/* The device's own address of a buffer, NULL where it cannot access it, tells all cases. */
static lierne_status check_buffer(const void *buffer, size_t align, int device, const char *name) {
    struct cudaPointerAttributes attributes;
    int previous;
    LIERNE_TRY(lierne_cuda_enter(device, &previous));
    cudaError_t error = cudaPointerGetAttributes(&attributes, buffer);
    lierne_cuda_leave(device, previous);
    LIERNE_TRY(lierne_cuda_check(error, "cudaPointerGetAttributes"));
    if (attributes.type == cudaMemoryTypeUnregistered || attributes.devicePointer != buffer) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "%s is %s (%p), must be memory that device %d reads and writes: of "
                           "cudaMalloc, cudaMallocManaged or cudaHostAlloc",
                           name, what_is(&attributes), buffer, device);
    }
    return (uintptr_t)buffer % align == 0
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                             "%s is at address %p, must be a multiple of the %zu bytes of an "
                             "element",
                             name, buffer, align);
}

/* Space for a program; no call reads the last one any more. */
static lierne_status reserve_program(device_program *d, size_t bytes, void *stream) {
    if (bytes <= d->capacity) {
        return LIERNE_OK;
    }
    free_ordered(d->memory, stream);
    d->memory = NULL;
    d->capacity = 0;
    void *memory = NULL;
    LIERNE_TRY(alloc_ordered(&memory, bytes, stream));
    d->memory = memory;
    d->capacity = bytes;
    return LIERNE_OK;
}

/* On a stream that is waited for: cudaMemcpy may return before ordinary host memory has reached the
 * device, and a stream that does not wait for the default one would read too early. */
static lierne_status upload(char *to, const void *from, size_t bytes, cudaStream_t stream) {
    return bytes == 0
               ? LIERNE_OK
               : lierne_cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream),
                                   "cudaMemcpyAsync");
}

static lierne_status upload_program(const lierne_program *p, const device_program *d,
                                    cudaStream_t stream) {
    LIERNE_TRY(upload(d->memory, p->tasks.at, p->tasks.count * sizeof *p->tasks.at, stream));
    LIERNE_TRY(upload((char *)d->table.blocks, p->blocks.at, p->blocks.count * sizeof *p->blocks.at,
                      stream));
    LIERNE_TRY(
        upload((char *)d->table.lists, p->lists.at, p->lists.count * sizeof *p->lists.at, stream));
    return lierne_cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

static void place_tables(const lierne_program *p, device_program *d) {
    size_t tasks = p->tasks.count * sizeof *p->tasks.at;
    size_t blocks = p->blocks.count * sizeof *p->blocks.at;
    d->table = (lierne_task_table){(const lierne_task *)(const void *)d->memory,
                                   (const lierne_task_block *)(const void *)(d->memory + tasks),
                                   (const int64_t *)(const void *)(d->memory + tasks + blocks)};
}

static lierne_status prepare_program(lierne_program *p, void *stream) {
    device_program *d = p->device;
    size_t bytes = lierne_program_bytes(p);
    if (!d) {
        LIERNE_TRY(lierne_alloc(&d, 1, sizeof *d));
        p->device = d;
    }
    LIERNE_TRY(reserve_program(d, (bytes > p->reserved ? bytes : p->reserved) + 1, stream));
    place_tables(p, d);
    return upload_program(p, d, stream);
}

static void copy_bytes(char *to, const void *from, size_t bytes) {
    if (bytes > 0) {
        memcpy(to, from, bytes);
    }
}

/* Also while some thread captures a graph. */
static lierne_status wait_until_taken(cudaEvent_t taken) {
    const struct timespec nap = {.tv_nsec = 20000};
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaError_t error = cudaEventQuery(taken);
    while (error == cudaErrorNotReady) {
        nanosleep(&nap, NULL);
        error = cudaEventQuery(taken);
    }
    cudaThreadExchangeStreamCaptureMode(&mode);
    return lierne_cuda_check(error, "cudaEventQuery");
}

static lierne_status stage_program(lierne_program *p) {
    device_program *d = p->device;
    char *copy = p->copies[d->next];
    size_t tasks = p->tasks.count * sizeof *p->tasks.at;
    size_t blocks = p->blocks.count * sizeof *p->blocks.at;
    LIERNE_TRY(d->taken[d->next] ? wait_until_taken(d->taken[d->next]) : LIERNE_OK);
    copy_bytes(copy, p->tasks.at, tasks);
    copy_bytes(copy + tasks, p->blocks.at, blocks);
    copy_bytes(copy + tasks + blocks, p->lists.at, p->lists.count * sizeof *p->lists.at);
    place_tables(p, d);
    return LIERNE_OK;
}

static lierne_status renew_program(lierne_program *p, void *stream) {
    device_program *d = p->device;
    int copy = d->next;
    d->next = !copy;
    if (!d->taken[copy]) {
        /* On the device of the stream, which is another one than the caller's in an update. */
        LIERNE_TRY(
            lierne_cuda_check(cudaEventCreateWithFlags(&d->taken[copy], cudaEventDisableTiming),
                              "cudaEventCreateWithFlags"));
    }
    LIERNE_TRY(upload(d->memory, p->copies[copy], lierne_program_bytes(p), stream));
    return lierne_cuda_check(cudaEventRecord(d->taken[copy], stream), "cudaEventRecord");
}

static void discard(lierne_program *p, void *stream) {
    device_program *d = p->device;
    if (d) {
        for (int i = 0; i < 2; i++) {
            if (d->taken[i]) {
                cudaEventDestroy(d->taken[i]);
            }
        }
        free_ordered(d->memory, stream);
        lierne_mem_free(d);
    }
    p->device = NULL;
}

/* A task whose target is no buffer of the call has nothing to do; nor has one within its place. */
static lierne_status copy_contiguous(const lierne_program *p, const lierne_task_launch *l,
                                     const lierne_task_call *call, cudaStream_t stream) {
    for (int64_t i = l->first; i < l->end; i++) {
        const lierne_task *t = &p->tasks.at[i];
        const lierne_task_block *b = &p->blocks.at[t->block];
        char *to = call->bases[b[0].base];
        const char *from = call->bases[b[1].base] + b[1].offset;
        if (to && to + b[0].offset != from) {
            LIERNE_TRY(lierne_cuda_check(cudaMemcpyAsync(to + b[0].offset, from,
                                                         (size_t)(t->elements * t->size),
                                                         cudaMemcpyDefault, stream),
                                         "cudaMemcpyAsync"));
        }
    }
    return LIERNE_OK;
}

static lierne_status launch(const lierne_program *p, size_t number, const lierne_task_call *call,
                            void *stream) {
    const lierne_task_launch *l = &p->launches.at[number];
    const device_program *d = p->device;
    if (l->contiguous && l->end - l->first <= MOST_COPIES) {
        return copy_contiguous(p, l, call, stream);
    }
    const lierne_kernel_tasks tasks = {l->first, l->end, l->tiles, l->dtype};
    return lierne_cuda_check(lierne_kernel_launch(&d->table, call, &tasks, stream),
                             "launching a kernel");
}

static lierne_status change(const lierne_change_call *call, bool make, void *stream) {
    const void *kernel = make ? lierne_make_changes_kernel : lierne_find_changes_kernel;
    return lierne_cuda_check(lierne_kernel_change(kernel, call, stream), "launching a kernel");
}

/* Calls without a stream are rejected, and no transport exposes device memory: so nothing is done
 * block by block. */
const lierne_memory lierne_cuda_memory = {
    .name = "cuda",
    .alloc = alloc_device,
    .free = free_device,
    .alloc_ordered = alloc_ordered,
    .free_ordered = free_ordered,
    .free_waits = true,
    .alloc_host = alloc_host,
    .free_host = release_host,
    .check = check_buffer,
    .prepare = prepare_program,
    .stage = stage_program,
    .renew = renew_program,
    .discard = discard,
    .launch = launch,
    .change = change,
};
