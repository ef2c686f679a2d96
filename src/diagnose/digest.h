/* The sum that a digest is, and the parts of a tensor that it is of. */
#ifndef LIERNE_DIGEST_INTERNAL_H
#define LIERNE_DIGEST_INTERNAL_H

#include "layout/layout.h"
#include "lierne/digest.h"
#include "plan/redistribute/frame.h"

/* The factors of a key and a tensor. */
#define LIERNE_DIGEST_WORDS 64
typedef struct lierne_digest_factors {
    uint32_t of_word[LIERNE_DIGEST_WORDS]; /* of a block; odd, each another */
    uint64_t seed;                         /* of the factors of blocks */
} lierne_digest_factors;
void lierne_digest_factors_set(lierne_digest_factors *factors, uint64_t key, uint64_t tensor);
/* n blocks of LIERNE_DIGEST_WORDS words, from block `first` of the tensor on, by loops that serve
 * every processor. */
uint64_t lierne_digest_blocks(const lierne_digest_factors *factors, const unsigned char *data,
                              uint64_t first, size_t n);
/* Bytes that begin at byte `at` of the tensor. */
uint64_t lierne_digest_bytes(const lierne_digest_factors *factors, const void *data, uint64_t at,
                             size_t bytes);

/* Whether a rank has to count what it holds: it is the lowest of its replicas. */
bool lierne_digest_counts(const lierne_layout *layout, int rank);
/* INVALID or UNSUPPORTED unless there are digests of a layout, and of what two have in common. */
lierne_status lierne_digest_check_layout(const lierne_layout *layout, const char *name);
lierne_status lierne_digest_check_pair(const lierne_layout *a, const lierne_layout *b);

/* What a rank owns under one layout, of the tensor that factors are of: all of it, or, with another
 * layout, what peer owns under that. data is the rank's buffer. Adds to *digest and *elements. */
typedef struct lierne_digest_part {
    const lierne_layout *layout;
    int rank;
    const lierne_layout *peer_layout; /* or NULL */
    int peer;
    const char *name; /* of the buffer, for messages */
} lierne_digest_part;
lierne_status lierne_digest_add(uint64_t *digest, int64_t *elements, const lierne_digest_part *part,
                                const lierne_digest_factors *factors, const void *data);
/* digest_boxes.c. The same of what peer owns within a box between two tensors, of which layout is
 * on this side of the frame (0: the source) and peer_layout on the other; factors are of the
 * destination's tensor. */
lierne_status lierne_digest_add_box(uint64_t *digest, int64_t *elements,
                                    const lierne_digest_part *part, const lierne_frame *frame,
                                    int side, const lierne_digest_factors *factors,
                                    const void *data);
/* INVALID where a buffer with elements is NULL. */
lierne_status lierne_digest_check_data(const void *data, int64_t elements, const char *name);

#endif
