/* A thread for each rank of a simulated world: calls that wait for all ranks need one each. */
#ifndef LIERNE_TESTS_RANK_THREADS_H
#define LIERNE_TESTS_RANK_THREADS_H

#include "lierne/sim.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Calls work once per rank, each in a thread of its own, with the same pointer shared. Returns when
 * all have returned. Ends the program if a thread cannot be started, because the others would wait
 * for it. */
void rank_threads(lierne_sim *sim, int world, void (*work)(lierne_context *context, void *shared),
                  void *shared);

/* Checks that failed on any rank: cr_assert ends a test from its own thread only. */
typedef struct rank_faults {
    atomic_int wrong;
    char message[512]; /* of the first: line, condition, lierne_last_error() */
} rank_faults;

/* Notes a check that fails, in the faults of a state that the ranks share. */
#define NOTE(state, ok) rank_note(&(state)->faults, (ok), __LINE__, #ok)
void rank_note(rank_faults *faults, bool ok, int line, const char *condition);

#endif
