/* What tests of several processes on GPUs share. They are launched by tests/launched/launch, share
 * the devices of the node in turn, and exchange messages over windows, or over NCCL where the
 * environment variable LIERNE_TEST_EXECUTOR is "nccl". */
#ifndef LIERNE_TESTS_GPU_RANKS_H
#define LIERNE_TESTS_GPU_RANKS_H

#include "lierne.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>

extern int rank, world; /* of this process */

/* Counts a check, and prints the message of one that fails. must ends the program then. */
void check(bool good, const char *what);
void must(bool good, const char *what);
/* Ends with "N passed, N failed" and the exit status of main. Without a device, ranks_open says so
 * and ends the program. */
int ranks_end(void);

/* Contexts of all processes, in host memory and on the device. timeout: of the device's. */
void ranks_open(lierne_context **host, lierne_context **device, double timeout);

#define RANKS_COUNT 53
/* A two-stage sum, an all-to-all, rows: with no stage that is an all-gather of NCCL's. */
enum { RANKS_KINDS = 3 };
lierne_plan *ranks_plan(lierne_context *context, int kind);
/* Bytes of an input (0) or output (1) of either direction. */
size_t ranks_bytes(const lierne_plan *plan, int direction, int output);

#endif
