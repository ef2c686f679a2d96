/* What a plan of a star forest keeps: the forest, and what its lists and its text contain. */
#ifndef LIERNE_STAR_FOREST_SAVED_SPEC_H
#define LIERNE_STAR_FOREST_SAVED_SPEC_H

#include "plan/sparse/star_forest.h"

#include <string.h>

/* What planning the next graph reuses: temporary arrays, and the lists of the graph before the last
 * one. */
typedef struct lierne_star_forest_memory {
    lierne_workspace work;
    lierne_workspace lists;
} lierne_star_forest_memory;

typedef struct lierne_star_forest_saved_spec {
    lierne_saved_spec base;
    lierne_star_forest_memory *memory;     /* of a graph */
    lierne_star_forest_memory *next_owner; /* takes the lists when this is freed; or NULL */
    lierne_star_forest forest;
    lierne_references_spec spec;    /* pointers are NULL */
    lierne_star_forest_graph graph; /* NULLs for references */
    int64_t nrows;                  /* of the graph; -1 for references */
    const lierne_members *members;  /* of the context */
    /* For lierne_plan_get_graph_lists. */
    int64_t nsenders;
    int32_t *sender_ranks;
    int64_t *sender_counts;
    int32_t *receiver_ranks;
    int64_t *receiver_counts;
} lierne_star_forest_saved_spec;

void lierne_star_forest_memory_destroy(lierne_star_forest_memory *memory);

/* Copies a spec that was checked, and takes its graph. The forest has its sizes, and no roots yet.
 */
lierne_status lierne_star_forest_saved_spec_create(lierne_star_forest_saved_spec **out,
                                                   const lierne_star_forest_spec *spec,
                                                   const lierne_context *context);
/* Fills what the lists need, once the forest is complete. */
lierne_status lierne_star_forest_saved_spec_list(lierne_star_forest_saved_spec *saved);
/* INVALID where a spec for an update has rows of another type than the plan. */
lierne_status lierne_star_forest_check_type(const lierne_star_forest_saved_spec *saved,
                                            lierne_dtype dtype, int64_t width, int max_inflight);
/* The saved spec of a plan of a star forest; NULL for another plan. */
lierne_star_forest_saved_spec *lierne_star_forest_saved_spec_of(const lierne_plan *plan);

#endif
