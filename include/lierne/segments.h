/* Descriptions of packed sequences that no rank has whole: each rank knows the segments of its own
 * samples, and gathers those of all ranks. Where every rank has the description already, as where
 * the boundaries come with the batch, nothing here is needed.
 *
 * One all-gather of blocks of a fixed size, without asking for sizes first: 8 * (4 + 4 *
 * max_segments + 5 * max_runs) bytes of each rank. */
#ifndef LIERNE_SEGMENTS_H
#define LIERNE_SEGMENTS_H

#include "lierne/context.h"
#include "lierne/packing.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lierne_segments_exchange lierne_segments_exchange;

/* Set size to sizeof(lierne_segments_exchange_spec). The same on every rank. */
typedef struct lierne_segments_exchange_spec {
    size_t size;
    int64_t max_segments; /* of any rank, at least 0 */
    int64_t max_runs;     /* of any rank, at least 0 */
} lierne_segments_exchange_spec;

/* Creates an exchange. Collective over the context. If any rank fails, every rank gets the same
 * error, and *out is NULL. Errors: INVALID (NULL, size, max_segments or max_runs below 0), MISMATCH
 * (ranks disagree on the spec), COUNT_RANGE (the blocks of all ranks do not fit into memory),
 * NO_MEMORY, TIMEOUT, PEER_FAILED, TRANSPORT. Thread safety: a context serves one thread at a time.
 */
LIERNE_API lierne_status lierne_segments_exchange_create(lierne_segments_exchange **out,
                                                         lierne_context *context,
                                                         const lierne_segments_exchange_spec *spec);
/* Frees an exchange and what it gathered. Collective over the context, as lierne_plan_destroy is.
 * NULL is allowed. Errors: those of lierne_plan_destroy; the exchange is freed in any case. */
LIERNE_API lierne_status lierne_segments_exchange_destroy(lierne_segments_exchange *exchange);

/* What a rank knows. Set size to sizeof(lierne_own_segments) and the rest to zero first: zeros are
 * no segments. Every array is read before the call returns. */
typedef struct lierne_own_segments {
    size_t size;
    int64_t nsegments;
    const int64_t *lengths;       /* nsegments: tokens of each segment */
    const int64_t *padded;        /* nsegments: padded lengths; NULL: lead and tokens alone */
    const int64_t *lead;          /* nsegments: as in lierne_packing; NULL: 0 */
    const int32_t *owner;         /* nsegments: as in lierne_packing; NULL: 0 */
    int64_t nruns;                /* of a packed bridge (lierne/packed_bridge.h) */
    const lierne_image_run *runs; /* nruns; segment and image count from 0 on each rank */
    int64_t nimages;              /* images of this rank, which runs name */
} lierne_own_segments;

/* What all ranks know: segments numbered by rank (in ascending order), those of one rank in its
 * order; of runs also the images. The arrays belong to the exchange, until it gathers again or is
 * destroyed. cu_seqlens, cu_seqlens_padded, lead and owner fit lierne_segments and lierne_packing;
 * owner only where a dim is SHARD_SEGMENTS. Set size to sizeof(lierne_gathered_segments). */
typedef struct lierne_gathered_segments {
    size_t size;
    int64_t nsegments;
    const int64_t *cu_seqlens;        /* nsegments + 1 */
    const int64_t *cu_seqlens_padded; /* nsegments + 1 */
    const int64_t *lead;
    const int32_t *owner;
    int64_t nruns;
    const lierne_image_run *runs;
    int64_t nimages;
    /* One more than the ranks of the context: the i-th rank's segments begin at first_segment[i],
     * and end where the next one's begin. */
    const int64_t *first_segment;
} lierne_gathered_segments;

/* Gathers. Collective over the context: every rank calls, also one without segments. Waits for all
 * ranks, with the context's deadline; allocates nothing in contexts for host memory. own: this
 * rank's. The message of an error that a rank's own causes names that rank, the field, its value
 * and the bound, and is the same on every rank; *all is unchanged then. Errors: INVALID (NULL; a
 * size; counts or lengths below 0, an array that is missing, a segment without space for its lead
 * and tokens); INDEX_RANGE (a run that names no segment or image of its rank); CAPACITY (more than
 * max_segments or max_runs); OVERFLOW (more than 2^60 rows); TIMEOUT; PEER_FAILED; TRANSPORT; the
 * error that killed the context. exchange or all NULL: INVALID on this rank alone, which takes no
 * part. Thread safety: a context serves one thread at a time. */
LIERNE_API lierne_status lierne_segments_gather(lierne_gathered_segments *all,
                                                lierne_segments_exchange *exchange,
                                                const lierne_own_segments *own);

#ifdef __cplusplus
}
#endif
#endif
