#include "plan/fields.h"

#include <stdio.h>
#include <string.h>

lierne_status lierne_plan_check_inflight(int max_inflight) {
    if (max_inflight < 0 || max_inflight > LIERNE_MAX_INFLIGHT) {
        return LIERNE_FAIL(LIERNE_INVALID, "max_inflight is %d, must be in 0 to %d", max_inflight,
                           LIERNE_MAX_INFLIGHT);
    }
    return LIERNE_OK;
}

static lierne_status fill_owned(lierne_plan_side *side, int rank, const lierne_layout *layout) {
    lierne_boxes boxes = {0};
    lierne_cell cell;
    if (!lierne_layout_cell(layout, rank, &cell)) {
        return LIERNE_OK;
    }
    lierne_status status = lierne_layout_cell_boxes(layout, &cell, &boxes, NULL);
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
    LIERNE_TRY(lierne_layout_get_shape(side->in, from, rank));
    LIERNE_TRY(lierne_layout_get_shape(side->out, to, rank));
    return fill_owned(side, rank, to);
}

int64_t lierne_plan_fields_hash(const void *items, size_t n, size_t size) {
    return items ? (int64_t)(lierne_hash(0, items, n * size) >> 1) : 0;
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

void lierne_plan_fields_add_tensor(lierne_plan_fields *fields, const lierne_layout *layout) {
    lierne_plan_fields_add(fields, "naxes", layout->naxes);
    for (int a = 0; a < layout->naxes; a++) {
        lierne_plan_fields_add_at(fields, "shape", a, layout->shape[a]);
    }
    lierne_plan_fields_add(fields, "dtype", (int64_t)layout->dtype);
}

/* A field of a layout; dim -1: of the layout as a whole. */
static void add(lierne_plan_fields *fields, const char *prefix, int dim, const char *name,
                int64_t value) {
    lierne_field *field = &fields->at[fields->count++];
    if (dim < 0) {
        snprintf(field->name, sizeof field->name, "%s.%s", prefix, name);
    } else {
        snprintf(field->name, sizeof field->name, "%s.dim[%d].%s", prefix, dim, name);
    }
    field->value = value;
}

static void add_placement(lierne_plan_fields *fields, const char *prefix,
                          const lierne_layout *layout, int dim) {
    const lierne_placement *p = &layout->placements[dim];
    bool cuts = p->kind == LIERNE_SHARD || p->kind == LIERNE_SHARD_ZIGZAG;
    add(fields, prefix, dim, "size", layout->sizes[dim]);
    add(fields, prefix, dim, "kind", (int64_t)p->kind);
    if (cuts || p->kind == LIERNE_SHARD_ROWS) {
        add(fields, prefix, dim, "axis", p->axis);
    }
    if (p->kind == LIERNE_AT) {
        add(fields, prefix, dim, "at", p->at);
    }
    if (cuts) {
        add(fields, prefix, dim, "cut_order", p->cut_order);
    }
    if (p->kind == LIERNE_SHARD) {
        size_t n = (size_t)layout->sizes[dim] + 1;
        add(fields, prefix, dim, "share", (int64_t)p->share);
        add(fields, prefix, dim, "counts",
            lierne_plan_fields_hash(p->counts, n, sizeof *p->counts));
    }
    if (p->kind == LIERNE_SHARD_ROWS) {
        int64_t columns = lierne_is_axis_map(p) ? 1 : layout->shape[p->axis2];
        size_t n = (size_t)(layout->shape[p->axis] * columns);
        add(fields, prefix, dim, "axis2", p->axis2);
        add(fields, prefix, dim, "rows", lierne_plan_fields_hash(p->rows, n, sizeof *p->rows));
    }
}

void lierne_plan_fields_add_grid(lierne_plan_fields *fields, const char *prefix,
                                 const lierne_grid *grid) {
    const lierne_view *base = grid->views[0];
    uint64_t names = 0;
    for (int d = 0; d < base->ndims; d++) {
        names = lierne_hash(names, base->names[d], strlen(base->names[d]) + 1);
    }
    add(fields, prefix, -1, "offset", grid->offset);
    add(fields, prefix, -1, "order", (int64_t)(names >> 1));
    for (int d = 0; d < base->ndims; d++) {
        char name[16];
        snprintf(name, sizeof name, "sizes[%d]", d);
        add(fields, prefix, -1, name, base->sizes[d]);
    }
}

void lierne_plan_fields_add_layout(lierne_plan_fields *fields, const char *prefix,
                                   const lierne_layout *layout) {
    add(fields, prefix, -1, "offset", layout->offset);
    add(fields, prefix, -1, "ndims", layout->ndims);
    for (int d = 0; d < layout->ndims; d++) {
        add_placement(fields, prefix, layout, d);
    }
    add(fields, prefix, -1, "full_axes", layout->full_axes);
}
