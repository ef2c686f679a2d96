/* What the files of the bridge builder share. */
#ifndef LIERNE_BRIDGE_INTERNAL_H
#define LIERNE_BRIDGE_INTERNAL_H

#include "layout/layout.h"
#include "lierne/bridge.h"
#include "plan/plan.h"

/* The layouts of a bridge. The gradient of the input lies as the tensor does at the source. */
typedef struct lierne_bridge_sides {
    lierne_layout *src;
    lierne_layout *dst;
    lierne_layout *gradient; /* of the output */
} lierne_bridge_sides;

/* A spec without views and without rows_per_sample, and what it needs to be one. Everything below
 * takes specs of this kind. */
typedef struct lierne_bridge_resolved {
    lierne_bridge_spec spec;
    lierne_grid *src;
    lierne_grid *dst;
    int64_t shape[3];
} lierne_bridge_resolved;
/* To be freed also after a failure. Points into spec. */
lierne_status lierne_bridge_resolve(const lierne_bridge_spec *spec, lierne_bridge_resolved *r);
void lierne_bridge_resolved_destroy(lierne_bridge_resolved *r);

/* Index of a dim in the base view, -1 if there is none; its size, 1 if there is none. */
int lierne_bridge_dim(const lierne_grid *grid, const char *name);
int lierne_bridge_size(const lierne_grid *grid, const char *name);

/* Spec and grids alone; then all of a spec that needs neither a context nor a layout. */
lierne_status lierne_bridge_check_grids(const lierne_bridge_spec *spec);
lierne_status lierne_bridge_check(const lierne_bridge_spec *spec);
/* Whether the reference's algorithms are defined for a spec that lierne_bridge_check accepts:
 * either, or the one that the spec names. */
lierne_status lierne_bridge_check_collective(const lierne_bridge_spec *spec);
lierne_status lierne_bridge_check_leader(const lierne_bridge_spec *spec);
lierne_status lierne_bridge_check_algorithm(const lierne_bridge_spec *spec);

/* Returns the number of ranks whose dp ranks in the two grids hold no common samples, and writes
 * the first of these ranks, at most `most`. 0 if the grids have different ranks, or if neither dp
 * size divides the other. The time grows with `most`, not with the number of ranks. */
int lierne_bridge_misaligned(const lierne_bridge_spec *spec, int *ranks, int most);
/* Writes why the reference's colocated bridge refuses the pair, or "". */
void lierne_bridge_refusal(const lierne_bridge_spec *spec, char *text, size_t size);

/* Both, of a spec as the caller gives it. */
#define LIERNE_BRIDGE_REFUSAL 256
#define LIERNE_BRIDGE_SHOWN   16
typedef struct lierne_bridge_comparison {
    char refusal[LIERNE_BRIDGE_REFUSAL];
    int nmisaligned;
    int misaligned[LIERNE_BRIDGE_SHOWN]; /* the first of them */
} lierne_bridge_comparison;
lierne_status lierne_bridge_compare(lierne_bridge_comparison *out, const lierne_bridge_spec *spec);

/* What both of them need: lanes that divide one another and the batch, a partial gradient, nothing
 * placed; and of some dims that they have size 1, where hint says what else could be done. */
lierne_status lierne_bridge_check_regular(const lierne_bridge_spec *spec, const char *algorithm);
lierne_status lierne_bridge_check_one(const lierne_grid *grid, const char *whose, const char *dim,
                                      const char *hint);

/* Slice i of n of a buffer, along the batch, which n divides. */
lierne_block lierne_bridge_slice(int naxes, const int64_t *shape, int batch_axis, int i, int n);

/* All of a spec as the caller gives it that needs no context: what lierne_plan_create_bridge would
 * say. Without algorithm, whether DIRECT could serve it. */
lierne_status lierne_bridge_validate(const lierne_bridge_spec *spec, bool algorithm);

/* sides is zero before; to be freed also after a failure. */
lierne_status lierne_bridge_layouts(const lierne_bridge_spec *spec, lierne_bridge_sides *sides);
void lierne_bridge_layouts_destroy(lierne_bridge_sides *sides);

/* What a plan with variable rows keeps: its routes in samples, and where each sample begins. */
typedef struct lierne_bridge_counts {
    lierne_plan *exchange;  /* moves one count per sample */
    lierne_route *model[2]; /* of forward and adjoint, one element per sample */
    int64_t samples[2];     /* of this rank's source and destination lane */
    int64_t *rows[2];       /* of each of them */
    int64_t *first[2];      /* running sums: the first row of each, and the end */
    int64_t most;           /* rows of a sample */
    int64_t width;          /* elements of a row */
} lierne_bridge_counts;
/* Both leave nothing behind on failure. */
lierne_status lierne_bridge_counts_create(lierne_bridge_counts **out,
                                          const lierne_bridge_spec *spec,
                                          const lierne_plan_parts *model, lierne_plan_parts *parts);
void lierne_bridge_counts_destroy(lierne_bridge_counts *counts);

/* What a plan of a bridge keeps: its spec, with copies of all that it points to but the row map. */
typedef struct lierne_bridge_saved_spec {
    lierne_saved_spec base;
    lierne_bridge_spec spec;
    lierne_grid *src;
    lierne_grid *dst;
    int64_t shape[3];
    int64_t *counts[2]; /* of source and destination, or NULL */
    lierne_placement *placements[2];
    lierne_bridge_counts *variable; /* with variable rows */
} lierne_bridge_saved_spec;
lierne_status lierne_bridge_saved_spec_create(lierne_bridge_saved_spec **out,
                                              const lierne_bridge_spec *spec);
void lierne_bridge_saved_spec_destroy(lierne_saved_spec *recipe);

/* Fills the routes, bounds and groups of the collective algorithm; routes exist and are empty. */
lierne_status lierne_bridge_collective(lierne_context *context, const lierne_bridge_spec *spec,
                                       const lierne_bridge_sides *sides, lierne_plan_parts *parts);
/* The same of the algorithm of leaders. */
lierne_status lierne_bridge_leader(lierne_context *context, const lierne_bridge_spec *spec,
                                   lierne_plan_parts *parts);

#endif
