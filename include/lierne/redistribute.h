/* Redistribution: moves a tensor from one layout to another, and gradients back. This is the
 * central operation of lierne. Source and destination are layouts (lierne/layout.h) on any two
 * grids of one world: the same ranks, disjoint ones, or some in common; any dims of any name, any
 * views, 1 to LIERNE_MAX_AXES axes. lierne/bridge.h is a preset of it for an encoder and an LLM.
 *
 * Each rank receives the elements that its destination buffer needs and its source buffer does not
 * hold, once. Where several ranks hold an element (REPLICATE), a rank that holds it itself copies
 * it; otherwise it comes from a holder on the same node if there is one, and holders take turns.
 * Where the source is PARTIAL, the contributions of an element are summed in ascending order of
 * their coordinates (of several PARTIAL dims the first dim runs fastest). Each rank that needs the
 * element sums for itself, or, where that moves more elements, one of them sums and sends the sum
 * to the others.
 *
 * PARTIAL at a destination is rejected: a value has no natural division into contributions.
 *
 * Layouts may be packed (lierne/packing.h), on either side or both: token t moves to where the
 * destination has it, padded or not, whichever way either side cuts it. Both must have the same
 * cu_seqlens; an axis without a packing has the same number of indices and counts as equal. No
 * padding moves. Padding rows of an output are set to zero or kept, as the packing of that side
 * says; rows of a full buffer that are another rank's are never touched.
 *
 * Layouts may have halos (lierne/dense_halo.h). Of a source, cores are read and margins are not;
 * the adjoint sets its margins to zero. A destination's margins are filled in the same exchange: a
 * rank receives each element that its positions show and its source does not hold once, in one
 * message from each rank that sends to it, however wide margins are; images are copied from it
 * afterwards. If both layouts are the same and hold their cores, out == in is allowed: forward then
 * writes the margins only.
 *
 * Survivors. A source may be a layout of the ranks that are left after deaths
 * (lierne_layout_create_surviving). What one of them holds moves as above, from the replicas that
 * are left. An element of a destination that is lost is not written: its output keeps what it has,
 * which the caller loads, before or after the call; lierne_redistribute_find_lost says which. The
 * adjoint leaves the gradients of lost elements out. Such a plan moves as DIRECT.
 *
 * The adjoint of a destination with halos adds. The gradient of an element is that of its core
 * position, if the buffer has cores, and then, in ascending order of ranks, one term from each rank
 * that has other positions of it (of replicas the first rank counts, and one of them sends). A term
 * is the sum of the gradients at these positions in the order of the buffer, rounded to the dtype;
 * the whole sum is rounded once. What is zero or kept has no element, and its gradient is dropped.
 * An element that no position shows gets zero. A rank that sends several positions of an element
 * adds them first, in a stage of its own. A plan with an opaque dtype has no adjoint. */
#ifndef LIERNE_REDISTRIBUTE_H
#define LIERNE_REDISTRIBUTE_H

#include "lierne/group.h"
#include "lierne/layout.h"
#include "lierne/plan.h"
#include "lierne/route.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The route of one rank from layout src to layout dst: `in` is the rank's buffer under src, `out`
 * its buffer under dst. A rank that holds nothing under a layout has no elements there. The routes
 * of all ranks of the world fit together when each is made from equal layouts and nodes.
 *
 * *route is NULL on failure; free it with lierne_route_destroy. It keeps nothing of the layouts.
 * min_elements, which may be NULL: this rank's share of the elements that all ranks together must
 * receive at least, whatever the algorithm. nodes: the node of every rank of the world, or NULL:
 * all on one node. Pure: not collective; may run in many threads at once. Costs time and memory in
 * proportion to the ranks that hold or need elements that this rank holds or needs, its replicas
 * included, and under SHARD_ROWS to the indices that it holds or needs; with a packing also to the
 * segments, for each of these ranks. Where R replicas send to
 * N ranks that hold nothing of it, each replica takes time in proportion to R * N.
 * With a halo, the number of positions outside of the axis that are reflected or replicated counts
 * as well, because each is copied by itself.
 * Errors: INVALID (NULL; layouts of different shape, dtype, world size or segments; rank not in the
 * world); UNSUPPORTED (a PARTIAL dim in dst; a src without cores; a halo and a packing);
 * NO_MEMORY. */
LIERNE_API lierne_status lierne_route_create_redistribute(lierne_route **route,
                                                          int64_t *min_elements,
                                                          const lierne_layout *src,
                                                          const lierne_layout *dst, int rank,
                                                          const int *nodes);

/* The boxes of a rank's buffer under dst that a redistribution from src, a layout of survivors,
 * does not write: what the caller must load, from global indices [start, start + size) to the local
 * indices of the buffer. Disjoint, joined and in the order of lierne_layout_find_lost. None if src
 * is another layout, or rank holds nothing under dst. Writes their number into count and, unless
 * boxes is NULL, the first `capacity` of them into boxes, which is the caller's. Pure. Errors:
 * INVALID (NULL; layouts of different shape, dtype, world size or segments); UNSUPPORTED (a PARTIAL
 * dim in dst, a halo, a dst of survivors); NO_MEMORY. */
LIERNE_API lierne_status lierne_redistribute_find_lost(lierne_box *boxes, size_t capacity,
                                                       size_t *count, const lierne_layout *src,
                                                       const lierne_layout *dst, int rank);

/* Lower bounds, in bytes, of what the busiest rank receives (*received) and sends (*sent) in a
 * redistribution from src to dst, under any schedule in which all ranks together receive the fewest
 * bytes. Receivers may pass data on, as under LIERNE_ROUTING_BALANCED. Both are exact without
 * PARTIAL. With PARTIAL, or if more than 1,024 overlaps of cells are connected over ranks that they
 * share, *sent may be lower than any schedule reaches. Pure: not collective;
 * may run in many threads at once. Costs time in proportion to the world. Errors: INVALID (NULL;
 * layouts of different shape, dtype or world size); UNSUPPORTED (a PARTIAL dim in dst, a
 * halo); NO_MEMORY. */
LIERNE_API lierne_status lierne_redistribute_get_bound(int64_t *received, int64_t *sent,
                                                       const lierne_layout *src,
                                                       const lierne_layout *dst);

/* Lower bounds, in bytes, of the traffic between nodes: lierne_redistribute_get_node_bound. */
typedef struct lierne_node_bound {
    size_t size;                 /* sizeof(lierne_node_bound), set by the caller */
    int64_t between_bytes;       /* all nodes together receive from others */
    int64_t received_bytes;      /* the busiest node receives from others */
    int64_t sent_bytes;          /* the busiest node sends to others */
    int64_t rank_received_bytes; /* the busiest rank receives from other nodes */
} lierne_node_bound;

/* Computes lower bounds of the traffic between nodes when a tensor moves from src to dst. nodes:
 * the node of every rank of the world, any numbers. An element that a node needs and does not hold
 * enters it once, through any of its ranks that need it, and nodes may pass elements on. Without
 * PARTIAL each bound is reached by some schedule, though perhaps not all by the same one. With
 * PARTIAL, and for sent_bytes and rank_received_bytes if more than 1,024 overlaps of cells cross
 * between nodes, no schedule may reach them. Pure: not collective; may run in many
 * threads at once. Costs time and memory in proportion to the ranks and to the overlaps of cells,
 * times the nodes of each. On failure *bound is unchanged. Errors: INVALID (NULL, bound->size;
 * layouts of different shape, dtype or world size); UNSUPPORTED (a PARTIAL dim in dst, a
 * halo); NO_MEMORY. */
LIERNE_API lierne_status lierne_redistribute_get_node_bound(lierne_node_bound *bound,
                                                            const lierne_layout *src,
                                                            const lierne_layout *dst,
                                                            const int *nodes);

/* A redistribution to plan. Set size to sizeof(lierne_redistribute_spec) and the rest to zero
 * first. All layouts are of one shape and dtype, on grids whose world is the context's. All ranks
 * of the grids must be its members. Layouts must be the same on every rank. */
typedef struct lierne_redistribute_spec {
    size_t size;
    const lierne_layout *src; /* forward moves from src to dst */
    const lierne_layout *dst;
    /* The adjoint moves from adjoint_src (the gradient of the output) to adjoint_dst (the gradient
     * of the input). Both or neither.
     * Neither: the adjoint moves from dst to src. A value that dst replicates is one variable with
     * one gradient, which all its replicas hold: one of them is taken, nothing is summed. A PARTIAL
     * dim of src is taken as REPLICATE: each rank that held a contribution gets the whole gradient.
     * This is the exact adjoint of forward where replicas count once.
     * Both: for gradients that lie in another way, such as PARTIAL over a dim on which dst is
     * REPLICATE. Whether this is the adjoint of forward is the caller's responsibility. */
    const lierne_layout *adjoint_src;
    const lierne_layout *adjoint_dst;
    int max_inflight;             /* requests in flight at once per direction; 0 means 1 */
    lierne_routing routing;       /* with shared_output or halos AUTO or DIRECT: moved as DIRECT */
    lierne_sharing shared_output; /* needs max_inflight 0 or 1 */
    lierne_group *group;          /* see lierne/group.h (Domains); NULL: the context's own domain */
    /* For packed sequences (lierne/packing.h) whose segments change: lierne_plan_update_segments.
     * The most segments, and the most rows of the packed axis in the buffer of any rank. Memory
     * that other ranks reach cannot grow, so planning reserves what these need: staging slots for
     * all rows that a rank sends and receives, over shared memory taken at once in memory that
     * the ranks share, and lists in proportion to the segments. Both or neither; 0: the segments
     * never change. Such a plan moves as DIRECT, its messages are packed, or read where the sender
     * has them. It can be coalesced with plans like it (lierne/plan.h), but not composed or
     * transposed. Contributions of a PARTIAL src are sent to every rank that needs their sum, and
     * added there, with the bits of a plan whose segments never change. */
    int64_t max_segments;
    int64_t max_rows;
    /* The most ranks with which any rank exchanges messages in a direction; 0: any number. Every
     * peer costs memory (buffers of NCCL, connections), and a direct route has up to n - 1 of them,
     * n the ranks of both grids. Where some rank needs more than max_peers, the ranks stand in a
     * square, ascending, row by row, of C = ceil(sqrt(n)) columns and R = ceil(n / C) rows. What
     * goes from one rank to another that shares neither its row nor its column stops over at a
     * third. Then no rank has more than C - 1 + R - 1 peers, fewer than 2 sqrt(n), no byte travels
     * more than twice, and a stage becomes two; the bits stay the same. With max_segments, where
     * peers come and go, ranks relay unless n - 1 is at most max_peers. Planning takes about
     * 2 sqrt(n) times as long. lierne_report says what became of it. */
    int max_peers;
    const char *name; /* see lierne/plan.h (Names); NULL: none */
    /* Of a dst with margin storage: nonzero: the adjoint adds the gradients of margins to what its
     * out holds, the gradient of the part. 0: it overwrites out. */
    int accumulate;
} lierne_redistribute_spec;

/* Plans a redistribution. Collective over the context: every rank calls with the same spec. If any
 * rank fails, every rank gets the same error, no plan exists, and *out is NULL. The spec
 * and its layouts may be freed after the call. The plan is used through lierne/plan.h.
 * Errors: INVALID (NULL, spec->size, one adjoint layout without the other, layouts of different
 * shape, dtype, world size or segments, a world size that is not the context's, a grid with a rank
 * that is no member, max_inflight, routing, shared_output, max_segments or max_rows below 0 or one
 * without the other, max_segments with two layouts without a packing, max_peers below 0, accumulate
 * without margin storage in dst);
 * UNSUPPORTED (a PARTIAL dim in dst or adjoint_dst; a src with margin storage or with windows
 * without cores; a halo together with layouts for the adjoint, BALANCED, shared_output,
 * max_segments, or a packing on the other side; a src of survivors together with layouts for the
 * adjoint, BALANCED, shared_output, max_segments, max_peers or a dst with a halo; a dst of
 * survivors; shared_output in a context for device memory;
 * a max_peers that is too low, where the message has the lowest; max_peers with shared_output; with
 * max_segments: layouts for the adjoint, BALANCED, shared_output, counts or rows that divide the
 * packed axis, ranks that only ipc connects); CAPACITY (the layouts exceed max_segments or
 * max_rows); MISMATCH (ranks disagree on the spec; the message names the field, as
 * src.dim[0].size or dst.dim[1].counts); NO_MEMORY; TIMEOUT; PEER_FAILED; TRANSPORT. Thread safety:
 * a context serves one thread at a time. */
LIERNE_API lierne_status lierne_plan_create_redistribute(lierne_plan **out, lierne_context *context,
                                                         const lierne_redistribute_spec *spec);

/* The next segments of a plan, and how either side packs them. Set size to
 * sizeof(lierne_segments_update). */
typedef struct lierne_segments_update {
    size_t size;
    const lierne_segments *segments;
    const lierne_packing *src; /* NULL where the layout has no packing: its axis has T indices */
    const lierne_packing *dst;
    /* Of a packed bridge (lierne/packed_bridge.h): the images, which src packs, and the runs that
     * join them with the segments, which dst packs. Otherwise NULL. */
    const lierne_segments *images;
    const lierne_image_run *runs;
    int64_t nruns;
} lierne_segments_update;

/* Replaces the segments of a plan with max_segments, and both packings; of a packed bridge also the
 * images and the runs: for the next microbatch, whose sequences have other lengths. store, padding
 * and row_order stay those of the plan's layouts. Everything is copied; shapes, report, route and
 * alias follow.
 *
 * Local, but every rank calls with an equal description between the same two calls of the plan: no
 * message, no wait, no allocation. Costs time in proportion to the segments and runs and to what
 * this rank sends and receives in pieces, not to the tokens (but for sequence-major rows). Errors
 * depend on the description alone, so that all ranks get the same; the plan then keeps the old one.
 *
 * In a context for device memory, nothing waits for calls that streams have not passed: the device
 * gets what an update found in the order of the stream of the next call. Only a rank that has more
 * pieces than ever before allocates, and waits for the plan's own calls; so does one whose streams
 * have not begun a call of two updates before. Messages over ipc cannot change their length, so
 * another transport of the context carries them.
 *
 * Ranks that give different descriptions, or of which one forgets an update, are found in the next
 * calls: every message says from which description it was packed, and in every call each rank sends
 * 32 bytes about its own to the next one. A rank that finds a difference gets MISMATCH from its
 * call, with both ranks; its context is dead, and the others get the same error when they wait or
 * call. A call that returns OK has received only what was planned from this rank's description. In
 * a context that checks calls (lierne/context.h), the update itself is collective: all ranks get
 * MISMATCH from it, the context stays alive, and the plan keeps the old description. Where messages
 * cannot say so, because they are in a device's memory, or a transport has no match ids (nccl), the
 * first call after an update compares the descriptions on the host, before it enqueues anything: it
 * waits for all ranks of the context, of which each makes that call, and where they differ all get
 * MISMATCH from it, name the field, and may update again. A rank that forgets an update makes no
 * such comparison: then the others get TIMEOUT.
 *
 * Errors: INVALID (NULL, update->size, a plan without max_segments, a packing for a layout without
 * one or none for one with it, images or runs for a plan that is no packed bridge, store, padding
 * or row_order that differ, and what lierne_layout_create rejects in segments and packing);
 * OVERFLOW; INDIVISIBLE; of runs those of lierne/packed_bridge.h; CAPACITY; BUSY (a request or a
 * call of coalesced plans is in flight, or one was captured into a graph); in a context that checks
 * also MISMATCH, TIMEOUT, PEER_FAILED, TRANSPORT; in one for device memory, where more is
 * allocated, NO_MEMORY and TRANSPORT, which kill it; the error that killed the context. Thread
 * safety: a context serves one thread at a time. */
LIERNE_API lierne_status lierne_plan_update_segments(lierne_plan *plan,
                                                     const lierne_segments_update *update);

/* A box of a source tensor that is a box of a destination tensor, for tensors that one side stores
 * fused, stacked, transposed or twice: rows of a fused projection, an expert of a stacked tensor.
 * Arrays have an entry per axis of the tensor that they are about. */
typedef struct lierne_set_box {
    int64_t src;                        /* number of the source tensor */
    int64_t dst;                        /* number of the destination tensor */
    int64_t src_start[LIERNE_MAX_AXES]; /* the box's first index on each axis of the source */
    int64_t dst_start[LIERNE_MAX_AXES]; /* the same of the destination */
    int64_t sizes[LIERNE_MAX_AXES];     /* of the box, on each axis of the destination */
    /* Axis a of the destination is axis axes[a] of the source, which no other axis is; -1: none,
     * and sizes[a] is 1. On axes of the source that are not named the box has one index. Axes of
     * the destination and axes that are not named are at most LIERNE_MAX_AXES together. NULL: axis
     * a is axis a. */
    const int *axes;
} lierne_set_box;

/* A tensor set: many tensors that move together, such as the weights of a model from a trainer to
 * an inference engine. Tensor i moves from layout src[i] to layout dst[i]. All tensors have one
 * dtype; tensors of another dtype are another set, and lierne_coalesced_create joins both. Set size
 * to sizeof(lierne_set_spec) and the rest to zero first.
 *
 * Each rank has one input and one output buffer, in which every tensor has its place: the local
 * tensor that lierne_layout_get_shape describes, row-major, from src_offsets[i] on in the input and
 * from dst_offsets[i] on in the output, in elements. Offsets are this rank's own; other ranks may
 * have others. That of a tensor of which the rank holds nothing is not read. Where offsets are
 * NULL, tensors follow one another without gaps, in their order. A buffer ends with its last
 * tensor. Elements of an output between tensors are not written.
 *
 * Who sends what. Each rank receives what it needs and does not hold, once. All tensors of equal
 * layouts are divided together: what their holders have to send is cut into as many equal parts as
 * there are holders, between tensors where these are small, inside of them where they are large.
 * So every holder of equal tensors sends the same number of bytes, up to a piece of 64 KiB, and
 * most receivers have few senders. Nodes are not looked at. What two ranks exchange is one stage;
 * all pieces below 256 KiB share messages of up to 4 MiB, larger ones have messages of their own.
 *
 * The adjoint moves from dst to src: of the gradients that replicas hold alike, one is taken.
 *
 * Halos (lierne/dense_halo.h). A tensor whose layouts have a halo moves as
 * lierne_plan_create_redistribute moves it alone, from the same senders, and its gradients are the
 * same sums, bit for bit; tensors with and without halos may be mixed. Margins of all tensors share
 * messages, so that forward two ranks exchange one small message each way. In the adjoint what is
 * added at the owners has messages of its own, beside those of values that only move; terms that
 * are sums themselves follow in a second stage. Where every tensor has one layout and one place on
 * both sides, out == in is allowed: only margins are written.
 *
 * With boxes, tensors of the source and of the destination are not the same ones: box i of source
 * tensor boxes[i].src becomes box i of destination tensor boxes[i].dst. Every element of every
 * destination must be in one box; elements of a source may be in any number. Equal boxes of tensors
 * of equal layouts are planned once, however many layers have them. Elements of a source that are
 * in no box get a gradient of zero. Where an element of a source is in two boxes, as tied
 * embeddings are, the plan has no adjoint. */
typedef struct lierne_set_spec {
    size_t size;
    int64_t ntensors; /* at least 1; with boxes of src alone */
    /* ntensors layouts each, all on grids of one world; with boxes, dst has ndst. A layout may be
     * given any number of times; planning takes the least time where equal tensors share it. */
    const lierne_layout *const *src;
    const lierne_layout *const *dst;
    const int64_t *src_offsets; /* as many as tensors, or NULL */
    const int64_t *dst_offsets;
    int max_inflight;    /* requests in flight at once per direction; 0 means 1 */
    lierne_group *group; /* see lierne/group.h (Domains); NULL: the context's own domain */
    const char *name;    /* see lierne/plan.h (Names); NULL: none */
    /* nboxes of them, the same on every rank; NULL: tensor i of src is tensor i of dst, and neither
     * ndst nor nboxes is read. */
    const lierne_set_box *boxes;
    int64_t nboxes;
    int64_t ndst; /* tensors of dst, at least 1 */
} lierne_set_spec;

/* Whether a set can be planned, whatever the rank: layouts and boxes are checked, and that every
 * element of every destination is in one box. The message names the tensor and the box that is
 * written twice or not at all, as dst[2]: [0:4, 3:5]. Offsets are not read. Planning checks the
 * same. Pure: not collective; may run in many threads at once. Costs time in proportion to the
 * boxes of each tensor times the pieces that they leave of it, which are few where boxes follow one
 * another. Errors: INVALID, UNSUPPORTED (as lierne_route_create_set); NO_MEMORY. */
LIERNE_API lierne_status lierne_set_check(const lierne_set_spec *spec);

/* The route of one rank that moves a set forward; of the adjoint of a set without boxes and halos
 * where src and dst, and the offsets, are exchanged. The routes of all ranks fit together when each
 * is made from equal layouts. *route is NULL on failure; free it with lierne_route_destroy. It
 * keeps nothing of the spec, of which max_inflight is not read. min_elements, which may be NULL:
 * the elements that this rank must receive under any schedule. Pure: not collective; may run in
 * many threads at once. Costs time in proportion to the tensors, to what this rank sends and
 * receives, and, for each different pair of layouts, to the ranks that share elements with this
 * one. Errors: INVALID (NULL; spec->size; ntensors; an offset below 0, tensors that overlap in a
 * buffer; a pair of layouts of different shape, dtype or world size, or of another dtype or world
 * size than the first pair; a box that is not within its tensors, axes that do not fit, an element
 * of a destination in no box or in two; rank not in the world); UNSUPPORTED (a PARTIAL dim, a
 * packing, a src without cores, a halo in a set with boxes, a box with too many axes); OVERFLOW (a
 * buffer of more than 2^60 bytes); NO_MEMORY. */
LIERNE_API lierne_status lierne_route_create_set(lierne_route **route, int64_t *min_elements,
                                                 const lierne_set_spec *spec, int rank);

/* Gives a plan of lierne_plan_create_redistribute other documents for the next calls: those of each
 * of its layouts whose halo of this axis has segments (lierne/dense_halo.h). segments: nsegments +
 * 1 offsets, 0 first, the size of the axis last, the same on every rank; copied. Everything else
 * stays, but windows with boundary NONE end at other places: ask lierne_plan_get_shape again.
 * Collective; the ranks agree and exchange nothing else; no request may be in flight, and no
 * coalesced plans may hold the plan. The memory of the plan is reused as by
 * lierne_plan_update_shape. If any rank fails, every rank gets the same error and keeps the old
 * documents. Errors: INVALID (NULL; a plan of another kind, or without documents on this axis;
 * nsegments below 1; offsets that descend, or do not begin and end with the axis), BUSY, MISMATCH
 * (the message names the first offset that differs), NO_MEMORY, TIMEOUT, PEER_FAILED, TRANSPORT. */
LIERNE_API lierne_status lierne_plan_update_documents(lierne_plan *plan, int axis,
                                                      int64_t nsegments, const int64_t *segments);

/* Plans a set. Collective over the context: every rank calls with the same spec, but for the
 * offsets. If any rank fails, every rank gets the same error, no plan exists, and *out is NULL. The
 * spec, its arrays and the layouts may be freed after the call. The plan is used through
 * lierne/plan.h; lierne_plan_get_shape says one axis. Errors: as lierne_route_create_set; INVALID
 * also for a world size that is not the context's, a grid with a rank that is no member, and
 * max_inflight; MISMATCH (ranks disagree on the spec; the message names the field, as ntensors or
 * the hash of src[17] or boxes[3]); TIMEOUT; PEER_FAILED; TRANSPORT. Thread safety: a context
 * serves one thread at a time. */
LIERNE_API lierne_status lierne_plan_create_set(lierne_plan **out, lierne_context *context,
                                                const lierne_set_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
