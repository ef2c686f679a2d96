/* Another shape, or other documents, for a plan: its planner plans again from what it saved, and
 * the new parts replace the old ones once all ranks have agreed. */
#include "lierne/redistribute.h"
#include "plan/fields.h"
#include "plan/object.h"

static lierne_status reshape(lierne_plan *plan, const int64_t *shape, lierne_plan_parts *parts) {
    const lierne_saved_spec *saved = plan->parts.saved_spec;
    int rank = plan->context->rank;
    if (!shape) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: shape is NULL", rank);
    }
    if (!saved || !saved->reshape) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: the plan's kind is %s, must be bridge or redistribute: make a "
                           "new plan",
                           rank, plan->parts.kind);
    }
    LIERNE_TRY(lierne_plan_check_changeable(plan));
    return saved->reshape(saved, plan->context, shape, parts);
}

lierne_status lierne_plan_update_shape(lierne_plan *plan, const int64_t *shape) {
    LIERNE_PUBLIC_CALL();
    lierne_plan_parts parts = {0};
    lierne_plan_fields fields = {0};
    LIERNE_TRY(lierne_check_set(plan, "plan"));
    LIERNE_TRY(lierne_context_alive(plan->context));
    lierne_status status = reshape(plan, shape, &parts);
    if (status == LIERNE_OK) {
        lierne_plan_fields_add(&fields, "lierne_plan_update_shape", 0);
        lierne_plan_fields_add(&fields, "plan", plan->decision);
        for (int a = 0; a < parts.side[LIERNE_DIRECTION_FORWARD].naxes; a++) {
            lierne_plan_fields_add_at(&fields, "shape", a, shape[a]);
        }
    }
    return lierne_plan_replace(plan, status, &parts, fields.at, fields.count);
}

static lierne_status divide_axis(lierne_plan *plan, const lierne_documents *documents,
                                 lierne_plan_parts *parts) {
    const lierne_saved_spec *saved = plan->parts.saved_spec;
    int rank = plan->context->rank;
    if (!saved || !saved->divide) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: the plan's kind is %s, must be redistribute: only halos have "
                           "documents",
                           rank, plan->parts.kind);
    }
    if (documents->n < 1 || !documents->segments) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: nsegments is %lld%s", rank,
                           (long long)documents->n,
                           documents->n < 1 ? ", must be at least 1" : ", but segments is NULL");
    }
    LIERNE_TRY(lierne_plan_check_changeable(plan));
    return saved->divide(saved, plan->context, documents, parts);
}

lierne_status lierne_plan_update_documents(lierne_plan *plan, int axis, int64_t nsegments,
                                           const int64_t *segments) {
    LIERNE_PUBLIC_CALL();
    const lierne_documents documents = {.axis = axis, .n = nsegments, .segments = segments};
    lierne_plan_parts parts = {0};
    lierne_plan_fields fields = {0};
    LIERNE_TRY(lierne_check_set(plan, "plan"));
    LIERNE_TRY(lierne_context_alive(plan->context));
    lierne_status status = divide_axis(plan, &documents, &parts);
    if (status == LIERNE_OK) {
        lierne_plan_fields_add(&fields, "lierne_plan_update_documents", 0);
        lierne_plan_fields_add(&fields, "plan", plan->decision);
        lierne_plan_fields_add(&fields, "axis", axis);
        lierne_plan_fields_add_list(&fields, "segments", LIERNE_ITEM_I64, segments,
                                    (size_t)nsegments + 1);
    }
    return lierne_plan_replace(plan, status, &parts, fields.at, fields.count);
}
