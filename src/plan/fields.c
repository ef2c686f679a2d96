#include "plan/fields.h"

#include "layout/joints.h"

#include <stdio.h>
#include <string.h>

lierne_status lierne_plan_check_inflight(int max_inflight) {
    if (max_inflight < 0 || max_inflight > LIERNE_MAX_INFLIGHT) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "max_inflight is %d, must be in 0 to %d",
                           max_inflight, LIERNE_MAX_INFLIGHT);
    }
    return LIERNE_OK;
}

void lierne_plan_find_rows(lierne_plan_parts *parts, const lierne_layout *const *layouts, int n) {
    int last = layouts[0]->naxes - 1;
    int64_t width = layouts[0]->shape[last];
    for (int i = 0; i < n; i++) {
        width = lierne_layout_divides(layouts[i], last) ? 0 : width;
    }
    parts->row = (lierne_plan_rows){width, width, width};
}

lierne_status lierne_plan_check_routing(lierne_routing routing) {
    if ((int)routing < 0 || routing > LIERNE_ROUTING_BALANCED) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "routing is %d, must be in 0 to %d", (int)routing,
                           (int)LIERNE_ROUTING_BALANCED);
    }
    return LIERNE_OK;
}

lierne_status lierne_plan_check_peers(int max_peers, lierne_sharing sharing) {
    if (max_peers < 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "max_peers is %d, must be at least 0", max_peers);
    }
    return max_peers > 0 && sharing != LIERNE_SHARING_NONE
               ? LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                             "max_peers is %d, must be 0 where shared_output is %d", max_peers,
                             (int)sharing)
               : LIERNE_OK;
}

lierne_status lierne_plan_check_sharing(const lierne_context *context, lierne_sharing sharing,
                                        lierne_routing routing, int max_inflight) {
    if ((int)sharing < 0 || sharing > LIERNE_SHARING_BOTH) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "shared_output is %d, must be in 0 to %d",
                           (int)sharing, (int)LIERNE_SHARING_BOTH);
    }
    if (sharing != LIERNE_SHARING_NONE && max_inflight > 1) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "max_inflight is %d, must be 0 or 1 where shared_output is %d",
                           max_inflight, (int)sharing);
    }
    if (sharing != LIERNE_SHARING_NONE && routing == LIERNE_ROUTING_BALANCED) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "routing is %d (balanced), must be %d or %d where shared_output is %d",
                           (int)routing, (int)LIERNE_ROUTING_AUTO, (int)LIERNE_ROUTING_DIRECT,
                           (int)sharing);
    }
    if (sharing != LIERNE_SHARING_NONE && context->memory != &lierne_host_memory) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "shared_output is %d, must be 0 in a context for memory of kind %s",
                           (int)sharing, context->memory->name);
    }
    return LIERNE_OK;
}

lierne_block lierne_plan_block_of(const lierne_layout *layout, const lierne_patch *patch) {
    lierne_block block = {.offset = patch->offset, .ndims = layout->naxes};
    for (int a = 0; a < layout->naxes; a++) {
        block.count[a] = patch->size[a];
        block.stride[a] = patch->stride[a];
    }
    return block;
}

/* All of windows but what is kept. */
static lierne_status fill_windows(lierne_plan_side *side, const lierne_layout *layout,
                                  const lierne_cell *cell) {
    lierne_patches patches = {0};
    lierne_status status = lierne_halo_patches(&patches, &patches, &side->untouched, layout, cell);
    for (size_t i = 0; i < patches.count && status == LIERNE_OK; i++) {
        status = LIERNE_VEC_PUSH(&side->owned, lierne_plan_block_of(layout, &patches.at[i]));
    }
    lierne_mem_free(patches.at);
    return status;
}

static lierne_status fill_owned(lierne_plan_side *side, int rank, const lierne_layout *from,
                                const lierne_layout *layout) {
    lierne_boxes boxes = {0};
    lierne_cell cell;
    if (!lierne_layout_cell(layout, rank, &cell)) {
        return LIERNE_OK;
    }
    if (layout->halos) {
        return fill_windows(side, layout, &cell);
    }
    lierne_status status = from->place_of ? lierne_layout_common(&boxes, layout, &cell, from, true)
                                          : lierne_layout_cell_boxes(layout, &cell, &boxes, NULL);
    if (status == LIERNE_OK) {
        status = lierne_layout_cell_rest(layout, &cell, &boxes, &side->untouched);
    }
    for (size_t i = 0; i < boxes.count && status == LIERNE_OK; i++) {
        lierne_block block =
            lierne_block_box(layout->naxes, side->out, boxes.at[i].local, boxes.at[i].size);
        status = LIERNE_VEC_PUSH(&side->owned, block);
    }
    lierne_mem_free(boxes.at);
    return status;
}

lierne_status lierne_plan_side_fill(lierne_plan_side *side, int rank, const lierne_layout *from,
                                    const lierne_layout *to) {
    side->naxes = from->naxes;
    side->partial = side->partial || from->place_of;
    LIERNE_TRY(lierne_layout_get_shape(side->in, from, rank));
    LIERNE_TRY(lierne_layout_get_shape(side->out, to, rank));
    return fill_owned(side, rank, from, to);
}

void lierne_plan_fields_add(lierne_plan_fields *fields, const char *name, int64_t value) {
    lierne_field *field = &fields->at[fields->count++];
    snprintf(field->name, sizeof field->name, "%s", name);
    field->value = value;
}

void lierne_plan_fields_add_at(lierne_plan_fields *fields, const char *name, int index,
                               int64_t value) {
    lierne_field *field = &fields->at[fields->count++];
    snprintf(field->name, sizeof field->name, "%s[%d]", name, index);
    field->value = value;
}

void lierne_plan_fields_add_dtype(lierne_plan_fields *fields, lierne_dtype dtype) {
    fields->at[fields->count++] = lierne_field_text("dtype", lierne_dtype_name(dtype));
}

void lierne_plan_fields_add_tensor(lierne_plan_fields *fields, const lierne_layout *layout) {
    lierne_plan_fields_add(fields, "naxes", layout->naxes);
    for (int a = 0; a < layout->naxes; a++) {
        lierne_plan_fields_add_at(fields, "shape", a, layout->shape[a]);
    }
    lierne_plan_fields_add_dtype(fields, layout->dtype);
}

void lierne_plan_fields_add_list(lierne_plan_fields *fields, const char *name,
                                 lierne_item_kind kind, const void *items, size_t n) {
    fields->at[fields->count++] = lierne_field_list(name, kind, items, n);
}

void lierne_plan_fields_add_dim(lierne_plan_fields *fields, const char *prefix, int dim,
                                const char *name, int64_t value) {
    lierne_field *field = &fields->at[fields->count++];
    snprintf(field->name, sizeof field->name, "%s.dim[%d].%s", prefix, dim, name);
    field->value = value;
}

/* A field of a layout or grid as a whole. */
static void add_field(lierne_plan_fields *fields, const char *prefix, const char *name,
                      int64_t value) {
    lierne_field *field = &fields->at[fields->count++];
    snprintf(field->name, sizeof field->name, "%s.%s", prefix, name);
    field->value = value;
}

static void add_dim_list(lierne_plan_fields *fields, const char *prefix, int dim, const char *name,
                         lierne_item_kind kind, const void *items, size_t n) {
    char full[sizeof fields->at[0].name];
    snprintf(full, sizeof full, "%s.dim[%d].%s", prefix, dim, name);
    lierne_plan_fields_add_list(fields, full, kind, items, n);
}

static void add_placement(lierne_plan_fields *fields, const char *prefix,
                          const lierne_layout *layout, int dim) {
    const lierne_placement *p = &layout->placements[dim];
    bool cuts = lierne_cuts_in_shares(p->kind);
    lierne_plan_fields_add_dim(fields, prefix, dim, "size", layout->sizes[dim]);
    lierne_plan_fields_add_dim(fields, prefix, dim, "kind", (int64_t)p->kind);
    if (cuts || p->kind == LIERNE_PLACEMENT_SHARD_ROWS) {
        lierne_plan_fields_add_dim(fields, prefix, dim, "axis", p->axis);
    }
    if (p->kind == LIERNE_PLACEMENT_AT) {
        lierne_plan_fields_add_dim(fields, prefix, dim, "at", p->at);
    }
    if (cuts) {
        lierne_plan_fields_add_dim(fields, prefix, dim, "cut_order", p->cut_order);
    }
    if (p->kind == LIERNE_PLACEMENT_SHARD || p->kind == LIERNE_PLACEMENT_SEGMENT_SHARD) {
        lierne_plan_fields_add_dim(fields, prefix, dim, "share", (int64_t)p->share);
    }
    if (p->kind == LIERNE_PLACEMENT_SHARD) {
        size_t n = (size_t)layout->sizes[dim] + 1;
        add_dim_list(fields, prefix, dim, "counts", LIERNE_ITEM_I64, p->counts, n);
    }
    if (p->kind == LIERNE_PLACEMENT_SHARD_ROWS) {
        int64_t columns = lierne_is_axis_map(p) ? 1 : layout->shape[p->axis2];
        size_t n = (size_t)(lierne_extent(layout, p->axis) * columns);
        lierne_plan_fields_add_dim(fields, prefix, dim, "axis2", p->axis2);
        add_dim_list(fields, prefix, dim, "rows", LIERNE_ITEM_I32, p->rows, n);
    }
}

void lierne_plan_fields_add_grid(lierne_plan_fields *fields, const char *prefix,
                                 const lierne_grid *grid) {
    const lierne_view *base = grid->views[0];
    add_field(fields, prefix, "offset", grid->offset);
    add_field(fields, prefix, "ndims", base->ndims);
    for (int d = 0; d < base->ndims; d++) {
        const char *name = base->names[d];
        add_dim_list(fields, prefix, d, "name", LIERNE_ITEM_TEXT, name, strlen(name));
        lierne_plan_fields_add_dim(fields, prefix, d, "size", base->sizes[d]);
    }
}

static void add_packed_list(lierne_plan_fields *fields, const char *prefix, const char *name,
                            lierne_item_kind kind, const void *items, int64_t n) {
    char full[sizeof fields->at[0].name];
    snprintf(full, sizeof full, "%s.%s", prefix, name);
    lierne_plan_fields_add_list(fields, full, kind, items, (size_t)n);
}

static void add_packing(lierne_plan_fields *fields, const char *prefix, const lierne_packed *p) {
    add_field(fields, prefix, "packed_axis", p ? p->axis : -1);
    if (!p) {
        return;
    }
    add_packed_list(fields, prefix, "cu_seqlens", LIERNE_ITEM_I64, p->cu, p->n + 1);
    add_packed_list(fields, prefix, "padded", LIERNE_ITEM_I64, p->padded, p->n);
    add_packed_list(fields, prefix, "lead", LIERNE_ITEM_I64, p->lead, p->n);
    add_packed_list(fields, prefix, "owner", LIERNE_ITEM_I32, p->owner, p->n);
    add_packed_list(fields, prefix, "order", LIERNE_ITEM_I64, p->order, p->n);
    add_field(fields, prefix, "store", (int64_t)p->store);
    add_field(fields, prefix, "padding", (int64_t)p->padding);
    add_field(fields, prefix, "row_order", (int64_t)p->row_order);
}

static void add_halo(lierne_plan_fields *fields, const char *prefix, int index, const char *name,
                     int64_t value) {
    lierne_field *field = &fields->at[fields->count++];
    snprintf(field->name, sizeof field->name, "%s.halo[%d].%s", prefix, index, name);
    field->value = value;
}

/* By their first different number, which an empty list has not. */
static void add_numbers(lierne_plan_fields *fields, const char *prefix, int index, const char *name,
                        const int64_t *numbers, int64_t count) {
    char full[sizeof fields->at[0].name];
    snprintf(full, sizeof full, "%s.halo[%d].%s", prefix, index, name);
    lierne_plan_fields_add_list(fields, full, LIERNE_ITEM_I64, numbers,
                                numbers ? (size_t)count : 0);
}

static void add_halos(lierne_plan_fields *fields, const char *prefix, const lierne_halos *halos) {
    add_field(fields, prefix, "nhalos", halos ? halos->n : 0);
    for (int i = 0; halos && i < halos->n; i++) {
        add_halo(fields, prefix, i, "axis", halos->at[i].axis);
        add_halo(fields, prefix, i, "boundary", (int64_t)halos->at[i].boundary);
        add_halo(fields, prefix, i, "lo", halos->at[i].lo);
        add_halo(fields, prefix, i, "hi", halos->at[i].hi);
        add_halo(fields, prefix, i, "stride", halos->at[i].stride);
        add_halo(fields, prefix, i, "outputs", halos->at[i].outputs);
        add_numbers(fields, prefix, i, "segments", halos->at[i].segments,
                    halos->at[i].nsegments + 1);
        add_numbers(fields, prefix, i, "starts", halos->at[i].starts, halos->at[i].outputs);
        add_numbers(fields, prefix, i, "ends", halos->at[i].ends, halos->at[i].outputs);
    }
    if (halos) {
        add_field(fields, prefix, "stencil", (int64_t)halos->stencil);
        add_field(fields, prefix, "halo_storage", (int64_t)halos->storage);
    }
}

void lierne_plan_fields_add_layout(lierne_plan_fields *fields, const char *prefix,
                                   const lierne_layout *layout) {
    add_field(fields, prefix, "offset", layout->offset);
    add_field(fields, prefix, "ndims", layout->ndims);
    for (int d = 0; d < layout->ndims; d++) {
        add_placement(fields, prefix, layout, d);
    }
    add_field(fields, prefix, "full_axes", layout->full_axes);
    add_packing(fields, prefix, layout->packed);
    add_halos(fields, prefix, layout->halos);
}

void lierne_plan_fields_add_joints(lierne_plan_fields *fields, const lierne_joints *joints) {
    const size_t words = sizeof *joints->at / sizeof(int64_t);
    lierne_plan_fields_add_list(fields, "runs", LIERNE_ITEM_I64, joints->at,
                                (size_t)joints->n * words);
}
