/* Written from the definition of the formats, not with the library's conversions, so that the check
 * does not share the library's errors. Integers need no rounding, which keeps it short. */
#include "element.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static uint16_t bf16_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static uint16_t f16_bits(int value) {
    if (value == 0) {
        return 0;
    }
    unsigned magnitude = (unsigned)abs(value);
    unsigned exponent = 0;
    while (magnitude >> (exponent + 1)) {
        exponent++;
    }
    unsigned fraction = (magnitude << (10 - exponent)) & 0x3ff;
    return (uint16_t)((value < 0 ? 0x8000u : 0) | (exponent + 15) << 10 | fraction);
}

static double bf16_value(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static double f16_value(uint16_t bits) {
    int exponent = bits >> 10 & 31;
    int fraction = bits & 0x3ff;
    double magnitude = exponent == 31  ? (fraction ? (double)NAN : (double)INFINITY)
                       : exponent == 0 ? ldexp(fraction, -24)
                                       : ldexp(fraction + 1024, exponent - 25);
    return bits & 0x8000 ? -magnitude : magnitude;
}

/* A dtype with a C type of its own. */
#define NUMBERS(X)                                                                                 \
    X(F64, double)                                                                                 \
    X(F32, float)                                                                                  \
    X(I64, int64_t)                                                                                \
    X(I32, int32_t)                                                                                \
    X(I8, int8_t)                                                                                  \
    X(U8, uint8_t)

void element_store(lierne_dtype dtype, int value, void *element) {
    uint16_t bits;
    switch (dtype) {
#define STORE(name, type)                                                                          \
    case LIERNE_DTYPE_##name: {                                                                    \
        type number = (type)value;                                                                 \
        memcpy(element, &number, sizeof number);                                                   \
        return;                                                                                    \
    }
        NUMBERS(STORE)
    case LIERNE_DTYPE_BF16:
        bits = bf16_bits((float)value);
        break;
    case LIERNE_DTYPE_F16:
    default:
        bits = f16_bits(value);
    }
    memcpy(element, &bits, sizeof bits);
}

double element_load(lierne_dtype dtype, const void *element) {
    uint16_t bits;
    switch (dtype) {
#define LOAD(name, type)                                                                           \
    case LIERNE_DTYPE_##name: {                                                                    \
        type number;                                                                               \
        memcpy(&number, element, sizeof number);                                                   \
        return (double)number;                                                                     \
    }
        NUMBERS(LOAD)
    case LIERNE_DTYPE_BF16:
        memcpy(&bits, element, sizeof bits);
        return bf16_value(bits);
    case LIERNE_DTYPE_F16:
    default:
        memcpy(&bits, element, sizeof bits);
        return f16_value(bits);
    }
}
