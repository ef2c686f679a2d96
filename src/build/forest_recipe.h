/* What a plan of a forest keeps: the forest, what lists and texts say of it. */
#ifndef LIERNE_FOREST_RECIPE_H
#define LIERNE_FOREST_RECIPE_H

#include "build/forest.h"

#include <string.h>

/* What planning a graph again can use: arrays of the work, and lists of the graph before the last.
 */
typedef struct lierne_forest_memory {
    lierne_shelf work;
    lierne_shelf lists;
} lierne_forest_memory;

typedef struct lierne_forest_recipe {
    lierne_recipe base;
    lierne_forest_memory *memory; /* of a graph */
    lierne_forest_memory *heir;   /* takes the lists when the recipe is freed; or NULL */
    lierne_forest forest;
    lierne_pairs_spec spec;    /* pointers are NULL */
    lierne_forest_graph graph; /* NULLs for pairs */
    int64_t nrows;             /* of the graph; -1 for pairs */
    int world;
    /* For lierne_plan_graph_lists. */
    int64_t nsources;
    int32_t *source_ranks;
    int64_t *source_counts;
    int32_t *target_ranks;
    int64_t *target_counts;
} lierne_forest_recipe;

void lierne_forest_memory_free(lierne_forest_memory *memory);

/* Copies a spec that was checked, takes its graph. The forest has its sizes, and no pairs yet. */
lierne_status lierne_forest_recipe_new(lierne_forest_recipe **out, const lierne_forest_spec *spec,
                                       const lierne_context *context);
/* Fills what lists need, when the forest is complete. */
lierne_status lierne_forest_recipe_list(lierne_forest_recipe *recipe);
/* The recipe of a plan of a forest; NULL for another plan. */
lierne_forest_recipe *lierne_forest_recipe_of(const lierne_plan *plan);

#endif
