/* Ranges for profilers that read NVTX, whose functions are in its headers: they look for a tool
 * that the environment names when they are first called, and do nothing where there is none. */
#include "backend/cuda/cuda_ranges.h"

#include <pthread.h>
#include <stddef.h>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

const bool lierne_cuda_has_ranges = true;

/* One per process: a tool may take another one of the same name for a new one. NULL: no tool is
 * attached. */
static nvtxDomainHandle_t domain;

static void create_domain(void) {
    domain = nvtxDomainCreateA("lierne");
}

static uint64_t begin(const char *name) {
    const nvtxEventAttributes_t attributes = {.version = NVTX_VERSION,
                                              .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                              .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                              .message.ascii = name};
    return nvtxDomainRangeStartEx(domain, &attributes);
}

static void end(uint64_t range) {
    nvtxDomainRangeEnd(domain, range);
}

const lierne_ranges *lierne_cuda_find_ranges(void) {
    static const lierne_ranges ranges = {begin, end};
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, create_domain);
    return domain ? &ranges : NULL;
}
#else
const bool lierne_cuda_has_ranges = false;

const lierne_ranges *lierne_cuda_find_ranges(void) {
    return NULL;
}
#endif
