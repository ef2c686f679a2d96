/* What `lierne place` finds out about the orders of a grid's dims. */
#ifndef LIERNE_TOOL_ADVISE_H
#define LIERNE_TOOL_ADVISE_H

#include "bridge.h"

/* One order of the dims, and what travels with it, by direction. */
typedef struct advise_order {
    int dims[LIERNE_MAX_DIMS]; /* fastest first, as indices of the dims of today */
    int64_t bytes[2];          /* received from other ranks */
    int64_t between[2];        /* of these, from other nodes */
    bool balanced;             /* the routing, of either direction; else direct */
} advise_order;

typedef struct advice {
    const tool_bridge *bridge;
    lierne_sim *sim; /* for plans */
    bool dst;        /* the grid that is arranged is the destination's */
    const lierne_grid *grid;
    const char *view;
    int ndims;
    const int *nodes;                  /* NULL: the file has none */
    int orders;                        /* that the bridge accepts */
    advise_order today, best, nearest; /* nearest: fewest bytes between nodes */
    int64_t bound;                     /* no order of ranks saves more */
    int *position; /* for each rank of the grid: the index of the rank whose place it takes in the
                      order of that bound; NULL: not looked for */
} advice;

int64_t advise_bytes(const advise_order *order);
int64_t advise_between(const advise_order *order);

/* Counts what travels with the order of `order`. Errors: as lierne_bridge_check, NO_MEMORY. */
lierne_status advise_count(const advice *advice, advise_order *order);
/* Finds the bound, and position, which is to be freed. today has been counted. */
lierne_status advise_bound(advice *advice);

void advise_print_text(const advice *advice);
void advise_print_json(const advice *advice);

#endif
