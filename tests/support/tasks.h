/* A memory kind on the host that records work and carries it out with the arithmetic of the CUDA
 * kernels (runtime/memory/task.h), compiled by the host's compiler. */
#ifndef LIERNE_TESTS_TASKS_H
#define LIERNE_TESTS_TASKS_H

#include "runtime/execute/stream.h"
#include "runtime/memory/memory.h"

/* Its launches run tiles and threads from the last to the first, because a device promises no
 * order. */
extern const lierne_memory test_task_memory;

/* The same as a device whose memory the host may not touch, and its streams: a call enqueues by
 * itself, and an event passes when it has been asked about a few times. Any pointer is a stream. */
extern const lierne_memory test_device_memory;
extern const lierne_stream_driver test_device_driver;
/* The same under another name, without the functions by which the host touches it. */
lierne_memory test_untouched_memory(const char *name);

/* Epochs of devices that are played; advance at once. */
lierne_status test_epochs_create(lierne_epochs **epochs, lierne_context *context, size_t n);
void test_epochs_destroy(lierne_epochs *epochs, lierne_context *context);
lierne_status test_advance(void *stream, uint64_t *epoch);

/* A launch of a program that has these tables. */
void test_task_run(const lierne_task_table *table, const lierne_task_launch *launch,
                   const lierne_task_call *call);
/* What the kernels of deltas do. */
lierne_status test_task_change(const lierne_change_call *call, bool make, void *stream);
/* Launches so far, of all executions. */
size_t test_task_launches(void);

#endif
