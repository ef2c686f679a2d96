/* A value has no natural division into contributions, so nothing is moved into a PARTIAL layout. */
#include "plan/redistribute/redistribute_check.h"

lierne_status lierne_redistribute_check_tensor(const lierne_layout *a, const char *a_name,
                                               const lierne_layout *b, const char *b_name) {
    if (a->naxes != b->naxes) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "%s has %d axes, %s has %d: they must be of one shape", a_name, a->naxes,
                           b_name, b->naxes);
    }
    for (int axis = 0; axis < a->naxes; axis++) {
        if (a->shape[axis] != b->shape[axis]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "axis %d has size %lld in %s and %lld in %s: they must be of one "
                               "shape",
                               axis, (long long)a->shape[axis], a_name, (long long)b->shape[axis],
                               b_name);
        }
    }
    if (a->dtype != b->dtype) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s has dtype %s, %s has %s: they must be the same",
                           a_name, lierne_dtype_name(a->dtype), b_name,
                           lierne_dtype_name(b->dtype));
    }
    if (a->world != b->world) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "the grid of %s has a world of %d ranks, that of %s one of %d: they "
                           "must be the same",
                           a_name, a->world, b_name, b->world);
    }
    return LIERNE_OK;
}

lierne_status lierne_redistribute_check_pair(const lierne_layout *src, const char *src_name,
                                             const lierne_layout *dst, const char *dst_name) {
    LIERNE_TRY(lierne_redistribute_check_tensor(src, src_name, dst, dst_name));
    for (int d = 0; d < dst->ndims; d++) {
        if (dst->placements[d].kind == LIERNE_PLACEMENT_PARTIAL) {
            return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                               "dim %d of %s is PARTIAL: a destination must be REPLICATE, a shard "
                               "or AT",
                               d, dst_name);
        }
    }
    return LIERNE_OK;
}
