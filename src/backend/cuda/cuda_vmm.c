/* An allocation of cuMemCreate is shared by a descriptor, which a peer copies out of its owner with
 * pidfd_getfd: opening /proc/PID/fd would open the driver's device again, not the allocation. The
 * system allows that to processes that may debug each other; where it does not, ranks share memory
 * by the older handles.
 *
 * A mapping keeps the allocation alive, so the handle is released as soon as it is mapped. */
#include "backend/cuda/cuda_vmm.h"

#include "runtime/control/processes.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static lierne_status check_result(CUresult result, const char *call) {
    return result == CUDA_SUCCESS
               ? LIERNE_OK
               : LIERNE_FAIL(result == CUDA_ERROR_OUT_OF_MEMORY ? LIERNE_ERR_NO_MEMORY
                                                                : LIERNE_ERR_UNSUPPORTED,
                             "%s: error %d of CUDA's driver", call, (int)result);
}

static lierne_status require(const lierne_cuda_driver *cu, CUdevice_attribute attribute, int device,
                             const char *what) {
    int has = 0;
    LIERNE_TRY(
        check_result(cu->cuDeviceGetAttribute(&has, attribute, device), "cuDeviceGetAttribute"));
    return has ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "device %d has no %s", device, what);
}

/* On the device, for sharing by descriptors. */
static CUmemAllocationProp properties_of(int device) {
    CUmemAllocationProp p;
    memset(&p, 0, sizeof p);
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = device;
    return p;
}

static lierne_status check_device(const lierne_cuda_driver *cu, size_t bytes, int device) {
    const CUmemAllocationProp properties = properties_of(device);
    size_t granularity = 0;
    LIERNE_TRY(require(cu, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device,
                       "virtual memory management"));
    LIERNE_TRY(require(cu, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device,
                       "memory that is shared by descriptors"));
    LIERNE_TRY(check_result(cu->cuMemGetAllocationGranularity(&granularity, &properties,
                                                              CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                            "cuMemGetAllocationGranularity"));
    return granularity > 0 && bytes % granularity == 0
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                             "%zu bytes are no multiple of the granularity of device %d, %zu bytes",
                             bytes, device, granularity);
}

static lierne_status allow(const lierne_cuda_driver *cu, CUdeviceptr at, size_t bytes, int device) {
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return check_result(cu->cuMemSetAccess(at, bytes, &access, 1), "cuMemSetAccess");
}

static lierne_status map_at(const lierne_cuda_driver *cu, CUdeviceptr at,
                            CUmemGenericAllocationHandle handle, size_t bytes, int device) {
    LIERNE_TRY(check_result(cu->cuMemMap(at, bytes, 0, handle, 0), "cuMemMap"));
    lierne_status status = allow(cu, at, bytes, device);
    if (status != LIERNE_OK) {
        cu->cuMemUnmap(at, bytes);
    }
    return status;
}

static lierne_status map_allocation(const lierne_cuda_driver *cu, void **out,
                                    CUmemGenericAllocationHandle handle, size_t bytes, int device) {
    CUdeviceptr at = 0;
    LIERNE_TRY(check_result(cu->cuMemAddressReserve(&at, bytes, 0, 0, 0), "cuMemAddressReserve"));
    lierne_status status = map_at(cu, at, handle, bytes, device);
    if (status != LIERNE_OK) {
        cu->cuMemAddressFree(at, bytes);
    }
    *out = (void *)(uintptr_t)at;
    return status;
}

static void unmap(void *memory, size_t bytes) {
    lierne_cuda_driver cu;
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)memory;
    if (lierne_cuda_driver_load(&cu) == LIERNE_OK) {
        cu.cuMemUnmap(at, bytes);
        cu.cuMemAddressFree(at, bytes);
    }
}

static lierne_status export_and_map(const lierne_cuda_driver *cu, void **out,
                                    lierne_cuda_share *share, CUmemGenericAllocationHandle handle,
                                    int device) {
    int descriptor = -1;
    LIERNE_TRY(
        check_result(cu->cuMemExportToShareableHandle(&descriptor, handle,
                                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                     "cuMemExportToShareableHandle"));
    lierne_status status = map_allocation(cu, out, handle, (size_t)share->bytes, device);
    if (status != LIERNE_OK) {
        close(descriptor);
    }
    share->descriptor = descriptor;
    share->address = (int64_t)(intptr_t)*out;
    return status;
}

/* The numbers of this process. */
static void describe_share(lierne_cuda_share *share) {
    lierne_rank_info info;
    lierne_rank_info_fill(&info, 0, -1);
    share->space = (int64_t)info.space;
    share->process = (int64_t)info.process;
    share->start = (int64_t)info.start;
}

lierne_status lierne_cuda_vmm_alloc(void **out, lierne_cuda_share *share, size_t bytes,
                                    int device) {
    const CUmemAllocationProp properties = properties_of(device);
    lierne_cuda_driver cu;
    CUmemGenericAllocationHandle handle;
    *out = NULL;
    *share = (lierne_cuda_share){.descriptor = -1, .bytes = (int64_t)bytes, .device = device};
    describe_share(share);
    LIERNE_TRY(lierne_cuda_driver_load(&cu));
    LIERNE_TRY(check_device(&cu, bytes, device));
    LIERNE_TRY(check_result(cu.cuMemCreate(&handle, bytes, &properties, 0), "cuMemCreate"));
    lierne_status status = export_and_map(&cu, out, share, handle, device);
    cu.cuMemRelease(handle);
    return status;
}

void lierne_cuda_vmm_free(void *memory, const lierne_cuda_share *share) {
    unmap(memory, (size_t)share->bytes);
    lierne_cuda_vmm_withdraw(share);
}

void lierne_cuda_vmm_withdraw(const lierne_cuda_share *share) {
    close((int)share->descriptor);
}

/* Process ids repeat between namespaces; 0 is one that is not known. */
static bool is_in_sight(const lierne_cuda_share *share, const lierne_cuda_share *own) {
    return share->space != 0 && share->space == own->space;
}

static bool is_own(const lierne_cuda_share *share) {
    lierne_cuda_share own;
    describe_share(&own);
    return is_in_sight(share, &own) && own.process == share->process && own.start == share->start;
}

/* A descriptor of another process, in this one. */
static lierne_status fetch(int *descriptor, const lierne_cuda_share *share) {
    lierne_cuda_share own;
    describe_share(&own);
    if (!is_in_sight(share, &own)) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "process %lld is in another container or pid namespace",
                           (long long)share->process);
    }
    int process = (int)syscall(SYS_pidfd_open, (pid_t)share->process, 0);
    *descriptor =
        process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, (int)share->descriptor, 0);
    int error = errno;
    if (process >= 0) {
        close(process);
    }
    return *descriptor >= 0
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                             "the system does not let this process copy a descriptor of process "
                             "%lld (%s): %s",
                             (long long)share->process, process < 0 ? "pidfd_open" : "pidfd_getfd",
                             strerror(error));
}

static lierne_status import_and_map(const lierne_cuda_driver *cu, void **out, int descriptor,
                                    size_t bytes, int device) {
    CUmemGenericAllocationHandle handle;
    LIERNE_TRY(
        check_result(cu->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)descriptor,
                                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                     "cuMemImportFromShareableHandle"));
    lierne_status status = map_allocation(cu, out, handle, bytes, device);
    cu->cuMemRelease(handle);
    return status;
}

/* A mapping of this process is its owner's device's only, until another one gets access, too. */
static lierne_status open_own(const lierne_cuda_driver *cu, void **out,
                              const lierne_cuda_share *share, int device) {
    *out = (void *)(intptr_t)share->address;
    return device == share->device
               ? LIERNE_OK
               : allow(cu, (CUdeviceptr)share->address, (size_t)share->bytes, device);
}

static lierne_status open_other(const lierne_cuda_driver *cu, void **out,
                                const lierne_cuda_share *share, int device) {
    int descriptor = -1;
    LIERNE_TRY(fetch(&descriptor, share));
    lierne_status status = import_and_map(cu, out, descriptor, (size_t)share->bytes, device);
    close(descriptor);
    return status;
}

lierne_status lierne_cuda_vmm_open(void **out, const lierne_cuda_share *share, int device) {
    lierne_cuda_driver cu;
    LIERNE_TRY(lierne_cuda_driver_load(&cu));
    lierne_status status =
        is_own(share) ? open_own(&cu, out, share, device) : open_other(&cu, out, share, device);
    return status == LIERNE_ERR_NO_MEMORY ? LIERNE_ERR_UNSUPPORTED : status;
}

void lierne_cuda_vmm_close(void *memory, const lierne_cuda_share *share) {
    if (!is_own(share)) {
        unmap(memory, (size_t)share->bytes);
    }
}
