/* One pass over the tokens of a cell.
 *
 * A piece ends where either side's coordinates change, and where a segment does: so both ends of a
 * message cut alike, without knowing each other's rows. */
#include "plan/redistribute/tokens.h"

#include "layout/joints.h"

#include <string.h>

/* Spans that are walked along with ascending tokens. */
typedef struct follower {
    const lierne_spans *spans;
    size_t at;
} follower;

static int packed_axis(const lierne_layout *from, const lierne_layout *to) {
    return from->packed ? from->packed->axis : to->packed ? to->packed->axis : -1;
}

int lierne_tokens_axis(const lierne_layout *from, const lierne_layout *to) {
    int axis = packed_axis(from, to);
    return axis >= 0 && lierne_locator_serves(from, axis) && lierne_locator_serves(to, axis) ? axis
                                                                                             : -1;
}

static int64_t follow(follower *f, int64_t token) {
    const lierne_spans *s = f->spans;
    while (f->at < s->count && s->at[f->at].start + s->at[f->at].size <= token) {
        f->at++;
    }
    bool has = f->at < s->count && s->at[f->at].start <= token;
    return has ? s->at[f->at].local + token - s->at[f->at].start : 0;
}

/* Where a token of the axis is on either side. */
typedef struct token_place {
    int64_t segment[2];
    int64_t shift[2]; /* from the axis to that of the side */
    int64_t end;      /* of the segment */
} token_place;

/* A walk over the spans of side `own`. */
typedef struct walk {
    lierne_locator *locators;
    int own;
    bool apart;
    int64_t segment; /* or joint; at most that of the next token */
    token_place at;
    follower mine;
    size_t part; /* of the other side, that this rank has */
    lierne_cut_pieces *pieces;
} walk;

static token_place find_place(walk *w, int64_t token) {
    const lierne_joints *j = w->locators[0].layout->joints;
    if (j) {
        while (j->at[w->segment].start + j->at[w->segment].size <= token) {
            w->segment++;
        }
        const lierne_joint *at = &j->at[w->segment];
        int a = w->locators[0].layout->joint_side, b = w->locators[1].layout->joint_side;
        return (token_place){.segment = {at->segment[a], at->segment[b]},
                             .shift = {at->index[a] - at->start, at->index[b] - at->start},
                             .end = at->start + at->size};
    }
    const lierne_packed *own = w->locators[w->own].packed, *other = w->locators[!w->own].packed;
    const int64_t *cu = own ? own->cu : other->cu;
    while (cu[w->segment + 1] <= token) {
        w->segment++;
    }
    return (token_place){.segment = {w->segment, w->segment}, .end = cu[w->segment + 1]};
}

/* Ends *next where the coordinates of the own side change. */
static void end_own(const walk *w, int64_t token, int64_t *next) {
    int64_t shift = w->at.shift[w->own], end = *next + shift;
    (void)lierne_locate(&w->locators[w->own], w->at.segment[w->own], token + shift, &end);
    *next = end - shift;
}

/* Space for one more piece at *next, which a list that is written from its end on has up to *limit.
 */
static inline lierne_status make_space(lierne_cut_pieces *pieces, lierne_cut_piece **next,
                                       lierne_cut_piece **limit) {
    if (*next == *limit) {
        size_t n = (size_t)(*next - pieces->at);
        LIERNE_TRY(lierne_vec_grow(&pieces->at, n, &pieces->capacity, sizeof *pieces->at));
        *next = pieces->at + n;
        *limit = pieces->at + pieces->capacity;
    }
    return LIERNE_OK;
}

/* local: of the token on the own side. */
static inline void set_piece(walk *w, lierne_cut_piece *f, int64_t token, int64_t size,
                             int64_t local, size_t part) {
    f->part = part;
    f->piece.start = token;
    f->piece.size = size;
    f->piece.local[!w->own] = 0;
    f->piece.local[w->own] = local;
    if (part == w->part) {
        f->piece.local[!w->own] = follow(&w->mine, token);
    }
    w->pieces->counts[part]++;
}

/* Tokens of one segment up to *next, or a part of them. */
static lierne_status cut_tokens(walk *w, int64_t token, int64_t *next, int64_t local) {
    int64_t shift = w->at.shift[!w->own], end = *next + shift;
    size_t part = lierne_locate(&w->locators[!w->own], w->at.segment[!w->own], token + shift, &end);
    *next = end - shift;
    lierne_cut_pieces *p = w->pieces;
    lierne_cut_piece *f = p->at + p->count, *limit = p->at + p->capacity;
    LIERNE_TRY(make_space(p, &f, &limit));
    set_piece(w, f, token, *next - token, local, part);
    f->index[0] = token + w->at.shift[0];
    f->index[1] = token + w->at.shift[1];
    p->count++;
    return LIERNE_OK;
}

static lierne_status cut_span(walk *w, const lierne_span *span) {
    int64_t end = span->start + span->size;
    for (int64_t token = span->start, next; token < end; token = next) {
        if (token >= w->at.end) {
            w->at = find_place(w, token);
        }
        next = w->at.end < end ? w->at.end : end;
        if (!w->apart) {
            end_own(w, token, &next);
        }
        LIERNE_TRY(cut_tokens(w, token, &next, span->local + token - span->start));
    }
    return LIERNE_OK;
}

/* The part that has a token, by bands, and in *end where that changes, or the segment. */
static size_t find_band_part(walk *w, lierne_locator *l, int64_t token, int64_t *end) {
    const lierne_packed *p = l->packed;
    while (p->cu[w->segment + 1] <= token) {
        w->segment++;
    }
    int64_t i = w->segment, shift = l->rows[i] + p->lead[i] - p->cu[i], next = p->cu[i + 1];
    size_t group = (size_t)p->owner[i];
    const lierne_band *band = &l->bands[l->found[group]];
    if (token + shift < band->start || token + shift >= band->end) {
        band = lierne_find_band(l, group, token + shift);
    }
    *end = band->end - shift < next ? band->end - shift : next;
    return group * l->nshares + band->share;
}

static lierne_status cut_bands(walk *w, lierne_locator *l, const lierne_spans *spans) {
    lierne_cut_pieces *pieces = w->pieces;
    lierne_cut_piece *f = pieces->at + pieces->count, *limit = pieces->at + pieces->capacity;
    int64_t high = 0, follows = -1; /* the row that would go on with the last piece */
    size_t part = 0;
    for (size_t i = 0; i < spans->count; i++) {
        int64_t token = spans->at[i].start, end = token + spans->at[i].size, next;
        for (int64_t local = spans->at[i].local; token < end; token = next) {
            if (token >= high) {
                size_t found = find_band_part(w, l, token, &high);
                follows = found == part ? follows : -1;
                part = found;
            }
            next = high < end ? high : end;
            if (local == follows) {
                f[-1].piece.size += next - token;
                local = follows += next - token;
                continue;
            }
            LIERNE_TRY(make_space(pieces, &f, &limit));
            set_piece(w, f, token, next - token, local, part);
            f->index[0] = f->index[1] = token;
            f++;
            local += next - token;
            follows = pieces->merged && pieces->merged[part] ? local : -1;
        }
    }
    pieces->count = (size_t)(f - pieces->at);
    return LIERNE_OK;
}

/* Tokens of a segment up to `stop`, by the chunks of the other side. */
static lierne_status cut_segment(walk *w, const lierne_packed *p, int64_t token, int64_t stop,
                                 int64_t local) {
    lierne_cut_pieces *pieces = w->pieces;
    lierne_cut_piece *f = pieces->at + pieces->count, *limit = pieces->at + pieces->capacity;
    int64_t n = p->ncuts, i = w->segment, start = p->cu[i] - p->lead[i];
    int64_t size = lierne_quotient(p->padded[i], 2 * n), k = lierne_quotient(token - start, size);
    size_t base = (size_t)p->owner[i] * (size_t)n;
    for (int64_t next = start + (k + 1) * size; token < stop; next += size, k++) {
        int64_t count = (next < stop ? next : stop) - token;
        LIERNE_TRY(make_space(pieces, &f, &limit));
        set_piece(w, f, token, count, local, base + (size_t)(k < n ? k : 2 * n - 1 - k));
        f->index[0] = f->index[1] = token;
        f++;
        token += count;
        local += count;
    }
    pieces->count = (size_t)(f - pieces->at);
    return LIERNE_OK;
}

static lierne_status cut_chunks(walk *w, const lierne_packed *p, const lierne_spans *spans) {
    for (size_t i = 0; i < spans->count; i++) {
        int64_t token = spans->at[i].start, end = token + spans->at[i].size, next;
        for (int64_t shift = spans->at[i].local - token; token < end; token = next) {
            while (p->cu[w->segment + 1] <= token) {
                w->segment++;
            }
            next = p->cu[w->segment + 1] < end ? p->cu[w->segment + 1] : end;
            LIERNE_TRY(cut_segment(w, p, token, next, token + shift));
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_tokens_cut(lierne_cut_pieces *pieces, lierne_locator locators[2], int own,
                                bool apart, const lierne_spans *spans, const lierne_cell *mine,
                                const lierne_spans *mine_spans) {
    walk w = {.locators = locators,
              .own = own,
              .apart = apart,
              .mine = {.spans = mine_spans},
              .part = mine ? lierne_locator_part(&locators[!own], mine) : SIZE_MAX,
              .pieces = pieces};
    memset(pieces->counts, 0, locators[!own].nparts * sizeof *pieces->counts);
    const lierne_locator_form form = lierne_locator_form_of(&locators[!own]);
    if (apart && form == LIERNE_LOCATOR_CHUNKS) {
        return cut_chunks(&w, locators[!own].packed, spans);
    }
    if (apart && form == LIERNE_LOCATOR_BANDS) {
        return cut_bands(&w, &locators[!own], spans);
    }
    for (size_t i = 0; i < spans->count; i++) {
        LIERNE_TRY(cut_span(&w, &spans->at[i]));
    }
    return LIERNE_OK;
}

/* t->first has the number of each part's, two places further on. */
static lierne_status sort_by_part(lierne_tokens *t, const lierne_cut_pieces *found) {
    LIERNE_TRY(lierne_alloc(&t->at, found->count, sizeof *t->at));
    size_t *next = t->first + 1; /* ends as the first of the part after */
    for (size_t k = 0; k < t->locators[t->other].nparts; k++) {
        next[k + 1] += next[k];
    }
    for (size_t i = 0; i < found->count; i++) {
        t->at[next[found->at[i].part]++] = found->at[i].piece;
    }
    return LIERNE_OK;
}

static lierne_status find_pieces(lierne_tokens *t, const lierne_spans *own, const lierne_cell *mine,
                                 const lierne_spans *mine_spans) {
    lierne_cut_pieces found = {0};
    LIERNE_TRY(lierne_alloc(&t->first, t->locators[t->other].nparts + 2, sizeof *t->first));
    found.counts = t->first + 2;
    lierne_status status =
        lierne_tokens_cut(&found, t->locators, !t->other, false, own, mine, mine_spans);
    if (status == LIERNE_OK) {
        status = sort_by_part(t, &found);
    }
    lierne_mem_free(found.at);
    return status;
}

lierne_status lierne_tokens_create(lierne_tokens *t, const lierne_layout *const layouts[2], int own,
                                   const lierne_cell *cell, const lierne_cell *mine) {
    lierne_spans spans[LIERNE_MAX_AXES], others[LIERNE_MAX_AXES];
    const lierne_layout *other = layouts[!own];
    *t = (lierne_tokens){.axis = packed_axis(layouts[0], layouts[1]), .other = !own};
    for (int s = 0; s < 2; s++) {
        LIERNE_TRY(lierne_locator_create(&t->locators[s], layouts[s], t->axis));
        lierne_locator_fill(&t->locators[s]);
    }
    lierne_status status = lierne_spans_create(spans, layouts[own], cell);
    lierne_status also = mine ? lierne_spans_create(others, other, mine) : LIERNE_OK;
    status = status == LIERNE_OK ? also : status;
    if (status == LIERNE_OK) {
        status = find_pieces(t, &spans[t->axis], mine, mine ? &others[t->axis] : NULL);
    }
    lierne_spans_destroy(spans, layouts[own]->naxes);
    if (mine) {
        lierne_spans_destroy(others, other->naxes);
    }
    return status;
}

void lierne_tokens_destroy(lierne_tokens *t) {
    lierne_locator_destroy(&t->locators[0]);
    lierne_locator_destroy(&t->locators[1]);
    lierne_mem_free(t->at);
    lierne_mem_free(t->first);
}

/* A layout of the other axes: of this one it has one index, in every cell. */
static lierne_layout without_axis(const lierne_layout *layout, int axis) {
    lierne_layout other = *layout;
    other.packed = NULL;
    other.shape[axis] = 1;
    other.ncuts = 0;
    for (int i = 0; i < layout->ncuts; i++) {
        if (layout->placements[layout->cuts[i]].axis != axis) {
            other.cuts[other.ncuts++] = layout->cuts[i];
        }
    }
    return other;
}

void lierne_tokens_shares(lierne_pieces *pieces, const lierne_layout *layout, int axis,
                          const lierne_cell *cell) {
    lierne_axis_whole(layout, axis, pieces);
    for (int i = 0; i < layout->ncuts; i++) {
        int d = layout->cuts[i];
        if (layout->placements[d].axis == axis) {
            lierne_axis_cut(layout, d, cell->coords[d], pieces);
        }
    }
}

int64_t lierne_tokens_rows(const lierne_layout *layout, int axis, const lierne_cell *cell) {
    lierne_pieces pieces;
    if (lierne_is_packed(layout, axis)) {
        return lierne_packed_length(layout, cell);
    }
    lierne_tokens_shares(&pieces, layout, axis, cell);
    return layout->full_axes >> axis & 1 ? layout->shape[axis] : lierne_pieces_length(&pieces);
}

lierne_status lierne_tokens_cell_columns(lierne_boxes *out, int64_t *shape, int axis,
                                         const lierne_layout *layout, const lierne_cell *cell) {
    const lierne_layout others = without_axis(layout, axis);
    return lierne_layout_cell_boxes(&others, cell, out, shape);
}

lierne_status lierne_tokens_cells(lierne_cells *out, int axis, const lierne_layout *layout,
                                  const lierne_layout *other, const lierne_cell *cell) {
    const lierne_layout a = without_axis(layout, axis), b = without_axis(other, axis);
    return lierne_layout_overlapping(out, &a, &b, cell);
}

lierne_status lierne_tokens_columns(lierne_overlaps *out, int axis, const lierne_layout *from,
                                    const lierne_layout *to, const lierne_cell *from_cell,
                                    const lierne_cell *to_cell) {
    lierne_boxes a = {0}, b = {0};
    lierne_status status = lierne_tokens_cell_columns(&a, NULL, axis, from, from_cell);
    if (status == LIERNE_OK) {
        status = lierne_tokens_cell_columns(&b, NULL, axis, to, to_cell);
    }
    if (status == LIERNE_OK) {
        status = lierne_boxes_intersect(from->naxes, &a, &b, out);
    }
    lierne_mem_free(a.at);
    lierne_mem_free(b.at);
    return status;
}

static lierne_status add_boxes(lierne_overlaps *out, const lierne_tokens *t, size_t part,
                               const lierne_overlaps *columns) {
    for (size_t i = t->first[part]; i < t->first[part + 1]; i++) {
        for (size_t c = 0; c < columns->count; c++) {
            lierne_overlap box = columns->at[c];
            box.start[t->axis] = t->at[i].start;
            box.size[t->axis] = t->at[i].size;
            box.local_a[t->axis] = t->at[i].local[0];
            box.local_b[t->axis] = t->at[i].local[1];
            LIERNE_TRY(LIERNE_VEC_PUSH(out, box));
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_tokens_boxes(lierne_overlaps *out, const lierne_tokens *t,
                                  const lierne_cell *from, const lierne_cell *to) {
    const lierne_cell *const cells[2] = {from, to};
    lierne_overlaps columns = {0};
    size_t part = lierne_locator_part(&t->locators[t->other], cells[t->other]);
    lierne_status status = LIERNE_OK;
    if (t->first[part] < t->first[part + 1]) {
        status = lierne_tokens_columns(&columns, t->axis, t->locators[0].layout,
                                       t->locators[1].layout, from, to);
    }
    if (status == LIERNE_OK) {
        status = add_boxes(out, t, part, &columns);
    }
    lierne_mem_free(columns.at);
    return status;
}
