/* Random boxes: see boxes_case.h. */
#include "unit/boxes_case.h"

#include <stdlib.h>
#include <string.h>

static const int64_t poison = (int64_t)0xa5a5a5a5a5a5a5a5u;

static uint64_t state;
static int draw(int64_t n) { /* xorshift64* */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (int)((state * 0x2545f4914f6cdd1du >> 33) % (uint64_t)n);
}

static int64_t volume(int naxes, const int64_t *sizes) {
    int64_t n = 1;
    for (int a = 0; a < naxes; a++) {
        n *= sizes[a];
    }
    return n;
}

static int random_shape(int64_t *shape, int naxes) {
    static const int64_t sizes[] = {4, 8, 2, 3, 5, 1, 6};
    for (int a = 0; a < naxes; a++) {
        shape[a] = sizes[draw(naxes == 4 ? 4 : 7)];
    }
    return naxes;
}

static void add_tensor(boxes_case *c, int side, int naxes, const int64_t *shape) {
    uint64_t seed = state;
    random_tensor(&c->tensors[side][c->n[side]++], seed, c->world, naxes, shape);
    state = seed;
    draw(2);
}

/* --- boxes of destinations from anywhere -------------------------------------------------------
 */

/* Gives axes of a destination's box to a source at random; 0: some size does not fit. */
static int try_axes(boxes_case *c, lierne_set_box *box, int *axes) {
    const redistribute_case *src = &c->tensors[0][box->src], *dst = &c->tensors[1][box->dst];
    int used = 0, naxes = dst->naxes + src->naxes;
    for (int a = 0; a < dst->naxes; a++) {
        int axis = draw(src->naxes + 1) - 1;
        if (axis >= 0 && (used >> axis & 1 || src->shape[axis] < box->sizes[a])) {
            axis = -1;
        }
        if (axis < 0 && box->sizes[a] > 1) {
            return 0;
        }
        used |= axis < 0 ? 0 : 1 << axis;
        naxes -= axis >= 0;
        axes[a] = axis;
    }
    for (int a = 0; a < src->naxes; a++) {
        box->src_start[a] = draw(src->shape[a]);
    }
    for (int a = 0; a < dst->naxes; a++) {
        if (axes[a] >= 0) {
            box->src_start[axes[a]] = draw(src->shape[axes[a]] - box->sizes[a] + 1);
        }
    }
    return naxes <= LIERNE_MAX_AXES;
}

static void add_box(boxes_case *c, lierne_set_box box, const int *axes) {
    memcpy(c->axes[c->nboxes], axes, sizeof c->axes[0]);
    c->boxes[c->nboxes++] = box;
}

/* Covers a box of a destination by boxes that some source has; cuts what none has. 0: too many. */
static int cover(boxes_case *c, lierne_set_box box) {
    int naxes = c->tensors[1][box.dst].naxes, axes[LIERNE_MAX_AXES] = {0}, a = draw(naxes);
    int64_t elements = volume(naxes, box.sizes);
    if (c->nboxes == BOXES_MOST) {
        return 0;
    }
    for (int i = 0; i < 40 && (draw(3) || elements == 1); i++) {
        box.src = draw(c->n[0]);
        if (try_axes(c, &box, axes)) {
            add_box(c, box, axes);
            return 1;
        }
    }
    while (elements > 1 && box.sizes[a] == 1) {
        a = draw(naxes);
    }
    int64_t first = elements == 1 ? 0 : 1 + draw(box.sizes[a] - 1);
    lierne_set_box rest = box;
    rest.dst_start[a] += first;
    rest.sizes[a] -= first;
    box.sizes[a] = first;
    return elements > 1 && cover(c, box) && cover(c, rest);
}

static int random_any(boxes_case *c) {
    int64_t shape[LIERNE_MAX_AXES];
    for (int side = 0; side < 2; side++) {
        for (int i = 1 + draw(3); i > 0; i--) {
            add_tensor(c, side, random_shape(shape, 1 + draw(LIERNE_MAX_AXES)), shape);
        }
    }
    for (int i = 0; i < c->n[1]; i++) {
        lierne_set_box box = {.dst = i};
        memcpy(box.sizes, c->tensors[1][i].shape, sizeof box.sizes);
        if (!cover(c, box)) {
            return 0;
        }
    }
    return 1;
}

/* --- tensors taken apart and put together ------------------------------------------------------
 */

/* A box of the fused tensor becomes a tensor of its own, with its axes in another order and
 * sometimes one more. side: that of the fused tensor. */
static void split_off(boxes_case *c, int side, int fused, const int64_t *start,
                      const int64_t *sizes, int naxes) {
    int order[LIERNE_MAX_AXES], more = side == 0 && naxes < LIERNE_MAX_AXES && draw(3) == 0;
    int64_t shape[LIERNE_MAX_AXES];
    lierne_set_box box = {.src = side ? c->n[0] : fused, .dst = side ? fused : c->n[1]};
    for (int a = 0; a < naxes; a++) { /* axis a of the part is axis order[a] of the fused one */
        int b = draw(a + 1);
        order[a] = order[b];
        order[b] = a;
    }
    for (int a = 0; a < naxes; a++) {
        shape[a] = sizes[order[a]];
        (side ? box.dst_start : box.src_start)[a] = start[a];
    }
    int axes[LIERNE_MAX_AXES] = {0};
    for (int a = 0; a < naxes; a++) { /* of the destination */
        if (side) {
            axes[order[a]] = a;
            box.sizes[a] = sizes[a];
        } else {
            axes[a] = order[a];
            box.sizes[a] = shape[a];
        }
    }
    if (more) {
        axes[naxes] = -1;
        box.sizes[naxes] = shape[naxes] = 1;
    }
    add_tensor(c, !side, naxes + more, shape);
    add_box(c, box, axes);
}

/* Cuts a box of the fused tensor at random, with this many cuts at most. */
static int cuts;
static void split(boxes_case *c, int side, int fused, int64_t *start, int64_t *sizes, int naxes) {
    int a = draw(naxes);
    if (draw(4) && sizes[a] > 1 && cuts > 0) {
        cuts--;
        int64_t all = sizes[a], first = 1 + draw(all - 1);
        sizes[a] = first;
        split(c, side, fused, start, sizes, naxes);
        start[a] += first;
        sizes[a] = all - first;
        split(c, side, fused, start, sizes, naxes);
        start[a] -= first;
        sizes[a] = all;
    } else if (side || draw(4)) {
        split_off(c, side, fused, start, sizes, naxes);
    }
}

static int random_split(boxes_case *c, int side) {
    int64_t shape[LIERNE_MAX_AXES], start[LIERNE_MAX_AXES] = {0};
    int naxes = random_shape(shape, 1 + draw(LIERNE_MAX_AXES));
    add_tensor(c, side, naxes, shape);
    cuts = BOXES_TENSORS - 1;
    split(c, side, 0, start, shape, naxes);
    if (c->n[!side] == 0) {
        split_off(c, side, 0, start, shape, naxes);
    }
    return 1;
}

void random_boxes(boxes_case *c, uint64_t seed, int world) {
    state = seed * 0x9e3779b97f4a7c15u + 1;
    draw(2);
    for (int made = 0; !made;) {
        memset(c, 0, sizeof *c);
        c->world = world;
        c->scattered = (int)(seed / 3 % 2);
        c->kind = (boxes_kind)(seed % 3);
        made = c->kind == BOXES_ANY ? random_any(c) : random_split(c, c->kind == BOXES_TOGETHER);
    }
    for (int64_t i = c->nboxes - 1; i > 0; i--) { /* in any order */
        int64_t j = draw(i + 1);
        lierne_set_box box = c->boxes[i];
        int axes[LIERNE_MAX_AXES];
        memcpy(axes, c->axes[i], sizeof axes);
        memcpy(c->axes[i], c->axes[j], sizeof axes);
        memcpy(c->axes[j], axes, sizeof axes);
        c->boxes[i] = c->boxes[j];
        c->boxes[j] = box;
    }
}

/* --- the spec and the model --------------------------------------------------------------------
 */

void boxes_open(boxes_spec *s, const boxes_case *c, int rank) {
    static _Thread_local lierne_set_box boxes[BOXES_MOST];
    memset(s, 0, sizeof *s);
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < c->n[side]; i++) {
            int64_t elements;
            s->layouts[side][i] = redistribute_layout(&c->tensors[side][i], CASE_SRC);
            lierne_layout_get_elements(&elements, NULL, s->layouts[side][i], rank);
            s->offsets[side][i] = s->elements[side] + (c->scattered ? 3 + rank : 0);
            s->elements[side] = elements ? s->offsets[side][i] + elements : s->elements[side];
        }
    }
    for (int64_t i = 0; i < c->nboxes; i++) {
        boxes[i] = c->boxes[i];
        boxes[i].axes = c->axes[i];
    }
    s->spec = (lierne_set_spec){.size = sizeof s->spec,
                                .ntensors = c->n[0],
                                .src = (const lierne_layout *const *)s->layouts[0],
                                .dst = (const lierne_layout *const *)s->layouts[1],
                                .src_offsets = c->scattered ? s->offsets[0] : NULL,
                                .dst_offsets = c->scattered ? s->offsets[1] : NULL,
                                .boxes = boxes,
                                .nboxes = c->nboxes,
                                .ndst = c->n[1]};
}

void boxes_close(boxes_spec *s, const boxes_case *c) {
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < c->n[side]; i++) {
            lierne_layout_destroy(s->layouts[side][i]);
        }
    }
}

/* Counts through the indices of a box, last axis fastest; 0 at its end. */
static int next(int naxes, const int64_t *sizes, int64_t *at) {
    for (int a = naxes - 1; a >= 0; a--) {
        if (++at[a] < sizes[a]) {
            return 1;
        }
        at[a] = 0;
    }
    return 0;
}

static int64_t index_of(int naxes, const int64_t *shape, const int64_t *start, const int64_t *at) {
    int64_t index = 0;
    for (int a = 0; a < naxes; a++) {
        index = index * shape[a] + start[a] + at[a];
    }
    return index;
}

/* Writes the values of a tensor's elements to their places in a rank's buffer. */
static void put_tensor(int64_t *buffer, const lierne_layout *layout, const redistribute_case *t,
                       int rank, const int64_t *values) {
    static lierne_box boxes[BOXES_ELEMENTS];
    int64_t shape[LIERNE_MAX_AXES];
    size_t count;
    lierne_layout_get_shape(shape, layout, rank);
    lierne_layout_get_boxes(boxes, BOXES_ELEMENTS, &count, layout, rank);
    for (size_t b = 0; b < count; b++) {
        int64_t at[LIERNE_MAX_AXES] = {0};
        do {
            buffer[index_of(t->naxes, shape, boxes[b].local, at)] =
                values[index_of(t->naxes, t->shape, boxes[b].start, at)];
        } while (next(t->naxes, boxes[b].size, at));
    }
}

static int64_t number(int side, int tensor, int64_t element) {
    return 1 + element + BOXES_ELEMENTS * (int64_t)(tensor + BOXES_TENSORS * side);
}

static void clear(int64_t *buffer, const boxes_spec *s, int side) {
    for (int64_t i = 0; i < s->elements[side]; i++) {
        buffer[i] = poison;
    }
}

void boxes_fill(int64_t *buffer, const boxes_spec *s, const boxes_case *c, int side, int rank) {
    static int64_t values[BOXES_ELEMENTS];
    clear(buffer, s, side);
    for (int i = 0; i < c->n[side]; i++) {
        for (int64_t e = 0; e < BOXES_ELEMENTS; e++) {
            values[e] = number(side, i, e);
        }
        put_tensor(buffer + s->offsets[side][i], s->layouts[side][i], &c->tensors[side][i], rank,
                   values);
    }
}

/* What the elements of a box are on one side, from the numbers of the other one. */
static void apply_box(int64_t *values, const boxes_case *c, int64_t i, int side) {
    const lierne_set_box *box = &c->boxes[i];
    const redistribute_case *src = &c->tensors[0][box->src], *dst = &c->tensors[1][box->dst];
    int64_t at[LIERNE_MAX_AXES] = {0};
    do {
        int64_t there[LIERNE_MAX_AXES] = {0};
        for (int a = 0; a < dst->naxes; a++) {
            if (c->axes[i][a] >= 0) {
                there[c->axes[i][a]] = at[a];
            }
        }
        int64_t from = index_of(src->naxes, src->shape, box->src_start, there);
        int64_t to = index_of(dst->naxes, dst->shape, box->dst_start, at);
        values[side ? to : from] =
            side ? number(0, (int)box->src, from) : number(1, (int)box->dst, to);
    } while (next(dst->naxes, box->sizes, at));
}

void boxes_expect(int64_t *buffer, const boxes_spec *s, const boxes_case *c, int side, int rank) {
    static int64_t values[BOXES_ELEMENTS];
    clear(buffer, s, side);
    for (int i = 0; i < c->n[side]; i++) {
        memset(values, 0, sizeof values);
        for (int64_t b = 0; b < c->nboxes; b++) {
            if ((side ? c->boxes[b].dst : c->boxes[b].src) == i) {
                apply_box(values, c, b, side);
            }
        }
        put_tensor(buffer + s->offsets[side][i], s->layouts[side][i], &c->tensors[side][i], rank,
                   values);
    }
}
