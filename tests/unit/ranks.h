/* Runs a function on every rank of a simulated world, each in a thread of its own: for calls that
 * wait for all ranks. Include after criterion. */
#ifndef RANKS_H
#define RANKS_H

#include "lierne/sim.h"

/* work is called once per rank; shared is the same pointer on all of them. It may not use
 * cr_assert, which ends a test from its own thread only: it notes what it finds in shared. When all
 * have returned the world is freed, which fails the test if a plan is still alive, and so does
 * memory that was not given back. spec may be NULL. Where the environment variable
 * LIERNE_TEST_CONTEXTS is "oob" or "node", the ranks have contexts over functions or over sockets
 * instead (oob_ranks.h), unless spec has members. */
void ranks_run(int world, const lierne_context_spec *spec,
               void (*work)(lierne_context *context, void *shared), void *shared);

#endif
