/* Coordinates are taken apart digit by digit and shares are counted here once more, on purpose:
 * nothing is asked of the library but names and sizes of dims. Owners are found by asking of each
 * row whose it is, which needs no chunk arithmetic that could be wrong in the same way twice. */
#include "form.h"
#include "element.h"

#include <stdlib.h>
#include <string.h>

#define GARBAGE 0x7f /* no element of the closed form is made of this byte */

enum { SALT_INPUT = 1, SALT_GRADIENT = 2 };

/* --- values ------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t index, unsigned salt) {
    uint64_t z = index * 0x9e3779b97f4a7c15u + salt * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 32) * 0x94d049bb133111ebu;
    return z ^ z >> 29;
}

static int input_value(lierne_dtype dtype, uint64_t index) {
    uint64_t random = mix(index, SALT_INPUT);
    int magnitude = 1 + (int)(random % 63);
    return dtype != LIERNE_U8 && (random >> 40 & 1) ? -magnitude : magnitude;
}

/* Sum of the first c summands: 0, an odd number, an even one, an odd one, ... of magnitude 63 at
 * most. So no summand is zero, and no partial sum leaves the range of i8, however many there are.
 */
static int prefix(uint64_t index, int c) {
    if (c == 0) {
        return 0;
    }
    uint64_t random = mix(index, SALT_GRADIENT + (unsigned)c);
    int magnitude = c & 1 ? 1 + 2 * (int)(random % 32) : 2 + 2 * (int)(random % 31);
    return random >> 40 & 1 ? -magnitude : magnitude;
}

static int summand(const form *f, uint64_t index, int c) {
    if (f->spec->dtype == LIERNE_U8) {
        unsigned most = f->ncp < 127 ? 127u / (unsigned)f->ncp : 1;
        return 1 + (int)(mix(index, SALT_GRADIENT + (unsigned)c) % most);
    }
    return prefix(index, c + 1) - prefix(index, c);
}

static int total(const form *f, uint64_t index) {
    if (f->spec->gradient_owner != LIERNE_GRADIENT_PARTIAL) {
        return summand(f, index, 0);
    }
    int sum = 0;
    for (int c = 0; c < f->ncp; c++) {
        sum += summand(f, index, c);
    }
    return sum;
}

static int value_of(const form *f, uint64_t index) {
    switch (f->tensor) {
    case FORM_GRADIENT:
        return summand(f, index, f->spec->gradient_owner == LIERNE_GRADIENT_PARTIAL ? f->cp : 0);
    case FORM_RESULT:
        return total(f, index);
    case FORM_INPUT:
    case FORM_OUTPUT:
    default:
        return input_value(f->spec->dtype, index);
    }
}

/* --- places ------------------------------------------------------------------------------- */

/* A rank on a grid: coordinate and size of the dims that matter, and whether it is the first of its
 * replicas, at coordinate 0 of all others. */
typedef struct place {
    bool inside;
    bool first;
    int dp, ndp;
    int cp, ncp;
    int pp, npp;
} place;

static void place_digit(place *p, const char *name, int digit, int size) {
    if (strcmp(name, "dp") == 0) {
        p->dp = digit;
        p->ndp = size;
    } else if (strcmp(name, "cp") == 0) {
        p->cp = digit;
        p->ncp = size;
    } else if (strcmp(name, "pp") == 0) {
        p->pp = digit;
        p->npp = size;
    } else if (digit > 0) {
        p->first = false;
    }
}

static place place_of(const lierne_grid *grid, int rank) {
    place p = {.first = true, .ndp = 1, .ncp = 1, .npp = 1};
    int rest = rank - lierne_grid_offset(grid);
    p.inside = rest >= 0 && rest < lierne_grid_size(grid);
    for (int d = 0; d < lierne_grid_ndims(grid, NULL); d++) {
        int size = lierne_grid_dim_size(grid, NULL, d);
        place_digit(&p, lierne_grid_dim_name(grid, NULL, d), p.inside ? rest % size : 0, size);
        rest /= size;
    }
    return p;
}

static void share(int64_t size, int n, int i, const int64_t *counts, int64_t *start,
                  int64_t *length) {
    *start = 0;
    for (int before = 0; before <= i; before++) {
        *length = counts ? counts[before] : size / n + (before < size % n ? 1 : 0);
        *start += before < i ? *length : 0;
    }
}

/* The cp coordinate that owns a row. */
static int owner(const form *f, int64_t b, int64_t s) {
    const lierne_bridge_spec *spec = f->spec;
    int n = f->ncp;
    int64_t length = spec->shape[spec->sequence_axis];
    if (spec->gradient_owner == LIERNE_GRADIENT_ROWS) {
        return spec->row_owner[b * length + s];
    }
    if (spec->gradient_owner == LIERNE_GRADIENT_ZIGZAG) {
        int64_t chunk = s / (length / (2 * n));
        return (int)(chunk < n ? chunk : 2 * n - 1 - chunk);
    }
    int64_t larger = length % n;
    int64_t small = length / n;
    int64_t boundary = larger * (small + 1);
    return (int)(s < boundary ? s / (small + 1) : larger + (s - boundary) / small);
}

static bool is_owned_tensor(const form *f) {
    return f->tensor == FORM_GRADIENT && f->ncp > 1 &&
           f->spec->gradient_owner != LIERNE_GRADIENT_PARTIAL;
}

/* --- forms -------------------------------------------------------------------------------- */

static bool index_axis(form *f, int axis, int64_t start, int64_t length) {
    int64_t *at = malloc((size_t)(length ? length : 1) * sizeof *at);
    if (!at) {
        return false;
    }
    for (int64_t i = 0; i < length; i++) {
        at[i] = start + i;
    }
    f->global[axis] = at;
    f->shape[axis] = length;
    return true;
}

/* Keeps what this cp rank owns of a sequence whose owner is the same for all samples. */
static void compact_sequence(form *f) {
    int axis = f->spec->sequence_axis;
    int64_t *at = f->global[axis];
    int64_t kept = 0;
    for (int64_t i = 0; i < f->shape[axis]; i++) {
        if (owner(f, 0, at[i]) == f->cp) {
            at[kept++] = at[i];
        }
    }
    f->shape[axis] = kept;
}

/* Turns batch and sequence into one list of the rows that this cp rank owns, sample by sample. */
static bool compact_rows(form *f) {
    int batch = f->spec->batch_axis;
    int sequence = f->spec->sequence_axis;
    int64_t n = f->shape[sequence];
    int64_t most = f->shape[batch] * n;
    int64_t *b = malloc((size_t)(most + 1) * sizeof *b);
    int64_t *s = malloc((size_t)(most + 1) * sizeof *s);
    if (!b || !s) {
        free(b);
        free(s);
        return false;
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < most; i++) {
        b[kept] = f->global[batch][i / n];
        s[kept] = f->global[sequence][i % n];
        kept += owner(f, b[kept], s[kept]) == f->cp;
    }
    free(f->global[batch]);
    free(f->global[sequence]);
    f->global[batch] = b;
    f->global[sequence] = s;
    f->shape[batch] = kept;
    f->shape[sequence] = 1;
    f->rows = true;
    return true;
}

void form_close(form *f) {
    for (int axis = 0; axis < FORM_AXES; axis++) {
        free(f->global[axis]);
        f->global[axis] = NULL;
    }
}

/* Global indices of all axes: the rank's lane of the batch, the rest whole. */
static bool index_lane(form *f, const place *p, bool source) {
    const lierne_bridge_spec *spec = f->spec;
    bool held = p->inside && p->pp == (source ? p->npp - 1 : 0);
    for (int axis = 0; axis < FORM_AXES; axis++) {
        int64_t start = 0;
        int64_t length = axis < spec->naxes ? spec->shape[axis] : 1;
        if (axis == spec->batch_axis) {
            share(length, p->ndp, p->dp, source ? spec->src_counts : spec->dst_counts, &start,
                  &length);
        }
        if (!index_axis(f, axis, start, held ? length : 0)) {
            return false;
        }
    }
    return true;
}

bool form_open(form *f, const lierne_bridge_spec *spec, form_tensor tensor, int rank) {
    bool source = tensor == FORM_INPUT || tensor == FORM_RESULT;
    place dst = place_of(spec->dst, rank);
    place src = place_of(spec->src, rank);
    *f = (form){.spec = spec, .tensor = tensor};
    f->cp = dst.cp;
    f->ncp = dst.ncp;
    f->counts = source ? src.first && src.cp == 0 : dst.first;
    bool ok = index_lane(f, source ? &src : &dst, source);
    if (ok && is_owned_tensor(f) && spec->gradient_storage == LIERNE_COMPACT) {
        if (spec->gradient_owner == LIERNE_GRADIENT_ROWS) {
            ok = compact_rows(f);
        } else {
            compact_sequence(f);
        }
    }
    f->elements = f->shape[0] * f->shape[1] * f->shape[2];
    if (!ok) {
        form_close(f);
    }
    return ok;
}

/* --- elements ----------------------------------------------------------------------------- */

void cursor_next(cursor *c) {
    for (int axis = FORM_AXES - 1; axis >= 0; axis--) {
        if (++c->at[axis] < c->form->shape[axis]) {
            return;
        }
        c->at[axis] = 0;
    }
}

void cursor_global(const cursor *c, int64_t *global) {
    const form *f = c->form;
    for (int axis = 0; axis < FORM_AXES; axis++) {
        int by = f->rows && axis == f->spec->sequence_axis ? f->spec->batch_axis : axis;
        global[axis] = f->global[axis][c->at[by]];
    }
}

bool form_owns(const form *f, const int64_t *global) {
    return !is_owned_tensor(f) ||
           owner(f, global[f->spec->batch_axis], global[f->spec->sequence_axis]) == f->cp;
}

void cursor_expected(const cursor *c, char *element) {
    const form *f = c->form;
    const lierne_bridge_spec *spec = f->spec;
    int64_t global[FORM_AXES];
    cursor_global(c, global);
    if (!form_owns(f, global)) {
        memset(element, GARBAGE, FORM_ELEMENT);
        return;
    }
    int64_t index = 0;
    for (int axis = 0; axis < spec->naxes; axis++) {
        index = index * spec->shape[axis] + global[axis];
    }
    element_store(spec->dtype, value_of(f, (uint64_t)index), element);
}

bool form_is_exact(const lierne_bridge_spec *spec) {
    return spec->dtype != LIERNE_U8 || spec->gradient_owner != LIERNE_GRADIENT_PARTIAL ||
           lierne_grid_dim_find(spec->dst, NULL, "cp") <= 127;
}
