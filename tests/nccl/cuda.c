/* What liblierne_nccl needs of liblierne_cuda, played: memory and streams are those of the device
 * that is played (tasks.h, capture.h). */
#include "lierne/cuda.h"
#include "backend/cuda/cuda_memory.h"
#include "capture.h"
#include "fake.h"
#include "lierne/nccl.h"
#include "node_ranks.h"
#include "runtime/context/context.h"
#include "tasks.h"

#include <pthread.h>

static _Thread_local int host_allocations;

int fake_host_allocations(void) {
    return host_allocations;
}

static lierne_status alloc_host(void **out, size_t bytes) {
    host_allocations++;
    return lierne_alloc(out, 1, bytes);
}

static void free_host(void *memory) {
    lierne_mem_free(memory);
}

const lierne_memory lierne_cuda_memory = {.name = "cuda",
                                          .alloc_host = alloc_host,
                                          .free_host = free_host};

lierne_status lierne_cuda_stream_create(void **stream, int device, bool urgent) {
    static char any;
    (void)device;
    check(!urgent, "a gather does not pass the calls of a program");
    *stream = &any;
    return LIERNE_OK;
}

lierne_status lierne_cuda_stream_idle(bool *idle, void *stream) {
    *idle = stream != NULL;
    return LIERNE_OK;
}

void lierne_cuda_stream_destroy(void *stream) {
    (void)stream;
}

static lierne_memory memory;
static void fill_memory(void) {
    memory = test_untouched_memory("cuda");
}

lierne_status lierne_context_use_cuda(lierne_context *context) {
    static char own;
    static const lierne_stream_driver driver = {.name = "cuda", .required = true};
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_memory);
    context->memory = &memory;
    context->stream_driver = &driver;
    context->own_stream = &own;
    return LIERNE_OK;
}

lierne_context *open_device(const char *name, int rank, double timeout) {
    lierne_context *context = open_timed(name, rank, RANKS, timeout);
    check(lierne_context_use_cuda(context) == LIERNE_OK, "lierne_context_use_cuda");
    return context;
}

lierne_context *open_nccl(const char *name, int rank, double timeout) {
    lierne_context *context = open_device(name, rank, timeout);
    check(lierne_context_use_nccl(context, NULL) == LIERNE_OK, "lierne_context_use_nccl");
    return context;
}
