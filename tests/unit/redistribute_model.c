/* The model of redistribute_case.h: which element stands where, its values, and calls of a plan
 * that are compared with both. */
#include "base/base.h"
#include "unit/redistribute_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Indices of an axis, ascending. */
typedef struct indices {
    int n;
    int at[CASE_SIZE];
} indices;

/* A rank's buffer: the element of the tensor at each place, -1 where there is none. */
typedef struct items {
    int64_t n;
    int partial; /* index of the contribution */
    int64_t *at;
} items;

static void keep(indices *list, int from, int to, indices *kept) {
    for (int i = from; i < to; i++) {
        kept->at[kept->n++] = list->at[i];
    }
}

static void cut(indices *list, const case_layout *l, int d, int coord) {
    const lierne_placement *p = &l->placements[d];
    int n = (int)l->sizes[d], total = list->n;
    indices kept = {0};
    if (p->kind == LIERNE_PLACEMENT_SHARD_ZIGZAG) {
        int chunk = total / (2 * n);
        if (n == 1) {
            return;
        }
        keep(list, coord * chunk, (coord + 1) * chunk, &kept);
        keep(list, (2 * n - 1 - coord) * chunk, (2 * n - coord) * chunk, &kept);
    } else {
        int from = 0, size = 0;
        for (int k = 0; k <= coord; k++) {
            from += size;
            size = p->counts ? (int)l->counts[d][k] : total / n + (k < total % n);
        }
        keep(list, from, from + size, &kept);
    }
    *list = kept;
}

/* Coordinates of a rank; whether it holds anything. */
static int find_rank(const case_layout *l, int rank, int *coords, int *partial) {
    int stride = 1, left = rank - l->offset;
    *partial = 0;
    if (left < 0) {
        return 0;
    }
    for (int d = 0; d < l->ndims; d++) {
        coords[d] = left % (int)l->sizes[d];
        left /= (int)l->sizes[d];
        if (l->placements[d].kind == LIERNE_PLACEMENT_PARTIAL) {
            *partial += coords[d] * stride;
            stride *= (int)l->sizes[d];
        }
        if (l->placements[d].kind == LIERNE_PLACEMENT_AT && coords[d] != l->placements[d].at) {
            return 0;
        }
    }
    return left == 0;
}

static int find_rows(const case_layout *l) {
    for (int d = 0; d < l->ndims; d++) {
        if (l->placements[d].kind == LIERNE_PLACEMENT_SHARD_ROWS) {
            return d;
        }
    }
    return -1;
}

/* What cuts leave of every axis; slower dims cut first. */
static void cut_axes(const redistribute_case *c, const case_layout *l, const int *coords,
                     indices *axes) {
    for (int a = 0; a < c->naxes; a++) {
        axes[a].n = (int)c->shape[a];
        for (int i = 0; i < axes[a].n; i++) {
            axes[a].at[i] = i;
        }
    }
    for (int d = l->ndims - 1; d >= 0; d--) {
        lierne_placement_kind kind = l->placements[d].kind;
        if (kind == LIERNE_PLACEMENT_SHARD || kind == LIERNE_PLACEMENT_SHARD_ZIGZAG) {
            cut(&axes[l->placements[d].axis], l, d, coords[d]);
        }
    }
}

static int owns_row(const redistribute_case *c, const case_layout *l, int d, int coord, int i,
                    int j) {
    return l->rows[i * (int)c->shape[l->placements[d].axis2] + j] == coord;
}

/* The place of a row among the rank's own rows; as many as there are for i, j past the end. */
static int64_t row_place(const redistribute_case *c, const case_layout *l, int d, int coord,
                         const indices *axes, int i, int j) {
    const lierne_placement *p = &l->placements[d];
    int64_t before = 0;
    for (int a = 0; a < axes[p->axis].n; a++) {
        for (int b = 0; b < axes[p->axis2].n; b++) {
            int x = axes[p->axis].at[a], y = axes[p->axis2].at[b];
            if (x > i || (x == i && y >= j)) {
                return before;
            }
            before += owns_row(c, l, d, coord, x, y);
        }
    }
    return before;
}

/* A rank's buffer while it is filled. */
typedef struct filling {
    const redistribute_case *c;
    const case_layout *l;
    int coords[CASE_DIMS];
    indices axes[LIERNE_MAX_AXES];
    int rows;    /* the dim of SHARD_ROWS, or -1 */
    int compact; /* its storage */
    int64_t shape[LIERNE_MAX_AXES];
} filling;

static int stores_all(const filling *f, int a) {
    int inner = f->rows >= 0 && f->l->placements[f->rows].axis2 == a;
    return (f->l->full_axes >> a & 1) && !inner;
}

static void set_shape(filling *f) {
    for (int a = 0; a < f->c->naxes; a++) {
        f->shape[a] = stores_all(f, a) ? f->c->shape[a] : f->axes[a].n;
    }
    if (f->compact) {
        const lierne_placement *p = &f->l->placements[f->rows];
        int first = p->axis < p->axis2 ? p->axis : p->axis2;
        f->shape[first] = row_place(f->c, f->l, f->rows, f->coords[f->rows], f->axes, CASE_SIZE, 0);
        f->shape[first + 1] = 1;
    }
}

/* Puts the element that is at places at[] of the cut axes where it belongs. */
static void put(const filling *f, items *into, const int *at) {
    int64_t element = 0, place = 0, local[LIERNE_MAX_AXES];
    const lierne_placement *p = f->rows < 0 ? NULL : &f->l->placements[f->rows];
    for (int a = 0; a < f->c->naxes; a++) {
        int index = f->axes[a].at[at[a]];
        element = element * f->c->shape[a] + index;
        local[a] = stores_all(f, a) ? index : at[a];
    }
    if (p) {
        int i = f->axes[p->axis].at[at[p->axis]], j = f->axes[p->axis2].at[at[p->axis2]];
        int first = p->axis < p->axis2 ? p->axis : p->axis2;
        if (!owns_row(f->c, f->l, f->rows, f->coords[f->rows], i, j)) {
            return;
        }
        if (f->compact) {
            local[first] = row_place(f->c, f->l, f->rows, f->coords[f->rows], f->axes, i, j);
            local[first + 1] = 0;
        }
    }
    for (int a = 0; a < f->c->naxes; a++) {
        place = place * f->shape[a] + local[a];
    }
    into->at[place] = element;
}

static items items_of(const redistribute_case *c, int which, int rank) {
    items result = {0};
    filling f = {.c = c, .l = &c->layouts[which]};
    int at[LIERNE_MAX_AXES] = {0}, a, some = 1;
    if (!find_rank(f.l, rank, f.coords, &result.partial)) {
        result.at = malloc(sizeof *result.at);
        return result;
    }
    f.rows = find_rows(f.l);
    f.compact = f.rows >= 0 && !(f.l->full_axes >> f.l->placements[f.rows].axis2 & 1);
    cut_axes(c, f.l, f.coords, f.axes);
    set_shape(&f);
    result.n = 1;
    for (a = 0; a < c->naxes; a++) {
        result.n *= f.shape[a];
        some = some && f.axes[a].n > 0;
    }
    result.at = malloc((size_t)result.n * sizeof *result.at + 1);
    for (int64_t i = 0; i < result.n; i++) {
        result.at[i] = -1;
    }
    while (some) {
        put(&f, &result, at);
        for (a = c->naxes - 1; a >= 0 && ++at[a] == f.axes[a].n; a--) {
            at[a] = 0;
        }
        some = a >= 0;
    }
    return result;
}

static int partials_of(const case_layout *l) {
    int n = 1;
    for (int d = 0; d < l->ndims; d++) {
        n *= l->placements[d].kind == LIERNE_PLACEMENT_PARTIAL ? (int)l->sizes[d] : 1;
    }
    return n;
}

static int source_of(const redistribute_case *c, lierne_direction d) {
    return d == LIERNE_DIRECTION_FORWARD ? CASE_SRC
           : c->stated_adjoint           ? CASE_ADJOINT_SRC
                                         : CASE_DST;
}

static int destination_of(const redistribute_case *c, lierne_direction d) {
    return d == LIERNE_DIRECTION_FORWARD ? CASE_DST
           : c->stated_adjoint           ? CASE_ADJOINT_DST
                                         : CASE_SRC;
}

static int64_t integer(int64_t element, int partial, lierne_direction d) {
    return (element * 7 + partial * 5 + (d ? 3 : 0)) % 23 - 11;
}

static float fraction(int64_t element, int partial, lierne_direction d) {
    uint64_t x = (uint64_t)(element * 64 + partial * 2 + d + 1) * 0x9e3779b97f4a7c15u;
    return (float)(int64_t)(x >> 20) * 1e-9F * (x & 1 ? 1.0F : -1e4F);
}

/* The contribution of a rank, or the sum of all of them. */
static void put_value(const redistribute_case *c, lierne_direction d, int64_t element, int partial,
                      void *out, int64_t at) {
    if (c->dtype == LIERNE_DTYPE_I64) {
        ((int64_t *)out)[at] = integer(element, partial, d);
    } else {
        ((float *)out)[at] = fraction(element, partial, d);
    }
}

static void put_sum(const redistribute_case *c, lierne_direction d, int64_t element, void *out) {
    int n = partials_of(&c->layouts[source_of(c, d)]);
    int64_t whole = integer(element, 0, d);
    float real = fraction(element, 0, d);
    for (int p = 1; p < n; p++) {
        whole += integer(element, p, d);
        real += fraction(element, p, d);
    }
    if (c->dtype == LIERNE_DTYPE_I64) {
        memcpy(out, &whole, sizeof whole);
    } else {
        memcpy(out, &real, sizeof real);
    }
}

void redistribute_fill(const redistribute_case *c, int rank, lierne_direction d, void *in) {
    items own = items_of(c, source_of(c, d), rank);
    for (int64_t i = 0; i < own.n; i++) {
        if (own.at[i] >= 0) {
            put_value(c, d, own.at[i], own.partial, in, i);
        }
    }
    free(own.at);
}

const char *redistribute_check(const redistribute_case *c, int rank, lierne_direction d,
                               const void *out) {
    static char wrong[200];
    size_t size = lierne_dtype_size(c->dtype);
    items own = items_of(c, destination_of(c, d), rank);
    int64_t bad = -1;
    for (int64_t i = 0; i < own.n && bad < 0; i++) {
        unsigned char expected[8];
        memset(expected, 0xa5, sizeof expected);
        if (own.at[i] >= 0) {
            put_sum(c, d, own.at[i], expected);
        }
        bad = memcmp(expected, (const char *)out + (size_t)i * size, size) ? i : -1;
    }
    if (bad >= 0) {
        snprintf(wrong, sizeof wrong, "direction %d, rank %d: place %lld (element %lld) is wrong",
                 (int)d, rank, (long long)bad, (long long)own.at[bad]);
    }
    free(own.at);
    return bad < 0 ? NULL : wrong;
}

void redistribute_copy_owned(const redistribute_case *c, int rank, lierne_direction d, void *out,
                             const void *from) {
    size_t size = lierne_dtype_size(c->dtype);
    items own = items_of(c, destination_of(c, d), rank);
    for (int64_t i = 0; i < own.n; i++) {
        if (own.at[i] >= 0) {
            memcpy((char *)out + (size_t)i * size, (const char *)from + (size_t)i * size, size);
        }
    }
    free(own.at);
}

/* Whether a lower rank holds the same contribution of an element. */
static int held_before(const redistribute_case *c, int which, int rank, int64_t element,
                       int partial) {
    int held = 0;
    for (int r = 0; r < rank && !held; r++) {
        items other = items_of(c, which, r);
        for (int64_t i = 0; i < other.n && other.partial == partial && !held; i++) {
            held = other.at[i] == element;
        }
        free(other.at);
    }
    return held;
}

int64_t redistribute_dot(const redistribute_case *c, int rank, lierne_direction d,
                         const void *out) {
    lierne_direction other = d ? LIERNE_DIRECTION_FORWARD : LIERNE_DIRECTION_ADJOINT;
    int which = destination_of(c, d);
    items own = items_of(c, which, rank);
    int64_t sum = 0;
    for (int64_t i = 0; i < own.n; i++) {
        if (own.at[i] >= 0 && !held_before(c, which, rank, own.at[i], own.partial)) {
            sum += ((const int64_t *)out)[i] * integer(own.at[i], own.partial, other);
        }
    }
    free(own.at);
    return sum;
}

/* The output of a plan that owns it, for the places that an element belongs to. */
static lierne_status take_shared(const redistribute_case *c, const lierne_plan *plan, int rank,
                                 lierne_direction d, void *out) {
    const void *result = NULL;
    LIERNE_TRY(lierne_plan_get_shared_output(&result, plan, d));
    if (result) {
        redistribute_copy_owned(c, rank, d, out, result);
    }
    return LIERNE_OK;
}

static lierne_status execute(const redistribute_case *c, lierne_plan *plan, lierne_direction d,
                             bool blocking, void *out, const void *in) {
    lierne_request *request;
    void *to = c->sharing >> d & 1 ? NULL : out;
    if (blocking) {
        return (d ? lierne_plan_adjoint : lierne_plan_forward)(plan, to, in, NULL);
    }
    LIERNE_TRY(
        (d ? lierne_plan_adjoint_begin : lierne_plan_forward_begin)(&request, plan, to, in, NULL));
    return lierne_request_end(request);
}

const char *redistribute_run(const redistribute_case *c, lierne_plan *plan, int rank,
                             lierne_direction d, int64_t *dot) {
    int64_t n_in = 0, n_out = 0;
    const char *wrong = NULL;
    lierne_plan_get_elements(&n_in, &n_out, plan, d);
    size_t size = lierne_dtype_size(c->dtype), in_bytes = (size_t)n_in * size;
    size_t out_bytes = (size_t)n_out * size;
    char *in = malloc(in_bytes + 1), *out = malloc(out_bytes + 1), *kept = malloc(in_bytes + 1);
    memset(in, 0x7b, in_bytes);
    redistribute_fill(c, rank, d, in);
    memcpy(kept, in, in_bytes);
    for (int round = 0; round < 3 && !wrong; round++) {
        memset(out, 0xa5, out_bytes);
        lierne_status status = execute(c, plan, d, round % 2 == 0, out, in);
        if (status == LIERNE_OK && c->sharing >> d & 1) {
            status = take_shared(c, plan, rank, d, out);
        }
        wrong = status == LIERNE_OK ? redistribute_check(c, rank, d, out) : lierne_last_error();
    }
    wrong = !wrong && memcmp(in, kept, in_bytes) ? "the input was changed" : wrong;
    if (dot) {
        *dot = !wrong && c->dtype == LIERNE_DTYPE_I64 ? redistribute_dot(c, rank, d, out) : 0;
    }
    free(in), free(out), free(kept);
    return wrong;
}
