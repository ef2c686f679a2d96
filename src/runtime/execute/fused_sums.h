/* Sums that read contributions where they are exposed: fused_sums.c prepares them and holds
 * messages back, run_fused_sums.c runs them, exposed_blocks.c has the blocks. */
#ifndef LIERNE_FUSED_SUMS_H
#define LIERNE_FUSED_SUMS_H

#include "runtime/execute/execution.h"

/* Elements of scratch into which a segment is received. */
typedef struct lierne_landing {
    lierne_range range;
    size_t segment;
    bool direct;             /* sums of its phase, and nothing else, read it */
    const lierne_part *part; /* of this call: where it is exposed; NULL: in scratch */
    lierne_part_cursor cursor;
} lierne_landing;

/* A sum, or rows of its outermost loop whose sources are each in one landing. */
typedef struct lierne_fused_op {
    const lierne_op *op;
    int64_t first, count; /* of the rows; count -1: no rows, all of it */
    size_t landings;      /* first of one per source in op_landings: an index, or -1 */
} lierne_fused_op;

/* The sums of a subroute in a phase. */
typedef struct lierne_fused_stage {
    size_t first_landing, nlandings;
    size_t first_op, nops;
    bool direct; /* some landing is */
} lierne_fused_stage;

struct lierne_fused_sums {
    LIERNE_VEC(lierne_landing) landings;
    LIERNE_VEC(lierne_fused_op) ops;
    LIERNE_VEC(int64_t) op_landings;
    lierne_fused_stage *stages; /* phase by phase, of each subroute */
    int64_t *landing_of;        /* of each segment, or -1 */
    lierne_block *blocks;       /* of a sum: the target's, then the sources' */
    const void **bases;         /* of each source that is exposed, else NULL */
    const lierne_coalesced_message **held;
    size_t nheld;
};

#endif
