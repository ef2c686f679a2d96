/* Intersection of boxes (lierne_boxes_intersect of src/layout/intersect.c).
 *
 * One box with another, wherever they lie on an axis of up to 2^60 items: a point is in the overlap
 * just if it is in both boxes, and the overlap is as far from the begin of each buffer as from that
 * of its box. Lists of up to 2 boxes on 2 axes of up to 4 items, in any order: the overlaps are
 * those of all pairs, in the order of the first list and then of the second, as without the sweep.
 *
 * cbmc: --unwind 5
 * cbmc: --unwind 5 -DLISTS */
#include "layout/intersect.c"
#include "proofs/proofs.h"

#define BOXES 2
#define AXES  1
#define FAR   ((int64_t)1 << 60)

/* Space for the overlaps: allocation is not what is proven here. */
static lierne_overlap space[BOXES * BOXES];

lierne_status lierne_vec_grow(void *at, size_t count, size_t *capacity, size_t size) {
    assert(count < BOXES * BOXES && size == sizeof space[0]);
    *(lierne_overlap **)at = space;
    *capacity = BOXES * BOXES;
    return LIERNE_OK;
}

static lierne_box any_box(int naxes, int64_t most) {
    lierne_box box = {0};
    for (int a = 0; a < naxes; a++) {
        box.start[a] = any_int64(0, most);
        box.size[a] = any_int64(0, most - box.start[a]);
        box.local[a] = any_int64(0, most);
    }
    return box;
}

static bool has(int naxes, const int64_t *start, const int64_t *size, const int64_t *point) {
    bool in = true;
    for (int a = 0; a < naxes; a++) {
        in = in && start[a] <= point[a] && point[a] < start[a] + size[a];
    }
    return in;
}

static void prove_pair(void) {
    lierne_box a = any_box(AXES, FAR), b = any_box(AXES, FAR);
    lierne_overlap overlap = {0};
    int64_t point[AXES] = {any_int64(0, FAR)};
    bool any = intersect(AXES, &a, &b, &overlap);
    bool both = has(AXES, a.start, a.size, point) && has(AXES, b.start, b.size, point);
    assert((any && has(AXES, overlap.start, overlap.size, point)) == both);
    for (int x = 0; both && x < AXES; x++) {
        assert(overlap.local_a[x] - a.local[x] == overlap.start[x] - a.start[x]);
        assert(overlap.local_b[x] - b.local[x] == overlap.start[x] - b.start[x]);
    }
}

static void prove_lists(void) {
    static lierne_box a[BOXES], b[BOXES];
    lierne_boxes as = {.at = a, .count = (size_t)any_int(0, BOXES)};
    lierne_boxes bs = {.at = b, .count = (size_t)any_int(0, BOXES)};
    lierne_overlaps found = {0};
    size_t n = 0;
    for (int i = 0; i < BOXES; i++) {
        a[i] = any_box(2, 4);
        b[i] = any_box(2, 4);
    }
    assert(lierne_boxes_intersect(2, &as, &bs, &found) == LIERNE_OK);
    for (size_t i = 0; i < as.count; i++) {
        for (size_t j = 0; j < bs.count; j++) {
            lierne_overlap wanted = {0};
            if (!intersect(2, &a[i], &b[j], &wanted)) {
                continue;
            }
            assert(n < found.count);
            for (int x = 0; x < 2; x++) {
                assert(found.at[n].start[x] == wanted.start[x]);
                assert(found.at[n].size[x] == wanted.size[x]);
                assert(found.at[n].local_a[x] == wanted.local_a[x]);
                assert(found.at[n].local_b[x] == wanted.local_b[x]);
            }
            n++;
        }
    }
    assert(n == found.count);
}

int main(void) {
#ifdef LISTS
    prove_lists();
#else
    prove_pair();
#endif
}
