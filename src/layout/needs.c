/* What a cell with halos needs of the tensor, and where its buffer shows it.
 *
 * Along each axis the elements fall into runs, each with its places (windows.c). A box of a run per
 * axis is shown at every combination of their places: so halos on several axes, with all corners,
 * are products of what each axis has. Where places lie in the buffer is a table per combination of
 * windows and zones in margin storage, and strides otherwise. */
#include "layout/dense_halo.h"

#include <string.h>

/* What places of a cell's buffer follow from. */
typedef struct buffer {
    const lierne_layout *layout;
    lierne_spans spans[LIERNE_MAX_AXES];
    lierne_halo_windows windows[LIERNE_MAX_AXES];
    lierne_window_pieces pieces[LIERNE_MAX_AXES]; /* of axes with a halo */
    int64_t stored[LIERNE_MAX_AXES];              /* of axes without one, and their boxes */
    lierne_boxes base;
    int64_t stride[LIERNE_MAX_AXES]; /* padded storage */
    int64_t *offsets;                /* margin storage: of each box, -1 where there is none */
    int64_t total;
} buffer;

/* The next combination of counts, the last one fastest; false after the last one. */
static bool next(int n, size_t *at, const size_t *counts) {
    for (int a = n - 1; a >= 0; a--) {
        if (++at[a] < counts[a]) {
            return true;
        }
        at[a] = 0;
    }
    return false;
}

static int64_t zone_size(const buffer *b, int axis, size_t window, int zone) {
    const lierne_halo_window *w = &b->windows[axis].at[window];
    if (!lierne_halo_of(b->layout, axis)) {
        return b->stored[axis];
    }
    return zone == LIERNE_ZONE_LO     ? w->core_start - w->start
           : zone == LIERNE_ZONE_CORE ? w->core_size
                                      : w->start + w->size - w->core_start - w->core_size;
}

/* Whether buffers have what lies in `margins` margins at once. */
static bool is_shown(const lierne_layout *layout, int margins) {
    return margins == 0 ? !lierne_stores_margins(layout)
                        : margins == 1 || layout->halos->stencil == LIERNE_STENCIL_BOX;
}

/* An axis without a halo has no zones but its core. */
static size_t count_zones(const buffer *b, int axis) {
    return lierne_halo_of(b->layout, axis) ? LIERNE_ZONES : 1;
}

static int zone_at(const buffer *b, int axis, size_t i) {
    return lierne_halo_of(b->layout, axis) ? (int)i : LIERNE_ZONE_CORE;
}

/* The box of a combination of windows and zones. */
static lierne_margin margin_of(const buffer *b, const size_t *windows, const size_t *zones) {
    lierne_margin box = {.offset = b->total};
    for (int a = 0; a < b->layout->naxes; a++) {
        const lierne_halo_window *w = &b->windows[a].at[windows[a]];
        int zone = zone_at(b, a, zones[a]);
        box.size[a] = zone_size(b, a, windows[a], zone);
        box.start[a] = zone == LIERNE_ZONE_LO     ? w->start
                       : zone == LIERNE_ZONE_CORE ? w->core_start
                                                  : w->core_start + w->core_size;
    }
    return box;
}

/* Adds the boxes of a combination of windows; at[] gets the offset of each combination of zones. */
static lierne_status place_zones(buffer *b, const size_t *windows, int64_t *at,
                                 lierne_margins *margins) {
    size_t zones[LIERNE_MAX_AXES] = {0}, counts[LIERNE_MAX_AXES];
    for (int a = 0; a < b->layout->naxes; a++) {
        counts[a] = count_zones(b, a);
    }
    do {
        lierne_margin box = margin_of(b, windows, zones);
        int64_t elements = 1;
        int outside = 0;
        for (int a = 0; a < b->layout->naxes; a++) {
            elements *= box.size[a];
            outside += zone_at(b, a, zones[a]) != LIERNE_ZONE_CORE;
        }
        bool shown = is_shown(b->layout, outside);
        *at++ = shown ? box.offset : -1;
        if (shown && elements > 0) {
            b->total += elements;
            LIERNE_TRY(margins ? LIERNE_VEC_PUSH(margins, box) : LIERNE_OK);
        }
    } while (next(b->layout->naxes, zones, counts));
    return LIERNE_OK;
}

static lierne_status place_margins(buffer *b, lierne_margins *margins) {
    size_t windows[LIERNE_MAX_AXES] = {0}, counts[LIERNE_MAX_AXES], n = 1, zones = 1, i = 0;
    for (int a = 0; a < b->layout->naxes; a++) {
        counts[a] = b->windows[a].count;
        n *= counts[a];
        zones *= count_zones(b, a);
    }
    LIERNE_TRY(lierne_alloc(&b->offsets, n * zones, sizeof *b->offsets));
    if (n == 0) {
        return LIERNE_OK;
    }
    do {
        LIERNE_TRY(place_zones(b, windows, b->offsets + zones * i++, margins));
    } while (next(b->layout->naxes, windows, counts));
    return LIERNE_OK;
}

static void set_strides(buffer *b) {
    int64_t stride = 1;
    for (int a = b->layout->naxes - 1; a >= 0; a--) {
        int64_t n = b->stored[a];
        if (lierne_halo_of(b->layout, a)) {
            n = 0;
            for (size_t i = 0; i < b->windows[a].count; i++) {
                n += b->windows[a].at[i].size;
            }
        }
        b->stride[a] = stride;
        stride *= n;
    }
}

static lierne_status fill_buffer(buffer *b, const lierne_cell *cell, lierne_margins *margins) {
    const lierne_layout *layout = b->layout;
    LIERNE_TRY(lierne_spans_create(b->spans, layout, cell));
    LIERNE_TRY(lierne_layout_other_axes(layout, cell, &b->base, b->stored));
    for (int a = 0; a < layout->naxes; a++) {
        const lierne_halo_window whole = {.size = b->stored[a], .core_size = b->stored[a]};
        if (lierne_halo_of(layout, a)) {
            LIERNE_TRY(lierne_windows_list(&b->windows[a], layout, a, &b->spans[a]));
            LIERNE_TRY(lierne_pieces_list(&b->pieces[a], layout, a, &b->windows[a]));
        } else if (b->stored[a] > 0) {
            LIERNE_TRY(LIERNE_VEC_PUSH(&b->windows[a], whole));
        }
    }
    set_strides(b);
    return lierne_stores_margins(layout) ? place_margins(b, margins) : LIERNE_OK;
}

static void clear_buffer(buffer *b) {
    lierne_spans_destroy(b->spans, b->layout->naxes);
    for (int a = 0; a < b->layout->naxes; a++) {
        lierne_mem_free(b->windows[a].at);
        lierne_mem_free(b->pieces[a].at);
    }
    lierne_mem_free(b->base.at);
    lierne_mem_free(b->offsets);
}

/* Sets offset, strides and core of a patch that begins at these places, and whether the buffer has
 * it. */
static bool place_patch(const buffer *b, const lierne_axis_place *at, lierne_patch *patch) {
    const lierne_layout *layout = b->layout;
    size_t window = 0, zone = 0;
    int64_t stride = 1;
    int outside = 0;
    patch->offset = 0;
    for (int a = 0; a < layout->naxes; a++) {
        bool halo = lierne_halo_of(layout, a);
        outside += halo && at[a].zone != LIERNE_ZONE_CORE;
        window = window * b->windows[a].count + at[a].window;
        zone = halo ? zone * LIERNE_ZONES + (size_t)at[a].zone : zone;
        patch->stride[a] = b->stride[a];
        patch->offset += at[a].local * b->stride[a];
    }
    patch->core = outside == 0 && layout->halos->cores;
    patch->margins = outside;
    if (!is_shown(layout, outside) || !lierne_stores_margins(layout)) {
        return is_shown(layout, outside);
    }
    size_t zones = 1;
    for (int a = 0; a < layout->naxes; a++) {
        zones *= count_zones(b, a);
    }
    patch->offset = b->offsets[window * zones + zone];
    for (int a = layout->naxes - 1; a >= 0; a--) {
        patch->stride[a] = stride;
        patch->offset += at[a].in_zone * stride;
        stride *= zone_size(b, a, at[a].window, at[a].zone);
    }
    return true;
}

/* The place of a box of the axes without a halo on one of them. */
static lierne_axis_place place_of(const lierne_box *base, int axis) {
    return (lierne_axis_place){.local = base->local[axis],
                               .in_zone = base->local[axis],
                               .zone = LIERNE_ZONE_CORE};
}

/* The runs of the axes with a halo, and what else a need is made of. */
typedef struct builder {
    buffer b;
    lierne_runs runs[LIERNE_MAX_AXES];
    lierne_needs *needs;
} builder;

/* Places are listed by axis; those of a buffer ascend by offset. */
static void sort_last(lierne_patches *patches, size_t first) {
    lierne_patch last = patches->at[patches->count - 1];
    size_t i = patches->count - 1;
    for (; i > first && patches->at[i - 1].offset > last.offset; i--) {
        patches->at[i] = patches->at[i - 1];
    }
    patches->at[i] = last;
}

/* All places of a box of elements whose runs are at[] and whose other axes are those of base. */
static lierne_status push_places(builder *u, const lierne_box *base, const size_t *at,
                                 lierne_need *need) {
    const lierne_layout *layout = u->b.layout;
    size_t place[LIERNE_MAX_AXES] = {0}, counts[LIERNE_MAX_AXES];
    lierne_axis_place axes[LIERNE_MAX_AXES];
    lierne_patches *patches = &u->needs->patches;
    for (int a = 0; a < layout->naxes; a++) {
        counts[a] = lierne_halo_of(layout, a) ? u->runs[a].at.at[at[a]].count : 1;
        axes[a] = place_of(base, a);
    }
    do {
        lierne_patch patch = {.offset = 0};
        for (int a = 0; a < layout->naxes; a++) {
            if (lierne_halo_of(layout, a)) {
                axes[a] = u->runs[a].places.at[u->runs[a].at.at[at[a]].first + place[a]];
            }
        }
        if (place_patch(&u->b, axes, &patch)) {
            LIERNE_TRY(LIERNE_VEC_PUSH(patches, patch));
            sort_last(patches, need->first);
            need->count++;
        }
    } while (next(layout->naxes, place, counts));
    for (size_t i = 0; i < need->count; i++) {
        const lierne_patch *of = &patches->at[need->first];
        need->primary = of[i].margins < of[need->primary].margins ? i : need->primary;
    }
    return LIERNE_OK;
}

static lierne_status push_need(builder *u, const lierne_box *base, const size_t *at) {
    lierne_needs *needs = u->needs;
    lierne_need need = {.first = needs->patches.count};
    lierne_box box = *base;
    LIERNE_TRY(push_places(u, base, at, &need));
    if (need.count == 0) {
        return LIERNE_OK;
    }
    for (int a = 0; a < u->b.layout->naxes; a++) {
        if (lierne_halo_of(u->b.layout, a)) {
            box.start[a] = u->runs[a].at.at[at[a]].start;
            box.size[a] = u->runs[a].at.at[at[a]].size;
        }
        need.start[a] = box.start[a];
        box.local[a] = 0;
    }
    LIERNE_TRY(LIERNE_VEC_PUSH(&needs->boxes, box));
    return LIERNE_VEC_PUSH(&needs->at, need);
}

static lierne_status build(builder *u, const lierne_cell *cell) {
    const lierne_layout *layout = u->b.layout;
    size_t counts[LIERNE_MAX_AXES];
    LIERNE_TRY(fill_buffer(&u->b, cell, NULL));
    for (int a = 0; a < layout->naxes; a++) {
        counts[a] = 1;
        if (lierne_halo_of(layout, a)) {
            LIERNE_TRY(lierne_runs_create(&u->runs[a], &u->b.pieces[a]));
            counts[a] = u->runs[a].at.count;
        }
        if (counts[a] == 0) {
            return LIERNE_OK;
        }
    }
    for (size_t i = 0; i < u->b.base.count; i++) {
        size_t at[LIERNE_MAX_AXES] = {0};
        do {
            LIERNE_TRY(push_need(u, &u->b.base.at[i], at));
        } while (next(layout->naxes, at, counts));
    }
    return LIERNE_OK;
}

lierne_status lierne_needs_create(lierne_needs *needs, const lierne_layout *layout,
                                  const lierne_cell *cell) {
    builder u = {.b = {.layout = layout}, .needs = needs};
    *needs = (lierne_needs){.at = {0}};
    lierne_status status = build(&u, cell);
    for (int a = 0; a < layout->naxes; a++) {
        lierne_runs_destroy(&u.runs[a]);
    }
    clear_buffer(&u.b);
    return status;
}

void lierne_needs_destroy(lierne_needs *needs) {
    lierne_mem_free(needs->boxes.at);
    lierne_mem_free(needs->at.at);
    lierne_mem_free(needs->patches.at);
}

lierne_patch lierne_need_patch(const lierne_needs *needs, const lierne_need *need, size_t i,
                               int naxes, const int64_t *start, const int64_t *size) {
    lierne_patch patch = needs->patches.at[need->first + i];
    for (int a = 0; a < naxes; a++) {
        patch.offset += (start[a] - need->start[a]) * patch.stride[a];
        patch.size[a] = size[a];
    }
    return patch;
}

/* Where patches of elements and zeros go; how many elements are neither. */
typedef struct patch_lists {
    lierne_patches *elements;
    lierne_patches *zeros;
    int64_t kept;
} patch_lists;

/* What a combination of pieces holds; core: it is all core. */
static lierne_shown shown_by(const buffer *b, const size_t *at, bool core) {
    bool zero = b->layout->cores_only && !core;
    int outside = 0;
    for (int a = 0; a < b->layout->naxes; a++) {
        if (!lierne_halo_of(b->layout, a)) {
            continue;
        }
        const lierne_window_piece *piece = &b->pieces[a].at[at[a]];
        if (piece->shown == LIERNE_SHOWN_KEEP) {
            return LIERNE_SHOWN_KEEP;
        }
        zero = zero || piece->shown == LIERNE_SHOWN_ZERO;
        outside += piece->place.zone != LIERNE_ZONE_CORE;
    }
    bool corner = b->layout->halos->stencil == LIERNE_STENCIL_STAR && outside > 1;
    return zero || corner ? LIERNE_SHOWN_ZERO : LIERNE_SHOWN_ELEMENT;
}

/* The patch of a combination of pieces; in margin storage cores and corners of a star have none. */
static lierne_status add_patch(const buffer *b, const lierne_box *base, const size_t *at,
                               patch_lists *lists) {
    lierne_axis_place places[LIERNE_MAX_AXES];
    lierne_patch patch = {.offset = 0};
    int64_t n = 1;
    for (int a = 0; a < b->layout->naxes; a++) {
        bool halo = lierne_halo_of(b->layout, a);
        places[a] = halo ? b->pieces[a].at[at[a]].place : place_of(base, a);
        patch.size[a] = halo ? b->pieces[a].at[at[a]].count : base->size[a];
        n *= patch.size[a];
    }
    if (!place_patch(b, places, &patch) && lierne_stores_margins(b->layout)) {
        return LIERNE_OK;
    }
    switch (shown_by(b, at, patch.core)) {
    case LIERNE_SHOWN_KEEP:
        lists->kept += n;
        return LIERNE_OK;
    case LIERNE_SHOWN_ZERO:
        return LIERNE_VEC_PUSH(lists->zeros, patch);
    case LIERNE_SHOWN_ELEMENT:
        return LIERNE_VEC_PUSH(lists->elements, patch);
    }
    return LIERNE_OK;
}

static lierne_status add_patches(const buffer *b, patch_lists *lists) {
    size_t counts[LIERNE_MAX_AXES];
    for (int a = 0; a < b->layout->naxes; a++) {
        counts[a] = lierne_halo_of(b->layout, a) ? b->pieces[a].count : 1;
        if (counts[a] == 0) {
            return LIERNE_OK;
        }
    }
    for (size_t i = 0; i < b->base.count; i++) {
        size_t at[LIERNE_MAX_AXES] = {0};
        do {
            LIERNE_TRY(add_patch(b, &b->base.at[i], at, lists));
        } while (next(b->layout->naxes, at, counts));
    }
    return LIERNE_OK;
}

lierne_status lierne_halo_patches(lierne_patches *elements, lierne_patches *zeros, int64_t *kept,
                                  const lierne_layout *layout, const lierne_cell *cell) {
    buffer b = {.layout = layout};
    patch_lists lists = {elements, zeros, 0};
    lierne_status status = fill_buffer(&b, cell, NULL);
    status = status == LIERNE_OK ? add_patches(&b, &lists) : status;
    clear_buffer(&b);
    if (kept) {
        *kept = lists.kept;
    }
    return status;
}

lierne_status lierne_margins_list(lierne_margins *margins, const lierne_layout *layout,
                                  const lierne_cell *cell) {
    buffer b = {.layout = layout};
    lierne_status status = fill_buffer(&b, cell, margins);
    clear_buffer(&b);
    return status;
}
