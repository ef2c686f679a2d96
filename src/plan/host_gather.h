/* Gathering blocks that are in host memory, whatever memory the plans of the context move: of one
 * size on all ranks, or each of its own. */
#ifndef LIERNE_HOST_GATHER_H
#define LIERNE_HOST_GATHER_H

#include "plan/plan.h"
#include "runtime/control/control.h"

typedef struct lierne_host_gather {
    lierne_context *context;
    lierne_plan *plan; /* or NULL: control messages carry the blocks */
    size_t words;      /* of a block, of 64 bits; the most of one */
    size_t all;        /* that there is space for */
    size_t nranks;
    lierne_control_message *messages;
    int64_t *own; /* this rank's block */
    int64_t *blocks;
} lierne_host_gather;

/* Allocates the blocks. To be closed also on failure. */
lierne_status lierne_host_gather_open(lierne_host_gather *g, lierne_context *context, size_t words);
/* Collective, once all ranks have opened theirs: what is planned. name: of a plan, or NULL. */
lierne_status lierne_host_gather_plan(lierne_host_gather *g, const char *name);
/* Collective: all blocks become those of the ranks, in their order. Waits for all ranks; allocates
 * nothing where there is a plan. An error kills the context, so that no rank goes on alone. */
lierne_status lierne_host_gather_run(lierne_host_gather *g);
/* Before blocks of own sizes: memory for one of `words`, and for `all` words of all ranks; what it
 * has is lost. */
lierne_status lierne_host_gather_grow(lierne_host_gather *g, size_t words, size_t all);
/* The same where this rank's block has so many words, at most g->words: without a plan. The blocks
 * follow one another. */
lierne_status lierne_host_gather_exchange(lierne_host_gather *g, size_t words);
/* Errors: BUSY. */
lierne_status lierne_host_gather_close(lierne_host_gather *g);

#endif
