/* The clock of the ring.
 *
 * It must be cheaper than what it measures. The system's takes 20 to 60 ns, the processor's counter
 * half of that; it is used where it counts at one speed, and the header has what converts it. */
#include "runtime/recorder/recorder_file.h"

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

bool lierne_recorder_has_counter(void) {
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
