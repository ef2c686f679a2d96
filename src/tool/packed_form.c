/* What the buffers of a packed bridge must hold. Rows that it does not read are poisoned, rows that
 * it does not write must stay as they were. */
#include "form.h"

#include <stdlib.h>

static int side_of(form_tensor tensor) {
    return tensor == FORM_OUTPUT || tensor == FORM_GRADIENT;
}

bool form_is_exact_packed(const tool_packed *packed) {
    return packed->most_uses * packed->ncontributions <= FORM_MOST_CONTRIBUTIONS;
}

bool form_open_packed(form *f, const tool_packed *packed, form_tensor tensor, int rank) {
    packed_rows rows;
    int axis = packed_axis(packed), side = side_of(tensor);
    *f = (form){.packed = packed,
                .dtype = packed->specs[0].dtype,
                .tensor = tensor,
                .owned = true,
                .same_rows = true};
    f->global[2] = calloc(1, sizeof *f->global[2]);
    if (!f->global[2] || !packed_rows_of(&rows, packed, side, rank)) {
        free(f->global[2]);
        f->global[2] = NULL; /* whoever opened it closes it, all the same */
        return false;
    }
    f->axes = (place_axes){.batch = axis, .sequence = -1};
    f->axes.size[axis] = packed_tokens(packed, side);
    f->axes.size[!axis] = packed_hidden(packed);
    f->axes.size[2] = f->shape[2] = 1;
    f->shape[axis] = rows.nrows;
    f->shape[!axis] = rows.ncolumns;
    f->global[axis] = rows.ids;
    f->global[!axis] = rows.columns;
    f->cp = rows.contribution;
    f->counts = rows.first;
    f->elements = rows.nrows * rows.ncolumns;
    return true;
}

bool form_owns_packed(const form *f, int64_t id) {
    const tool_packed *p = f->packed;
    return id != PACKED_PADDING &&
           (side_of(f->tensor)         ? p->rows[id] >= 0
            : f->tensor == FORM_RESULT ? true
                                       : p->first_use[id + 1] > p->first_use[id]);
}

bool cursor_may_be_zero(const cursor *c) {
    const form *f = c->form;
    bool padding = f->packed && f->global[f->axes.batch][c->at[f->axes.batch]] == PACKED_PADDING;
    return padding && (f->tensor == FORM_RESULT || (f->tensor == FORM_OUTPUT && f->packed->move));
}

int form_value_packed(const form *f, const int64_t *global, form_mixed mixed) {
    const tool_packed *p = f->packed;
    int axis = f->axes.batch, sum = 0;
    int64_t id = global[axis], column = global[!axis], hidden = f->axes.size[!axis];
    int most = FORM_MOST_CONTRIBUTIONS / (int)(p->most_uses * p->ncontributions);
    if (f->tensor == FORM_INPUT || f->tensor == FORM_OUTPUT) {
        int64_t row = f->tensor == FORM_OUTPUT ? p->rows[id] : id;
        return mixed(f, (uint64_t)(row * hidden + column), -1, 0);
    }
    if (f->tensor == FORM_GRADIENT) {
        return mixed(f, (uint64_t)(id * hidden + column), f->cp, most);
    }
    for (int64_t i = p->first_use[id]; i < p->first_use[id + 1]; i++) {
        for (int c = 0; c < p->ncontributions; c++) {
            sum += mixed(f, (uint64_t)(p->used_by[i] * hidden + column), c, most);
        }
    }
    return sum;
}
