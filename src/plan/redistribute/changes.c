/* See changes.h.
 *
 * Encoding looks at every byte once: a piece becomes a bit map of its changes, 64 elements at a
 * time and without a branch per element, and all else goes over the bits that are set. So changes
 * that are rare cost about as much as reading both versions. The length of gaps is not counted but
 * bounded, which spares a pass and is only above that of the map where both are about the same. */
#include "plan/redistribute/changes_code.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

size_t lierne_changes_bound(size_t n, size_t size) {
    size_t most = LIERNE_CHANGE_BYTES / size;
    return n * size + n / most + (n % most > 0);
}

/* Into functions for other instructions too. */
#define INLINE inline __attribute__((always_inline))

/* Bit i: byte i of WORD is 255, else 0. */
static INLINE uint64_t gather(const unsigned char *flags) {
    uint64_t bits = 0;
#ifdef __SSE2__
    for (int i = 0; i < WORD; i += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(flags + i));
        bits |= (uint64_t)(unsigned)_mm_movemask_epi8(x) << i;
    }
#else
    for (int i = 0; i < WORD; i++) {
        bits |= (uint64_t)(flags[i] & 1) << i;
    }
#endif
    return bits;
}

/* Bit i: elements i of a and b differ, i < n <= WORD. A whole word has a loop of fixed length,
 * which compilers turn into vector code. */
#define DEFINE_DIFFER(type)                                                                        \
    static INLINE uint64_t differ_##type(const unsigned char *a, const unsigned char *b,           \
                                         size_t n) {                                               \
        unsigned char flags[WORD] = {0};                                                           \
        for (size_t i = 0; i < (n < WORD ? n : WORD); i++) {                                       \
            type x, y;                                                                             \
            memcpy(&x, a + i * sizeof x, sizeof x);                                                \
            memcpy(&y, b + i * sizeof y, sizeof y);                                                \
            flags[i] = x != y ? 255 : 0;                                                           \
        }                                                                                          \
        return gather(flags);                                                                      \
    }

DEFINE_DIFFER(uint8_t)
DEFINE_DIFFER(uint16_t)
DEFINE_DIFFER(uint32_t)
DEFINE_DIFFER(uint64_t)

/* The changes of a piece of n elements. */
typedef struct changes {
    size_t n;
    size_t count;
    uint64_t map[PIECE_WORDS];
} changes;

#ifdef __SSE2__
/* Bytes 255 where 16 bytes of a and b from i * 16 on have equal elements of 1 << log bytes. */
static INLINE __m128i equal_16(const unsigned char *a, const unsigned char *b, int i, int log) {
    __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(a + 16 * i));
    __m128i y = _mm_loadu_si128((const __m128i *)(const void *)(b + 16 * i));
    return log == 0   ? _mm_cmpeq_epi8(x, y)
           : log == 1 ? _mm_cmpeq_epi16(x, y)
                      : _mm_cmpeq_epi32(x, y);
}

/* As differ, of 16 elements. */
static INLINE uint64_t differ_16(const unsigned char *a, const unsigned char *b, int log) {
    __m128i equal = equal_16(a, b, 0, log);
    if (log == 1) {
        equal = _mm_packs_epi16(equal, equal_16(a, b, 1, log));
    } else if (log == 2) {
        equal = _mm_packs_epi16(_mm_packs_epi32(equal, equal_16(a, b, 1, log)),
                                _mm_packs_epi32(equal_16(a, b, 2, log), equal_16(a, b, 3, log)));
    }
    return 0xffffu & ~(unsigned)_mm_movemask_epi8(equal);
}

static INLINE uint64_t differ_word(const unsigned char *a, const unsigned char *b, int log) {
    uint64_t bits = 0;
    for (int i = 0; i < 4; i++) {
        bits |= differ_16(a + ((size_t)i << (4 + log)), b + ((size_t)i << (4 + log)), log)
                << 16 * i;
    }
    return bits;
}
#define WHOLE_1(a, b) differ_word(a, b, 0)
#define WHOLE_2(a, b) differ_word(a, b, 1)
#define WHOLE_4(a, b) differ_word(a, b, 2)
#else
#define WHOLE_1(a, b) differ_uint8_t(a, b, WORD)
#define WHOLE_2(a, b) differ_uint16_t(a, b, WORD)
#define WHOLE_4(a, b) differ_uint32_t(a, b, WORD)
#endif
#define WHOLE_8(a, b) differ_uint64_t(a, b, WORD)

/* Cache lines are fetched ahead: two streams of loads wait for memory otherwise. */
enum { AHEAD = 2048, LINE = 64 };

/* differ, and whole for WORD elements: of the element's size. */
#define COMPARE(differ, whole)                                                                     \
    for (size_t i = 0; i < c->n; i += WORD, now += WORD * size, last += WORD * size) {             \
        for (size_t line = AHEAD; line < AHEAD + WORD * size; line += LINE) {                      \
            __builtin_prefetch((const void *)((uintptr_t)now + line));                             \
            __builtin_prefetch((const void *)((uintptr_t)last + line));                            \
        }                                                                                          \
        uint64_t word = c->n - i < WORD ? differ(now, last, c->n - i) : whole(now, last);          \
        c->map[i / WORD] = word;                                                                   \
        c->count += (size_t)__builtin_popcountll(word);                                            \
    }                                                                                              \
    break

static INLINE void compare_as(changes *c, const unsigned char *now, const unsigned char *last,
                              size_t size) {
    c->count = 0;
    switch (size) {
    case 1:
        COMPARE(differ_uint8_t, WHOLE_1);
    case 2:
        COMPARE(differ_uint16_t, WHOLE_2);
    case 4:
        COMPARE(differ_uint32_t, WHOLE_4);
    default:
        COMPARE(differ_uint64_t, WHOLE_8);
    }
}

#ifdef __SSE2__
/* The same for the processors that have these instructions. */
__attribute__((target("avx2,popcnt"))) static void
compare_avx2(changes *c, const unsigned char *now, const unsigned char *last, size_t size) {
    compare_as(c, now, last, size);
}
#define HAS_AVX2() (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt"))
#else
#define compare_avx2 compare_as
#define HAS_AVX2()   0
#endif

static void compare(changes *c, const unsigned char *now, const unsigned char *last, size_t size) {
    if (HAS_AVX2()) {
        compare_avx2(c, now, last, size);
    } else {
        compare_as(c, now, last, size);
    }
}

static unsigned char *put_number(unsigned char *to, size_t number) {
    for (; number > 127; number >>= 7) {
        *to++ = (unsigned char)(number | 128);
    }
    *to++ = (unsigned char)number;
    return to;
}

/* The places of so many words of changes, AT_ONCE without a branch each: which word has how many
 * cannot be predicted. */
enum { BATCH = 64, AT_ONCE = 4 };

static INLINE size_t list_as(uint16_t *at, const uint64_t *map, size_t first, size_t words) {
    size_t n = 0;
    for (size_t i = 0; i < words; i++, first += WORD) {
        uint64_t word = map[i];
        uint16_t *to = at + n;
        n += (size_t)__builtin_popcountll(word);
        for (int j = 0; j < AT_ONCE; j++, word &= word - 1) {
            *to++ = (uint16_t)(first + (size_t)__builtin_ctzll(word | 1ull << (WORD - 1)));
        }
        for (; word; word &= word - 1) {
            *to++ = (uint16_t)(first + (size_t)__builtin_ctzll(word));
        }
    }
    return n;
}

#ifdef __SSE2__
__attribute__((target("avx2,popcnt"))) static size_t list_avx2(uint16_t *at, const uint64_t *map,
                                                               size_t first, size_t words) {
    return list_as(at, map, first, words);
}
#else
#define list_avx2 list_as
#endif

static size_t list(uint16_t *at, const uint64_t *map, size_t first, size_t words) {
    return HAS_AVX2() ? list_avx2(at, map, first, words) : list_as(at, map, first, words);
}

/* Bits of less than a byte that wait for more. */
typedef struct bit_writer {
    unsigned char *to;
    uint64_t bits;
    int n;
} bit_writer;

static inline void put_word(unsigned char *to, uint64_t word) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(to, &word, sizeof word);
#else
    for (int i = 0; i < 8; i++) {
        to[i] = (unsigned char)(word >> 8 * i);
    }
#endif
}

/* n <= 56; writes 8 bytes, of which it keeps whole ones. */
static inline void put_bits(bit_writer *w, uint64_t bits, int n) {
    w->bits |= bits << w->n;
    w->n += n;
    put_word(w->to, w->bits);
    w->to += w->n / 8;
    w->bits >>= w->n / 8 * 8;
    w->n %= 8;
}

static inline void put_gap(bit_writer *w, size_t gap, int k) {
    enum { MOST = 32 };
    size_t ones = gap >> k, rest = gap & (((size_t)1 << k) - 1);
    for (; ones >= MOST; ones -= MOST) {
        put_bits(w, UINT32_MAX, MOST);
    }
    put_bits(w, (((uint64_t)1 << ones) - 1) | (uint64_t)rest << (ones + 1), (int)ones + 1 + k);
}

/* Values of n elements. */
static inline unsigned char *put_values(unsigned char *to, const unsigned char *now,
                                        const uint16_t *at, size_t n, size_t size) {
    for (size_t i = 0; i < n; i++, to += size) {
        copy(to, now + at[i] * size, size);
    }
    return to;
}

/* Gaps of n changes, of which *start is where the first may be; moves *start behind the last. */
static inline void put_places(bit_writer *w, const uint16_t *at, size_t n, size_t *start, int k) {
    for (size_t i = 0; i < n; i++) {
        put_gap(w, at[i] - *start, k);
        *start = at[i] + (size_t)1;
    }
}

/* Gaps are at most as long as a map, and the writer needs a word more. */
enum { MOST_GAPS = PIECE_WORDS * 8 + 8 };

static unsigned char *put_bytes(unsigned char *to, const unsigned char *from, const bit_writer *w) {
    size_t bytes = (size_t)(w->to - from) + (w->n > 0);
    memcpy(to, from, bytes);
    return to + bytes;
}

/* Writes values unless now is NULL, and then their gaps, or nothing more. */
static unsigned char *put_listed(unsigned char *to, const changes *c, const unsigned char *now,
                                 size_t size, int form) {
    unsigned char gaps[MOST_GAPS];
    uint16_t at[BATCH * WORD + AT_ONCE];
    bit_writer w = {.to = gaps};
    int k = parameter(c->n, c->count);
    size_t words = (c->n + WORD - 1) / WORD, start = 0;
    for (size_t word = 0; word < words; word += BATCH) {
        size_t n =
            list(at, c->map + word, word * WORD, words - word < BATCH ? words - word : BATCH);
        to = now ? put_values(to, now, at, n, size) : to;
        if (form == GAPS) {
            put_places(&w, at, n, &start, k);
        }
    }
    return put_bytes(to, gaps, &w);
}

static unsigned char *put_map(unsigned char *to, const changes *c) {
    for (size_t i = 0; i < c->n; i += 8) {
        *to++ = (unsigned char)(c->map[i / WORD] >> i % WORD);
    }
    return to;
}

static unsigned char *put_dense(unsigned char *to, const unsigned char *now, size_t bytes) {
    *to++ = DENSE;
    memcpy(to, now, bytes);
    return to + bytes;
}

static unsigned char *put_piece(unsigned char *to, const changes *c, const unsigned char *now,
                                size_t size) {
    int form = (int)lierne_change_choose((int32_t)c->n, (int32_t)c->count, (int32_t)size);
    if (form == DENSE) {
        return put_dense(to, now, c->n * size);
    }
    to = put_number(to, c->count * 4 + (size_t)form);
    if (c->count > 0) {
        to = put_listed(to, c, now, size, form);
    }
    return form == MAP ? put_map(to, c) : to;
}

size_t lierne_changes_encode(unsigned char *to, const void *now, const void *last, size_t n,
                             size_t size) {
    const unsigned char *a = now, *b = last, *start = to;
    changes c;
    for (size_t i = 0; i < n; i += c.n) {
        c.n = piece_of(n - i, size);
        if (b) {
            compare(&c, a + i * size, b + i * size, size);
            to = put_piece(to, &c, a + i * size, size);
        } else {
            to = put_dense(to, a + i * size, c.n * size);
        }
    }
    return (size_t)(to - start);
}

/* A map of whole bytes, as words. */
static void get_words(changes *c, const unsigned char *map) {
    memset(c->map, 0, sizeof c->map);
    for (size_t i = 0; i < c->n; i += 8) {
        c->map[i / WORD] |= (uint64_t)map[i / 8] << i % WORD;
    }
}

unsigned char *lierne_changes_put(unsigned char *to, const lierne_change_piece *p,
                                  const char *slots, size_t size) {
    const unsigned char *slot = (const unsigned char *)slots + p->slot;
    const unsigned char *behind = slot + lierne_change_behind(p->count, (int32_t)size);
    size_t n = (size_t)p->n, count = (size_t)p->count, start = 0;
    if (p->form == DENSE) {
        return put_dense(to, slot, n * size);
    }
    to = put_number(to, count * 4 + (size_t)p->form);
    memcpy(to, slot, count * size);
    to += count * size;
    if (count == 0) {
        return to;
    }
    if (lierne_change_has_places(p->n, p->count)) {
        unsigned char gaps[MOST_GAPS];
        bit_writer w = {.to = gaps};
        put_places(&w, (const uint16_t *)(const void *)behind, count, &start, parameter(n, count));
        return put_bytes(to, gaps, &w);
    }
    changes c = {.n = n, .count = count};
    get_words(&c, behind);
    return p->form == MAP ? put_map(to, &c) : put_listed(to, &c, NULL, size, GAPS);
}
