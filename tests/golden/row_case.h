/* Rows that ranks exchange: lierne's buffers, what a plan of rows must do with them, and the
 * expected results by the definition alone. */
#ifndef LIERNE_TESTS_GOLDEN_ROW_CASE_H
#define LIERNE_TESTS_GOLDEN_ROW_CASE_H

#include "golden.h"
#include "lierne/sim.h"

/* A dtype, and rows of this width, stride elements apart. */
typedef struct golden_type {
    lierne_dtype dtype;
    int64_t width;
    int64_t stride;
} golden_type;

/* Element c of row i of rank r, exact in every dtype that it is used with. */
typedef double golden_value(int rank, int64_t row, int64_t column);
/* The closed forms of the files: h, an upstream gradient; q, one that no dtype holds exactly. tiny:
 * sums of it are exact in 16 bits too. */
golden_value golden_h, golden_q, golden_tiny;
/* f, by global number of the row. */
double golden_f(int64_t row, int64_t column);

/* What a plan must do on one rank: forward makes fx of x, the adjoint fty of y, and F* F x is ffx.
 * Rows of `width` values. before: what the adjoint's out holds when it accumulates, or NULL. most
 * and least: what lierne_plan_reduce makes of y where out holds x. */
typedef struct golden_row_case {
    golden_type type;
    bool whole; /* in and out hold owned rows and ghosts, and may be the same */
    int64_t nx, ny;
    double *x, *fx, *y, *fty, *ffx, *most, *least, *before;
} golden_row_case;
/* All values are zero, before is NULL. nx: rows of x, ny: of y. Ends the program without memory. */
golden_row_case golden_row_case_new(golden_type type, bool whole, int64_t nx, int64_t ny);
void golden_row_case_free(golden_row_case *row_case);
/* Executes the plan, blocking and with begin and end, in place too where it is whole. Collective.
 */
void golden_row_case_expect(golden_case *c, const char *what, lierne_plan *plan,
                            const golden_row_case *row_case);
/* <F x, y> and <x, F* y> of what the plan makes of x and y. Collective. */
void golden_row_case_dots(golden_case *c, lierne_plan *plan, const golden_row_case *row_case,
                          double *dots);
/* lierne_plan_reduce, both ways. */
void golden_row_case_reduce(golden_case *c, lierne_plan *plan, const golden_row_case *row_case);
/* Plans made of a plan: transposed once and twice, written and read, followed by its transpose. */
void golden_row_case_algebra(golden_case *c, lierne_context *context, const lierne_plan *plan,
                             const golden_row_case *row_case);

/* Which row of which rank each ghost is a copy of. row -1: of none. */
typedef struct golden_forest {
    int world;
    int64_t *nowned;
    int64_t *nghosts;
    int32_t **rank; /* nghosts[r] each */
    int64_t **row;
} golden_forest;
/* nowned and nghosts are to be filled in, then the roots made. Ends the program without memory. */
golden_forest golden_forest_new(int world);
void golden_forest_roots(golden_forest *forest);
void golden_forest_free(golden_forest *forest);
/* Adds to sums, rows of a rank, the values of all ghosts of each; value is asked for the ghosts'
 * rows counted from 0, or from nowned where arrays are whole. */
void golden_forest_sum(const golden_forest *forest, int rank, bool whole, int64_t width,
                       golden_value *value, double *sums);
/* The same with the largest (sign 1) or smallest (-1) of what rows hold and their ghosts. */
void golden_forest_extreme(const golden_forest *forest, int rank, bool whole, int64_t width,
                           golden_value *value, int sign, double *rows);
/* Ghosts of a row. */
int64_t golden_forest_copies(const golden_forest *forest, int rank, int64_t row);
/* Rows that any schedule must bring to a rank: distinct ones of other ranks; and from how many. */
int64_t golden_forest_distinct(const golden_forest *forest, int rank, int64_t *nranks);

/* A world, and of each of its ranks that is in this process what it plans and finds. Ranks are
 * threads (threads.c) or, under mpirun, processes (tests/mpi/golden.c). */
typedef struct golden_world {
    lierne_sim *sim;                    /* NULL where ranks are processes */
    struct test_transports *transports; /* this and the next two: NULL unless asked for */
    struct test_streams *streams;
    int n;
    int first, here;    /* ranks first to first + here - 1 are in this process */
    golden_case *cases; /* one per rank, for what it finds */
    lierne_plan **plans;
    double (*dots)[2]; /* of each rank: <F x, y> and <x, F* y> */
} golden_world;
/* Failures of a new world, and of ending it, are c's. */
golden_world golden_world_new(golden_case *c, int n);
/* Calls work for each rank. Returns whether every rank has planned. */
bool golden_world_run(golden_world *world, void (*work)(lierne_context *context, void *shared),
                      void *shared);
/* Frees the plans and the world; what a rank found is c's, in every process, what in front. */
void golden_world_end(golden_case *c, golden_world *world, const char *what);
/* The result of planning on a rank that must be rejected: the status whose name the case expects,
 * and a message with the rank that is to blame, or with some rank if blamed is -1. */
void golden_expect_rejection(golden_case *c, lierne_status status, const lierne_plan *plan,
                             int blamed);
/* The dots of all ranks are the same two ways. */
void golden_world_expect_adjoint(golden_case *c, const golden_world *world);
/* lierne_plan_check of the plans of this process; where it has all of them, their routes do what
 * they do. */
void golden_world_check(golden_case *c, const golden_world *world);
/* Sums of a direction's reports over the ranks, and the most stages; algorithm as this process's
 * ranks have it, all the same. */
lierne_report golden_world_report(golden_case *c, const golden_world *world,
                                  lierne_direction direction);

/* What differs between ranks that are threads and ranks that are processes. Of work, and of the
 * last three, which bring together what processes have, all ranks of the world take part. */
lierne_status golden_ranks_start(golden_world *world);
lierne_status golden_ranks_end(golden_world *world);
void golden_ranks_run(const golden_world *world,
                      void (*work)(lierne_context *context, void *shared), void *shared);
void golden_ranks_sum(double *values, int n); /* exact below 2^53 */
double golden_ranks_most(double value);
void golden_ranks_agree(golden_case *c); /* the failure of the lowest rank that has one */

#endif
