/* Ranks as threads of this process whose contexts are not simulated: over functions of the caller
 * (lierne/oob.h), made here from a mutex and lists, or over sockets (lierne/node.h). */
#ifndef LIERNE_TESTS_OOB_RANKS_H
#define LIERNE_TESTS_OOB_RANKS_H

#include "lierne/node.h"
#include "lierne/oob.h"

#include <stdbool.h>

/* The functions of a world of n ranks. */
typedef struct oob_world oob_world;
oob_world *oob_world_create(int n);
/* messages: with send and receive. */
lierne_oob_calls oob_world_calls(oob_world *world, int rank, bool messages);
/* From now on, the k-th call of a function on a rank, and all after it, return code. */
void oob_world_fail(oob_world *world, int rank, int k, int code);
/* The allgathers that a rank took part in so far. Called by the rank itself. */
long oob_world_gathers(const oob_world *world, int rank);
/* Whether requests that have not ended can be taken back (at first they can). */
void oob_world_take_back(oob_world *world, bool can);
/* Returns the number of requests and messages that were left. Nothing may be in use any more. */
int oob_world_destroy(oob_world *world);

typedef enum oob_way { OOB_CALLS, OOB_GATHER_ONLY, OOB_NODE, OOB_WAYS } oob_way;

/* A context of a rank. world is not used for OOB_NODE; name distinguishes worlds that exist at
 * once.
 */
lierne_status oob_context(lierne_context **out, oob_way way, oob_world *world, const char *name,
                          int rank, int n, const lierne_context_spec *spec);

/* Calls work once per rank, each in a thread of its own with a context of its own, which is
 * destroyed when work returns. Ends the program if a context cannot be created or destroyed. */
void oob_ranks_run(oob_way way, int n, const lierne_context_spec *spec,
                   void (*work)(lierne_context *context, void *shared), void *shared);

#endif
