/* Changes of elements that a device finds and makes: what a block of threads does with a piece,
 * compiled by nvcc into kernels (kernels/changes.cu) and by the host's compiler into tests.
 *
 * Each thread has a run of a piece's elements. It counts its changes; once all have, it knows how
 * many come before its own, and so where its values go. No two threads write the same bytes, and
 * the order is that of the elements, so that the bits are the host's. */
#ifndef LIERNE_CHANGE_H
#define LIERNE_CHANGE_H

#include "runtime/memory/piece.h"

#include <stdbool.h>

#define LIERNE_CHANGE_BYTES   65536 /* of a piece, at most */
#define LIERNE_CHANGE_THREADS 256   /* of a block, at most */
#define LIERNE_CHANGE_BLOCKS  4     /* on a processor, at least: each thread has 64 registers */
#define LIERNE_CHANGE_GROUP   16    /* threads whose counts are added up once for all */

/* How a piece is written: plan/redistribute/changes.h has the bytes. */
typedef enum lierne_change_form {
    LIERNE_CHANGE_GAPS = 0,
    LIERNE_CHANGE_MAP = 1,
    LIERNE_CHANGE_DENSE = 2,
    LIERNE_CHANGE_FORMS = 3
} lierne_change_form;

/* A piece of elements that lie one after another. Its slot is in memory that host and device read
 * and write, and has lierne_change_slot bytes: of DENSE all elements, else the values of what
 * changed, and behind them, from an even byte on, what is shorter: places of 2 bytes
 * (lierne_change_has_places), or a bit per element. */
typedef struct lierne_change_piece {
    int64_t first; /* byte of its first element */
    int64_t slot;  /* byte of its slot in the slots */
    int32_t n;     /* elements */
    int32_t count; /* that changed; 0 where it is dense */
    int32_t form;  /* to be found: DENSE, or any other for the shortest, which takes its place */
} lierne_change_piece;

/* The pieces of a launch. */
typedef struct lierne_change_call {
    lierne_change_piece *pieces; /* that host and device read and write, as are the slots */
    char *slots;
    char *now;        /* elements of this version, which making writes */
    const char *last; /* of the one before, which making does not read */
    int64_t npieces;
    int32_t size; /* bytes of an element: 1, 2, 4, 8 */
} lierne_change_call;

/* What the threads of a block share. */
typedef struct lierne_change_counts {
    int32_t own[LIERNE_CHANGE_THREADS];
    int32_t groups[LIERNE_CHANGE_THREADS / LIERNE_CHANGE_GROUP];
} lierne_change_counts;

/* Parameter of the Rice codes: about the logarithm of the mean gap. */
LIERNE_INLINE int lierne_change_parameter(int32_t n, int32_t count) {
    int k = 0;
    while ((int64_t)count << (k + 1) <= n) {
        k++;
    }
    return k;
}

/* At least the bytes of gaps: quotients add up to at most that of the sum. */
LIERNE_INLINE int64_t lierne_change_gap_bytes(int32_t n, int32_t count) {
    int k = lierne_change_parameter(n, count);
    return ((int64_t)count * (k + 1) + ((n - count) >> k) + 7) / 8;
}

/* The shortest form of a piece of n elements, count of which changed. */
LIERNE_INLINE lierne_change_form lierne_change_choose(int32_t n, int32_t count, int32_t size) {
    int64_t map = (n + 7) / 8, gaps = count > 0 ? lierne_change_gap_bytes(n, count) : 0;
    int64_t head = count < 1 << 5 ? 1 : count < 1 << 12 ? 2 : 3;
    int64_t least = gaps <= map ? gaps : map;
    if (count > 0 && head + least + (int64_t)count * size > (int64_t)n * size) {
        return LIERNE_CHANGE_DENSE;
    }
    return gaps <= map ? LIERNE_CHANGE_GAPS : LIERNE_CHANGE_MAP;
}

LIERNE_INLINE int64_t lierne_change_slot(int32_t n, int32_t size) {
    return ((int64_t)n * size + n / 8 + 31) / 16 * 16;
}

LIERNE_INLINE bool lierne_change_has_places(int32_t n, int32_t count) {
    return count <= n / 16;
}

/* Where the places or bits of a slot begin. */
LIERNE_INLINE int64_t lierne_change_behind(int32_t count, int32_t size) {
    return ((int64_t)count * size + 1) / 2 * 2;
}

/* --- one thread's part ---------------------------------------------------------------------- */

/* The elements of a thread: as many as each other's, whole bytes of a map. */
LIERNE_INLINE int32_t lierne_change_run(int32_t n, int threads) {
    int32_t each = (n + threads - 1) / threads;
    return (each + 7) / 8 * 8;
}

/* Behind the last element of the run that begins at element i. */
LIERNE_INLINE int32_t lierne_change_end(int32_t i, int32_t n, int threads) {
    int32_t run = lierne_change_run(n, threads);
    return i >= n ? i : i + run < n ? i + run : n;
}

LIERNE_INLINE uint64_t lierne_change_load(const char *from, int32_t size) {
    lierne_piece piece = {{0, 0}};
    lierne_piece_load(&piece, from, size);
    return piece.bits.low;
}

LIERNE_INLINE void lierne_change_store(char *to, uint64_t value, int32_t size) {
    lierne_piece piece = {{value, 0}};
    lierne_piece_store(to, &piece, size);
}

LIERNE_INLINE bool lierne_change_differs(const lierne_change_call *call,
                                         const lierne_change_piece *p, int32_t i) {
    int64_t at = p->first + (int64_t)i * call->size;
    return lierne_change_load(call->now + at, call->size) !=
           lierne_change_load(call->last + at, call->size);
}

/* The changes of all threads before this one. */
LIERNE_INLINE int32_t lierne_change_before(const lierne_change_counts *shared, int thread) {
    int32_t before = 0, group = thread / LIERNE_CHANGE_GROUP;
    for (int i = 0; i < group; i++) {
        before += shared->groups[i];
    }
    for (int i = group * LIERNE_CHANGE_GROUP; i < thread; i++) {
        before += shared->own[i];
    }
    return before;
}

/* Between two steps of these all threads of a block meet. */
LIERNE_INLINE void lierne_change_add_up(lierne_change_counts *shared, int thread, int threads) {
    int first = thread * LIERNE_CHANGE_GROUP;
    if (first < threads) {
        int32_t sum = 0;
        for (int i = first; i < first + LIERNE_CHANGE_GROUP && i < threads; i++) {
            sum += shared->own[i];
        }
        shared->groups[thread] = sum;
    }
}

/* --- finding what changed: count, add up, list ----------------------------------------------- */

LIERNE_INLINE void lierne_change_count(lierne_change_counts *shared, const lierne_change_call *call,
                                       const lierne_change_piece *p, int thread, int threads) {
    int32_t first = lierne_change_run(p->n, threads) * thread, found = 0;
    int32_t end = p->form == LIERNE_CHANGE_DENSE ? first : lierne_change_end(first, p->n, threads);
    for (int32_t i = first; i < end; i++) {
        found += lierne_change_differs(call, p, i);
    }
    shared->own[thread] = found;
}

LIERNE_INLINE void lierne_change_copy(char *to, const char *from, int32_t n, int32_t size,
                                      int thread, int threads) {
    for (int32_t i = thread; i < n; i += threads) {
        int64_t at = (int64_t)i * size;
        lierne_change_store(to + at, lierne_change_load(from + at, size), size);
    }
}

/* The values of a thread's run, and their places or bits. */
LIERNE_INLINE void lierne_change_list_run(const lierne_change_call *call,
                                          const lierne_change_piece *p, int32_t count,
                                          int32_t before, int32_t first, int32_t end) {
    char *slot = call->slots + p->slot, *behind = slot + lierne_change_behind(count, call->size);
    bool places = lierne_change_has_places(p->n, count);
    uint32_t bits = 0;
    for (int32_t i = first; i < end; i++) {
        if (lierne_change_differs(call, p, i)) {
            int64_t at = p->first + (int64_t)i * call->size;
            lierne_change_store(slot + (int64_t)before * call->size,
                                lierne_change_load(call->now + at, call->size), call->size);
            if (places) {
                lierne_change_store(behind + 2 * (int64_t)before, (uint64_t)i, 2);
            }
            bits |= 1u << i % 8;
            before++;
        }
        if (!places && (i % 8 == 7 || i == end - 1)) {
            lierne_change_store(behind + i / 8, bits, 1);
            bits = 0;
        }
    }
}

/* The first thread also writes what the piece has become. */
LIERNE_INLINE void lierne_change_list(const lierne_change_counts *shared,
                                      const lierne_change_call *call, const lierne_change_piece *p,
                                      int thread, int threads, lierne_change_piece *found) {
    int32_t count = lierne_change_before(shared, threads);
    int32_t first = lierne_change_run(p->n, threads) * thread;
    lierne_change_form form = p->form == LIERNE_CHANGE_DENSE
                                  ? LIERNE_CHANGE_DENSE
                                  : lierne_change_choose(p->n, count, call->size);
    if (form == LIERNE_CHANGE_DENSE) {
        lierne_change_copy(call->slots + p->slot, call->now + p->first, p->n, call->size, thread,
                           threads);
    } else if (count > 0) {
        lierne_change_list_run(call, p, count, lierne_change_before(shared, thread), first,
                               lierne_change_end(first, p->n, threads));
    }
    if (thread == 0) {
        found->form = (int32_t)form;
        found->count = form == LIERNE_CHANGE_DENSE ? 0 : count;
    }
}

/* --- making the changes that came: count those of a map, add up, make ------------------------ */

LIERNE_INLINE bool lierne_change_has_bit(const char *map, int32_t i) {
    return (lierne_change_load(map + i / 8, 1) >> i % 8 & 1) != 0;
}

LIERNE_INLINE void lierne_change_count_map(lierne_change_counts *shared,
                                           const lierne_change_call *call,
                                           const lierne_change_piece *p, int thread, int threads) {
    int32_t first = lierne_change_run(p->n, threads) * thread, found = 0;
    bool places = p->form == LIERNE_CHANGE_DENSE || lierne_change_has_places(p->n, p->count);
    int32_t end = places ? first : lierne_change_end(first, p->n, threads);
    const char *map = call->slots + p->slot + lierne_change_behind(p->count, call->size);
    for (int32_t i = first; i < end; i++) {
        found += lierne_change_has_bit(map, i);
    }
    shared->own[thread] = found;
}

LIERNE_INLINE void lierne_change_make_map(const lierne_change_counts *shared,
                                          const lierne_change_call *call,
                                          const lierne_change_piece *p, int thread, int threads) {
    int32_t first = lierne_change_run(p->n, threads) * thread;
    int32_t end = lierne_change_end(first, p->n, threads);
    const char *map = call->slots + p->slot + lierne_change_behind(p->count, call->size);
    const char *value =
        call->slots + p->slot + (int64_t)lierne_change_before(shared, thread) * call->size;
    for (int32_t i = first; i < end; i++) {
        if (lierne_change_has_bit(map, i)) {
            lierne_change_store(call->now + p->first + (int64_t)i * call->size,
                                lierne_change_load(value, call->size), call->size);
            value += call->size;
        }
    }
}

LIERNE_INLINE void lierne_change_make(const lierne_change_counts *shared,
                                      const lierne_change_call *call, const lierne_change_piece *p,
                                      int thread, int threads) {
    const char *slot = call->slots + p->slot;
    const char *places = slot + lierne_change_behind(p->count, call->size);
    if (p->form == LIERNE_CHANGE_DENSE) {
        lierne_change_copy(call->now + p->first, slot, p->n, call->size, thread, threads);
    } else if (!lierne_change_has_places(p->n, p->count)) {
        lierne_change_make_map(shared, call, p, thread, threads);
    } else {
        for (int32_t i = thread; i < p->count; i += threads) {
            int64_t at = (int64_t)lierne_change_load(places + 2 * (int64_t)i, 2);
            lierne_change_store(call->now + p->first + at * call->size,
                                lierne_change_load(slot + (int64_t)i * call->size, call->size),
                                call->size);
        }
    }
}

#endif
