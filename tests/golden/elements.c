/* Elements of any dtype from and to double, which holds every value of the golden files. The
 * conversions of 16-bit floats, for numbers that they hold exactly, are written here, because the
 * library's own conversions are under test. */
#include "golden.h"

#include <math.h>

/* Sign, exponent with this bias, and mantissa bits of a normal number or zero. */
static uint16_t to_small(double value, int bias, int mantissa) {
    int exponent;
    double fraction = frexp(fabs(value), &exponent); /* in [0.5, 1) */
    unsigned sign = signbit(value) ? 0x8000U : 0;
    if (fraction < 0.5) {
        return (uint16_t)sign;
    }
    unsigned bits = (unsigned)((2 * fraction - 1) * (1 << mantissa));
    return (uint16_t)(sign | (unsigned)(exponent - 1 + bias) << mantissa | bits);
}

static double from_small(uint16_t bits, int bias, int mantissa) {
    int exponent = (bits & 0x7fff) >> mantissa;
    double fraction = 1 + (double)(bits & ((1 << mantissa) - 1)) / (1 << mantissa);
    double value = exponent ? ldexp(fraction, exponent - bias) : 0;
    return bits & 0x8000 ? -value : value;
}

void golden_poke(lierne_dtype dtype, void *memory, int64_t i, double value) {
    switch (dtype) {
    case LIERNE_F64:
        ((double *)memory)[i] = value;
        break;
    case LIERNE_F32:
        ((float *)memory)[i] = (float)value;
        break;
    case LIERNE_BF16:
        ((uint16_t *)memory)[i] = to_small(value, 127, 7);
        break;
    case LIERNE_F16:
        ((uint16_t *)memory)[i] = to_small(value, 15, 10);
        break;
    case LIERNE_I64:
        ((int64_t *)memory)[i] = (int64_t)value;
        break;
    default:
        ((int32_t *)memory)[i] = (int32_t)value;
        break;
    }
}

double golden_peek(lierne_dtype dtype, const void *memory, int64_t i) {
    switch (dtype) {
    case LIERNE_F64:
        return ((const double *)memory)[i];
    case LIERNE_F32:
        return (double)((const float *)memory)[i];
    case LIERNE_BF16:
        return from_small(((const uint16_t *)memory)[i], 127, 7);
    case LIERNE_F16:
        return from_small(((const uint16_t *)memory)[i], 15, 10);
    case LIERNE_I64:
        return (double)((const int64_t *)memory)[i];
    default:
        return (double)((const int32_t *)memory)[i];
    }
}
