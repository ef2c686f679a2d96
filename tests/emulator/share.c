/* Memory that processes share: by handles of CUDA IPC, of allocations of cudaMalloc, and by
 * descriptors of the driver. Both are descriptors of the file that has the memory, which the system
 * copies between processes. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct ipc_handle {
    pid_t process;
    int descriptor;
    size_t bytes, skew;
} ipc_handle;

static int fetch(pid_t process, int descriptor) {
    int other = (int)syscall(SYS_pidfd_open, process, 0);
    int copy = other < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, other, descriptor, 0);
    if (other >= 0) {
        close(other);
    }
    return copy;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *at) {
    EMULATOR_TRY(emulator_ready_outside_captures());
    const emulator_memory *m = emulator_memory_find((uintptr_t)at);
    EMULATOR_TRY(m && !m->host && !m->reserved && !m->imported ? cudaSuccess
                                                               : cudaErrorInvalidValue);
    const ipc_handle h = {getpid(), m->descriptor, m->bytes, m->address % EMULATOR_BLOCK};
    memset(out, 0, sizeof *out);
    memcpy(out, &h, sizeof h);
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t opaque, unsigned flags) {
    ipc_handle h;
    memcpy(&h, &opaque, sizeof h);
    EMULATOR_TRY(emulator_ready_outside_captures());
    EMULATOR_TRY(h.process != getpid() && flags == cudaIpcMemLazyEnablePeerAccess
                     ? cudaSuccess
                     : cudaErrorDeviceUninitialized);
    int descriptor = fetch(h.process, h.descriptor);
    EMULATOR_TRY(descriptor >= 0 ? cudaSuccess : cudaErrorMapBufferObjectFailed);
    emulator_memory *memory = emulator_memory_reserve(h.bytes, h.skew);
    memory->descriptor = descriptor;
    memory->imported = true;
    emulator_memory_map(memory, descriptor);
    *out = (void *)(uintptr_t)memory->address;
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *at) {
    EMULATOR_TRY(emulator_ready_outside_captures());
    emulator_memory *memory = emulator_memory_find((uintptr_t)at);
    EMULATOR_TRY(memory && memory->imported && !memory->reserved ? cudaSuccess
                                                                 : cudaErrorInvalidValue);
    emulator_wait_device(emulator_device());
    emulator_memory_release(memory);
    return cudaSuccess;
}

/* A handle of the driver. */
typedef struct shared {
    int descriptor, device; /* -1: of another process */
    size_t bytes;
} shared;

static CUmemGenericAllocationHandle handle_of(int descriptor, int device, size_t bytes) {
    shared *s = malloc(sizeof *s);
    *s = (shared){descriptor, device, bytes};
    return (uintptr_t)s;
}

static shared *shared_of(CUmemGenericAllocationHandle handle) {
    return (shared *)(uintptr_t)handle;
}

/* That begins at an address and has n bytes of blocks; NULL: none. */
static emulator_memory *reserved_at(CUdeviceptr address, size_t bytes, bool mapped) {
    emulator_memory *m = emulator_memory_reserved(address);
    if (m && m->address == address && m->room == bytes && m->mapped == mapped) {
        return m;
    }
    emulator_say("%zu bytes at %#llx are no reservation that is %s", bytes, address,
                 mapped ? "mapped" : "not mapped");
    return NULL;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    (void)attribute, (void)device;
    *value = emulator.descriptors;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags option) {
    (void)properties, (void)option;
    *granularity = EMULATOR_BLOCK;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags) {
    (void)flags;
    if (bytes == 0 || bytes % EMULATOR_BLOCK) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int descriptor = memfd_create("emulated device", MFD_CLOEXEC);
    if (descriptor < 0 || ftruncate(descriptor, (off_t)bytes) != 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = handle_of(descriptor, properties->location.id, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    close(shared_of(handle)->descriptor);
    free(shared_of(handle));
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
    (void)flags;
    *(int *)shareable = dup(shared_of(handle)->descriptor);
    return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? CUDA_SUCCESS
                                                            : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        CUmemAllocationHandleType type) {
    int descriptor = dup((int)(intptr_t)shareable);
    if (descriptor < 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *handle = handle_of(descriptor, -1, (size_t)lseek(descriptor, 0, SEEK_END));
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment,
                             CUdeviceptr wanted, unsigned long long flags) {
    (void)alignment, (void)wanted, (void)flags;
    emulator_memory *memory = emulator_memory_reserve(bytes, 0);
    memory->reserved = true;
    memory->access = 0;
    *address = memory->address;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    emulator_memory *memory = reserved_at(address, bytes, false);
    if (!memory) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    emulator_memory_release(memory);
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
    const shared *s = shared_of(handle);
    emulator_memory *memory = reserved_at(address, bytes, false);
    (void)flags;
    if (!memory || offset != 0 || s->bytes != bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memory->imported = s->device < 0;
    memory->device = memory->imported ? emulator_device() : s->device;
    emulator_memory_map(memory, s->descriptor);
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    emulator_memory *memory = reserved_at(address, bytes, true);
    if (!memory) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    emulator_memory_unmap(memory);
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                        size_t n) {
    emulator_memory *memory = reserved_at(address, bytes, true);
    if (!memory || n != 1 || access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memory->access |= 1u << access->location.id;
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr pointer) {
    const emulator_memory *m = emulator_memory_find(pointer);
    if (!m || (attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE &&
               attribute != CU_POINTER_ATTRIBUTE_IS_MANAGED)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *(unsigned *)value = attribute == CU_POINTER_ATTRIBUTE_IS_MANAGED ? 0
                         : m->host                                    ? CU_MEMORYTYPE_HOST
                                                                      : CU_MEMORYTYPE_DEVICE;
    return CUDA_SUCCESS;
}
