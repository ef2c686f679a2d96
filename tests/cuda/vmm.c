/* Windows by descriptors (backend/cuda/cuda_vmm.h) without a GPU: CUDA's driver is played,
 * allocations are files in memory, and other processes copy real descriptors of them. Every call of
 * the driver fails once, and nothing is left; a device or a driver that lacks something; two
 * processes that exchange messages; one that may not, so that all share memory in the other way;
 * ranks of one process. Last line: N passed, N failed. */
#include "backend/cuda/cuda_vmm.h"
#include "ipc.h"
#include "lierne.h"
#include "node_ranks.h"
#include "tasks.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 5000, BYTES = 3 * 8192 };

/* Mappings, and which devices may access them; with no_peers the first one only. */
enum { DEVICES = 4, MOST_MAPPINGS = 64 };
typedef struct mapping {
    uintptr_t at; /* 0: none */
    size_t bytes;
    bool allowed[DEVICES];
} mapping;
static mapping mappings[MOST_MAPPINGS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool no_peers;
static _Thread_local int device; /* of the rank */

static mapping *find_mapping(uintptr_t at) {
    for (int i = 0; i < MOST_MAPPINGS; i++) {
        mapping *m = &mappings[i];
        if (at == 0 ? m->at == 0 : m->at != 0 && at >= m->at && at < m->at + m->bytes) {
            return m;
        }
    }
    return NULL;
}

static void note_mapping(uintptr_t at, size_t bytes) {
    pthread_mutex_lock(&lock);
    *find_mapping(0) = (mapping){.at = at, .bytes = bytes};
    pthread_mutex_unlock(&lock);
}

static void forget_mapping(uintptr_t at) {
    pthread_mutex_lock(&lock);
    find_mapping(at)->at = 0;
    pthread_mutex_unlock(&lock);
}

static bool allow_device(uintptr_t at, int number) {
    pthread_mutex_lock(&lock);
    mapping *m = find_mapping(at);
    bool good = number >= 0 && number < DEVICES;
    for (int d = 0; no_peers && d < DEVICES; d++) {
        good &= !m->allowed[d];
    }
    m->allowed[good ? number : 0] |= good;
    pthread_mutex_unlock(&lock);
    return good;
}

/* What is no mapping, every device may access. */
static bool may_access(const void *at) {
    pthread_mutex_lock(&lock);
    const mapping *m = find_mapping((uintptr_t)at);
    bool good = !m || m->allowed[device];
    pthread_mutex_unlock(&lock);
    return good;
}

/* What there is of the driver's objects in this process; which call fails from now on (0: none),
 * and with what; what the device has. */
static atomic_int live, calls, failing;
static CUresult failure = CUDA_ERROR_NOT_SUPPORTED;
static bool has_driver = true, has_vmm = true, has_descriptors = true;

static bool fails(void) {
    int number = atomic_fetch_add(&calls, 1) + 1;
    return number == atomic_load(&failing);
}

static CUresult get_attribute(int *value, CUdevice_attribute attribute, CUdevice of) {
    (void)of;
    *value = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ? has_vmm
             : attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
                 ? has_descriptors
                 : 0;
    return fails() ? failure : CUDA_SUCCESS;
}

static CUresult get_granularity(size_t *bytes, const CUmemAllocationProp *p,
                                CUmemAllocationGranularity_flags flags) {
    *bytes = p->type == CU_MEM_ALLOCATION_TYPE_PINNED && flags == 0 ? 8192 : 7;
    return fails() ? failure : CUDA_SUCCESS;
}

/* A handle is a descriptor. */
static CUresult give_handle(CUmemGenericAllocationHandle *handle, int descriptor) {
    *handle = (CUmemGenericAllocationHandle)descriptor;
    live++;
    return CUDA_SUCCESS;
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes,
                       const CUmemAllocationProp *p, unsigned long long flags) {
    if (fails() || flags || p->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return failure;
    }
    int descriptor = memfd_create("lierne-test", MFD_CLOEXEC);
    return ftruncate(descriptor, (off_t)bytes) == 0 ? give_handle(handle, descriptor) : failure;
}

static CUresult release(CUmemGenericAllocationHandle handle) {
    close((int)handle);
    live--;
    return CUDA_SUCCESS;
}

static CUresult export_handle(void *out, CUmemGenericAllocationHandle handle,
                              CUmemAllocationHandleType type, unsigned long long flags) {
    if (fails() || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return failure;
    }
    *(int *)out = dup((int)handle);
    return CUDA_SUCCESS;
}

static CUresult import_handle(CUmemGenericAllocationHandle *handle, void *from,
                              CUmemAllocationHandleType type) {
    (void)type;
    return fails() ? failure : give_handle(handle, dup((int)(intptr_t)from));
}

static CUresult reserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr at,
                        unsigned long long flags) {
    if (fails() || alignment || at || flags) {
        return failure;
    }
    *out = (CUdeviceptr)(uintptr_t)mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    live++;
    return CUDA_SUCCESS;
}

static void *address(CUdeviceptr at) {
    return (void *)(uintptr_t)at;
}

static CUresult free_address(CUdeviceptr at, size_t bytes) {
    munmap(address(at), bytes);
    live--;
    return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr at, size_t bytes, size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags) {
    if (fails() || offset || flags) {
        return failure;
    }
    mmap(address(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle, 0);
    note_mapping((uintptr_t)at, bytes);
    live++;
    return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr at, size_t bytes) {
    mmap(address(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    forget_mapping((uintptr_t)at);
    live--;
    return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t n) {
    bool all = n == 1 && access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    all &= access->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    return fails() || !all || !allow_device((uintptr_t)at, access->location.id) ||
                   mprotect(address(at), bytes, PROT_READ | PROT_WRITE) != 0
               ? failure
               : CUDA_SUCCESS;
}

lierne_status lierne_cuda_driver_load(lierne_cuda_driver *driver) {
    *driver = (lierne_cuda_driver){get_attribute, get_granularity, create,    release,
                                   export_handle, import_handle,   reserve,   free_address,
                                   map,           unmap,           set_access};
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

static void set_failing(int call) {
    atomic_store(&calls, 0);
    atomic_store(&failing, call);
}

/* Fails at one call after another, until it needs no more. */
static int fail_alloc(void) {
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
    check(live == 2 && count_descriptors() == descriptors + 1,
          "a window is a mapping, its addresses and a descriptor");
    lierne_cuda_vmm_free(memory, &share);
    check(live == 0 && count_descriptors() == descriptors, "which are freed");
    return k - 1;
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
    rejected("8191 bytes are no multiple of the granularity of device 3, 8192 bytes", 8191);
    failure = CUDA_ERROR_OUT_OF_MEMORY;
    set_failing(4);
    check(lierne_cuda_vmm_alloc(&memory, &share, BYTES, 0) == LIERNE_ERR_NO_MEMORY &&
              strstr(lierne_last_error(), "cuMemCreate"),
          "a device that is full is NO_MEMORY");
    failure = CUDA_ERROR_NOT_SUPPORTED;
    set_failing(0);
}

/* In a child, which has another process's window. */
static int open_in_child(const lierne_cuda_share *share, int peer_calls) {
    int descriptors = count_descriptors();
    lierne_cuda_share elsewhere = *share;
    unsigned char *memory = NULL;
    live = 0;
    for (int k = 1; k <= peer_calls; k++) {
        set_failing(k);
        check(lierne_cuda_vmm_open((void **)&memory, share, 0) == LIERNE_ERR_UNSUPPORTED &&
                  strstr(lierne_last_error(), "error 801"),
              "a call that fails in a peer");
        check(live == 0 && count_descriptors() == descriptors, "leaves nothing");
    }
    set_failing(0);
    elsewhere.space++;
    check(lierne_cuda_vmm_open((void **)&memory, &elsewhere, 0) == LIERNE_ERR_UNSUPPORTED &&
              strstr(lierne_last_error(), "another container or pid namespace"),
          "a process that is out of sight");
    elsewhere = *share;
    elsewhere.descriptor = 12345;
    check(lierne_cuda_vmm_open((void **)&memory, &elsewhere, 0) == LIERNE_ERR_UNSUPPORTED &&
              strstr(lierne_last_error(), "pidfd_getfd"),
          "a descriptor that is not there");
    check(live == 0 && count_descriptors() == descriptors, "leaves nothing");
    check(lierne_cuda_vmm_open((void **)&memory, share, 0) == LIERNE_OK, "a peer maps a window");
    check(memory && memory[BYTES - 1] == 77, "and reads what its owner wrote");
    memory[0] = 78;
    lierne_cuda_vmm_close(memory, share);
    check(live == 0 && count_descriptors() == descriptors, "and leaves nothing");
    return print_checks();
}

/* Runs f in n processes; each must end without a failure. */
static void run_processes(int n, int (*f)(int rank, void *shared), void *shared) {
    pid_t pids[4];
    for (int r = 0; r < n; r++) {
        fflush(stdout);
        pids[r] = fork();
        if (pids[r] == 0) {
            int bad = f(r, shared);
            fflush(stdout);
            _exit(bad);
        }
    }
    for (int r = 0; r < n; r++) {
        int status = -1;
        waitpid(pids[r], &status, 0);
        check(status == 0, "a process has no failure");
    }
}

static int open_child(int rank, void *share) {
    (void)rank;
    return open_in_child(share, 4);
}

static void open_from_a_process(void) {
    unsigned char *memory;
    lierne_cuda_share share;
    check(lierne_cuda_vmm_alloc((void **)&memory, &share, BYTES, 0) == LIERNE_OK, "a window");
    memory[BYTES - 1] = 77;
    run_processes(1, open_child, &share);
    check(memory[0] == 78, "what a peer writes is there");
    lierne_cuda_vmm_free(memory, &share);
}

static lierne_cuda_share share_of(const lierne_ipc_handle *handle) {
    lierne_cuda_share share;
    memcpy(&share, handle, sizeof share);
    return share;
}

static lierne_status alloc_chunk(void **memory, lierne_ipc_handle *handle, size_t bytes,
                                 void *stream) {
    lierne_cuda_share share;
    (void)stream;
    LIERNE_TRY(lierne_cuda_vmm_alloc(memory, &share, bytes, device));
    memcpy(handle, &share, sizeof share);
    return LIERNE_OK;
}

static void free_chunk(void *memory, const lierne_ipc_handle *handle, bool quiet) {
    const lierne_cuda_share share = share_of(handle);
    check(quiet, "peers have unmapped what is freed");
    lierne_cuda_vmm_free(memory, &share);
}

static lierne_status open_chunk(void **memory, const lierne_ipc_handle *handle, size_t bytes) {
    const lierne_cuda_share share = share_of(handle);
    check((size_t)share.bytes == bytes, "a chunk has its bytes");
    return lierne_cuda_vmm_open(memory, &share, device);
}

static void close_chunk(void *memory, const lierne_ipc_handle *handle, int number) {
    const lierne_cuda_share share = share_of(handle);
    (void)number;
    lierne_cuda_vmm_close(memory, &share);
}

static lierne_status copy_chunk(void *to, const void *from, size_t bytes, void *stream,
                                int number) {
    if (!may_access(to) || !may_access(from)) {
        check(false, "a device accesses memory that it may");
    }
    return test_ipc_driver.copy(to, from, bytes, stream, number);
}

static lierne_status run_flags(const lierne_ipc_step *step, void *stream, int number) {
    for (int i = 0; i < step->n; i++) {
        if (!may_access(step->flags[i].at) || !may_access(step->flags[i].broken)) {
            check(false, "a device accesses flags that it may");
        }
    }
    return test_ipc_driver.run(step, stream, number);
}

/* The context as lierne_context_use_cuda makes it: by descriptors, or else in the other way. */
static void exchange(int rank, const char *name, const char *expected) {
    static int64_t in[2][2 * COUNT], out[2][2 * COUNT];
    static char stream;
    char dump[4096];
    lierne_plan *plan = NULL;
    lierne_ipc_driver driver = test_ipc_driver;
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 30};
    const lierne_all_to_all_spec all = {.size = sizeof all,
                                        .count = COUNT,
                                        .dtype = LIERNE_DTYPE_I64};
    lierne_context *context = open_rank(name, rank, 2, &spec);
    driver.shares = "descriptors";
    driver.alloc = alloc_chunk;
    driver.free = free_chunk;
    driver.open = open_chunk;
    driver.close = close_chunk;
    driver.copy = copy_chunk;
    driver.run = run_flags;
    check(lierne_context_open_ipc(context, &driver) == LIERNE_OK, "windows by descriptors");
    check(test_ipc_use(context) == LIERNE_OK, "windows in the other way");
    check(lierne_plan_create_all_to_all(&plan, context, &all) == LIERNE_OK, "planning");
    for (int call = 0; call < 3; call++) {
        int wrong = 0;
        for (int i = 0; i < 2 * COUNT; i++) {
            in[rank][i] = rank * 100000 + call * 20000 + i;
        }
        check(lierne_plan_forward(plan, out[rank], in[rank], &stream) == LIERNE_OK, "a call");
        for (int i = 0; i < 2 * COUNT; i++) {
            wrong += out[rank][i] != i / COUNT * 100000 + call * 20000 + rank * COUNT + i % COUNT;
        }
        check(wrong == 0, "an all-to-all over windows");
    }
    check(lierne_context_dump(dump, sizeof dump, context) == LIERNE_OK && strstr(dump, expected) &&
              !strstr(dump, "is not used"),
          expected);
    check(lierne_plan_destroy(plan) == LIERNE_OK, "plan");
    check(lierne_context_destroy(context) == LIERNE_OK, "destroy");
}

/* A process whose descriptors others may not copy. */
static int run_process(int rank, void *refused) {
    int descriptors = count_descriptors();
    bool fails_here = *(bool *)refused && rank == 1;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    set_failing(fails_here ? 9 : 0); /* the first call after its own chunk: its peer's */
    exchange(rank, *(bool *)refused ? "refused" : "processes",
             *(bool *)refused ? "shared by memfds" : "shared by descriptors");
    check(live == 0 && test_ipc_live() == 0 && lierne_mem_live() == 0, "nothing is left");
    check(count_descriptors() == descriptors, "no descriptor is left");
    return print_checks();
}

static void *run_thread(void *argument) {
    exchange((int)(intptr_t)argument, "threads", "shared by descriptors");
    return NULL;
}

/* A device of its own, of those that reach each other's memory or of those that do not. */
static void *run_on_device(void *argument) {
    device = 1 + (int)(intptr_t)argument;
    exchange(device - 1, no_peers ? "apart" : "devices",
             no_peers ? "shared by memfds" : "shared by descriptors");
    return NULL;
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

static void between_processes(void) {
    bool refused = false;
    open_from_a_process();
    run_processes(2, run_process, &refused);
    refused = true;
    run_processes(2, run_process, &refused);
}

int main(void) {
    check(fail_alloc() == 8, "every call that can fail did");
    rejections();
    if (may_copy()) {
        between_processes();
    } else {
        printf("skipped: the system lets no process copy descriptors of another one\n");
    }
    int descriptors = count_descriptors();
    set_failing(0);
    run_n_ranks(2, run_thread);
    run_n_ranks(2, run_on_device);
    no_peers = true;
    run_n_ranks(2, run_on_device);
    check(live == 0 && lierne_mem_live() == 0 && count_descriptors() == descriptors,
          "nothing is left");
    return print_checks();
}
