/* A bridge by any of its three algorithms, for tests that run the same case by each. */
#ifndef LIERNE_TESTS_ALGORITHM_H
#define LIERNE_TESTS_ALGORITHM_H

#include "lierne.h"

typedef enum test_algorithm {
    TEST_DIRECT = 0,
    TEST_COLLECTIVE = LIERNE_MEGATRON_ALGORITHM_COLLECTIVE,
    TEST_LEADER = LIERNE_MEGATRON_ALGORITHM_LEADER
} test_algorithm;

static inline lierne_status test_plan_bridge(lierne_plan **out, lierne_context *context,
                                             const lierne_bridge_spec *spec,
                                             test_algorithm algorithm) {
    lierne_megatron_spec megatron = {sizeof megatron, (lierne_megatron_algorithm)algorithm, spec};
    return algorithm == TEST_DIRECT ? lierne_plan_create_bridge(out, context, spec)
                                    : lierne_plan_create_megatron(out, context, &megatron);
}

#endif
