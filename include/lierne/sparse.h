/* Remote rows: graphs, (rank, row) references, and partitions.
 *
 * Every rank owns some rows of one large distributed array (atoms, nodes) and needs copies of rows
 * that other ranks own: its ghosts. Forward copies the owned rows into the ghosts (a halo exchange,
 * PetscSF's broadcast); the adjoint sends the gradients of all ghosts of a row back to its owner
 * and sums them there (PetscSF's reduce). Each ghost is a variable of its own, so that the two are
 * exact transposes: <F x, y> == <x, F* y>. Together they form a star forest: the root of a ghost is
 * the row that it copies.
 *
 * Rows. A row has `width` elements and begins `stride` elements after the row before it; elements
 * in between are neither read nor written. A buffer of n > 0 rows has (n - 1) * stride + width
 * elements: the last row may end the memory. A tensor [n, a, b] has n rows of width a * b. Local
 * rows are numbered from 0; rows of the whole graph have global numbers.
 *
 * Buffers. By default owned rows and ghosts have a buffer each: forward in = owned rows (nowned
 * rows), out = ghosts (nghosts rows); adjoint in = gradients of the ghosts, out = gradients of the
 * owned rows. Rows of out that no rank references are set to zero; with `accumulate`, the adjoint
 * adds to what out holds. With `combined`, all four are combined buffers of nowned + nghosts rows,
 * the owned rows first: forward out = in with its ghosts filled; adjoint out = in with the
 * gradients of the ghosts added to the owned rows, and ghost rows zero (with `keep_ghosts`: as they
 * are in in). out == in is then allowed.
 *
 * Cost. A row is sent once to each rank that needs it; a rank with several ghosts of one row sums
 * their gradients before it sends them. Order of a sum, the same on every transport and in every
 * run: on a rank with several ghosts of the row, in the order of the ghosts; at the owner first the
 * value that is there (combined, accumulate), then ascending rank, the owner's own ghosts at its
 * own place. f16 and bf16 are added in float32 and rounded where a sum is complete: at the owner,
 * and before that on a rank that has several ghosts of the row.
 *
 * A rank cannot know which ranks need its rows. Planning therefore exchanges messages and waits for
 * all ranks: a simulated world needs a thread per rank. Thread safety is that of the context. */
#ifndef LIERNE_SPARSE_H
#define LIERNE_SPARSE_H

#include "lierne/group.h"
#include "lierne/layout.h"
#include "lierne/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the forward moves rows.
 *   DIRECT      one message to each rank that needs rows of this rank.
 *   ALL_GATHER  every rank receives the rows of all ranks in ceil(log2 P) messages (Bruck), and
 *               keeps its ghosts. Faster if nearly all rows are needed everywhere or messages are
 *               tiny.
 *   AUTO        the one whose slowest rank is faster; DIRECT, which needs less memory, if both are
 *               equal. The same on every rank; lierne_plan_get_report has it.
 * The adjoint is always direct, so that sums have the same bits. AUTO estimates the seconds of a
 * rank as messages * LIERNE_MESSAGE_SECONDS + bytes * LIERNE_BYTE_SECONDS of what it sends or what
 * it receives, whichever is more; for ALL_GATHER as if every rank had as many rows as the rank with
 * most rows. */
typedef enum lierne_graph_algorithm {
    LIERNE_GRAPH_ALGORITHM_AUTO = 0,
    LIERNE_GRAPH_ALGORITHM_DIRECT = 1,
    LIERNE_GRAPH_ALGORITHM_ALL_GATHER = 2
} lierne_graph_algorithm;
#define LIERNE_MESSAGE_SECONDS 2e-6
#define LIERNE_BYTE_SECONDS    2e-10

/* A plan from edges and owners. Begin with LIERNE_GRAPH_SPEC_INIT, or set size to
 * sizeof(lierne_graph_spec), width to 1 and the rest to zero. Local owned rows are in ascending
 * order of their global numbers. Ghosts are the distinct sources that other ranks own, ordered by
 * owner and then by global number, both ascending (as in fairchem's graph-parallel all-to-all). */
typedef struct lierne_graph_spec {
    size_t size;
    int64_t nrows;         /* of the whole graph, at most INT32_MAX; more rows: see references */
    const int32_t *owner;  /* rank that owns each row, nrows of them, the same on every rank; a rank
                              may own none */
    int64_t nedges;        /* of this rank: those whose target it owns (see remote_targets) */
    const int64_t *source; /* global rows, nedges of each; in any order, repeats are allowed */
    const int64_t *target;
    lierne_dtype dtype;
    int64_t width;  /* elements of a row, at least 1 */
    int64_t stride; /* elements from a row to the next, at least width; 0: width */
    lierne_graph_algorithm algorithm;
    int accumulate;   /* nonzero: the adjoint adds to what out holds; not with combined */
    int combined;     /* nonzero: owned rows and ghosts share one buffer; not with ALL_GATHER */
    int keep_ghosts;  /* nonzero: the adjoint copies ghost rows; only with combined */
    int max_inflight; /* requests in flight per direction, 1 to 64; 0: 1 */
    /* Nonzero, on any rank: targets may also be ghosts, rows of other ranks that an edge of this
     * rank has as its source. What this rank computes for them is not sent to their owner. */
    int remote_targets;
    lierne_group *group; /* see lierne/group.h (Domains); NULL: the context's own domain */
    const char *name;    /* see lierne/plan.h (Names); NULL: none */
} lierne_graph_spec;
#define LIERNE_GRAPH_SPEC_INIT                                                                     \
    { .size = sizeof(lierne_graph_spec), .width = 1 }

/* A plan from references: ghost k is a copy of local row `row[k]` of rank `rank[k]`. Ghosts keep
 * the order in which they are given, may refer to one row several times, and to rows of the rank
 * itself. Begin with LIERNE_REFERENCES_SPEC_INIT, or set size to sizeof(lierne_references_spec),
 * width to 1 and the rest to zero. */
typedef struct lierne_references_spec {
    size_t size;
    int64_t nowned;
    int64_t nghosts;
    const int32_t *rank; /* nghosts of each; may be NULL if that is 0 */
    const int64_t *row;
    lierne_dtype dtype; /* these as in lierne_graph_spec */
    int64_t width;
    int64_t stride;
    lierne_graph_algorithm algorithm;
    int accumulate;
    int combined;
    int keep_ghosts;
    int max_inflight;
    lierne_group *group;
    const char *name; /* see lierne/plan.h (Names); NULL: none */
} lierne_references_spec;
#define LIERNE_REFERENCES_SPEC_INIT                                                                \
    { .size = sizeof(lierne_references_spec), .width = 1 }

/* Create a plan. Collective; wait for all ranks. Free the plan with lierne_plan_destroy. The spec
 * and its arrays may be freed after the call. If any rank fails, every
 * rank gets the same error, which names the rank, and *out is NULL. dtype, width, algorithm,
 * accumulate, combined, keep_ghosts and max_inflight must be the same on every rank, and so must
 * nrows and owner (MISMATCH). Errors: INVALID (NULL, size, width, stride, dtype, algorithm,
 * max_inflight, fields that exclude each other), COUNT_RANGE (a negative count, or sizes that
 * overflow), OWNER_RANGE (an owner that is no rank of the context), INDEX_RANGE (a source or target
 * outside the graph; a referenced row that its owner does not have), EDGE_TARGET_NOT_OWNED (with
 * remote_targets: and no edge of this rank has it as its source), PEER_RANGE (a reference to a rank
 * that is none of the context), MISMATCH, NO_MEMORY, TIMEOUT, PEER_FAILED, TRANSPORT. */
LIERNE_API lierne_status lierne_plan_create_graph(lierne_plan **out, lierne_context *context,
                                                  const lierne_graph_spec *spec);
LIERNE_API lierne_status lierne_plan_create_references(lierne_plan **out, lierne_context *context,
                                                       const lierne_references_spec *spec);

/* Gives a plan of lierne_plan_create_graph another graph, for instance the next neighbor list,
 * reusing the plan's memory. spec is as for planning, with the plan's dtype, width and
 * max_inflight. Collective; no request may be in flight, and no coalesced plans may hold the plan.
 * If any rank fails, every rank gets the same error and keeps the old graph. Errors: INVALID
 * also for a plan of another kind and for another dtype, width or max_inflight; BUSY; otherwise as
 * lierne_plan_create_graph. */
LIERNE_API lierne_status lierne_plan_update_graph(lierne_plan *plan, const lierne_graph_spec *spec);

/* Migration: rows that change their owner, as atoms that have left the brick of their rank. Set
 * size to sizeof(lierne_migration_spec) and the rest to zero first. */
typedef struct lierne_migration_spec {
    size_t size;
    int64_t nrows;        /* of this rank, rows that were born on it since the last step included */
    const int32_t *owner; /* nrows: the rank that gets each row, this one if it stays; -1: none, the
                             row ends here. May be NULL if nrows is 0 */
    lierne_dtype dtype;
    int64_t width;       /* elements of a row, at least 1 */
    int64_t stride;      /* elements from a row to the next, at least width; 0: width */
    int max_inflight;    /* requests in flight per direction, 1 to 64; 0: 1 */
    lierne_group *group; /* see lierne/group.h (Domains); NULL: the context's own domain */
    const char *name;    /* see lierne/plan.h (Names); NULL: none */
} lierne_migration_spec;

/* Creates a plan that moves rows to new owners. Forward in: the rows that this rank has; out: those
 * that it has afterwards, by ascending rank that they come from, its own at its own place, and
 * those of one rank in the order in which they were there. So rows keep their global order, on
 * whichever ranks they meet. The adjoint is the way back: gradients of rows, or rows themselves, go
 * where they came from, and a row that ended becomes zero. Both copy, so opaque dtypes are allowed.
 * lierne_plan_get_shape has the number of rows afterwards, lierne_plan_get_graph_lists who sends
 * how many to whom, with rows before as owned ones and rows afterwards as ghosts. Other fields of
 * the rows move by retyped plans (lierne_plan_create_retyped); coalesced, all fields travel in one
 * message per pair of ranks.
 *
 * Collective; waits for all ranks. Every rank sends the numbers of its rows to the ranks that get
 * them. The spec and owner may be freed after the call. If any rank fails, every rank gets the same
 * error, which names the rank, and *out is NULL. dtype, width and max_inflight must be the same on
 * every rank. Errors: INVALID (NULL, size, width, stride, dtype, max_inflight), COUNT_RANGE (a
 * negative count, or sizes that overflow), OWNER_RANGE (an owner that is neither a rank of the
 * context nor -1: names the row), MISMATCH, NO_MEMORY, TIMEOUT, PEER_FAILED, TRANSPORT. */
LIERNE_API lierne_status lierne_plan_create_migration(lierne_plan **out, lierne_context *context,
                                                      const lierne_migration_spec *spec);

/* Gives a migration the rows of the next step: another nrows and other owners, with the plan's
 * dtype, width and max_inflight, reusing the plan's memory. lierne_plan_update_retyped then follows
 * for its retyped plans. Collective; no request may be in flight, and no coalesced plans may hold
 * the plan. If any rank fails, every rank gets the same error and keeps the old rows. Errors:
 * INVALID also for a plan of another kind and for another dtype, width or max_inflight; BUSY;
 * otherwise as lierne_plan_create_migration. */
LIERNE_API lierne_status lierne_plan_update_migration(lierne_plan *plan,
                                                      const lierne_migration_spec *spec);

/* The same for coalesced plans of a migration and of plans that are retyped from it: all fields of
 * the rows get the next step at once, with one sparse exchange and two agreements however many they
 * are, and stay coalesced. spec: as for lierne_plan_update_migration, of the migration among them.
 * If any rank fails, every rank gets the same error, and all plans keep the old rows. Errors: those
 * of lierne_plan_update_migration; INVALID also where none of the plans is a migration, or another
 * one is not retyped; BUSY where a call of the coalesced plans or of one of them is in flight or
 * was captured into a graph, or other coalesced plans hold one of them. */
LIERNE_API lierne_status lierne_coalesced_update_migration(lierne_coalesced *coalesced,
                                                           const lierne_migration_spec *spec);

/* Fetch-and-add: every ghost adds a number to the row that it refers to, and fetches the value that
 * the row had before (PetscSFFetchAndOp, with a stated order). So ranks number rows that they do
 * not own, or allocate places in lists of other ranks. */
typedef struct lierne_fetch_and_add_spec {
    size_t size;
    lierne_dtype dtype;
    int64_t width;    /* elements of a row, at least 1 */
    int64_t stride;   /* elements from a row to the next, at least width; 0: width */
    int max_inflight; /* requests in flight, 1 to 64; 0: 1 */
    const char *name; /* see lierne/plan.h (Names); NULL: none */
} lierne_fetch_and_add_spec;
#define LIERNE_FETCH_AND_ADD_SPEC_INIT                                                             \
    { .size = sizeof(lierne_fetch_and_add_spec), .width = 1 }

/* Creates a plan that fetches and adds, from the ghosts of `like`: a plan of a graph, of references
 * or of a migration, or a flattened one (lierne/halo.h), whose own rows may have another type. in
 * and out of lierne_plan_forward are combined buffers of nowned + nghosts rows, and may be one
 * buffer: in has the values of the owned rows and what each ghost adds, out the sums of the owned
 * rows and what each ghost fetched.
 *
 * Contributions to a row come in the order of the adjoint: ascending rank, the owner's own ghosts
 * at its own place, and on one rank in the order of its ghosts. A ghost fetches the value of the
 * row, plus all contributions before its own. The owned rows become what the adjoint of a combined
 * buffer makes of them, with the same bits; to fetch, a rank's contributions are added one after
 * the other, the sums of the ranks before it are added to the value one after the other, and then
 * the one to the other; each of these additions rounds. Two messages per pair of ranks that share
 * a row. A rank performs an operation for each ghost of the row of which it has most ghosts: where
 * one row has very many, add them up before.
 *
 * Collective; the ranks agree and exchange nothing else, and wait for one another. The new plan
 * shares nothing with `like`, has no adjoint, and can be coalesced and retyped. dtype, width and
 * max_inflight must be the same on every rank. Errors: INVALID (NULL, size, width, stride, dtype,
 * max_inflight, a plan of another kind), COUNT_RANGE (sizes that overflow), NO_MEMORY, MISMATCH,
 * TIMEOUT, PEER_FAILED, TRANSPORT; *out is NULL then. */
LIERNE_API lierne_status lierne_plan_create_fetch_and_add(lierne_plan **out,
                                                          const lierne_plan *like,
                                                          const lierne_fetch_and_add_spec *spec);

/* The lists that planning made. Pointers lead into the plan and are valid until it is destroyed or
 * updated. Lists of n entries may be NULL if n is 0. */
typedef struct lierne_graph_lists {
    size_t size; /* sizeof(lierne_graph_lists), set by the caller; filled as far as it goes */
    int64_t nowned;
    const int64_t *owned; /* global number of each owned row, ascending; NULL for references */
    int64_t nghosts;
    const int64_t *ghosts; /* global number of each ghost; NULL for references */
    /* The ranks that this rank receives from in the forward, ascending, and the rows from each. */
    int64_t nsenders;
    const int32_t *sender_ranks;
    const int64_t *sender_counts;
    /* The ranks that it sends to, ascending, the number of rows for each, and these local rows, one
     * list after the other, each in the order of the receiver's ghosts (of a graph: ascending). */
    int64_t nreceivers;
    const int32_t *receiver_ranks;
    const int64_t *receiver_counts;
    const int64_t *receiver_rows;
    /* The edges in the given order, as local rows: owned rows are below nowned, ghost k is nowned +
     * k. 0 and NULL for references. Then the positions of edges whose source is owned, which can be
     * computed while communication is in flight, and of the others; both ascending. */
    int64_t nedges;
    const int64_t *edge_source;
    const int64_t *edge_target;
    int64_t nlocal_edges;
    const int64_t *local_edges;
    int64_t nremote_edges;
    const int64_t *remote_edges;
} lierne_graph_lists;
/* Fills *lists for a plan of a graph, of references or of a migration, or a flattened one
 * (lierne/halo.h); those without a graph as for references. Not collective. Errors: INVALID (NULL,
 * lists->size, a plan of another kind). */
LIERNE_API lierne_status lierne_plan_get_graph_lists(lierne_graph_lists *lists,
                                                     const lierne_plan *plan);

/* Writes this rank's part of a plan of a graph, of references or of swaps (lierne/halo.h) as JSON,
 * from which the plan can be created again. A migration and a flattened plan become references.
 * Free *text with lierne_text_destroy. docs/conventions.md lists the keys. Not collective. Errors:
 * INVALID (NULL, a plan of another kind), NO_MEMORY. */
LIERNE_API lierne_status lierne_plan_serialize(char **text, const lierne_plan *plan);
/* Creates a plan from such texts, each rank from its own. length: bytes of text, without a
 * terminating zero. Collective, as planning. Needs time and memory in proportion to the texts,
 * whatever counts they contain: a rank's rows (ghosts; owned rows with ALL_GATHER; rows that swaps
 * send) times their bytes times max_inflight may be 1 MiB for each byte of its text, and 1 GiB for
 * a short one. Errors: SYNTAX (line and column), INVALID (NULL, keys and their values; line and
 * column), OVERFLOW (more than that), and those of planning. */
LIERNE_API lierne_status lierne_plan_deserialize(lierne_plan **out, lierne_context *context,
                                                 const char *text, size_t length);

/* Partitions: the rank that owns each row, of a world whose ranks are 0 to world - 1. For a context
 * with members, give their number as world and replace owner i by lierne_context_get_member(i).
 * Every rank computes all owners for itself, with the same result on every rank. Planners take any
 * owners; these functions are a convenience. They are pure: not collective, thread-safe, without a
 * context. */

/* Contiguous shares in row order; the first nrows mod world ranks own one row more. owner: receives
 * nrows ranks, NULL is allowed if nrows is 0. Errors: INVALID (NULL, nrows < 0, world < 1). */
LIERNE_API lierne_status lierne_partition_split(int32_t *owner, int64_t nrows, int world);

/* Shares along a Morton curve, so that rows that are near in space mostly have the same owner: row
 * i along the curve belongs to rank floor(i * world / nrows). Rows of one cell are in row order. If
 * nrows <= world, row i belongs to rank i; if world is 1, all rows belong to rank 0. owner:
 * receives nrows ranks. positions: x, y, z of each row, in F32 or F64; cells are computed in that
 * type. Both may be NULL if nrows is 0. Errors: INVALID (NULL, nrows < 0, world < 1, dtype, a
 * position that is not finite: names the row), OVERFLOW (an extent beyond the type, positions
 * beyond memory), NO_MEMORY. */
LIERNE_API lierne_status lierne_partition_morton(int32_t *owner, const void *positions,
                                                 lierne_dtype dtype, int64_t nrows, int world);

/* Shares by recursive coordinate bisection: a plane parts the rows between two halves of the ranks,
 * the first one of floor(n / 2) of n ranks, and each half again. It lies across the axis along
 * which the sixteenth of the rows and one more on either side of it is widest (of equally wide ones
 * the first), so that few rows have neighbors beyond it. Rows with equal coordinates are in row
 * order. costs: NULL, and ranks own as many rows as lierne_partition_split gives them; or a number
 * of at least 0 for each row, and the costs of the two sides are as near as a row allows to the
 * ranks' fractions, that of the first half rounded down to a whole number. Otherwise as
 * lierne_partition_morton. Mostly 5 to 25 % fewer ghosts than along the curve
 * (docs/performance.md). Time is that of three sorts and a pass over the rows for each doubling of
 * world; 56 bytes per row. Errors: as lierne_partition_morton; INVALID also for a negative cost,
 * OVERFLOW for their sum. */
LIERNE_API lierne_status lierne_partition_bisect(int32_t *owner, const void *positions,
                                                 lierne_dtype dtype, const int64_t *costs,
                                                 int64_t nrows, int world);

/* The code of each row along the curve, nrows of them: 10 bits per axis, interleaved, x lowest. The
 * cell of a coordinate p is trunc((p - min) / extent * 1023): min is that of the axis, extent the
 * largest one of the three axes, at least 1e-8. Arguments and errors as lierne_partition_morton. */
LIERNE_API lierne_status lierne_partition_morton_codes(uint32_t *codes, const void *positions,
                                                       lierne_dtype dtype, int64_t nrows);

#ifdef __cplusplus
}
#endif
#endif
