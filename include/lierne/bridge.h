/* The bridge: moves a tensor from the layout of a source grid (an encoder) to that of a destination
 * grid (an LLM), and its gradient back. Both grids are parts of one world and may have the same
 * ranks, disjoint ranks, or some in common. The bridge is a preset of lierne/redistribute.h: it
 * derives three layouts (lierne_layout_create_bridge) and plans the redistribution between them.
 *
 * Forward. Each side divides the samples of the batch among its dp ranks (a dp rank is all ranks
 * with the same coordinate in dim "dp"). A source rank holds the samples of its dp rank. A
 * destination rank receives the whole samples of its dp rank, replicated over every other dim,
 * unless placements shard the sequence or the hidden axis, or the output is sharded over cp. If a
 * grid has a dim "pp", the source holds the tensor on its last pipeline stage, and the destination
 * receives it on its first.
 *
 * Adjoint. The gradient of the output is equal over the destination's tp; over its cp it is
 *   partial     every cp rank holds a contribution to the whole sequence (as after a zero-padded
 *               scatter); contributions are summed in ascending cp order;
 *   zigzag, contiguous, rows   every row has one owner, whose value is taken.
 * Every source rank gets the complete gradient of its own rows exactly once: no factor cp, no
 * factor tp, no scaling. This is the exact adjoint where replicas of a value count once. As
 * annotations of spmd_types (PyPI):
 *
 *   tensor                  | dp | tp | cp
 *   input                   | S  | I  |
 *   output                  | S  | I  | R
 *   gradient of the output  | S  | I  | P (partial) or V (owned)
 *   gradient of the input   | S  | I  |
 *
 * (S: sharded. I: equal values with equal gradients. R: equal values whose gradients are to be
 * summed. P: contributions to be summed. V: different values.)
 *
 * Megatron-LM's own algorithms for the same bridge are in lierne/megatron.h; measured differences
 * are in docs/performance.md. */
#ifndef LIERNE_BRIDGE_H
#define LIERNE_BRIDGE_H

#include "lierne/group.h"
#include "lierne/layout.h"
#include "lierne/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the gradient of the output is distributed over the destination's cp. */
typedef enum lierne_gradient_owner {
    LIERNE_GRADIENT_OWNER_PARTIAL = 0, /* each cp rank has a contribution to every row */
    LIERNE_GRADIENT_OWNER_ZIGZAG = 1, /* the owner of chunk c or 2 cp - 1 - c of 2 cp chunks is c */
    LIERNE_GRADIENT_OWNER_CONTIGUOUS = 2, /* the owner of the c-th share is c */
    LIERNE_GRADIENT_OWNER_ROWS = 3        /* row_owner names the owner of each row */
} lierne_gradient_owner;

/* What a destination cp rank receives. */
typedef enum lierne_bridge_output {
    LIERNE_BRIDGE_OUTPUT_WHOLE = 0, /* the whole sequence of each sample */
    LIERNE_BRIDGE_OUTPUT_SHARDED =
        1 /* the rows that it owns by gradient_owner, in gradient_storage */
} lierne_bridge_output;

/* A bridge to plan. Begin with LIERNE_BRIDGE_SPEC_INIT, or set size to sizeof(lierne_bridge_spec),
 * sequence_axis to -1 and the rest to zero. Every field must be the same on every rank. */
typedef struct lierne_bridge_spec {
    size_t size;
    /* The grids. Both need dims tp and dp; their world sizes must equal the context's, and all
     * their ranks must be its members. */
    const lierne_grid *src;
    const lierne_grid *dst;
    int naxes;            /* 2 or 3; in a 2-D tensor of rows the batch axis is that of the rows */
    const int64_t *shape; /* global shape: the batch axis counts the samples of all dp ranks */
    lierne_dtype dtype;
    int batch_axis;
    int sequence_axis; /* not the batch axis; -1: none. Every owner but PARTIAL needs one */
    /* Samples of each dp rank. NULL: balanced; if dp does not divide the batch, the first dp ranks
     * have one sample more. A dp rank may have none. */
    const int64_t *src_counts;
    const int64_t *dst_counts;
    lierne_gradient_owner gradient_owner;
    /* Storage of the gradient of the output; if the output is SHARDED, of the output too.
     * FULL: the gradient has the output's shape on every rank. Rows that the rank does not own are
     * not read (of a SHARDED output: not written). With a SHARDED output and owner zigzag or
     * contiguous, the shape has the whole sequence even where placements shard it.
     * COMPACT: own rows only, in the order of (sample, position); if the output is WHOLE, the
     * gradient is smaller than the output. Needs an owner. Where the destination has no cp dim, a
     * rank owns all rows. */
    lierne_storage gradient_storage;
    /* ROWS: the cp coordinate that owns row (b, s) at [b * S + s], for all samples b of the batch;
     * otherwise NULL. Compact storage has the own rows in the order of this array. */
    const int32_t *row_owner;
    int require_divisible; /* nonzero: one dp size must divide the other, and both must divide the
                              batch */
    int max_inflight;      /* requests in flight at once per direction; 0 means 1 */
    const char *src_view;  /* the view of the source grid whose dims the spec names; NULL: "base" */
    const char *dst_view;
    /* The placement of the tensor on each dim of the view, in the order of the dims: SHARD or
     * SHARD_ZIGZAG of an axis other than the batch, without counts; or REPLICATE. dp, pp and the
     * destination's cp must be REPLICATE here, because the bridge itself places the tensor on them.
     * NULL: all REPLICATE. A source with cp > 1 must give placements. A buffer has the rank's shard
     * only (but see gradient_storage). For a sequence-parallel encoder, tp is SHARD of the sequence
     * axis. If a destination placement shards the sequence, owners zigzag and contiguous need a
     * SHARDED output: with a WHOLE output, own rows of the gradient would not be rows of the
     * output. With rows_per_sample, axes are those of the 3-D tensor. */
    const lierne_placement *src_placements;
    const lierne_placement *dst_placements;
    lierne_bridge_output output; /* SHARDED needs an owner other than PARTIAL */
    /* For naxes 2. S > 0: the batch axis has B * S rows, S per sample, in row_order. The tensor is
     * then planned as 3-D ([B, S, H] or [S, B, H], in the same memory); sequence_axis must be -1,
     * and counts, owners and axes of placements are those of that tensor. 0: every row is a sample
     * of its own. */
    int64_t rows_per_sample;
    lierne_row_order row_order;
    /* Nonzero: the rows of a sample (image tokens) change every step, up to shape[1] of them. Axes
     * must be batch, sequence, hidden. A rank's buffer holds the rows of its samples without gaps;
     * its shape is [rows, 1, hidden], and lierne_plan_get_elements returns the elements for the
     * counts of the step (after planning: the maximum). Needs a partial gradient, a WHOLE output
     * and no placements. */
    int variable_rows;
    lierne_routing routing; /* with variable_rows always DIRECT; with shared_output AUTO or DIRECT,
                               which both mean DIRECT */
    lierne_sharing shared_output; /* needs max_inflight 0 or 1, and no variable_rows */
    lierne_group *group;          /* see lierne/group.h (Domains); NULL: the context's own domain */
    int max_peers; /* as in lierne_redistribute_spec (lierne/redistribute.h); 0 with shared_output
                      or variable_rows */
    const char *name; /* see lierne/plan.h (Names); NULL: none */
} lierne_bridge_spec;
/* A spec without a sequence axis; all other fields are zero, their defaults. */
#define LIERNE_BRIDGE_SPEC_INIT                                                                    \
    { .size = sizeof(lierne_bridge_spec), .sequence_axis = -1 }

/* Plans a bridge. Collective over the context: every rank calls with the same spec. If any rank
 * fails, every rank gets the same error, no plan exists, and *out is NULL. The spec and its grids
 * may be freed after the call. The plan is used through lierne/plan.h. Thread safety: a
 * context serves one thread at a time.
 * Errors: INVALID (NULL, sizes, an axis out of range or named twice, a missing tp or dp dim,
 * counts that do not add up, an owner without sequence axis, row_owner missing or out of range, a
 * placement that is not allowed, a world size that is not the context's, a grid with a rank that is
 * no member, routing, shared_output, max_peers below 0); UNKNOWN_VIEW; INDIVISIBLE
 * (require_divisible; a zigzag that does not divide the sequence); UNSUPPORTED (source cp > 1
 * without src_placements; variable_rows with an owner, placements, shared_output or max_peers;
 * shared_output in a context for device memory; max_peers that is too low, or with shared_output);
 * MISMATCH (ranks disagree on the spec; the message names the field); OVERFLOW; NO_MEMORY; TIMEOUT;
 * PEER_FAILED; TRANSPORT. */
LIERNE_API lierne_status lierne_plan_create_bridge(lierne_plan **out, lierne_context *context,
                                                   const lierne_bridge_spec *spec);

/* Replaces the row map of a plan of lierne_plan_create_bridge with gradient_owner ROWS by another
 * map of the same size, such as that of the next batch's image tokens. Shapes of compact buffers
 * change with the map: ask lierne_plan_get_shape again. Collective; every rank gives the same map,
 * which is copied; no request may be in flight. Communicates only to agree that all ranks gave the
 * same map and could plan. If any rank fails, every rank gets the same error and keeps the old map.
 * Errors: INVALID (NULL, not such a plan, an owner out of range), BUSY, MISMATCH, NO_MEMORY,
 * TIMEOUT, PEER_FAILED, TRANSPORT. */
LIERNE_API lierne_status lierne_plan_update_rows(lierne_plan *plan, const int32_t *row_owner);

/* Sets the rows of each sample of a plan with variable_rows for the next calls. rows: the rows of
 * the samples of this rank's source dp rank, in order, each in 0 to shape[1]; NULL on a rank that
 * holds no source. All ranks of one dp rank give the same. The counts are sent to the ranks that
 * receive the samples; then every rank adapts its plan without planning again. Collective;
 * blocking, also on a device (on cudaStreamPerThread); no request may be in flight. Costs one
 * message for each message of data, and one agreement of all ranks. If any rank fails, every rank
 * gets the same error and keeps the old counts. Errors: INVALID (NULL, not such a plan, a count out
 * of range), BUSY, TIMEOUT, PEER_FAILED, TRANSPORT (different counts from ranks of one dp rank are
 * found when data arrives); NO_MEMORY (in a simulated world, where a transport connects messages in
 * planning, and where a device records its work: the context is dead). */
LIERNE_API lierne_status lierne_plan_update_counts(lierne_plan *plan, const int64_t *rows);

/* Makes all checks of lierne_plan_create_bridge that need no context. Pure, not collective. Errors:
 * as lierne_plan_create_bridge. */
LIERNE_API lierne_status lierne_bridge_check(const lierne_bridge_spec *spec);
/* The same for the grids and views alone; the tensor need not be filled in. Errors: INVALID (NULL,
 * spec->size; a missing dim, looked for as source tp, source dp, destination tp, destination dp;
 * grids of different worlds), UNKNOWN_VIEW, NO_MEMORY. */
LIERNE_API lierne_status lierne_bridge_check_grids(const lierne_bridge_spec *spec);

/* Creates the three layouts of a bridge: the tensor (and its gradient) at the source, the tensor at
 * the destination, and the gradient of the output. Forward is a redistribution from src to dst, the
 * adjoint one from gradient to src (lierne/redistribute.h). With rows_per_sample they have 3 axes;
 * with variable_rows all samples have the maximum of rows. Free each with
 * lierne_layout_destroy; all are NULL on failure. They keep nothing of spec. Pure, not
 * collective. Errors: as lierne_bridge_check. */
LIERNE_API lierne_status lierne_layout_create_bridge(lierne_layout **src, lierne_layout **dst,
                                                     lierne_layout **gradient,
                                                     const lierne_bridge_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
