/* The world of tests of samples: three ranks with at most two items each, and what is wrong on one.
 */
#ifndef SAMPLE_WORLD_H
#define SAMPLE_WORLD_H

#include "lierne.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { WORLD = 3, LOCAL = 2 };

static const lierne_samples_tensor tensor = {LIERNE_SAMPLES_DISPATCH, LIERNE_DTYPE_I64, 2};

static inline lierne_samples_spec usual_spec(void) {
    return (lierne_samples_spec){.size = sizeof(lierne_samples_spec),
                                 .max_local_items = LOCAL,
                                 .ncosts = 1,
                                 .max_rows = 16,
                                 .ntensors = 1,
                                 .tensors = &tensor};
}

/* The arguments of a rank, of which one is spoiled. */
typedef struct arguments {
    int64_t cost[LOCAL + 1], rows[LOCAL + 1];
    int32_t segments[LOCAL + 1], assignment[LOCAL];
    int nodes[WORLD];
    lierne_items items;
    lierne_balance_spec balance, destination;
    bool moves_on;
} arguments;

static inline void usual_arguments(arguments *a, int rank) {
    *a = (arguments){.cost = {4, rank == 0 ? 9 : 1, 1}, .rows = {3, 5, 1}, .segments = {1, 1, 1}};
    a->items = (lierne_items){
        .size = sizeof a->items, .nitems = LOCAL, .ncosts = 1, .cost = a->cost, .rows = a->rows};
    a->balance = a->destination = (lierne_balance_spec)LIERNE_BALANCE_SPEC_INIT;
}

typedef struct outcome {
    int wrong;
    char what[1200];
} outcome;

static inline void note(outcome *o, bool ok, const char *name, const char *text) {
    if (!ok && o->wrong++ == 0) {
        snprintf(o->what, sizeof o->what, "%s: %s", name, text);
    }
}

static inline lierne_status update(lierne_samples *s, const arguments *a) {
    return lierne_samples_update(s, &a->items, &a->balance, a->moves_on ? &a->destination : NULL);
}

/* Item 1 (cost 9, 5 rows) stays, item 0 (cost 4) leaves rank 0, and so on: whatever the assignment,
 * the adjoint brings home what forward took away. */
static inline void expect_old_routing(lierne_samples *s, outcome *o, const char *name) {
    int64_t in[16 * 2], out[16 * 2], back[16 * 2];
    lierne_samples_lists l = {.size = sizeof l};
    lierne_plan *plan;
    for (int i = 0; i < 32; i++) {
        in[i] = 1000 + i;
        out[i] = back[i] = -1;
    }
    note(o, lierne_samples_get_plan(&plan, s, 0) == LIERNE_OK, name, "get_plan");
    note(o, lierne_plan_forward(plan, out, in, NULL) == LIERNE_OK, name, lierne_last_error());
    note(o, lierne_plan_adjoint(plan, back, out, NULL) == LIERNE_OK, name, lierne_last_error());
    note(o, memcmp(back, in, 8 * 2 * sizeof *in) == 0 && back[16] == -1, name, "the old routing");
    note(o,
         lierne_samples_get_lists(&l, s, LIERNE_SAMPLES_HOME) == LIERNE_OK && l.nitems == LOCAL &&
             l.nitems_all == WORLD * LOCAL && l.cu_seqlens[LOCAL] == 8,
         name, "the old lists");
}

#endif
