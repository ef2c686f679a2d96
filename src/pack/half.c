/* f16 and bf16 to float and back, in integers, so that results do not depend on what the compiler
 * or the processor offers. Rounding is to nearest, ties to even; a NaN stays a (quiet) NaN. */
#include "pack/pack.h"

#include <string.h>

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float lierne_bf16_to_float(uint16_t bits) {
    return from_bits((uint32_t)bits << 16);
}

uint16_t lierne_bf16_from_float(float value) {
    uint32_t bits = to_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(bits >> 16 | 0x40);
    }
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

float lierne_f16_to_float(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    if (exponent == 31) {
        return from_bits(sign | 0x7f800000u | fraction << 13);
    }
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24, exact in float */
        float value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t lierne_f16_from_float(float value) {
    uint32_t bits = to_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    }
    if (magnitude >= 0x477ff000u) { /* 65520 and up rounds to infinity */
        return (uint16_t)(sign | 0x7c00);
    }
    if (magnitude < 0x38800000u) { /* below 2^-14: adding 0.5 rounds at the bit 2^-24 */
        float shifted = from_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (to_bits(shifted) - to_bits(0.5f)));
    }
    magnitude += 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | ((magnitude - 0x38000000u) >> 13));
}
