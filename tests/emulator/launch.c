/* Launches: the threads of a launch are run one after another, blocks and threads in an order drawn
 * at random, by the worker of their stream. A kernel's address is its name (kernels.c); a library
 * in EMULATOR_KERNELS may have another translation of it. */
#include "internal.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const emulator_entry *other_entries;
static _Thread_local const emulator_thread *running;
static _Thread_local jmp_buf faulted;

static __attribute__((constructor)) void load_kernels(void) {
    const char *path = getenv("EMULATOR_KERNELS");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    other_entries = library ? dlsym(library, "emulator_entries") : NULL;
    if (path && !other_entries) {
        emulator_say("%s", dlerror());
        abort();
    }
}

static const emulator_entry *find_among(const emulator_entry *entries, const char *name) {
    while (entries && entries->name && strcmp(entries->name, name) != 0) {
        entries++;
    }
    return entries && entries->name ? entries : NULL;
}

static const emulator_entry *find_entry(const char *name) {
    const emulator_entry *entry = find_among(other_entries, name);
    return entry ? entry : find_among(emulator_entries, name);
}

void emulator_fault(const emulator_thread *t, const char *what, uint64_t address, size_t bytes) {
    t = t ? t : running;
    emulator_say("%s: %s, %zu bytes at %#llx, block %u, thread %u", t->kernel, what, bytes,
                 (unsigned long long)address, t->block, t->thread);
    emulator_break(cudaErrorIllegalAddress);
    longjmp(faulted, 1);
}

/* 0 to n - 1 in an order drawn at random. */
static uint32_t *shuffle(uint32_t n) {
    uint32_t *order = malloc(n * sizeof *order);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t other = emulator_draw(i + 1);
        order[i] = order[other];
        order[other] = i;
    }
    return order;
}

/* Runs a thread of the block, to its end or to a barrier. */
static void run_thread(emulator_thread *t, const emulator_work *work, uint32_t thread) {
    t->thread = thread;
    t->number = t->block * work->threads + thread + 1;
    work->entry->run(t);
}

static void run_alone(emulator_thread *t, const emulator_work *work, const uint32_t *order) {
    for (uint32_t i = 0; i < work->threads; i++) {
        memset(t->local, 0xcd, t->local_bytes);
        run_thread(t, work, order[i]);
    }
}

/* All threads run to the next barrier, then all go on from there. */
static void run_together(emulator_thread *t, const emulator_work *work, const uint32_t *order,
                         unsigned char *registers) {
    const size_t each = work->entry->register_bytes;
    uint32_t at = 0, next = 0;
    memset(registers, 0, work->threads * each);
    emulator_shared_clear(t->shared);
    do {
        emulator_shared_pass(t->shared);
        for (uint32_t i = 0; i < work->threads; i++) {
            t->registers = registers + order[i] * each;
            t->barrier = at;
            run_thread(t, work, order[i]);
            if (i > 0 && t->barrier != next) {
                emulator_fault(t, "a barrier that not all threads of the block come to", 0, 0);
            }
            next = t->barrier;
        }
        at = next;
    } while (at);
}

static void run_block(emulator_thread *t, const emulator_work *work, unsigned char *registers) {
    uint32_t *order = shuffle(work->threads);
    if (setjmp(faulted) == 0) {
        if (work->entry->register_bytes) {
            run_together(t, work, order, registers);
        } else {
            run_alone(t, work, order);
        }
    }
    free(order);
}

static atomic_ullong loads, stores, instructions;

emulator_counts emulator_take_counts(void) {
    return (emulator_counts){atomic_exchange(&loads, 0), atomic_exchange(&stores, 0),
                             atomic_exchange(&instructions, 0), emulator_take_streams()};
}

void emulator_run_kernel(const emulator_work *work) {
    _Alignas(16) unsigned char local[EMULATOR_LOCAL];
    uint32_t *order = shuffle(work->blocks);
    unsigned char *registers = malloc((size_t)work->threads * work->entry->register_bytes + 1);
    emulator_thread t = {.threads = work->threads,
                         .blocks = work->blocks,
                         .parameters = work->parameters,
                         .parameter_bytes = work->entry->parameter_bytes,
                         .local = local,
                         .local_bytes = work->entry->local_bytes,
                         .shared = emulator_shared_create(work->entry->shared_bytes),
                         .stream = work->stream,
                         .kernel = work->entry->name};
    running = &t;
    for (uint32_t i = 0; i < work->blocks && emulator_broken() == cudaSuccess; i++) {
        t.block = order[i];
        run_block(&t, work, registers);
    }
    running = NULL;
    atomic_fetch_add(&loads, t.loads);
    atomic_fetch_add(&stores, t.stores);
    atomic_fetch_add(&instructions, t.instructions);
    emulator_shared_destroy(t.shared);
    free(registers);
    free(order);
}

static bool is_plain(dim3 grid, dim3 block, const emulator_entry *entry) {
    return grid.x > 0 && grid.y == 1 && grid.z == 1 && block.x > 0 && block.y == 1 &&
           block.z == 1 && block.x <= entry->threads && entry->local_bytes <= EMULATOR_LOCAL;
}

/* A kernel is loaded when it is used first, which may wait for the device, so it does here. */
static void load(const emulator_entry *entry) {
    static const emulator_entry *loaded[32];
    size_t i = 0;
    pthread_mutex_lock(&emulator_lock);
    while (loaded[i] && loaded[i] != entry) {
        i++;
    }
    bool there = loaded[i] != NULL;
    loaded[i] = entry;
    pthread_mutex_unlock(&emulator_lock);
    if (!there) {
        emulator_wait_device(emulator_device());
    }
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                             size_t shared_bytes, cudaStream_t stream) {
    EMULATOR_TRY(emulator_ready());
    const emulator_entry *entry = find_entry(function);
    EMULATOR_TRY(entry ? cudaSuccess : cudaErrorInvalidDeviceFunction);
    EMULATOR_TRY(is_plain(grid, block, entry) && shared_bytes == 0 ? cudaSuccess
                                                                   : cudaErrorInvalidConfiguration);
    EMULATOR_TRY(emulator_stream(stream)->device == emulator_device()
                     ? cudaSuccess
                     : cudaErrorInvalidResourceHandle);
    load(entry);
    emulator_work *work = emulator_work_create(EMULATOR_KERNEL);
    work->entry = entry;
    work->blocks = grid.x;
    work->threads = block.x;
    work->parameters = malloc(entry->parameter_bytes);
    for (uint32_t i = 0; i < entry->nparameters; i++) {
        const emulator_span *p = &entry->parameters[i];
        memcpy(work->parameters + p->offset, arguments[i], p->bytes);
    }
    return emulator_result(emulator_enqueue(emulator_stream(stream), work));
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
    EMULATOR_TRY(emulator_ready());
    const emulator_entry *entry = find_entry(function);
    EMULATOR_TRY(entry ? cudaSuccess : cudaErrorInvalidDeviceFunction);
    load(entry);
    attributes->maxThreadsPerBlock = (int)entry->threads;
    return cudaSuccess;
}
