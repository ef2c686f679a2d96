/* A memory kind on the host that records work and carries it out with the arithmetic of the CUDA
 * kernels (memory/task.h), compiled by the host's compiler. */
#ifndef LIERNE_TESTS_TASKS_H
#define LIERNE_TESTS_TASKS_H

#include "memory/memory.h"

/* Its launches run tiles and threads from the last to the first, because a device promises no
 * order. */
extern const lierne_memory test_task_memory;

/* Launches so far, of all executions. */
size_t test_task_launches(void);

#endif
