/* The bridge: moves a tensor from the layout of a source grid (an encoder) to that of a destination
 * grid (an LLM) and its gradient back. Both grids lie on one world; they may span the same ranks,
 * disjoint ones, or overlap.
 *
 * Forward. A sample belongs to one data lane (coordinate of "dp") on each side. A source rank holds
 * the rows of its lane, and a destination rank receives all rows of its lane, replicated over every
 * other dim, unless placements say that a dim cuts the sequence or the hidden axis, or delivery
 * that a cp rank wants its own rows only. Where a grid has "pp", the source holds the tensor on its
 * last stage and the destination wants it on its first.
 *
 * Adjoint. The gradient of the output is equal over the destination's tp; over its cp it is
 *   partial     every cp rank holds a summand of the whole sequence (as after a zero-padded
 *               scatter): the summands are added in ascending cp order, whatever they are;
 *   zigzag, contiguous, rows   every row has one owner, whose value is taken.
 * Every source rank gets the complete gradient of its own rows exactly once: no factor cp, no
 * factor tp, no scaling. In the letters of spmd_types (PyPI): input S over dp, I over tp; output S
 * over dp, I over tp, R over cp; gradient of the output S over dp, I over tp, P (partial) or V
 * (owned) over cp; gradient of the input S over dp, I over tp. (I: equal, as are the gradients; R:
 * equal, and the gradients are to be added.) The adjoint is that of the operator which counts
 * replicas once.
 *
 * Three algorithms with the same bits (up to the sign of zero): DIRECT receives on each rank what
 * it needs and does not hold, for any two grids; COLLECTIVE is the one of Megatron-LM for grids on
 * the same ranks (#4368, with destination cp > 1 as in #7435): all-gather over groups, gradients
 * summed over cp first; LEADER is the one of Megatron-LM for disjoint grids: one rank of a lane
 * sends to one rank of each lane of the other side that needs it, which broadcasts over a binomial
 * tree. Measured differences are in docs/performance.md. */
#ifndef LIERNE_BRIDGE_H
#define LIERNE_BRIDGE_H

#include "lierne/layout.h"
#include "lierne/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lierne_gradient_owner {
    LIERNE_GRADIENT_PARTIAL = 0,
    LIERNE_GRADIENT_ZIGZAG = 1,
    LIERNE_GRADIENT_CONTIGUOUS = 2,
    LIERNE_GRADIENT_ROWS = 3
} lierne_gradient_owner;

/* What a destination cp rank receives. */
typedef enum lierne_bridge_output {
    LIERNE_OUTPUT_WHOLE = 0,  /* the whole sequence of its lane */
    LIERNE_OUTPUT_SHARDED = 1 /* the rows that are its own by gradient_owner, in gradient_storage */
} lierne_bridge_output;

/* How the rows of a 2-D tensor [rows, hidden] run. An encoder that emits [S, B, H] and flattens it
 * has sequence-major rows: slicing those would cut across samples (Megatron-LM#4021 and its kin).
 */
typedef enum lierne_row_order {
    LIERNE_SAMPLE_MAJOR = 0,  /* row b * S + s */
    LIERNE_SEQUENCE_MAJOR = 1 /* row s * B + b of a lane's B samples */
} lierne_row_order;

/* A bridge to plan. Set size to sizeof(lierne_bridge_spec) and the rest to zero first. Every field
 * must be the same on every rank. */
typedef struct lierne_bridge_spec {
    size_t size;
    const lierne_grid *src; /* world sizes of both grids equal the context's; both have tp, dp */
    const lierne_grid *dst;
    int naxes;            /* 2 or 3 (a 2-D tensor of rows has its batch axis on the rows) */
    const int64_t *shape; /* global shape: the batch axis counts the samples of all lanes */
    lierne_dtype dtype;
    int batch_axis;
    int sequence_axis;         /* -1 if there is none; needed by every owner but PARTIAL and by cp
                                  ownership in general; not the batch axis */
    const int64_t *src_counts; /* samples per source lane, or NULL: balanced */
    const int64_t *dst_counts;
    lierne_gradient_owner gradient_owner;
    /* Of the gradient of the output, and with delivery OWN of the output too.
     * FULL: the gradient has the output's shape on every rank; of rows that are not its own a rank
     * reads nothing (of an output with delivery OWN: it writes nothing there). With delivery OWN
     * and owner zigzag or contiguous, that shape has the whole sequence, also where placements cut
     * it. COMPACT: own rows only, in the order of (sample, position); with delivery WHOLE the
     * gradient is smaller than the output. Needs an owner. Where the destination has no cp dim, all
     * rows are own. */
    lierne_storage gradient_storage;
    const int32_t *row_owner; /* ROWS: cp coordinate that owns row (b, s), at [b * S + s], for all
                                 samples b of the batch; else NULL. Compact storage has the own
                                 rows in the order of this array */
    int require_divisible;    /* nonzero: dp sizes, and the batch by them, must divide */
    int max_inflight;         /* requests in flight at once per direction; 0 means 1 */
    const char *src_view;     /* view of the grid that the tensor lies on; NULL: "base" */
    const char *dst_view;
    /* How the tensor lies over the dims of the view (one placement per dim, in their order): SHARD
     * or SHARD_ZIGZAG of an axis without counts, or REPLICATE, which is also what dp and pp (placed
     * by their meaning) and the destination's cp (see delivery) must have. NULL: all REPLICATE. A
     * source with cp > 1 must say how it lies. A buffer has its shard only (but see
     * gradient_storage). A tp rank of a sequence-parallel encoder, for example, is SHARD of the
     * sequence axis. Where the destination's cut the sequence, an owner zigzag or contiguous needs
     * delivery OWN: cut by cp as well, a rank's own rows of the gradient would not be rows of its
     * output. With rows_per_sample, axes are those of the 3-D tensor. */
    const lierne_placement *src_placements;
    const lierne_placement *dst_placements;
    lierne_bridge_output output; /* OWN needs an owner other than PARTIAL */
    /* For naxes 2: S > 0 says that the batch axis has B * S rows, S per sample, in row_order; the
     * tensor is then planned as 3-D ([B, S, H] or [S, B, H], in the same memory), sequence_axis
     * must be -1, and lanes, counts, owners and axes of placements are of that tensor. 0: every row
     * is a sample of its own. */
    int64_t rows_per_sample;
    lierne_row_order row_order;
    /* Nonzero: samples have up to shape[1] rows, a number that changes every step (image tokens).
     * Axes must be batch, sequence, hidden; a lane's buffer holds its samples' rows back to back,
     * its shape is [rows, 1, hidden], and lierne_plan_get_elements gives what the step's counts
     * come to (after planning: the most). DIRECT, partial gradients and whole delivery only, no
     * placements. */
    int variable_rows;
} lierne_bridge_spec;

/* Plans a bridge. Collective over the context: every rank calls with the same spec. On any rank's
 * failure every rank gets the same error, and nothing exists. *out is NULL then. The spec and its
 * grids may be freed after the call.
 * Errors: INVALID (NULL, sizes, an axis out of range or named twice, a missing tp or dp dim,
 * counts that do not add up, an owner without sequence axis, row_owner missing or out of range, a
 * world size that is not the context's); UNKNOWN_VIEW; INDIVISIBLE; UNSUPPORTED (source cp > 1
 * without src_placements; for COLLECTIVE also: spans that differ, pp > 1, dims other than tp, cp,
 * pp, dp, an owned gradient, counts, placements, delivery OWN; for LEADER also: spans that overlap,
 * destination cp > 1, gtp_remat > 1 (a view can join it with dp), an owned gradient, counts,
 * placements, delivery OWN); MISALIGNED (COLLECTIVE); MISMATCH (ranks disagree on the spec);
 * OVERFLOW; NO_MEMORY; TIMEOUT; PEER_FAILED; TRANSPORT. */
LIERNE_API lierne_status lierne_plan_create_bridge(lierne_plan **out, lierne_context *context,
                                                   const lierne_bridge_spec *spec);

/* Replaces the row map of a plan of lierne_plan_create_bridge with gradient_owner ROWS: another map
 * of the same size, for the steps that follow. Where image tokens fall decides who owns a row, and
 * changes with every batch. Shapes of compact buffers change with the map: ask
 * lierne_plan_get_shape again. Collective; every rank gives the same map (copied); no request may
 * be in flight. Planning again is each rank's own affair but for one decision, that all could and
 * that the maps are equal; on any rank's failure every rank gets the same error and keeps the old
 * map. Errors: INVALID (NULL, not such a plan, an owner out of range), BUSY, MISMATCH, NO_MEMORY,
 * TIMEOUT, PEER_FAILED, TRANSPORT. */
LIERNE_API lierne_status lierne_plan_update_rows(lierne_plan *plan, const int32_t *row_owner);

/* Gives a plan with variable_rows the rows of each sample for the steps that follow. rows: of the
 * samples of this rank's source lane, in order, each in 0 to shape[1]; NULL on a rank that holds no
 * source. Ranks of one lane give the same. The counts travel to the ranks that receive the samples
 * and to nobody else, by the plan's own rules; then every rank adapts its plan without planning
 * again. Collective; blocking; no request may be in flight. Costs one message where data has one,
 * and one decision of all ranks that every count was in range: on any rank's failure every rank
 * gets the same error and keeps the old counts. Errors: INVALID (NULL, not such a plan, a count out
 * of range), BUSY, TIMEOUT, PEER_FAILED, TRANSPORT (ranks of one lane that gave different counts
 * are found when data arrives). */
LIERNE_API lierne_status lierne_plan_update_counts(lierne_plan *plan, const int64_t *rows);

/* Whether lierne_plan_create_bridge would accept a spec, and why not: all of its checks that need
 * no context. Pure, not collective. Errors: as lierne_plan_create_bridge. */
LIERNE_API lierne_status lierne_bridge_check(const lierne_bridge_spec *spec);
/* The same of the grids and views alone; the tensor need not be filled in. Errors: INVALID (NULL,
 * spec->size; a missing dim, looked for as source tp, source dp, destination tp, destination dp;
 * grids of different worlds), UNKNOWN_VIEW, NO_MEMORY. */
LIERNE_API lierne_status lierne_bridge_check_grids(const lierne_bridge_spec *spec);

/* The three layouts that a bridge is made of: the tensor at the source (also that of its gradient),
 * the tensor at the destination, and the gradient of the output. Forward is a redistribution from
 * src to dst, the adjoint one from gradient to src (lierne/redistribute.h). With rows_per_sample
 * they have 3 axes; with variable_rows all samples have the most rows. Free each with
 * lierne_layout_destroy; all are NULL on failure. The grids of spec must outlive them. Pure, not
 * collective. Errors: as lierne_bridge_check. */
LIERNE_API lierne_status lierne_bridge_layouts_create(lierne_layout **src, lierne_layout **dst,
                                                      lierne_layout **gradient,
                                                      const lierne_bridge_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
