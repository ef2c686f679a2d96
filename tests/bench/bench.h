/* What the files of the bridge benchmark share.
 *
 * A workload is one bridge with its buffers on this rank; a method is one way of executing it.
 * Elements are integers from 1 to 199, exact in every type and whichever way they are added. */
#ifndef TESTS_BENCH_H
#define TESTS_BENCH_H

#include "mpi/common.h"

enum { FORWARD, ADJOINT, BOTH };

/* Samples of a data lane and the cp coordinate that owns rows, or -1: every row. */
typedef struct share {
    int64_t first; /* sample */
    int64_t samples;
    int cp;
} share;

typedef struct workload {
    const char *kind; /* "a fan-in", ... */
    const char *load; /* "large f32", ... */
    mesh src, dst;
    lierne_dtype dtype;
    size_t size;        /* of an element */
    int axis;           /* of the batch: 0 is [b, s, h], 1 is [s, b, h] */
    int64_t lane, s, h; /* samples of a lane of the side with more lanes, sequence, hidden */
    bool disjoint;      /* meshes without a common rank: nothing is written by hand for them */
    bool fan_in;
    int scale;
    int cp;
    share source, target; /* this rank's samples on either side; cp is -1 */
    int target_cp;
    size_t bytes[2][2]; /* of the input and of the output, per direction */
    char *in[2];
    char *out[2];
} workload;

typedef struct method method;
typedef struct method_kind {
    const char *name;
    /* Returns NULL if the method does not exist for the workload. Collective. */
    method *(*open)(const workload *w);
    void (*close)(method *m);
} method_kind;

struct method {
    const method_kind *kind;
    const workload *w;
    bool (*run)(method *m, int direction);
    const char *result[2]; /* where the outputs are: a view of the input, or a buffer */
    bool checked;          /* whether there are outputs to compare */
    bool agrees;
};

/* Fills in what follows from the first fields, and the buffers. */
void workload_open(workload *w);
void workload_close(workload *w);
/* Writes every cache line of a direction's input again, with what is in it. */
void workload_rewrite(const workload *w, int direction);
/* Whether result is what the direction must give. */
bool workload_right(const workload *w, int direction, const char *result);
/* "tp2 cp1 dp4 -> ..." in a static buffer. */
const char *workload_text(const workload *w);

/* Memory that ends the program when there is none, aligned to a page and touched. */
char *take(size_t bytes);

#define METHODS 8
extern const method_kind lierne_direct, lierne_partial, lierne_collective, lierne_leader;
extern const method_kind naive_mpi, optimal_mpi;
extern const method_kind copy_bound, stream_bound;

typedef struct times {
    double low, median, high; /* quartiles, in seconds */
} times;

typedef struct outcome {
    const method_kind *kind;
    bool agrees;
    times t[3]; /* forward, adjoint, both */
} outcome;

/* Compares the outputs of all methods, then times those that agree, in random order, `rounds`
 * times. Returns the number of results. dirty: see workload_rewrite. rounds 0 compares only. */
int measure(workload *w, bool dirty, int rounds, outcome *results);

#endif
