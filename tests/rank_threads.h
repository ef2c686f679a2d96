/* A thread for each rank of a simulated world: calls that wait for all ranks need one each. */
#ifndef LIERNE_TESTS_RANK_THREADS_H
#define LIERNE_TESTS_RANK_THREADS_H

#include "lierne/sim.h"

/* Calls work once per rank, each in a thread of its own, with the same pointer shared. Returns when
 * all have returned. Ends the program if a thread cannot be started, because the others would wait
 * for it. */
void rank_threads(lierne_sim *sim, int world, void (*work)(lierne_context *context, void *shared),
                  void *shared);

#endif
