/* What is wrong with an access, beside the value: it is outside of all allocations, misaligned, of
 * memory that nobody wrote, or in no order with another access to the same bytes.
 *
 * Order is what CUDA promises: of a stream's operations, of events that streams and the host wait
 * for, and of a release that an acquire sees. Threads of a launch have none. Each byte remembers
 * its last store and its last load (as FastTrack does, Flanagan and Freund, 2009), and each stream
 * has a vector clock of all operations that it comes after. So an order that is missing is found
 * although this machine's memory would not have shown it. What the host itself reads and writes is
 * not seen, nor what other processes do. */
#include "internal.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* An operation of an agent, and the thread of its launch: 8, 32 and 24 bits. 0: none. */
typedef uint64_t mark;
#define MANY 0xffffffu /* threads */

struct emulator_shadow {
    size_t bytes;
    mark *stored, *loaded;
    uint8_t *defined;
};

static void *lazy_zeros(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        perror("memory of the emulated device's checks");
        abort();
    }
    return at;
}

emulator_shadow *emulator_shadow_create(size_t bytes) {
    emulator_shadow *s = malloc(sizeof *s);
    *s = (emulator_shadow){bytes, lazy_zeros(bytes * sizeof(mark)),
                           lazy_zeros(bytes * sizeof(mark)), lazy_zeros(bytes)};
    return s;
}

void emulator_shadow_destroy(emulator_shadow *s) {
    if (s) {
        munmap(s->stored, s->bytes * sizeof(mark));
        munmap(s->loaded, s->bytes * sizeof(mark));
        munmap(s->defined, s->bytes);
        free(s);
    }
}

void emulator_clock_join(emulator_clock *clock, const emulator_clock *other) {
    for (int i = 0; i < EMULATOR_AGENTS; i++) {
        clock->at[i] = clock->at[i] > other->at[i] ? clock->at[i] : other->at[i];
    }
}

uint32_t emulator_clock_advance(emulator_clock *clock, int agent) {
    static atomic_uint last[EMULATOR_AGENTS];
    clock->at[agent] = atomic_fetch_add(&last[agent], 1) + 1;
    return clock->at[agent];
}

static mark mark_of(const struct CUstream_st *stream, uint32_t thread) {
    return (mark)stream->agent << 56 | (mark)stream->operation << 24 | thread;
}

/* Whether another access may have been at the same time as one of this thread. */
static bool is_unordered(mark other, mark own, const emulator_clock *clock) {
    return other >> 24 == own >> 24
               ? other != own
               : other != 0 && (uint32_t)(other >> 24) > clock->at[other >> 56];
}

/* What is wrong with loads, or stores, of bytes from `at` on; NULL: nothing. */
static const char *load_bytes(emulator_shadow *s, size_t at, size_t end, mark own,
                              const emulator_clock *clock) {
    for (; at < end; at++) {
        if (!s->defined[at]) {
            return "load of memory that was never written";
        }
        if (is_unordered(s->stored[at], own, clock)) {
            return "load that races with a store";
        }
        s->loaded[at] = s->loaded[at] >> 24 == own >> 24 && s->loaded[at] != own ? own | MANY : own;
    }
    return NULL;
}

static const char *store_bytes(emulator_shadow *s, size_t at, size_t end, mark own,
                               const emulator_clock *clock) {
    for (; at < end; at++) {
        if (is_unordered(s->stored[at], own, clock)) {
            return "store that races with a store";
        }
        if (is_unordered(s->loaded[at], own, clock)) {
            return "store that races with a load";
        }
        s->stored[at] = own;
        s->defined[at] = 1;
    }
    return NULL;
}

static const char *check_bytes(const emulator_memory *m, uint64_t address, size_t bytes, bool store,
                               const struct CUstream_st *stream, uint32_t thread) {
    mark own = mark_of(stream, thread);
    size_t at = address - m->address;
    return !m->shadow ? NULL
           : store    ? store_bytes(m->shadow, at, at + bytes, own, &stream->clock)
                      : load_bytes(m->shadow, at, at + bytes, own, &stream->clock);
}

void *emulator_global(emulator_thread *t, uint64_t address, size_t bytes, bool store) {
    const emulator_memory *m = emulator_memory_find(address);
    if (!m || bytes > m->bytes - (address - m->address)) {
        emulator_fault(t, store ? "store out of bounds" : "load out of bounds", address, bytes);
    }
    if (address % bytes) {
        emulator_fault(t, "misaligned access", address, bytes);
    }
    if (!emulator_memory_reached(m, t->stream->device)) {
        emulator_fault(t, "access to memory of another device", address, bytes);
    }
    const char *wrong = check_bytes(m, address, bytes, store, t->stream, t->number);
    t->loads += !store;
    t->stores += store;
    if (wrong) {
        emulator_fault(t, wrong, address, bytes);
    }
    return emulator_memory_at(m, address);
}

static void *within(emulator_thread *t, const void *begin, size_t size, uint64_t address,
                    size_t bytes) {
    uint64_t at = address - (uintptr_t)begin;
    if (at > size || bytes > size - at || address % bytes) {
        emulator_fault(t, "access outside of parameters or local memory", address, bytes);
    }
    return (void *)(uintptr_t)address;
}

void *emulator_param(emulator_thread *t, uint64_t address, size_t bytes, bool store) {
    if (store) {
        emulator_fault(t, "store to a parameter", address, bytes);
    }
    return within(t, t->parameters, t->parameter_bytes, address, bytes);
}

void *emulator_local_at(emulator_thread *t, uint64_t address, size_t bytes, bool store) {
    (void)store;
    return within(t, t->local, t->local_bytes, address, bytes);
}

uint64_t emulator_parameter(emulator_thread *t, size_t offset) {
    return (uintptr_t)t->parameters + offset;
}

uint64_t emulator_local(emulator_thread *t) {
    return (uintptr_t)t->local;
}

bool emulator_check_copy(const struct CUstream_st *stream, uint64_t to, uint64_t from,
                         size_t bytes) {
    const emulator_memory *target = emulator_memory_find(to);
    const emulator_memory *source = from ? emulator_memory_find(from) : NULL;
    const char *wrong = NULL;
    if (source && !target) {
        wrong = check_bytes(source, from, bytes, false, stream, 0);
    } else if (source && source->shadow) { /* what was not written may be copied, but not read */
        for (size_t i = 0; i < bytes && !wrong; i++) {
            size_t at = from - source->address + i;
            wrong = is_unordered(source->shadow->stored[at], mark_of(stream, 0), &stream->clock)
                        ? "copy that races with a store"
                        : NULL;
            source->shadow->loaded[at] = mark_of(stream, 0);
        }
    }
    if (!wrong && target) {
        wrong = check_bytes(target, to, bytes, true, stream, 0);
        for (size_t i = 0; source && source->shadow && target->shadow && i < bytes; i++) {
            target->shadow->defined[to - target->address + i] =
                source->shadow->defined[from - source->address + i];
        }
    }
    if (wrong) {
        emulator_say("copy or set of %zu bytes from %#llx to %#llx: %s", bytes,
                     (unsigned long long)from, (unsigned long long)to, wrong);
    }
    return !wrong;
}

/* What was released at an address. */
typedef struct flag {
    uint64_t address;
    emulator_clock clock;
    struct flag *next;
} flag;
enum { BUCKETS = 4096 };
static flag *flags[BUCKETS];

/* The lock is held. */
static flag *flag_at(uint64_t address) {
    flag **bucket = &flags[address / 4 * 0x9e3779b1u % BUCKETS], *f = *bucket;
    while (f && f->address != address) {
        f = f->next;
    }
    if (!f) {
        f = calloc(1, sizeof *f);
        f->address = address;
        f->next = *bucket;
        *bucket = f;
    }
    return f;
}

static void *synchronized_at(emulator_thread *t, uint64_t address, size_t bytes) {
    const emulator_memory *m = emulator_memory_find(address);
    if (!m || bytes > m->bytes - (address - m->address) || address % bytes) {
        emulator_fault(t, "ordered access out of bounds or misaligned", address, bytes);
    }
    if (!emulator_memory_reached(m, t->stream->device)) {
        emulator_fault(t, "ordered access to memory of another device", address, bytes);
    }
    return emulator_memory_at(m, address);
}

/* Without an acquire, what was released is ordered from the next fence on only. */
uint64_t emulator_load(emulator_thread *t, uint64_t address, size_t bytes, emulator_order order) {
    void *at = synchronized_at(t, address, bytes);
    pthread_mutex_lock(&emulator_lock);
    uint64_t value = bytes == 4 ? __atomic_load_n((uint32_t *)at, __ATOMIC_ACQUIRE)
                                : __atomic_load_n((uint64_t *)at, __ATOMIC_ACQUIRE);
    emulator_clock_join(order == EMULATOR_ORDERED ? &t->stream->clock : &t->stream->seen,
                        &flag_at(address)->clock);
    pthread_mutex_unlock(&emulator_lock);
    return value;
}

/* Without a release, what came before the last fence is ordered only. What a launch does later has
 * a number that is not released. */
void emulator_store(emulator_thread *t, uint64_t address, size_t bytes, emulator_order order,
                    uint64_t value) {
    void *at = synchronized_at(t, address, bytes);
    struct CUstream_st *s = t->stream;
    pthread_mutex_lock(&emulator_lock);
    emulator_clock_join(&flag_at(address)->clock,
                        order == EMULATOR_ORDERED ? &s->clock : &s->fenced);
    s->operation = emulator_clock_advance(&s->clock, s->agent);
    if (bytes == 4) {
        __atomic_store_n((uint32_t *)at, (uint32_t)value, __ATOMIC_RELEASE);
    } else {
        __atomic_store_n((uint64_t *)at, value, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&emulator_lock);
}

void emulator_fence(emulator_thread *t) {
    struct CUstream_st *s = t->stream;
    emulator_clock_join(&s->clock, &s->seen);
    s->fenced = s->clock;
    s->operation = emulator_clock_advance(&s->clock, s->agent);
}

uint64_t emulator_nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void emulator_pause(void) {
    usleep(20);
}
