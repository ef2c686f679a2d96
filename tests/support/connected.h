/* A transport of the tests whose two ends know each other only by what a plan connected: it stands
 * for one between processes. The sender decides per message whether it shows its blocks, shows a
 * packed copy, or has the receiver's end write them into place. For simulated worlds with a thread
 * per rank, because connecting waits for all ranks. */
#ifndef LIERNE_TESTS_CONNECTED_H
#define LIERNE_TESTS_CONNECTED_H

#include "lierne/sim.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct test_connected test_connected;

/* Gives every context of a world of n ranks the transport, for the pairs with a set bit (a + b) % 3
 * in pairs; all others stay with sim. To be called before the first plan. Destroy it after the
 * world. Ends the program without memory. */
test_connected *test_connected_attach(lierne_sim *sim, int n, unsigned pairs);
/* Attaches it where the environment variable LIERNE_TEST_TRANSPORTS is "connected"; else NULL. */
test_connected *test_connected_attach_asked(lierne_sim *sim, int n);
/* Frees it; NULL is allowed. Returns whether no message was left. */
bool test_connected_destroy(test_connected *t);

/* Messages received in each of the three ways: shown, packed, written into place. */
void test_connected_count(const test_connected *t, size_t count[3]);
/* From now on the k-th connect of a rank fails with NO_MEMORY (1: the next one). */
void test_connected_fail(test_connected *t, int rank, int k);

#endif
