/* 16-bit floats are put together from their fields: the library's conversions are under test. */
#include "numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sign, exponent and digits of a number that the dtype holds. */
static uint16_t half_bits(double x, int digits, int bias) {
    int exponent;
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double magnitude = fabs(x), one = ldexp(1, digits - 1);
    if (isnan(x) || isinf(x)) {
        unsigned top = (2u * (unsigned)bias + 1) << (digits - 1);
        return (uint16_t)(sign | top | (isnan(x) ? (unsigned)one / 2 : 0));
    }
    frexp(magnitude, &exponent);
    exponent = magnitude == 0 || exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
    double scaled = ldexp(magnitude, digits - 1 - exponent);
    unsigned field = scaled >= one ? (unsigned)(exponent + bias) : 0;
    return (uint16_t)(sign | field << (digits - 1) | (unsigned)(scaled - (field ? one : 0)));
}

static double half_value(uint16_t bits, int digits, int bias) {
    int field = (bits & 0x7fff) >> (digits - 1);
    double fraction = (double)(bits & ((1u << (digits - 1)) - 1));
    double one = ldexp(1, digits - 1);
    double x = field ? ldexp(one + fraction, field - bias - digits + 1)
                     : ldexp(fraction, 1 - bias - digits + 1);
    if (field == 2 * bias + 1) {
        x = fraction > 0 ? (double)NAN : (double)INFINITY;
    }
    return bits & 0x8000 ? -x : x;
}

void number_put(lierne_dtype dtype, void *buffer, int64_t at, double value) {
    switch (dtype) {
    case LIERNE_DTYPE_F64:
        ((double *)buffer)[at] = value;
        break;
    case LIERNE_DTYPE_F32:
        ((float *)buffer)[at] = (float)value;
        break;
    case LIERNE_DTYPE_BF16:
        ((uint16_t *)buffer)[at] = half_bits(value, 8, 127);
        break;
    case LIERNE_DTYPE_F16:
        ((uint16_t *)buffer)[at] = half_bits(value, 11, 15);
        break;
    case LIERNE_DTYPE_I64:
        ((int64_t *)buffer)[at] = (int64_t)value;
        break;
    case LIERNE_DTYPE_I32:
        ((int32_t *)buffer)[at] = (int32_t)value;
        break;
    case LIERNE_DTYPE_I8:
    case LIERNE_DTYPE_U8:
        ((uint8_t *)buffer)[at] = (uint8_t)(int64_t)value;
        break;
    default: /* opaque dtypes have no values */
        abort();
    }
}

double number_get(lierne_dtype dtype, const void *buffer, int64_t at) {
    switch (dtype) {
    case LIERNE_DTYPE_F64:
        return ((const double *)buffer)[at];
    case LIERNE_DTYPE_F32:
        return (double)((const float *)buffer)[at];
    case LIERNE_DTYPE_BF16:
        return half_value(((const uint16_t *)buffer)[at], 8, 127);
    case LIERNE_DTYPE_F16:
        return half_value(((const uint16_t *)buffer)[at], 11, 15);
    case LIERNE_DTYPE_I64:
        return (double)((const int64_t *)buffer)[at];
    case LIERNE_DTYPE_I32:
        return (double)((const int32_t *)buffer)[at];
    case LIERNE_DTYPE_I8:
        return (double)((const int8_t *)buffer)[at];
    case LIERNE_DTYPE_U8:
        return (double)((const uint8_t *)buffer)[at];
    default:
        abort();
    }
}

int same_bits(lierne_dtype dtype, const unsigned char *a, const unsigned char *b, size_t bytes) {
    size_t size = lierne_dtype_size(dtype);
    for (size_t i = 0; i < bytes; i += size) {
        if (memcmp(a + i, b + i, size) != 0 &&
            (number_get(dtype, a + i, 0) != 0 || number_get(dtype, b + i, 0) != 0)) {
            return 0;
        }
    }
    return 1;
}

uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 31)) * 0x7fb5d329728ea185u;
    x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44du;
    return x ^ (x >> 33);
}
