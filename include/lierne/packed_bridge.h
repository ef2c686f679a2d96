/* Packed bridges: rows of images go from an encoder straight to the places of the image tokens in a
 * language model's packed sequence, which context parallelism cuts (lierne/packing.h); gradients go
 * back. Each rank receives only the image rows of its own tokens.
 *
 * The images of a microbatch are a packed axis of their own: image k is a segment of b_k rows. src
 * is a layout of that axis, of R rows, dst one of the T tokens. Runs join them: rows of an image go
 * to neighbouring tokens of a segment. An image may have several runs (frames of a video with text
 * between them), a segment any number of images, and either none.
 *
 * Forward writes the tokens that runs name, and nothing else: text rows and padding of the output
 * stay as they are. So the output may be the embedding buffer with its text in place. The adjoint
 * reads only these tokens, and takes the gradient of an image row from a rank that has its token.
 * Rows that no run names get zero, padding of src what its packing says.
 *
 * Errors of runs, in this order; each names the run by its place in the list:
 *   INDEX_RANGE  image, segment, row, position or length is out of range: a run has at least one
 *                row, and ends within its image and its segment. Padding has no tokens.
 *   OVERLAP      two runs name one token
 *   COUNT        a row goes to two tokens without allow_repeat; a row goes nowhere without
 *                allow_unused */
#ifndef LIERNE_PACKED_BRIDGE_H
#define LIERNE_PACKED_BRIDGE_H

#include "lierne/redistribute.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A packed bridge to plan. Set size to sizeof(lierne_packed_bridge_spec) and the rest to zero
 * first. Everything must be the same on every rank. */
typedef struct lierne_packed_bridge_spec {
    size_t size;
    /* Layouts of one dtype with packings of the same axis, on any two grids of the context's world.
     * The other axes have equal sizes. On src the segments are the images. */
    const lierne_layout *src;
    const lierne_layout *dst;
    const lierne_image_run *runs; /* nruns, in any order */
    int64_t nruns;
    int allow_unused; /* not 0: rows may go nowhere, as those of a sample that was truncated */
    /* Not 0: a row may go to several tokens, as where all answers to one prompt share its image. It
     * is sent to a rank once, and its gradient is the sum over its tokens in ascending order. Moves
     * as DIRECT. With capacities, lists take memory in proportion to max_rows, as any row may go
     * anywhere by itself. */
    int allow_repeat;
    /* Bit d set: the ranks of dim d of dst, which is REPLICATE, each have a contribution to the
     * gradient of the output; their sum in ascending coordinates is the gradient. For a row with
     * several tokens all contributions of one token come before those of the next one. */
    uint32_t partial_dims;
    int max_inflight; /* requests in flight at once per direction; 0 means 1 */
    lierne_routing routing;
    lierne_group *group; /* see lierne/group.h (Domains); NULL: the context's own domain */
    /* For runs and segments that change (lierne_plan_update_segments): the most segments, and the
     * most images; the most rows of the packed axis in the buffer of any rank, and, with
     * allow_repeat, the most tokens that the rows of any rank go to; the most runs. All three or
     * none. What lierne_redistribute_spec says of its own applies. */
    int64_t max_segments;
    int64_t max_rows;
    int64_t max_runs;
    int max_peers;    /* as in lierne_redistribute_spec */
    const char *name; /* see lierne/plan.h (Names); NULL: none */
} lierne_packed_bridge_spec;

/* Plans a packed bridge. Collective over the context: every rank calls with the same spec. If any
 * rank fails, every rank gets the same error, no plan exists, and *out is NULL. The spec, its runs
 * and layouts may be freed after the call. The plan is used through lierne/plan.h; its input is
 * the rank's buffer under src, its output that under dst.
 * Errors: INVALID (NULL, spec->size, a layout without a packing, packings of different axes, other
 * axes, dtypes or worlds that differ, a world size that is not the context's, a grid with a rank
 * that is no member, nruns below 0, runs NULL, a bit of partial_dims for a dim that does not exist
 * or is not REPLICATE, sums of an opaque dtype, max_inflight, routing, capacities below 0 or not
 * all given, max_peers below 0); UNSUPPORTED (a PARTIAL dim; a max_peers that is too low; BALANCED
 * with allow_repeat and rows that repeat; with capacities also BALANCED, and ranks that only ipc
 * connects); INDEX_RANGE, OVERLAP, COUNT (above); CAPACITY (what is given exceeds a
 * capacity); MISMATCH (ranks disagree on the spec; the message names the field); NO_MEMORY;
 * TIMEOUT; PEER_FAILED; TRANSPORT. Thread safety: a context serves one thread at a time. */
LIERNE_API lierne_status lierne_plan_create_packed_bridge(lierne_plan **out,
                                                          lierne_context *context,
                                                          const lierne_packed_bridge_spec *spec);

/* Makes all checks of lierne_plan_create_packed_bridge that need no context. Pure, not collective.
 * Errors: as lierne_plan_create_packed_bridge. */
LIERNE_API lierne_status lierne_packed_bridge_check(const lierne_packed_bridge_spec *spec);

/* The runs of token ids: the rows of all images, one image after another, fill the tokens whose id
 * is image_id in ascending order. A run ends where a segment, an image or a row of neighbouring
 * image tokens ends.
 *
 * ids: an id for each of the T tokens, in memory of the host. Writes the number of runs into *count
 * and, unless runs is NULL, the first `capacity` of them into runs, which is the caller's; there
 * are at most as many as image tokens. Pure: not collective; may run in many threads at once. Costs
 * time in proportion to the tokens, segments and images; allocates nothing. On failure *count is
 * unchanged. Errors: INVALID (NULL, sizes, nsegments below 0, boundaries that do not begin with 0
 * or descend); COUNT (more or fewer image tokens than rows; the message has both numbers). */
LIERNE_API lierne_status lierne_image_runs_find(lierne_image_run *runs, size_t capacity,
                                                size_t *count, const lierne_segments *segments,
                                                const lierne_segments *images, const int64_t *ids,
                                                int64_t image_id);

#ifdef __cplusplus
}
#endif
#endif
