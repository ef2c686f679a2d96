/* Random bridges that no reference does: uneven dp sizes, counts, empty shares, pipeline
 * stages, cp on both sides, unknown dims, tensors cut along sequence and hidden axis, outputs of
 * own rows, rows in either order, spans that differ, overlap or are disjoint, several nodes. */
#ifndef RANDOM_CASE_H
#define RANDOM_CASE_H

#include "unit/bridge_case.h"

enum { MAX_WORLD = 64 };

/* What a case points to. */
typedef struct case_arrays {
    int64_t src_counts[8];
    int64_t dst_counts[8];
    int32_t rows[1 << 16];
    int nodes[MAX_WORLD];
} case_arrays;

/* The case of a seed on `world` ranks, at most MAX_WORLD. */
void random_case(uint64_t seed, int world, bridge_case *c, case_arrays *arrays);
/* Prints it. */
void show_case(const bridge_case *c);

#endif
