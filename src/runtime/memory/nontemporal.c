/* Copies that bypass the cache.
 *
 * An ordinary store first reads the cache line that it overwrites. A copy far larger than the cache
 * evicts its own lines before anything reads them. Nontemporal stores save that read, a third of
 * the memory traffic, but are slower for data that fits into the cache; the tables of
 * docs/performance.md show both. The C library has such stores above a threshold that it derives
 * from the cache of the whole machine, which in a virtual machine may be more than is there.
 *
 * Processors of Intel are faster still when four pages are written in turn, which others are not:
 * there, one line follows the other. */
#include "runtime/memory/host.h"

#include <string.h>

#define LEAST_RUN 1024 /* bytes of the runs of a copy that bypasses the cache */

bool lierne_nontemporal_pays(size_t run, size_t whole) {
    return run >= LEAST_RUN && whole >= LIERNE_PAST_CACHE;
}

#ifdef __SSE2__
#include <emmintrin.h>

#define LINE    64
#define PAGE    4096
#define STREAMS 4    /* pages written in turn */
#define AHEAD   4096 /* bytes between the prefetched and the current line of a linear copy */
#define SOON    512  /* and of a page */

static void copy_line(char *to, const char *from) {
    const __m128i *x = (const __m128i *)(const void *)from;
    __m128i *y = (__m128i *)(void *)to;
    __m128i a = _mm_loadu_si128(x), b = _mm_loadu_si128(x + 1);
    __m128i c = _mm_loadu_si128(x + 2), d = _mm_loadu_si128(x + 3);
    _mm_stream_si128(y, a);
    _mm_stream_si128(y + 1, b);
    _mm_stream_si128(y + 2, c);
    _mm_stream_si128(y + 3, d);
}

/* Copies whole lines in order; returns how many bytes. Past the end, where a gap may be, the begin
 * of the next run is prefetched: hardware does not know where that is. */
static size_t copy_lines(char *to, const char *from, size_t bytes, const char *next) {
    size_t at = 0;
    for (; at + AHEAD + LINE <= bytes; at += LINE) {
        _mm_prefetch(from + at + AHEAD, _MM_HINT_T0);
        copy_line(to + at, from + at);
    }
    for (; at + LINE <= bytes; at += LINE) {
        if (next) {
            _mm_prefetch(next, _MM_HINT_T0);
            next += LINE;
        }
        copy_line(to + at, from + at);
    }
    return at;
}

/* Copies groups of pages, a line of each in turn; returns how many bytes. */
static size_t copy_pages(char *to, const char *from, size_t bytes) {
    size_t at = 0;
    for (; at + STREAMS * PAGE <= bytes; at += STREAMS * PAGE) {
        for (size_t line = at; line < at + PAGE; line += LINE) {
            for (size_t page = line; page < line + STREAMS * PAGE; page += PAGE) {
                _mm_prefetch(from + page + SOON, _MM_HINT_T0);
                copy_line(to + page, from + page);
            }
        }
    }
    return at;
}

void lierne_nontemporal_copy_by(bool pages, void *to, const void *from, size_t bytes,
                                const void *next) {
    char *t = to;
    const char *f = from;
    size_t head = -(uintptr_t)t % LINE, at;
    if (bytes < 2 * LINE) {
        memcpy(t, f, bytes);
        return;
    }
    if (head > 0) { /* a line that is stored in two parts is slow */
        memcpy(t, f, head);
    }
    at = pages ? head + copy_pages(t + head, f + head, bytes - head) : head;
    at += copy_lines(t + at, f + at, bytes - at, next);
    /* memcpy of no bytes may wait for the line that they would be in. */
    if (at < bytes) {
        memcpy(t + at, f + at, bytes - at);
    }
}

void lierne_nontemporal_copy(void *to, const void *from, size_t bytes, const void *next) {
    lierne_nontemporal_copy_by(__builtin_cpu_is("intel"), to, from, bytes, next);
}

/* Nontemporal stores are not ordered with later stores. */
void lierne_nontemporal_fence(void) {
    _mm_sfence();
}
#else
void lierne_nontemporal_copy_by(bool pages, void *to, const void *from, size_t bytes,
                                const void *next) {
    (void)pages;
    (void)next;
    memcpy(to, from, bytes);
}

void lierne_nontemporal_copy(void *to, const void *from, size_t bytes, const void *next) {
    (void)next;
    memcpy(to, from, bytes);
}

void lierne_nontemporal_fence(void) {
}
#endif
