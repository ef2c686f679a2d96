/* Workloads of dense halos: who shows what, their buffers, and what is right in them.
 *
 * Nothing here asks a plan. The windows of every coordinate of an axis are cut into pieces by the
 * definition; products of pieces are the boxes that methods by hand move. Values are sums, and
 * gradients products, of a number per axis, so that the sum of all gradients of an element is a
 * product of sums per axis, and every element can be compared. */
#include "bench/dense.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = -77, PIECES = 64 };

typedef struct span {
    int64_t start, end;
} span;

static int spans_of(const dense_axis *a, int c, span *spans) {
    int64_t n = a->ranks, chunk = a->size / (2 * n);
    if (!a->zigzag || n == 1) {
        spans[0] = (span){a->size * c / n, a->size * (c + 1) / n};
        return 1;
    }
    spans[0] = (span){chunk * c, chunk * (c + 1)};
    spans[1] = (span){chunk * (2 * n - 1 - c), chunk * (2 * n - c)};
    if (spans[0].end == spans[1].start) {
        spans[0].end = spans[1].end;
        return 1;
    }
    return 2;
}

static span window_of(const dense_axis *a, span s) {
    span w = {s.start - a->lo, s.end + a->hi};
    if (!a->periodic) {
        w.start = w.start < 0 ? 0 : w.start;
        w.end = w.end > a->size ? a->size : w.end;
    }
    return w;
}

/* Sets owner, there and how many elements from p->element on it has. */
static void find_owner(const dense_axis *a, piece *p) {
    for (int c = 0; c < a->ranks; c++) {
        span spans[2];
        int n = spans_of(a, c, spans);
        int64_t local = 0, part = 0;
        for (int i = 0; i < n; i++) {
            span w = window_of(a, spans[i]);
            if (p->element >= spans[i].start && p->element < spans[i].end) {
                p->owner = c;
                p->there = local + p->element - w.start;
                p->part = part + p->element - spans[i].start;
                p->count = spans[i].end - p->element;
                return;
            }
            local += w.end - w.start;
            part += spans[i].end - spans[i].start;
        }
    }
}

/* The pieces of a coordinate's windows, in the order of the buffer. */
static int pieces_of(const dense_axis *a, int c, piece *pieces) {
    span spans[2];
    int n = 0, nspans = spans_of(a, c, spans);
    int64_t here = 0;
    for (int i = 0; i < nspans; i++) {
        span w = window_of(a, spans[i]);
        for (int64_t at = w.start; at < w.end && n < PIECES; n++) {
            bool core = at >= spans[i].start && at < spans[i].end;
            int64_t end = at < spans[i].start ? spans[i].start : core ? spans[i].end : w.end;
            piece *p = &pieces[n];
            *p = (piece){.here = here, .element = ((at % a->size) + a->size) % a->size};
            p->core = core;
            find_owner(a, p);
            p->count = p->count < end - at ? p->count : end - at;
            here += p->count;
            at += p->count;
        }
    }
    CHECK(n < PIECES, "more than %d pieces", PIECES);
    return n;
}

int dense_coordinate(const dense *w, int rank, int axis) {
    for (int k = w->naxes - 1; k > axis; k--) {
        rank /= w->axes[k].ranks;
    }
    return rank % w->axes[axis].ranks;
}

static int32_t value_at(int axis, int64_t element) {
    return (int32_t)((element * (2 * axis + 3) + element / 7) % 16);
}

static int32_t gradient_at(int c, int64_t position) {
    return 1 + (int32_t)((position + position / 5 + c) % 2);
}

/* The sums of gradients at an axis' elements: of core positions, and of the others. */
static void sum_gradients(const dense_axis *a, int32_t *own, int32_t *others) {
    piece pieces[PIECES];
    for (int c = 0; c < a->ranks; c++) {
        int n = pieces_of(a, c, pieces);
        for (int i = 0; i < n; i++) {
            int32_t *to = pieces[i].core ? own : others;
            for (int64_t j = 0; j < pieces[i].count; j++) {
                to[pieces[i].element + j] += gradient_at(c, pieces[i].here + j);
            }
        }
    }
}

static void *zeros(int64_t n, size_t size) {
    return take((size_t)n * size + 1);
}

static void open_line(const dense *w, int axis, dense_line *l) {
    const dense_axis *a = &w->axes[axis];
    piece pieces[PIECES];
    int c = dense_coordinate(w, test_rank, axis), n = pieces_of(a, c, pieces);
    int32_t *own = zeros(a->size, sizeof *own), *others = zeros(a->size, sizeof *others);
    sum_gradients(a, own, others);
    l->length = w->shapes[test_rank][axis];
    l->core = zeros(l->length, sizeof *l->core);
    l->value = zeros(l->length, sizeof *l->value);
    l->gradient = zeros(l->length, sizeof *l->gradient);
    l->own = zeros(l->length, sizeof *l->own);
    l->sum = zeros(l->length, sizeof *l->sum);
    l->margin = zeros(l->length, sizeof *l->margin);
    for (int i = 0; i < n; i++) {
        for (int64_t j = 0; j < pieces[i].count; j++) {
            int64_t at = pieces[i].here + j, e = pieces[i].element + j;
            l->margin[at] = !pieces[i].core;
            l->value[at] = value_at(axis, e);
            l->gradient[at] = gradient_at(c, at);
            l->own[at] = own[e];
            l->sum[at] = others[e];
            if (pieces[i].core) {
                l->core[l->owned++] = at;
            }
        }
    }
    free(own);
    free(others);
}

static void close_line(dense_line *l) {
    free(l->core);
    free(l->value);
    free(l->gradient);
    free(l->own);
    free(l->sum);
    free(l->margin);
}

/* --- boxes --- */

static void add_box(dense *w, int rank, const piece *const *chosen) {
    dense_box b = {.to = rank};
    int margins = 0;
    if (w->nboxes > 0 && w->boxes[w->nboxes - 1].to == rank) {
        const dense_box *last = &w->boxes[w->nboxes - 1];
        int64_t elements = 1;
        for (int k = 0; k < w->naxes; k++) {
            elements *= last->size[k];
        }
        b.packed = last->packed + elements;
    }
    for (int k = 0; k < w->naxes; k++) {
        margins += !chosen[k]->core;
        b.from = b.from * w->axes[k].ranks + chosen[k]->owner;
        b.size[k] = chosen[k]->count;
        b.here[k] = chosen[k]->here;
        b.there[k] = chosen[k]->there;
        b.part[k] = chosen[k]->part;
    }
    if (margins == 0 && rank == test_rank) {
        w->cores = realloc(w->cores, (w->ncores + 1) * sizeof *w->cores);
        w->cores[w->ncores++] = b;
    }
    if (margins == 0 || (margins > 1 && w->stencil == LIERNE_STENCIL_STAR)) {
        return;
    }
    w->boxes = realloc(w->boxes, (w->nboxes + 1) * sizeof *w->boxes);
    w->boxes[w->nboxes++] = b;
}

static void open_boxes(dense *w, int rank) {
    piece pieces[AXES][PIECES];
    int n[AXES], total = 1;
    for (int k = 0; k < w->naxes; k++) {
        n[k] = pieces_of(&w->axes[k], dense_coordinate(w, rank, k), pieces[k]);
        const piece *last = &pieces[k][n[k] - 1];
        w->shapes[rank][k] = last->here + last->count;
        w->parts[rank][k] = 0;
        for (int i = 0; i < n[k]; i++) {
            w->parts[rank][k] += pieces[k][i].core ? pieces[k][i].count : 0;
        }
        total *= n[k];
    }
    for (int i = 0; i < total; i++) {
        const piece *chosen[AXES];
        int left = i;
        for (int k = w->naxes - 1; k >= 0; k--) {
            chosen[k] = &pieces[k][left % n[k]];
            left /= n[k];
        }
        add_box(w, rank, chosen);
    }
}

int64_t dense_margins(const dense *w) {
    int64_t elements = 0;
    for (size_t i = 0; i < w->nboxes; i++) {
        int64_t n = w->boxes[i].from != w->boxes[i].to;
        for (int k = 0; k < w->naxes; k++) {
            n *= w->boxes[i].size[k];
        }
        elements += n;
    }
    return elements * (int64_t)w->element;
}

/* --- layouts and buffers --- */

static lierne_layout *open_layout(const dense *w, bool halo, lierne_halo_storage storage) {
    lierne_placement placements[AXES];
    lierne_dense_halo halos[AXES];
    const char *names[] = {"d", "c", "b", "a"};
    int64_t sizes[AXES], shape[AXES];
    int n = 0;
    for (int k = 0; k < w->naxes; k++) {
        const dense_axis *a = &w->axes[k];
        int dim = w->naxes - 1 - k;
        sizes[dim] = a->ranks;
        shape[k] = a->size;
        placements[dim] = (lierne_placement){.kind = a->zigzag ? LIERNE_PLACEMENT_SHARD_ZIGZAG
                                                               : LIERNE_PLACEMENT_SHARD,
                                             .axis = k};
        if (halo && a->lo + a->hi > 0) {
            halos[n++] = (lierne_dense_halo){.axis = k,
                                             .lo = a->lo,
                                             .hi = a->hi,
                                             .boundary = a->periodic ? LIERNE_BOUNDARY_PERIODIC
                                                                     : LIERNE_BOUNDARY_NONE};
        }
    }
    lierne_grid_spec grid_spec = {.size = sizeof grid_spec,
                                  .ndims = w->naxes,
                                  .names = names,
                                  .sizes = sizes,
                                  .world_size = test_world};
    lierne_layout_spec spec = {.size = sizeof spec,
                               .naxes = w->naxes,
                               .shape = shape,
                               .dtype = w->dtype,
                               .placements = placements,
                               .nhalos = n,
                               .halos = halos,
                               .stencil = halo ? w->stencil : LIERNE_STENCIL_BOX,
                               .halo_storage = storage};
    lierne_grid *grid;
    lierne_layout *layout;
    CHECK_OK(lierne_grid_create(&grid, &grid_spec));
    spec.grid = grid;
    CHECK_OK(lierne_layout_create(&layout, &spec));
    lierne_grid_destroy(grid);
    return layout;
}

static void open_buffers(dense *w) {
    char **const buffers[] = {&w->part, &w->padded, &w->place, &w->margins};
    const lierne_layout *const layouts[] = {w->plain, w->halo, w->halo, w->alone};
    for (int i = 0; i < 4; i++) {
        int64_t stored;
        void *memory;
        CHECK_OK(lierne_layout_get_elements(&stored, NULL, layouts[i], test_rank));
        w->bytes[i] = (size_t)stored * w->element;
        CHECK_OK(lierne_context_alloc(&memory, w->context, w->bytes[i]));
        memset(memory, 0, w->bytes[i]);
        *buffers[i] = memory;
    }
}

void dense_open(dense *w) {
    int64_t longest = 0;
    w->element = lierne_dtype_size(w->dtype);
    for (int r = 0; r < test_world; r++) {
        open_boxes(w, r);
    }
    for (int k = 0; k < w->naxes; k++) {
        open_line(w, k, &w->lines[k]);
        longest = w->lines[k].length > longest ? w->lines[k].length : longest;
    }
    w->count_up = zeros(longest, sizeof *w->count_up);
    for (int64_t i = 0; i < longest; i++) {
        w->count_up[i] = i;
    }
    w->plain = open_layout(w, false, LIERNE_HALO_STORAGE_PADDED);
    w->halo = open_layout(w, true, LIERNE_HALO_STORAGE_PADDED);
    w->alone = open_layout(w, true, LIERNE_HALO_STORAGE_MARGINS);
    CHECK_OK(lierne_layout_get_margins(NULL, 0, &w->nrims, w->alone, test_rank));
    w->rims = zeros((int64_t)w->nrims, sizeof *w->rims);
    CHECK_OK(lierne_layout_get_margins(w->rims, w->nrims, &w->nrims, w->alone, test_rank));
    setenv("LIERNE_TRANSPORTS", "shm,mpi", 1);
    CHECK_OK(lierne_context_create_mpi(&w->context, MPI_COMM_WORLD, NULL));
    open_buffers(w);
}

void dense_close(dense *w) {
    CHECK_OK(lierne_context_destroy_all(w->context));
    lierne_layout_destroy(w->plain);
    lierne_layout_destroy(w->halo);
    lierne_layout_destroy(w->alone);
    for (int k = 0; k < w->naxes; k++) {
        close_line(&w->lines[k]);
    }
    free(w->boxes);
    free(w->cores);
    free(w->rims);
    free(w->count_up);
}

const char *dense_text(const void *workload) {
    return ((const dense *)workload)->name;
}

void dense_rewrite(method *m, int direction) {
    const dense *w = m->workload;
    bool place = m->result[FORWARD] == w->place, margins = m->result[FORWARD] == w->margins;
    if (!m->dirty) {
        return;
    }
    if (place) {
        rewrite(w->place, w->bytes[2]);
    } else if (direction == FORWARD || margins) {
        rewrite(w->part, w->bytes[0]);
    }
    if (!place && direction == ADJOINT) {
        rewrite(margins ? w->margins : w->padded, w->bytes[margins ? 3 : 1]);
    }
}

/* --- contents --- */

typedef enum content { VALUES, CORES, GRADIENTS, SUMS, POISONED } content;

/* A dense row-major box, whose index i of axis k is position map[k][i] of the padded buffer. */
typedef struct region {
    char *base;
    int64_t size[AXES];
    const int64_t *map[AXES];
} region;

static void put(const dense *w, char *to, int32_t number) {
    float f = (float)number;
    double d = number;
    if (w->dtype == LIERNE_DTYPE_F64) {
        memcpy(to, &d, sizeof d);
    } else if (w->dtype == LIERNE_DTYPE_F32) {
        memcpy(to, &f, sizeof f);
    } else { /* the upper half of small integers is all of them */
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        uint16_t half = (uint16_t)(bits >> 16);
        memcpy(to, &half, sizeof half);
    }
}

/* The number at a position; *skip: nothing is compared there, since a star has it not. */
static int32_t number_at(const dense *w, content what, const int64_t *at, bool *skip) {
    int32_t value = 1, product = 1, own = 1, sum = 1;
    int margins = 0;
    for (int k = 0; k < w->naxes; k++) {
        const dense_line *l = &w->lines[k];
        bool star = w->stencil == LIERNE_STENCIL_STAR;
        margins += l->margin[at[k]];
        value += l->value[at[k]];
        product *= l->gradient[at[k]];
        sum = sum * l->own[at[k]] + (star ? own : sum) * l->sum[at[k]];
        own *= l->own[at[k]];
    }
    *skip = margins > 1 && w->stencil == LIERNE_STENCIL_STAR;
    return what == POISONED || (what == CORES && margins) ? POISON
           : what == VALUES || what == CORES              ? value
           : what == GRADIENTS                            ? product
                                                          : sum;
}

/* Fills a region, or compares it. */
static bool visit(const dense *w, const region *r, content what, bool compare) {
    int64_t i[AXES] = {0}, at[AXES], total = 1;
    bool right = true, skip;
    char *to = r->base, wanted[8];
    for (int k = 0; k < w->naxes; k++) {
        total *= r->size[k];
    }
    for (int64_t n = 0; n < total; n++, to += w->element) {
        for (int k = 0; k < w->naxes; k++) {
            at[k] = r->map[k][i[k]];
        }
        int32_t number = number_at(w, what, at, &skip);
        put(w, compare ? wanted : to, number);
        right = right && (!compare || skip || memcmp(to, wanted, w->element) == 0);
        for (int k = w->naxes - 1; k >= 0 && ++i[k] == r->size[k]; k--) {
            i[k] = 0;
        }
    }
    return right;
}

static region whole_of(const dense *w, char *base) {
    region r = {.base = base};
    for (int k = 0; k < w->naxes; k++) {
        r.size[k] = base == w->part ? w->lines[k].owned : w->lines[k].length;
        r.map[k] = base == w->part ? w->lines[k].core : w->count_up;
    }
    return r;
}

static bool visit_margins(const dense *w, content what, bool compare) {
    bool right = true;
    for (size_t i = 0; i < w->nrims; i++) {
        region r = {.base = w->margins + (size_t)w->rims[i].offset * w->element};
        for (int k = 0; k < w->naxes; k++) {
            lierne_halo_window windows[2] = {{0}};
            size_t n = 0, j = 0;
            if (w->axes[k].lo + w->axes[k].hi > 0) {
                CHECK_OK(lierne_layout_get_windows(windows, 2, &n, w->alone, test_rank, k));
            }
            while (j + 1 < n && w->rims[i].start[k] >= windows[j].start + windows[j].size) {
                j++;
            }
            r.size[k] = w->rims[i].size[k];
            r.map[k] = w->count_up + (w->rims[i].start[k] - windows[j].start + windows[j].local);
        }
        right = visit(w, &r, what, compare) && right;
    }
    return right;
}

static bool visit_buffer(const dense *w, char *base, content what, bool compare) {
    if (base == w->margins) {
        return visit_margins(w, what, compare);
    }
    region r = whole_of(w, base);
    return visit(w, &r, what, compare);
}

void dense_reset(const void *workload, int direction) {
    const dense *w = workload;
    bool forward = direction == FORWARD;
    visit_buffer(w, w->part, forward ? VALUES : GRADIENTS, false);
    visit_buffer(w, w->padded, forward ? POISONED : GRADIENTS, false);
    visit_buffer(w, w->place, forward ? CORES : GRADIENTS, false);
    visit_margins(w, forward ? POISONED : GRADIENTS, false);
}

/* Of a gradient in place, the cores. */
static bool right_in_place(const dense *w) {
    region r = whole_of(w, w->place);
    int64_t at[AXES] = {0}, i[AXES] = {0}, total = 1;
    bool right = true, skip;
    char wanted[8];
    for (int k = 0; k < w->naxes; k++) {
        total *= w->lines[k].owned;
    }
    for (int64_t n = 0; n < total; n++) {
        int64_t local = 0;
        for (int k = 0; k < w->naxes; k++) {
            at[k] = w->lines[k].core[i[k]];
            local = local * r.size[k] + at[k];
        }
        put(w, wanted, number_at(w, SUMS, at, &skip));
        right = right && memcmp(r.base + (size_t)local * w->element, wanted, w->element) == 0;
        for (int k = w->naxes - 1; k >= 0 && ++i[k] == w->lines[k].owned; k--) {
            i[k] = 0;
        }
    }
    return right;
}

bool dense_right(const method *m, int direction) {
    const dense *w = m->workload;
    char *result = m->result[direction] == w->place    ? w->place
                   : m->result[direction] == w->padded ? w->padded
                   : m->result[direction] == w->part   ? w->part
                                                       : w->margins;
    if (direction == ADJOINT && result == w->place) {
        return right_in_place(w);
    }
    return visit_buffer(w, result, direction == FORWARD ? VALUES : SUMS, true);
}
