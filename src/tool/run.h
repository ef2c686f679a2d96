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

typedef struct run_method {
    lierne_plan *plan;     /* NULL: not run */
    char rejection[256];   /* why, if it was not ruled out by --algorithm */
    verify_count count[2]; /* over all ranks */
    int64_t lhs;
    int64_t rhs;
    int64_t max_rank_bytes[2]; /* the most that one rank receives */
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
    lierne_context *context;
    verify_rank buffers;
    run_method methods[RUN_ALGORITHMS];
} run_state;

/* The command on one of the ranks: returns its exit status. argv[0] is "lierne run". */
int run_main(int argc, char **argv, run_ranks *together);

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

bool run_is_right(const run_state *run);
void run_print_text(const run_state *run);
void run_print_json(const run_state *run);

#endif
