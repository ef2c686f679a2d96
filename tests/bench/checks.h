/* What the benchmarks that run without MPI share: a count of verdicts, a clock, and an order. */
#ifndef TESTS_BENCH_CHECKS_H
#define TESTS_BENCH_CHECKS_H

#include "lierne/status.h"

#include <stdbool.h>
#include <stdio.h>
#include <time.h>

static int counts[2]; /* failed, passed */

static inline void check(bool ok, const char *what) {
    counts[ok]++;
    if (!ok) {
        fprintf(stderr, "failed: %s: %s\n", what, lierne_last_error());
    }
}

/* Prints the closing line. Returns the exit status. */
static inline int close_counts(void) {
    printf("%d passed, %d failed\n", counts[1], counts[0]);
    return counts[0] != 0;
}

/* Seconds of CLOCK_MONOTONIC, or of the thread's own time, which a busy machine changes little. */
static inline double seconds_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* For qsort of doubles. */
static inline int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#endif
