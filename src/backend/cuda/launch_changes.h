/* The kernels of deltas (kernels/changes.cu), and their launch. */
#ifndef LIERNE_LAUNCH_CHANGES_H
#define LIERNE_LAUNCH_CHANGES_H

#include "runtime/memory/change.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const void *const lierne_find_changes_kernel;
extern const void *const lierne_make_changes_kernel;

/* Runs one of the two on a stream. */
cudaError_t lierne_kernel_change(const void *kernel, const lierne_change_call *call,
                                 cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
