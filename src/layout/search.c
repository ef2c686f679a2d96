/* The search for the cells of a layout that overlap a cell of another one.
 *
 * Cells are enumerated by descending through the cuts. Of the coordinates of a dim only those are
 * tried that have something of what is wanted, so the cost follows the number of cells found. */
#include "layout/dense_halo.h"

#include <string.h>

/* What is looked for in a layout, and the cell at hand. */
typedef struct search {
    const lierne_layout *layout;
    const lierne_spans *wanted; /* per axis */
    lierne_cell cell;
    lierne_cells *cells;
} search;

/* The first of the spans that ends behind an index; their number if none does. */
static size_t find_span(const lierne_spans *spans, int64_t index) {
    size_t low = 0, high = spans->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (spans->at[middle].start + spans->at[middle].size <= index) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The first position, from `from` on, in the concatenation of the pieces that is wanted; their
 * length if there is none. */
static int64_t next_wanted(const lierne_pieces *have, const lierne_spans *wanted, int64_t from) {
    int64_t before = 0;
    for (int i = 0; i < have->count; before += have->at[i++].size) {
        int64_t start = have->at[i].start, end = start + have->at[i].size;
        int64_t index = from > before ? start + from - before : start;
        size_t j = find_span(wanted, index);
        if (j == wanted->count) {
            continue;
        }
        index = wanted->at[j].start > index ? wanted->at[j].start : index;
        if (index < end) {
            return before + index - start;
        }
    }
    return before;
}

/* The lowest coordinate, n + 1 if there is none, whose first index is at least limit. */
static int bisect(const lierne_placement *p, int64_t total, int n, int64_t limit) {
    int low = 0, high = n + 1;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (lierne_share_start(p, total, n, middle) < limit) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The lowest coordinate of dim d, from c on, whose part of the pieces has something wanted (or may
 * have, unless dim d is a SHARD); n if there is none. Those of SHARD, which may be as many as the
 * world has ranks, are bisected. */
static int next_coord(const search *s, int d, const lierne_pieces *have, int c) {
    const lierne_placement *p = &s->layout->placements[d];
    int n = s->layout->sizes[d];
    if (p->kind != LIERNE_PLACEMENT_SHARD || c == n || lierne_is_packed(s->layout, p->axis)) {
        return c;
    }
    int64_t total = lierne_pieces_length(have);
    int64_t at = next_wanted(have, &s->wanted[p->axis], lierne_share_start(p, total, n, c));
    if (at < lierne_share_start(p, total, n, c + 1)) {
        return c;
    }
    return at < total ? bisect(p, total, n, at + 1) - 1 : n;
}

static lierne_status descend(search *s, int i, const lierne_pieces *have);

/* Goes on with coordinate c of cut i, where it has something wanted. What it has of a packed axis
 * is not known here: every coordinate is tried. */
static lierne_status try_coord(search *s, int i, const lierne_pieces *have, int c) {
    int d = s->layout->cuts[i];
    const lierne_placement *p = &s->layout->placements[d];
    if (lierne_is_packed(s->layout, p->axis)) {
        s->cell.coords[d] = c;
        return descend(s, i + 1, have);
    }
    lierne_pieces pieces[LIERNE_MAX_AXES], *cut = &pieces[p->axis];
    memcpy(pieces, have, (size_t)s->layout->naxes * sizeof *pieces);
    lierne_axis_cut(s->layout, d, c, cut);
    if (p->kind != LIERNE_PLACEMENT_SHARD &&
        next_wanted(cut, &s->wanted[p->axis], 0) == lierne_pieces_length(cut)) {
        return LIERNE_OK;
    }
    s->cell.coords[d] = c;
    return descend(s, i + 1, pieces);
}

/* Whether the maps among the cuts before cut i give an index of its axis to the cell. */
static bool is_owned(const search *s, int i, int64_t index) {
    int axis = s->layout->placements[s->layout->cuts[i]].axis;
    for (int j = 0; j < i; j++) {
        int d = s->layout->cuts[j];
        const lierne_placement *p = &s->layout->placements[d];
        if (lierne_is_axis_map(p) && p->axis == axis && p->rows[index] != s->cell.coords[d]) {
            return false;
        }
    }
    return true;
}

/* Inserts into an ascending list what is not in it. */
static lierne_status insert(lierne_ranks *list, int value) {
    size_t low = 0, high = list->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (list->at[middle] < value) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < list->count && list->at[low] == value) {
        return LIERNE_OK;
    }
    LIERNE_TRY(LIERNE_VEC_PUSH(list, value));
    memmove(&list->at[low + 1], &list->at[low], (list->count - 1 - low) * sizeof *list->at);
    list->at[low] = value;
    return LIERNE_OK;
}

/* The coordinates of cut i, a map of one axis, that own something wanted of one piece. */
static lierne_status list_owners(const search *s, int i, const lierne_span *piece,
                                 lierne_ranks *owners) {
    const lierne_placement *p = &s->layout->placements[s->layout->cuts[i]];
    const lierne_spans *wanted = &s->wanted[p->axis];
    int64_t end = piece->start + piece->size;
    for (size_t j = find_span(wanted, piece->start); j < wanted->count; j++) {
        const lierne_span *w = &wanted->at[j];
        int64_t index = w->start > piece->start ? w->start : piece->start;
        for (; index < w->start + w->size && index < end; index++) {
            if (is_owned(s, i, index)) {
                LIERNE_TRY(insert(owners, p->rows[index]));
            }
        }
        if (index >= end) {
            break;
        }
    }
    return LIERNE_OK;
}

static lierne_status descend_owners(search *s, int i, const lierne_pieces *have) {
    const lierne_pieces *pieces = &have[s->layout->placements[s->layout->cuts[i]].axis];
    lierne_ranks owners = {0};
    lierne_status status = LIERNE_OK;
    for (int k = 0; k < pieces->count && status == LIERNE_OK; k++) {
        status = list_owners(s, i, &pieces->at[k], &owners);
    }
    for (size_t k = 0; k < owners.count && status == LIERNE_OK; k++) {
        status = try_coord(s, i, have, owners.at[k]);
    }
    lierne_mem_free(owners.at);
    return status;
}

/* Tries the coordinates of cut i on what the cuts before it left. */
static lierne_status descend(search *s, int i, const lierne_pieces *have) {
    if (i == s->layout->ncuts) {
        return LIERNE_VEC_PUSH(s->cells, s->cell);
    }
    int d = s->layout->cuts[i];
    const lierne_placement *p = &s->layout->placements[d];
    if (lierne_is_axis_map(p)) {
        return descend_owners(s, i, have);
    }
    for (int c = next_coord(s, d, &have[p->axis], 0); c < s->layout->sizes[d];
         c = next_coord(s, d, &have[p->axis], c + 1)) {
        LIERNE_TRY(try_coord(s, i, have, c));
    }
    return LIERNE_OK;
}

lierne_status lierne_layout_search(lierne_cells *cells, const lierne_layout *layout,
                                   const lierne_spans *wanted) {
    lierne_pieces all[LIERNE_MAX_AXES];
    search s = {.layout = layout, .wanted = wanted, .cells = cells};
    for (int d = 0; d < LIERNE_MAX_DIMS; d++) {
        s.cell.coords[d] = -1;
    }
    for (int a = 0; a < layout->naxes; a++) {
        lierne_axis_whole(layout, a, &all[a]);
        if (all[a].count == 0 || wanted[a].count == 0) {
            return LIERNE_OK;
        }
    }
    return descend(&s, 0, all);
}

lierne_status lierne_layout_overlapping(lierne_cells *cells, const lierne_layout *layout,
                                        const lierne_layout *other, const lierne_cell *cell) {
    lierne_spans wanted[LIERNE_MAX_AXES];
    lierne_status status = lierne_spans_create(wanted, other, cell);
    if (status == LIERNE_OK && lierne_has_margins(other)) {
        status = lierne_halo_need_spans(wanted, other);
    }
    if (status == LIERNE_OK && lierne_has_margins(layout)) {
        status = lierne_halo_widen(wanted, layout);
    }
    if (status == LIERNE_OK) {
        status = lierne_layout_search(cells, layout, wanted);
    }
    lierne_spans_destroy(wanted, other->naxes);
    return status;
}
