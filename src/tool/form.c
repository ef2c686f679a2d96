/* The values, and the buffers as lists of global indices per axis. place.h has which part of an
 * axis a rank holds. */
#include "form.h"
#include "element.h"

#include <stdlib.h>
#include <string.h>

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
    return dtype != LIERNE_DTYPE_U8 && (random >> 40 & 1) ? -magnitude : magnitude;
}

/* Sum of the first c contributions: 0, an odd number, an even one, an odd one, ... of magnitude 63
 * at most. So no contribution is zero, and no partial sum exceeds i8, however many there are. */
static int prefix(uint64_t index, int c) {
    if (c == 0) {
        return 0;
    }
    uint64_t random = mix(index, SALT_GRADIENT + (unsigned)c);
    int magnitude = c & 1 ? 1 + 2 * (int)(random % 32) : 2 + 2 * (int)(random % 31);
    return random >> 40 & 1 ? -magnitude : magnitude;
}

static int contribution(const form *f, uint64_t index, int c) {
    if (f->dtype == LIERNE_DTYPE_U8) {
        unsigned most = f->ncp < FORM_NOTHING ? (FORM_NOTHING - 1u) / (unsigned)f->ncp : 1;
        return 1 + (int)(mix(index, SALT_GRADIENT + (unsigned)c) % most);
    }
    return prefix(index, c + 1) - prefix(index, c);
}

static int total(const form *f, uint64_t index) {
    if (f->spec->gradient_owner != LIERNE_GRADIENT_OWNER_PARTIAL) {
        return contribution(f, index, 0);
    }
    int sum = 0;
    for (int c = 0; c < f->ncp; c++) {
        sum += contribution(f, index, c);
    }
    return sum;
}

static int value_of(const form *f, uint64_t index) {
    switch (f->tensor) {
    case FORM_GRADIENT:
        return contribution(f, index,
                            f->spec->gradient_owner == LIERNE_GRADIENT_OWNER_PARTIAL ? f->cp : 0);
    case FORM_RESULT:
        return total(f, index);
    case FORM_INPUT:
    case FORM_OUTPUT:
    default:
        return input_value(f->dtype, index);
    }
}

/* --- forms -------------------------------------------------------------------------------- */

static bool owns_row(const form *f, int64_t b, int64_t s) {
    const lierne_bridge_spec *spec = f->spec;
    return spec->gradient_owner != LIERNE_GRADIENT_OWNER_ROWS ||
           spec->row_owner[b * f->axes.size[f->axes.sequence] + s] == f->cp;
}

/* Global indices of an axis that the rank's buffer has. The list is made of the whole axis and then
 * cut: lists of all ranks must not take memory for the world each. */
static bool index_axis(form *f, const place *p, int axis, bool whole) {
    int64_t size = f->axes.size[axis];
    int64_t *list = malloc((size_t)(size + 1) * sizeof *list);
    if (!list) {
        return false;
    }
    for (int64_t i = 0; i < size; i++) {
        list[i] = i;
    }
    f->shape[axis] = whole && p->holds ? size : place_keep(p, axis, list, size);
    int64_t *cut = realloc(list, (size_t)(f->shape[axis] + 1) * sizeof *list);
    f->global[axis] = cut ? cut : list;
    return true;
}

/* Of a sequence that is stored in full, marks the rank's own part. */
static bool mark_own(form *f, const place *p) {
    int axis = f->axes.sequence;
    int64_t size = f->axes.size[axis];
    f->own = calloc((size_t)(size + 1), sizeof *f->own);
    if (!f->own || !index_axis(f, p, axis, false)) {
        return false;
    }
    for (int64_t i = 0; i < f->shape[axis]; i++) {
        f->own[f->global[axis][i]] = true;
    }
    free(f->global[axis]);
    return index_axis(f, p, axis, true);
}

/* Turns batch and sequence into one list of the rows that this cp rank owns, sample by sample. */
static bool compact_rows(form *f) {
    int batch = f->axes.batch;
    int sequence = f->axes.sequence;
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
        kept += owns_row(f, b[kept], s[kept]);
    }
    free(f->global[batch]);
    free(f->global[sequence]);
    f->global[batch] = b;
    f->global[sequence] = s;
    f->shape[batch] = kept;
    f->shape[sequence] = n > 0;
    f->rows = true;
    return true;
}

void form_close(form *f) {
    for (int axis = 0; axis < FORM_AXES; axis++) {
        free(f->global[axis]);
        f->global[axis] = NULL;
    }
    free(f->own);
    f->own = NULL;
}

/* Full storage of chunks is the whole sequence. Full storage with owner rows, which cuts no axis,
 * is what the other dims leave. */
static bool index_axes(form *f, const place *p) {
    bool full = f->owned && f->spec->gradient_storage == LIERNE_STORAGE_FULL;
    bool rows = f->owned && f->spec->gradient_owner == LIERNE_GRADIENT_OWNER_ROWS;
    for (int axis = 0; axis < FORM_AXES; axis++) {
        bool whole = full && !rows && axis == f->axes.sequence;
        if (!(whole ? mark_own(f, p) : index_axis(f, p, axis, false))) {
            return false;
        }
    }
    return full || !rows || compact_rows(f);
}

bool form_open(form *f, const lierne_bridge_spec *spec, form_tensor tensor, int rank) {
    place_side side =
        tensor == FORM_INPUT || tensor == FORM_RESULT ? PLACE_SOURCE : PLACE_DESTINATION;
    bool own = spec->gradient_owner != LIERNE_GRADIENT_OWNER_PARTIAL &&
               (tensor == FORM_GRADIENT ||
                (tensor == FORM_OUTPUT && spec->output == LIERNE_BRIDGE_OUTPUT_SHARDED));
    place p = place_of(spec, side, own, rank);
    place dst = place_of(spec, PLACE_DESTINATION, own, rank);
    *f = (form){.spec = spec, .dtype = spec->dtype, .tensor = tensor, .axes = place_axes_of(spec)};
    f->same_rows = spec->output == LIERNE_BRIDGE_OUTPUT_SHARDED;
    f->cp = dst.cp;
    f->ncp = dst.ncp;
    f->counts = p.first;
    f->owned = own && dst.has_cp;
    if (!index_axes(f, &p)) {
        form_close(f);
        return false;
    }
    f->elements = f->shape[0] * f->shape[1] * f->shape[2];
    return true;
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
        int by = f->rows && axis == f->axes.sequence ? f->axes.batch : axis;
        global[axis] = f->global[axis][c->at[by]];
    }
}

bool form_owns(const form *f, const int64_t *global) {
    if (f->packed) {
        return form_owns_packed(f, global[f->axes.batch]);
    }
    return !f->owned || ((!f->own || f->own[global[f->axes.sequence]]) &&
                         owns_row(f, global[f->axes.batch], global[f->axes.sequence]));
}

bool cursor_owns(const cursor *c) {
    int64_t global[FORM_AXES];
    cursor_global(c, global);
    return form_owns(c->form, global);
}

static int packed_number(const form *f, uint64_t index, int c, int most) {
    return c < 0 ? input_value(f->dtype, index)
                 : 1 + (int)(mix(index, SALT_GRADIENT + (unsigned)c) % (uint64_t)most);
}

void cursor_expected(const cursor *c, char *element) {
    const form *f = c->form;
    int64_t global[FORM_AXES];
    cursor_global(c, global);
    if (!form_owns(f, global)) {
        memset(element, FORM_NOTHING, FORM_ELEMENT);
        return;
    }
    if (f->packed) {
        element_store(f->dtype, form_value_packed(f, global, packed_number), element);
        return;
    }
    int64_t index = 0;
    for (int axis = 0; axis < FORM_AXES; axis++) {
        index = index * f->axes.size[axis] + global[axis];
    }
    element_store(f->dtype, value_of(f, (uint64_t)index), element);
}

bool form_is_exact(const lierne_bridge_spec *spec) {
    return spec->dtype != LIERNE_DTYPE_U8 ||
           spec->gradient_owner != LIERNE_GRADIENT_OWNER_PARTIAL ||
           lierne_grid_find_dim_size(spec->dst, spec->dst_view, "cp") < FORM_NOTHING;
}
