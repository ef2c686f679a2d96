/* What the files of Megatron-LM's algorithms share. */
#ifndef LIERNE_MEGATRON_INTERNAL_H
#define LIERNE_MEGATRON_INTERNAL_H

#include "grid/grid.h"
#include "layout/layout.h"
#include "lierne/megatron.h"
#include "plan/plan.h"

/* The views that a bridge's spec names, each as a grid of its own. */
typedef struct lierne_megatron_grids {
    lierne_grid *src;
    lierne_grid *dst;
} lierne_megatron_grids;
/* Checks the grids too. To be freed also after a failure. */
lierne_status lierne_megatron_grids_create(lierne_megatron_grids *grids,
                                           const lierne_bridge_spec *spec);
void lierne_megatron_grids_destroy(lierne_megatron_grids *grids);

/* A spec as both algorithms need it. */
typedef struct lierne_megatron_bridge {
    lierne_megatron_algorithm algorithm;
    lierne_bridge_spec own;         /* the caller's, or zeros */
    const lierne_bridge_spec *spec; /* own */
    lierne_megatron_grids grids;
    lierne_layout *src; /* the bridge's layouts */
    lierne_layout *dst;
    lierne_layout *gradient;
    int batch_axis; /* of the layouts */
} lierne_megatron_bridge;

/* Returns the number of ranks whose dp ranks in the two grids hold no common samples, and writes
 * the first of these ranks, at most `most`. 0 if the grids have different ranks, or if neither dp
 * size divides the other. The time grows with `most`, not with the number of ranks. */
int lierne_megatron_misaligned(const lierne_megatron_grids *grids, int *ranks, int most);
/* Why the colocated bridge of Megatron-LM rejects the pair; also as text, or "". */
#define LIERNE_MEGATRON_REJECTION 256
lierne_megatron_rejection lierne_megatron_reject(const lierne_megatron_grids *grids, char *text,
                                                 size_t size);

/* Both, of a spec as the caller gives it. */
#define LIERNE_MEGATRON_SHOWN 16
typedef struct lierne_megatron_comparison {
    char rejection[LIERNE_MEGATRON_REJECTION];
    int nmisaligned;
    int misaligned[LIERNE_MEGATRON_SHOWN]; /* the first of them */
} lierne_megatron_comparison;
lierne_status lierne_megatron_compare(lierne_megatron_comparison *out,
                                      const lierne_bridge_spec *spec);

/* What both algorithms need: dp sizes that divide one another and the batch, a partial gradient, no
 * counts and no placements; and of some dims that they have size 1, where hint says what else could
 * be done. */
lierne_status lierne_megatron_check_regular(const lierne_megatron_bridge *bridge,
                                            const char *algorithm);
lierne_status lierne_megatron_check_one(const lierne_grid *grid, const char *whose, const char *dim,
                                        const char *hint);

/* Slice i of n of a buffer, along the batch, which n divides. */
lierne_block lierne_megatron_slice(int naxes, const int64_t *shape, int batch_axis, int i, int n);

/* Whether an algorithm serves a bridge. */
lierne_status lierne_megatron_check_collective(const lierne_megatron_bridge *bridge);
lierne_status lierne_megatron_check_leader(const lierne_megatron_bridge *bridge);
/* Fill the routes, which exist and are empty, and the groups of a bridge that was checked. */
lierne_status lierne_megatron_plan_collective(lierne_context *context,
                                              const lierne_megatron_bridge *bridge,
                                              lierne_plan_parts *parts);
lierne_status lierne_megatron_plan_leader(lierne_context *context,
                                          const lierne_megatron_bridge *bridge,
                                          lierne_plan_parts *parts);

#endif
