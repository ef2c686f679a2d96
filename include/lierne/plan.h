/* A plan: two routes, forward and adjoint, worked out once and executed any number of times.
 *
 * Builders (lierne/bridge.h) make plans. Execution is collective over the ranks of the context:
 * every rank calls, also one that neither sends nor receives, in the same order per plan and
 * direction. A buffer is host memory of lierne_plan_get_elements() elements; `in` is never written.
 *
 * A bad argument of one rank: calls that make or change a plan give every rank the same error, and
 * so do calls that execute where the context checks (lierne_context_spec); the message names the
 * rank. The exception is a rank that gives no context, as with a NULL plan: it gets INVALID alone,
 * and the others wait for it until their deadline.
 *
 * Numbers are never scaled. Copies are bitwise. Sums are taken in ascending order of the summands'
 * rank in their group, for f16 and bf16 in float32 with one rounding to nearest even at the end,
 * so that results have the same bits on every transport and run. */
#ifndef LIERNE_PLAN_H
#define LIERNE_PLAN_H

#include "lierne/context.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lierne_plan lierne_plan;
typedef struct lierne_request lierne_request;

typedef enum lierne_direction { LIERNE_FORWARD = 0, LIERNE_ADJOINT = 1 } lierne_direction;

/* Frees a plan; not collective. NULL is allowed. Where the context is dead, buffers of requests
 * that were in flight stay borrowed (lierne/context.h). Errors: BUSY (a request is in flight and
 * the context is not dead; nothing is freed). */
LIERNE_API lierne_status lierne_plan_destroy(lierne_plan *plan);

/* Elements of this rank's input and output buffer in a direction. The adjoint's input is the
 * gradient of the forward's output. Either pointer may be NULL. Errors: INVALID. */
LIERNE_API lierne_status lierne_plan_get_elements(int64_t *in, int64_t *out,
                                                  const lierne_plan *plan,
                                                  lierne_direction direction);

/* Shape of this rank's buffers: up to LIERNE_MAX_AXES sizes each, *naxes of them. Any pointer may
 * be NULL. Errors: INVALID. */
LIERNE_API lierne_status lierne_plan_get_shape(int *naxes, int64_t *in, int64_t *out,
                                               const lierne_plan *plan, lierne_direction direction);

/* Moves data: out = F in. Collective; blocking; equal to begin and end. stream must be NULL (host
 * memory). in or out may be NULL where this rank's buffer has no elements; out may be NULL where
 * lierne_plan_get_alias says that the result is a view. in and out must not overlap.
 * Errors: INVALID (arguments), BUSY (nothing was started on this rank, which may call again; where
 * the context checks, all ranks get either at once, elsewhere the others wait until their
 * deadline), MISMATCH (where the context checks), NO_MEMORY (of a transport that needs memory per
 * message: sim, or MPI for messages above 1 GiB), TIMEOUT, PEER_FAILED, TRANSPORT. From these four
 * on the context is dead, and in and out stay borrowed until MPI_Finalize (lierne/context.h). */
LIERNE_API lierne_status lierne_forward(lierne_plan *plan, void *out, const void *in, void *stream);
/* The exact adjoint: out = F* in. Otherwise as lierne_forward. */
LIERNE_API lierne_status lierne_adjoint(lierne_plan *plan, void *out, const void *in, void *stream);

/* Starts moving data. Both buffers belong to the request until lierne_end: in may be read but not
 * written, out neither. BUSY means that max_inflight requests of the direction are in flight, or
 * one that was begun 64 calls ago. Errors as lierne_forward, and INVALID (request is NULL);
 * *request is NULL on failure. */
LIERNE_API lierne_status lierne_forward_begin(lierne_request **request, lierne_plan *plan,
                                              void *out, const void *in, void *stream);
LIERNE_API lierne_status lierne_adjoint_begin(lierne_request **request, lierne_plan *plan,
                                              void *out, const void *in, void *stream);
/* Waits until a request is done and ends it, also on failure. NULL is allowed. Requests may be
 * ended in any order, and in another one on each rank: waiting for one moves all on. A request that
 * has ended may not be used. Errors: TIMEOUT, PEER_FAILED, TRANSPORT (from these on the context is
 * dead, and the request's buffers stay borrowed until MPI_Finalize: lierne/context.h); INVALID (it
 * has ended and its place was not taken since; this rank's error alone); in a simulated world that
 * checks, also what ranks that called later were refused (INVALID, BUSY, MISMATCH): the context is
 * dead then. */
LIERNE_API lierne_status lierne_end(lierne_request *request);

/* Largest or smallest instead of sum: reduces the adjoint's in into out. out[i] becomes the extreme
 * of out[i] (where in and out hold whole arrays: of in[i]) and all ghosts of row i. Ghost rows of a
 * whole array are left as the adjoint leaves them. For plans of rows (lierne/sparse.h,
 * lierne/halo.h); has no adjoint. A NaN wins. Collective; blocking. Errors as lierne_adjoint, and
 * INVALID (a plan of another kind, another reduction). */
typedef enum lierne_reduction { LIERNE_SUM = 0, LIERNE_MAX = 1, LIERNE_MIN = 2 } lierne_reduction;
LIERNE_API lierne_status lierne_reduce(lierne_plan *plan, lierne_reduction reduction, void *out,
                                       const void *in, void *stream);

/* The plan whose forward is this one's adjoint and the reverse (where every owned row has exactly
 * one ghost: the inverse). Collective. The new plan is independent of the old. Errors: INVALID
 * (NULL, a plan that accumulates), NO_MEMORY, MISMATCH, TIMEOUT, PEER_FAILED, TRANSPORT. */
LIERNE_API lierne_status lierne_plan_create_transposed(lierne_plan **out, const lierne_plan *plan);

/* The plan that executes first, then second, without a buffer of the caller's between them; its
 * adjoint is second's, then first's. Collective. Both plans are of one context and dtype, the
 * output of first as large as the input of second on every rank, and the same rows where rows lie
 * apart. The new plan is independent of them; no lower bound of its bytes is known (min_bytes 0).
 * Errors: INVALID (NULL, another context, dtype or size, a plan that accumulates), NO_MEMORY,
 * MISMATCH, TIMEOUT, PEER_FAILED, TRANSPORT. */
LIERNE_API lierne_status lierne_plan_create_composed(lierne_plan **out, const lierne_plan *first,
                                                     const lierne_plan *second);

/* Whether this rank's result lies unchanged inside its input (a narrow along the leading axis,
 * equal lanes): *offset is then its first element in the input, otherwise -1. Such a direction may
 * be executed with out NULL, which takes the view and copies nothing. Errors: INVALID. */
LIERNE_API lierne_status lierne_plan_get_alias(int64_t *offset, const lierne_plan *plan,
                                               lierne_direction direction);

/* What one execution costs this rank. Byte counts are of payload. Numbers of all ranks add up. */
typedef struct lierne_report {
    size_t size;        /* sizeof(lierne_report), set by the caller */
    int64_t sent_bytes; /* to other ranks */
    int64_t received_bytes;
    int64_t local_bytes; /* copied from in to out on this rank */
    int64_t min_bytes;   /* this rank's share of the bytes that any schedule must receive */
    int64_t sent_messages;
    int64_t received_messages;
    int64_t stages;
    int64_t scratch_bytes; /* per request in flight: sums, and messages that must be packed */
    int64_t communicators; /* that the plan holds beside the context's own, this rank a member */
    const char *algorithm; /* "direct", "collective", "leader"; "gather", "swaps" of rows;
                              "composed". Static */
} lierne_report;
/* Errors: INVALID (NULL, direction, report->size). */
LIERNE_API lierne_status lierne_plan_get_report(lierne_report *report, const lierne_plan *plan,
                                                lierne_direction direction);

/* A direction's route as text, a line per message and operation. *text is the caller's, to be
 * freed with lierne_text_destroy. Errors: INVALID, NO_MEMORY. */
LIERNE_API lierne_status lierne_plan_print(char **text, const lierne_plan *plan,
                                           lierne_direction direction);
LIERNE_API void lierne_text_destroy(char *text);

/* Checks plans without executing them. plans are those of ranks 0 to n-1 of one world (all of
 * them: messages must pair up too), or a single one of any rank (n = 1). Checked: blocks lie in
 * their buffers; every owned element of the output is written by one operation exactly; nothing is
 * read before it was written; each message has its counterpart, with as many elements. Costs
 * memory in proportion to the buffers. Errors: INVALID (the message names rank, direction, stage
 * and what is wrong), NO_MEMORY. */
LIERNE_API lierne_status lierne_plan_check(const lierne_plan *const *plans, int n);

#ifdef __cplusplus
}
#endif
#endif
