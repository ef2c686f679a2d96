/* lierne run: a bridge on real ranks. */
#ifndef LIERNE_TOOL_RUN_H
#define LIERNE_TOOL_RUN_H

#include "tool/bridge.h"
#include "tool/verify.h"

#define RUN_ALGORITHMS 3 /* numbers are those of tool_algorithm */

/* The ranks that run together, under mpirun or started by lierne run itself. */
#define RUN_MOST_BYTES 256 /* of one gather */
typedef struct run_ranks {
    int rank;
    int n;
    bool launched; /* by lierne run itself */
    /* Gathers bytes of `mine` from all ranks into all, in their order. Collective, waits for all.
     */
    void (*gather)(void *all, const void *mine, size_t bytes, void *user);
    lierne_status (*create)(lierne_context **out, const lierne_context_spec *spec, void *user);
    void *user;
    void *all;    /* memory for a gather */
    void *shared; /* the launcher's */
} run_ranks;

typedef struct run_times {
    double median; /* seconds */
    double low;    /* quartiles */
    double high;
} run_times;

/* The sizes of the tensor that are run: from least to most bytes, each `factor` times the one
 * before, rounded to whole units. Without the options: the file's size. */
typedef struct run_sweep {
    bool given;
    int64_t least, most;
    int factor;
    int axis;     /* that is made longer */
    int64_t unit; /* bytes of one of its elements with all other axes */
    int64_t own;  /* bytes of the file's tensor */
    int64_t shape[LIERNE_MAX_AXES];
    int64_t at;    /* the size that was asked for last; 0: none yet */
    int64_t bytes; /* of the tensor with this shape */
} run_sweep;

typedef struct run_method {
    lierne_plan *plan;     /* NULL: not run */
    char rejection[256];   /* why, if it was not ruled out by --algorithm */
    verify_count count[2]; /* over all ranks */
    int64_t lhs;
    int64_t rhs;
    int64_t max_rank_bytes[2]; /* the most that one rank receives */
    int64_t busiest_bytes[2];  /* the most that one rank receives or sends */
    double *seconds[2];        /* per round */
    run_times times[2];
} run_method;

typedef struct run_state {
    tool_bridge bridge;
    char **argv;
    run_ranks *together;
    int rank;
    int ranks;
    int rounds;
    const char *trace; /* file for a trace, or NULL */
    int warmup;
    run_sweep sweep;
    int format; /* of RUN_TEXT and so on */
    int sizes;  /* printed so far */
    lierne_context *context;
    verify_rank buffers;
    run_method methods[RUN_ALGORITHMS];
} run_state;

enum { RUN_TEXT = 0, RUN_JSON = 1, RUN_CSV = 2 };

/* The command on one of the ranks: returns its exit status. argv[0] is "lierne run". */
int run_main(int argc, char **argv, run_ranks *together);

/* Its help, or the list of its options, which need no ranks. */
int run_help(int argc, char **argv);

/* The worst exit status of all ranks; -1 is the best. Collective, as all below. */
int run_worst(const run_state *run, int status);
/* Whether all ranks succeeded. If not, the lowest rank that failed prints the library's message. */
bool run_all_ok(const run_state *run, lierne_status status);
/* Replaces n numbers, at most 8, by their sums or their maxima over the ranks. */
void run_sum(const run_state *run, int64_t *numbers, int n);
void run_max(const run_state *run, double *numbers, int n);

/* Executes every planned direction once and checks it. Returns -1, or an exit status. */
int run_verify(run_state *run);
/* Times all methods, interleaved. Returns likewise. */
int run_measure(run_state *run);

/* Writes what the recorders of all ranks have to run->trace, if it is set. Returns likewise. */
int run_write_trace(const run_state *run);
/* The options, NULL where they are not given. Returns -1, or TOOL_USAGE. */
int run_sweep_parse(char **argv, const char *least, const char *most, const char *factor,
                    run_sweep *sweep);
/* Begins with this spec, whose shape becomes the sweep's. Returns likewise. */
int run_sweep_open(run_sweep *sweep, char **argv, lierne_bridge_spec *spec);
/* Sets the next size. False: there is none. */
bool run_sweep_next(run_sweep *sweep);

bool run_is_right(const run_state *run);
/* What rank 0 prints: before the first size, of each size, and after the last. */
void run_print_begin(const run_state *run);
void run_print_size(const run_state *run);
void run_print_end(const run_state *run);

#endif
