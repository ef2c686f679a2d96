/* Packed sequences: a language model's samples of different lengths (segments), written one after
 * the other along one axis of a tensor, as PyTorch's and TransformerEngine's THD format has them.
 *
 * The packed axis has T indices, the tokens, and nothing else. Segment i has the tokens
 * cu_seqlens[i] to cu_seqlens[i + 1] - 1. Padding is no part of the tensor: it is a property of a
 * layout, as the storage of a buffer is. So the layouts of source and destination may pad
 * differently, and both have the same segments.
 *
 * A packing gives each segment a padded length: token j of segment i lies at offset lead[i] + j of
 * its padded segment. Cuts divide padded segments (lierne_placement_kind), so padding decides which
 * rank has a token, and a rank also has the padding rows of its part.
 *
 * Padding rows of an input are never read. Those of an output are written as the packing says.
 *
 * A padded batch [b, s, h] is a packing, too: b segments, each of padded length s; with row_order
 * SEQUENCE_MAJOR it is [s, b, h]. A batch that is padded at the left has lead = s - length. Padding
 * that moves as data is no padding: give the padded boundaries as cu_seqlens. A buffer of a fixed
 * length ends with a segment without tokens, whose padded length is the rest; boundaries that
 * repeat the last one are empty segments. */
#ifndef LIERNE_PACKING_H
#define LIERNE_PACKING_H

#include "lierne/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The segments of a packed axis, the same for every layout and on every rank. Set size to
 * sizeof(lierne_segments). */
typedef struct lierne_segments {
    size_t size;
    int64_t nsegments; /* at least 0 */
    /* nsegments + 1 boundaries: 0 first, ascending; equal neighbours are an empty segment. The last
     * one is T, at most 2^60. */
    const int64_t *cu_seqlens;
} lierne_segments;

/* Which rows a buffer has. */
typedef enum lierne_packing_store {
    LIERNE_PACKING_STORE_PADDED = 0,  /* those of the rank's tokens and of its padding */
    LIERNE_PACKING_STORE_UNPADDED = 1 /* those of its tokens only; the cut is the same */
} lierne_packing_store;

/* What happens to the padding rows of an output that the rank owns. The output of the adjoint is
 * the gradient of the input: there the source's packing decides. */
typedef enum lierne_padding {
    LIERNE_PADDING_ZERO = 0, /* set to zero in every call */
    LIERNE_PADDING_KEEP = 1  /* not touched */
} lierne_padding;

/* The order of rows: of a packed buffer (lierne_packing), or of a 2-D tensor [rows, hidden] of a
 * bridge (lierne_bridge_spec). An encoder that emits [S, B, H] and flattens it has sequence-major
 * rows, of which consecutive ones belong to different samples (Megatron-LM#4021 and similar). */
typedef enum lierne_row_order {
    LIERNE_ROW_ORDER_SAMPLE_MAJOR = 0,  /* row b * S + s */
    LIERNE_ROW_ORDER_SEQUENCE_MAJOR = 1 /* row s * B + b, of the B samples of a dp rank */
} lierne_row_order;

/* How one layout packs the segments. Set size to sizeof(lierne_packing) and the rest to zero first:
 * zeros are no padding. Every array is copied. */
typedef struct lierne_packing {
    size_t size;
    /* nsegments + 1 boundaries of the padded sequence, 0 first, ascending; each segment has space
     * for its lead and its tokens. NULL: padded lengths follow from align. */
    const int64_t *cu_seqlens_padded;
    /* Without cu_seqlens_padded: each length of lead and tokens is rounded up to a multiple of
     * this. 0 and 1: no padding behind the tokens. */
    int64_t align;
    const int64_t *lead;  /* nsegments: padding rows before the tokens, at least 0. NULL: none */
    const int32_t *owner; /* nsegments: the coordinate of the SHARD_SEGMENTS dim that has segment i.
                             NULL where no dim is SHARD_SEGMENTS */
    /* nsegments: the segments in the order in which they follow one another in buffers, a
     * permutation. NULL: ascending. */
    const int64_t *order;
    lierne_packing_store store;
    lierne_padding padding;
    /* SEQUENCE_MAJOR: local row k of the i-th of a rank's B segments is row k * B + i of its
     * buffer, and a SHARD or SHARD_ZIGZAG behind a segment cut cuts these rows. All padded lengths
     * are equal then, and store is PADDED. Planning takes time and memory in proportion to the
     * tokens of a rank. */
    lierne_row_order row_order;
} lierne_packing;

/* A run of rows: rows [row, row + length) of an image go to tokens [position, position + length) of
 * a segment. See lierne/packed_bridge.h. */
typedef struct lierne_image_run {
    int64_t image;
    int64_t row; /* of the image */
    int64_t segment;
    int64_t position; /* among the tokens of the segment */
    int64_t length;   /* at least 1 */
} lierne_image_run;

#ifdef __cplusplus
}
#endif
#endif
