/* Transports of the tests, for simulated worlds: one that exposes the sender's buffers instead of
 * moving bytes; the same with ends that know each other only by what a plan connected, which stands
 * for one between processes; and one that moves bytes but has no match ids. All are late at random,
 * and none serves all pairs of ranks, so that a stage uses several transports. */
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
    unsigned connected; /* the sender decides per message whether it shows its blocks, shows a
                           packed copy, or has the receiver's end write them into place; needs a
                           thread per rank, because connecting waits for all ranks */
} test_pairs;

/* Gives every context of a world of n members those of the transports that serve a pair. To be
 * called before the first plan, and once only. Destroy them after the world. Ends the program
 * without memory. */
test_transports *test_transports_attach(lierne_sim *sim, int n, test_pairs pairs);
/* Attaches the first two, where the environment variable LIERNE_TEST_TRANSPORTS is "mixed" and the
 * world is not too large; else NULL. With a thread per rank, also the connected one, if it is
 * "connected". */
test_transports *test_transports_attach_asked(lierne_sim *sim, int n);
test_transports *test_transports_connect_asked(lierne_sim *sim, int n);
/* Messages between connected ends that were received in each of the three ways: shown, packed,
 * written into place. */
void test_transports_count(const test_transports *t, size_t count[3]);
/* From now on the k-th connect of a rank fails with NO_MEMORY (1: the next one). */
void test_transports_fail_connect(test_transports *t, int rank, int k);
/* Frees them; NULL is allowed. Returns whether no message was left. */
bool test_transports_destroy(test_transports *transports);

#endif
