/* Whether a plan does with its elements what their dtype can. The routes say what it does: so a
 * dtype without arithmetic is good for every plan that only copies, whatever its kind. */
#include "layout/layout.h"
#include "plan/plan.h"

static bool sums(const lierne_route *route, const lierne_ops *ops) {
    for (size_t o = 0; o < ops->count; o++) {
        const lierne_op *op = &ops->at[o];
        if (op->from.count + (op->accumulate && route->accumulates) > 1) {
            return true;
        }
    }
    return false;
}

lierne_status lierne_plan_parts_check_dtype(const lierne_plan_parts *parts, int rank) {
    static const char *const names[2] = {"forward", "adjoint"};
    lierne_dtype dtype = parts->dtype;
    for (int d = 0; d < 2 && lierne_dtype_is_opaque(dtype); d++) {
        const lierne_route *route = parts->side[d].route;
        for (size_t s = 0; s < route->stages.count; s++) {
            const lierne_stage *stage = &route->stages.at[s];
            if (sums(route, &stage->copies) || sums(route, &stage->sums)) {
                return LIERNE_FAIL(LIERNE_ERR_INVALID,
                                   "rank %d: the %s sums contributions, but dtype %s can only be "
                                   "copied: use a dtype with a sum (i8, i32 and i64 have 1, 4 and "
                                   "8 bytes), or a plan that takes one of several equal values",
                                   rank, names[d], lierne_dtype_name(dtype));
            }
        }
    }
    return LIERNE_OK;
}
