/* Transports of the tests, for simulated worlds: one that exposes the sender's buffers instead of
 * moving bytes, and one that moves bytes but has no match ids. Both are late at random, and neither
 * serves all pairs of ranks, so that a stage uses several transports. */
#ifndef LIERNE_TESTS_TRANSPORTS_H
#define LIERNE_TESTS_TRANSPORTS_H

#include "lierne/sim.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct test_transports test_transports;

/* Zeroed memory for n items, and one more. Ends the program without memory. */
void *test_transport_memory(size_t n, size_t size);

/* Pairs of ranks by (a + b) % 3 that each transport serves, as a bit mask; all others stay with
 * sim.
 */
typedef struct test_pairs {
    unsigned exposed;
    unsigned ordered;
} test_pairs;

/* Gives every context of a world of n members the two transports. To be called before the first
 * plan, and once only. Destroy them after the world. Ends the program without memory. */
test_transports *test_transports_attach(lierne_sim *sim, int n, test_pairs pairs);
/* Attaches both, where the environment variable LIERNE_TEST_TRANSPORTS is "mixed" and the world is
 * not too large; else NULL. */
test_transports *test_transports_attach_asked(lierne_sim *sim, int n);
/* Frees them; NULL is allowed. Returns whether no message was left. */
bool test_transports_destroy(test_transports *transports);

#endif
