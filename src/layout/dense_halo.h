/* Dense halos of a layout as the planner sees them: what a cell needs of the tensor, and where its
 * buffer shows it. */
#ifndef LIERNE_DENSE_HALO_INTERNAL_H
#define LIERNE_DENSE_HALO_INTERNAL_H

#include "layout/layout.h"

typedef struct lierne_halos {
    int n;
    lierne_dense_halo at[LIERNE_MAX_AXES]; /* as given; outputs: with starts, how many there are */
    int of_axis[LIERNE_MAX_AXES];          /* the halo of each axis, or -1 */
    lierne_stencil stencil;
    lierne_halo_storage storage;
    bool cores; /* every window has its span in it */
} lierne_halos;

/* Takes the halos of a spec into a layout, before its placements, which may cut outputs. copy:
 * those of another layout, of which the shape may differ. check: what else placements must fulfil.
 */
lierne_status lierne_halos_create(lierne_layout *layout, const lierne_layout_spec *spec);
lierne_status lierne_halos_copy(lierne_layout *layout, const lierne_layout *old);
lierne_status lierne_halos_check(const lierne_layout *layout);
/* What a layout with or without halos must fulfil as a source: that its buffers have the cores. */
lierne_status lierne_halos_check_source(const lierne_layout *layout, const char *name);
void lierne_halos_destroy(lierne_halos *halos);

/* Replaces the documents of an axis with a halo. */
lierne_status lierne_halo_set_documents(lierne_layout *layout, int axis, int64_t n,
                                        const int64_t *segments);

/* The halo of an axis, or NULL. */
const lierne_dense_halo *lierne_halo_of(const lierne_layout *layout, int axis);
/* Whether each window of an axis has its span in it. */
static inline bool lierne_halo_has_cores(const lierne_dense_halo *h) {
    return h->lo >= 0 && h->hi >= 0 && h->stride == 0 && !h->starts;
}
/* Whether the margins of a layout are filled or read. */
static inline bool lierne_has_margins(const lierne_layout *layout) {
    return layout->halos && !layout->cores_only;
}
static inline bool lierne_stores_margins(const lierne_layout *layout) {
    return layout->halos && layout->halos->storage == LIERNE_HALO_STORAGE_MARGINS;
}
/* Whether buffers have the cores. */
static inline bool lierne_has_cores(const lierne_layout *layout) {
    return !layout->halos || (layout->halos->cores && !lierne_stores_margins(layout));
}

/* A layout as a source: only its cores hold anything. It borrows all from the other one. */
static inline lierne_layout lierne_layout_as_source(const lierne_layout *layout) {
    lierne_layout source = *layout;
    source.cores_only = layout->halos != NULL;
    return source;
}

typedef LIERNE_VEC(lierne_halo_window) lierne_halo_windows;

/* The window of a span of an axis with a halo; local is not set. One of starts may be empty. */
lierne_halo_window lierne_window_of(const lierne_layout *layout, int axis, const lierne_span *span);
/* The windows of spans of such an axis that have a position. */
lierne_status lierne_windows_list(lierne_halo_windows *windows, const lierne_layout *layout,
                                  int axis, const lierne_spans *spans);

/* Consecutive positions of one window and one zone that show the same kind of thing. */
enum { LIERNE_ZONE_LO, LIERNE_ZONE_CORE, LIERNE_ZONE_HI, LIERNE_ZONES };
typedef enum lierne_shown {
    LIERNE_SHOWN_ELEMENT,
    LIERNE_SHOWN_ZERO,
    LIERNE_SHOWN_KEEP
} lierne_shown;

/* Where a position lies on an axis. */
typedef struct lierne_axis_place {
    int64_t local; /* in a padded buffer */
    size_t window;
    int zone;
    int64_t in_zone;
} lierne_axis_place;

typedef struct lierne_window_piece {
    lierne_axis_place place; /* of its first position */
    int64_t count;           /* positions */
    lierne_shown shown;
    int64_t element; /* of the first position */
    int step;        /* from an element to the next */
} lierne_window_piece;
typedef LIERNE_VEC(lierne_window_piece) lierne_window_pieces;

/* What the windows of an axis show, in the order of positions. */
lierne_status lierne_pieces_list(lierne_window_pieces *pieces, const lierne_layout *layout,
                                 int axis, const lierne_halo_windows *windows);

/* Elements of an axis that have the same number of positions, each of which ascends with them. */
typedef struct lierne_run {
    int64_t start;
    int64_t size;
    size_t first; /* of `count` places, ascending, of its first element */
    size_t count;
} lierne_run;
typedef struct lierne_runs {
    LIERNE_VEC(lierne_run) at; /* ascending */
    LIERNE_VEC(lierne_axis_place) places;
} lierne_runs;
lierne_status lierne_runs_create(lierne_runs *runs, const lierne_window_pieces *pieces);
void lierne_runs_destroy(lierne_runs *runs);

/* Replaces the spans of axes with a halo by the elements that their windows need. */
lierne_status lierne_halo_need_spans(lierne_spans *spans, const lierne_layout *layout);
/* Widens spans of elements to those of which windows may show one. */
lierne_status lierne_halo_widen(lierne_spans *spans, const lierne_layout *layout);

/* A strided box of a buffer. */
typedef struct lierne_patch {
    int64_t offset;
    int64_t size[LIERNE_MAX_AXES];
    int64_t stride[LIERNE_MAX_AXES];
    bool core;   /* of an element: it is its own place, not in a margin */
    int margins; /* how many it lies in at once */
} lierne_patch;
typedef LIERNE_VEC(lierne_patch) lierne_patches;

/* A box of elements that a cell's buffer shows, at `count` places from patch `first` on, in
 * ascending order; `primary` is the core if there is one, else the first in the fewest margins:
 * there what is beside it is in the buffer, too. */
typedef struct lierne_need {
    int64_t start[LIERNE_MAX_AXES];
    size_t first;
    size_t count;
    size_t primary;
} lierne_need;
typedef struct lierne_needs {
    lierne_boxes boxes; /* disjoint; local is not set */
    LIERNE_VEC(lierne_need) at;
    lierne_patches patches;
} lierne_needs;

/* What a cell of a layout with halos needs. To be destroyed also on failure. */
lierne_status lierne_needs_create(lierne_needs *needs, const lierne_layout *layout,
                                  const lierne_cell *cell);
void lierne_needs_destroy(lierne_needs *needs);
/* The place of a part [start, start + size) of a need: patch i of its count. */
lierne_patch lierne_need_patch(const lierne_needs *needs, const lierne_need *need, size_t i,
                               int naxes, const int64_t *start, const int64_t *size);

/* The patches of a cell's buffer that show elements, or are zero. kept, which may be NULL: the
 * elements that are neither. Of a layout that is cores_only, elements are the cores, and what else
 * may be written is zero. */
lierne_status lierne_halo_patches(lierne_patches *elements, lierne_patches *zeros, int64_t *kept,
                                  const lierne_layout *layout, const lierne_cell *cell);

/* The boxes of margin storage. */
typedef LIERNE_VEC(lierne_margin) lierne_margins;
lierne_status lierne_margins_list(lierne_margins *margins, const lierne_layout *layout,
                                  const lierne_cell *cell);

#endif
