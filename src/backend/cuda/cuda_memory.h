/* The table of CUDA device memory. Everything works on the device that is current. */
#ifndef LIERNE_CUDA_MEMORY_H
#define LIERNE_CUDA_MEMORY_H

#include "runtime/memory/memory.h"

#include <cuda_runtime_api.h>

LIERNE_PRIVATE extern const lierne_memory lierne_cuda_memory;

/* Makes a device the current one of this thread; leave makes it the previous one again, and is not
 * called after an error. */
lierne_status lierne_cuda_enter(int device, int *previous);
void lierne_cuda_leave(int device, int previous);

/* A stream of lierne's own on a device; urgent: of its greatest priority. idle: whether it has
 * passed all that was enqueued; also while some thread captures a graph. */
LIERNE_PRIVATE lierne_status lierne_cuda_stream_create(void **stream, int device, bool urgent);
LIERNE_PRIVATE lierne_status lierne_cuda_stream_idle(bool *idle, void *stream);
LIERNE_PRIVATE void lierne_cuda_stream_destroy(void *stream);

/* OK, or a status whose message has the call of CUDA and its error. */
lierne_status lierne_cuda_check(cudaError_t error, const char *call);

#endif
