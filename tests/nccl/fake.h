/* NCCL's functions played by threads of one process, without any buffering: a group call ends when
 * all its messages have arrived at both ends. Linked in place of lierne_nccl_load. */
#ifndef LIERNE_TESTS_FAKE_H
#define LIERNE_TESTS_FAKE_H

#include "transport/nccl/nccl.h"

/* Makes every nonblocking communicator stay in progress; makes the next send fail. */
void fake_nccl_stall(bool stall);
void fake_nccl_fail_send(void);
/* The asynchronous error of every communicator. */
void fake_nccl_set_error(ncclResult_t error);
typedef struct fake_nccl_counts {
    int created, destroyed, aborted, groups, messages, all_gathers;
} fake_nccl_counts;
fake_nccl_counts fake_nccl_count(void);
/* The device of communicators that this thread makes from now on; 0 before. */
void fake_nccl_set_device(int device);
/* A communicator of a caller's, which the caller frees (free). */
ncclComm_t fake_nccl_comm(int world_id, int rank, int world);

#endif
