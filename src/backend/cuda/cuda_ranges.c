/* Ranges for profilers that read NVTX, whose functions are in its headers: they look for a tool
 * that the environment names when they are first called, and do nothing where there is none. */
#include "backend/cuda/cuda_ranges.h"

#include <stddef.h>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

const bool lierne_cuda_has_ranges = true;

/* One per process: NVTX returns the same one for a name. NULL: no tool is attached. */
static nvtxDomainHandle_t find_domain(void) {
    return nvtxDomainCreateA("lierne");
}

static uint64_t begin(const char *name) {
    const nvtxEventAttributes_t attributes = {.version = NVTX_VERSION,
                                              .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                              .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                              .message.ascii = name};
    return nvtxDomainRangeStartEx(find_domain(), &attributes);
}

static void end(uint64_t range) {
    nvtxDomainRangeEnd(find_domain(), range);
}

const lierne_ranges *lierne_cuda_find_ranges(void) {
    static const lierne_ranges ranges = {begin, end};
    return find_domain() ? &ranges : NULL;
}
#else
const bool lierne_cuda_has_ranges = false;

const lierne_ranges *lierne_cuda_find_ranges(void) {
    return NULL;
}
#endif
