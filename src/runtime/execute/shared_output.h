/* The output of an execution that the plan owns: one for all ranks of a node that have equal
 * outputs, where they can share memory, else the rank's own. */
#ifndef LIERNE_SHARED_OUTPUT_H
#define LIERNE_SHARED_OUTPUT_H

#include "runtime/context/context.h"

typedef struct lierne_shared_output lierne_shared_output;

/* Whether ranks of a node can share memory in this context: the same on every rank. */
bool lierne_context_shares(const lierne_context *context);

/* bytes: of the output. ranks: those that share it, ascending, this one among them; they are
 * copied. Where they are several, lierne_shared_outputs_connect must follow. Errors: NO_MEMORY. */
lierne_status lierne_shared_output_create(lierne_shared_output **out, lierne_context *context,
                                          size_t bytes, const int *ranks, size_t n);
/* Collective, waits for all ranks. Maps on every rank what the lowest rank of each list created;
 * outputs may be NULL. On any rank's failure every rank gets the same error. */
lierne_status lierne_shared_outputs_connect(lierne_context *context,
                                            lierne_shared_output *const *outputs, size_t n);
/* The memory of the n-th call; that of the call after it is another where several ranks share it.
 * NULL: no bytes. */
void *lierne_shared_output_get(const lierne_shared_output *o, size_t call);
/* Whether n bytes overlap with it. */
bool lierne_shared_output_overlaps(const lierne_shared_output *o, const void *data, size_t n);
/* quiet: as of lierne_lifetime_find. NULL is allowed. */
void lierne_shared_output_destroy(lierne_shared_output *o, bool quiet);

#endif
