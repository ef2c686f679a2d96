/* lierne run: a bridge on real ranks. */
#ifndef LIERNE_TOOL_RUN_H
#define LIERNE_TOOL_RUN_H

#include "tool/bridge.h"
#include "tool/verify.h"

#define RUN_ALGORITHMS 3 /* numbers are those of tool_algorithm */

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
    int rank;
    int ranks;
    int rounds;
    lierne_context *context;
    verify_rank buffers;
    run_method methods[RUN_ALGORITHMS];
} run_state;

/* The worst exit status of all ranks; -1 is the best. Collective, as all below. */
int run_worst(int status);
/* Whether all ranks succeeded. If not, the lowest rank that failed prints the library's message. */
bool run_all_ok(const run_state *run, lierne_status status);

/* Executes every planned direction once and checks it. Returns -1, or an exit status. */
int run_verify(run_state *run);
/* Times all methods, interleaved. Returns likewise. */
int run_measure(run_state *run);

bool run_is_right(const run_state *run);
void run_print_text(const run_state *run);
void run_print_json(const run_state *run);

#endif
