/* The rows of a cell of a packed layout.
 *
 * A walk goes over the segments of the cell's owner in the order of the buffer and visits what the
 * segment cut gives it of each: runs of one chunk, at most two per segment. Shares that follow are
 * of the rows of all segments together, and leave at most two pieces of them, like those of an axis
 * that is not packed. Tokens and padding are the two parts of a run. */
#include "layout/packed.h"

/* Padded offsets [offset, offset + size) of a segment, at rows row, row + step, ... of the buffer.
 */
typedef struct run {
    int64_t segment;
    int64_t offset;
    int64_t size;
    int64_t row;
    int64_t step;
} run;

typedef struct walker walker;
struct walker {
    const lierne_packed *p;
    int owner;
    int cut;
    bool full;
    bool whole;           /* all of these rows, which follow one another in a padded buffer */
    lierne_pieces pieces; /* of the rows that the segment cut leaves */
    lierne_status (*visit)(walker *w, const run *r);
    lierne_span_list *list;
    lierne_span_list *padding; /* also, or NULL */
    bool apart;                /* runs of tokens are spans of their own */
    int64_t tokens; /* of an unpadded buffer, before the run or, where it is full, the segment */
};

/* Where the walk is: before a segment. */
typedef struct place {
    int64_t segment;
    int64_t index;  /* among those of the owner */
    int64_t rows;   /* of the cell, before it */
    int64_t padded; /* of the owner, before it */
} place;

static walker begin_walk(const lierne_layout *layout, const lierne_cell *cell) {
    const lierne_packed *p = layout->packed;
    walker w = {.p = p,
                .owner = p->owner_dim < 0 ? 0 : cell->coords[p->owner_dim],
                .cut = p->segment_dim < 0 ? 0 : cell->coords[p->segment_dim],
                .full = layout->full_axes >> p->axis & 1};
    w.pieces.at[0].size = p->rows[w.owner * (p->ncuts + 1) + w.cut];
    w.pieces.count = w.pieces.at[0].size > 0;
    for (int i = 0; i < layout->ncuts; i++) {
        const lierne_placement *cut = &layout->placements[layout->cuts[i]];
        if (cut->axis == p->axis && lierne_cuts_in_shares(cut->kind)) {
            lierne_axis_cut(layout, layout->cuts[i], cell->coords[layout->cuts[i]], &w.pieces);
        }
    }
    w.whole = !w.full && p->row_order == LIERNE_ROW_ORDER_SAMPLE_MAJOR &&
              p->store == LIERNE_PACKING_STORE_PADDED &&
              lierne_pieces_length(&w.pieces) == p->rows[w.owner * (p->ncuts + 1) + w.cut];
    return w;
}

/* The first k at which row + k * step is no less than limit, in 0 to n. */
static int64_t first_from(int64_t row, int64_t step, int64_t limit, int64_t n) {
    int64_t k = limit <= row ? 0 : step == 1 ? limit - row : (limit - row + step - 1) / step;
    return k < n ? k : n;
}

/* Visits what the pieces leave of a run of rows before them. */
static lierne_status visit_run(walker *w, const place *at, run r) {
    bool strided = w->p->row_order == LIERNE_ROW_ORDER_SEQUENCE_MAJOR;
    int64_t before = 0;
    for (int i = 0; i < w->pieces.count; i++) {
        const lierne_span *piece = &w->pieces.at[i];
        int64_t from = first_from(r.row, r.step, piece->start, r.size);
        int64_t to = first_from(r.row, r.step, piece->start + piece->size, r.size);
        if (from < to) {
            run part = r;
            part.offset += from;
            part.size = to - from;
            part.row += from * r.step + before - piece->start;
            if (w->full) {
                part.row = strided ? at->index + part.offset * r.step : at->padded + part.offset;
            }
            LIERNE_TRY(w->visit(w, &part));
        }
        before += piece->size;
    }
    return LIERNE_OK;
}

/* The cell's chunks of a padded segment: n of one size, at start and start + step. */
typedef struct chunks {
    int n;
    int64_t start;
    int64_t size;
    int64_t step;
} chunks;

static inline chunks find_chunks(const walker *w, int64_t segment) {
    const lierne_packed *p = w->p;
    int64_t length = p->padded[segment], n = p->ncuts;
    if (n == 1) {
        return (chunks){.n = 1, .size = length};
    }
    if (p->zigzag) {
        int64_t size = lierne_quotient(length, 2 * n);
        return (chunks){2, w->cut * size, size, (2 * n - 1 - 2 * w->cut) * size};
    }
    int64_t start = lierne_packed_share(p, length, w->cut);
    return (
        chunks){.n = 1, .start = start, .size = lierne_packed_share(p, length, w->cut + 1) - start};
}

static lierne_status walk_segment(walker *w, place *at) {
    const lierne_packed *p = w->p;
    const chunks own = find_chunks(w, at->segment);
    int64_t rows = own.n * own.size;
    bool strided = p->row_order == LIERNE_ROW_ORDER_SEQUENCE_MAJOR && rows > 0;
    /* All segments of the owner are as long, so rows of one offset follow one another. */
    int64_t step = strided ? p->rows[w->owner * (p->ncuts + 1) + w->cut] / rows : 1;
    for (int64_t i = 0, before = 0; i < own.n; i++, before += own.size) {
        const run r = {.segment = at->segment,
                       .offset = own.start + i * own.step,
                       .size = own.size,
                       .row = strided ? at->index + before * step : at->rows + before,
                       .step = step};
        LIERNE_TRY(visit_run(w, at, r));
    }
    at->rows += rows;
    return LIERNE_OK;
}

/* Rows that shares leave of segments which are not cut and follow one another. */
static lierne_span shared_rows(const walker *w) {
    const lierne_packed *p = w->p;
    bool shared = p->ncuts == 1 && p->row_order == LIERNE_ROW_ORDER_SAMPLE_MAJOR && !w->full;
    lierne_span rows = {.size = shared ? 0 : INT64_MAX};
    if (shared && w->pieces.count > 0) {
        const lierne_span *last = &w->pieces.at[w->pieces.count - 1];
        rows.start = w->pieces.at[0].start;
        rows.size = last->start + last->size - rows.start;
    }
    return rows;
}

static lierne_status walk(walker *w) {
    const lierne_packed *p = w->p;
    const lierne_span rows = shared_rows(w);
    place at = {0};
    for (int64_t k = 0; k < p->n && at.rows - rows.start < rows.size; k++) {
        int64_t i = at.segment = p->order[k];
        if (p->owner[i] != w->owner) {
            continue;
        }
        if (at.rows + p->padded[i] <= rows.start) {
            at.rows += p->padded[i];
            continue;
        }
        LIERNE_TRY(walk_segment(w, &at));
        at.index++;
        at.padded += p->padded[i];
        w->tokens += w->full ? p->cu[i + 1] - p->cu[i] : 0;
    }
    return LIERNE_OK;
}

/* Appends rows to a list of tokens or, with start 0, of padding. apart: not to the span before.
 * Fields are written where they stay: copying a span that was just put together waits for them. */
static inline lierne_status push_span(lierne_span_list *list, int64_t start, int64_t size,
                                      int64_t local, bool tokens, bool apart) {
    size_t n = list->count;
    lierne_span *last = n > 0 && !apart ? &list->at[n - 1] : NULL;
    if (last && last->local + last->size == local &&
        (!tokens || last->start + last->size == start)) {
        last->size += size;
        return LIERNE_OK;
    }
    if (n == list->capacity) {
        LIERNE_TRY(lierne_vec_grow(&list->at, n, &list->capacity, sizeof *list->at));
    }
    list->at[n].start = start;
    list->at[n].size = size;
    list->at[n].local = local;
    list->count = n + 1;
    return LIERNE_OK;
}

/* Appends n rows of the buffer; tokens from start on, which grows with them, or padding. */
static lierne_status push_rows(lierne_span_list *list, int64_t start, int64_t n, int64_t row,
                               int64_t step, bool tokens, bool apart) {
    for (int64_t k = 0; k < n; k += step == 1 ? n : 1) {
        LIERNE_TRY(push_span(list, tokens ? start + k : 0, step == 1 ? n : 1, row + k * step,
                             tokens, apart));
    }
    return LIERNE_OK;
}

/* Where a segment has tokens. */
typedef struct tokens {
    int64_t first; /* padded offset */
    int64_t end;
    int64_t start; /* of the axis, where offset 0 would be */
} tokens;

static inline tokens tokens_of(const lierne_packed *p, int64_t segment) {
    int64_t start = p->cu[segment], first = p->lead[segment];
    return (tokens){first, first + p->cu[segment + 1] - start, start - first};
}

/* The offsets of a run that have tokens: *from to *to, of the padded segment. */
static inline void find_tokens(tokens t, int64_t offset, int64_t size, int64_t *from, int64_t *to) {
    int64_t end = offset + size, first = offset > t.first ? offset : t.first;
    int64_t last = end < t.end ? end : t.end;
    *from = first < end ? first : end;
    *to = last > *from ? last : *from;
}

/* n rows of padding, from padded offset `from` of a run on. */
static inline lierne_status push_part(lierne_span_list *list, const run *r, int64_t from,
                                      int64_t n) {
    int64_t row = r->row + (from - r->offset) * r->step;
    if (n > 0 && r->step == 1) {
        return push_span(list, 0, n, row, false, false);
    }
    return push_rows(list, 0, n, row, r->step, false, false);
}

/* The padding of a run whose tokens are *from to *to. */
static lierne_status push_padding(lierne_span_list *list, const run *r, int64_t from, int64_t to) {
    LIERNE_TRY(push_part(list, r, r->offset, from - r->offset));
    return push_part(list, r, to, r->offset + r->size - to);
}

static lierne_status visit_tokens(walker *w, const run *r) {
    const lierne_packed *p = w->p;
    int64_t from, to;
    const tokens t = tokens_of(p, r->segment);
    find_tokens(t, r->offset, r->size, &from, &to);
    int64_t token = from - t.first; /* of the segment */
    int64_t row = r->row + (from - r->offset) * r->step;
    if (p->store == LIERNE_PACKING_STORE_UNPADDED) {
        row = w->full ? w->tokens + token : w->tokens;
        w->tokens += w->full ? 0 : to - from;
    }
    LIERNE_TRY(w->padding ? push_padding(w->padding, r, from, to) : LIERNE_OK);
    return push_rows(w->list, t.start + from, to - from, row, r->step, true, w->apart);
}

/* walk and visit_tokens where a walker has whole chunks, as most have, and their runs are apart. */
static lierne_status walk_whole(const walker *w) {
    const lierne_packed *p = w->p;
    const bool padding = w->padding;
    const int64_t *order = p->order, *last = order + p->n;
    lierne_span_list *list = w->list;
    lierne_span *next = list->at, *limit = list->at + list->capacity;
    int64_t row = 0, from, to;
    for (; order < last; order++) {
        const int64_t i = *order;
        if (p->nowners > 1 && p->owner[i] != w->owner) {
            continue;
        }
        while (limit - next < 2) { /* chunks */
            size_t count = (size_t)(next - list->at);
            LIERNE_TRY(lierne_vec_grow(&list->at, count, &list->capacity, sizeof *list->at));
            next = list->at + count;
            limit = list->at + list->capacity;
        }
        const tokens t = tokens_of(p, i);
        const chunks own = find_chunks(w, i);
        int64_t offset = own.start;
        for (int c = own.n; c > 0; c--, offset += own.step, row += own.size) {
            find_tokens(t, offset, own.size, &from, &to);
            next->start = t.start + from;
            next->size = to - from;
            next->local = row + from - offset;
            next += from < to;
            if (padding && to - from < own.size) {
                LIERNE_TRY(push_padding(w->padding, &(run){i, offset, own.size, row, 1}, from, to));
            }
        }
    }
    list->count = (size_t)(next - list->at);
    return LIERNE_OK;
}

static lierne_status visit_padding(walker *w, const run *r) {
    int64_t from, to;
    find_tokens(tokens_of(w->p, r->segment), r->offset, r->size, &from, &to);
    return push_padding(w->list, r, from, to);
}

/* Moves a span down in a heap of n, whose greatest is at its top. */
static void sift_down(lierne_span *at, size_t n, size_t i) {
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && at[child + 1].start > at[child].start;
        if (at[child].start <= at[i].start) {
            return;
        }
        const lierne_span swap = at[i];
        at[i] = at[child];
        at[child] = swap;
    }
}

/* Ascending, without memory of its own, which qsort may need. */
static void sort_spans(lierne_span *at, size_t n) {
    for (size_t i = n / 2; i-- > 0;) {
        sift_down(at, n, i);
    }
    while (n-- > 1) {
        const lierne_span last = at[n];
        at[n] = at[0];
        at[0] = last;
        sift_down(at, n, 0);
    }
}

lierne_status lierne_packed_spans(lierne_span_list *list, lierne_span_list *padding,
                                  const lierne_layout *layout, const lierne_cell *cell) {
    walker w = begin_walk(layout, cell);
    w.visit = visit_tokens;
    w.list = list;
    w.padding = w.p->store == LIERNE_PACKING_STORE_PADDED ? padding : NULL;
    w.apart = padding;
    LIERNE_TRY(w.whole && w.apart ? walk_whole(&w) : walk(&w));
    if (!w.p->ascending) {
        sort_spans(list->at, list->count);
    }
    return LIERNE_OK;
}

lierne_status lierne_packed_tokens(lierne_span_list *list, const lierne_layout *layout,
                                   const lierne_cell *cell) {
    return lierne_packed_spans(list, NULL, layout, cell);
}

lierne_status lierne_packed_padding(lierne_span_list *list, const lierne_layout *layout,
                                    const lierne_cell *cell) {
    walker w = begin_walk(layout, cell);
    w.visit = visit_padding;
    w.list = list;
    return w.p->store == LIERNE_PACKING_STORE_PADDED ? walk(&w) : LIERNE_OK;
}

/* Counts the tokens of a run. */
static lierne_status count_tokens(walker *w, const run *r) {
    int64_t from, to;
    find_tokens(tokens_of(w->p, r->segment), r->offset, r->size, &from, &to);
    w->tokens += w->full ? 0 : to - from;
    return LIERNE_OK;
}

int64_t lierne_packed_length(const lierne_layout *layout, const lierne_cell *cell) {
    walker w = begin_walk(layout, cell);
    const lierne_packed *p = w.p;
    int64_t padded = 0;
    if (p->store == LIERNE_PACKING_STORE_UNPADDED) {
        w.visit = count_tokens;
        return walk(&w) == LIERNE_OK ? w.tokens : 0;
    }
    for (int64_t i = 0; w.full && i < p->n; i++) {
        padded += p->owner[i] == w.owner ? p->padded[i] : 0;
    }
    return w.full ? padded : lierne_pieces_length(&w.pieces);
}
