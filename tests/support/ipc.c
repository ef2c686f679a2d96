/* Chunks are files in memory, which other processes open through /proc. Nothing of them is counted
 * as lierne's memory, so that leaks of the transport can be told. */
#include "ipc.h"

#include "device_streams.h"
#include "tasks.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static atomic_int live, unquiet, fail_open;
static _Thread_local int writes;

int test_ipc_live(void) {
    return atomic_load(&live);
}

int test_ipc_unquiet(void) {
    return atomic_load(&unquiet);
}

int test_ipc_writes(void) {
    return writes;
}

void test_ipc_fail_open(int k) {
    atomic_store(&fail_open, k);
}

static lierne_status map(void **memory, int descriptor, size_t bytes) {
    *memory = descriptor < 0 ? MAP_FAILED
                             : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    atomic_fetch_add(&live, *memory != MAP_FAILED);
    return *memory != MAP_FAILED ? LIERNE_OK
                                 : LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "no shared memory");
}

/* Words of a handle: process, descriptor, bytes. */
static lierne_status alloc(void **memory, lierne_ipc_handle *handle, size_t bytes, void *stream) {
    (void)stream;
    int descriptor = memfd_create("lierne-test", MFD_CLOEXEC);
    *handle = (lierne_ipc_handle){{getpid(), descriptor, (int64_t)bytes}};
    return ftruncate(descriptor, (off_t)bytes) == 0 ? map(memory, descriptor, bytes)
                                                    : LIERNE_FAIL(LIERNE_ERR_NO_MEMORY, "memfd");
}

static void close_chunk(void *memory, const lierne_ipc_handle *handle, int device) {
    (void)device;
    munmap(memory, (size_t)handle->words[2]);
    atomic_fetch_sub(&live, 1);
}

static void release(void *memory, const lierne_ipc_handle *handle, bool quiet) {
    atomic_fetch_add(&unquiet, !quiet);
    close((int)handle->words[1]);
    close_chunk(memory, handle, 0);
}

static lierne_status open_chunk(void **memory, const lierne_ipc_handle *handle, size_t bytes) {
    char path[64];
    if (atomic_load(&fail_open) > 0 && atomic_fetch_sub(&fail_open, 1) == 1) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "the device does not map what others share");
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)handle->words[0], (int)handle->words[1]);
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    lierne_status status = map(memory, descriptor, bytes);
    close(descriptor);
    return status;
}

static lierne_status transfer(void *to, const void *from, size_t bytes, void *stream) {
    (void)stream;
    memcpy(to, from, bytes);
    return LIERNE_OK;
}

static lierne_status write_window(void *to, const void *from, size_t bytes, void *stream) {
    writes++;
    return transfer(to, from, bytes, stream);
}

static void wait_for_device(int device) {
    (void)device;
}

static lierne_status alloc_words(lierne_ipc_words **words) {
    return lierne_alloc(words, 1, sizeof **words);
}

static void free_words(lierne_ipc_words *words) {
    lierne_mem_free(words);
}

static lierne_status copy(void *to, const void *from, size_t bytes, void *stream, int device) {
    (void)device;
    return transfer(to, from, bytes, stream);
}

static lierne_status run(const lierne_ipc_step *step, void *stream, int device) {
    (void)stream, (void)device;
    for (int32_t i = step->n; i-- > 0;) { /* a device promises no order */
        lierne_ipc_run(step, i);
    }
    return LIERNE_OK;
}

typedef struct copy_work {
    void *to;
    const void *from;
    size_t bytes;
} copy_work;

static void run_copy_on_stream(void *data) {
    const copy_work *w = data;
    memcpy(w->to, w->from, w->bytes);
}

static lierne_status copy_on_stream(void *to, const void *from, size_t bytes, void *stream,
                                    int device) {
    const copy_work work = {to, from, bytes};
    (void)device;
    test_device_stream_add(stream, run_copy_on_stream, &work, sizeof work);
    return LIERNE_OK;
}

static void run_step_on_stream(void *data) {
    run(data, NULL, 0);
}

static lierne_status run_on_stream(const lierne_ipc_step *step, void *stream, int device) {
    (void)device;
    test_device_stream_add(stream, run_step_on_stream, step, sizeof *step);
    return LIERNE_OK;
}

#define PLAYED                                                                                     \
    .shares = "memfds", .granule = 8192, /* few messages need more chunks */                       \
        .alloc = alloc, .free = release, .open = open_chunk, .close = close_chunk,                 \
    .write = write_window, .read = transfer, .alloc_words = alloc_words, .free_words = free_words, \
    .wait = wait_for_device
const lierne_ipc_driver test_ipc_driver = {PLAYED, .copy = copy, .run = run};
const lierne_ipc_driver test_ipc_stream_driver = {PLAYED, .copy = copy_on_stream,
                                                  .run = run_on_stream};

/* The name makes streams.c put a stream into calls that have none. Events let the host poll other
 * transports of a call. */
static lierne_stream_driver streams;
static lierne_memory memory, stream_memory;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill_device(void) {
    streams = test_device_driver;
    streams.name = "ipc test";
    streams.required = true;
    memory = test_untouched_memory("device");
    stream_memory = test_device_stream_memory();
}

lierne_status test_ipc_use(lierne_context *context) {
    pthread_once(&once, fill_device);
    context->memory = &memory;
    context->stream_driver = &streams;
    return lierne_context_open_ipc(context, &test_ipc_driver);
}

lierne_status test_ipc_use_streams(lierne_context *context) {
    pthread_once(&once, fill_device);
    context->memory = &stream_memory;
    context->stream_driver = &test_device_stream_driver;
    return lierne_context_open_ipc(context, &test_ipc_stream_driver);
}
