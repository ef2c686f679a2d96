/* The C interface of the kernel of flags. */
#ifndef LIERNE_CUDA_FLAGS_H
#define LIERNE_CUDA_FLAGS_H

#include "backend/cuda/ipc_flags.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs a step on a stream of the current device. */
cudaError_t lierne_kernel_flags(const lierne_ipc_step *step, cudaStream_t stream);
/* Loads the kernel of the current device. */
cudaError_t lierne_kernel_flags_load(void);

#ifdef __cplusplus
}
#endif
#endif
