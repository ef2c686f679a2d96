/* A device pointer looks like any other, and the host that reads it crashes. The driver knows it:
 * asking costs less than a microsecond. It is asked only where something else has loaded it (the
 * framework whose tensor it is); loading it here would start CUDA in every process. */
#include "backend/cuda/device_pointer.h"

#include <dlfcn.h>

/* Of cuda.h: CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED and
 * CU_MEMORYTYPE_DEVICE. They are part of CUDA's ABI. */
enum { MEMORY_TYPE = 2, IS_MANAGED = 8, DEVICE = 2 };

/* cuPointerGetAttribute. */
typedef int query_function(void *data, int attribute, unsigned long long pointer);

static void *find_query(void) {
    void *query = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library) {
        query = dlsym(library, "cuPointerGetAttribute");
        dlclose(library); /* what loaded it keeps it */
    }
    return query;
}

static lierne_status reject_buffer(void *driver, const void *buffer, const char *name) {
    query_function *query;
    *(void **)&query = driver;
    unsigned type = 0, managed = 0;
    unsigned long long address = (unsigned long long)(uintptr_t)buffer;
    if (query(&type, MEMORY_TYPE, address) != 0 || type != DEVICE ||
        (query(&managed, IS_MANAGED, address) == 0 && managed)) {
        return LIERNE_OK;
    }
    return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                       "%s is memory of a CUDA device (%p), and the context is for host memory: "
                       "call lierne_context_use_cuda for it, or pass host memory",
                       name, buffer);
}

const lierne_device_memory lierne_cuda_pointers = {.find_driver = find_query,
                                                   .reject = reject_buffer};
