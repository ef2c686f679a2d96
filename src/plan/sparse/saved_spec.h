/* What a plan of a forest keeps: the forest, what lists and texts say of it. */
#ifndef LIERNE_STAR_FOREST_SAVED_SPEC_H
#define LIERNE_STAR_FOREST_SAVED_SPEC_H

#include "plan/sparse/star_forest.h"

#include <string.h>

/* What planning a graph again can use: arrays of the work, and lists of the graph before the last.
 */
typedef struct lierne_star_forest_memory {
    lierne_workspace work;
    lierne_workspace lists;
} lierne_star_forest_memory;

typedef struct lierne_star_forest_saved_spec {
    lierne_saved_spec base;
    lierne_star_forest_memory *memory;     /* of a graph */
    lierne_star_forest_memory *next_owner; /* takes the lists when the saved is freed; or NULL */
    lierne_star_forest forest;
    lierne_references_spec spec;    /* pointers are NULL */
    lierne_star_forest_graph graph; /* NULLs for pairs */
    int64_t nrows;                  /* of the graph; -1 for pairs */
    int world;
    /* For lierne_plan_get_graph_lists. */
    int64_t nsources;
    int32_t *source_ranks;
    int64_t *source_counts;
    int32_t *target_ranks;
    int64_t *target_counts;
} lierne_star_forest_saved_spec;

void lierne_star_forest_memory_destroy(lierne_star_forest_memory *memory);

/* Copies a spec that was checked, takes its graph. The forest has its sizes, and no pairs yet. */
lierne_status lierne_star_forest_saved_spec_create(lierne_star_forest_saved_spec **out,
                                                   const lierne_star_forest_spec *spec,
                                                   const lierne_context *context);
/* Fills what lists need, when the forest is complete. */
lierne_status lierne_star_forest_saved_spec_list(lierne_star_forest_saved_spec *saved);
/* The saved of a plan of a forest; NULL for another plan. */
lierne_star_forest_saved_spec *lierne_star_forest_saved_spec_of(const lierne_plan *plan);

#endif
