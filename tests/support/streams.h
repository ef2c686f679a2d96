/* Every call of a simulated world on a stream: the program is linked with wrappers around the
 * functions that execute, which put a stream where the caller has NULL. */
#ifndef LIERNE_TESTS_STREAMS_H
#define LIERNE_TESTS_STREAMS_H

#include "lierne/sim.h"

typedef struct test_streams test_streams;

/* Where the environment variable LIERNE_TEST_EXECUTOR is "device", makes the memory and the streams
 * of the first n ranks of a world those of the device that is played (tasks.h), before the first
 * plan; else NULL. */
test_streams *test_streams_attach_asked(lierne_sim *sim, int n);
/* After the world. NULL is allowed. */
void test_streams_destroy(test_streams *streams);

#endif
