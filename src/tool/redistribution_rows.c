/* The buffers of a redistribution of a file, place by place, as a reader of lierne/dense_halo.h
 * would count them out: the positions of every window of every axis are listed, each is mapped by
 * the definition of its boundary, and a buffer is the product of the lists. */
#include "redistribution_rows.h"
#include "cuts.h"

#include <stdlib.h>
#include <string.h>

/* What a position is, that is no index of the axis. */
enum { NOTHING = -1 };

static const lierne_dense_halo *halo_of(const lierne_layout_spec *spec, int axis) {
    for (int i = 0; i < spec->nhalos; i++) {
        if (spec->halos[i].axis == axis) {
            return &spec->halos[i];
        }
    }
    return NULL;
}

static int64_t modulo(int64_t k, int64_t n) {
    return (k % n + n) % n;
}

typedef struct span {
    int64_t start, end;
} span;

/* The element of a document at position i, which may lie outside. */
static int64_t element_at(lierne_boundary boundary, span document, int64_t i) {
    int64_t begin = document.start, k = i - begin, n = document.end - begin, m;
    if (k >= 0 && k < n) {
        return i;
    }
    switch (boundary) {
    case LIERNE_BOUNDARY_PERIODIC:
        return begin + modulo(k, n);
    case LIERNE_BOUNDARY_MIRROR:
        m = n > 1 ? modulo(k, 2 * (n - 1)) : 0;
        return begin + (m < n ? m : 2 * (n - 1) - m);
    case LIERNE_BOUNDARY_SYMMETRIC:
        m = modulo(k, 2 * n);
        return begin + (m < n ? m : 2 * n - 1 - m);
    case LIERNE_BOUNDARY_REPLICATE:
        return k < 0 ? begin : document.end - 1;
    default:
        return NOTHING;
    }
}

static bool push(redistribution_axis *l, int64_t element, bool core) {
    if (l->n == l->room) {
        int64_t room = 2 * l->room + 64;
        int64_t *elements = realloc(l->element, (size_t)room * sizeof *elements);
        l->element = elements ? elements : l->element;
        bool *cores = elements ? realloc(l->core, (size_t)room * sizeof *cores) : NULL;
        if (!cores) {
            return false;
        }
        l->core = cores;
        l->room = room;
    }
    l->element[l->n] = element;
    l->core[l->n++] = core;
    return true;
}

/* The range of the document of an element; without documents the axis. */
static span document_of(const lierne_dense_halo *h, int64_t size, int64_t element) {
    int64_t j = 0;
    while (j + 1 < h->nsegments && h->segments[j + 1] <= element) {
        j++;
    }
    return h->nsegments > 0 ? (span){h->segments[j], h->segments[j + 1]} : (span){0, size};
}

/* The window of a span of what the placements cut. */
static bool push_window(redistribution_axis *l, const lierne_dense_halo *h, int64_t size, span s) {
    int64_t *zones = l->zones[l->nwindows++], t = h->stride ? h->stride : 1;
    span below = document_of(h, size, s.start), above = document_of(h, size, s.end - 1);
    span w = {t * s.start - h->lo, t * (s.end - 1) + h->hi + 1};
    if (h->boundary == LIERNE_BOUNDARY_NONE) {
        w.start = w.start < below.start ? below.start : w.start;
        w.end = w.end > above.end ? above.end : w.end;
    }
    zones[0] = l->n;
    zones[1] = l->n + (s.start - w.start);
    zones[2] = zones[1] + (s.end - s.start);
    zones[3] = l->n + (w.end - w.start);
    for (int64_t i = w.start; i < w.end; i++) {
        bool core = !h->stride && i >= s.start && i < s.end;
        span document = i < s.start ? below : above;
        if (!push(l, core ? i : element_at(h->boundary, document, i), core)) {
            return false;
        }
    }
    return true;
}

/* kept: n indices that the placements leave, ascending. Without a halo they are one window. */
static bool list_axis(redistribution_axis *l, const lierne_dense_halo *h, int64_t size,
                      const int64_t *kept, int64_t n) {
    bool ok = true;
    l->halo = h != NULL;
    l->zones = malloc(((size_t)n + 1) * sizeof *l->zones);
    for (int64_t k = 0, end; l->zones && ok && h && k < n; k = end) {
        for (end = k + 1; end < n && kept[end] == kept[end - 1] + 1;) {
            end++;
        }
        ok = push_window(l, h, size, (span){kept[k], kept[end - 1] + 1});
    }
    for (int64_t i = 0; l->zones && ok && !h && i < n; i++) {
        ok = push(l, kept[i], true);
    }
    if (l->zones && !h && n > 0) {
        memcpy(l->zones[l->nwindows++], (int64_t[]){0, 0, n, n}, sizeof *l->zones);
    }
    return l->zones && ok;
}

/* --- products ----------------------------------------------------------------------------- */

/* The next of count[0] x count[1] x ... places, the last axis fastest. */
static bool step(int64_t *at, const int64_t *count, int n) {
    for (int a = n - 1; a >= 0; a--) {
        if (++at[a] < count[a]) {
            return true;
        }
        at[a] = 0;
    }
    return false;
}

typedef struct product {
    const lierne_layout_spec *spec;
    const redistribution_axis *lists;
    int64_t *out; /* element numbers, or NOTHING */
    int64_t n;
    bool cores; /* margins are no elements: of a source */
} product;

static void put_place(product *p, const int64_t *at) {
    int64_t number = 0;
    int margins = 0;
    bool nothing = false;
    for (int a = 0; a < p->spec->naxes; a++) {
        int64_t element = p->lists[a].element[at[a]];
        nothing = nothing || element == NOTHING;
        margins += p->lists[a].halo && !p->lists[a].core[at[a]];
        number = number * p->spec->shape[a] + element;
    }
    nothing = nothing || (p->cores && margins > 0) ||
              (p->spec->stencil == LIERNE_STENCIL_STAR && margins > 1);
    p->out[p->n++] = nothing ? NOTHING : number;
}

/* All places of [start, start + size) on each axis, row-major. */
static void put_box(product *p, const int64_t *start, const int64_t *size) {
    int64_t i[LIERNE_MAX_AXES] = {0}, at[LIERNE_MAX_AXES];
    for (int a = 0; a < p->spec->naxes; a++) {
        if (size[a] <= 0) {
            return;
        }
    }
    do {
        for (int a = 0; a < p->spec->naxes; a++) {
            at[a] = start[a] + i[a];
        }
        put_place(p, at);
    } while (step(i, size, p->spec->naxes));
}

/* The box of these windows and zones, if margin storage has it. */
static void put_zone(product *p, const int64_t *window, const int64_t *zone) {
    int64_t start[LIERNE_MAX_AXES], size[LIERNE_MAX_AXES];
    int margins = 0;
    for (int a = 0; a < p->spec->naxes; a++) {
        const int64_t *zones = p->lists[a].zones[window[a]];
        int64_t z = p->lists[a].halo ? zone[a] : 1;
        margins += z != 1;
        start[a] = zones[z];
        size[a] = zones[z + 1] - zones[z];
    }
    if (margins == 1 || (margins > 1 && p->spec->stencil == LIERNE_STENCIL_BOX)) {
        put_box(p, start, size);
    }
}

static void put_margins(product *p) {
    int64_t windows[LIERNE_MAX_AXES], zones[LIERNE_MAX_AXES], w[LIERNE_MAX_AXES] = {0};
    for (int a = 0; a < p->spec->naxes; a++) {
        windows[a] = p->lists[a].nwindows;
        zones[a] = p->lists[a].halo ? 3 : 1;
        if (windows[a] == 0) {
            return;
        }
    }
    do {
        int64_t z[LIERNE_MAX_AXES] = {0};
        do {
            put_zone(p, w, z);
        } while (step(z, zones, p->spec->naxes));
    } while (step(w, windows, p->spec->naxes));
}

bool redistribution_axis_open(redistribution_axis *l, const lierne_layout_spec *spec,
                              const int *coords, int axis) {
    const lierne_dense_halo *h = halo_of(spec, axis);
    int64_t n = h && h->stride ? h->outputs : spec->shape[axis];
    int64_t *kept = malloc(((size_t)n + 1) * sizeof *kept);
    *l = (redistribution_axis){0};
    bool ok = kept &&
              list_axis(l, h, spec->shape[axis], kept, cut_positions(kept, n, spec, coords, axis));
    free(kept);
    return ok;
}

void redistribution_axis_close(redistribution_axis *l) {
    free(l->element);
    free(l->core);
    free(l->zones);
}

bool redistribution_places(int64_t **out, int64_t *count, const lierne_layout_spec *spec,
                           const int *coords, bool source) {
    redistribution_axis lists[LIERNE_MAX_AXES] = {{0}};
    int64_t start[LIERNE_MAX_AXES] = {0}, size[LIERNE_MAX_AXES], total = 1;
    bool ok = true;
    *out = NULL;
    for (int a = 0; ok && a < spec->naxes; a++) {
        ok = redistribution_axis_open(&lists[a], spec, coords, a);
        size[a] = lists[a].n;
        total *= size[a];
    }
    *out = ok ? malloc(((size_t)total + 1) * sizeof **out) : NULL;
    product p = {.spec = spec, .lists = lists, .out = *out, .cores = source};
    if (*out && spec->halo_storage == LIERNE_HALO_STORAGE_MARGINS) {
        put_margins(&p);
    } else if (*out) {
        put_box(&p, start, size);
    }
    for (int a = 0; a < spec->naxes; a++) {
        redistribution_axis_close(&lists[a]);
    }
    *count = p.n;
    return *out != NULL;
}
