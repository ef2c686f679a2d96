/* The boxes of a tensor set: whether each is within its tensors, and whether every element of every
 * destination is in one.
 *
 * The boxes of a tensor are taken in ascending order out of what is left of it, beginning with all
 * of it. What is already gone was in an earlier box; what is left at the end was in none. Boxes
 * that follow one another, as those of fused and stacked tensors do, leave one piece at a time. */
#include "plan/redistribute/set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A box of the tensor of one side. */
typedef struct piece {
    int64_t tensor;
    int64_t number; /* of the box in the spec */
    lierne_box box; /* without places */
} piece;

static int axis_of(const lierne_set_box *box, int axis) {
    return box->axes ? box->axes[axis] : axis;
}

/* --- a box within its tensors ------------------------------------------------------------------
 */

static lierne_status check_axis(int64_t i, char side, int64_t tensor, int axis, int64_t start,
                                int64_t size, int64_t length) {
    const char *name = side == 's' ? "src" : "dst";
    if (size < 1) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "boxes[%lld].sizes[%d] is %lld, must be at least 1",
                           (long long)i, axis, (long long)size);
    }
    return start < 0 || size > length || start > length - size
               ? LIERNE_FAIL(
                     LIERNE_ERR_INVALID,
                     "boxes[%lld]: on axis %d of %s[%lld] %lld indices from %lld on are not "
                     "in 0 to %lld",
                     (long long)i, axis, name, (long long)tensor, (long long)size, (long long)start,
                     (long long)length - 1)
               : LIERNE_OK;
}

/* The box on an axis of the destination, and on the source's that it is. */
static lierne_status check_axes(const lierne_set_box *box, int64_t i, const lierne_layout *src,
                                const lierne_layout *dst, uint32_t *named) {
    for (int a = 0; a < dst->naxes; a++) {
        int axis = axis_of(box, a);
        LIERNE_TRY(
            check_axis(i, 'd', box->dst, a, box->dst_start[a], box->sizes[a], dst->shape[a]));
        if (axis < -1 || axis >= src->naxes || (axis >= 0 && *named >> axis & 1)) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "boxes[%lld]: axis %d of dst[%lld] is axis %d of src[%lld]; it must "
                               "be -1, or in 0 to %d and no other's",
                               (long long)i, a, (long long)box->dst, axis, (long long)box->src,
                               src->naxes - 1);
        }
        if (axis < 0 && box->sizes[a] != 1) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "boxes[%lld].sizes[%d] is %lld, must be 1: the source has no such "
                               "axis",
                               (long long)i, a, (long long)box->sizes[a]);
        }
        if (axis >= 0) {
            *named |= 1u << axis;
            LIERNE_TRY(check_axis(i, 's', box->src, axis, box->src_start[axis], box->sizes[a],
                                  src->shape[axis]));
        }
    }
    return LIERNE_OK;
}

static lierne_status check_tensor(int64_t i, const char *side, int64_t tensor, int64_t n) {
    return tensor < 0 || tensor >= n
               ? LIERNE_FAIL(LIERNE_ERR_INVALID, "boxes[%lld].%s is %lld, must be in 0 to %lld",
                             (long long)i, side, (long long)tensor, (long long)n - 1)
               : LIERNE_OK;
}

lierne_status lierne_set_check_box(const lierne_set_spec *spec, int64_t i) {
    const lierne_set_box *box = &spec->boxes[i];
    LIERNE_TRY(check_tensor(i, "src", box->src, spec->ntensors));
    LIERNE_TRY(check_tensor(i, "dst", box->dst, spec->ndst));
    const lierne_layout *src = spec->src[box->src], *dst = spec->dst[box->dst];
    uint32_t named = 0;
    int naxes = dst->naxes;
    LIERNE_TRY(check_axes(box, i, src, dst, &named));
    for (int a = 0; a < src->naxes; a++) {
        if (!(named >> a & 1)) {
            naxes++;
            LIERNE_TRY(check_axis(i, 's', box->src, a, box->src_start[a], 1, src->shape[a]));
        }
    }
    return naxes > LIERNE_MAX_AXES
               ? LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                             "boxes[%lld] has %d axes of dst[%lld] and src[%lld] together, at most "
                             "%d are possible",
                             (long long)i, naxes, (long long)box->dst, (long long)box->src,
                             LIERNE_MAX_AXES)
               : LIERNE_OK;
}

/* In one go: small numbers as the seed of small numbers collide. */
uint64_t lierne_set_hash_box(uint64_t hash, const lierne_set_spec *spec, int64_t i) {
    const lierne_set_box *box = &spec->boxes[i];
    int64_t words[1 + 4 * LIERNE_MAX_AXES] = {(int64_t)hash}, *at = words + 1;
    for (int a = 0; a < spec->src[box->src]->naxes; a++) {
        *at++ = box->src_start[a];
    }
    for (int a = 0; a < spec->dst[box->dst]->naxes; a++) {
        *at++ = box->dst_start[a];
        *at++ = box->sizes[a];
        *at++ = axis_of(box, a);
    }
    return lierne_hash(0, words, sizeof words);
}

/* --- every element once ------------------------------------------------------------------------
 */

static int64_t volume(int naxes, const lierne_box *box) {
    int64_t n = 1;
    for (int a = 0; a < naxes; a++) {
        n *= box->size[a];
    }
    return n;
}

static bool meet(int naxes, const lierne_box *a, const lierne_box *b, lierne_box *common) {
    *common = (lierne_box){0};
    for (int x = 0; x < naxes; x++) {
        int64_t a_end = a->start[x] + a->size[x], b_end = b->start[x] + b->size[x];
        common->start[x] = a->start[x] > b->start[x] ? a->start[x] : b->start[x];
        common->size[x] = (a_end < b_end ? a_end : b_end) - common->start[x];
        if (common->size[x] <= 0) {
            return false;
        }
    }
    return true;
}

/* Adds what a box has outside of a box within it: per axis what lies before and behind. */
static lierne_status add_outside(lierne_boxes *left, int naxes, lierne_box box,
                                 const lierne_box *within) {
    for (int a = 0; a < naxes; a++) {
        int64_t before = within->start[a] - box.start[a];
        int64_t behind = box.size[a] - before - within->size[a];
        lierne_box part = box;
        part.size[a] = before;
        LIERNE_TRY(before ? LIERNE_VEC_PUSH(left, part) : LIERNE_OK);
        part.start[a] = within->start[a] + within->size[a];
        part.size[a] = behind;
        LIERNE_TRY(behind ? LIERNE_VEC_PUSH(left, part) : LIERNE_OK);
        box.start[a] = within->start[a];
        box.size[a] = within->size[a];
    }
    return LIERNE_OK;
}

/* Takes a box out of what is left; *taken: how many elements of it were. */
static lierne_status take_out(lierne_boxes *left, int naxes, const lierne_box *box,
                              int64_t *taken) {
    size_t n = left->count, kept = 0;
    *taken = 0;
    if (n == 0) {
        return LIERNE_OK;
    }
    for (size_t i = 0; i < n; i++) {
        lierne_box part = left->at[i], common;
        if (!meet(naxes, &part, box, &common)) {
            left->at[kept++] = part;
            continue;
        }
        *taken += volume(naxes, &common);
        LIERNE_TRY(add_outside(left, naxes, part, &common));
    }
    memmove(left->at + kept, left->at + n, (left->count - n) * sizeof *left->at);
    left->count -= n - kept;
    return LIERNE_OK;
}

static int compare_pieces(const void *a, const void *b) {
    const piece *p = a, *q = b;
    if (p->tensor != q->tensor) {
        return p->tensor < q->tensor ? -1 : 1;
    }
    for (int x = 0; x < LIERNE_MAX_AXES; x++) {
        if (p->box.start[x] != q->box.start[x]) {
            return p->box.start[x] < q->box.start[x] ? -1 : 1;
        }
    }
    return p->number < q->number ? -1 : 1;
}

/* The boxes of a side, ascending. */
static void list_pieces(piece *pieces, const lierne_set *set, int side) {
    for (int64_t i = 0; i < set->nmoves; i++) {
        const lierne_set_box *box = &set->boxes[i];
        int src_naxes = lierne_set_layout_of(set, box->src, LIERNE_SET_SRC)->layout->naxes;
        int dst_naxes = lierne_set_layout_of(set, box->dst, LIERNE_SET_DST)->layout->naxes;
        piece p = {.tensor = lierne_set_tensor(set, i, side), .number = i};
        for (int a = 0; a < src_naxes && side == LIERNE_SET_SRC; a++) {
            p.box.start[a] = box->src_start[a];
            p.box.size[a] = 1;
        }
        for (int a = 0; a < dst_naxes; a++) {
            int axis = side == LIERNE_SET_DST ? a : axis_of(box, a);
            if (side == LIERNE_SET_DST) {
                p.box.start[a] = box->dst_start[a];
            }
            if (axis >= 0) {
                p.box.size[axis] = box->sizes[a];
            }
        }
        pieces[i] = p;
    }
    qsort(pieces, (size_t)set->nmoves, sizeof *pieces, compare_pieces);
}

static void name_box(char *text, size_t size, int naxes, const lierne_box *box) {
    size_t length = 0;
    for (int a = 0; a < naxes; a++) {
        length +=
            (size_t)snprintf(text + length, size - length, "%s%lld:%lld", a ? ", " : "[",
                             (long long)box->start[a], (long long)(box->start[a] + box->size[a]));
    }
    snprintf(text + length, size - length, "]");
}

/* The error of a box that an earlier one of the same tensor overlaps. */
static lierne_status reject_twice(const piece *pieces, const piece *p, int naxes) {
    char text[192];
    lierne_box common;
    const piece *other = pieces;
    while (other->tensor != p->tensor || !meet(naxes, &other->box, &p->box, &common)) {
        other++;
    }
    name_box(text, sizeof text, naxes, &common);
    return LIERNE_FAIL(LIERNE_ERR_INVALID,
                       "dst[%lld]: %s is in boxes[%lld] and boxes[%lld]: every element must be in "
                       "one box",
                       (long long)p->tensor, text, (long long)other->number, (long long)p->number);
}

static lierne_status reject_missing(int64_t tensor, int naxes, const lierne_box *box) {
    char text[192];
    name_box(text, sizeof text, naxes, box);
    return LIERNE_FAIL(LIERNE_ERR_INVALID, "dst[%lld]: %s is in no box", (long long)tensor, text);
}

/* What the pieces from p on leave of a tensor; returns the first piece of another one in *p. */
static lierne_status cover_tensor(lierne_set *set, int side, int64_t tensor, const piece *pieces,
                                  const piece **p, lierne_boxes *left) {
    const lierne_layout *layout = lierne_set_layout_of(set, tensor, side)->layout;
    lierne_box whole = {0};
    memcpy(whole.size, layout->shape, (size_t)layout->naxes * sizeof *layout->shape);
    left->count = 0;
    LIERNE_TRY(volume(layout->naxes, &whole) ? LIERNE_VEC_PUSH(left, whole) : LIERNE_OK);
    for (; *p < pieces + set->nmoves && (*p)->tensor == tensor; ++*p) {
        int64_t taken;
        LIERNE_TRY(take_out(left, layout->naxes, &(*p)->box, &taken));
        if (taken < volume(layout->naxes, &(*p)->box)) {
            LIERNE_TRY(side == LIERNE_SET_DST ? reject_twice(pieces, *p, layout->naxes)
                                              : LIERNE_OK);
            set->repeats = true;
        }
    }
    for (size_t i = 0; i < left->count; i++) {
        LIERNE_TRY(side == LIERNE_SET_DST
                       ? reject_missing(tensor, layout->naxes, &left->at[i])
                       : LIERNE_VEC_PUSH(&set->gaps, ((lierne_set_gap){tensor, left->at[i]})));
    }
    return LIERNE_OK;
}

lierne_status lierne_set_cover(lierne_set *set) {
    lierne_boxes left = {0};
    piece *pieces;
    lierne_status status = LIERNE_OK;
    LIERNE_TRY(lierne_alloc_unset(&pieces, (size_t)set->nmoves, sizeof *pieces));
    for (int side = LIERNE_SET_DST; side >= LIERNE_SET_SRC && status == LIERNE_OK; side--) {
        const piece *p = pieces;
        list_pieces(pieces, set, side);
        for (int64_t i = 0; i < set->n[side] && status == LIERNE_OK; i++) {
            status = cover_tensor(set, side, i, pieces, &p, &left);
        }
    }
    lierne_mem_free(left.at);
    lierne_mem_free(pieces);
    return status;
}
