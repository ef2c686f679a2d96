/* Windows of one axis: which positions a rank has, what they show, and at which places an element
 * stands.
 *
 * What is outside of the axis repeats it, forward, backward or as one element. So a window is a few
 * pieces in which elements follow one another; a width beyond the axis only makes more of them.
 * Pieces that run backward or repeat one element are cut into single positions where elements are
 * asked for their places: all places of a run then ascend with its elements, and blocks of routes
 * need neither negative strides nor strides of 0. */
#include "layout/dense_halo.h"

#include <stdlib.h>

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The document of an element, or the whole axis. */
static lierne_span document_of(const lierne_layout *layout, int axis, int64_t element) {
    const lierne_dense_halo *h = lierne_halo_of(layout, axis);
    int64_t low = 0, high = h->nsegments;
    if (h->nsegments == 0) {
        return (lierne_span){.size = layout->shape[axis]};
    }
    while (high - low > 1) { /* it begins at segments[low] or later, and before segments[high] */
        int64_t middle = low + (high - low) / 2;
        if (h->segments[middle] <= element) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return (lierne_span){.start = h->segments[low], .size = h->segments[high] - h->segments[low]};
}

lierne_halo_window lierne_window_of(const lierne_layout *layout, int axis,
                                    const lierne_span *span) {
    const lierne_dense_halo *h = lierne_halo_of(layout, axis);
    int64_t last = span->start + span->size - 1, t = h->stride > 0 ? h->stride : 1;
    int64_t start = t * span->start - h->lo, end = t * last + h->hi + 1;
    if (h->starts) {
        start = h->starts[span->start];
        return (lierne_halo_window){.start = start,
                                    .size = h->ends[span->start] - start,
                                    .core_start = start};
    }
    if (h->boundary == LIERNE_BOUNDARY_NONE && h->stride == 0) {
        const lierne_span lower = document_of(layout, axis, span->start),
                          upper = document_of(layout, axis, last);
        start = larger(start, lower.start);
        end = smaller(end, upper.start + upper.size);
    }
    return (lierne_halo_window){.start = start,
                                .size = end - start,
                                .core_start = span->start,
                                .core_size = span->size};
}

lierne_status lierne_windows_list(lierne_halo_windows *windows, const lierne_layout *layout,
                                  int axis, const lierne_spans *spans) {
    int64_t local = 0;
    for (size_t i = 0; i < spans->count; i++) {
        lierne_halo_window window = lierne_window_of(layout, axis, &spans->at[i]);
        window.local = local;
        local += window.size;
        LIERNE_TRY(window.size > 0 ? LIERNE_VEC_PUSH(windows, window) : LIERNE_OK);
    }
    return LIERNE_OK;
}

/* a mod n, never negative. */
static int64_t modulo(int64_t a, int64_t n) {
    int64_t rest = a % n;
    return rest < 0 ? rest + n : rest;
}

/* The element at a position outside of an axis that is reflected at its borders. */
static lierne_window_piece reflected_at(lierne_window_piece piece, bool twice, int64_t n,
                                        int64_t p) {
    int64_t period = twice ? 2 * n : 2 * (n - 1), m = modulo(p, period);
    bool back = m >= n;
    piece.element = back ? period - m - twice : m;
    piece.step = back ? -1 : 1;
    piece.count = back ? period - m : n - m;
    return piece;
}

/* What position p shows on an axis of n > 0 elements, and at how many positions this goes on. */
static lierne_window_piece piece_at(lierne_boundary boundary, int64_t n, int64_t p) {
    lierne_window_piece piece = {.step = 1, .count = p < 0 ? -p : INT64_MAX};
    if (p >= 0 && p < n) {
        piece.element = p;
        piece.count = n - p;
    } else if (boundary == LIERNE_BOUNDARY_PERIODIC) {
        piece.element = modulo(p, n);
        piece.count = n - piece.element;
    } else if (boundary == LIERNE_BOUNDARY_SYMMETRIC ||
               (boundary == LIERNE_BOUNDARY_MIRROR && n > 1)) {
        piece = reflected_at(piece, boundary == LIERNE_BOUNDARY_SYMMETRIC, n, p);
    } else if (boundary == LIERNE_BOUNDARY_REPLICATE || boundary == LIERNE_BOUNDARY_MIRROR) {
        piece.element = p < 0 ? 0 : n - 1;
        piece.step = 0;
    } else {
        piece.shown = boundary == LIERNE_BOUNDARY_KEEP ? LIERNE_SHOWN_KEEP : LIERNE_SHOWN_ZERO;
    }
    return piece;
}

/* The positions [from, to) of a zone, of which the boundary is that of a document. */
static lierne_status push_zone(lierne_window_pieces *pieces, lierne_boundary boundary,
                               const lierne_span *document, lierne_axis_place place, int64_t from,
                               int64_t to) {
    while (from < to) {
        lierne_window_piece piece = piece_at(boundary, document->size, from - document->start);
        piece.element += document->start;
        piece.count = smaller(piece.count, to - from);
        piece.place = place;
        place.local += piece.count;
        place.in_zone += piece.count;
        from += piece.count;
        LIERNE_TRY(LIERNE_VEC_PUSH(pieces, piece));
    }
    return LIERNE_OK;
}

/* A window without a core is one zone. */
static lierne_status push_window(lierne_window_pieces *pieces, const lierne_layout *layout,
                                 int axis, const lierne_halo_window *w, size_t index) {
    int64_t end = w->start + w->size, core_end = w->core_start + w->core_size;
    bool zones = lierne_halo_has_cores(lierne_halo_of(layout, axis));
    const int64_t ends[LIERNE_ZONES + 1] = {w->start, zones ? w->core_start : w->start,
                                            zones ? core_end : end, end};
    const lierne_span whole = {.size = layout->shape[axis]};
    for (int zone = 0; zone < LIERNE_ZONES; zone++) {
        const lierne_span document =
            zone == LIERNE_ZONE_LO   ? document_of(layout, axis, w->core_start)
            : zone == LIERNE_ZONE_HI ? document_of(layout, axis, core_end - 1)
                                     : whole;
        const lierne_axis_place place = {.local = w->local + ends[zone] - w->start,
                                         .window = index,
                                         .zone = zone};
        LIERNE_TRY(push_zone(pieces, lierne_halo_of(layout, axis)->boundary, &document, place,
                             ends[zone], ends[zone + 1]));
    }
    return LIERNE_OK;
}

lierne_status lierne_pieces_list(lierne_window_pieces *pieces, const lierne_layout *layout,
                                 int axis, const lierne_halo_windows *windows) {
    for (size_t i = 0; i < windows->count; i++) {
        LIERNE_TRY(push_window(pieces, layout, axis, &windows->at[i], i));
    }
    return LIERNE_OK;
}

/* Pieces of elements in which the element ascends: those that do not are taken apart. */
static lierne_status ascending(lierne_window_pieces *out, const lierne_window_pieces *pieces) {
    for (size_t i = 0; i < pieces->count; i++) {
        lierne_window_piece piece = pieces->at[i];
        int64_t n = piece.step == 1 ? 1 : piece.count;
        piece.count /= n;
        for (int64_t k = 0; k < n && piece.shown == LIERNE_SHOWN_ELEMENT; k++) {
            LIERNE_TRY(LIERNE_VEC_PUSH(out, piece));
            piece.element += piece.step;
            piece.place.local++;
            piece.place.in_zone++;
        }
    }
    return LIERNE_OK;
}

static int compare_elements(const void *a, const void *b) {
    const lierne_window_piece *x = a, *y = b;
    return (x->element > y->element) - (x->element < y->element);
}

static int compare_numbers(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* What a sweep over the elements works on: pieces by element, the indices where one begins or
 * ends, and the pieces that have the elements at hand. */
typedef struct sweep {
    lierne_window_pieces pieces;
    LIERNE_VEC(int64_t) borders;
    LIERNE_VEC(size_t) at_hand;
    size_t next;
} sweep;

static int compare_places(const void *a, const void *b) {
    const lierne_axis_place *x = a, *y = b;
    return (x->local > y->local) - (x->local < y->local);
}

/* Where the pieces at hand have element `from`, ascending: sorted once, since thousands of images
 * inserted one by one took seconds. */
static lierne_status add_places(const sweep *s, lierne_runs *runs, int64_t from) {
    size_t first = runs->places.count;
    for (size_t i = 0; i < s->at_hand.count; i++) {
        const lierne_window_piece *piece = &s->pieces.at[s->at_hand.at[i]];
        lierne_axis_place place = piece->place;
        place.local += from - piece->element;
        place.in_zone += from - piece->element;
        LIERNE_TRY(LIERNE_VEC_PUSH(&runs->places, place));
    }
    if (s->at_hand.count > 1) {
        qsort(&runs->places.at[first], s->at_hand.count, sizeof *runs->places.at, compare_places);
    }
    return LIERNE_OK;
}

/* The run of the elements [from, to), if a piece has them. */
static lierne_status add_run(sweep *s, lierne_runs *runs, int64_t from, int64_t to) {
    size_t kept = 0;
    for (size_t i = 0; i < s->at_hand.count; i++) {
        const lierne_window_piece *piece = &s->pieces.at[s->at_hand.at[i]];
        s->at_hand.at[kept] = s->at_hand.at[i];
        kept += piece->element + piece->count > from;
    }
    s->at_hand.count = kept;
    for (; s->next < s->pieces.count && s->pieces.at[s->next].element == from; s->next++) {
        LIERNE_TRY(LIERNE_VEC_PUSH(&s->at_hand, s->next));
    }
    if (s->at_hand.count == 0) {
        return LIERNE_OK;
    }
    const lierne_run run = {.start = from,
                            .size = to - from,
                            .first = runs->places.count,
                            .count = s->at_hand.count};
    LIERNE_TRY(LIERNE_VEC_PUSH(&runs->at, run));
    return add_places(s, runs, from);
}

static lierne_status run_sweep(sweep *s, lierne_runs *runs, const lierne_window_pieces *pieces) {
    LIERNE_TRY(ascending(&s->pieces, pieces));
    for (size_t i = 0; i < s->pieces.count; i++) {
        LIERNE_TRY(LIERNE_VEC_PUSH(&s->borders, s->pieces.at[i].element));
        LIERNE_TRY(LIERNE_VEC_PUSH(&s->borders, s->pieces.at[i].element + s->pieces.at[i].count));
    }
    if (s->pieces.count > 0) {
        qsort(s->pieces.at, s->pieces.count, sizeof *s->pieces.at, compare_elements);
        qsort(s->borders.at, s->borders.count, sizeof *s->borders.at, compare_numbers);
    }
    for (size_t i = 1; i < s->borders.count; i++) {
        if (s->borders.at[i - 1] < s->borders.at[i]) {
            LIERNE_TRY(add_run(s, runs, s->borders.at[i - 1], s->borders.at[i]));
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_runs_create(lierne_runs *runs, const lierne_window_pieces *pieces) {
    sweep s = {.next = 0};
    lierne_status status = run_sweep(&s, runs, pieces);
    lierne_mem_free(s.pieces.at);
    lierne_mem_free(s.borders.at);
    lierne_mem_free(s.at_hand.at);
    return status;
}

void lierne_runs_destroy(lierne_runs *runs) {
    lierne_mem_free(runs->at.at);
    lierne_mem_free(runs->places.at);
}

/* What the windows of an axis need, as spans that ascend and do not touch. */
static lierne_status need_spans(lierne_span_list *list, const lierne_layout *layout, int axis,
                                const lierne_spans *spans) {
    lierne_halo_windows windows = {0};
    lierne_window_pieces pieces = {0};
    lierne_runs runs = {0};
    lierne_status status = lierne_windows_list(&windows, layout, axis, spans);
    status = status == LIERNE_OK ? lierne_pieces_list(&pieces, layout, axis, &windows) : status;
    status = status == LIERNE_OK ? lierne_runs_create(&runs, &pieces) : status;
    for (size_t i = 0; i < runs.at.count && status == LIERNE_OK; i++) {
        const lierne_run *run = &runs.at.at[i];
        lierne_span *last = list->count ? &list->at[list->count - 1] : NULL;
        if (last && last->start + last->size == run->start) {
            last->size += run->size;
        } else {
            const lierne_span span = {.start = run->start, .size = run->size};
            status = LIERNE_VEC_PUSH(list, span);
        }
    }
    lierne_runs_destroy(&runs);
    lierne_mem_free(pieces.at);
    lierne_mem_free(windows.at);
    return status;
}

static void replace(lierne_spans *spans, lierne_span_list list) {
    lierne_mem_free(spans->list.at);
    spans->list = list;
    spans->at = list.at;
    spans->count = list.count;
}

lierne_status lierne_halo_need_spans(lierne_spans *spans, const lierne_layout *layout) {
    for (int a = 0; a < layout->naxes; a++) {
        lierne_span_list list = {0};
        if (!lierne_halo_of(layout, a)) {
            continue;
        }
        lierne_status status = need_spans(&list, layout, a, &spans[a]);
        replace(&spans[a], list);
        LIERNE_TRY(status);
    }
    return LIERNE_OK;
}

static int compare_spans(const void *a, const void *b) {
    const lierne_span *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* a / b, rounded down. */
static int64_t quotient(int64_t a, int64_t b) {
    return (a - modulo(a, b)) / b;
}

/* Adds what the placements cut of an axis and may have positions [from, to) in its window. A window
 * also has what no output of its own reads, where the stride is long: between two of its outputs.
 */
static lierne_status add_reach(lierne_span_list *list, const lierne_layout *layout, int axis,
                               int64_t from, int64_t to) {
    const lierne_dense_halo *h = lierne_halo_of(layout, axis);
    int64_t t = h->stride > 0 ? h->stride : 1;
    int64_t start = larger(quotient(from - h->hi, t), 0);
    int64_t end = smaller(quotient(to - 1 + h->lo, t) + 1, lierne_extent(layout, axis));
    const lierne_span span = {.start = start, .size = end - start};
    return end > start ? LIERNE_VEC_PUSH(list, span) : LIERNE_OK;
}

/* Adds what may have images of a document: spans that begin or end near its borders. */
static lierne_status add_document(lierne_span_list *list, const lierne_layout *layout, int axis,
                                  const lierne_span *document) {
    const lierne_dense_halo *h = lierne_halo_of(layout, axis);
    int64_t lo = smaller(h->lo, document->size), hi = smaller(h->hi, document->size);
    const lierne_span lower = {.start = document->start, .size = lo};
    const lierne_span upper = {.start = document->start + document->size - hi, .size = hi};
    LIERNE_TRY(lo > 0 ? LIERNE_VEC_PUSH(list, lower) : LIERNE_OK);
    return hi > 0 ? LIERNE_VEC_PUSH(list, upper) : LIERNE_OK;
}

static lierne_status add_documents(lierne_span_list *list, const lierne_layout *layout, int axis,
                                   int64_t x, int64_t y) {
    while (x < y) {
        const lierne_span document = document_of(layout, axis, x);
        LIERNE_TRY(add_document(list, layout, axis, &document));
        x = document.start + document.size;
    }
    return LIERNE_OK;
}

/* Adds what may show an element of [x, y) outside of the axis. A margin that is narrower than the
 * axis reaches one image of it below and one above; a wider one shows all of it. */
static lierne_status add_reflected(lierne_span_list *list, const lierne_layout *layout, int axis,
                                   int64_t x, int64_t y) {
    const lierne_dense_halo *h = lierne_halo_of(layout, axis);
    int64_t n = layout->shape[axis], lo = larger(h->lo, 0), end = n + h->hi;
    int64_t mirrored = h->boundary == LIERNE_BOUNDARY_MIRROR ? 1 : 0;
    const lierne_span whole = {.size = lierne_extent(layout, axis)};
    if (h->stride > 0) {
        end = h->stride * (h->outputs - 1) + h->hi + 1;
    }
    if (h->boundary == LIERNE_BOUNDARY_REPLICATE) {
        LIERNE_TRY(x == 0 ? add_reach(list, layout, axis, -lo, 0) : LIERNE_OK);
        return y == n ? add_reach(list, layout, axis, n, larger(end, n)) : LIERNE_OK;
    }
    if (lo >= n || end >= 2 * n) {
        return LIERNE_VEC_PUSH(list, whole);
    }
    if (h->boundary == LIERNE_BOUNDARY_PERIODIC) {
        LIERNE_TRY(add_reach(list, layout, axis, x - n, y - n));
        return add_reach(list, layout, axis, x + n, y + n);
    }
    LIERNE_TRY(add_reach(list, layout, axis, mirrored - y, mirrored - x));
    return add_reach(list, layout, axis, 2 * n - mirrored - y, 2 * n - mirrored - x);
}

/* Adds the coordinates whose windows may show an element of [x, y). */
static lierne_status add_windows(lierne_span_list *list, const lierne_layout *layout, int axis,
                                 int64_t x, int64_t y) {
    const lierne_dense_halo *h = lierne_halo_of(layout, axis);
    bool images = h->boundary >= LIERNE_BOUNDARY_PERIODIC;
    for (int64_t c = 0; c < h->outputs; c++) {
        int64_t start = h->starts[c], end = h->ends[c];
        const lierne_span span = {.start = c, .size = 1};
        bool outside = images && (start < 0 || end > layout->shape[axis]);
        if (start < end && (outside || (start < y && x < end))) {
            LIERNE_TRY(LIERNE_VEC_PUSH(list, span));
        }
    }
    return LIERNE_OK;
}

/* Adds what may show an element of [x, y). */
static lierne_status add_images(lierne_span_list *list, const lierne_layout *layout, int axis,
                                int64_t x, int64_t y) {
    const lierne_dense_halo *h = lierne_halo_of(layout, axis);
    if (h->starts) {
        return add_windows(list, layout, axis, x, y);
    }
    LIERNE_TRY(add_reach(list, layout, axis, x, y));
    if (h->boundary < LIERNE_BOUNDARY_PERIODIC) {
        return LIERNE_OK;
    }
    return h->nsegments > 0 ? add_documents(list, layout, axis, x, y)
                            : add_reflected(list, layout, axis, x, y);
}

/* Spans that ascend and do not overlap, of any. Those of many documents ascend already. */
static void merge(lierne_span_list *list) {
    size_t n = 0, ascend = 1;
    while (ascend < list->count && list->at[ascend - 1].start <= list->at[ascend].start) {
        ascend++;
    }
    if (ascend < list->count) {
        qsort(list->at, list->count, sizeof *list->at, compare_spans);
    }
    for (size_t i = 0; i < list->count; i++) {
        lierne_span *last = n ? &list->at[n - 1] : NULL, next = list->at[i];
        if (last && last->start + last->size >= next.start) {
            last->size = larger(last->start + last->size, next.start + next.size) - last->start;
        } else {
            list->at[n++] = next;
        }
    }
    list->count = n;
}

lierne_status lierne_halo_widen(lierne_spans *spans, const lierne_layout *layout) {
    for (int a = 0; a < layout->naxes; a++) {
        lierne_span_list list = {0};
        lierne_status status = LIERNE_OK;
        if (!lierne_halo_of(layout, a)) {
            continue;
        }
        for (size_t i = 0; i < spans[a].count && status == LIERNE_OK; i++) {
            const lierne_span *span = &spans[a].at[i];
            status = add_images(&list, layout, a, span->start, span->start + span->size);
        }
        merge(&list);
        replace(&spans[a], list);
        LIERNE_TRY(status);
    }
    return LIERNE_OK;
}
