/* What the files of the bridge planner share. */
#ifndef LIERNE_BRIDGE_INTERNAL_H
#define LIERNE_BRIDGE_INTERNAL_H

#include "grid/grid.h"
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

/* All of a spec that needs neither a context nor a layout. */
lierne_status lierne_bridge_check_resolved(const lierne_bridge_spec *spec);

/* sides is zero before; to be freed also after a failure. */
lierne_status lierne_bridge_sides_create(lierne_bridge_sides *sides,
                                         const lierne_bridge_spec *spec);
void lierne_bridge_sides_destroy(lierne_bridge_sides *sides);

/* What a plan with variable rows keeps: its routes in samples, and where each sample begins. */
typedef struct lierne_bridge_counts {
    lierne_plan *exchange;  /* moves one count per sample */
    lierne_route *model[2]; /* of forward and adjoint, one element per sample */
    int64_t samples[2];     /* of this rank at the source and at the destination */
    int64_t *rows[2];       /* of each of them, where a device of the context can read them too */
    lierne_context *context;
    int64_t *first[2]; /* running sums: the first row of each, and the end */
    int64_t most;      /* rows of a sample */
    int64_t width;     /* elements of a row */
} lierne_bridge_counts;
/* Both leave nothing behind on failure. */
lierne_status lierne_bridge_counts_create(lierne_bridge_counts **out, lierne_context *context,
                                          const lierne_bridge_spec *spec,
                                          const lierne_plan_parts *model, lierne_plan_parts *parts);
void lierne_bridge_counts_destroy(lierne_bridge_counts *counts);
/* Measures the live routes anew by the rows of each sample. */
void lierne_bridge_counts_measure(lierne_bridge_counts *counts, lierne_plan_side *forward,
                                  lierne_plan_side *adjoint);

/* What a plan of a bridge keeps: its spec, with copies of all that it points to. */
typedef struct lierne_bridge_saved_spec {
    lierne_saved_spec base;
    lierne_bridge_spec spec;
    lierne_grid *src;
    lierne_grid *dst;
    int64_t shape[3];
    int64_t *counts[2]; /* of source and destination, or NULL */
    lierne_placement *placements[2];
    int32_t *row_owner;             /* or NULL */
    lierne_bridge_counts *variable; /* with variable rows */
} lierne_bridge_saved_spec;
/* Entries of a row map; 0 of a tensor without rows. */
size_t lierne_bridge_map_size(const lierne_bridge_spec *spec);
lierne_status lierne_bridge_saved_spec_create(lierne_bridge_saved_spec **out,
                                              const lierne_bridge_spec *spec);
void lierne_bridge_saved_spec_destroy(lierne_saved_spec *saved);

#endif
