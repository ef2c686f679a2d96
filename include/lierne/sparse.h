/* Graph exchanges: rows that other ranks own, forward; gradients summed home, adjoint.
 *
 * Every rank owns rows of one big array (atoms, nodes) and needs copies of some rows that others
 * own: its ghosts. Forward fills the ghosts from the owned rows; the adjoint adds the gradients of
 * all ghosts of a row into its owner's row. Every copy is a variable of its own (distinct copies),
 * so the two are exact transposes: <F x, y> == <x, F* y>.
 *
 * Buffers. owned rows: nowned rows in the rank's local order; ghosts: a separate array, in the
 * order stated below. A row has `width` elements and starts `stride` elements after the one before
 * it; what lies between is neither read nor written. Rows of [n, a, b] are width a * b. Forward: in
 * = owned rows, out = ghosts. Adjoint: in = gradients of ghosts, out = gradients of owned rows, of
 * which those that nobody asked for become zero (with accumulate: stay).
 *
 * Bytes. A row travels once to each rank that needs it, and the gradients that a rank has for one
 * row are added there before they travel back. Order of additions, the same on every transport and
 * run: on the rank of the ghosts in their order; at the owner the value that was there (with
 * accumulate), then ascending rank, the owner's own ghosts at its own place. f16 and bf16 are added
 * in float32 and rounded where a sum is complete: at the owner, and before that on a rank that has
 * several ghosts of the row.
 *
 * Learning who needs what takes messages between planning ranks, so planning waits for all of them:
 * in a simulated world it needs a thread per rank. */
#ifndef LIERNE_SPARSE_H
#define LIERNE_SPARSE_H

#include "lierne/layout.h"
#include "lierne/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the forward moves rows. DIRECT: one message to each rank that needs something. GATHER: every
 * rank gets all rows of all ranks in ceil(log2 P) messages (Bruck's all-gather) and keeps its
 * ghosts: better where nearly everything is needed by everyone or messages are tiny. AUTO: the
 * cheaper by the model below, of the rank where each costs most, and DIRECT, which needs less
 * memory, where both cost the same; alike on every rank. The adjoint is direct always, so that sums
 * have the same bits. lierne_report says which was taken. Model: seconds = messages *
 * LIERNE_MESSAGE_COST + bytes * LIERNE_BYTE_COST, of what a rank sends or receives, whichever is
 * more; for the all-gather as if all ranks had as many rows as the largest. */
typedef enum lierne_graph_algorithm {
    LIERNE_GRAPH_AUTO = 0,
    LIERNE_GRAPH_DIRECT = 1,
    LIERNE_GRAPH_ALL_GATHER = 2
} lierne_graph_algorithm;
#define LIERNE_MESSAGE_COST 2e-6
#define LIERNE_BYTE_COST    2e-10

/* A plan from edges and owners. Set size to sizeof(lierne_graph_spec) and the rest to zero first.
 * The local order of owned rows is ascending; ghosts are the distinct sources that others own, by
 * owner and then by row, both ascending (as in fairchem's graph-parallel all-to-all). */
typedef struct lierne_graph_spec {
    size_t size;
    int64_t nrows;        /* of the whole graph */
    const int32_t *owner; /* rank of each row, nrows of them, the same on every rank; a rank may own
                             none */
    int64_t nedges;       /* this rank's: those whose target it owns */
    const int64_t
        *source; /* rows of the whole graph, nedges each; any order, also twice the same */
    const int64_t *target;
    lierne_dtype dtype;
    int64_t width;  /* elements of a row, at least 1 */
    int64_t stride; /* from a row to the next, at least width; 0: width */
    lierne_graph_algorithm algorithm;
    int accumulate;   /* nonzero: the adjoint adds to what out holds */
    int max_inflight; /* as of a bridge; 0 means 1 */
} lierne_graph_spec;

/* A plan from pairs: ghost k is a copy of row `row[k]` of rank `rank[k]`. Ghosts may stand in any
 * order, repeat a row, and be of the rank itself. */
typedef struct lierne_references_spec {
    size_t size;
    int64_t nowned;
    int64_t nghosts;
    const int32_t *rank; /* nghosts each */
    const int64_t *row;
    lierne_dtype dtype;
    int64_t width;
    int64_t stride;
    lierne_graph_algorithm algorithm;
    int accumulate;
    int combined;
    int keep_ghosts;
    int max_inflight;
} lierne_references_spec;

/* Plans a graph exchange. Collective. On any rank's failure every rank gets the same error, which
 * names the rank, and nothing exists. All that the spec points to is copied as far as it is needed.
 * dtype, width, algorithm, accumulate and max_inflight must be the same on every rank (MISMATCH),
 * as must nrows and owner. Errors: INVALID (NULL, sizes, width, stride, dtype, algorithm,
 * max_inflight), COUNT_RANGE (a negative count, or sizes that overflow), OWNER_RANGE, INDEX_RANGE
 * (a source or target outside the graph; a pair's row that its owner does not have),
 * EDGE_TARGET_NOT_OWNED, PEER_RANGE (a pair's rank), MISMATCH, NO_MEMORY, TIMEOUT, PEER_FAILED,
 * TRANSPORT. */
LIERNE_API lierne_status lierne_plan_create_graph(lierne_plan **out, lierne_context *context,
                                                  const lierne_graph_spec *spec);
LIERNE_API lierne_status lierne_plan_create_references(lierne_plan **out, lierne_context *context,
                                                       const lierne_references_spec *spec);

/* Gives a plan of lierne_plan_create_graph another graph (a new neighbour list): spec as for
 * planning, with the plan's dtype, width and max_inflight. Memory of the plan is used again.
 * Collective; no request may be in flight; on any rank's failure every rank gets the same error and
 * keeps the old graph. Errors as lierne_plan_create_graph, and BUSY. */
LIERNE_API lierne_status lierne_plan_update_graph(lierne_plan *plan, const lierne_graph_spec *spec);

/* What a plan found out. Pointers are into the plan, until it is freed or updated. */
typedef struct lierne_graph_lists {
    size_t size; /* sizeof(lierne_graph_lists), set by the caller */
    int64_t nowned;
    const int64_t *owned; /* row of the graph of each local row, ascending; NULL for pairs */
    int64_t nghosts;
    const int64_t *ghosts; /* row of the graph of each ghost; NULL for pairs */
    /* Ranks that this rank receives from, ascending, and how many rows from each. */
    int64_t nsources;
    const int32_t *source_ranks;
    const int64_t *source_counts;
    /* Ranks that it sends to, ascending; the local rows for each, one list after the other, each in
     * the order in which the receiver has them (for a graph: ascending). */
    int64_t ntargets;
    const int32_t *target_ranks;
    const int64_t *target_counts;
    const int64_t *target_rows;
    /* Edges in the order given, as local rows: owned ones below nowned, ghost k at nowned + k. NULL
     * and 0 for pairs. Positions of edges whose source is owned, which can be worked on while
     * ghosts are under way, and of the others; both ascending. */
    int64_t nedges;
    const int64_t *edge_source;
    const int64_t *edge_target;
    int64_t nlocal_edges;
    const int64_t *local_edges;
    int64_t nremote_edges;
    const int64_t *remote_edges;
} lierne_graph_lists;
/* Errors: INVALID (NULL, lists->size, a plan of another kind). */
LIERNE_API lierne_status lierne_plan_get_graph_lists(lierne_graph_lists *lists,
                                                     const lierne_plan *plan);

/* A graph or halo plan as JSON, this rank's part of it: what is needed to make it again. *text is
 * to be freed with lierne_text_destroy. docs/conventions.md has the keys. Not collective. Errors:
 * INVALID (NULL, a plan of another kind), NO_MEMORY. */
LIERNE_API lierne_status lierne_plan_serialize(char **text, const lierne_plan *plan);
/* Plans from such texts, each rank from its own. Collective, as planning. length: bytes of text.
 * Costs time and memory in proportion to the texts, whatever counts are in them. Errors: SYNTAX
 * (line and column), INVALID (keys), and those of planning. */
LIERNE_API lierne_status lierne_plan_deserialize(lierne_plan **out, lierne_context *context,
                                                 const char *text, size_t length);

#ifdef __cplusplus
}
#endif
#endif
