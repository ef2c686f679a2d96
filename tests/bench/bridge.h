/* The bridge benchmark: a workload is one bridge with its buffers on this rank. Elements are
 * integers from 1 to 199, exact in every type and in every order of addition. */
#ifndef TESTS_BENCH_BRIDGE_H
#define TESTS_BENCH_BRIDGE_H

#include "bench/bench.h"

typedef struct workload {
    const char *kind; /* "a fan-in", ... */
    const char *load; /* "large f32", ... */
    mesh src, dst;
    lierne_dtype dtype;
    size_t size;          /* of an element */
    int axis;             /* of the batch: 0 is [b, s, h], 1 is [s, b, h] */
    int64_t narrow, s, h; /* samples of a narrow dp rank, sequence, hidden */
    bool disjoint;        /* meshes without a common rank: nothing is written by hand for them */
    bool fan_in;
    int dp_ratio;
    int cp;
    bridge_case bridge; /* the same for the model and the library */
    size_t bytes[2][2]; /* of the input and of the output, per direction */
    char *in[2];
    char *out[2];
} workload;

/* Fills in what follows from the first fields, and the buffers. */
void workload_open(workload *w);
void workload_close(workload *w);
/* As struct bench has them. */
void workload_reset(const void *workload, int direction);
bool workload_right(const method *m, int direction);
void workload_rewrite(const void *workload, int direction);
const char *workload_text(const void *workload);

extern const method_kind lierne_direct, lierne_partial, lierne_collective, lierne_leader;
/* DIRECT over shared memory, from ordinary memory and from that of lierne_context_alloc. */
extern const method_kind lierne_shm, lierne_windows, lierne_window_partial;
/* As lierne_windows, with one output per node for all ranks that need the same; NULL where none do.
 */
extern const method_kind lierne_shared;
extern const method_kind naive_mpi, optimal_mpi;
extern const method_kind copy_bound, stream_bound;

#endif
