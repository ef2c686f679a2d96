/* Collectives as plans: all-gather, reduce-scatter, all-reduce, broadcast, all-to-all, barrier.
 *
 * A plan is made once and executed any number of times with lierne_plan_forward and
 * lierne_plan_adjoint (lierne/plan.h), over every transport, alone or coalesced with other plans.
 *
 * Ranks. A collective is over all ranks of the context, or over the list `ranks`, in its order,
 * which need not ascend; rank i below is entry i of that order, n the number of entries. Making the
 * plan is collective over the context: ranks that are not in the list give the same spec and have
 * empty buffers. All counts are in elements.
 *
 *   collective      in of rank i              out of rank i
 *   all-gather      counts[i]                 sum of counts: all in, in order
 *   reduce-scatter  sum of counts             counts[i]: part i of all in, reduced
 *   all-reduce      count                     count: all in, reduced
 *   broadcast       count at the root, else 0 count: the root's in
 *   all-to-all      sum of send_counts        sum of recv_counts: part i of every in, in order
 *   barrier         0                         0
 *
 * Reductions. A result is in[0] op in[1] op in[2] ..., from left to right in the order of the list,
 * whatever the algorithm, the transport, and the rank that computes it: every rank gets the same
 * bits. f16 and bf16 are combined in float32 and rounded once, to nearest even; f32 and f64 in
 * their own type; integers wrap around. LIERNE_REDUCTION_AVG divides the sum by n before it is
 * rounded. A maximum or minimum with a NaN is NaN.
 *
 * Adjoints, under the convention of distinct copies (every rank's entry is a variable of its own):
 * of an all-gather, the reduce-scatter with LIERNE_REDUCTION_SUM of the same counts, and the
 * reverse; of an all-reduce with LIERNE_REDUCTION_SUM, itself; of a broadcast, the sum of all
 * gradients at the root; of an all-to-all, the one that sends everything back; of a barrier, a
 * barrier. With LIERNE_REDUCTION_AVG the adjoint divides by n, too. LIERNE_REDUCTION_MAX,
 * LIERNE_REDUCTION_MIN and LIERNE_REDUCTION_PROD have no adjoint, nor have an all-gather and a
 * broadcast of an opaque dtype (lierne/layout.h): asking for it is INVALID.
 *
 * Every function here is collective over the context. The plan is the caller's, to be freed with
 * lierne_plan_destroy; the spec and its lists are copied. On any rank's failure every rank gets the
 * same error, which names the rank, and *out is NULL. Errors of all of them: INVALID (NULL, size,
 * ranks, dtype, max_inflight), COUNT_RANGE (a negative count, or one of which n times the bytes do
 * not fit in 64 bits), MISMATCH (ranks gave different specs: the message names the first field or
 * entry that differs, and both values), NO_MEMORY, TIMEOUT, PEER_FAILED, TRANSPORT. An execution's
 * in and out must not overlap. Thread safety is that of the context. */
#ifndef LIERNE_COLLECTIVE_H
#define LIERNE_COLLECTIVE_H

#include "lierne/layout.h"
#include "lierne/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How an all-reduce or a broadcast moves data; the bits do not depend on it. ONE_SHOT: one stage,
 * in which every rank that needs a value receives all contributions to it; for few bytes. TWO_SHOT:
 * the elements are divided among the ranks, in units of 16 bytes, the first ranks take one unit
 * more; each reduces or receives its part, and then sends it to the others. AUTO is what the
 * environment variable LIERNE_COLLECTIVE says (one_shot or two_shot; another text is INVALID in
 * every function here), else chosen by the number of ranks and bytes; lierne_plan_get_report says
 * what. The same on every rank. */
typedef enum lierne_collective_algorithm {
    LIERNE_COLLECTIVE_ALGORITHM_AUTO = 0,
    LIERNE_COLLECTIVE_ALGORITHM_ONE_SHOT = 1,
    LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT = 2
} lierne_collective_algorithm;

/* Of every spec: set size to its sizeof and the rest to zero first; all fields but size may stay
 * zero. */
typedef struct lierne_all_gather_spec {
    size_t size;
    const int *ranks;      /* ranks of the context, each once; NULL: all, in ascending order */
    int nranks;            /* 0 without ranks */
    int64_t count;         /* that each rank contributes, at least 0; not read with counts */
    const int64_t *counts; /* that rank i contributes, n of them, each at least 0; NULL: count */
    lierne_dtype dtype;
    int max_inflight; /* requests in flight per direction, 1 to 64; 0: 1 */
} lierne_all_gather_spec;

typedef struct lierne_reduce_scatter_spec {
    size_t size;
    const int *ranks; /* these as in lierne_all_gather_spec */
    int nranks;
    int64_t count; /* that each rank receives, at least 0; not read with counts */
    const int64_t *counts;
    lierne_dtype dtype;
    lierne_reduction reduction; /* LIERNE_REDUCTION_AVG: of a floating-point dtype */
    int max_inflight;
} lierne_reduce_scatter_spec;

typedef struct lierne_all_reduce_spec {
    size_t size;
    const int *ranks; /* these as in lierne_all_gather_spec */
    int nranks;
    int64_t count; /* of each in and out, at least 0 */
    lierne_dtype dtype;
    lierne_reduction reduction; /* LIERNE_REDUCTION_AVG: of a floating-point dtype */
    lierne_collective_algorithm algorithm;
    int max_inflight;
} lierne_all_reduce_spec;

typedef struct lierne_broadcast_spec {
    size_t size;
    const int *ranks; /* these as in lierne_all_gather_spec */
    int nranks;
    int root;      /* a rank of the world that takes part */
    int64_t count; /* of every out, at least 0 */
    lierne_dtype dtype;
    lierne_collective_algorithm algorithm;
    int max_inflight;
} lierne_broadcast_spec;

/* Without lists, every rank sends count elements to every rank, itself included. With send_counts,
 * each rank gives its own, and they may differ between ranks. send_counts is then set on every rank
 * of the context; one that is not in the list of ranks gives any list, which is not read. */
typedef struct lierne_all_to_all_spec {
    size_t size;
    const int *ranks; /* these as in lierne_all_gather_spec */
    int nranks;
    int64_t count;              /* per pair of ranks, at least 0; not read with send_counts */
    const int64_t *send_counts; /* to rank i, n of them, each at least 0; NULL: count */
    const int64_t *recv_counts; /* from rank i, n of them: compared with what rank i sends. NULL:
                                   not compared; lierne_plan_get_elements gives their sum */
    lierne_dtype dtype;
    int max_inflight;
} lierne_all_to_all_spec;

typedef struct lierne_barrier_spec {
    size_t size;
    const int *ranks; /* these as in lierne_all_gather_spec */
    int nranks;
    int max_inflight;
} lierne_barrier_spec;

/* Errors: as at the top. */
LIERNE_API lierne_status lierne_plan_create_all_gather(lierne_plan **out, lierne_context *context,
                                                       const lierne_all_gather_spec *spec);

/* Errors: as at the top; INVALID also for a reduction, and for LIERNE_REDUCTION_AVG of an integer
 * dtype. */
LIERNE_API lierne_status lierne_plan_create_reduce_scatter(lierne_plan **out,
                                                           lierne_context *context,
                                                           const lierne_reduce_scatter_spec *spec);

/* Errors: as at the top; INVALID also for a reduction, for LIERNE_REDUCTION_AVG of an integer
 * dtype, and for an algorithm. */
LIERNE_API lierne_status lierne_plan_create_all_reduce(lierne_plan **out, lierne_context *context,
                                                       const lierne_all_reduce_spec *spec);

/* Errors: as at the top; INVALID also for a root that does not take part, and for an algorithm. */
LIERNE_API lierne_status lierne_plan_create_broadcast(lierne_plan **out, lierne_context *context,
                                                      const lierne_broadcast_spec *spec);

/* With send_counts, planning tells every rank what it receives and waits for all ranks: a simulated
 * world then needs a thread per rank. Errors: as at the top; INVALID also for recv_counts without
 * send_counts; MISMATCH also where a rank expects another number of elements than is sent to it. */
LIERNE_API lierne_status lierne_plan_create_all_to_all(lierne_plan **out, lierne_context *context,
                                                       const lierne_all_to_all_spec *spec);

/* A barrier: an execution is complete on a rank only when all ranks of the list have begun it. Pass
 * NULL for in and out. Over n ranks it takes ceil(log2 n) rounds of messages. Errors: as at the
 * top.
 */
LIERNE_API lierne_status lierne_plan_create_barrier(lierne_plan **out, lierne_context *context,
                                                    const lierne_barrier_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
