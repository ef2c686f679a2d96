/* A plan again on other ranks: what its planner saved says all but the grids. Planning is that of
 * the kind's own constructor, so a process that has no old plan can call that instead. */
#include "plan/object.h"

static lierne_status take_spec(lierne_recreate_spec *spec, const lierne_recreate_spec *given) {
    LIERNE_TRY(lierne_spec_take(spec, sizeof *spec, given, "spec"));
    LIERNE_TRY(lierne_check_set(spec->src, "spec->src"));
    return lierne_check_set(spec->dst, "spec->dst");
}

static lierne_status check_old(const lierne_plan *old) {
    LIERNE_TRY(lierne_check_set(old, "old"));
    if (!old->parts.saved_spec || !old->parts.saved_spec->recreate) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "the plan's kind is %s, must be bridge or redistribute: other plans "
                           "follow from more than grids (rows, lists of ranks, places in buffers): "
                           "make a new plan",
                           lierne_plan_get_kind(old));
    }
    return LIERNE_OK;
}

lierne_status lierne_plan_recreate(lierne_plan **out, lierne_context *context,
                                   const lierne_plan *old, const lierne_recreate_spec *given) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_recreate_spec spec = {0};
    lierne_plan_parts parts = {0};
    LIERNE_TRY(lierne_check_set(context, "context"));
    LIERNE_TRY(lierne_context_alive(context));
    lierne_status status = lierne_check_set(out, "out");
    status = status == LIERNE_OK ? check_old(old) : status;
    status = status == LIERNE_OK ? take_spec(&spec, given) : status;
    if (status != LIERNE_OK) { /* of this rank: the others get it too */
        status = LIERNE_FAIL(status, "rank %d: %s", context->rank, lierne_error_text());
        return lierne_plan_new(out, context, status, &parts, NULL, 0);
    }
    const lierne_saved_spec *saved = old->parts.saved_spec;
    return saved->recreate(saved, out, context, &spec, lierne_plan_get_name(old));
}
