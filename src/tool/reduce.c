/* A bridge moves whole rows; what they hold does not change where they go. So an axis that nothing
 * cuts may have any size, and one that is cut may have any that divides alike: as many parts, and
 * as many of them larger than the others. */
#include "reduce.h"

enum {
    WHOLE = 4, /* elements left of an axis that nothing cuts */
    PART = 2,  /* of each part of one that is cut */
    LANE = 2,  /* samples left per unit of the batch that both sides divide, where */
    MANY = 4   /* it has more than this */
};

/* size with quotient least instead of size / parts, and the same remainder. */
static int64_t shrink(int64_t size, int64_t parts, int64_t least) {
    return size / parts > least ? least * parts + size % parts : size;
}

static int64_t gcd(int64_t a, int64_t b) {
    return b == 0 ? a : gcd(b, a % b);
}

static int64_t reduce_batch(const lierne_bridge_spec *spec, int64_t size, const char **reason) {
    int64_t src = lierne_grid_dim_find(spec->src, NULL, "dp");
    int64_t dst = lierne_grid_dim_find(spec->dst, NULL, "dp");
    int64_t unit = src / gcd(src, dst) * dst;
    if (spec->src_counts || spec->dst_counts || spec->gradient_owner == LIERNE_GRADIENT_ROWS ||
        size / unit <= MANY) {
        return size;
    }
    *reason = "same remainders by both dp";
    return shrink(size, unit, LANE);
}

static int64_t reduce_sequence(const lierne_bridge_spec *spec, int64_t size, const char **reason) {
    int64_t cp = lierne_grid_dim_find(spec->dst, NULL, "cp");
    switch (spec->gradient_owner) {
    case LIERNE_GRADIENT_ROWS:
        return size;
    case LIERNE_GRADIENT_ZIGZAG:
        *reason = "a multiple of 2 x cp";
        return shrink(size, 2 * cp, PART);
    case LIERNE_GRADIENT_CONTIGUOUS:
        *reason = "same remainder by cp";
        return shrink(size, cp, PART);
    case LIERNE_GRADIENT_PARTIAL:
    default:
        *reason = "no owner cuts it";
        return shrink(size, 1, WHOLE);
    }
}

void tool_reduce(const lierne_bridge_spec *spec, int64_t *shape, const char **reasons) {
    for (int axis = 0; axis < spec->naxes; axis++) {
        int64_t size = spec->shape[axis];
        reasons[axis] = NULL;
        if (axis == spec->batch_axis) {
            shape[axis] = reduce_batch(spec, size, &reasons[axis]);
        } else if (axis == spec->sequence_axis) {
            shape[axis] = reduce_sequence(spec, size, &reasons[axis]);
        } else {
            reasons[axis] = "moved whole";
            shape[axis] = shrink(size, 1, WHOLE);
        }
        if (shape[axis] == size) {
            reasons[axis] = NULL;
        }
    }
}
