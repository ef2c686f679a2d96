/* Windows cut the elements of an axis where the number of their places changes, although what is
 * moved often goes on there: the part beside its own images, or the margins of two axes. */
#include "plan/redistribute/merge.h"

#include <stdlib.h>

static int compare_numbers(int64_t a, int64_t b) {
    return (a > b) - (a < b);
}

/* Where a patch would begin if its box began at element 0 of an axis. */
static int64_t base_of(const lierne_move *m) {
    return m->to.offset - m->box.start[m->axis] * m->to.stride[m->axis];
}

/* Moves that may continue each other along their axis next to each other, in the order of elements.
 */
static int compare_lines(const void *a, const void *b) {
    const lierne_move *x = a, *y = b;
    int order = compare_numbers((int64_t)x->box.index_a, (int64_t)y->box.index_a);
    for (int k = 0; order == 0 && k < LIERNE_MAX_AXES; k++) {
        order = k == x->axis ? 0 : compare_numbers(x->box.start[k], y->box.start[k]);
    }
    order = order ? order : compare_numbers(base_of(x), base_of(y));
    return order ? order : compare_numbers(x->box.start[x->axis], y->box.start[y->axis]);
}

static int compare_elements(const void *a, const void *b) {
    const lierne_move *x = a, *y = b;
    int order = compare_numbers((int64_t)x->box.index_a, (int64_t)y->box.index_a);
    for (int k = 0; order == 0 && k < LIERNE_MAX_AXES; k++) {
        order = compare_numbers(x->box.start[k], y->box.start[k]);
    }
    return order ? order : compare_numbers(x->to.offset, y->to.offset);
}

/* Whether a patch goes on in the next one, `size` elements further along an axis. */
static bool goes_on(const lierne_patch *a, const lierne_patch *b, int naxes, int axis,
                    int64_t size) {
    bool same = b->offset == a->offset + size * a->stride[axis];
    for (int k = 0; k < naxes; k++) {
        same = same && a->stride[k] == b->stride[k];
    }
    return same;
}

static bool continues(const lierne_move *a, const lierne_move *b, int naxes) {
    int axis = a->axis;
    int64_t size = a->box.size[axis];
    bool same = a->box.index_a == b->box.index_a;
    for (int k = 0; k < naxes; k++) {
        int64_t start = a->box.start[k] + (k == axis ? size : 0);
        same = same && b->box.start[k] == start && (k == axis || a->box.size[k] == b->box.size[k]);
    }
    return same && goes_on(&a->to, &b->to, naxes, axis, size) &&
           goes_on(&a->from, &b->from, naxes, axis, size);
}

static void merge_along(lierne_moves *moves, int naxes, int axis) {
    size_t kept = 1;
    for (size_t i = 0; i < moves->count; i++) {
        moves->at[i].axis = axis;
    }
    qsort(moves->at, moves->count, sizeof *moves->at, compare_lines);
    for (size_t i = 1; i < moves->count; i++) {
        lierne_move *last = &moves->at[kept - 1];
        const lierne_move *next = &moves->at[i];
        if (continues(last, next, naxes)) {
            last->box.size[axis] += next->box.size[axis];
            last->to.size[axis] += next->to.size[axis];
            last->from.size[axis] += next->from.size[axis];
        } else {
            moves->at[kept++] = *next;
        }
    }
    moves->count = kept;
}

void lierne_moves_merge(lierne_moves *moves, int naxes) {
    for (int axis = naxes - 1; axis >= 0 && moves->count > 1; axis--) {
        merge_along(moves, naxes, axis);
    }
    if (moves->count > 1) {
        qsort(moves->at, moves->count, sizeof *moves->at, compare_elements);
    }
}
