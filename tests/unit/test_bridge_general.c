/* Bridges that no reference does, at random. Each must be right, and receive no byte too many. */
#include "unit/random_case.h"

#include "routing.h"
#include "seeds.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { PAIRS = 6000, PARTS = 4 };

static void run_random(uint64_t seed) {
    static case_arrays arrays;
    bridge_case c;
    case_result result;
    random_case(seed, 1 + (int)(seed * 0x9e3779b97f4a7c15u >> 40) % MAX_WORLD, &c, &arrays);
    const char *wrong = run_case(&c, &result);
    if (wrong || result.status != LIERNE_OK) {
        show_case(&c);
    }
    cr_assert(!wrong, "seed %llu: %s", (unsigned long long)seed, wrong);
    cr_assert_eq(result.status, LIERNE_OK, "seed %llu: %s", (unsigned long long)seed,
                 result.message);
    cr_assert_eq(result.received, result.minimum, "seed %llu: forward receives %lld, minimum %lld",
                 (unsigned long long)seed, (long long)result.received, (long long)result.minimum);
    cr_assert_eq(result.adjoint_received, result.adjoint_minimum,
                 "seed %llu: adjoint receives %lld, minimum %lld", (unsigned long long)seed,
                 (long long)result.adjoint_received, (long long)result.adjoint_minimum);
    free_result(&result);
}

/* A test per part, so that they run side by side; one seed is the first part's. Balanced routes
 * take longer to plan: a tenth of the pairs. */
static void run_part(int part) {
    seed_range seeds = test_seeds(test_routing() == LIERNE_ROUTING_BALANCED ? PAIRS / 10 : PAIRS);
    for (uint64_t i = seeds.first + (uint64_t)part; i < seeds.end; i += PARTS) {
        run_random(i);
    }
    printf("random pairs: seeds %llu, %d apart, below %llu\n",
           (unsigned long long)seeds.first + (unsigned)part, PARTS, (unsigned long long)seeds.end);
}

Test(bridge_general, random_pairs_0) {
    run_part(0);
}
Test(bridge_general, random_pairs_1) {
    run_part(1);
}
Test(bridge_general, random_pairs_2) {
    run_part(2);
}
Test(bridge_general, random_pairs_3) {
    run_part(3);
}

/* 4,096 ranks: tp8 dp512 -> tp8 cp4 dp128, and a full check that messages pair up. */
Test(bridge_general, four_thousand_ranks) {
    bridge_case c = {.world = 4096,
                     .batch = 512,
                     .sequence = 8,
                     .hidden = 2,
                     .axis_b = 1,
                     .axis_h = 2,
                     .dtype = LIERNE_DTYPE_BF16,
                     .owner = LIERNE_GRADIENT_OWNER_PARTIAL};
    c.src = (mesh){.ndims = 2, .names = {"tp", "dp"}, .sizes = {8, 512}};
    c.dst = (mesh){.ndims = 3, .names = {"tp", "cp", "dp"}, .sizes = {8, 4, 128}};
    for (int a = 0; a < 2; a++) {
        case_result result;
        c.algorithm = (test_algorithm)a;
        const char *wrong = run_case(&c, &result);
        cr_assert(!wrong && result.status == LIERNE_OK, "%s %s", wrong ? wrong : "",
                  result.message);
        free_result(&result);
    }
}
