/* The oracle of layouts with halos: see dense_halo_case.h. */
#include "unit/dense_halo_case.h"

#include <stdlib.h>
#include <string.h>

const lierne_dense_halo *halo_of(const halo_side *s, int axis) {
    for (int i = 0; i < s->nhalos; i++) {
        if (s->halos[i].axis == axis) {
            return &s->halos[i];
        }
    }
    return NULL;
}

int64_t halo_extent(const halo_case *c, const halo_side *s, int axis) {
    const lierne_dense_halo *h = halo_of(s, axis);
    return h && h->stride ? h->outputs : c->shape[axis];
}

int halo_cut(const halo_side *s, int axis) {
    int cut = -1;
    for (int d = 0; d < s->ndims; d++) {
        const lierne_placement *p = &s->placements[d];
        bool others =
            p->kind == LIERNE_PLACEMENT_SHARD_ZIGZAG || p->kind == LIERNE_PLACEMENT_SHARD_ROWS;
        if (p->axis == axis && (others || p->kind == LIERNE_PLACEMENT_SHARD)) {
            cut = others || cut != -1 ? -2 : d;
        }
    }
    return cut;
}

bool halo_has_cores(const halo_side *side) {
    bool cores = side->storage == LIERNE_HALO_STORAGE_PADDED;
    for (int i = 0; i < side->nhalos; i++) {
        cores = cores && side->halos[i].lo >= 0 && side->halos[i].hi >= 0 &&
                !side->halos[i].stride && !side->halos[i].starts;
    }
    return cores;
}

/* Positions of an axis in the order of the buffer. */
enum { LO, CORE, HI, ZONES };
typedef struct positions {
    int n;
    int64_t element[HALO_POSITIONS]; /* or what else it shows */
    int window[HALO_POSITIONS];
    int zone[HALO_POSITIONS];
    int nwindows;
} positions;

static void add(positions *p, int64_t element, int window, int zone) {
    if (p->n == HALO_POSITIONS) {
        abort();
    }
    p->element[p->n] = element;
    p->window[p->n] = window;
    p->zone[p->n++] = zone;
}

static void keep(int64_t *list, int64_t *n, int64_t from, int64_t to) {
    memmove(list, list + from, (size_t)(to - from) * sizeof *list);
    *n = to - from;
}

/* Takes the part of a coordinate out of what is left of an axis. */
static void cut(const halo_side *s, int d, int coord, int64_t *list, int64_t *n) {
    const lierne_placement *p = &s->placements[d];
    int64_t size = s->sizes[d], total = *n, chunk = (total + size - 1) / size, kept = 0;
    if (p->kind == LIERNE_PLACEMENT_SHARD_ROWS) {
        for (int64_t i = 0; i < total; i++) {
            if (s->rows[d][list[i]] == coord) {
                list[kept++] = list[i];
            }
        }
        *n = kept;
    } else if (p->kind == LIERNE_PLACEMENT_SHARD_ZIGZAG && size > 1) {
        chunk = total / (2 * size);
        for (int64_t i = 0; i < total; i++) {
            if (i / chunk == coord || i / chunk == 2 * size - 1 - coord) {
                list[kept++] = list[i];
            }
        }
        *n = kept;
    } else if (p->kind == LIERNE_PLACEMENT_SHARD) {
        int64_t from = 0, to = 0;
        for (int k = 0; k <= coord; k++) {
            int64_t share = p->counts  ? s->counts[d][k]
                            : p->share ? (total - to < chunk ? total - to : chunk)
                                       : total / size + (k < total % size);
            from = to;
            to += share;
        }
        keep(list, n, from, to);
    }
}

static int64_t modulo(int64_t a, int64_t n) {
    return (a % n + n) % n;
}

/* What position i of an axis of n elements shows. */
static int64_t map(lierne_boundary boundary, int64_t n, int64_t i) {
    if (i >= 0 && i < n) {
        return i;
    }
    int64_t m = n > 1 ? modulo(i, 2 * (n - 1)) : 0, k = n > 0 ? modulo(i, 2 * n) : 0;
    switch (boundary) {
    case LIERNE_BOUNDARY_ZERO:
        return HALO_ZERO;
    case LIERNE_BOUNDARY_PERIODIC:
        return modulo(i, n);
    case LIERNE_BOUNDARY_MIRROR:
        return n == 1 ? 0 : m < 2 * (n - 1) - m ? m : 2 * (n - 1) - m;
    case LIERNE_BOUNDARY_SYMMETRIC:
        return k < 2 * n - 1 - k ? k : 2 * n - 1 - k;
    case LIERNE_BOUNDARY_REPLICATE:
        return i < 0 ? 0 : n - 1;
    case LIERNE_BOUNDARY_NONE:
    case LIERNE_BOUNDARY_KEEP:
        break;
    }
    return HALO_KEEP;
}

/* What position i shows in the window of the span [start, end), and its zone; FOREIGN: there is no
 * such position. */
static int64_t show(const lierne_dense_halo *h, int64_t n, int64_t start, int64_t end, int64_t i,
                    int *zone) {
    int64_t first = 0, size = n;
    *zone = h->stride || h->starts ? CORE : i < start ? LO : i < end ? CORE : HI;
    for (int64_t k = 0; k < h->nsegments && *zone != CORE; k++) {
        int64_t element = *zone == LO ? start : end - 1;
        if (h->segments[k] <= element && element < h->segments[k + 1]) {
            first = h->segments[k];
            size = h->segments[k + 1] - first;
        }
    }
    bool within = i >= first && i < first + size;
    int64_t shown = within ? i - first : map(h->boundary, size, i - first);
    return !within && h->boundary == LIERNE_BOUNDARY_NONE ? HALO_FOREIGN
           : shown < 0                                    ? shown
                                                          : shown + first;
}

/* The positions [from, to) of the window of the span [start, end). */
static void add_range(positions *p, const lierne_dense_halo *h, int64_t n, int64_t start,
                      int64_t end, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++) {
        int zone;
        int64_t shown = show(h, n, start, end, i, &zone);
        if (shown != HALO_FOREIGN) {
            add(p, shown, p->nwindows, zone);
        }
    }
    p->nwindows++;
}

/* The window of the span list[from] to list[to - 1]. */
static void add_window(positions *p, const lierne_dense_halo *h, int64_t n, const int64_t *list,
                       int64_t from, int64_t to) {
    int64_t start = list[from], end = list[to - 1] + 1, t = h->stride ? h->stride : 1;
    add_range(p, h, n, start, end, t * start - h->lo, t * (end - 1) + 1 + h->hi);
}

static void list_positions(positions *p, const halo_case *c, const halo_side *s, int axis,
                           const int64_t *list, int64_t n) {
    const lierne_dense_halo *h = halo_of(s, axis);
    int64_t size = c->shape[axis];
    *p = (positions){.n = 0};
    if (!h && (s->full_axes >> axis & 1)) {
        for (int64_t i = 0; i < size; i++) {
            bool own = false;
            for (int64_t k = 0; k < n; k++) {
                own = own || list[k] == i;
            }
            add(p, own ? i : HALO_FOREIGN, 0, CORE);
        }
    }
    for (int64_t from = 0, to; from < n && p->nwindows >= 0; from = to) {
        for (to = from + 1; to < n && list[to] == list[to - 1] + 1; to++) {
        }
        if (h) {
            add_window(p, h, size, list, from, to);
        }
        for (int64_t i = from; i < to && !h && !(s->full_axes >> axis & 1); i++) {
            add(p, list[i], 0, CORE);
        }
    }
    p->nwindows = h ? p->nwindows : 1;
}

/* The rank's coordinates; whether it holds something. */
static bool find_rank(halo_buffer *b, const halo_side *s, int rank, int *coords) {
    int left = rank - s->offset, stride = 1;
    b->first = rank;
    b->partials = 1;
    bool holds = left >= 0;
    for (int d = 0; d < s->ndims && holds; d++) {
        const lierne_placement *p = &s->placements[d];
        coords[d] = left % (int)s->sizes[d];
        left /= (int)s->sizes[d];
        if (p->kind == LIERNE_PLACEMENT_REPLICATE) {
            b->first -= coords[d] * stride;
        } else if (p->kind == LIERNE_PLACEMENT_PARTIAL) {
            b->partial += coords[d] * b->partials;
            b->partials *= (int)s->sizes[d];
        }
        holds = p->kind != LIERNE_PLACEMENT_AT || coords[d] == p->at;
        stride *= (int)s->sizes[d];
    }
    return holds && left == 0;
}

/* Shares in their order, slower dims first where that is equal, then maps. */
static int64_t list_part(int64_t *list, const halo_case *c, const halo_side *s, const int *coords,
                         int axis) {
    int64_t n = halo_extent(c, s, axis);
    for (int64_t i = 0; i < n; i++) {
        list[i] = i;
    }
    for (int order = 0; order <= 2; order++) {
        for (int d = s->ndims - 1; d >= 0; d--) {
            bool maps = s->placements[d].kind == LIERNE_PLACEMENT_SHARD_ROWS;
            if (s->placements[d].axis == axis &&
                (maps ? order == 2 : s->placements[d].cut_order == order)) {
                cut(s, d, coords[d], list, &n);
            }
        }
    }
    return n;
}

static void list_axis(positions *p, const halo_case *c, const halo_side *s, const int *coords,
                      int axis) {
    int64_t list[HALO_SIZE + 2], n = list_part(list, c, s, coords, axis);
    const lierne_dense_halo *h = halo_of(s, axis);
    if (h && h->starts) {
        int cut = halo_cut(s, axis), coord = cut < 0 ? 0 : coords[cut];
        *p = (positions){.n = 0};
        add_range(p, h, c->shape[axis], 0, 0, h->starts[coord], h->ends[coord]);
        return;
    }
    list_positions(p, c, s, axis, list, n);
}

/* Whether what output o of the window of the span [start, end) reads is in the list, or filled by
 * the boundary. */
static bool is_ready(const halo_case *c, int axis, int64_t start, int64_t end, int64_t o,
                     const int64_t *held, int64_t nheld) {
    static const lierne_dense_halo none = {.lo = 0};
    const lierne_dense_halo *h = halo_of(&c->sides[1], axis) ? halo_of(&c->sides[1], axis) : &none;
    int64_t t = h->stride ? h->stride : 1;
    for (int64_t i = t * o - h->lo; i <= t * o + h->hi; i++) {
        int zone;
        int64_t shown = show(h, c->shape[axis], start, end, i, &zone);
        bool has = shown < 0;
        for (int64_t k = 0; k < nheld; k++) {
            has = has || held[k] == shown;
        }
        if (!has) {
            return false;
        }
    }
    return true;
}

/* Of the outputs [first, first + n) of a window, which are ready or not: keeps the longest run. */
static void keep_run(halo_outputs *out, int first, int n) {
    int best = 0, at = 0;
    for (int i = 0, run = 0; i < n; i++) {
        run = out->ready[first + i] ? run + 1 : 0;
        if (run > best) {
            best = run;
            at = first + i + 1 - run;
        }
    }
    for (int i = 0; i < n; i++) {
        out->ready[first + i] = first + i >= at && first + i < at + best;
    }
}

void halo_list_outputs(halo_outputs *out, const halo_case *c, int rank, int axis) {
    int coords[2][HALO_DIMS];
    halo_buffer b = {0}, other = {0};
    int64_t list[HALO_SIZE + 2], held[HALO_SIZE + 2], nheld = 0;
    *out = (halo_outputs){.n = 0};
    if (!find_rank(&b, &c->sides[1], rank, coords[1])) {
        return;
    }
    if (find_rank(&other, &c->sides[0], rank, coords[0]) && other.partials == 1) {
        nheld = list_part(held, c, &c->sides[0], coords[0], axis);
    }
    out->n = (int)list_part(list, c, &c->sides[1], coords[1], axis);
    bool windows = halo_of(&c->sides[1], axis);
    for (int from = 0, to; from < out->n; from = to) {
        for (to = from + 1; to < out->n && (!windows || list[to] == list[to - 1] + 1); to++) {
        }
        for (int i = from; i < to; i++) {
            out->ready[i] =
                windows ? is_ready(c, axis, list[from], list[to - 1] + 1, list[i], held, nheld)
                        : is_ready(c, axis, list[i], list[i] + 1, list[i], held, nheld);
        }
        keep_run(out, from, to - from);
    }
}

/* The place of a product of positions, if it is one of the windows and zones at hand (NULL: any).
 */
static void add_place(halo_buffer *b, const halo_case *c, const halo_side *s, const positions *axes,
                      const int *at, const int *windows, const int *zones) {
    int64_t element = 0;
    bool keeps = false, zero = false, foreign = false;
    int outside = 0;
    for (int a = 0; a < c->naxes; a++) {
        const positions *p = &axes[a];
        if (windows && (p->window[at[a]] != windows[a] || p->zone[at[a]] != zones[a])) {
            return;
        }
        int64_t shown = p->element[at[a]];
        keeps = keeps || shown == HALO_KEEP;
        zero = zero || shown == HALO_ZERO;
        foreign = foreign || shown == HALO_FOREIGN;
        outside += p->zone[at[a]] != CORE;
        element = element * c->shape[a] + shown;
    }
    zero = zero || (s->stencil == LIERNE_STENCIL_STAR && outside > 1);
    b->core[b->n] = outside == 0 && halo_has_cores(s);
    b->at[b->n++] = foreign ? HALO_FOREIGN : keeps ? HALO_KEEP : zero ? HALO_ZERO : element;
}

static void add_places(halo_buffer *b, const halo_case *c, const halo_side *s,
                       const positions *axes, const int *windows, const int *zones) {
    int at[LIERNE_MAX_AXES] = {0}, a = 0;
    for (int i = 0; i < c->naxes; i++) {
        a = axes[i].n == 0 ? -1 : a;
    }
    while (a >= 0) {
        add_place(b, c, s, axes, at, windows, zones);
        for (a = c->naxes - 1; a >= 0 && ++at[a] == axes[a].n; a--) {
            at[a] = 0;
        }
    }
}

static void add_margins(halo_buffer *b, const halo_case *c, const halo_side *s,
                        const positions *axes) {
    int windows[LIERNE_MAX_AXES] = {0}, all = 1, boxes = 1;
    for (int a = 0; a < c->naxes; a++) {
        all *= axes[a].nwindows;
        boxes *= ZONES;
    }
    for (int w = 0; w < all; w++) {
        for (int z = 0; z < boxes; z++) {
            int zones[LIERNE_MAX_AXES], left = w, code = z, outside = 0;
            for (int a = c->naxes - 1; a >= 0; a--) {
                windows[a] = left % axes[a].nwindows;
                left /= axes[a].nwindows;
                zones[a] = code % ZONES;
                code /= ZONES;
                outside += zones[a] != CORE;
            }
            if (outside > 0 && (outside == 1 || s->stencil == LIERNE_STENCIL_BOX)) {
                add_places(b, c, s, axes, windows, zones);
            }
        }
    }
}

void halo_fill(halo_buffer *b, const halo_case *c, int side, int rank) {
    const halo_side *s = &c->sides[side];
    positions *axes = calloc(LIERNE_MAX_AXES, sizeof *axes);
    int coords[HALO_DIMS] = {0};
    size_t most = 1;
    *b = (halo_buffer){.n = 0};
    b->holds = find_rank(b, s, rank, coords);
    for (int a = 0; a < c->naxes && b->holds; a++) {
        list_axis(&axes[a], c, s, coords, a);
        b->shape[a] = axes[a].n;
        most *= (size_t)axes[a].n;
    }
    b->at = calloc(most + 1, sizeof *b->at);
    b->core = calloc(most + 1, sizeof *b->core);
    if (b->holds && s->storage == LIERNE_HALO_STORAGE_MARGINS) {
        add_margins(b, c, s, axes);
    } else if (b->holds) {
        add_places(b, c, s, axes, NULL, NULL);
    }
    free(axes);
}

void halo_free(halo_buffer *buffer) {
    free(buffer->at);
    free(buffer->core);
}
