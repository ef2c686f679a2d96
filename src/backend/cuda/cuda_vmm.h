/* Memory of a device that processes of a node share by descriptors: CUDA's virtual memory
 * management. Nothing here waits for the device. */
#ifndef LIERNE_CUDA_VMM_H
#define LIERNE_CUDA_VMM_H

#include "backend/cuda/cuda_driver.h"

/* What another process needs to map memory: the descriptor is its owner's. */
typedef struct lierne_cuda_share {
    int64_t space; /* of the owner, as lierne_rank_info has them */
    int64_t process;
    int64_t start;
    int64_t descriptor; /* open until the owner frees the memory */
    int64_t address;    /* in the owner */
    int64_t device;     /* of the owner */
    int64_t bytes;
} lierne_cuda_share;

/* Memory of a device, which that device reads and writes. bytes: a multiple of the device's
 * granularity. After an error nothing is left. Errors: NO_MEMORY, UNSUPPORTED (the device, its
 * driver or bytes do not allow it). */
lierne_status lierne_cuda_vmm_alloc(void **memory, lierne_cuda_share *share, size_t bytes,
                                    int device);
/* Unmaps it in this process, and closes the descriptor. Peers that have it mapped keep it. */
void lierne_cuda_vmm_free(void *memory, const lierne_cuda_share *share);
/* Closes the descriptor only: the device may still use the memory. */
void lierne_cuda_vmm_withdraw(const lierne_cuda_share *share);

/* Maps memory of another process, or finds that of this one, for a device, which may be another
 * than the owner's. Errors: UNSUPPORTED. */
lierne_status lierne_cuda_vmm_open(void **memory, const lierne_cuda_share *share, int device);
void lierne_cuda_vmm_close(void *memory, const lierne_cuda_share *share);

#endif
