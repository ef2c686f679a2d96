/* Memory that the ranks of a launch share. */
#ifndef TESTS_LAUNCHED_SHARED_H
#define TESTS_LAUNCHED_SHARED_H

#include <pthread.h>

enum { LAUNCHED_SLOT = 4096 };
#define LAUNCHED_MEMORY "LIERNE_TEST_MEMORY" /* the variable with its descriptor */

typedef struct launched_memory {
    pthread_barrier_t barrier;
    char slots[]; /* LAUNCHED_SLOT bytes for each rank */
} launched_memory;

#endif
