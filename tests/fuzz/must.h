/* What the fuzz targets share: a condition without which the fuzzer stops, its entry, and the check
 * that an input takes no long time. */
#ifndef TESTS_FUZZ_MUST_H
#define TESTS_FUZZ_MUST_H

#include "lierne/status.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SLOW 1.0 /* seconds of the processor; shown, and counted by tests/fuzz.sh */

#define MUST(ok, what)                                                                             \
    do {                                                                                           \
        if (!(ok)) {                                                                               \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, what, lierne_last_error());     \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The least of three runs counts: where a machine is busy, ranks that wait take time too. */
static inline void run_timed(void (*run)(const uint8_t *data, size_t size), const uint8_t *data,
                             size_t size) {
    double least = 0;
    for (int i = 0; i < 3; i++) {
        clock_t start = clock();
        run(data, size);
        double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        least = i == 0 || seconds < least ? seconds : least;
        if (least <= SLOW) {
            return;
        }
    }
    fprintf(stderr, "slow: %.3f s for %zu bytes\n", least, size);
}

#endif
