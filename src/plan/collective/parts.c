/* How buffers are divided among the ranks, and which algorithm divides them. */
#include "plan/collective/collective.h"

#include <stdlib.h>
#include <string.h>

#define UNIT 16 /* bytes in which the two-shot algorithm divides */

lierne_status lierne_parts_by_count(int64_t **parts, int n, int64_t count, const int64_t *counts) {
    LIERNE_TRY(lierne_alloc(parts, (size_t)n + 1, sizeof **parts));
    for (int i = 0; i < n; i++) {
        (*parts)[i + 1] = (*parts)[i] + (counts ? counts[i] : count);
    }
    return LIERNE_OK;
}

/* Whole units to each rank, one more to the first ones; the last unit may be incomplete. */
lierne_status lierne_parts_two_shot(int64_t **parts, int n, int64_t count, lierne_dtype dtype) {
    int64_t unit = UNIT / (int64_t)lierne_dtype_size(dtype);
    int64_t units = count / unit + (count % unit != 0), each = units / n, more = units % n;
    LIERNE_TRY(lierne_alloc(parts, (size_t)n + 1, sizeof **parts));
    for (int i = 0; i < n; i++) {
        int64_t end = (each * (i + 1) + (i < more ? i + 1 : more)) * unit;
        (*parts)[i + 1] = end < count ? end : count;
    }
    return LIERNE_OK;
}

lierne_status lierne_parts_at(int64_t **parts, int n, int64_t count, int owner) {
    LIERNE_TRY(lierne_alloc(parts, (size_t)n + 1, sizeof **parts));
    for (int i = owner; i < n; i++) {
        (*parts)[i + 1] = count;
    }
    return LIERNE_OK;
}

/* The least bytes of a buffer that two shots move faster than one, by number of ranks, as measured
 * between processes of one node: `make bench BENCH_ARGS=all-reduce`, docs/performance.md. */
static const struct {
    int ranks; /* this many and more, up to the next entry */
    int64_t bytes;
} two_shot_from[] = {{3, 512 << 10}, {6, 128 << 10}};

lierne_status lierne_collective_read_environment(lierne_collective_algorithm *algorithm, int rank) {
    const char *text = getenv("LIERNE_COLLECTIVE");
    bool one = text && strcmp(text, "one_shot") == 0, two = text && strcmp(text, "two_shot") == 0;
    if (!text || !*text) {
        return LIERNE_OK;
    }
    if (!one && !two) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: LIERNE_COLLECTIVE is '%.40s', must be one_shot or two_shot",
                           rank, text);
    }
    if (*algorithm == LIERNE_COLLECTIVE_ALGORITHM_AUTO) {
        *algorithm =
            one ? LIERNE_COLLECTIVE_ALGORITHM_ONE_SHOT : LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT;
    }
    return LIERNE_OK;
}

lierne_collective_algorithm lierne_collective_choose(lierne_collective_algorithm asked, int n,
                                                     int64_t bytes) {
    int64_t least = INT64_MAX; /* with two ranks both move equally many bytes */
    if (asked != LIERNE_COLLECTIVE_ALGORITHM_AUTO) {
        return asked;
    }
    for (size_t i = 0; i < sizeof two_shot_from / sizeof *two_shot_from; i++) {
        least = n >= two_shot_from[i].ranks ? two_shot_from[i].bytes : least;
    }
    return bytes >= least ? LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT
                          : LIERNE_COLLECTIVE_ALGORITHM_ONE_SHOT;
}
