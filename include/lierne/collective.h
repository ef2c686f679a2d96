/* Collectives as plans: all-gather, reduce-scatter, all-reduce, broadcast, all-to-all, barrier.
 *
 * A plan is created once and executed any number of times with lierne_plan_forward and
 * lierne_plan_adjoint (lierne/plan.h), over every transport, alone or coalesced with other plans.
 *
 * Ranks. A collective is over all ranks of the context, or over the list `ranks` in its order,
 * which need not ascend. Below, rank i is entry i of that order, and n the number of entries.
 * Creating the plan is collective over the context: ranks that are not in the list give the same
 * spec and have empty buffers. All counts are in elements.
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
 * for every algorithm, transport and rank that computes it: all ranks get the same bits. f16 and
 * bf16 are combined in float32 and rounded once, to nearest even; f32 and f64 in their own type;
 * integers wrap around. LIERNE_REDUCTION_AVG divides the sum by n before it is rounded. A maximum
 * or minimum with a NaN is NaN, and a result that is NaN is the canonical one (lierne/plan.h).
 *
 * Adjoints, under the convention of distinct copies (every rank's entry is a variable of its own):
 * of an all-gather, the reduce-scatter with LIERNE_REDUCTION_SUM of the same counts, and the
 * reverse; of an all-reduce with LIERNE_REDUCTION_SUM, itself; of a broadcast, the sum of all
 * gradients at the root; of an all-to-all, the one that sends everything back; of a barrier, a
 * barrier. With LIERNE_REDUCTION_AVG the adjoint divides by n, too. LIERNE_REDUCTION_MAX,
 * LIERNE_REDUCTION_MIN and LIERNE_REDUCTION_PROD have no adjoint, and neither have all-gathers and
 * broadcasts of an opaque dtype (lierne/layout.h): executing it is INVALID.
 *
 * Every function here is collective over the context. Free the plan with lierne_plan_destroy; the
 * spec and its lists are copied. If any rank fails, every rank gets the same error, which names the
 * rank, and *out is NULL. Errors of all of them: INVALID (NULL, size,
 * ranks, dtype, max_inflight), COUNT_RANGE (a negative count, or one of which n times the bytes do
 * not fit in 64 bits), MISMATCH (ranks gave different specs: the message names the first field or
 * entry that differs, and both values), NO_MEMORY, TIMEOUT, PEER_FAILED, TRANSPORT. An execution's
 * in and out must not overlap; out == in is allowed for an all-reduce. Thread safety is that of the
 * context. */
#ifndef LIERNE_COLLECTIVE_H
#define LIERNE_COLLECTIVE_H

#include "lierne/group.h"
#include "lierne/layout.h"
#include "lierne/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How an all-reduce or a broadcast moves data. The bits do not depend on it. The same on every
 * rank. ONE_SHOT  one stage: every rank that needs a value receives all contributions to it. For
 * few bytes. TWO_SHOT  two stages: the ranks divide the elements in units of 16 bytes (the first
 * ranks take one unit more); each reduces or receives its part, then sends it to the others. AUTO
 * the environment variable LIERNE_COLLECTIVE (one_shot or two_shot; another text is INVALID in
 * every function here) if it is set; otherwise lierne chooses by the number of ranks and bytes.
 * lierne_plan_get_report has the choice. */
typedef enum lierne_collective_algorithm {
    LIERNE_COLLECTIVE_ALGORITHM_AUTO = 0,
    LIERNE_COLLECTIVE_ALGORITHM_ONE_SHOT = 1,
    LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT = 2
} lierne_collective_algorithm;

/* The specs: first set size to sizeof the struct and the rest to zero. All fields but size and
 * dtype may stay zero. */
typedef struct lierne_all_gather_spec {
    size_t size;
    const int *ranks;      /* ranks of the context, each once; NULL: all, in ascending order */
    int nranks;            /* 0 without ranks */
    int64_t count;         /* elements of each rank, at least 0; not read with counts */
    const int64_t *counts; /* elements of rank i, n entries, each at least 0; NULL: count */
    lierne_dtype dtype;
    int max_inflight;    /* requests in flight per direction, 1 to 64; 0: 1 */
    lierne_group *group; /* see lierne/group.h (Domains); NULL: the context's own domain */
    const char *name;    /* see lierne/plan.h (Names); NULL: none */
} lierne_all_gather_spec;

typedef struct lierne_reduce_scatter_spec {
    size_t size;
    const int *ranks; /* these as in lierne_all_gather_spec */
    int nranks;
    int64_t count; /* elements that each rank receives, at least 0; not read with counts */
    const int64_t *counts;
    lierne_dtype dtype;
    lierne_reduction reduction; /* LIERNE_REDUCTION_AVG: of a floating-point dtype */
    int max_inflight;
    lierne_group *group;
    const char *name; /* see lierne/plan.h (Names); NULL: none */
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
    lierne_group *group;
    const char *name; /* see lierne/plan.h (Names); NULL: none */
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
    lierne_group *group;
    const char *name; /* see lierne/plan.h (Names); NULL: none */
} lierne_broadcast_spec;

/* Without send_counts every rank sends count elements to every rank, itself included. With
 * send_counts each rank gives its own numbers. Then set send_counts on every rank of the context;
 * that of a rank outside of the list of ranks is not read. */
typedef struct lierne_all_to_all_spec {
    size_t size;
    const int *ranks; /* these as in lierne_all_gather_spec */
    int nranks;
    int64_t count;              /* per pair of ranks, at least 0; not read with send_counts */
    const int64_t *send_counts; /* to rank i, n of them, each at least 0; NULL: count */
    const int64_t *recv_counts; /* from rank i, n entries, compared with what rank i sends. NULL:
                                   not compared; lierne_plan_get_elements returns their sum */
    lierne_dtype dtype;
    int max_inflight;
    lierne_group *group;
    int max_peers;    /* as in lierne_redistribute_spec (lierne/redistribute.h), of the ranks of the
                         list; with send_counts ranks relay unless n - 1 is at most max_peers */
    const char *name; /* see lierne/plan.h (Names); NULL: none */
} lierne_all_to_all_spec;

typedef struct lierne_barrier_spec {
    size_t size;
    const int *ranks; /* these as in lierne_all_gather_spec */
    int nranks;
    int max_inflight;
    lierne_group *group;
    const char *name; /* see lierne/plan.h (Names); NULL: none */
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

/* With send_counts planning sends every rank its numbers and waits for all ranks: a simulated world
 * then needs a thread per rank. Errors: as at the top; INVALID also for max_peers below 0;
 * UNSUPPORTED for one that is too low; INVALID for recv_counts without
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
