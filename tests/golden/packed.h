/* A side of packed.json: a layout of packed sequences. */
#ifndef LIERNE_TESTS_GOLDEN_PACKED_H
#define LIERNE_TESTS_GOLDEN_PACKED_H

#include "golden.h"

/* The arrays that a side's structs point to; to be freed with golden_packed_free. */
typedef struct golden_packed {
    lierne_grid *grid;
    lierne_placement placements[GOLDEN_MAX_DIMS];
    int64_t shape[2];
    lierne_segments segments;
    lierne_packing packing;
    bool has_packing;
    int64_t *arrays[4]; /* boundaries, padded boundaries, lead, order */
    int32_t *owner;
    lierne_layout_spec spec;
} golden_packed;

/* Reads a side of a case with these boundaries (NULL: none), as the rows of a tensor with width
 * columns. false, and a failure of the case, if the runner does not know what it says. */
bool golden_packed_read(golden_case *c, golden_packed *side, const cJSON *item,
                        const cJSON *cu_seqlens, int64_t width, int64_t world);
void golden_packed_free(golden_packed *side);

/* A bridge that lierne rejects with this status, and its field. */
void golden_packed_bridge_invalid(golden_case *c, lierne_status wanted);

#endif
