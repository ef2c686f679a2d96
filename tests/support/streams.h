/* Every call of a simulated world on a host stream of its rank: the program is linked with wrappers
 * around the functions that execute, which put a stream where the caller has NULL. */
#ifndef LIERNE_TESTS_STREAMS_H
#define LIERNE_TESTS_STREAMS_H

#include "lierne/sim.h"

typedef struct test_streams test_streams;

/* Gives each of the first ranks of a world a stream, before the first plan, where the environment
 * variable LIERNE_TEST_EXECUTOR is "stream" and the world is not too large; else NULL. Where
 * LIERNE_TEST_MEMORY is "tasks", their memory is that of tasks.h. Where LIERNE_TEST_EXECUTOR is
 * "device", memory and streams are those of the device that is played there. */
test_streams *test_streams_attach_asked(lierne_sim *sim, int n);
/* After the world. NULL is allowed. */
void test_streams_destroy(test_streams *streams);

#endif
