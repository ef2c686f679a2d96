/* Sample routing: which rank computes which sample, so that all ranks compute as much.
 *
 * Items. An item moves as a whole: a sample, an image, or all images of one sample. It has up to
 * LIERNE_MAX_COSTS costs, which say how long it takes to compute, and rows, which travel. Items are
 * numbered over all ranks: those of rank 0 in its order, then those of rank 1, and so on. The rank
 * that has an item at first is its home.
 *
 * An assignment gives each item a rank. The load of a rank is the sum of the costs of its items.
 * Caps bound items and rows of a rank, and are never exceeded. An assignment depends on its input
 * alone and is computed in integers, so every rank that knows all costs computes the same one, for
 * itself. Ties are decided by the number of an item or a rank, the lower one first.
 *
 * The lower bound LB of the highest load is the largest of: the sum of all costs over the number of
 * ranks, rounded up; the highest cost; for each k, the sum of k + 1 costs that end with the one of
 * place k * nranks in descending order, because some rank has k + 1 of these items; and the highest
 * cost with the min_items - 1 lowest ones. The threshold is LB + LB * tolerance / 1024.
 *
 * Moving. An item is a segment of a packed axis, and an assignment is the owner of a packing
 * (lierne/packing.h): in a buffer, the items of a rank follow one another by ascending number. A
 * redistribution from the layout whose owner is the home to the one whose owner is the assignment
 * dispatches the rows, one from there takes results home, or straight to another assignment; rows
 * of results may be other numbers. Every row has one place on either side, so the adjoint is the
 * way back, and nothing is summed. */
#ifndef LIERNE_SAMPLES_H
#define LIERNE_SAMPLES_H

#include "lierne/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LIERNE_MAX_COSTS         4
#define LIERNE_DEFAULT_TOLERANCE 20 /* of 1024: 1.95 % */

/* Items. Set size to sizeof(lierne_items) and the rest to zero first. Nothing is kept of it. */
typedef struct lierne_items {
    size_t size;
    int64_t nitems; /* at least 0 */
    int ncosts;     /* of each item, 1 to LIERNE_MAX_COSTS */
    const int64_t
        *cost; /* [nitems * ncosts], item after item; each at least 0. NULL without items */
    /* Per segment, a run of rows inside an item (an image of several), item after item; each at
     * least 0. An item has fewer than 2^31 rows. NULL: the first cost of each item is its rows, and
     * segments is NULL */
    const int64_t *rows;
    const int32_t *segments; /* nitems numbers of segments, each at least 0. NULL: 1 each */
} lierne_items;

typedef enum lierne_balance_mode {
    /* Items stay at home but those that must leave: while a rank has more than the threshold, the
     * change (an item moves, or two are exchanged) that takes most of its load for the fewest rows.
     * Its highest load is at most the threshold, or that of LPT where LPT's is higher. */
    LIERNE_BALANCE_SHED = 0,
    /* Longest processing time first: items by descending cost, each to the rank of the lowest load
     * (Graham 1969; VeOmni's encoder_data_balance gives the same, item by item). */
    LIERNE_BALANCE_LPT = 1,
    /* Largest differencing (Karmarkar and Karp 1982), as verl's seqlen_balancing has it. Takes no
     * caps but equal_items. Time grows with items times ranks. */
    LIERNE_BALANCE_KK = 2,
    /* Items in their order, cut into a run for each rank, so that the highest load is least. */
    LIERNE_BALANCE_CONTIGUOUS = 3,
    /* The caller's, whose caps are checked. */
    LIERNE_BALANCE_CALLER = 4
} lierne_balance_mode;

/* How one assignment is made. Begin with LIERNE_BALANCE_SPEC_INIT. */
typedef struct lierne_balance_spec {
    size_t size;
    lierne_balance_mode mode;
    int cost;          /* which of the costs is balanced, 0 to ncosts - 1 */
    int tolerance;     /* of SHED, in 1/1024 of the lower bound: 0 to 1024 */
    int64_t max_items; /* of a rank; 0: no cap. All caps are at least 0 */
    int64_t max_rows;  /* of a rank; 0: no cap */
    int64_t min_items; /* of a rank; CONTIGUOUS takes 0 and 1 */
    int equal_items;   /* not 0: each rank has nitems / nranks items, rounded down or up; then
                          min_items and max_items are 0 */
    /* nranks numbers of nodes, at least 0: SHED then looks first at ranks of the same node, and the
     * report says how many rows change nodes. NULL: all ranks are on one node */
    const int *nodes;
    const int32_t *assignment; /* CALLER: nitems ranks. NULL for the other modes */
} lierne_balance_spec;

#define LIERNE_BALANCE_SPEC_INIT                                                                   \
    { .size = sizeof(lierne_balance_spec), .tolerance = LIERNE_DEFAULT_TOLERANCE }

typedef struct lierne_assignment lierne_assignment;

/* Assigns the items of all ranks. counts: nranks numbers of items, how many have each rank as their
 * home; their sum is nitems. nranks: 1 to LIERNE_MAX_RANKS (lierne/grid.h). Destroy the result with
 * lierne_assignment_destroy; *out is NULL on failure. Pure: not collective, without a context, and
 * for any number of threads at once. Legal: no items, ranks without items, costs and rows of 0.
 * Errors, in this order: INVALID (NULL; size; a field of spec or items out of its range, both
 * equal_items and another number of items; KK with max_items, max_rows or min_items; counts that
 * are not those of the items; an entry of spec->assignment that is no rank: names the item),
 * COUNT_RANGE (a cost, rows or segments below 0; an item of 2^31 rows or more: names the item and
 * its home), OVERFLOW (the costs sum up to more than 2^60), INFEASIBLE (no assignment keeps the
 * caps, or none was found that does: names the item, its home and the cap), UNSUPPORTED (CONTIGUOUS
 * with min_items above 1), NO_MEMORY. */
LIERNE_API lierne_status lierne_assignment_create(lierne_assignment **out,
                                                  const lierne_items *items, const int64_t *counts,
                                                  int nranks, const lierne_balance_spec *spec);

/* NULL is allowed. */
LIERNE_API void lierne_assignment_destroy(lierne_assignment *assignment);

/* The rank of each item, and the load of each rank; the assignment owns them. NULL for NULL. */
LIERNE_API const int32_t *lierne_assignment_get_ranks(const lierne_assignment *assignment);
LIERNE_API const int64_t *lierne_assignment_get_loads(const lierne_assignment *assignment);

/* What an assignment balances and moves, before anything is sent. Set size first. Bytes moved are
 * moved_rows times the bytes of a row. */
typedef struct lierne_assignment_report {
    size_t size;
    int64_t lower_bound; /* LB */
    int64_t threshold;
    int64_t max_load;    /* the highest */
    int64_t moved_items; /* items whose rank is not their home */
    int64_t moved_rows;
    int64_t node_rows; /* of moved_rows, those that change nodes */
    int64_t messages;  /* ordered pairs of ranks with rows to move */
    int most_peers;    /* the most ranks to which one rank sends rows */
    /* SHED: what found it. 1: fewest rows first; 2: largest steps first, where 1 ended above the
     * threshold; 3 and 4: the same up to LPT's highest load; 5: LPT's assignment; 6: only the caps
     * were kept, because LPT found no assignment. 0: another mode */
    int step;
} lierne_assignment_report;

/* Errors: INVALID (NULL, size). */
LIERNE_API lierne_status lierne_assignment_get_report(lierne_assignment_report *report,
                                                      const lierne_assignment *assignment);

#ifdef __cplusplus
}
#endif
#endif
