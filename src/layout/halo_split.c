/* Which outputs of a rank need nothing from others: what it can compute while margins are in
 * flight.
 *
 * Each axis is looked at by itself, as its windows are. A position is ready if the boundary fills
 * it, or if the rank holds its element on this axis under the source; a run of outputs is ready
 * where no window position that one of them reads is missing. So the interior of a combination of
 * windows is a box, and the border around it a few boxes more, whatever the cuts are. */
#include "layout/dense_halo.h"

/* A window of an axis, in local numbers of outputs: those of [start, start + size) which need
 * nothing are [ready, ready + nready). */
typedef struct part {
    int64_t start;
    int64_t size;
    int64_t ready;
    int64_t nready;
} part;
typedef LIERNE_VEC(part) parts;

typedef struct splitter {
    const lierne_layout *src;
    const lierne_layout *dst;
    bool holds; /* this rank anything of the source */
    lierne_spans held[LIERNE_MAX_AXES];
    lierne_spans spans[LIERNE_MAX_AXES]; /* of outputs */
    parts axes[LIERNE_MAX_AXES];
} splitter;

/* The outputs of a window, while what is missing of it is found from below. */
typedef struct window_walk {
    const lierne_dense_halo *halo; /* NULL: each output needs the position of its own number */
    int64_t first;                 /* output of the axis */
    int64_t end;
    int64_t next; /* the first output that may still be ready */
    part *best;   /* of it, ready is an output of the axis */
} window_walk;

static void take_run(window_walk *w, int64_t end) {
    if (end - w->next > w->best->nready) {
        w->best->ready = w->next;
        w->best->nready = end - w->next;
    }
}

static int64_t ceil_quotient(int64_t a, int64_t n) {
    return a / n + (a % n > 0);
}

static int64_t floor_quotient(int64_t a, int64_t n) {
    return a / n - (a % n < 0);
}

/* The positions [from, to) are missing. */
static void miss(window_walk *w, int64_t from, int64_t to) {
    int64_t t = w->halo && w->halo->stride > 0 ? w->halo->stride : 1;
    int64_t lo = w->halo ? w->halo->lo : 0, hi = w->halo ? w->halo->hi : 0;
    int64_t first = ceil_quotient(from - hi, t), end = floor_quotient(to - 1 + lo, t) + 1;
    if (first >= end || end <= w->next || first >= w->end) {
        return;
    }
    take_run(w, first);
    w->next = end;
}

/* What is missing of elements that ascend (step 1) or descend from the position `from` on. */
static void miss_elements(window_walk *w, const lierne_spans *held, int64_t from, int64_t count,
                          int64_t element, int step) {
    for (int64_t done = 0, n; done < count; done += n) {
        int64_t e = element + step * done;
        size_t low = 0, high = held ? held->count : 0;
        while (low < high) { /* the first span that ends behind e */
            size_t middle = low + (high - low) / 2;
            const lierne_span *span = &held->at[middle];
            low = span->start + span->size <= e ? middle + 1 : low;
            high = span->start + span->size <= e ? high : middle;
        }
        const lierne_span *span = held && low < held->count ? &held->at[low] : NULL;
        bool has = span && span->start <= e;
        if (step > 0) {
            n = has ? span->start + span->size - e : span ? span->start - e : count;
        } else {
            const lierne_span *below = held && low > 0 ? &held->at[low - 1] : NULL;
            n = has ? e - span->start + 1 : below ? e - (below->start + below->size) + 1 : count;
        }
        n = step == 0 || n > count - done ? count - done : n;
        if (!has) {
            miss(w, from + done, from + done + n);
        }
    }
}

/* Ends a window, whose best run becomes one of local numbers. */
static void end_window(window_walk *w) {
    take_run(w, w->end);
    w->best->ready += w->best->start - w->first;
}

static window_walk begin_window(const lierne_dense_halo *halo, const lierne_span *span,
                                part *best) {
    return (window_walk){.halo = halo,
                         .first = span->start,
                         .end = span->start + span->size,
                         .next = span->start,
                         .best = best};
}

/* An axis without a halo is one window, of outputs that need their own elements. */
static lierne_status split_ordinary(splitter *s, int axis) {
    const lierne_spans *held = s->holds ? &s->held[axis] : NULL;
    part whole = {0};
    window_walk w = begin_window(NULL, &(lierne_span){0}, &whole);
    for (size_t i = 0; i < s->spans[axis].count; i++) {
        const lierne_span *span = &s->spans[axis].at[i];
        w.end = whole.size + span->size;
        miss_elements(&w, held, whole.size, span->size, span->start, 1);
        whole.size += span->size;
    }
    end_window(&w);
    return whole.size > 0 ? LIERNE_VEC_PUSH(&s->axes[axis], whole) : LIERNE_OK;
}

/* next: the first piece of the window, then the one after its last. */
static void split_window(splitter *s, int axis, const lierne_window_pieces *pieces,
                         const lierne_halo_window *window, size_t *next) {
    const lierne_spans *held = s->holds ? &s->held[axis] : NULL;
    size_t index = s->axes[axis].count - 1;
    window_walk w = begin_window(lierne_halo_of(s->dst, axis), &s->spans[axis].at[index],
                                 &s->axes[axis].at[index]);
    for (; *next < pieces->count && pieces->at[*next].place.window == index; ++*next) {
        const lierne_window_piece *piece = &pieces->at[*next];
        if (piece->shown == LIERNE_SHOWN_ELEMENT) {
            int64_t position = window->start + piece->place.local - window->local;
            miss_elements(&w, held, position, piece->count, piece->element, piece->step);
        }
    }
    end_window(&w);
}

static lierne_status split_axis(splitter *s, int axis) {
    lierne_halo_windows windows = {0};
    lierne_window_pieces pieces = {0};
    int64_t outputs = 0;
    size_t next = 0;
    lierne_status status = lierne_windows_list(&windows, s->dst, axis, &s->spans[axis]);
    status = status == LIERNE_OK ? lierne_pieces_list(&pieces, s->dst, axis, &windows) : status;
    for (size_t i = 0; i < windows.count && status == LIERNE_OK; i++) {
        const part window = {.start = outputs, .size = s->spans[axis].at[i].size};
        outputs += window.size;
        status = LIERNE_VEC_PUSH(&s->axes[axis], window);
        if (status == LIERNE_OK) {
            split_window(s, axis, &pieces, &windows.at[i], &next);
        }
    }
    lierne_mem_free(windows.at);
    lierne_mem_free(pieces.at);
    return status;
}

static lierne_status split_axes(splitter *s, const lierne_cell *from, const lierne_cell *to) {
    LIERNE_TRY(lierne_spans_create(s->spans, s->dst, to));
    LIERNE_TRY(s->holds ? lierne_spans_create(s->held, s->src, from) : LIERNE_OK);
    for (int axis = 0; axis < s->dst->naxes; axis++) {
        LIERNE_TRY(lierne_halo_of(s->dst, axis) ? split_axis(s, axis) : split_ordinary(s, axis));
    }
    return LIERNE_OK;
}

/* Boxes as they are found: those beyond the capacity are counted. */
typedef struct given {
    lierne_split_box *at;
    size_t capacity;
    size_t *count;
} given;

static void give_box(const given *out, const lierne_split_box *box, int naxes) {
    for (int axis = 0; axis < naxes; axis++) {
        if (box->size[axis] == 0) {
            return;
        }
    }
    if (out->at && *out->count < out->capacity) {
        out->at[*out->count] = *box;
    }
    ++*out->count;
}

/* The interior of a combination of windows, then below and above it on each axis, within it on the
 * axes before. */
static void give_combination(const splitter *s, const size_t *windows, const given *out) {
    int naxes = s->dst->naxes;
    lierne_split_box whole = {.interior = false}, interior = {.interior = true};
    bool any = true;
    for (int axis = 0; axis < naxes; axis++) {
        const part *p = &s->axes[axis].at[windows[axis]];
        whole.start[axis] = p->start;
        whole.size[axis] = p->size;
        interior.start[axis] = p->ready;
        interior.size[axis] = p->nready;
        any = any && p->nready > 0;
    }
    if (!any) {
        give_box(out, &whole, naxes);
        return;
    }
    give_box(out, &interior, naxes);
    for (int axis = 0; axis < naxes; axis++) {
        lierne_split_box below = whole, above = whole;
        int64_t end = interior.start[axis] + interior.size[axis];
        below.size[axis] = interior.start[axis] - whole.start[axis];
        above.start[axis] = end;
        above.size[axis] = whole.start[axis] + whole.size[axis] - end;
        give_box(out, &below, naxes);
        give_box(out, &above, naxes);
        whole.start[axis] = interior.start[axis];
        whole.size[axis] = interior.size[axis];
    }
}

static void give_combinations(const splitter *s, const given *out) {
    size_t windows[LIERNE_MAX_AXES] = {0};
    int axis = 0;
    for (int a = 0; a < s->dst->naxes; a++) {
        if (s->axes[a].count == 0) {
            return;
        }
    }
    while (axis >= 0) {
        give_combination(s, windows, out);
        for (axis = s->dst->naxes - 1; axis >= 0 && ++windows[axis] == s->axes[axis].count;
             axis--) {
            windows[axis] = 0;
        }
    }
}

static lierne_status check_no_map(const lierne_layout *layout, const char *name) {
    for (int i = 0; i < layout->ncuts; i++) {
        const lierne_placement *p = &layout->placements[layout->cuts[i]];
        if (p->kind == LIERNE_PLACEMENT_SHARD_ROWS && p->axis2 >= 0) {
            return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                               "%s has a map of two axes, %d and %d: its parts are no boxes", name,
                               p->axis, p->axis2);
        }
    }
    return LIERNE_OK;
}

static lierne_status check_sides(const lierne_layout *src, const lierne_layout *dst) {
    LIERNE_TRY(lierne_check_set(src, "src"));
    LIERNE_TRY(lierne_check_set(dst, "dst"));
    if (!dst->halos) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "dst has no halos: nhalos must be above 0");
    }
    if (src->naxes != dst->naxes) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "src has %d axes, dst %d: they must be equal",
                           src->naxes, dst->naxes);
    }
    for (int axis = 0; axis < src->naxes; axis++) {
        if (src->shape[axis] != dst->shape[axis]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "axis %d of src has %lld elements, of dst %lld: they must be equal",
                               axis, (long long)src->shape[axis], (long long)dst->shape[axis]);
        }
    }
    for (int i = 0; i < dst->halos->n; i++) {
        if (dst->halos->at[i].starts) {
            return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                               "halo[%d] of dst has starts: which outputs read which positions is "
                               "the caller's",
                               i);
        }
    }
    LIERNE_TRY(lierne_halos_check_source(src, "src"));
    LIERNE_TRY(check_no_map(src, "src"));
    return check_no_map(dst, "dst");
}

lierne_status lierne_halo_get_split(lierne_split_box *boxes, size_t capacity, size_t *count,
                                    const lierne_layout *src, const lierne_layout *dst, int rank) {
    LIERNE_PUBLIC_CALL();
    lierne_cell from, to;
    LIERNE_TRY(lierne_check_set(count, "count"));
    *count = 0;
    LIERNE_TRY(check_sides(src, dst));
    if (!lierne_layout_cell(dst, rank, &to)) {
        return LIERNE_OK;
    }
    splitter s = {.src = src, .dst = dst};
    s.holds = src->partials == 1 && lierne_layout_cell(src, rank, &from);
    lierne_status status = split_axes(&s, &from, &to);
    if (status == LIERNE_OK) {
        give_combinations(&s, &(given){.at = boxes, .capacity = capacity, .count = count});
    }
    lierne_spans_destroy(s.spans, dst->naxes);
    lierne_spans_destroy(s.held, dst->naxes);
    for (int axis = 0; axis < dst->naxes; axis++) {
        lierne_mem_free(s.axes[axis].at);
    }
    return status;
}
