/* The digest of bytes that stand one after the other in the tensor.
 *
 * The tensor is cut into blocks of 64 words. A word adds itself times the factor of its place times
 * the factor of its block; both are odd, and places have different ones. So the sum is linear in
 * the bytes, which is why parts of a word or a block may be added up on different ranks. Products
 * of 32 bits in sums of 64 are what processors do several of at once, and the factor of a block
 * costs little because it serves 64 words. The sums of two words that change cannot cancel each
 * other within a block if the words were swapped; other changes cancel with the probability that
 * two random factors agree. */
#include "diagnose/digest.h"

#include <string.h>

enum { WORDS = LIERNE_DIGEST_WORDS, WORD = 4, BLOCK = WORDS * WORD };

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void lierne_digest_factors_set(lierne_digest_factors *f, uint64_t key, uint64_t tensor) {
    uint64_t state = mix(key + 0x9e3779b97f4a7c15u);
    f->seed = mix(state ^ mix(tensor + 0x9e3779b97f4a7c15u));
    for (uint32_t i = 0; i < WORDS; i++) {
        /* The place stands in the low bits, so that no two factors are equal. */
        state += 0x9e3779b97f4a7c15u;
        f->of_word[i] = ((uint32_t)(mix(state) >> 32) & ~(2u * WORDS - 1)) | i << 1 | 1;
    }
}

static inline uint64_t factor_of(const lierne_digest_factors *f, uint64_t block) {
    return mix(f->seed + block * 0x9e3779b97f4a7c15u) | 1;
}

uint64_t lierne_digest_blocks(const lierne_digest_factors *f, const unsigned char *data,
                              uint64_t first, size_t n) {
    uint64_t sum = 0;
    for (size_t b = 0; b < n; b++, data += BLOCK) {
        uint64_t of_block = 0;
        for (int i = 0; i < WORDS; i++) {
            uint32_t word;
            memcpy(&word, data + i * WORD, sizeof word);
            of_block += (uint64_t)word * f->of_word[i];
        }
        sum += of_block * factor_of(f, first + b);
    }
    return sum;
}

#if defined __x86_64__ && defined __GNUC__
#include <immintrin.h>

/* Adds each of 4 words times a factor, modulo 2^64. */
__attribute__((target("avx2"))) static inline __m256i add_scaled(__m256i to, __m256i words,
                                                                 uint64_t factor) {
    __m256i low = _mm256_set1_epi64x((int64_t)factor);
    __m256i high = _mm256_set1_epi64x((int64_t)(factor >> 32));
    __m256i cross = _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(words, 32), low),
                                     _mm256_mul_epu32(words, high));
    to = _mm256_add_epi64(to, _mm256_mul_epu32(words, low));
    return _mm256_add_epi64(to, _mm256_slli_epi64(cross, 32));
}

/* The same for the processors that have it. It multiplies the low halves of words of 64 bits, so
 * every other word is shifted down first. */
__attribute__((target("avx2"))) static uint64_t add_blocks_avx2(const lierne_digest_factors *f,
                                                                const unsigned char *data,
                                                                uint64_t first, size_t n) {
    enum { STEPS = BLOCK / 32 };
    __m256i low[STEPS], sums = _mm256_setzero_si256();
    for (int i = 0; i < STEPS; i++) {
        low[i] = _mm256_loadu_si256((const __m256i *)(const void *)&f->of_word[8 * i]);
    }
    for (size_t b = 0; b < n; b++, data += BLOCK) {
        __m256i even = _mm256_setzero_si256(), odd = even;
        for (int i = 0; i < STEPS; i++) {
            __m256i words = _mm256_loadu_si256((const __m256i *)(const void *)(data + 32 * i));
            even = _mm256_add_epi64(even, _mm256_mul_epu32(words, low[i]));
            odd = _mm256_add_epi64(odd, _mm256_mul_epu32(_mm256_srli_epi64(words, 32),
                                                         _mm256_srli_epi64(low[i], 32)));
        }
        sums = add_scaled(sums, _mm256_add_epi64(even, odd), factor_of(f, first + b));
    }
    uint64_t parts[4];
    _mm256_storeu_si256((__m256i *)(void *)parts, sums);
    return parts[0] + parts[1] + parts[2] + parts[3];
}
#define HAS_AVX2() __builtin_cpu_supports("avx2")
#else
#define add_blocks_avx2 lierne_digest_blocks
#define HAS_AVX2()      0
#endif

/* Bytes of one block, from byte `offset` of it on. */
static uint64_t add_part(const lierne_digest_factors *f, const unsigned char *data, size_t offset,
                         size_t bytes) {
    uint64_t sum = 0;
    for (size_t at = offset, end = offset + bytes, next; at < end; at = next) {
        uint32_t word = 0;
        next = (at / WORD + 1) * WORD;
        next = next < end ? next : end;
        memcpy((unsigned char *)&word + at % WORD, data + (at - offset), next - at);
        sum += (uint64_t)word * f->of_word[at / WORD];
    }
    return sum;
}

uint64_t lierne_digest_bytes(const lierne_digest_factors *f, const void *data, uint64_t at,
                             size_t bytes) {
    const unsigned char *from = data;
    uint64_t sum = 0;
    for (size_t step; bytes > 0; at += step, from += step, bytes -= step) {
        size_t offset = (size_t)(at % BLOCK);
        if (offset == 0 && bytes >= BLOCK) {
            size_t n = bytes / BLOCK;
            sum += HAS_AVX2() ? add_blocks_avx2(f, from, at / BLOCK, n)
                              : lierne_digest_blocks(f, from, at / BLOCK, n);
            step = n * BLOCK;
        } else {
            step = BLOCK - offset < bytes ? BLOCK - offset : bytes;
            sum += add_part(f, from, offset, step) * factor_of(f, at / BLOCK);
        }
    }
    return sum;
}
