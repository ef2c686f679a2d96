/* What the benchmarks share: methods that do the same work are compared, then timed interleaved.
 *
 * A method is one way of doing a workload's work in a direction. All that these files know of a
 * workload is in `bench`. */
#ifndef TESTS_BENCH_H
#define TESTS_BENCH_H

#include "mpi/common.h"

enum { FORWARD, ADJOINT, BOTH };

typedef struct method method;
typedef struct method_kind {
    const char *name;
    /* Returns NULL if the method does not exist for the workload. Collective. */
    method *(*open)(const void *workload);
    void (*close)(method *m);
} method_kind;

struct method {
    const method_kind *kind;
    const void *workload;
    bool (*run)(method *m, int direction);
    /* Untimed, may be NULL: before each run; after one that is judged, before it is. */
    void (*before)(method *m, int direction);
    void (*after)(method *m, int direction);
    const char *result[2]; /* where the outputs are: a view of the input, or a buffer */
    bool checked;          /* whether there are outputs to compare */
    bool agrees;
    bool owns_inputs;
    bool dirty; /* inputs are rewritten before each run; by `before` where the method owns them */
};

#define METHODS 13
typedef struct bench {
    const void *workload;
    const method_kind *const *kinds;
    int nkinds; /* at most METHODS */
    /* Makes a direction's buffers ready for a run that is judged. */
    void (*reset)(const void *workload, int direction);
    bool (*right)(const method *m, int direction);
    /* Writes every cache line of a direction's input again, with what is in it. */
    void (*rewrite)(const void *workload, int direction);
    const char *(*text)(const void *workload); /* in a static buffer */
} bench;

typedef struct times {
    double low, median, high; /* quartiles, in seconds */
} times;

typedef struct outcome {
    const method_kind *kind;
    bool agrees;
    times t[3]; /* forward, adjoint, both */
} outcome;

/* Compares the outputs of all methods, then times those that agree, in random order, `rounds`
 * times. Returns the number of results. dirty: inputs are rewritten before each run. rounds 0
 * compares only. */
int measure(const bench *b, bool dirty, int rounds, outcome *results);

/* Memory that ends the program when there is none, aligned to a page and touched. */
char *take(size_t bytes);
/* Writes every cache line of memory again, with what is in it. */
void rewrite(char *memory, size_t bytes);

/* A column of ratios: the time of a kind, the shorter one of two, as a multiple of the reference's.
 */
typedef struct column {
    const char *name;
    const method_kind *kinds[2];
} column;

#define COLUMNS 7
typedef struct line {
    char title[128];
    double ratios[COLUMNS]; /* 0: not run */
} line;

/* What was asked for, and the tables of one family of workloads. */
typedef struct tables {
    bool quick;
    bool csv;     /* one row per method, no tables */
    char **texts; /* that titles must contain */
    int ntexts;
    const char *unit;
    double per_second;
    const char *const *headings; /* of FORWARD, ADJOINT, BOTH */
    const char *ratios;          /* heading of the ratios */
    const method_kind *reference;
    const char *over; /* heading of multiples of its time */
    column columns[COLUMNS];
    line lines[128];
    int nlines;
} tables;

/* Reads "[quick|--csv] [text...]". */
void tables_ask(tables *t, int argc, char **argv);
bool tables_want(const tables *t, const char *title);
void tables_print(const tables *t, const char *title, const outcome *results, int n, int rounds);
/* Keeps the ratios of FORWARD, ADJOINT or BOTH for tables_print_ratios. */
void tables_keep(tables *t, const char *title, const outcome *results, int n, int direction);
void tables_print_ratios(const tables *t);
/* The median, in seconds; 0 where the kind did not run or was wrong. */
double tables_time(const outcome *results, int n, const method_kind *kind, int direction);

#endif
