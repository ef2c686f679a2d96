/* A plan: two routes, forward and adjoint, computed once and executed any number of times.
 *
 * Planners create plans: lierne/redistribute.h, lierne/bridge.h, lierne/megatron.h,
 * lierne/sparse.h (also from text), lierne/halo.h and lierne/collective.h.
 * lierne_plan_create_transposed and lierne_plan_create_composed create plans from plans. The
 * functions here are the same for all of them.
 *
 * Execution is collective over the ranks of the plan's context: all ranks must call, even ranks
 * without data, in the same order per plan and direction. A buffer has lierne_plan_get_elements()
 * elements of host memory, or of CUDA memory in a context for CUDA memory (lierne/cuda.h). `in` is
 * never written, except through out == in if the planner allows that.
 *
 * Matching. Messages of different plans, directions and requests never match each other: each call
 * has a match id, made of the plan's number, the direction and the number of the call. Transports
 * without match ids (nccl, ipc) match messages in the order in which they are posted. In a context
 * with such a transport all ranks must begin all calls in the same order, across plans and
 * directions. A context that checks (lierne_context_spec) reports ranks that do not.
 *
 * A bad argument on one rank. Calls that create or change a plan return the same error on every
 * rank, and the message names the rank that caused it. Executing calls do the same in a context
 * that checks (lierne_context_spec). Otherwise only this rank gets the error, nothing was started,
 * and the other ranks wait: call again with right arguments. If this rank cannot retry, it calls
 * lierne_context_abort, and the others get its error and message at once, instead of TIMEOUT at
 * their deadline. A rank that passes NULL for the plan always gets INVALID alone.
 *
 * Results are never scaled. Copies are bitwise, integer results are exact. Contributions to a sum
 * are added in the order that the planner's header states: of coordinates on the grid for
 * redistributions and bridges, of ranks and ghosts for rows, of swaps for halos. No order depends
 * on when messages arrive. f16 and bf16 are added in float32 and rounded once, to nearest even (by
 * swaps at each addition: lierne/halo.h). Results have the same bits on every transport and in
 * every run. A sum, product, average, maximum or minimum that is NaN is the canonical NaN, whatever
 * NaNs went in: F64 0x7ff8000000000000, F32 0x7fc00000, BF16 0x7fc0, F16 0x7e00. An element with a
 * single contribution that nothing divides is a copy.
 *
 * Names. The spec of every planner has a name, the same on every rank (else MISMATCH), for people:
 * errors, dumps, logs, traces, summaries (lierne/summary.h) and reports of hangs then say "forward
 * 7 of plan 3 'vision to llm'". LIERNE_MAX_NAME (lierne/status.h) says what a name may be; it is
 * copied.
 *
 * Thread safety: that of the context (lierne/context.h). A plan, its requests and everything made
 * from it are used by one thread at a time. Functions that take a const plan and are marked "not
 * collective" only read it. */
#ifndef LIERNE_PLAN_H
#define LIERNE_PLAN_H

#include "lierne/context.h"
#include "lierne/group.h"
#include "lierne/layout.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lierne_plan lierne_plan;
typedef struct lierne_request lierne_request;

typedef enum lierne_direction {
    LIERNE_DIRECTION_FORWARD = 0,
    LIERNE_DIRECTION_ADJOINT = 1
} lierne_direction;

/* Who sends what in a redistribution or a bridge. Results have the same bits in every case, and all
 * ranks together move as few bytes. */
typedef enum lierne_routing {
    /* BALANCED if it takes less time by the links of the context (lierne_context_spec), otherwise
     * DIRECT. lierne_report has both times. */
    LIERNE_ROUTING_AUTO = 0,
    LIERNE_ROUTING_DIRECT = 1, /* a rank receives all elements that it needs of a holder from it */
    /* The busiest rank sends as little as possible: several holders each send a part of what one
     * rank needs, and ranks that need the same elements each receive a part and pass it on. More
     * messages, and up to two more stages. */
    LIERNE_ROUTING_BALANCED = 2
} lierne_routing;

/* The directions whose output buffer the plan owns. Ranks of one node that need the same elements
 * (such as the tp replicas of a dp rank) then share one output in memory of the node. Each of them
 * writes a part, so that each byte is written once per node and not once per rank. Calls pass out
 * NULL, and lierne_plan_get_shared_output returns the result. Ranks share if the context has the
 * shm transport (docs/transports.md). Otherwise (a world of one rank, a simulated world, MPI alone,
 * a rank without replicas on its node) the output is memory of this rank's plan, with the same
 * calls.
 *
 * Only read the result. It stays valid until this rank begins the plan's next call of that
 * direction, or updates or destroys the plan, whatever the other ranks do. The bits are those of a
 * plan that does not share. Such a plan needs memory for two outputs per node, cannot be coalesced,
 * transposed or composed, and reports no lower bound for that direction (min_bytes 0). The route of
 * that direction writes this rank's part of out only; its last stage is a barrier of the ranks that
 * share. */
typedef enum lierne_sharing {
    LIERNE_SHARING_NONE = 0,
    LIERNE_SHARING_FORWARD = 1,
    LIERNE_SHARING_ADJOINT = 2,
    LIERNE_SHARING_BOTH = 3
} lierne_sharing;

/* How values are combined: lierne_plan_reduce takes MAX and MIN, lierne/collective.h all of them.
 */
typedef enum lierne_reduction {
    LIERNE_REDUCTION_SUM = 0,
    LIERNE_REDUCTION_MAX = 1,
    LIERNE_REDUCTION_MIN = 2,
    LIERNE_REDUCTION_PROD = 3,
    LIERNE_REDUCTION_AVG =
        4 /* the sum divided by the number of contributions; floating-point types only */
} lierne_reduction;

/* Frees a plan; not collective. NULL is allowed. If the context is dead, buffers of requests that
 * were in flight stay borrowed (lierne/context.h). Errors: BUSY (a request is in flight and the
 * context is not dead, or coalesced plans or a run hold it; nothing is freed). */
LIERNE_API lierne_status lierne_plan_destroy(lierne_plan *plan);

/* The context that the plan was made in; NULL for NULL. Not collective. */
LIERNE_API lierne_context *lierne_plan_get_context(const lierne_plan *plan);

/* The dtype of the plan's buffers. Not collective. Errors: INVALID (NULL). */
LIERNE_API lierne_status lierne_plan_get_dtype(lierne_dtype *dtype, const lierne_plan *plan);

/* The planner that created the plan: "redistribute", "set", "bridge", "megatron", "graph",
 * "references" (flattened plans too), "migration", "halo" (restricted plans too), "all_gather",
 * "reduce_scatter", "all_reduce", "broadcast", "all_to_all", "barrier", "packed_bridge",
 * "transposed", "composed", "retyped", "fetch_and_add". Static storage; NULL for NULL. Not
 * collective. */
LIERNE_API const char *lierne_plan_get_kind(const lierne_plan *plan);

/* The kind of memory of the plan's buffers: "host" or "cuda". Static storage; NULL for NULL. Not
 * collective. */
LIERNE_API const char *lierne_plan_get_memory_kind(const lierne_plan *plan);

/* The number by which messages, dumps and traces name the plan ("forward 6 of plan 3"): the same on
 * every rank, higher for later plans of a context; -1 for NULL. Not collective. */
LIERNE_API int lierne_plan_get_number(const lierne_plan *plan);

/* The name that the spec gave the plan, which owns it; NULL without one, and for NULL. A
 * transposed, flattened or restricted plan has the name of its plan; a composed one, and one made
 * from text, have none. Not collective.
 */
LIERNE_API const char *lierne_plan_get_name(const lierne_plan *plan);

/* Number of elements of this rank's input and output buffer in a direction. The adjoint's input is
 * the gradient of the forward's output. in or out may be NULL. Not collective. Errors: INVALID
 * (plan is NULL, direction). */
LIERNE_API lierne_status lierne_plan_get_elements(int64_t *in, int64_t *out,
                                                  const lierne_plan *plan,
                                                  lierne_direction direction);

/* Shape of this rank's buffers, in elements per axis: *naxes sizes each; in and out have space for
 * LIERNE_MAX_AXES. Any of the three may be NULL. Not collective. Errors: INVALID (plan is NULL,
 * direction). */
LIERNE_API lierne_status lierne_plan_get_shape(int *naxes, int64_t *in, int64_t *out,
                                               const lierne_plan *plan, lierne_direction direction);

/* Computes out = F in. Collective; blocking; equal to lierne_plan_forward_begin and
 * lierne_request_end. stream must be NULL for host memory, a cudaStream_t for CUDA memory
 * (lierne/cuda.h); otherwise, and for a device pointer in a context for host memory, UNSUPPORTED.
 * in and out are this rank's buffers; either may be NULL if it has no elements; out may also be
 * NULL if lierne_plan_get_alias gives an offset, and must be NULL if the plan owns the output
 * (lierne_sharing). They must not overlap; out == in is allowed for all-reduces
 * (lierne/collective.h) and plans with one combined buffer (lierne/sparse.h, lierne/halo.h).
 * Errors: INVALID (arguments); BUSY (max_inflight requests are in flight; this rank started nothing
 * and may call again); MISMATCH (only where the context checks: ranks called differently);
 * NO_MEMORY (transports that need memory per message: sim, and MPI above 1 GiB per message);
 * TIMEOUT, PEER_FAILED, TRANSPORT. After NO_MEMORY and the last three the context is dead, and in
 * and out stay borrowed until MPI_Finalize (lierne/context.h). */
LIERNE_API lierne_status lierne_plan_forward(lierne_plan *plan, void *out, const void *in,
                                             void *stream);
/* Computes out = F* in, the exact adjoint. Otherwise as lierne_plan_forward; INVALID also for a
 * plan that has no adjoint (products, maxima and minima of lierne/collective.h): every function
 * here that takes a direction rejects that one with the reason. */
LIERNE_API lierne_status lierne_plan_adjoint(lierne_plan *plan, void *out, const void *in,
                                             void *stream);

/* Starts an execution. The request borrows both buffers until lierne_request_end has returned: do
 * not write in, and neither read nor write out but for what lierne_halo_get_split says. *request
 * belongs to the plan and is ended by lierne_request_end; it is NULL on failure. Otherwise as
 * lierne_plan_forward; BUSY means that max_inflight requests of the direction are in flight, or one
 * that was begun 64 calls ago; INVALID also if request is NULL. */
LIERNE_API lierne_status lierne_plan_forward_begin(lierne_request **request, lierne_plan *plan,
                                                   void *out, const void *in, void *stream);
LIERNE_API lierne_status lierne_plan_adjoint_begin(lierne_request **request, lierne_plan *plan,
                                                   void *out, const void *in, void *stream);
/* Waits until a request is complete and ends it, also on failure. All ranks must call. NULL is
 * allowed. Requests may be ended in any order, which may differ between ranks: waiting on any
 * request progresses all of them. A request that has ended must not be used. Errors: TIMEOUT,
 * PEER_FAILED, TRANSPORT (the context is dead, and the request's buffers stay borrowed until
 * MPI_Finalize: lierne/context.h); INVALID (the request has ended already; this rank's error
 * alone); in a simulated world that checks also INVALID, BUSY or MISMATCH of ranks that called
 * later (the context is dead). */
LIERNE_API lierne_status lierne_request_end(lierne_request *request);

/* Tests a request without waiting: *done becomes 1 if lierne_request_end would return at once, else
 * 0. Progresses everything in flight in the context. The request must still be
 * ended with lierne_request_end. Deadlines and failed peers count as in lierne_request_end, so a
 * loop of tests never runs forever. In a simulated world of one thread, test the requests of all
 * ranks in turn. Not collective. Errors: INVALID (NULL, the request has ended), and those of
 * lierne_request_end. */
LIERNE_API lierne_status lierne_request_test(int *done, lierne_request *request);

/* Reduces the adjoint's in into out with max or min instead of sum: out[i] becomes the maximum
 * (minimum) of out[i] and all ghosts of row i. With one combined buffer in[i] takes the place of
 * out[i], and ghost rows become what the adjoint makes of them. For plans of rows (lierne/sparse.h,
 * lierne/halo.h). Has no adjoint. A NaN wins. Collective; blocking. Errors: as lierne_plan_adjoint,
 * and INVALID (a plan of another kind, a reduction that is neither MAX nor MIN). */
LIERNE_API lierne_status lierne_plan_reduce(lierne_plan *plan, lierne_reduction reduction,
                                            void *out, const void *in, void *stream);

/* Creates the transposed plan: its forward is this plan's adjoint and its adjoint this plan's
 * forward. Collective. The new plan is the caller's and independent of the old one. Errors: INVALID
 * (NULL, a plan that accumulates or has no adjoint), NO_MEMORY, MISMATCH, TIMEOUT, PEER_FAILED,
 * TRANSPORT; *out is NULL then. */
LIERNE_API lierne_status lierne_plan_create_transposed(lierne_plan **out, const lierne_plan *plan);

/* Creates the plan that executes first and then second, without a buffer of the caller between
 * them; its adjoint executes the adjoint of second, then that of first. Collective. Both plans need
 * the same context and dtype; on every rank the output of first must have as many elements as the
 * input of second, and, where rows have gaps between them (stride above width), the same shape. The
 * new plan is the caller's and independent of both; it reports no lower bound (min_bytes 0), and
 * has an adjoint if both have one. Errors: INVALID (NULL, another context, dtype or size, a plan
 * that accumulates, one that reads what the one before it leaves as it was, as a packed bridge
 * leaves text rows and LIERNE_PADDING_KEEP leaves padding), NO_MEMORY, MISMATCH, TIMEOUT,
 * PEER_FAILED, TRANSPORT; *out is NULL then. */
LIERNE_API lierne_status lierne_plan_create_composed(lierne_plan **out, const lierne_plan *first,
                                                     const lierne_plan *second);

/* Rows of another type for a plan. Begin with LIERNE_RETYPED_SPEC_INIT, or set size to
 * sizeof(lierne_retyped_spec), width to 1 and the rest to zero. */
typedef struct lierne_retyped_spec {
    size_t size;
    lierne_dtype dtype;
    int64_t width;      /* elements of a row, at least 1 */
    int64_t in_stride;  /* elements from a row to the next, at least width, in the forward's in and
                           the adjoint's out; 0: width. May differ between ranks */
    int64_t out_stride; /* the same in the forward's out and the adjoint's in */
    int max_inflight;   /* requests in flight per direction, 1 to 64; 0: as many as `like` */
    const char *name;   /* see lierne/plan.h (Names); NULL: none */
} lierne_retyped_spec;
#define LIERNE_RETYPED_SPEC_INIT                                                                   \
    { .size = sizeof(lierne_retyped_spec), .width = 1 }

/* Creates a plan that moves the rows that `like` moves, as rows of another dtype, width and
 * strides: positions, species and charges of atoms need one neighbor list, planned once (PetscSF
 * takes the unit with each call). like: a plan of rows (lierne/sparse.h, lierne/halo.h), whose rows
 * are those of its spec, or one of lierne_plan_create_redistribute or lierne_plan_create_bridge in
 * which no layout divides the last axis: an index of the others is a row, of as many elements as
 * that axis is long. Strides above the width take a part of each row of a larger array: three
 * coordinates of atoms whose struct has eight numbers. Everything else is as in `like`, algorithm
 * and order of sums too. in and out may be one buffer where `like` allows it and the strides are
 * equal.
 *
 * Collective; the ranks agree and exchange nothing else, and wait for one another where planning
 * `like` did. The new plan shares the lists of `like` and is otherwise independent: either may be
 * destroyed first, and the new plan keeps its rows where `like` is updated. It has no lists of its
 * own (lierne_plan_get_graph_lists), cannot be serialized or updated, and is of kind "retyped"; its
 * report has no estimated times. Coalesced with `like`, both travel in one message per peer. dtype,
 * width and max_inflight must be the same on every rank. Errors: INVALID (NULL, size, width,
 * strides, dtype, max_inflight; `like` is of another kind, divides the last axis, owns an output,
 * or has segments that change; a dtype without sums for a plan that sums; balanced routes or shares
 * of a sum that end within a row), OVERFLOW, NO_MEMORY, MISMATCH, TIMEOUT, PEER_FAILED, TRANSPORT;
 * *out is NULL then. */
LIERNE_API lierne_status lierne_plan_create_retyped(lierne_plan **out, const lierne_plan *like,
                                                    const lierne_retyped_spec *spec);

/* Gives a retyped plan the rows that `like` has now, reusing its memory; dtype, width, strides and
 * max_inflight stay. For plans made like one of a graph or a migration, after that was updated.
 * Collective; the ranks agree and exchange nothing else; no request may be in flight, and no
 * coalesced plans may hold the plan. If any rank fails, every rank gets the same error and keeps
 * the old rows. Errors: BUSY; INVALID also for a plan that is not retyped, and for a plan of
 * another context; otherwise as lierne_plan_create_retyped. */
LIERNE_API lierne_status lierne_plan_update_retyped(lierne_plan *plan, const lierne_plan *like);

/* Gives a plan of lierne_plan_create_bridge or lierne_plan_create_redistribute another shape for
 * the next calls, such as a batch of another size. shape: a global size per axis of the plan, as
 * many as lierne_plan_get_shape says (three for a bridge with rows_per_sample), the same on every
 * rank; copied. Grids, placements, dtype and max_inflight stay. Buffers get the sizes of the new
 * shape: ask lierne_plan_get_shape again. Collective; the ranks agree and exchange nothing else; no
 * request may be in flight, and no coalesced plans may hold the plan. The memory of the plan is
 * reused: from the third call on, a shape that is no larger than those before allocates neither
 * scratch nor staging memory. If any rank fails, every rank gets the same error and keeps the
 * old shape. A row map stays, with the sizes of the axes that it indexes. Errors: INVALID (NULL; a
 * plan of another kind, or with variable_rows; another size of an axis that a row map indexes or
 * that is packed;
 * counts that do not add up to the new size; a shape that the creating function rejects),
 * INDIVISIBLE, BUSY, MISMATCH, OVERFLOW, NO_MEMORY, TIMEOUT, PEER_FAILED, TRANSPORT. */
LIERNE_API lierne_status lierne_plan_update_shape(lierne_plan *plan, const int64_t *shape);

/* The grids of a plan that is made again. Set size to sizeof(lierne_recreate_spec) and the rest to
 * zero first. */
typedef struct lierne_recreate_spec {
    size_t size;
    /* Of the source and of the destination; layouts of the adjoint that the old plan had lie on
     * the same two. The view has as many dims as the old one, in the same order, of any sizes:
     * placement d of the old layout is that of its dim d. A bridge names its dims, so that without
     * placements of its own the order does not matter. */
    const lierne_grid *src;
    const lierne_grid *dst;
    const char *src_view; /* NULL: "base" */
    const char *dst_view;
    lierne_group *group; /* of the new context, see lierne/group.h (Domains); NULL: none */
} lierne_recreate_spec;

/* Makes a plan that moves what old moves, between other grids and in another context: after
 * lierne_context_shrink (lierne/node.h), on the ranks that are left. Kinds: bridge (also with
 * variable_rows, whose counts begin anew) and redistribute. All other kinds follow from more than
 * grids (rows and lists of ranks, places in buffers, packings), and are made anew by the caller.
 *
 * Tensor, dtype, placements, owners, routing, max_inflight, max_peers and name are those that old
 * has now, also after lierne_plan_update_shape and lierne_plan_update_rows. Where a size of a dim
 * changes, what was given for each of its coordinates no longer fits: counts, windows of a halo
 * (starts), a coordinate of AT and an owner of a row map that are out of range are errors.
 *
 * Collective over context. old is not changed; it and its context may be dead, and must not be
 * destroyed before the call returns. The ranks compare what they compare in lierne_plan_create_
 * bridge or lierne_plan_create_redistribute: a rank that has no old plan, because its process has
 * just joined, makes that call instead, with an equal spec. If any rank fails, every rank gets the
 * same error, no plan exists, and *out is NULL. The grids may be freed after the call. Errors:
 * those of that function, and INVALID (NULL, spec->size; dims that do not fit; counts or placements
 * of dims whose size or name differs), UNSUPPORTED (another kind; a plan with max_segments; a
 * layout with a packing, or of survivors). Thread safety: a context serves one thread at a time. */
LIERNE_API lierne_status lierne_plan_recreate(lierne_plan **out, lierne_context *context,
                                              const lierne_plan *old,
                                              const lierne_recreate_spec *spec);

/* Whether this rank's result is a contiguous part of its input: *offset is its first element there,
 * or -1 if it is not. With an offset, call the direction with out NULL, which copies nothing, and
 * read the result from in + *offset. A packed result whose padding rows are set to zero is no
 * alias; with LIERNE_PADDING_KEEP they have what they have in the input. Not collective. Errors:
 * INVALID (NULL, direction). */
LIERNE_API lierne_status lierne_plan_get_alias(int64_t *offset, const lierne_plan *plan,
                                               lierne_direction direction);

/* The result of this rank's last call of a direction, for a plan that owns its output
 * (lierne_sharing, which says how long it is valid). If the call is in flight, the result is there
 * once it has ended. *out is NULL before the first call, and if this rank has no output. Read only.
 * Not collective.
 * Errors: INVALID (NULL, direction, an output that is the caller's); *out is NULL then. */
LIERNE_API lierne_status lierne_plan_get_shared_output(const void **out, const lierne_plan *plan,
                                                       lierne_direction direction);

/* The cost of one execution for this rank. Bytes are payload. Over all ranks, sent and received
 * numbers are equal. */
typedef struct lierne_report {
    size_t size;        /* sizeof(lierne_report), set by the caller; filled as far as it goes */
    int64_t sent_bytes; /* to other ranks */
    int64_t received_bytes;
    int64_t local_bytes; /* copied from in to out on this rank */
    int64_t min_bytes;   /* this rank's share of the bytes that all ranks together must receive
                            under any schedule */
    int64_t sent_messages;
    int64_t received_messages;
    int64_t stages;
    int64_t scratch_bytes; /* per request in flight: sums, and messages that must be packed */
    int64_t groups; /* rank groups of the plan's algorithm (Megatron-LM's) with this rank as a
                       member; they count in max_groups (lierne/context.h) */
    const char *algorithm; /* "direct", "balanced" (lierne_routing), "collective", "leader"; of rows
                              also "all_gather", "swaps"; "composed"; of collectives also
                              "one_shot", "two_shot", "dissemination". Static storage */
    const char *transports; /* the transports of the direction's messages on this rank, as "mpi" or
                               "shm,mpi"; "" without messages. Belongs to the plan */
    int64_t host_bytes;     /* sent and received bytes that go through host memory because their
                               transport cannot read device memory; 0 for host memory */
    /* Estimated times of the two routings that AUTO compared, by the context's links
     * (lierne_context_spec). Both are 0 if it compared none: the routing was given, or all ranks
     * that exchange data are on one node whose links cost nothing. Ranks that exchange no data,
     * directly or through others, may have different estimates. */
    int64_t direct_ns;
    int64_t balanced_ns;
    int64_t window_bytes; /* sent bytes that are copied into a window because receivers cannot read
                             the sender's buffer (transport ipc) */
    int64_t sent_peers;   /* ranks that this one sends to */
    int64_t received_peers;
    /* Of a plan with max_peers (lierne_redistribute_spec), else 0: the most peers that any rank may
     * have in any call, and received bytes that this rank sends on. */
    int64_t most_peers;
    int64_t forwarded_bytes;
} lierne_report;
/* Fills *report for a direction. Not collective. Errors: INVALID (NULL, direction, report->size).
 */
LIERNE_API lierne_status lierne_plan_get_report(lierne_report *report, const lierne_plan *plan,
                                                lierne_direction direction);

/* Writes the route of a direction as text, a line per message and operation. Blocks are slices as
 * Python has them: in[8:16] are the elements 8 to 15, in[8:15:2] every second one, and
 * in[8 + 4/16 x 2] are four times 2 elements, the first at 8, each 16 after the one before. Free
 * *text with lierne_text_destroy. Not collective. Errors: INVALID (NULL, direction), NO_MEMORY.
 */
LIERNE_API lierne_status lierne_plan_print(char **text, const lierne_plan *plan,
                                           lierne_direction direction);
/* Frees a text that a function of lierne returned. NULL is allowed. Thread-safe. */
LIERNE_API void lierne_text_destroy(char *text);

/* Checks plans without executing them. plans: those of ranks 0 to n-1 of one world, all of them in
 * order, those of all members of a context, in order, or a single one of any rank (n = 1). Checked:
 * every block lies within its buffer; each element of the output that the planner promises is
 * written by exactly one operation; nothing is read before it is written; no receive or copy writes
 * what its stage sends, receives or copies; with the plans of all ranks, every message has its
 * counterpart with as many elements. Needs memory in proportion to the
 * buffers. Not collective. Errors: INVALID (NULL, another number or order of plans; or a check
 * failed: the message names rank, direction, stage and what is wrong), NO_MEMORY. */
LIERNE_API lierne_status lierne_plan_check(const lierne_plan *const *plans, int n);

/* Coalesced plans: several plans executed together, between one begin and one end. Their messages
 * to the same rank travel as one message. An audio and a vision encoder that both feed one language
 * model then send one round of messages instead of two. The results have the same bits as those of
 * the plans executed one by one.
 *
 * The plans stay the caller's and may also be executed on their own. While coalesced plans hold
 * them, they can be neither destroyed nor updated (BUSY). Only plans with max_segments
 * (lierne/redistribute.h) and those of samples (lierne/samples.h) may be updated between calls,
 * which then move what was updated; not during a call, nor after one that was captured into a
 * graph. Such plans are coalesced with each other, and are between the same ranks. Those of a
 * migration are updated together: lierne_coalesced_update_migration (lierne/sparse.h). */
#define LIERNE_MAX_COALESCED 64 /* plans held by one lierne_coalesced */

typedef struct lierne_coalesced lierne_coalesced;

/* Coalesces n plans of one context, given in the same order on every rank. plans itself may be
 * freed afterwards. Collective; on any rank's failure every rank gets the same error, and *out is
 * NULL. Errors: INVALID (NULL, n not in 1 to LIERNE_MAX_COALESCED, plans of different contexts,
 * plans with max_segments and others, or between other ranks, plans of samples whose spec has
 * max_local_items 0),
 * MISMATCH (the ranks' plans differ, or their order), NO_MEMORY, TIMEOUT, PEER_FAILED, TRANSPORT.
 * The context is that of the first plan that is not NULL. A rank whose plans are all NULL gets
 * INVALID alone, and the others get TIMEOUT. */
LIERNE_API lierne_status lierne_coalesced_create(lierne_coalesced **out, lierne_plan *const *plans,
                                                 int n);

/* Frees the coalesced plans. The plans themselves stay the caller's. Not collective. NULL is
 * allowed. Errors: BUSY (an execution is in flight, and the context is not dead; nothing is freed).
 */
LIERNE_API lierne_status lierne_coalesced_destroy(lierne_coalesced *coalesced);

/* Starts all plans in one direction. out and in have n entries: out[i] and in[i] are the buffers of
 * plan i, under the rules of lierne_plan_forward; all are borrowed until lierne_coalesced_end has
 * returned, the two arrays themselves are not. Each direction may be in flight once, both at the
 * same time. Collective. stream: as lierne_plan_forward. Errors: as lierne_plan_forward_begin;
 * INVALID also for a direction that does not exist. */
LIERNE_API lierne_status lierne_coalesced_begin(lierne_coalesced *coalesced,
                                                lierne_direction direction, void *const *out,
                                                const void *const *in, void *stream);
/* Waits until the execution of a direction is complete and ends it. All ranks must call. Errors:
 * INVALID (NULL, direction, nothing is in flight: this rank's error alone, which may call again),
 * and those of lierne_request_end. */
LIERNE_API lierne_status lierne_coalesced_end(lierne_coalesced *coalesced,
                                              lierne_direction direction);

/* Number of messages that this rank sends and receives in one execution; sent or received may be
 * NULL. Not collective. Errors: INVALID (coalesced is NULL, direction). */
LIERNE_API lierne_status lierne_coalesced_get_messages(int64_t *sent, int64_t *received,
                                                       const lierne_coalesced *coalesced,
                                                       lierne_direction direction);

#ifdef __cplusplus
}
#endif
#endif
