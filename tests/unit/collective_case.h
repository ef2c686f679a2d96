/* A collective to test, and what it must give by its definition alone: which elements of which in
 * each element of an out takes. Nothing here uses what it tests. */
#ifndef COLLECTIVE_CASE_H
#define COLLECTIVE_CASE_H

#include "lierne.h"

#include <stdbool.h>

enum { COLLECTIVE_RANKS = 9 };

typedef enum collective_kind {
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_REDUCE,
    BROADCAST,
    ALL_TO_ALL,
    BARRIER,
    COLLECTIVE_KINDS
} collective_kind;

typedef struct collective_case {
    collective_kind kind;
    int n;                            /* ranks that take part */
    const int *ranks;                 /* in this order; NULL: 0 to n - 1, all of the world */
    bool even;                        /* by count; else by lists */
    int64_t counts[COLLECTIVE_RANKS]; /* of each rank; the first one is all, where even */
    int64_t pairs[COLLECTIVE_RANKS][COLLECTIVE_RANKS]; /* of an all-to-all: from i to j */
    lierne_dtype dtype;
    lierne_reduction reduction;
    lierne_collective_algorithm algorithm;
    int root;      /* a place */
    int max_peers; /* of an all-to-all */
    bool in_place; /* runs of an all-reduce: out is in */
} collective_case;

/* Fills counts and pairs: of each rank, or of each pair of them, base elements where even, else
 * base or fewer, 0 among them. */
void collective_case_size(collective_case *c, int64_t base);
/* The place of a rank in the list, -1 for one that is not there; the rank at a place. */
int collective_case_place(const collective_case *c, int rank);
int collective_case_rank(const collective_case *c, int place);
/* Plans the case. Collective. */
lierne_status collective_case_plan(lierne_plan **plan, lierne_context *context,
                                   const collective_case *c);
/* Whether planning waits for all ranks; whether the plan has an adjoint. */
bool collective_case_waits(const collective_case *c);
bool collective_case_has_adjoint(const collective_case *c);

/* Elements of a place's in and out, 0 for place -1. */
int64_t collective_case_in(const collective_case *c, int place);
int64_t collective_case_out(const collective_case *c, int place);

/* Element e of a place's input, and of its gradient, which has the size of out: small integers in
 * every dtype, whose results are exact. */
double collective_case_x(const collective_case *c, int place, int64_t e);
double collective_case_y(const collective_case *c, int place, int64_t e);
/* What element e of a place's out, and of the gradient of its in, must be. */
double collective_case_forward(const collective_case *c, int place, int64_t e);
double collective_case_adjoint(const collective_case *c, int place, int64_t e);

/* Executes a direction of this rank's part, or of a rank without part, and compares; *wrong grows
 * by the number of wrong elements. start: begins; call: the blocking call in its place; end: ends
 * and compares. */
typedef struct collective_run {
    const collective_case *c;
    int place;
    lierne_direction direction;
    int64_t nin, nout;
    unsigned char *in, *out;
    lierne_request *request;
} collective_run;
lierne_status collective_run_start(collective_run *run, const collective_case *c, lierne_plan *plan,
                                   int rank, lierne_direction direction);
lierne_status collective_run_call(collective_run *run, const collective_case *c, lierne_plan *plan,
                                  int rank, lierne_direction direction);
/* Frees the buffers. */
lierne_status collective_run_end(collective_run *run, int64_t *wrong);

/* "all_reduce f16 prod, 3 ranks, uneven", in a buffer of the thread. */
const char *collective_case_text(const collective_case *c);

#endif
