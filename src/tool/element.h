/* Small integers as elements of a dtype, exactly. */
#ifndef LIERNE_TOOL_ELEMENT_H
#define LIERNE_TOOL_ELEMENT_H

#include "lierne/layout.h"

/* Writes value, of magnitude 2048 at most (bf16: 256, i8 and u8: their range), as one element. */
void element_store(lierne_dtype dtype, int value, void *element);

/* An element as a number: exact for all but 64-bit integers above 2^53. */
double element_load(lierne_dtype dtype, const void *element);

#endif
