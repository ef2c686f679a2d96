/* The kernel of flags. */
#ifndef LIERNE_CUDA_FLAGS_H
#define LIERNE_CUDA_FLAGS_H

#include "backend/cuda/ipc_flags.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In kernels/: what cudaLaunchKernel takes. Its argument is a lierne_ipc_step, its block has a
 * thread per flag. */
extern const void *const lierne_step_kernel;

#ifdef __cplusplus
}
#endif
#endif
