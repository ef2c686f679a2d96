/* The digest of bytes that stand one after the other in the tensor.
 *
 * The tensor is cut into blocks of 64 words. A word adds itself times the factor of its place times
 * the factor of its block; both are odd, and places have different ones. So the sum is linear in
 * the bytes, which is why parts of a word or a block may be added up on different ranks. Products
 * of 32 bits in sums of 64 are what processors do several of at once, and the factor of a block
 * costs little because it serves 64 words. The sums of two words that change cannot cancel each
 * other within a block if the words were swapped; other changes cancel with the probability that
 * two random factors agree. */
#include "digest/digest.h"

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

/* n whole blocks from the first on. Two words at a time: where they are one of 64 bits, its halves
 * need no widening. Compiled into each function that calls it, for the processor of that. */
__attribute__((always_inline)) static inline uint64_t
add_blocks(const lierne_digest_factors *f, const unsigned char *data, uint64_t first, size_t n) {
    uint64_t sum = 0;
    for (size_t b = 0; b < n; b++) {
        uint64_t pairs[WORDS / 2], factors[WORDS / 2], of_block = 0;
        memcpy(pairs, data + b * BLOCK, BLOCK);
        memcpy(factors, f->of_word, BLOCK);
        for (int i = 0; i < WORDS / 2; i++) {
            of_block += (pairs[i] & UINT32_MAX) * (factors[i] & UINT32_MAX);
            of_block += (pairs[i] >> 32) * (factors[i] >> 32);
        }
        sum += of_block * factor_of(f, first + b);
    }
    return sum;
}

static uint64_t add_blocks_anywhere(const lierne_digest_factors *f, const unsigned char *data,
                                    uint64_t first, size_t n) {
    return add_blocks(f, data, first, n);
}

#if defined __x86_64__ && defined __GNUC__
__attribute__((target("avx2"))) static uint64_t add_blocks_avx2(const lierne_digest_factors *f,
                                                                const unsigned char *data,
                                                                uint64_t first, size_t n) {
    return add_blocks(f, data, first, n);
}
#define HAS_AVX2() __builtin_cpu_supports("avx2")
#else
#define add_blocks_avx2 add_blocks_anywhere
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
                              : add_blocks_anywhere(f, from, at / BLOCK, n);
            step = n * BLOCK;
        } else {
            step = BLOCK - offset < bytes ? BLOCK - offset : bytes;
            sum += add_part(f, from, offset, step) * factor_of(f, at / BLOCK);
        }
    }
    return sum;
}
