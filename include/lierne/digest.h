/* Digests tell whether a tensor arrived as it was sent, over any transport, also if another library
 * moved it.
 *
 * A digest is a sum, modulo 2^64, over elements. What an element adds depends on its bits, on its
 * index in the whole tensor, on the tensor's number and on a key, and not on layouts, ranks,
 * buffers or order. So digests of disjoint parts add up to that of the whole, and the same elements
 * have the same digest in every layout: each side computes it from its own buffer, and the two
 * compare 64 bits.
 *
 * A check always finds a change of one element and a swap of two. It misses other changes (rows
 * that are missing, doubled, moved, of another step or of another tensor) with a probability of at
 * most 2^-32 under a key that does not depend on the fault. It is no defence against someone who
 * knows the key. Compare only digests of the same version of the library, on machines of the same
 * byte order.
 *
 * Thread safety: pure functions may run in many threads at once; for the others see
 * lierne/context.h. */
#ifndef LIERNE_DIGEST_H
#define LIERNE_DIGEST_H

#include "lierne/context.h"
#include "lierne/layout.h"
#include "lierne/redistribute.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The elements that a digest covers. Set size to sizeof(lierne_digest_spec) and the rest to zero
 * first.
 */
typedef struct lierne_digest_spec {
    size_t size;
    const lierne_layout *layout; /* the data is the buffer of rank under this layout */
    int rank;
    /* NULL: all elements that rank owns, or none if a lower rank is a replica of it, so that the
     * digests of all ranks of the world add up to that of the tensor. Otherwise the elements that
     * rank owns under layout and peer owns under peer_layout, of a tensor of the same shape and
     * dtype: the elements that rank sends to peer. */
    const lierne_layout *peer_layout;
    int peer;
    uint64_t key;    /* any number, the same on every rank; preferably another one in each step */
    uint64_t tensor; /* the tensor's number */
} lierne_digest_spec;

/* The digest of elements of a buffer of host memory. *elements, which may be NULL: how many there
 * are. data may be NULL if there are none. Pure: not collective. Takes about the time of reading
 * the elements. Errors: INVALID (NULL, a rank or peer out of range, layouts of different shape,
 * dtype or world size), UNSUPPORTED (a PARTIAL dim: contributions are no elements; a halo),
 * NO_MEMORY. */
LIERNE_API lierne_status lierne_digest_compute(uint64_t *digest, int64_t *elements,
                                               const lierne_digest_spec *spec, const void *data);

/* Tensors that were moved. Set size to sizeof(lierne_digest_check_spec) and the rest to zero first.
 * All of it is the same on every rank. */
typedef struct lierne_digest_check_spec {
    size_t size;
    int ntensors;                    /* at least 0 */
    const lierne_layout *const *src; /* the layouts of each tensor before and after */
    const lierne_layout *const *dst;
    uint64_t key;
    /* NULL, or those of a tensor set (lierne_set_spec), nboxes of them; dst then has ndst tensors.
     */
    const lierne_set_box *boxes;
    int64_t nboxes;
    int64_t ndst;
} lierne_digest_check_spec;

/* Checks that every rank's out has what the ranks of the source have in `in`: in[t] and out[t] are
 * this rank's buffers of tensor t under src[t] and dst[t], and may be NULL where they have no
 * elements. Call it after the tensors were moved and before `in` changes. The lowest
 * holder of every element at the source computes its digest for each rank of the destination that
 * needs it: 8 bytes per tensor and pair of ranks are sent. With boxes, in[s] is source tensor s,
 * out[t] is destination tensor t, which messages name, and an element counts by its index there;
 * its digest takes longer where a box is transposed, or its rows are short. Collective; blocking;
 * in a simulated world a thread per rank must call. Errors, the same on every rank: MISMATCH (the
 * message names the tensor, the rank whose out is wrong, and the rank that sent the wrong part;
 * also if ranks gave different numbers of tensors, boxes or keys), INVALID (NULL, ntensors, layouts
 * of different shape, dtype or world size, a rank of a layout that is no member, boxes that
 * lierne_set_check rejects), UNSUPPORTED (a PARTIAL dim, a halo), NO_MEMORY, TIMEOUT, PEER_FAILED,
 * TRANSPORT. */
LIERNE_API lierne_status lierne_digest_check(lierne_context *context,
                                             const lierne_digest_check_spec *spec,
                                             const void *const *out, const void *const *in);

#ifdef __cplusplus
}
#endif
#endif
