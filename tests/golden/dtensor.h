/* Layouts of DTensor: what torch makes of placements, and how lierne is told of them. */
#ifndef LIERNE_TESTS_GOLDEN_DTENSOR_H
#define LIERNE_TESTS_GOLDEN_DTENSOR_H

#include "golden.h"

/* A placement of a mesh dim; axis -1: replicate; factor 0: no strided shard. */
typedef struct golden_shard {
    int axis;
    int64_t factor;
} golden_shard;

/* A tensor on a mesh, as torch has it: the slowest dim first. */
typedef struct golden_dtensor {
    int naxes;
    int64_t shape[LIERNE_MAX_AXES];
    int ndims;
    int64_t mesh[GOLDEN_MAX_DIMS];
    golden_shard shards[GOLDEN_MAX_DIMS];
    int offset;
    int nranks;
} golden_dtensor;

/* How lierne is told of shards: as cuts that follow one another, strided ones later; or index by
 * index, with a map for every dim. */
typedef enum golden_statement { GOLDEN_AS_CUTS, GOLDEN_BY_INDEX } golden_statement;

/* Global indices of an axis, in local order. */
typedef struct golden_indices {
    int64_t n;
    int64_t *at;
} golden_indices;

/* Reads {"mesh", "placements", "rank_offset"}. false, and a failure of the case, if the runner does
 * not know what it says. */
bool golden_dtensor_read(golden_case *c, golden_dtensor *t, const cJSON *shape, const cJSON *side);

/* What a rank, counted from the mesh's first, holds of every axis, by torch's definition. To be
 * freed. */
void golden_dtensor_parts(const golden_dtensor *t, int rank, golden_indices *parts);
void golden_indices_free(golden_indices *parts, int naxes);

/* Whether cuts that follow one another, strided ones later, are what torch does. */
bool golden_dtensor_is_nested(const golden_dtensor *t);

/* The layout, in a world. Without a status of its own: a refusal fails the case. */
lierne_layout *golden_dtensor_layout(golden_case *c, const golden_dtensor *t,
                                     golden_statement statement, int64_t world, lierne_dtype dtype);

/* The global row-major numbers of what a rank holds, in local order, *n of them, to be freed. */
int64_t *golden_dtensor_numbers(const golden_dtensor *t, const golden_indices *parts, int64_t *n);

/* The parts of all ranks, as the file lists them, are those of the definition; those of a layout
 * are, too. */
void golden_dtensor_expect(golden_case *c, const golden_dtensor *t, const cJSON *expect);
void golden_layout_expect(golden_case *c, const golden_dtensor *t, const lierne_layout *layout);

#endif
