/* What planners whose buffers lie under layouts share: the sides of their plans, and what ranks
 * compare before the plan exists. */
#ifndef LIERNE_PLAN_FIELDS_H
#define LIERNE_PLAN_FIELDS_H

#include "grid/grid.h"
#include "layout/dense_halo.h"
#include "layout/joints.h"
#include "plan/plan.h"

/* Shapes of the rank's buffers under two layouts, and the blocks of out that must be written. */
lierne_status lierne_plan_side_fill(lierne_plan_side *side, int rank, const lierne_layout *from,
                                    const lierne_layout *to);
/* A patch of a buffer as a block. */
lierne_block lierne_plan_block_of(const lierne_layout *layout, const lierne_patch *patch);
/* The rows of a plan between n layouts: the last axis, if none of them divides it. */
void lierne_plan_find_rows(lierne_plan_parts *parts, const lierne_layout *const *layouts, int n);
/* Whether a spec's routing is one. */
lierne_status lierne_plan_check_routing(lierne_routing routing);
/* Whether a spec's max_peers is in range, and fits its shared_output; 0 does. */
lierne_status lierne_plan_check_peers(int max_peers, lierne_sharing sharing);

/* Whether a spec's shared_output is one, and fits the rest of the spec and the context. */
lierne_status lierne_plan_check_sharing(const lierne_context *context, lierne_sharing sharing,
                                        lierne_routing routing, int max_inflight);

/* Whether a spec's max_inflight is in range; 0 is. */
lierne_status lierne_plan_check_inflight(int max_inflight);

/* What ranks must have given alike: four layouts of LIERNE_MAX_DIMS dims fit. */
#define LIERNE_PLAN_FIELDS 600
typedef struct lierne_plan_fields {
    lierne_field at[LIERNE_PLAN_FIELDS];
    size_t count;
} lierne_plan_fields;
void lierne_plan_fields_add(lierne_plan_fields *fields, const char *name, int64_t value);
/* Named "name[index]". */
void lierne_plan_fields_add_at(lierne_plan_fields *fields, const char *name, int index,
                               int64_t value);
/* The items must be readable until the ranks have agreed; NULL is another value than any list. */
void lierne_plan_fields_add_list(lierne_plan_fields *fields, const char *name,
                                 lierne_item_kind kind, const void *items, size_t n);
/* Named "prefix.dim[dim].name". */
void lierne_plan_fields_add_dim(lierne_plan_fields *fields, const char *prefix, int dim,
                                const char *name, int64_t value);
void lierne_plan_fields_add_dtype(lierne_plan_fields *fields, lierne_dtype dtype);
/* The shape and dtype of a layout's tensor. */
void lierne_plan_fields_add_tensor(lierne_plan_fields *fields, const lierne_layout *layout);
/* Ranks, dim names and sizes of a grid's base view, named "prefix.sizes[0]" and the like. */
void lierne_plan_fields_add_grid(lierne_plan_fields *fields, const char *prefix,
                                 const lierne_grid *grid);
/* All else of a layout, named "prefix.dim[0].size" and the like; a prefix has 11 letters at most.
 */
void lierne_plan_fields_add_layout(lierne_plan_fields *fields, const char *prefix,
                                   const lierne_layout *layout);
/* Runs, in an order that does not depend on that in which they were given; none where there are no
 * joints. */
void lierne_plan_fields_add_joints(lierne_plan_fields *fields, const lierne_joints *joints);

#endif
