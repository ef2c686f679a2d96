/* New segments for a plan: taken into the description that is not in use, and filled in. */
#include "plan/fields.h"
#include "plan/redistribute/varying_plan.h"
#include "runtime/context/context.h"

static lierne_status check_same(const char *side, const char *field, int value, int wanted) {
    return value == wanted
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INVALID, "%s: %s is %d, must be %d as in the plan's layout",
                             side, field, value, wanted);
}

/* old: of the plan. */
static lierne_status take_packing(lierne_layout *layout, const lierne_packed *old, const char *side,
                                  const lierne_segments *segments, const lierne_packing *given) {
    lierne_packing packing;
    if (!given != !old) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is %sNULL, but the plan's layout has %s packing",
                           side, given ? "not " : "", old ? "a" : "no");
    }
    if (!old) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_spec_take(&packing, sizeof packing, given, side));
    LIERNE_TRY(lierne_packed_take(layout->packed, segments, &packing));
    LIERNE_TRY(check_same(side, "store", (int)packing.store, (int)old->store));
    LIERNE_TRY(check_same(side, "padding", (int)packing.padding, (int)old->padding));
    LIERNE_TRY(check_same(side, "row_order", (int)packing.row_order, (int)old->row_order));
    return lierne_packed_cut(layout->packed, &packing);
}

/* Segments, or images, that fit the capacity. */
static lierne_status take_segments(const lierne_varying_plan *v, lierne_segments *out,
                                   const lierne_segments *given, bool images) {
    LIERNE_TRY(lierne_spec_take(out, sizeof *out, given, images ? "images" : "segments"));
    if (out->nsegments < 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "nsegments%s is %lld, must be at least 0",
                           images ? " of images" : "", (long long)out->nsegments);
    }
    LIERNE_TRY(lierne_check_set(out->cu_seqlens, "cu_seqlens"));
    return out->nsegments <= v->max_segments
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_CAPACITY,
                             "nsegments%s is %lld, must be at most %lld (max_segments)",
                             images ? " of images" : "", (long long)out->nsegments,
                             (long long)v->max_segments);
}

static lierne_status take_runs(lierne_varying_plan *v, const lierne_segments_update *update) {
    lierne_varying_state *next = &v->states[!v->current];
    if (!v->joined) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_image_runs_check(update->runs, update->nruns));
    if (update->nruns > v->max_runs) {
        return LIERNE_FAIL(LIERNE_ERR_CAPACITY, "nruns is %lld, must be at most %lld (max_runs)",
                           (long long)update->nruns, (long long)v->max_runs);
    }
    return lierne_joints_take(&next->joints, update->runs, update->nruns, next->layouts[0]->packed,
                              next->layouts[1]->packed, &v->rules);
}

/* The description of both sides: of a bridge the source has images. */
static lierne_status take_sides(lierne_varying_plan *v, const lierne_segments_update *update) {
    const lierne_varying_state *old = &v->states[v->current], *next = &v->states[!v->current];
    lierne_segments segments[2];
    if (!v->joined && (update->images || update->runs)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is not NULL, but the plan is no packed bridge",
                           update->images ? "images" : "runs");
    }
    LIERNE_TRY(take_segments(v, &segments[1], update->segments, false));
    segments[0] = segments[1];
    LIERNE_TRY(v->joined ? take_segments(v, &segments[0], update->images, true) : LIERNE_OK);
    for (int s = 0; s < 2; s++) {
        LIERNE_TRY(take_packing(next->layouts[s], old->layouts[s]->packed, s ? "dst" : "src",
                                &segments[s], s ? update->dst : update->src));
    }
    for (int s = 0; s < 2; s++) {
        next->layouts[s]->shape[v->axis] = segments[s].cu_seqlens[segments[s].nsegments];
        LIERNE_TRY(lierne_layout_check_nesting(next->layouts[s]));
    }
    return LIERNE_OK;
}

/* Makes the state that is not the plan's that of the description. */
static lierne_status take_update(lierne_varying_plan *v, const lierne_segments_update *given) {
    lierne_segments_update update;
    LIERNE_TRY(lierne_spec_take(&update, sizeof update, given, "update"));
    LIERNE_TRY(take_sides(v, &update));
    LIERNE_TRY(take_runs(v, &update));
    return lierne_varying_check_rows(v, &v->states[!v->current]);
}

static lierne_status prepare_update(lierne_plan *plan, const lierne_segments_update *update) {
    lierne_varying_plan *v = lierne_varying_plan_of(plan);
    if (!v) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "the plan's segments never change: it is no redistribution or packed "
                           "bridge that was planned with max_segments");
    }
    LIERNE_TRY(lierne_plan_check_changeable(plan));
    return take_update(v, update);
}

static lierne_status agree(lierne_plan *plan, lierne_status status) {
    lierne_plan_fields fields = {0};
    if (status == LIERNE_OK) {
        const lierne_varying_plan *v = lierne_varying_plan_of(plan);
        const lierne_varying_state *next = &v->states[!v->current];
        lierne_plan_fields_add(&fields, "lierne_plan_update_segments", 0);
        lierne_plan_fields_add(&fields, "plan", lierne_plan_get_number(plan));
        lierne_plan_fields_add_layout(&fields, "src", next->layouts[0]);
        lierne_plan_fields_add_layout(&fields, "dst", next->layouts[1]);
        lierne_plan_fields_add_joints(&fields, &next->joints);
    }
    return lierne_context_agree_all(lierne_plan_context(plan), status, fields.at, fields.count,
                                    NULL);
}

lierne_status lierne_plan_update_segments(lierne_plan *plan, const lierne_segments_update *update) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(lierne_check_set(plan, "plan"));
    LIERNE_TRY(lierne_context_alive(lierne_plan_context(plan)));
    lierne_status status = prepare_update(plan, update);
    /* Where the context checks calls, the ranks agree before anything changes. */
    LIERNE_TRY(lierne_plan_context(plan)->check ? agree(plan, status) : status);
    lierne_varying_plan *v = lierne_varying_plan_of(plan);
    v->current = !v->current;
    v->update++;
    lierne_varying_fill(
        v, (lierne_plan_side *const[]){lierne_plan_side_of(plan, LIERNE_DIRECTION_FORWARD),
                                       lierne_plan_side_of(plan, LIERNE_DIRECTION_ADJOINT)});
    return lierne_plan_vary(plan, lierne_plan_context(plan)->check);
}
