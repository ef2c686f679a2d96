/* The collective benchmark: a workload is one collective over all ranks, of f32. Values are small
 * integers, exact in every order of addition. */
#ifndef TESTS_BENCH_COLLECTIVE_H
#define TESTS_BENCH_COLLECTIVE_H

#include "bench/bench.h"

typedef enum operation { GATHER, REDUCE, EXCHANGE, OPERATIONS } operation;

typedef struct collective_work {
    operation kind;
    size_t bytes; /* of a rank's block; of an all-reduce: of the whole */
    int calls;    /* that are timed together: clocks and barriers are as long as a small one */
    size_t sizes[2][2]; /* bytes of the input and of the output, per direction */
    char *in[2];
    char *out[2];
} collective_work;

/* Calls of a block that are timed together, so that a sample takes at least about 30 us. */
#define CALLS(bytes) ((bytes) < 16 << 10 ? 32 : (bytes) < 256 << 10 ? 8 : 1)

void collective_open(collective_work *w);
void collective_close(collective_work *w);
/* As struct bench has them. */
void collective_reset(const void *workload, int direction);
bool collective_right(const method *m, int direction);
void collective_rewrite(const void *workload, int direction);
const char *collective_text(const void *workload);

/* In windows, by the algorithm that lierne chooses and by either; from ordinary memory; over MPI.
 */
extern const method_kind window_collective, window_one_shot, window_two_shot;
extern const method_kind shm_collective, mpi_collective;
/* MPI's collectives, and the same copies and sums from this rank's own memory, without waiting. */
extern const method_kind by_mpi, collective_bound;

#endif
