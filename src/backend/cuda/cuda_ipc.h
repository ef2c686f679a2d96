/* Windows in the memory of CUDA devices. */
#ifndef LIERNE_CUDA_IPC_H
#define LIERNE_CUDA_IPC_H

#include "backend/cuda/ipc_transport.h"

/* By descriptors (cuMemExportToShareableHandle), and by the older handles (cudaIpcGetMemHandle). */
extern const lierne_ipc_driver lierne_cuda_vmm_driver;
extern const lierne_ipc_driver lierne_cuda_ipc_driver;

#endif
