/* Which random cases a test runs: LIERNE_SEED=n that of one seed, LIERNE_SEEDS=n those below n;
 * both: those from the one on and below the other. */
#ifndef LIERNE_TESTS_SEEDS_H
#define LIERNE_TESTS_SEEDS_H

#include <stdint.h>
#include <stdlib.h>

typedef struct seed_range {
    uint64_t first, end;
} seed_range;

/* Those below usual, where the environment asks for nothing. */
static inline seed_range test_seeds(uint64_t usual) {
    const char *one = getenv("LIERNE_SEED"), *many = getenv("LIERNE_SEEDS");
    uint64_t first = one ? strtoull(one, NULL, 10) : 0;
    return (seed_range){first, many ? strtoull(many, NULL, 10) : one ? first + 1 : usual};
}

#endif
