/* The table of CUDA device memory. Everything works on the device that is current. */
#ifndef LIERNE_CUDA_MEMORY_H
#define LIERNE_CUDA_MEMORY_H

#include "memory/memory.h"

#include <cuda_runtime_api.h>

extern const lierne_memory lierne_cuda_memory;

/* Makes a device the current one of this thread; leave makes it the previous one again, and is not
 * called after an error. */
lierne_status lierne_cuda_enter(int device, int *previous);
void lierne_cuda_leave(int device, int previous);

/* OK, or a status whose message has the call of CUDA and its error. */
lierne_status lierne_cuda_check(cudaError_t error, const char *call);

#endif
