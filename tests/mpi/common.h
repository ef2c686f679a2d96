/* For the programs that run under mpirun: checks counted over all ranks, and a watchdog. */
#ifndef TESTS_MPI_COMMON_H
#define TESTS_MPI_COMMON_H

#include "base/base.h"
#include "bridge_plan.h"
#include "mpi/contexts.h"

#include <mpi.h>

extern int test_rank;
extern int test_world;

/* Seconds. On a busy machine, a wait that must not reach its deadline has PATIENT, and a call that
 * must return at once may take SLACK. */
#define PATIENT 60
#define SLACK   5

/* Starts MPI. Ends the program as failed if no check is made for five minutes: that is a hang,
 * however slow the machine. */
void test_start(int *argc, char ***argv);
/* The same with MPI_THREAD_MULTIPLE; returns what MPI provides. */
int test_start_threads(int *argc, char ***argv);
/* Sums the counts of all ranks; rank 0 prints "N passed, N failed". Returns the exit status. */
int test_finish(void);
/* The same for the ranks of comm only, when others are dead. Ends the process without MPI_Finalize,
 * which would wait for them. */
void test_leave(MPI_Comm comm);

/* A program that works with one context, which leaves no memory. Returns the exit status. */
int test_main(int *argc, char ***argv, void (*run)(lierne_context *context));
/* A context with this timeout. Collective. */
lierne_context *test_context(double timeout);

/* A plan of n rows of rank 0, of one i64 each, of which every other rank has ghosts. Collective. */
lierne_status test_plan_rows_of_0(lierne_plan **plan, lierne_context *context, int n,
                                  int max_inflight);

/* Whether ranks of one node use shared memory, as far as LIERNE_TRANSPORTS says. */
bool test_over_shm(void);

/* Gives a context a shorter timeout, after a start that a busy machine may have slowed down. */
void test_hurry(lierne_context *context, double seconds);

/* Over MPI, cuts messages into pieces of at most `bytes` from now on, the same on every rank. */
void test_cut_messages(lierne_context *context, size_t bytes);
/* How control messages are exchanged over MPI from now on: in rounds as many ranks do, densely as
 * few ranks do, or densely on boards, which is what there is at first on one node. Collective. */
typedef enum { TEST_SPARSELY, TEST_DENSELY, TEST_ON_BOARDS, TEST_EXCHANGES } test_exchange;
void test_exchange_by(lierne_context *context, test_exchange way);

/* Memory for in and out of calls that fail: MPI may use them until MPI_Finalize, so test_finish
 * frees them after it. */
void *test_buffer(size_t bytes);

/* Counts a check; prints the message of one that fails. */
#define CHECK(ok, ...) test_check((ok), __FILE__, __LINE__, __VA_ARGS__)
#define CHECK_OK(call) CHECK((call) == LIERNE_OK, "%s: %s", #call, lierne_last_error())
bool test_check(bool ok, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Checks that status is the one wanted, on every rank with the same message. Collective. */
void test_same_error(lierne_status status, lierne_status wanted, const char *what);

#endif
