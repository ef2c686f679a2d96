/* Memory of the device lies at addresses where the host has nothing: a host that touches it
 * crashes, as it would beside a GPU. The emulator has it elsewhere, and pages of a file in memory,
 * so that other processes can map it. Pinned memory of the host has one address for both.
 *
 * Each allocation has whole blocks, and a free block follows it, so that an access beyond its end
 * is found. Addresses are not used again soon. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCKS = 1 << 17 };
#define SPACE        (BLOCKS * (uint64_t)EMULATOR_BLOCK)
#define DEVICE_SPACE 0x200000000000u
#define HOST_SPACE   0x500000000000u
#define APART        0x100000000000u /* between an address of the device and the emulator's */
#define SKEW         256u            /* of cudaMalloc: an address is not that of a block */

/* A space of addresses, and what each of its blocks belongs to. */
typedef struct space {
    uint64_t begin;
    emulator_memory *owner[BLOCKS];
    uint32_t next;
} space;
static space device_space = {.begin = DEVICE_SPACE}, host_space = {.begin = HOST_SPACE};

static void give_up(const char *what) {
    perror(what);
    abort();
}

/* Nobody else gets these addresses. */
static __attribute__((constructor)) void reserve_spaces(void) {
    const uint64_t begins[] = {DEVICE_SPACE, DEVICE_SPACE + APART, HOST_SPACE};
    for (int i = 0; i < 3; i++) {
        void *wanted = (void *)(uintptr_t)begins[i];
        if (mmap(wanted, SPACE, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
                 0) != wanted) {
            give_up("addresses of the emulated device");
        }
    }
}

static space *space_of(uint64_t address) {
    return address - DEVICE_SPACE < SPACE ? &device_space
           : address - HOST_SPACE < SPACE ? &host_space
                                          : NULL;
}

/* Blocks of a space that are free, and one behind them. The lock is held. */
static uint64_t take(space *s, size_t room, emulator_memory *memory) {
    uint32_t n = (uint32_t)(room / EMULATOR_BLOCK), found = 0;
    for (uint32_t tries = 0; tries < 2 * BLOCKS; tries++) {
        s->next = s->next + n + 1 >= BLOCKS && found == 0 ? 0 : s->next;
        found = s->owner[s->next + found] ? 0 : found + 1;
        if (found == n + 1) {
            for (uint32_t i = 0; i < n; i++) {
                s->owner[s->next + i] = memory;
            }
            uint64_t address = s->begin + s->next * (uint64_t)EMULATOR_BLOCK;
            s->next += n + 1;
            return address;
        }
        s->next += found == 0;
    }
    emulator_say("no addresses are left");
    abort();
}

static void leave(emulator_memory *memory) {
    space *s = space_of(memory->address);
    uint64_t first = (memory->address - s->begin) / EMULATOR_BLOCK;
    pthread_mutex_lock(&emulator_lock);
    for (uint64_t i = 0; i < memory->room / EMULATOR_BLOCK; i++) {
        s->owner[first + i] = NULL;
    }
    pthread_mutex_unlock(&emulator_lock);
}

static emulator_memory *reserve_in(space *s, size_t bytes, size_t skew) {
    emulator_memory *memory = calloc(1, sizeof *memory);
    if (!memory) {
        give_up("memory");
    }
    memory->bytes = bytes;
    memory->room = (bytes + skew + EMULATOR_BLOCK - 1) / EMULATOR_BLOCK * EMULATOR_BLOCK;
    memory->descriptor = -1;
    memory->device = emulator_device();
    memory->access = 1u << memory->device;
    pthread_mutex_lock(&emulator_lock);
    memory->address = take(s, memory->room, memory) + skew;
    pthread_mutex_unlock(&emulator_lock);
    return memory;
}

emulator_memory *emulator_memory_reserve(size_t bytes, size_t skew) {
    return reserve_in(&device_space, bytes, skew);
}

static emulator_memory *owner_of(uint64_t address) {
    space *s = space_of(address);
    return s ? s->owner[(address - s->begin) / EMULATOR_BLOCK] : NULL;
}

emulator_memory *emulator_memory_reserved(uint64_t address) {
    emulator_memory *m = owner_of(address);
    return m && m->reserved ? m : NULL;
}

emulator_memory *emulator_memory_find(uint64_t address) {
    emulator_memory *m = owner_of(address);
    return m && m->mapped && address - m->address < m->bytes ? m : NULL;
}

bool emulator_memory_has(uint64_t address, size_t bytes) {
    const emulator_memory *m = emulator_memory_find(address);
    return m ? bytes <= m->bytes - (address - m->address) : !space_of(address);
}

bool emulator_memory_reached(const emulator_memory *memory, int device) {
    return memory->access >> device & 1 || emulator_accesses(device, memory->device);
}

unsigned char *emulator_memory_at(const emulator_memory *memory, uint64_t address) {
    return (unsigned char *)(uintptr_t)(memory && !memory->host ? address + APART : address);
}

/* The pages of its blocks. */
static void set_pages(const emulator_memory *memory, int access, int flags, int descriptor) {
    uint64_t block = memory->address / EMULATOR_BLOCK * EMULATOR_BLOCK;
    if (mmap(emulator_memory_at(memory, block), memory->room, access,
             flags | MAP_FIXED | MAP_NORESERVE, descriptor, 0) == MAP_FAILED) {
        give_up("memory of the emulated device");
    }
}

void emulator_memory_map(emulator_memory *memory, int descriptor) {
    set_pages(memory, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor);
    memory->shadow =
        memory->imported || !emulator.check ? NULL : emulator_shadow_create(memory->bytes);
    memory->mapped = true;
}

void emulator_memory_unmap(emulator_memory *memory) {
    memory->mapped = false;
    set_pages(memory, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    emulator_shadow_destroy(memory->shadow);
    memory->shadow = NULL;
}

void emulator_memory_release(emulator_memory *memory) {
    if (memory->mapped) {
        emulator_memory_unmap(memory);
    }
    leave(memory);
    if (memory->descriptor >= 0) {
        close(memory->descriptor);
    }
    free(memory);
}

/* Addresses, and pages that are not mapped yet; NULL: there are none. */
static emulator_memory *reserve_pages(size_t bytes) {
    emulator_memory *memory = emulator_memory_reserve(bytes, SKEW);
    memory->descriptor = memfd_create("emulated device", MFD_CLOEXEC);
    if (memory->descriptor < 0 || ftruncate(memory->descriptor, (off_t)memory->room) != 0) {
        emulator_memory_release(memory);
        return NULL;
    }
    return memory;
}

cudaError_t cudaMalloc(void **out, size_t bytes) {
    EMULATOR_TRY(emulator_ready_outside_captures());
    *out = NULL;
    if (bytes == 0) {
        return cudaSuccess;
    }
    emulator_memory *memory = reserve_pages(bytes);
    EMULATOR_TRY(memory ? cudaSuccess : cudaErrorMemoryAllocation);
    emulator_memory_map(memory, memory->descriptor);
    memset(emulator_memory_at(memory, memory->address), 0xd7, bytes < 65536 ? bytes : 65536);
    *out = (void *)(uintptr_t)memory->address;
    return cudaSuccess;
}

void emulator_run_alloc(const emulator_work *work) {
    emulator_memory *memory = owner_of(work->to);
    if (work->kind == EMULATOR_ALLOC) {
        emulator_memory_map(memory, memory->descriptor);
    } else {
        emulator_memory_release(memory);
    }
}

static cudaError_t enqueue(emulator_kind kind, const emulator_memory *memory, cudaStream_t stream) {
    emulator_work *work = emulator_work_create(kind);
    work->to = memory->address;
    return emulator_result(emulator_enqueue(stream, work));
}

/* There, and gone again, when the stream comes to it; kept out of graphs. */
cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t given) {
    cudaStream_t stream = emulator_stream(given);
    EMULATOR_TRY(emulator_ready());
    EMULATOR_TRY(emulator.pools ? cudaSuccess : cudaErrorNotSupported);
    EMULATOR_TRY(stream->capture ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
    emulator_memory *memory = reserve_pages(bytes);
    EMULATOR_TRY(memory ? cudaSuccess : cudaErrorMemoryAllocation);
    memory->ordered = true;
    *out = (void *)(uintptr_t)memory->address;
    return enqueue(EMULATOR_ALLOC, memory, stream);
}

cudaError_t cudaFreeAsync(void *at, cudaStream_t given) {
    cudaStream_t stream = emulator_stream(given);
    EMULATOR_TRY(emulator_ready());
    EMULATOR_TRY(stream->capture ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
    emulator_memory *memory = owner_of((uintptr_t)at);
    EMULATOR_TRY(memory && memory->ordered && !memory->freed && memory->address == (uintptr_t)at
                     ? cudaSuccess
                     : cudaErrorInvalidValue);
    memory->freed = true;
    return enqueue(EMULATOR_FREE, memory, stream);
}

/* It waits for all work of its device. */
cudaError_t cudaFree(void *at) {
    if (!at) {
        return cudaSuccess;
    }
    EMULATOR_TRY(emulator_ready_outside_captures());
    emulator_memory *memory = emulator_memory_find((uintptr_t)at);
    if (!memory || memory->host || memory->reserved || memory->imported ||
        memory->address != (uintptr_t)at) {
        emulator_say("cudaFree(%p) is of no allocation", at);
        return emulator_result(cudaErrorInvalidValue);
    }
    emulator_wait_device(memory->device);
    emulator_memory_release(memory);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
    (void)flags;
    EMULATOR_TRY(emulator_ready_outside_captures());
    emulator_memory *memory = reserve_in(&host_space, bytes, 0);
    memory->host = true;
    memory->access = ~0u;
    set_pages(memory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    memory->mapped = true;
    *out = (void *)(uintptr_t)memory->address;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *at) {
    if (!at) {
        return cudaSuccess;
    }
    EMULATOR_TRY(emulator_ready_outside_captures());
    emulator_memory *memory = emulator_memory_find((uintptr_t)at);
    EMULATOR_TRY(memory && memory->host ? cudaSuccess : cudaErrorInvalidValue);
    emulator_wait_device(-1);
    emulator_memory_release(memory);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes,
                                     const void *pointer) {
    EMULATOR_TRY(emulator_ready());
    const emulator_memory *m = emulator_memory_find((uintptr_t)pointer);
    void *same = (void *)(uintptr_t)pointer;
    memset(attributes, 0, sizeof *attributes);
    attributes->device = m ? m->device : -1;
    attributes->type = !m        ? cudaMemoryTypeUnregistered
                       : m->host ? cudaMemoryTypeHost
                                 : cudaMemoryTypeDevice;
    attributes->hostPointer = !m || m->host ? same : NULL;
    if (m && emulator_memory_reached(m, emulator_device())) {
        attributes->devicePointer = same;
    }
    return cudaSuccess;
}
