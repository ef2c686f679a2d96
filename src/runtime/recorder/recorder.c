/* Writing the ring.
 *
 * An entry is four words. Its place comes from one atomic addition, so that threads that progress
 * the same context write to different entries. The low bits of the last word are those of the
 * entry's number: a reader sees an entry that was cut off, because its process was killed in it, or
 * one that is being overwritten.
 *
 * The clock must be cheaper than what it measures. The system's takes 20 to 60 ns, the processor's
 * counter half of that; it is used where it counts at one speed, and the header has what converts
 * it. */
#include "runtime/recorder/recorder_file.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#if defined __x86_64__
#include <cpuid.h>
#include <x86intrin.h>
#define COUNTER()      ((int64_t)__rdtsc())
#define CONSTANT_SPEED (1u << 8) /* leaf 0x80000007, edx */
#else
#define COUNTER() lierne_recorder_nanoseconds()
#endif

#define RELAXED memory_order_relaxed

static int64_t nanoseconds_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t lierne_recorder_nanoseconds(void) {
    return nanoseconds_of(CLOCK_MONOTONIC);
}

int64_t lierne_recorder_calendar(void) {
    return nanoseconds_of(CLOCK_REALTIME);
}

static bool has_counter(void) {
#if defined __x86_64__
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & CONSTANT_SPEED);
#else
    return false;
#endif
}

int64_t lierne_recorder_now(const lierne_recorder *r) {
    return r->own_clock ? COUNTER() : lierne_recorder_nanoseconds();
}

static void start_clock(lierne_recorder *r) {
    lierne_recorder_header *h = r->header;
    r->own_clock = has_counter();
    h->epoch = lierne_recorder_calendar();
    h->first_time = lierne_recorder_nanoseconds();
    h->first_ticks = lierne_recorder_now(r);
    lierne_recorder_beat(r);
}

void lierne_recorder_begin(lierne_recorder *r, const lierne_recorder_spec *spec) {
    lierne_recorder_header *h = r->header;
    h->version = LIERNE_RECORDER_VERSION;
    h->entry_bytes = 4 * sizeof(uint64_t);
    h->capacity = spec->capacity;
    h->rank = spec->rank;
    h->world = spec->world;
    h->members = spec->members;
    h->listed = spec->ranks ? spec->members : 0;
    h->space = spec->space;
    h->process = spec->process;
    h->process_start = spec->process_start;
    h->timeout = (int64_t)(spec->timeout * 1e9);
    if (spec->ranks) {
        memcpy(h + 1, spec->ranks, (size_t)spec->members * sizeof *spec->ranks);
    }
    r->entries = (_Atomic uint64_t *)(void *)((char *)h + h->header_bytes);
    r->mask = spec->capacity - 1;
    start_clock(r);
    /* Last, because a file without it is none yet. */
    memcpy(h->magic, LIERNE_RECORDER_MAGIC, sizeof h->magic);
}

void lierne_recorder_meet(lierne_recorder *r, uint64_t context, int64_t created) {
    r->created = created;
    r->begin = lierne_recorder_nanoseconds() - (lierne_recorder_calendar() - created);
    if (r->header) {
        r->header->context = context ? context : 1;
        atomic_store_explicit(&r->header->state, LIERNE_RECORDER_OPEN, RELAXED);
        lierne_recorder_beat(r);
    }
}

void lierne_recorder_die(lierne_recorder *r, int status, const char *message) {
    if (!r->header) {
        return;
    }
    lierne_recorder_add(r, &(lierne_entry){.kind = LIERNE_RECORD_GAVE_UP, .bytes = status});
    snprintf(r->header->message, sizeof r->header->message, "%s", message);
    atomic_store_explicit(&r->header->status, status, RELAXED);
    atomic_store_explicit(&r->header->state, LIERNE_RECORDER_DEAD, RELAXED);
    lierne_recorder_beat(r);
}

void lierne_recorder_set_clock(const lierne_recorder *r) {
    lierne_recorder_header *h = r->header;
    if (h) {
        atomic_store_explicit(&h->last_time, lierne_recorder_nanoseconds(), RELAXED);
        atomic_store_explicit(&h->last_ticks, lierne_recorder_now(r), RELAXED);
    }
}

double lierne_recorder_seconds(const lierne_recorder *r, int64_t ticks) {
    const lierne_recorder_header *h = r->header;
    if (!r->own_clock) {
        return 1e-9 * (double)ticks;
    }
    lierne_recorder_set_clock(r);
    int64_t passed = atomic_load_explicit(&h->last_ticks, RELAXED) - h->first_ticks;
    int64_t time = atomic_load_explicit(&h->last_time, RELAXED) - h->first_time;
    return passed > 0 ? 1e-9 * (double)ticks * ((double)time / (double)passed) : 0;
}

double lierne_recorder_since(const lierne_recorder *r, int64_t ticks) {
    return lierne_recorder_seconds(r, lierne_recorder_now(r) - ticks);
}

void lierne_recorder_beat(const lierne_recorder *r) {
    if (r->header) {
        lierne_recorder_set_clock(r);
        atomic_store_explicit(&r->header->alive, lierne_recorder_now(r), RELAXED);
    }
    if (r->file) {
        lierne_recorder_file_set_header(r);
    }
}

void lierne_call_print(char text[LIERNE_CALL_TEXT], const char *name, int64_t number, int plan) {
    char counted[24] = "", of[24] = "";
    if (number >= 0) {
        snprintf(counted, sizeof counted, " %lld", (long long)number);
    }
    if (plan >= 0) {
        snprintf(of, sizeof of, " of plan %d", plan);
    }
    snprintf(text, LIERNE_CALL_TEXT, "%s%s%s", name, counted, of);
}

/* docs/hangs.md has the places of the fields. */
void lierne_recorder_add(const lierne_recorder *r, const lierne_entry *record) {
    lierne_recorder_header *h = r->header;
    if (!h) {
        return;
    }
    int64_t ticks = record->time ? record->time : lierne_recorder_now(r);
    uint64_t index = atomic_fetch_add_explicit(&h->written, 1, RELAXED);
    _Atomic uint64_t *entry = &r->entries[(index & r->mask) * 4];
    atomic_store_explicit(&entry[0], (uint64_t)ticks, RELAXED);
    atomic_store_explicit(&entry[1],
                          (uint64_t)(uint8_t)record->kind | (uint64_t)(uint8_t)record->what << 8 |
                              (uint64_t)(uint16_t)record->stage << 16 |
                              (uint64_t)(uint32_t)record->plan << 32,
                          RELAXED);
    atomic_store_explicit(&entry[2],
                          (uint32_t)record->number | (uint64_t)(uint32_t)record->peer << 32,
                          RELAXED);
    atomic_store_explicit(&entry[3], (uint64_t)record->bytes << 16 | (index & 0xFFFF),
                          memory_order_release);
    atomic_store_explicit(&h->alive, ticks, RELAXED);
    if (r->file) {
        lierne_recorder_file_add(r, index, record);
    }
}
