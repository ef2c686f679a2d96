/* Cells, their boxes and their members.
 *
 * A cell's part of an axis is a list of spans: what its coordinates' cuts leave, and of that what
 * maps of the axis give it. Its boxes are the combinations of such spans. */
#include "layout/dense_halo.h"
#include "layout/joints.h"

#include <string.h>

int lierne_layout_index(const lierne_layout *layout, int rank) {
    int low = 0, high = layout->nranks;
    if (layout->place_of) {
        return rank >= 0 && rank < layout->world ? layout->place_of[rank] : -1;
    }
    if (!layout->ranks) {
        bool has = rank >= layout->offset && rank < layout->offset + layout->nranks;
        return has ? rank - layout->offset : -1;
    }
    while (low < high) {
        int middle = (low + high) / 2;
        bool before = layout->ranks[middle] < rank;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    return low < layout->nranks && layout->ranks[low] == rank ? low : -1;
}

static int coord_of(const lierne_layout *layout, int index, int dim) {
    return index / layout->strides[dim] % layout->sizes[dim];
}

bool lierne_layout_cell(const lierne_layout *layout, int rank, lierne_cell *cell) {
    int index = lierne_layout_index(layout, rank);
    if (index < 0) {
        return false;
    }
    for (int i = 0; i < layout->nat; i++) {
        int d = layout->at_dims[i];
        if (coord_of(layout, index, d) != layout->placements[d].at) {
            return false;
        }
    }
    for (int d = 0; d < layout->ndims; d++) {
        cell->coords[d] = -1;
    }
    for (int i = 0; i < layout->ncuts; i++) {
        cell->coords[layout->cuts[i]] = coord_of(layout, index, layout->cuts[i]);
    }
    return true;
}

int lierne_layout_partial(const lierne_layout *layout, int rank) {
    int partial = 0, stride = 1, index = lierne_layout_index(layout, rank);
    for (int d = 0; d < layout->ndims; d++) {
        if (layout->placements[d].kind == LIERNE_PLACEMENT_PARTIAL) {
            partial += coord_of(layout, index, d) * stride;
            stride *= layout->sizes[d];
        }
    }
    return partial;
}

/* Whether a buffer has all of an axis, whatever cuts it. A row map cuts nothing out of its axes:
 * FULL storage of the second one means all rows of what the other dims leave. */
static bool stores_all(const lierne_layout *layout, int axis) {
    bool mapped = layout->rows_dim >= 0 && layout->placements[layout->rows_dim].axis2 == axis;
    return (layout->full_axes >> axis & 1) && !mapped;
}

static int64_t length(const lierne_spans *spans) {
    int64_t sum = 0;
    for (size_t i = 0; i < spans->count; i++) {
        sum += spans->at[i].size;
    }
    return sum;
}

/* Sets where the spans lie in the buffer: each behind the lower margin of its window. */
static void locate(lierne_spans *spans, const lierne_layout *layout, int axis) {
    lierne_span *at = spans->list.at ? spans->list.at : spans->pieces.at;
    bool full = stores_all(layout, axis), halo = lierne_halo_of(layout, axis);
    int64_t local = 0;
    for (size_t i = 0; i < spans->count; i++) {
        const lierne_halo_window window =
            halo ? lierne_window_of(layout, axis, &at[i])
                 : (lierne_halo_window){.start = at[i].start, .size = at[i].size};
        at[i].local = full ? at[i].start : local + at[i].start - window.start;
        local += window.size;
    }
}

/* What a buffer has of an axis that is neither packed nor stored FULL. */
static int64_t stored_length(const lierne_layout *layout, int axis, const lierne_spans *spans) {
    int64_t sum = 0;
    if (!lierne_halo_of(layout, axis)) {
        return length(spans);
    }
    for (size_t i = 0; i < spans->count; i++) {
        sum += lierne_window_of(layout, axis, &spans->at[i]).size;
    }
    return sum;
}

/* Keeps what maps of one axis give to the cell. */
static lierne_status keep_owned(lierne_spans *spans, const lierne_layout *layout,
                                const lierne_cell *cell) {
    for (int i = layout->ncuts - layout->nmaps; i < layout->ncuts; i++) {
        int d = layout->cuts[i];
        lierne_spans *axis = &spans[layout->placements[d].axis];
        LIERNE_TRY(lierne_owners_keep(&layout->owners[d], cell->coords[d], axis));
    }
    return LIERNE_OK;
}

/* Sets the spans of the packed axis, which have their places in the buffer. */
static lierne_status replace_packed(lierne_spans *spans, const lierne_layout *layout,
                                    const lierne_cell *cell,
                                    lierne_status (*fill)(lierne_span_list *, const lierne_layout *,
                                                          const lierne_cell *)) {
    lierne_spans *axis = &spans[layout->packed->axis];
    axis->list.count = 0;
    lierne_status status = fill(&axis->list, layout, cell);
    axis->at = axis->list.at;
    axis->count = axis->list.count;
    return status;
}

/* All spans but those of a packed axis, which is left whole. */
static lierne_status create_ordinary(lierne_spans *spans, const lierne_layout *layout,
                                     const lierne_cell *cell) {
    for (int a = 0; a < layout->naxes; a++) {
        lierne_axis_whole(layout, a, &spans[a].pieces);
        spans[a].list = (lierne_span_list){0};
    }
    for (int i = 0; i < layout->ncuts - layout->nmaps; i++) {
        int d = layout->cuts[i], axis = layout->placements[d].axis;
        if (!lierne_is_packed(layout, axis)) {
            lierne_axis_cut(layout, d, cell->coords[d], &spans[axis].pieces);
        }
    }
    for (int a = 0; a < layout->naxes; a++) {
        spans[a].at = spans[a].pieces.at;
        spans[a].count = (size_t)spans[a].pieces.count;
    }
    lierne_status status = keep_owned(spans, layout, cell);
    for (int a = 0; a < layout->naxes; a++) {
        if (!lierne_is_packed(layout, a)) {
            locate(&spans[a], layout, a);
        }
    }
    return status;
}

/* What a cell has of the joined axis. */
static lierne_status list_joined(lierne_span_list *list, const lierne_layout *layout,
                                 const lierne_cell *cell) {
    lierne_span_list own = {0};
    lierne_status status = lierne_packed_tokens(&own, layout, cell);
    if (status == LIERNE_OK) {
        status = lierne_joints_spans(list, layout->joints, layout->joint_side, &own);
    }
    lierne_mem_free(own.at);
    return status;
}

lierne_status lierne_spans_create(lierne_spans *spans, const lierne_layout *layout,
                                  const lierne_cell *cell) {
    lierne_status status = create_ordinary(spans, layout, cell);
    return status == LIERNE_OK && layout->packed
               ? replace_packed(spans, layout, cell,
                                layout->joints ? list_joined : lierne_packed_tokens)
               : status;
}

void lierne_spans_destroy(lierne_spans *spans, int naxes) {
    for (int a = 0; a < naxes; a++) {
        if (spans[a].list.at) {
            lierne_mem_free(spans[a].list.at);
        }
    }
}

/* Where a map's rows go on; own counts the rows that the coordinate owns so far. */
typedef struct row_walk {
    const lierne_layout *layout;
    const lierne_placement *p;
    const lierne_spans *spans;
    int coord;
    bool full;
    int64_t own;
} row_walk;

/* The local index of a run that starts at row r of span i, position s of span j. */
static void place_run(const row_walk *w, const lierne_span *i, int64_t r, const lierne_span *j,
                      int64_t s, lierne_box *run) {
    int a = w->p->axis, b = w->p->axis2;
    run->start[a] = i->start + r;
    run->start[b] = j->start + s;
    run->local[a] = w->full ? i->local + r : 0;
    run->local[b] = w->full ? j->local + s : 0;
    if (!w->full) {
        run->local[a < b ? a : b] = w->own;
    }
}

/* The runs of own rows in row r of span i, over all spans of the other axis. */
static lierne_status push_row(row_walk *w, const lierne_span *i, int64_t r, lierne_box *run,
                              lierne_boxes *boxes) {
    int a = w->p->axis, b = w->p->axis2;
    const int32_t *owner = w->p->rows + (i->start + r) * w->layout->shape[b];
    for (size_t k = 0; k < w->spans[b].count; k++) {
        const lierne_span *j = &w->spans[b].at[k];
        const int32_t *of = owner + j->start;
        for (int64_t s = 0, n; s < j->size; s += n) {
            for (n = 1; s + n < j->size && of[s + n] == of[s];) {
                n++;
            }
            if (of[s] != w->coord) {
                continue;
            }
            place_run(w, i, r, j, s, run);
            run->size[a] = 1;
            run->size[b] = n;
            w->own += n;
            if (boxes) {
                LIERNE_TRY(LIERNE_VEC_PUSH(boxes, *run));
            }
        }
    }
    return LIERNE_OK;
}

/* All runs of own rows, with the other axes of box as they are. */
static lierne_status push_rows(row_walk *w, lierne_box box, lierne_boxes *boxes) {
    const lierne_spans *rows = &w->spans[w->p->axis];
    w->own = 0;
    for (size_t i = 0; i < rows->count; i++) {
        for (int64_t r = 0; r < rows->at[i].size; r++) {
            LIERNE_TRY(push_row(w, &rows->at[i], r, &box, boxes));
        }
    }
    return LIERNE_OK;
}

static row_walk walk_rows(const lierne_layout *layout, const lierne_cell *cell,
                          const lierne_spans *spans) {
    const lierne_placement *p = &layout->placements[layout->rows_dim];
    return (row_walk){.layout = layout,
                      .p = p,
                      .spans = spans,
                      .coord = cell->coords[layout->rows_dim],
                      .full = layout->full_axes >> p->axis2 & 1};
}

/* One box per combination of spans, first axis slowest; where a map owns rows, per combination of
 * the other axes' spans and run of rows. own: number of own rows. */
static lierne_status push_boxes(const lierne_layout *layout, const lierne_cell *cell,
                                const lierne_spans *spans, lierne_boxes *boxes, int64_t *own) {
    size_t at[LIERNE_MAX_AXES] = {0}, counts[LIERNE_MAX_AXES];
    bool rows = layout->rows_dim >= 0;
    bool empty = false;
    row_walk w = rows ? walk_rows(layout, cell, spans) : (row_walk){0};
    for (int a = 0; a < layout->naxes; a++) {
        counts[a] = rows && (a == w.p->axis || a == w.p->axis2) ? 1 : spans[a].count;
        empty = empty || spans[a].count == 0;
    }
    if (empty) { /* no boxes, but own rows have a place in the buffer */
        lierne_status status = rows ? push_rows(&w, (lierne_box){0}, NULL) : LIERNE_OK;
        *own = w.own;
        return status;
    }
    for (int a = 0; a >= 0;) {
        lierne_box box = {0};
        for (int b = 0; b < layout->naxes; b++) {
            box.start[b] = spans[b].at[at[b]].start;
            box.size[b] = spans[b].at[at[b]].size;
            box.local[b] = spans[b].at[at[b]].local;
        }
        if (rows) {
            LIERNE_TRY(push_rows(&w, box, boxes));
            *own = w.own;
        } else if (boxes) {
            LIERNE_TRY(LIERNE_VEC_PUSH(boxes, box));
        }
        for (a = layout->naxes - 1; a >= 0 && ++at[a] == counts[a]; a--) {
            at[a] = 0;
        }
    }
    return LIERNE_OK;
}

/* The shape of a cell's buffer, of which a map of two axes owns `own` rows. */
static void set_shape(const lierne_layout *layout, const lierne_cell *cell,
                      const lierne_spans *spans, int64_t own, int64_t *shape) {
    for (int a = 0; a < layout->naxes; a++) {
        shape[a] = lierne_is_packed(layout, a) ? lierne_packed_length(layout, cell)
                   : stores_all(layout, a)     ? layout->shape[a]
                                               : stored_length(layout, a, &spans[a]);
    }
    if (layout->rows_dim >= 0) {
        const lierne_placement *p = &layout->placements[layout->rows_dim];
        if (!(layout->full_axes >> p->axis2 & 1)) {
            shape[p->axis < p->axis2 ? p->axis : p->axis2] = own;
            shape[p->axis < p->axis2 ? p->axis2 : p->axis] = 1;
        }
    }
}

/* Margins are stored as one axis: of a box all positions but the cores; of a star what lies in the
 * margins of one axis and in the cores of the others. */
static void join_margins(const lierne_layout *layout, const lierne_spans *spans, int64_t *shape) {
    int64_t windows = 1, cores = 1, star = 0;
    for (int a = 0; a < layout->naxes; a++) {
        int64_t core = lierne_halo_of(layout, a) ? length(&spans[a]) : shape[a];
        star = star * core + cores * (shape[a] - core);
        windows *= shape[a];
        cores *= core;
        shape[a] = 1;
    }
    shape[0] = layout->halos->stencil == LIERNE_STENCIL_STAR ? star : windows - cores;
}

lierne_status lierne_layout_cell_boxes(const lierne_layout *layout, const lierne_cell *cell,
                                       lierne_boxes *boxes, int64_t *shape) {
    lierne_spans spans[LIERNE_MAX_AXES];
    int64_t own = 0;
    boxes = lierne_has_cores(layout) ? boxes : NULL;
    lierne_status status = (boxes ? lierne_spans_create : create_ordinary)(spans, layout, cell);
    if (status == LIERNE_OK && (boxes || layout->rows_dim >= 0)) {
        status = push_boxes(layout, cell, spans, boxes, &own);
    }
    if (shape) {
        set_shape(layout, cell, spans, own, shape);
    }
    if (shape && lierne_stores_margins(layout)) {
        join_margins(layout, spans, shape);
    }
    lierne_spans_destroy(spans, layout->naxes);
    return status;
}

lierne_status lierne_layout_other_axes(const lierne_layout *layout, const lierne_cell *cell,
                                       lierne_boxes *boxes, int64_t *stored) {
    lierne_spans spans[LIERNE_MAX_AXES];
    int64_t own = 0;
    lierne_status status = create_ordinary(spans, layout, cell);
    if (status == LIERNE_OK) {
        set_shape(layout, cell, spans, 0, stored);
    }
    for (int a = 0; a < layout->naxes; a++) {
        if (lierne_halo_of(layout, a)) {
            spans[a].pieces = (lierne_pieces){.count = 1, .at = {{.size = 1}}};
            spans[a].at = spans[a].pieces.at;
            spans[a].count = 1;
        }
    }
    if (status == LIERNE_OK) {
        status = push_boxes(layout, cell, spans, boxes, &own);
    }
    if (status == LIERNE_OK && layout->rows_dim >= 0) {
        set_shape(layout, cell, spans, own, stored);
    }
    lierne_spans_destroy(spans, layout->naxes);
    return status;
}

/* Rows that nothing is delivered from are zero in the gradient. */
static lierne_status list_left(lierne_span_list *list, const lierne_layout *layout,
                               const lierne_cell *cell) {
    lierne_span_list own = {0};
    lierne_status status = lierne_packed_tokens(&own, layout, cell);
    if (status == LIERNE_OK) {
        status = lierne_joints_left(list, layout->joints, &own);
    }
    lierne_mem_free(own.at);
    return status;
}

static lierne_status push_rest(const lierne_layout *layout, const lierne_cell *cell,
                               lierne_status (*fill)(lierne_span_list *, const lierne_layout *,
                                                     const lierne_cell *),
                               lierne_boxes *boxes) {
    lierne_spans spans[LIERNE_MAX_AXES];
    int64_t own;
    lierne_status status = create_ordinary(spans, layout, cell);
    if (status == LIERNE_OK) {
        status = replace_packed(spans, layout, cell, fill);
    }
    if (status == LIERNE_OK) {
        status = push_boxes(layout, cell, spans, boxes, &own);
    }
    lierne_spans_destroy(spans, layout->naxes);
    return status;
}

/* What runs do not name in the destination of a bridge stays as it is, and its values count. */
lierne_status lierne_layout_cell_rest(const lierne_layout *layout, const lierne_cell *cell,
                                      lierne_boxes *zero, int64_t *kept) {
    size_t first = zero->count;
    if (!layout->packed || (layout->joints && layout->joint_side == 1)) {
        return LIERNE_OK;
    }
    LIERNE_TRY(push_rest(layout, cell, lierne_packed_padding, zero));
    if (layout->packed->padding == LIERNE_PADDING_KEEP) {
        for (size_t i = first; kept && i < zero->count; i++) {
            int64_t n = 1;
            for (int a = 0; a < layout->naxes; a++) {
                n *= zero->at[i].size[a];
            }
            *kept += n;
        }
        zero->count = first;
    }
    return layout->joints ? push_rest(layout, cell, list_left, zero) : LIERNE_OK;
}

lierne_status lierne_layout_members(const lierne_layout *layout, const lierne_cell *cell,
                                    int partial, lierne_ranks *ranks) {
    int at[LIERNE_MAX_DIMS] = {0}, free_dims[LIERNE_MAX_DIMS], nfree = 0, base = 0;
    for (int d = 0; d < layout->ndims; d++) {
        const lierne_placement *p = &layout->placements[d];
        if (p->kind == LIERNE_PLACEMENT_PARTIAL && partial >= 0) {
            base += partial % layout->sizes[d] * layout->strides[d];
            partial /= layout->sizes[d];
        } else if (p->kind == LIERNE_PLACEMENT_AT) {
            base += p->at * layout->strides[d];
        } else if (cell->coords[d] >= 0) {
            base += cell->coords[d] * layout->strides[d];
        } else {
            free_dims[nfree++] = d;
        }
    }
    for (int i = 0; i < nfree || nfree == 0;) {
        int rank = lierne_layout_rank(layout, base);
        LIERNE_TRY(rank >= 0 ? LIERNE_VEC_PUSH(ranks, rank) : LIERNE_OK);
        /* Counting with the fastest dim first makes the ranks ascend. */
        for (i = 0; i < nfree; i++) {
            int d = free_dims[i];
            base += layout->strides[d];
            if (++at[d] < layout->sizes[d]) {
                break;
            }
            base -= at[d] * layout->strides[d];
            at[d] = 0;
        }
        if (nfree == 0) {
            break;
        }
    }
    return LIERNE_OK;
}
