/* Threads for the ranks of a simulated world, in which calls that wait for all ranks need one each.
 */
#ifndef LIERNE_TESTS_RANK_THREADS_H
#define LIERNE_TESTS_RANK_THREADS_H

#include "lierne/sim.h"

/* Calls work once per rank, each in a thread of its own; shared is the same pointer in all of them.
 * Returns when all have returned. A thread that cannot be started ends the program: the others
 * would wait for it. */
void rank_threads(lierne_sim *sim, int world, void (*work)(lierne_context *context, void *shared),
                  void *shared);

#endif
