/* What changed, only: a plan's forward whose input differs little from call to call, as the weights
 * that a trainer sends to inference engines after every step (one to three percent of the bytes of
 * bf16 weights change). Each rank keeps what it sent and got last, or the caller keeps what it gave
 * (lierne_delta_set_previous); it compares, and sends the elements that differ and where they are.
 *
 *     lierne_plan_create_set(&plan, context, &spec);
 *     lierne_delta_create(&delta, plan);
 *     lierne_delta_forward(delta, weights_out, weights_in);    // the first call sends everything
 *
 * Elements are compared as bits, so that -0.0 and the payloads of NaN arrive: the output is that of
 * lierne_plan_forward, bit for bit, and is written whole in every call, whatever it held. Of each
 * piece of 64 KiB the shortest is sent: nothing, changed elements with their positions as Rice
 * codes or as a bit map, or everything. So no call sends more than the plan's bytes, a byte per
 * piece and a header of 32 bytes per message.
 *
 * It pays where links are slower than comparing: between nodes, not in the memory of one.
 *
 * Versions. Calls count from 1 (to 2^63 - 1, and from 1 again). A rank that does not have the last
 * version (a call failed, or lierne_delta_invalidate said so) gets all of its part, the others get
 * changes: every call begins with an all-gather of two numbers per rank, which says who has what.
 *
 * Device memory. In a context for device memory or streams, or with a transport without match ids,
 * control messages carry what changed. In CUDA's memory kernels compare what is sent with the copy
 * of the last call, which stays on the device, and list what changed; on the receiver a kernel
 * writes it. The host sees no more than it sends: values and places, of which it makes the bytes.
 * Calls work on the stream of lierne_delta_set_stream, and wait until it has passed their work:
 * begin for what came before on the stream, too. */
#ifndef LIERNE_DELTA_H
#define LIERNE_DELTA_H

#include "lierne/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lierne_delta lierne_delta;

/* What the last call did on this rank. Set size to sizeof(lierne_delta_report). */
typedef struct lierne_delta_report {
    size_t size;
    int64_t version;        /* of the last call that began; 0: none yet */
    int64_t dense_bytes;    /* that lierne_plan_forward sends from this rank */
    int64_t sent_bytes;     /* that the last call sent: headers of 32 bytes, and what changed */
    int64_t messages;       /* of these, those that had something to say */
    int64_t whole_messages; /* of these, those that went to ranks without the last version */
    int64_t memory_bytes;   /* that this rank keeps beside the plan: about three times what it sends
                               (twice where the caller keeps what it gave) and what it receives; of
                               the device's: twice what it sends, and what it receives */
} lierne_delta_report;

/* Makes a delta of a plan's forward. Collective over the plan's context. The plan cannot be
 * destroyed or changed before the delta is; both may be used in turn. If any rank fails, every rank
 * gets the same error, and *out is NULL. Errors: INVALID (NULL, a plan whose segments change);
 * UNSUPPORTED (a forward that sums, takes more than one stage, or whose output ranks share;
 * streams without events); BUSY (a request of the plan is in flight, or another delta, a coalesced
 * plan or a run holds it); NO_MEMORY; TIMEOUT; PEER_FAILED; TRANSPORT. Thread safety: a context
 * serves one thread at a time. */
LIERNE_API lierne_status lierne_delta_create(lierne_delta **out, lierne_plan *plan);

/* Moves what changed since the last call. Collective over the context, blocking. in and out: as of
 * lierne_plan_forward. Where a rank gives bad arguments, every rank gets an error,
 * and nothing changes. Errors: INVALID (NULL, out also where the plan's may be; buffers that
 * overlap); UNSUPPORTED (buffers of another memory kind; a stream that is captured, missing or not
 * served); MISMATCH (a message that is no encoding of this version: the output then means nothing,
 * and the next call brings all of it; other ranks have theirs; or a header that cannot be, which
 * kills the context); the error that killed the context; TIMEOUT; PEER_FAILED; TRANSPORT. delta
 * NULL: INVALID on this rank alone. Thread safety: a context serves one thread at a time. */
LIERNE_API lierne_status lierne_delta_forward(lierne_delta *delta, void *out, const void *in);

/* The same in two parts, of which the second waits. begin tells who has what, finds the changes and
 * starts to send them: it waits for other ranks to begin, not for their messages; where control
 * messages carry these, for them and for the stream, too. in is the
 * caller's again when it returns; out is borrowed until lierne_delta_forward_end has returned,
 * which all ranks that have begun must call. One call is in flight at once. Errors: as
 * lierne_delta_forward; of begin also BUSY (a call is in flight; this rank started nothing and may
 * call again); of end INVALID also where no call is in flight, on this rank alone. */
LIERNE_API lierne_status lierne_delta_forward_begin(lierne_delta *delta, void *out, const void *in);
LIERNE_API lierne_status lierne_delta_forward_end(lierne_delta *delta);

/* Asks for everything: the next call brings all of this rank's part, as after a digest that differs
 * (lierne/digest.h). Local, not collective. Errors: INVALID (NULL); BUSY (a call is in flight). */
LIERNE_API lierne_status lierne_delta_invalidate(lierne_delta *delta);

/* Gives the next call what `in` held in the call before: in another buffer, of the same elements at
 * the same places. From then on the delta keeps no copy of what this rank sends, and frees the one
 * that it has, so that memory_bytes becomes less; each call then needs previous again, or sends
 * everything. NULL: so does the next call. Messages whose elements are not those that were sent are
 * found by a hash of 64 bits, and go whole: the output is right also where previous is wrong. A
 * call takes a little longer, because both inputs are hashed. previous is borrowed until the next
 * call begins, and is the caller's again when lierne_delta_forward or _begin has returned OK. A
 * rank that sends nothing may call it, too. Local, not collective: ranks need not agree. Errors:
 * INVALID (delta NULL); BUSY (a call is in flight); UNSUPPORTED (memory of a device, where a kernel
 * compares with a packed copy: the caller's values would save none of it). */
LIERNE_API lierne_status lierne_delta_set_previous(lierne_delta *delta, const void *previous);

/* The stream of the next calls, as of lierne_plan_forward; NULL, as it is at first: none. Local,
 * not collective. Errors: INVALID (delta NULL); BUSY (a call is in flight). What a stream cannot do
 * is the error of the next call. */
LIERNE_API lierne_status lierne_delta_set_stream(lierne_delta *delta, void *stream);

/* Local. Errors: INVALID (NULL, report->size). */
LIERNE_API lierne_status lierne_delta_get_report(lierne_delta_report *report,
                                                 const lierne_delta *delta);

/* Frees a delta; the plan stays. Not collective. NULL is allowed. Errors: BUSY (a call is in flight
 * and the context is not dead; nothing is freed). */
LIERNE_API lierne_status lierne_delta_destroy(lierne_delta *delta);

#ifdef __cplusplus
}
#endif
#endif
