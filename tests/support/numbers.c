/* 16-bit floats are put together from their fields: the library's conversions are under test. */
#include "numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint16_t half_of(double value) {
    int e;
    double m = frexp(fabs(value), &e);
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (m < 0.5 || e < -12) { /* zero, or too small for a normal number */
        return sign;
    }
    return (uint16_t)(sign | (e + 14) << 10 | ((int)(m * 2048) & 0x3ff));
}

static double value_of_half(uint16_t half) {
    double m = ldexp((half & 0x3ff) + (half & 0x7c00 ? 1024 : 0), (half >> 10 & 31) - 25);
    return half & 0x8000 ? -m : m;
}

void number_put(lierne_dtype dtype, void *buffer, int64_t at, double value) {
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    switch (dtype) {
    case LIERNE_DTYPE_F64:
        ((double *)buffer)[at] = value;
        break;
    case LIERNE_DTYPE_F32:
        ((float *)buffer)[at] = f;
        break;
    case LIERNE_DTYPE_BF16:
        ((uint16_t *)buffer)[at] = (uint16_t)(bits >> 16);
        break;
    case LIERNE_DTYPE_F16:
        ((uint16_t *)buffer)[at] = half_of(value);
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
    uint32_t bits;
    float f;
    switch (dtype) {
    case LIERNE_DTYPE_F64:
        return ((const double *)buffer)[at];
    case LIERNE_DTYPE_F32:
        return (double)((const float *)buffer)[at];
    case LIERNE_DTYPE_BF16:
        bits = (uint32_t)((const uint16_t *)buffer)[at] << 16;
        memcpy(&f, &bits, sizeof f);
        return (double)f;
    case LIERNE_DTYPE_F16:
        return value_of_half(((const uint16_t *)buffer)[at]);
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
