/* What the fuzz targets share: a condition without which the fuzzer stops, and its entry. */
#ifndef TESTS_FUZZ_MUST_H
#define TESTS_FUZZ_MUST_H

#include "lierne/status.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(ok, what)                                                                             \
    do {                                                                                           \
        if (!(ok)) {                                                                               \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, what, lierne_last_error());     \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
