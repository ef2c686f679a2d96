/* The functions of CUDA's driver that lierne calls. The runtime finds them in the driver that it
 * has loaded, so that liblierne_cuda needs none to load. */
#ifndef LIERNE_CUDA_DRIVER_H
#define LIERNE_CUDA_DRIVER_H

#include "base/base.h"

#include <cuda.h>

#define LIERNE_CUDA_DRIVER_FUNCTIONS(DO)                                                           \
    DO(cuDeviceGetAttribute)                                                                       \
    DO(cuMemGetAllocationGranularity)                                                              \
    DO(cuMemCreate)                                                                                \
    DO(cuMemRelease)                                                                               \
    DO(cuMemExportToShareableHandle)                                                               \
    DO(cuMemImportFromShareableHandle)                                                             \
    DO(cuMemAddressReserve)                                                                        \
    DO(cuMemAddressFree)                                                                           \
    DO(cuMemMap)                                                                                   \
    DO(cuMemUnmap)                                                                                 \
    DO(cuMemSetAccess)
typedef struct lierne_cuda_driver {
#define DECLARE(name) __typeof__(&(name)) name;
    LIERNE_CUDA_DRIVER_FUNCTIONS(DECLARE)
#undef DECLARE
} lierne_cuda_driver;

/* Errors: UNSUPPORTED (the driver is older than CUDA 11.3, or there is none). */
lierne_status lierne_cuda_driver_load(lierne_cuda_driver *driver);

#endif
