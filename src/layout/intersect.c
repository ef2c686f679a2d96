/* Where the boxes of two cells overlap. */
#include "layout/layout.h"

static bool intersect(int naxes, const lierne_box *a, const lierne_box *b, lierne_overlap *out) {
    for (int x = 0; x < naxes; x++) {
        int64_t a_end = a->start[x] + a->size[x], b_end = b->start[x] + b->size[x];
        int64_t start = a->start[x] > b->start[x] ? a->start[x] : b->start[x];
        int64_t end = a_end < b_end ? a_end : b_end;
        if (start >= end) {
            return false;
        }
        out->start[x] = start;
        out->size[x] = end - start;
        out->local_a[x] = a->local[x] + start - a->start[x];
        out->local_b[x] = b->local[x] + start - b->start[x];
    }
    return true;
}

static int64_t end_of(const lierne_box *box, int axis) {
    return box->start[axis] + box->size[axis];
}

/* Whether both ends of the boxes ascend on an axis, and how often they do. */
static bool ascends(const lierne_boxes *boxes, int axis, size_t *steps) {
    for (size_t i = 1; i < boxes->count; i++) {
        const lierne_box *box = &boxes->at[i], *last = box - 1;
        if (box->start[axis] < last->start[axis] || end_of(box, axis) < end_of(last, axis)) {
            return false;
        }
        *steps += box->start[axis] > last->start[axis];
    }
    return true;
}

/* The axis on which both lists ascend in the most steps, or -1. */
static int sweep_axis(int naxes, const lierne_boxes *a, const lierne_boxes *b) {
    size_t most = 0;
    int best = -1;
    for (int axis = 0; axis < naxes; axis++) {
        size_t steps = 0;
        if (ascends(a, axis, &steps) && ascends(b, axis, &steps) && steps > most) {
            best = axis;
            most = steps;
        }
    }
    return best;
}

/* Along an axis on which both lists ascend, a box meets a range of the others, and ranges ascend,
 * too: so long lists, as packings have them, are merged. */
lierne_status lierne_boxes_intersect(int naxes, const lierne_boxes *a, const lierne_boxes *b,
                                     lierne_overlaps *out) {
    int axis = sweep_axis(naxes, a, b);
    size_t first = 0;
    for (size_t i = 0; i < a->count; i++) {
        const lierne_box *box = &a->at[i];
        while (axis >= 0 && first < b->count && end_of(&b->at[first], axis) <= box->start[axis]) {
            first++;
        }
        for (size_t j = first; j < b->count; j++) {
            lierne_overlap overlap = {.index_a = i, .index_b = j};
            if (axis >= 0 && b->at[j].start[axis] >= end_of(box, axis)) {
                break;
            }
            if (intersect(naxes, box, &b->at[j], &overlap)) {
                LIERNE_TRY(LIERNE_VEC_PUSH(out, overlap));
            }
        }
    }
    return LIERNE_OK;
}

int64_t lierne_overlap_elements(int naxes, const lierne_overlap *overlap) {
    int64_t n = 1;
    for (int a = 0; a < naxes; a++) {
        n *= overlap->size[a];
    }
    return n;
}
