/* What the instructions of PTX do (NVIDIA, "PTX ISA"): a function for each, with its name, whose
 * dots are underscores. Registers have no type: a float's operands and results are its bits. Only
 * what kernels/ needs is here; the rest does not compile. */
#ifndef LIERNE_TESTS_EMULATOR_INSTRUCTIONS_H
#define LIERNE_TESTS_EMULATOR_INSTRUCTIONS_H

#include "emulator.h"

#include <string.h>

#define INSTRUCTION static inline __attribute__((unused))

INSTRUCTION float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

INSTRUCTION double double_of(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

INSTRUCTION uint32_t bits_of_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

INSTRUCTION uint64_t bits_of_double(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Moves and selections, by the width of a register. */
#define MOVE(type, bits)                                                                           \
    INSTRUCTION bits mov_##type(bits a) {                                                          \
        return a;                                                                                  \
    }                                                                                              \
    INSTRUCTION bits selp_##type(bits a, bits b, bool p) {                                         \
        return p ? a : b;                                                                          \
    }
MOVE(pred, bool)
MOVE(b16, uint16_t)
MOVE(u16, uint16_t)
MOVE(s16, uint16_t)
MOVE(b32, uint32_t)
MOVE(u32, uint32_t)
MOVE(s32, uint32_t)
MOVE(f32, uint32_t)
MOVE(b64, uint64_t)
MOVE(u64, uint64_t)
MOVE(s64, uint64_t)
MOVE(f64, uint64_t)
#define pack_mov_b32(low, high) ((uint32_t)(uint16_t)(high) << 16 | (uint16_t)(low))
#define pack_mov_b64(low, high) ((uint64_t)(uint32_t)(high) << 32 | (uint32_t)(low))

INSTRUCTION void unmov_b32(uint32_t a, uint16_t *low, uint16_t *high) {
    *low = (uint16_t)a;
    *high = (uint16_t)(a >> 16);
}

INSTRUCTION void unmov_b64(uint64_t a, uint32_t *low, uint32_t *high) {
    *low = (uint32_t)a;
    *high = (uint32_t)(a >> 32);
}

/* Addresses of all spaces are those of one. */
#define cvta_to_global_u64(a) ((uint64_t)(a))
#define cvta_to_local_u64(a)  ((uint64_t)(a))
#define cvta_local_u64(a)     ((uint64_t)(a))

#define LOGIC(name, op)                                                                            \
    INSTRUCTION bool name##_pred(bool a, bool b) {                                                 \
        return (a op b) != 0;                                                                      \
    }                                                                                              \
    INSTRUCTION uint16_t name##_b16(uint16_t a, uint16_t b) {                                      \
        return (uint16_t)(a op b);                                                                 \
    }                                                                                              \
    INSTRUCTION uint32_t name##_b32(uint32_t a, uint32_t b) {                                      \
        return a op b;                                                                             \
    }                                                                                              \
    INSTRUCTION uint64_t name##_b64(uint64_t a, uint64_t b) {                                      \
        return a op b;                                                                             \
    }
LOGIC(and, &)
LOGIC(or, |)
LOGIC(xor, ^)
#define not_pred(a) (!(a))
#define not_b16(a)  ((uint16_t) ~(uint16_t)(a))
#define not_b32(a)  (~(uint32_t)(a))
#define not_b64(a)  (~(uint64_t)(a))

/* Integers: `bits` holds one, `number` is what it is. Sums and products wrap. */
#define INTEGER(type, bits, number)                                                                \
    INSTRUCTION bits add_##type(bits a, bits b) {                                                  \
        return (bits)(a + b);                                                                      \
    }                                                                                              \
    INSTRUCTION bits sub_##type(bits a, bits b) {                                                  \
        return (bits)(a - b);                                                                      \
    }                                                                                              \
    INSTRUCTION bits mul_lo_##type(bits a, bits b) {                                               \
        return (bits)((uint64_t)a * b);                                                            \
    }                                                                                              \
    INSTRUCTION bits mad_lo_##type(bits a, bits b, bits c) {                                       \
        return (bits)((uint64_t)a * b + c);                                                        \
    }                                                                                              \
    INSTRUCTION bits min_##type(bits a, bits b) {                                                  \
        return (number)a < (number)b ? a : b;                                                      \
    }                                                                                              \
    INSTRUCTION bits max_##type(bits a, bits b) {                                                  \
        return (number)a > (number)b ? a : b;                                                      \
    }                                                                                              \
    INSTRUCTION bits shl_##type(bits a, uint32_t n) {                                              \
        return n < 8 * sizeof a ? (bits)((uint64_t)a << n) : 0;                                    \
    }                                                                                              \
    INSTRUCTION bits shr_##type(bits a, uint32_t n) {                                              \
        const uint32_t most = 8 * sizeof a - 1;                                                    \
        return n <= most ? (bits)((number)a >> n) : (number)a < 0 ? (bits)-1 : 0;                  \
    }                                                                                              \
    COMPARISONS(type, bits, (number))
#define COMPARISON(name, type, bits, AS, op)                                                       \
    INSTRUCTION bool setp_##name##_##type(bits a, bits b) {                                        \
        return AS(a) op AS(b);                                                                     \
    }
#define COMPARISONS(type, bits, AS)                                                                \
    COMPARISON(eq, type, bits, AS, ==)                                                             \
    COMPARISON(lt, type, bits, AS, <)                                                              \
    COMPARISON(le, type, bits, AS, <=)                                                             \
    COMPARISON(gt, type, bits, AS, >)                                                              \
    COMPARISON(ge, type, bits, AS, >=)
INTEGER(u16, uint16_t, uint16_t)
INTEGER(s16, uint16_t, int16_t)
INTEGER(u32, uint32_t, uint32_t)
INTEGER(s32, uint32_t, int32_t)
INTEGER(u64, uint64_t, uint64_t)
INTEGER(s64, uint64_t, int64_t)
#define shl_b16 shl_u16
#define shl_b32 shl_u32
#define shl_b64 shl_u64
#define shr_b16 shr_u16
#define shr_b32 shr_u32
#define shr_b64 shr_u64
COMPARISON(ne, u16, uint16_t, , !=)
COMPARISON(ne, s16, uint16_t, , !=)
COMPARISON(ne, u32, uint32_t, , !=)
COMPARISON(ne, s32, uint32_t, , !=)
COMPARISON(ne, u64, uint64_t, , !=)
COMPARISON(ne, s64, uint64_t, , !=)
COMPARISON(ne, b16, uint16_t, , !=)
COMPARISON(eq, b16, uint16_t, , ==)
COMPARISON(ne, b32, uint32_t, , !=)
COMPARISON(eq, b32, uint32_t, , ==)
COMPARISON(ne, b64, uint64_t, , !=)
COMPARISON(eq, b64, uint64_t, , ==)

/* A device does not trap a division by zero; no kernel here has one. */
#define DIVISION(type, bits)                                                                       \
    INSTRUCTION bits div_##type(bits a, bits b) {                                                  \
        return b ? (bits)(a / b) : (emulator_fault(NULL, "division by zero", 0, 0), 0);            \
    }                                                                                              \
    INSTRUCTION bits rem_##type(bits a, bits b) {                                                  \
        return b ? (bits)(a % b) : (emulator_fault(NULL, "division by zero", 0, 0), 0);            \
    }
DIVISION(u16, uint16_t)
DIVISION(u32, uint32_t)
DIVISION(u64, uint64_t)

#define WIDE(name, factor, bits)                                                                   \
    INSTRUCTION uint64_t mul_wide_##name(bits a, bits b) {                                         \
        return (uint64_t)(factor)a * (uint64_t)(factor)b;                                          \
    }                                                                                              \
    INSTRUCTION uint64_t mad_wide_##name(bits a, bits b, uint64_t c) {                             \
        return (uint64_t)(factor)a * (uint64_t)(factor)b + c;                                      \
    }
WIDE(u32, uint32_t, uint32_t)
WIDE(s32, int32_t, uint32_t)
#define mul_hi_u32(a, b)   ((uint32_t)(mul_wide_u32(a, b) >> 32))
#define mul_wide_u16(a, b) ((uint32_t)(uint16_t)(a) * (uint16_t)(b))
#define mul_wide_s16(a, b) ((uint32_t)((int16_t)(a) * (int16_t)(b)))

INSTRUCTION uint32_t neg_s32(uint32_t a) {
    return 0 - a;
}

INSTRUCTION uint64_t neg_s64(uint64_t a) {
    return 0 - a;
}

/* Floats, rounded to nearest; the compiler must not contract them. A comparison with NaN is false,
 * and true where its name ends in u. */
#define FLOATS(type, bits, OF, BITS)                                                               \
    INSTRUCTION bits add_rn_##type(bits a, bits b) {                                               \
        return BITS(OF(a) + OF(b));                                                                \
    }                                                                                              \
    INSTRUCTION bits sub_rn_##type(bits a, bits b) {                                               \
        return BITS(OF(a) - OF(b));                                                                \
    }                                                                                              \
    INSTRUCTION bits mul_rn_##type(bits a, bits b) {                                               \
        return BITS(OF(a) * OF(b));                                                                \
    }                                                                                              \
    INSTRUCTION bits div_rn_##type(bits a, bits b) {                                               \
        return BITS(OF(a) / OF(b));                                                                \
    }                                                                                              \
    INSTRUCTION bool setp_nan_##type(bits a, bits b) {                                             \
        return OF(a) != OF(a) || OF(b) != OF(b);                                                   \
    }                                                                                              \
    INSTRUCTION bool setp_num_##type(bits a, bits b) {                                             \
        return !setp_nan_##type(a, b);                                                             \
    }                                                                                              \
    INSTRUCTION bool setp_ne_##type(bits a, bits b) {                                              \
        return OF(a) < OF(b) || OF(a) > OF(b);                                                     \
    }                                                                                              \
    COMPARISONS(type, bits, OF)                                                                    \
    UNORDERED(eq, type, bits)                                                                      \
    UNORDERED(ne, type, bits)                                                                      \
    UNORDERED(lt, type, bits)                                                                      \
    UNORDERED(le, type, bits)                                                                      \
    UNORDERED(gt, type, bits)                                                                      \
    UNORDERED(ge, type, bits)
#define UNORDERED(name, type, bits)                                                                \
    INSTRUCTION bool setp_##name##u_##type(bits a, bits b) {                                       \
        return setp_nan_##type(a, b) || setp_##name##_##type(a, b);                                \
    }
FLOATS(f32, uint32_t, float_of, bits_of_float)
FLOATS(f64, uint64_t, double_of, bits_of_double)

/* Conversions. A register may be wider than what is converted to: signs are extended into it. */
#define cvt_rn_f32_s64(a) bits_of_float((float)(int64_t)(a))
#define cvt_rn_f32_u64(a) bits_of_float((float)(uint64_t)(a))
#define cvt_rn_f32_s32(a) bits_of_float((float)(int32_t)(a))
#define cvt_rn_f32_u32(a) bits_of_float((float)(uint32_t)(a))
#define cvt_rn_f64_s64(a) bits_of_double((double)(int64_t)(a))
#define cvt_rn_f64_u64(a) bits_of_double((double)(uint64_t)(a))
#define CONVERT(to, type)                                                                          \
    INSTRUCTION type cvt_##to##_u8(uint64_t a) {                                                   \
        return (type)(uint8_t)a;                                                                   \
    }                                                                                              \
    INSTRUCTION type cvt_##to##_s8(uint64_t a) {                                                   \
        return (type)(int8_t)a;                                                                    \
    }                                                                                              \
    INSTRUCTION type cvt_##to##_u16(uint64_t a) {                                                  \
        return (type)(uint16_t)a;                                                                  \
    }                                                                                              \
    INSTRUCTION type cvt_##to##_s16(uint64_t a) {                                                  \
        return (type)(int16_t)a;                                                                   \
    }                                                                                              \
    INSTRUCTION type cvt_##to##_u32(uint64_t a) {                                                  \
        return (type)(uint32_t)a;                                                                  \
    }                                                                                              \
    INSTRUCTION type cvt_##to##_s32(uint64_t a) {                                                  \
        return (type)(int32_t)a;                                                                   \
    }                                                                                              \
    INSTRUCTION type cvt_##to##_u64(uint64_t a) {                                                  \
        return (type)a;                                                                            \
    }                                                                                              \
    INSTRUCTION type cvt_##to##_s64(uint64_t a) {                                                  \
        return (type)a;                                                                            \
    }
CONVERT(u8, uint8_t)
CONVERT(s8, int8_t)
CONVERT(u16, uint16_t)
CONVERT(s16, int16_t)
CONVERT(u32, uint32_t)
CONVERT(s32, int32_t)
CONVERT(u64, uint64_t)
CONVERT(s64, int64_t)

/* A shift of 64 bits, of which the result is the upper half, or the lower. */
INSTRUCTION uint32_t shf_l_wrap_b32(uint32_t low, uint32_t high, uint32_t n) {
    return (uint32_t)((((uint64_t)high << 32 | low) << (n & 31)) >> 32);
}

INSTRUCTION uint32_t shf_r_wrap_b32(uint32_t low, uint32_t high, uint32_t n) {
    return (uint32_t)(((uint64_t)high << 32 | low) >> (n & 31));
}

/* The low n bits of a in the place of those of b from position on. */
#define INSERT(type, bits)                                                                         \
    INSTRUCTION bits bfi_##type(bits a, bits b, uint32_t position, uint32_t n) {                   \
        const uint32_t width = 8 * sizeof(bits);                                                   \
        position &= 255, n &= 255;                                                                 \
        if (position >= width || n == 0) {                                                         \
            return b;                                                                              \
        }                                                                                          \
        bits mask = (bits)((n >= width ? (bits)-1 : (bits)(((bits)1 << n) - 1)) << position);      \
        return (b & ~mask) | ((bits)(a << position) & mask);                                       \
    }
INSERT(b32, uint32_t)
INSERT(b64, uint64_t)

/* n bits of a from position on, with their sign. */
INSTRUCTION uint64_t bfe_s64(uint64_t a, uint32_t position, uint32_t n) {
    position &= 255, n &= 255;
    if (n == 0) {
        return 0;
    }
    uint32_t last = position + n - 1 < 63 ? position + n - 1 : 63;
    uint64_t sign = a >> last & 1 ? ~(uint64_t)0 : 0;
    uint64_t bits = position < 64 ? a >> position : 0;
    uint32_t kept = position < 64 ? last - position + 1 : 0;
    return kept >= 64 ? bits : (bits & (((uint64_t)1 << kept) - 1)) | sign << kept;
}

/* Four bytes of eight; bit 3 of a selector repeats the sign of the byte. */
INSTRUCTION uint32_t prmt_b32(uint32_t low, uint32_t high, uint32_t selectors) {
    uint64_t from = (uint64_t)high << 32 | low;
    uint32_t to = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t selector = selectors >> 4 * i & 15;
        uint32_t byte = (uint32_t)(from >> 8 * (selector & 7)) & 255;
        to |= (selector & 8 ? (byte & 128 ? 255u : 0) : byte) << 8 * i;
    }
    return to;
}

/* Accesses of one thread. */
typedef struct emulator_vector {
    uint64_t at[4];
} emulator_vector;

#define ACCESS(space, AT, type, value)                                                             \
    INSTRUCTION value ld_##space##_##type(emulator_thread *t, uint64_t address) {                  \
        value v;                                                                                   \
        memcpy(&v, AT(t, address, sizeof v, false), sizeof v);                                     \
        return v;                                                                                  \
    }                                                                                              \
    INSTRUCTION emulator_vector ld_##space##_v2_##type(emulator_thread *t, uint64_t address) {     \
        value v[2];                                                                                \
        memcpy(v, AT(t, address, sizeof v, false), sizeof v);                                      \
        return (emulator_vector){{(uint64_t)v[0], (uint64_t)v[1]}};                                \
    }                                                                                              \
    INSTRUCTION emulator_vector ld_##space##_v4_##type(emulator_thread *t, uint64_t address) {     \
        value v[4];                                                                                \
        memcpy(v, AT(t, address, sizeof v, false), sizeof v);                                      \
        return (emulator_vector){                                                                  \
            {(uint64_t)v[0], (uint64_t)v[1], (uint64_t)v[2], (uint64_t)v[3]}};                     \
    }                                                                                              \
    INSTRUCTION void st_##space##_##type(emulator_thread *t, uint64_t address, uint64_t a) {       \
        value v = (value)a;                                                                        \
        memcpy(AT(t, address, sizeof v, true), &v, sizeof v);                                      \
    }                                                                                              \
    INSTRUCTION void st_##space##_v2_##type(emulator_thread *t, uint64_t address, uint64_t a,      \
                                            uint64_t b) {                                          \
        value v[2] = {(value)a, (value)b};                                                         \
        memcpy(AT(t, address, sizeof v, true), v, sizeof v);                                       \
    }                                                                                              \
    INSTRUCTION void st_##space##_v4_##type(emulator_thread *t, uint64_t address, uint64_t a,      \
                                            uint64_t b, uint64_t c, uint64_t d) {                  \
        value v[4] = {(value)a, (value)b, (value)c, (value)d};                                     \
        memcpy(AT(t, address, sizeof v, true), v, sizeof v);                                       \
    }
#define ACCESSES(type, value)                                                                      \
    ACCESS(global, emulator_global, type, value)                                                   \
    ACCESS(global_nc, emulator_global, type, value)                                                \
    ACCESS(shared, emulator_shared_at, type, value)                                                \
    ACCESS(param, emulator_param, type, value)                                                     \
    ACCESS(local, emulator_local_at, type, value)
ACCESSES(u8, uint8_t)
ACCESSES(s8, int8_t)
ACCESSES(b8, uint8_t)
ACCESSES(u16, uint16_t)
ACCESSES(s16, int16_t)
ACCESSES(b16, uint16_t)
ACCESSES(u32, uint32_t)
ACCESSES(s32, int32_t)
ACCESSES(b32, uint32_t)
ACCESSES(f32, uint32_t)
ACCESSES(u64, uint64_t)
ACCESSES(s64, uint64_t)
ACCESSES(b64, uint64_t)
ACCESSES(f64, uint64_t)

/* Accesses by which launches meet. */
#define SYNCHRONIZED(type, value)                                                                  \
    INSTRUCTION value ld_acquire_sys_##type(emulator_thread *t, uint64_t address) {                \
        return (value)emulator_load(t, address, sizeof(value), EMULATOR_ORDERED);                  \
    }                                                                                              \
    INSTRUCTION value ld_relaxed_sys_##type(emulator_thread *t, uint64_t address) {                \
        return (value)emulator_load(t, address, sizeof(value), EMULATOR_RELAXED);                  \
    }                                                                                              \
    INSTRUCTION value ld_volatile_global_##type(emulator_thread *t, uint64_t address) {            \
        return (value)emulator_load(t, address, sizeof(value), EMULATOR_RELAXED);                  \
    }                                                                                              \
    INSTRUCTION void st_release_sys_##type(emulator_thread *t, uint64_t address, value a) {        \
        emulator_store(t, address, sizeof a, EMULATOR_ORDERED, a);                                 \
    }                                                                                              \
    INSTRUCTION void st_relaxed_sys_##type(emulator_thread *t, uint64_t address, value a) {        \
        emulator_store(t, address, sizeof a, EMULATOR_RELAXED, a);                                 \
    }                                                                                              \
    INSTRUCTION void st_volatile_global_##type(emulator_thread *t, uint64_t address, value a) {    \
        emulator_store(t, address, sizeof a, EMULATOR_RELAXED, a);                                 \
    }
SYNCHRONIZED(u32, uint32_t)
SYNCHRONIZED(b32, uint32_t)
SYNCHRONIZED(u64, uint64_t)
SYNCHRONIZED(b64, uint64_t)
#define membar_sys()        emulator_fence(t)
#define fence_acq_rel_sys() emulator_fence(t)
#define nanosleep_u32(n)    ((void)(n), emulator_pause())

#endif
