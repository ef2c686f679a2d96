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

#include "lierne/plan.h"

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
    /* Per segment: how many rows it has once it was computed, as rows. NULL: as many as before.
     * Only lierne_samples_update reads it. */
    const int64_t *returned_rows;
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
 * with min_items above 1, or with equal_items and two items or more per rank), NO_MEMORY. */
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

/* Samples that are assigned anew in every step, whose costs each rank knows of its own only.
 *
 *     lierne_samples_create(&samples, context, &spec);
 *     lierne_samples_get_plan(&dispatch, samples, 0);
 *     every step:
 *         lierne_samples_update(samples, &items, &balance, NULL);
 *         lierne_samples_get_lists(&lists, samples, LIERNE_SAMPLES_DISPATCHED);
 *         lierne_plan_forward(dispatch, pixels, own_pixels, NULL);
 *
 * A step communicates twice. The update gathers the numbers of all items in blocks of a fixed size;
 * then every rank computes the assignment for itself and knows what it sends and receives. The
 * second communication is the call of the plan. Nothing is planned collectively after create. */
typedef struct lierne_samples lierne_samples;

/* Where the rows of items are. In the buffer of a rank its items follow one another by ascending
 * number, without gaps, and the segments of an item in their order. */
typedef enum lierne_samples_place {
    LIERNE_SAMPLES_HOME = 0,       /* at first: rows */
    LIERNE_SAMPLES_DISPATCHED = 1, /* on the assigned rank: rows */
    LIERNE_SAMPLES_COMPUTED = 2,   /* on the assigned rank: returned rows */
    LIERNE_SAMPLES_RETURNED = 3    /* at the destination: returned rows */
} lierne_samples_place;

/* From where to where a tensor moves. The adjoint moves gradients back. */
typedef enum lierne_samples_way {
    LIERNE_SAMPLES_DISPATCH = 0, /* HOME to DISPATCHED */
    LIERNE_SAMPLES_RETURN = 1,   /* COMPUTED to RETURNED */
    LIERNE_SAMPLES_SEGMENTS = 2  /* HOME to DISPATCHED, with one row per segment: what describes
                                    each, such as the height and width of an image */
} lierne_samples_way;

/* A tensor [rows, width] that moves with the items. */
typedef struct lierne_samples_tensor {
    lierne_samples_way way;
    lierne_dtype dtype;
    int64_t width; /* at least 1 */
} lierne_samples_tensor;

/* Capacities, which are reserved, because memory that other ranks reach cannot grow; the same on
 * all ranks. Set size to sizeof(lierne_samples_spec) and the rest to zero first. */
typedef struct lierne_samples_spec {
    size_t size;
    /* The most items at home on one rank; 0: any number, and updates gather the counts before */
    int64_t max_local_items;
    /* The most segments of these; 0: an item is one segment. 0 where max_local_items is 0: then
     * any number, too */
    int64_t max_local_segments;
    int ncosts;       /* of each item, 1 to LIERNE_MAX_COSTS */
    int caller;       /* not 0: updates may have mode LIERNE_BALANCE_CALLER */
    int64_t max_rows; /* of one rank, HOME and DISPATCHED, at least 1. Give the cap max_rows of an
                         update to stay below it */
    int64_t max_returned_rows; /* of one rank, COMPUTED and RETURNED; 0: max_rows */
    int ntensors;              /* 1 to LIERNE_MAX_SAMPLES_TENSORS */
    const lierne_samples_tensor *tensors;
    int max_inflight; /* requests in flight at once per tensor and direction; 0 means 1 */
    const char *name; /* of its plans (lierne/plan.h, Names); NULL: none */
} lierne_samples_spec;

#define LIERNE_MAX_SAMPLES_TENSORS 16

/* Plans the movement of samples. Collective over the context; rank i of an assignment is the i-th
 * of its ranks, which need not follow one another. No items exist before the first update. Memory
 * is in proportion to the capacities of all ranks together; over shared memory, staging for
 * max_rows is taken at once, in memory that the ranks share. Destroy with lierne_samples_destroy,
 * before the context. If any rank fails, every rank gets the same error, and *out is NULL.
 * Errors: INVALID (NULL, size, a field out of its range); OVERFLOW (all items, segments or bytes of
 * all ranks exceed 2^60); UNSUPPORTED (ranks that only ipc connects, which cannot change the length
 * of messages); MISMATCH (ranks gave different specs); NO_MEMORY; TIMEOUT; PEER_FAILED; TRANSPORT.
 * Thread safety: a context serves one thread at a time; in a simulated world each rank needs a
 * thread, for this and for updates. */
LIERNE_API lierne_status lierne_samples_create(lierne_samples **out, lierne_context *context,
                                               const lierne_samples_spec *spec);

/* Frees samples and their plans; not collective. NULL is allowed. Errors: BUSY (a request of a plan
 * is in flight, or coalesced plans or a run hold a plan; nothing is freed). */
LIERNE_API lierne_status lierne_samples_destroy(lierne_samples *samples);

/* The next step: other items. Collective. items: those of this rank. balance: how they are
 * assigned, and destination: where results go, another assignment of the same items, such as the
 * one of the model that reads them; NULL: home. Both have arrays of this rank's items
 * (spec->assignment) and of all ranks (spec->nodes, one per rank of the context), and all else in
 * them is the same on all ranks. Nothing is kept of the arguments.
 *
 * One all-gather, of blocks that have space for max_local_items, and no other communication: the
 * assignments are computed on every rank. With max_local_items 0, an all-gather of 8 bytes per rank
 * says how long the blocks are, which then are no longer than the items; they go over the control,
 * in messages that are allocated. Where ranks have more items or segments than in all updates
 * before, all of them take memory for that and a half more, agree, and make the plans again: the
 * pointers of lierne_samples_get_plan stay. An assignment that needs more memory than all before
 * allocates it, and then the ranks also agree that all of them have it: that happens where KK sees
 * more items, and hardly with other modes, because create reserves what they mostly need. In a
 * context that checks calls (lierne/context.h) ranks agree in every update.
 *
 * Costs and rows are numbers on the host, also in a context for device memory: the blocks go over
 * the control, in messages that are allocated, and nothing waits for a device, but as
 * lierne_plan_update_segments says (lierne/redistribute.h). Calls of the plans are enqueued on
 * their streams as ever.
 *
 * On any rank's error every rank gets it, and the old routing stays, with its plans and lists.
 * Errors: those of lierne_assignment_create, whose message has the number of the item among all
 * ranks; INVALID (also: items->ncosts is not spec->ncosts, segments where max_local_segments is 0
 * and max_local_items is not, CALLER without spec->caller, on this rank's item); COUNT_RANGE also
 * for returned rows; CAPACITY (items or segments of a rank, or rows of a rank in a place, above the
 * spec's); BUSY (a request of a plan or a call of coalesced ones is in flight, or one was captured
 * into a graph); MISMATCH (ranks gave different settings, or made other numbers of calls before:
 * names a rank and the field); TIMEOUT; PEER_FAILED; TRANSPORT; where a device or messages of the
 * control need more memory, NO_MEMORY, which kills the context; the error that killed it. A rank
 * that passes NULL for samples gets INVALID alone. */
LIERNE_API lierne_status lierne_samples_update(lierne_samples *samples, const lierne_items *items,
                                               const lierne_balance_spec *balance,
                                               const lierne_balance_spec *destination);

/* The plan of tensor `tensor` of the spec, to be executed with lierne/plan.h in both directions. It
 * belongs to the samples, and its shape follows their updates: it cannot be destroyed, updated,
 * transposed or composed. Coalesced (lierne_coalesced_create), tensors travel in one message per
 * pair of ranks; that needs max_local_items, and space for the messages once more. Not collective.
 * Errors: INVALID (NULL, tensor). */
LIERNE_API lierne_status lierne_samples_get_plan(lierne_plan **plan, const lierne_samples *samples,
                                                 int tensor);

/* Who has what in a place. Set size first. Arrays belong to the samples, until the next update. */
typedef struct lierne_samples_lists {
    size_t size;
    int64_t nitems;             /* of this rank */
    const int64_t *items;       /* their numbers among the items of all ranks, ascending */
    int64_t nsegments;          /* of this rank */
    const int64_t *cu_seqlens;  /* nsegments + 1: sums of the rows of segments, 0 first */
    int64_t nitems_all;         /* of all ranks */
    const int32_t *ranks;       /* of each of these, numbered as in an assignment */
    const int64_t *permutation; /* these in the order of ranks, those of a rank ascending */
    const int64_t *first;       /* rank p's begin at first[p] of it; one entry more than ranks */
    const int64_t *loads;       /* of each rank: of the balanced cost (RETURNED: destination's) */
} lierne_samples_lists;

/* Not collective. Errors: INVALID (NULL, size, place). */
LIERNE_API lierne_status lierne_samples_get_lists(lierne_samples_lists *lists,
                                                  const lierne_samples *samples,
                                                  lierne_samples_place place);

/* The cu_seqlens of a place as int32, as attention kernels take them; nsegments + 1 that belong to
 * the samples until the next update. *cu_seqlens is NULL on failure. Not collective. Errors:
 * INVALID (NULL, place), OVERFLOW (the last one is above 2^31 - 1). */
LIERNE_API lierne_status lierne_samples_get_cu_seqlens_i32(const int32_t **cu_seqlens,
                                                           const lierne_samples *samples,
                                                           lierne_samples_place place);

/* The report of the last update's assignment; zeros before. Not collective. Errors: INVALID (NULL,
 * size). */
LIERNE_API lierne_status lierne_samples_get_report(lierne_assignment_report *report,
                                                   const lierne_samples *samples);

#ifdef __cplusplus
}
#endif
#endif
