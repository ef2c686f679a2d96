/* Sums in place that do not wait for the phase's sends.
 *
 * Where in and out are one buffer, sums may write to what is being sent, so they wait until the
 * peers have read it. But sums that only clear, as the adjoint of a halo does with its margins,
 * come last, and the others before them often write elsewhere: the cores. Those run as soon as
 * their contributions are there. Peers then wait for no send of theirs before they read what this
 * rank sent, so both may sum what the other one exposes in place of copying it first. */
#include "runtime/execute/execution.h"

/* Adds the strides of a block to those of the axes, which descend. */
static int add_strides(int64_t *strides, int n, const lierne_block *b) {
    for (int d = 0; d < b->ndims; d++) {
        int i = n;
        while (i > 0 && strides[i - 1] < b->stride[d]) {
            i--;
        }
        if (b->count[d] == 1 || (i > 0 && strides[i - 1] == b->stride[d])) {
            continue;
        }
        for (int k = n++; k > i; k--) {
            strides[k] = strides[k - 1];
        }
        strides[i] = b->stride[d];
    }
    return n;
}

/* The indices of a block on axes with these strides; false if it is no box there. */
static bool find_box(const lierne_block *b, const int64_t *strides, int n, lierne_range *box) {
    int64_t left = b->offset;
    for (int i = 0; i < n; i++) {
        box[i].first = left / strides[i];
        box[i].end = box[i].first + 1;
        left %= strides[i];
        for (int d = 0; d < b->ndims; d++) {
            box[i].end += b->stride[d] == strides[i] ? b->count[d] - 1 : 0;
        }
    }
    for (int i = n - 1; i > 0; i--) { /* whole rows may be one loop */
        int64_t size = strides[i - 1] / strides[i];
        bool rows =
            box[i].first == 0 && box[i].end % size == 0 && box[i - 1].end == box[i - 1].first + 1;
        if (strides[i - 1] % strides[i] != 0 || (box[i].end > size && !rows)) {
            return false;
        }
        if (box[i].end > size) {
            box[i - 1].end = box[i - 1].first + box[i].end / size;
            box[i].end = size;
        }
    }
    return true;
}

bool lierne_blocks_apart(const lierne_block *a, const lierne_block *b) {
    lierne_range x = {0, 0}, y = {0, 0}, box[2][2 * LIERNE_MAX_AXES + 1];
    int64_t strides[2 * LIERNE_MAX_AXES + 1] = {1};
    if (a->rows || b->rows) {
        return false;
    }
    lierne_range_extend(&x, a);
    lierne_range_extend(&y, b);
    if (x.end <= y.first || y.end <= x.first) {
        return true;
    }
    int n = add_strides(strides, add_strides(strides, 1, a), b);
    if (strides[n - 1] < 1 || /* of a broken route, which is checked later */
        !find_box(a, strides, n, box[0]) || !find_box(b, strides, n, box[1])) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (box[0][i].end <= box[1][i].first || box[1][i].end <= box[0][i].first) {
            return true;
        }
    }
    return false;
}

/* Whether a sum writes to nothing that a stage sends, where in and out are one buffer. */
static bool spares_sends(const lierne_stage *stage, const lierne_op *op) {
    for (size_t i = 0; op->to.buffer == LIERNE_BUFFER_OUT && i < stage->sends.count; i++) {
        const lierne_message *m = &stage->sends.at[i];
        for (size_t b = 0; m->buffer == LIERNE_BUFFER_IN && b < m->blocks.count; b++) {
            if (!lierne_blocks_apart(&op->to.block, &m->blocks.at[b])) {
                return false;
            }
        }
    }
    return true;
}

/* How many sums of a stage there are before those that clear; 0 if one of them writes to what is
 * sent. */
static size_t count_early(const lierne_stage *stage) {
    size_t n = stage->sums.count;
    while (n > 0 && stage->sums.at[n - 1].from.count == 0) {
        n--;
    }
    for (size_t o = 0; o < n; o++) {
        if (!spares_sends(stage, &stage->sums.at[o])) {
            return 0;
        }
    }
    return n;
}

void lierne_early_sums_find(lierne_execution *e) {
    for (size_t p = 0; p < e->nsubroutes && !e->varying; p++) {
        const lierne_route *route = e->subroutes[p].route;
        bool same = route->elements[LIERNE_BUFFER_IN] == route->elements[LIERNE_BUFFER_OUT];
        for (size_t i = 0; i < route->stages.count; i++) {
            e->early[i * e->nsubroutes + p] = same ? count_early(&route->stages.at[i]) : 0;
        }
    }
}

size_t lierne_early_sums_count(const lierne_execution *e, size_t p) {
    const lierne_subroute *s = &e->subroutes[p];
    bool in_place = s->in == s->base[LIERNE_BUFFER_OUT] && !lierne_execution_launches(e);
    return in_place ? e->early[e->cursor.phase * e->nsubroutes + p]
                    : s->route->stages.at[e->cursor.phase].sums.count;
}
