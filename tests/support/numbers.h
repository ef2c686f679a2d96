/* Elements of a dtype as numbers, and numbers that look random. */
#ifndef LIERNE_TESTS_NUMBERS_H
#define LIERNE_TESTS_NUMBERS_H

#include "lierne/layout.h"

#include <stddef.h>

/* Element number `at` of a buffer. Exact for numbers that the dtype has; of others 16-bit floats
 * lose digits, and 8-bit integers wrap. Ends the program on an opaque dtype. */
void number_put(lierne_dtype dtype, void *buffer, int64_t at, double value);
double number_get(lierne_dtype dtype, const void *buffer, int64_t at);

/* Equal bits, but for the sign of zero. */
int same_bits(lierne_dtype dtype, const unsigned char *a, const unsigned char *b, size_t bytes);

/* A mixed hash. */
uint64_t mix(uint64_t x);

#endif
