/* What a thread of a kernel holds of a block at a time, and how it is loaded and stored: one
 * instruction each, by the host's compiler and by nvcc. */
#ifndef LIERNE_PIECE_H
#define LIERNE_PIECE_H

#include "runtime/memory/half.h"

/* LIERNE_BRANCH begins what is left out as a whole where a condition is false that all threads
 * share: a compiler that takes it for a few instructions would execute them anyway.
 *
 * On a device, arrays are in registers only where loops over them are unrolled, and the table,
 * which no kernel writes, is read through the cache for constants. Never so the data: peers write
 * it. */
#ifdef __CUDA_ARCH__
#define LIERNE_UNROLL       _Pragma("unroll")
#define LIERNE_CONSTANT(at) __ldg(at)
#define LIERNE_ROLLED       _Pragma("unroll 1")
#define LIERNE_BRANCH()     asm volatile("")
#else
#define LIERNE_UNROLL
#define LIERNE_CONSTANT(at) (*(at))
#define LIERNE_ROLLED
#define LIERNE_BRANCH()
#endif

/* Accesses of 1 to 16 bytes, each one instruction. */
#define LIERNE_ALIASES __attribute__((may_alias))
typedef uint8_t LIERNE_ALIASES lierne_piece1;
typedef uint16_t LIERNE_ALIASES lierne_piece2;
typedef uint32_t LIERNE_ALIASES lierne_piece4;
typedef uint64_t LIERNE_ALIASES lierne_piece8;
typedef struct lierne_piece16 {
    uint64_t low, high;
} __attribute__((aligned(16), may_alias)) lierne_piece16;

typedef union lierne_piece {
    lierne_piece16 bits;
    double f64[2];
    float f32[4];
    uint16_t u16[8];
    uint64_t u64[2];
    uint32_t u32[4];
    uint8_t u8[16];
} lierne_piece;

/* Accesses to data. On a device each names its kind of memory: an address out of the tile could be
 * of any. The first bytes of a piece are there the lowest ones of a number, because parts of
 * several lengths would be registers of their own. These accesses keep their order among each
 * other. */
#ifdef __CUDA_ARCH__
#define LIERNE_LOAD(type, kind, c, from, piece)                                                    \
    do {                                                                                           \
        type value_;                                                                               \
        asm volatile("ld.global." kind " %0, [%1];"                                                \
                     : c(value_)                                                                   \
                     : "l"(__cvta_generic_to_global(from)));                                       \
        (piece)->bits.low = value_;                                                                \
    } while (0)
#define LIERNE_STORE(type, kind, c, to, piece)                                                     \
    asm volatile("st.global." kind " [%0], %1;"                                                    \
                 :                                                                                 \
                 : "l"(__cvta_generic_to_global(to)), c((type)(piece)->bits.low))
#define LIERNE_LOAD16(from, piece)                                                                 \
    asm volatile("ld.global.v2.u64 {%0, %1}, [%2];"                                                \
                 : "=l"((piece)->bits.low), "=l"((piece)->bits.high)                               \
                 : "l"(__cvta_generic_to_global(from)))
#define LIERNE_STORE16(to, piece)                                                                  \
    asm volatile("st.global.v2.u64 [%0], {%1, %2};"                                                \
                 :                                                                                 \
                 : "l"(__cvta_generic_to_global(to)), "l"((piece)->bits.low),                      \
                   "l"((piece)->bits.high))
#define LIERNE_LOAD8(from, piece) LIERNE_LOAD(uint64_t, "u64", "=l", from, piece)
#define LIERNE_LOAD4(from, piece) LIERNE_LOAD(uint32_t, "u32", "=r", from, piece)
#define LIERNE_LOAD2(from, piece) LIERNE_LOAD(uint16_t, "u16", "=h", from, piece)
#define LIERNE_LOAD1(from, piece) LIERNE_LOAD(uint16_t, "u8", "=h", from, piece)
#define LIERNE_STORE8(to, piece)  LIERNE_STORE(uint64_t, "u64", "l", to, piece)
#define LIERNE_STORE4(to, piece)  LIERNE_STORE(uint32_t, "u32", "r", to, piece)
#define LIERNE_STORE2(to, piece)  LIERNE_STORE(uint16_t, "u16", "h", to, piece)
#define LIERNE_STORE1(to, piece)  LIERNE_STORE(uint16_t, "u8", "h", to, piece)
#else
#define LIERNE_LOAD16(from, piece) (piece)->bits = *(const lierne_piece16 *)(from)
#define LIERNE_LOAD8(from, piece)  (piece)->u64[0] = *(const lierne_piece8 *)(from)
#define LIERNE_LOAD4(from, piece)  (piece)->u32[0] = *(const lierne_piece4 *)(from)
#define LIERNE_LOAD2(from, piece)  (piece)->u16[0] = *(const lierne_piece2 *)(from)
#define LIERNE_LOAD1(from, piece)  (piece)->u8[0] = *(const lierne_piece1 *)(from)
#define LIERNE_STORE16(to, piece)  *(lierne_piece16 *)(to) = (piece)->bits
#define LIERNE_STORE8(to, piece)   *(lierne_piece8 *)(to) = (piece)->u64[0]
#define LIERNE_STORE4(to, piece)   *(lierne_piece4 *)(to) = (piece)->u32[0]
#define LIERNE_STORE2(to, piece)   *(lierne_piece2 *)(to) = (piece)->u16[0]
#define LIERNE_STORE1(to, piece)   *(lierne_piece1 *)(to) = (piece)->u8[0]
#endif

LIERNE_INLINE void lierne_piece_load(lierne_piece *piece, const void *from, int unit) {
    if (unit == 16) {
        LIERNE_LOAD16(from, piece);
        return;
    }
    LIERNE_BRANCH();
    switch (unit) {
    case 8:
        LIERNE_LOAD8(from, piece);
        return;
    case 4:
        LIERNE_LOAD4(from, piece);
        return;
    case 2:
        LIERNE_LOAD2(from, piece);
        return;
    default:
        LIERNE_LOAD1(from, piece);
    }
}

LIERNE_INLINE void lierne_piece_store(void *to, const lierne_piece *piece, int unit) {
    if (unit == 16) {
        LIERNE_STORE16(to, piece);
        return;
    }
    LIERNE_BRANCH();
    switch (unit) {
    case 8:
        LIERNE_STORE8(to, piece);
        return;
    case 4:
        LIERNE_STORE4(to, piece);
        return;
    case 2:
        LIERNE_STORE2(to, piece);
        return;
    default:
        LIERNE_STORE1(to, piece);
    }
}

#endif
