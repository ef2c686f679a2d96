/* NCCL's functions played by threads of one process, without any buffering: a group call ends when
 * all its messages have arrived at both ends. Linked in place of lierne_nccl_load. */
#ifndef LIERNE_TESTS_FAKE_H
#define LIERNE_TESTS_FAKE_H

#include "backend/nccl/nccl_transport.h"

/* Contexts of a job of RANKS ranks (node_ranks.h): of the device that is played under the name of
 * CUDA's, and of that over NCCL. */
lierne_context *open_device(const char *name, int rank, double timeout);
lierne_context *open_nccl(const char *name, int rank, double timeout);
/* How often this thread's rank has allocated pinned memory. */
int fake_host_allocations(void);

/* Makes every nonblocking communicator stay in progress; makes the next send fail, and the groups
 * that wait for it. */
void fake_nccl_stall(bool stall);
void fake_nccl_fail_send(void);
/* Lets group calls run on the streams that they are given (device_streams.h), those of one
 * communicator one after another, whatever their streams. */
void fake_nccl_use_streams(bool use);
/* Whether communicators that are made from an id are those of groups. */
void fake_nccl_join_groups(bool join);
/* The asynchronous error of every communicator. */
void fake_nccl_set_error(ncclResult_t error);
typedef struct fake_nccl_counts {
    int created, destroyed, aborted, groups, messages, all_gathers;
    int split, joined;  /* communicators of groups: made by a split, from an id */
    int group_messages; /* on these */
    int tagged;         /* all-gathers with a tag, and the last one's */
    uint64_t tag;
} fake_nccl_counts;
fake_nccl_counts fake_nccl_count(void);
/* The version that it says to have, 2.28.9 at first: splits are of 2.18, windows of 2.28, tags of
 * 2.31. */
void fake_nccl_set_version(int version);

/* What fails on this thread's rank, in the next call that could or after so many of them: memory;
 * a registration, so that the other ranks wait for it in vain; or NCCL makes no window. */
typedef enum fake_window_fault {
    FAKE_NO_FAULT = 0,
    FAKE_NO_MEMORY,
    FAKE_NO_WINDOW,
    FAKE_NULL_WINDOW
} fake_window_fault;
void fake_nccl_fail_window(fake_window_fault fault, int after);
typedef struct fake_window_counts {
    int allocated, freed; /* memory */
    int registered, deregistered, ended /* with their communicator */;
    int messages; /* from or into windows */
    int gathers;  /* all-gathers into windows */
    int wrong;    /* memory freed that is registered, windows of another communicator, all-gathers
                     into other places on other ranks */
} fake_window_counts;
fake_window_counts fake_nccl_count_windows(void);
/* The device of communicators that this thread makes from now on; 0 before. */
void fake_nccl_set_device(int device);
/* A communicator of a caller's, which the caller frees (free). */
ncclComm_t fake_nccl_comm(int world_id, int rank, int world);

#endif
