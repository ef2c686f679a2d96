/* Ranks of a node as threads of one process, with contexts over shared memory and sockets, and
 * checks that all of them count. */
#ifndef LIERNE_TESTS_NODE_RANKS_H
#define LIERNE_TESTS_NODE_RANKS_H

#include "lierne.h"

#include <stdbool.h>

enum { RANKS = 4 }; /* of most tests */

/* Calls rank once for each of RANKS, or n, ranks, each in a thread of its own, with the number of
 * the rank as argument. Returns when all have returned. */
void run_ranks(void *(*rank)(void *));
void run_n_ranks(int n, void *(*rank)(void *));
/* Waits until all threads of the ranks that run have called it. */
void meet_ranks(void);

/* Counts a check, and prints the message of one that fails. Any thread. */
void check(bool good, const char *what);
int failed_checks(void);
/* Prints "N passed, N failed"; returns the exit status of the program. */
int print_checks(void);

/* A context of one of world ranks, which all give the same name. Names are of this process and its
 * later children. */
lierne_context *open_rank(const char *name, int rank, int world, const lierne_context_spec *spec);
lierne_context *open_timed(const char *name, int rank, int world, double timeout);
/* Waits until the status of a context is an error, which is returned; at most 20 s. */
lierne_status await_failure(lierne_context *context);

/* Runs processes 0 to n - 1, which begin as children of this one, and checks that each of them ends
 * with status 0, which is what the function returns. */
void run_processes(int n, int (*process)(int rank));

/* Plans nghosts rows of 3 float16 each, which owners send directly: row i * 13 mod nowned of rank
 * i * 7 mod RANKS at i. */
lierne_status plan_rows(lierne_plan **plan, lierne_context *context, int nowned, int nghosts);

#endif
