/* Copies that bypass the cache.
 *
 * An ordinary store first reads the cache line that it overwrites. A copy far larger than the cache
 * evicts its own lines before anything reads them. Nontemporal stores save that read, a third of
 * the memory traffic, but are slower for data that fits into the cache; the tables of
 * docs/performance.md show both. The C library has such stores above a threshold that it derives
 * from the cache of the whole machine, which in a virtual machine may be more than is there. */
#include "memory/host.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

void lierne_nontemporal_copy(void *to, const void *from, size_t bytes) {
    char *t = to;
    const char *f = from;
    size_t head = -(uintptr_t)t % sizeof(__m128i);
    if (bytes < 64) {
        memcpy(t, f, bytes);
        return;
    }
    memcpy(t, f, head);
    for (t += head, f += head, bytes -= head; bytes >= 64; t += 64, f += 64, bytes -= 64) {
        const __m128i *x = (const __m128i *)(const void *)f;
        __m128i *y = (__m128i *)(void *)t;
        __m128i a = _mm_loadu_si128(x), b = _mm_loadu_si128(x + 1);
        __m128i c = _mm_loadu_si128(x + 2), d = _mm_loadu_si128(x + 3);
        _mm_stream_si128(y, a);
        _mm_stream_si128(y + 1, b);
        _mm_stream_si128(y + 2, c);
        _mm_stream_si128(y + 3, d);
    }
    memcpy(t, f, bytes);
}

/* Nontemporal stores are not ordered with later stores. */
void lierne_nontemporal_fence(void) {
    _mm_sfence();
}
#else
void lierne_nontemporal_copy(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
}

void lierne_nontemporal_fence(void) {
}
#endif
