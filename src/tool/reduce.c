/* A bridge moves whole rows, and where they go does not depend on what they hold. So an axis that
 * no dim cuts may have any size. An axis that is cut may have any size that divides in the same
 * way: as many parts on either side, and as many of them one larger than the others. */
#include "reduce.h"
#include "place.h"

enum {
    WHOLE = 4,   /* elements left of an axis that nothing cuts */
    PART = 2,    /* of each part of one that is cut */
    SAMPLES = 2, /* per unit of the batch that both sides divide, where it has more than MANY */
    MANY = 4
};

/* size with quotient least instead of size / parts, and the same remainder. */
static int64_t shrink(int64_t size, int64_t parts, int64_t least) {
    return size / parts > least ? least * parts + size % parts : size;
}

static int64_t gcd(int64_t a, int64_t b) {
    return b == 0 ? a : gcd(b, a % b);
}

static int64_t reduce_axis(const lierne_bridge_spec *spec, const place_axes *axes, int axis) {
    place src = place_of(spec, PLACE_SOURCE, true, 0);
    place dst = place_of(spec, PLACE_DESTINATION, true, 0);
    int64_t size = axes->size[axis];
    int64_t a = place_parts(&src, axis);
    int64_t b = place_parts(&dst, axis);
    int64_t unit = a / gcd(a, b) * b;
    bool batch = axis == axes->batch;
    bool rows =
        spec->gradient_owner == LIERNE_GRADIENT_OWNER_ROWS && (batch || axis == axes->sequence);
    bool counted = batch && (spec->src_counts || spec->dst_counts);
    if (rows || counted || (batch && size / unit <= MANY)) {
        return size;
    }
    return shrink(size, unit, batch ? SAMPLES : unit == 1 ? WHOLE : PART);
}

static const char *reason_of(const lierne_bridge_spec *spec, const place_axes *axes, int axis) {
    place src = place_of(spec, PLACE_SOURCE, true, 0);
    place dst = place_of(spec, PLACE_DESTINATION, true, 0);
    if (axis == axes->batch) {
        return spec->rows_per_sample ? "samples and rows of each, with the same remainders"
                                     : "same remainders by both dp";
    }
    return place_parts(&src, axis) * place_parts(&dst, axis) == 1
               ? "nothing cuts it"
               : "same remainders by what cuts it";
}

void tool_reduce(lierne_bridge_spec *spec, int64_t *shape, const char **reasons) {
    place_axes axes = place_axes_of(spec);
    bool rows = spec->rows_per_sample > 0;
    int hidden = axes.batch + axes.sequence == 1 ? 2 : 0;
    int64_t size[PLACE_AXES];
    for (int axis = 0; axis < PLACE_AXES; axis++) {
        size[axis] = reduce_axis(spec, &axes, axis);
    }
    for (int axis = 0; axis < spec->naxes; axis++) {
        bool batch = axis == spec->batch_axis;
        int planned = !rows ? axis : batch ? axes.batch : hidden;
        shape[axis] = size[planned] * (rows && batch ? size[axes.sequence] : 1);
        reasons[axis] = shape[axis] == spec->shape[axis] ? NULL : reason_of(spec, &axes, planned);
    }
    spec->shape = shape;
    spec->rows_per_sample = rows ? size[axes.sequence] : 0;
}
