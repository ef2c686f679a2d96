/* Windows by descriptors (backend/cuda/cuda_vmm.h) on the emulated device. Every call of the driver
 * fails once, and nothing is left; a device or a driver that lacks something; other processes,
 * which copy real descriptors; ranks of one process, on one device and on two; one that may not map
 * the other's window, so that all share memory in the other way. Last line: N passed, N failed. */
#include "backend/cuda/cuda_vmm.h"
#include "lierne/collective.h"
#include "lierne/cuda.h"
#include "node_ranks.h"

#include <cuda_runtime_api.h>
#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAIR = 2, COUNT = 5000, ALL = PAIR * COUNT, BYTES = 2 << 20, OWN_CALLS = 8, PEER_CALLS = 4 };

/* What there is of the driver's objects; which call of this thread fails (0: none), and with what;
 * what the device has. */
static atomic_int live;
static _Thread_local int calls, failing;
static CUresult failure = CUDA_ERROR_NOT_SUPPORTED;
static bool has_driver = true, has_vmm = true, has_descriptors = true;
static lierne_cuda_driver real;

static bool fails(void) {
    return ++calls == failing;
}

static void set_failing(int call) {
    calls = 0;
    failing = call;
}

/* A call that makes an object, frees one, or does neither. */
#define COUNTED(name, made, parameters, ...)                                                       \
    static CUresult counted_##name parameters {                                                    \
        CUresult result = made >= 0 && fails() ? failure : real.name(__VA_ARGS__);                 \
        live += result == CUDA_SUCCESS ? made : 0;                                                 \
        return result;                                                                             \
    }
COUNTED(cuMemGetAllocationGranularity, 0,
        (size_t * a, const CUmemAllocationProp *b, CUmemAllocationGranularity_flags c), a, b, c)
COUNTED(cuMemCreate, 1,
        (CUmemGenericAllocationHandle * a, size_t b, const CUmemAllocationProp *c,
         unsigned long long d),
        a, b, c, d)
COUNTED(cuMemRelease, -1, (CUmemGenericAllocationHandle a), a)
COUNTED(cuMemExportToShareableHandle, 0,
        (void *a, CUmemGenericAllocationHandle b, CUmemAllocationHandleType c,
         unsigned long long d),
        a, b, c, d)
COUNTED(cuMemImportFromShareableHandle, 1,
        (CUmemGenericAllocationHandle * a, void *b, CUmemAllocationHandleType c), a, b, c)
COUNTED(cuMemAddressReserve, 1,
        (CUdeviceptr * a, size_t b, size_t c, CUdeviceptr d, unsigned long long e), a, b, c, d, e)
COUNTED(cuMemAddressFree, -1, (CUdeviceptr a, size_t b), a, b)
COUNTED(cuMemMap, 1,
        (CUdeviceptr a, size_t b, size_t c, CUmemGenericAllocationHandle d, unsigned long long e),
        a, b, c, d, e)
COUNTED(cuMemUnmap, -1, (CUdeviceptr a, size_t b), a, b)
COUNTED(cuMemSetAccess, 0, (CUdeviceptr a, size_t b, const CUmemAccessDesc *c, size_t d), a, b, c,
        d)

static CUresult counted_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
                                             CUdevice device) {
    CUresult result = real.cuDeviceGetAttribute(value, attribute, device);
    *value &= attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
                  ? has_vmm
                  : has_descriptors;
    return fails() ? failure : result;
}

lierne_status __real_lierne_cuda_driver_load(lierne_cuda_driver *driver);
lierne_status __wrap_lierne_cuda_driver_load(lierne_cuda_driver *driver);
lierne_status __wrap_lierne_cuda_driver_load(lierne_cuda_driver *driver) {
    LIERNE_TRY(__real_lierne_cuda_driver_load(&real));
#define COUNT_CALLS(name) driver->name = counted_##name;
    LIERNE_CUDA_DRIVER_FUNCTIONS(COUNT_CALLS)
    return has_driver ? LIERNE_OK : LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "there is no driver");
}

static int count_descriptors(void) {
    DIR *all = opendir("/proc/self/fd");
    int n = 0;
    while (all && readdir(all)) {
        n++;
    }
    closedir(all);
    return n;
}

/* Fails at one call after another, until it needs no more. */
static void fail_alloc(void) {
    int descriptors = count_descriptors(), k = 0;
    void *memory;
    lierne_cuda_share share;
    lierne_status status = LIERNE_ERR_UNSUPPORTED;
    while (status != LIERNE_OK && k < 20) {
        set_failing(++k);
        status = lierne_cuda_vmm_alloc(&memory, &share, BYTES, 0);
        if (status != LIERNE_OK) {
            check(status == LIERNE_ERR_UNSUPPORTED && strstr(lierne_last_error(), "cu") &&
                      strstr(lierne_last_error(), "error 801"),
                  "a call of the driver that fails is an error with its name");
            check(live == 0 && count_descriptors() == descriptors, "and nothing is left");
        }
    }
    set_failing(0);
    check(k - 1 == OWN_CALLS, "every call that can fail did");
    check(live == 2, "a window is a mapping and its addresses");
    lierne_cuda_vmm_free(memory, &share);
    check(live == 0 && count_descriptors() == descriptors, "which are freed");
}

static void rejected(const char *words, size_t bytes) {
    void *memory;
    lierne_cuda_share share;
    check(lierne_cuda_vmm_alloc(&memory, &share, bytes, 3) == LIERNE_ERR_UNSUPPORTED &&
              strstr(lierne_last_error(), words),
          words);
    check(live == 0, "and nothing is left");
}

static void rejections(void) {
    void *memory;
    lierne_cuda_share share;
    has_vmm = false;
    rejected("device 3 has no virtual memory management", BYTES);
    has_vmm = true;
    has_descriptors = false;
    rejected("device 3 has no memory that is shared by descriptors", BYTES);
    has_descriptors = true;
    has_driver = false;
    rejected("there is no driver", BYTES);
    has_driver = true;
    rejected("8191 bytes are no multiple of the granularity of device 3, 2097152 bytes", 8191);
    failure = CUDA_ERROR_OUT_OF_MEMORY;
    set_failing(4);
    check(lierne_cuda_vmm_alloc(&memory, &share, BYTES, 0) == LIERNE_ERR_NO_MEMORY &&
              strstr(lierne_last_error(), "cuMemCreate"),
          "a device that is full is NO_MEMORY");
    failure = CUDA_ERROR_NOT_SUPPORTED;
    set_failing(0);
}

/* Another process: each call fails, others' windows that it cannot see, and then it maps one, which
 * has one value and gets the next. */
static int open_window(const lierne_cuda_share *share, unsigned char value) {
    int descriptors = count_descriptors();
    lierne_cuda_share elsewhere = *share;
    void *memory = NULL;
    unsigned char found = 0, next = value + 1;
    live = 0;
    for (int k = 1; k <= PEER_CALLS; k++) {
        set_failing(k);
        check(lierne_cuda_vmm_open(&memory, share, 0) == LIERNE_ERR_UNSUPPORTED &&
                  strstr(lierne_last_error(), "error 801"),
              "a call that fails in a peer");
        check(live == 0 && count_descriptors() == descriptors, "leaves nothing");
    }
    set_failing(0);
    elsewhere.space++;
    check(lierne_cuda_vmm_open(&memory, &elsewhere, 0) == LIERNE_ERR_UNSUPPORTED &&
              strstr(lierne_last_error(), "another container or pid namespace"),
          "a process that is out of sight");
    elsewhere = *share;
    elsewhere.descriptor = 12345;
    check(lierne_cuda_vmm_open(&memory, &elsewhere, 0) == LIERNE_ERR_UNSUPPORTED &&
              strstr(lierne_last_error(), "pidfd_getfd"),
          "a descriptor that is not there");
    check(lierne_cuda_vmm_open(&memory, share, 0) == LIERNE_OK, "a peer maps a window");
    check(cudaMemcpy(&found, memory, 1, cudaMemcpyDeviceToHost) == cudaSuccess && found == value,
          "and reads what another one wrote");
    cudaMemcpy(memory, &next, 1, cudaMemcpyHostToDevice);
    lierne_cuda_vmm_close(memory, share);
    check(live == 0 && count_descriptors() == descriptors, "and leaves nothing");
    return print_checks();
}

/* Whether the system lets a process copy descriptors of another one: containers often do not. */
static bool may_copy(void) {
    int status = -1;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* what Yama asks for */
    pid_t child = fork();
    if (child == 0) {
        int parent = (int)syscall(SYS_pidfd_open, getppid(), 0);
        _exit(parent < 0 || syscall(SYS_pidfd_getfd, parent, 0, 0) < 0);
    }
    waitpid(child, &status, 0);
    return status == 0;
}

/* The device's streams are threads, which no child inherits: so only children use them. */
static void open_from_processes(void) {
    lierne_cuda_share share;
    void *memory;
    check(lierne_cuda_vmm_alloc(&memory, &share, BYTES, 0) == LIERNE_OK, "a window");
    for (unsigned char value = 0; value < 2; value++) {
        int status = -1;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            int bad = open_window(&share, value);
            fflush(stdout);
            _exit(bad);
        }
        waitpid(child, &status, 0);
        check(status == 0, "a process has no failure");
    }
    lierne_cuda_vmm_free(memory, &share);
}

/* An all-to-all over windows, whose dump has these words. */
static void exchange(int rank, int device, const char *name, const char *expected) {
    static int64_t values[PAIR][ALL];
    const lierne_all_to_all_spec spec = {.size = sizeof spec,
                                         .count = COUNT,
                                         .dtype = LIERNE_DTYPE_I64};
    const lierne_context_spec options = {.size = sizeof options, .timeout = 30};
    char dump[4096];
    lierne_plan *plan = NULL;
    cudaStream_t stream;
    void *in, *out;
    int wrong = 0;
    cudaSetDevice(device);
    lierne_context *context = open_rank(name, rank, PAIR, &options);
    check(lierne_context_use_cuda(context) == LIERNE_OK, "lierne_context_use_cuda");
    check(cudaMalloc(&in, sizeof values[0]) == cudaSuccess &&
              cudaMalloc(&out, sizeof values[0]) == cudaSuccess &&
              cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
              lierne_plan_create_all_to_all(&plan, context, &spec) == LIERNE_OK,
          "planning");
    for (int i = 0; i < ALL; i++) {
        values[rank][i] = rank * 100000 + i;
    }
    cudaMemcpy(in, values[rank], sizeof values[0], cudaMemcpyHostToDevice);
    for (int i = 0; i < 3; i++) {
        check(lierne_plan_forward(plan, out, in, stream) == LIERNE_OK, "a call");
    }
    check(cudaStreamSynchronize(stream) == cudaSuccess &&
              cudaMemcpy(values[rank], out, sizeof values[0], cudaMemcpyDeviceToHost) ==
                  cudaSuccess,
          "the calls of a stream");
    for (int i = 0; i < ALL; i++) {
        wrong += values[rank][i] != i / COUNT * 100000 + rank * COUNT + i % COUNT;
    }
    check(wrong == 0, "an all-to-all over windows");
    check(lierne_context_dump(dump, sizeof dump, context) == LIERNE_OK && strstr(dump, expected) &&
              !strstr(dump, "is not used"),
          expected);
    meet_ranks();
    check(lierne_plan_destroy(plan) == LIERNE_OK, "plan");
    check(lierne_context_destroy(context) == LIERNE_OK, "destroy");
    meet_ranks();
    cudaStreamDestroy(stream);
    cudaFree(in);
    cudaFree(out);
}

static void *on_one_device(void *rank) {
    exchange((int)(intptr_t)rank, 0, "one", "shared by descriptors");
    return NULL;
}

static void *on_two_devices(void *rank) {
    exchange((int)(intptr_t)rank, (int)(intptr_t)rank, "two", "shared by descriptors");
    return NULL;
}

/* The first call after those for a rank's own window is for its peer's. */
static void *apart(void *rank) {
    set_failing(rank ? OWN_CALLS + 1 : 0);
    exchange((int)(intptr_t)rank, (int)(intptr_t)rank, "apart", "shared by handles of CUDA IPC");
    return NULL;
}

int main(int argc, char **argv) {
    (void)argc;
    if (!getenv("EMULATOR_DEVICES")) {
        setenv("EMULATOR_DEVICES", "2", 1);
        execv("/proc/self/exe", argv);
    }
    fail_alloc();
    rejections();
    if (may_copy()) {
        open_from_processes();
    } else {
        printf("skipped: the system lets no process copy descriptors of another one\n");
    }
    run_n_ranks(PAIR, on_one_device);
    run_n_ranks(PAIR, on_two_devices);
    run_n_ranks(PAIR, apart);
    check(live == 0 && lierne_mem_live() == 0, "nothing is left");
    return print_checks();
}
