/* Retyped plans: what a plan does with rows, for rows of another type.
 *
 * Which rows go where is the plan's, however it was found; so nothing is exchanged and nothing is
 * sorted again. The new routes hold the lists of the old ones, and the two plans are otherwise
 * independent: either may be destroyed or updated first. */
#include "layout/layout.h"
#include "plan/fields.h"
#include "plan/object.h"

#include <string.h>

static const char retyped_kind[] = "retyped";

static lierne_status check_like(const lierne_plan *like) {
    if (like->parts.row.width < 1) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: like is a plan of kind %s that has no rows: it must be one of "
                           "lierne/sparse.h or lierne/halo.h, or a redistribution or bridge that "
                           "divides no index of the last axis",
                           like->context->rank, like->parts.kind);
    }
    return lierne_plan_check_not_shared(like, "like");
}

static lierne_status check_stride(int rank, const char *name, int64_t stride, int64_t width) {
    return stride == 0 || stride >= width
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INVALID,
                             "rank %d: %s is %lld, must be 0 or at least width, which is %lld",
                             rank, name, (long long)stride, (long long)width);
}

/* Fills spec; fields that are 0 and have a meaning then get it. */
static lierne_status take_spec(lierne_retyped_spec *spec, const lierne_retyped_spec *given,
                               const lierne_plan *like) {
    int rank = like->context->rank;
    LIERNE_TRY(lierne_spec_take_at(spec, sizeof *spec, given, rank));
    LIERNE_TRY(check_like(like));
    LIERNE_TRY(lierne_check_dtype(spec->dtype, rank));
    LIERNE_TRY(lierne_plan_check_inflight(spec->max_inflight));
    if (spec->width < 1) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: width is %lld, must be at least 1", rank,
                           (long long)spec->width);
    }
    LIERNE_TRY(check_stride(rank, "in_stride", spec->in_stride, spec->width));
    LIERNE_TRY(check_stride(rank, "out_stride", spec->out_stride, spec->width));
    spec->in_stride = spec->in_stride ? spec->in_stride : spec->width;
    spec->out_stride = spec->out_stride ? spec->out_stride : spec->width;
    spec->max_inflight = spec->max_inflight ? spec->max_inflight : like->parts.max_inflight;
    return LIERNE_OK;
}

/* Rows in a direction's buffers. */
static void shapes_of(lierne_row_shape *shapes, const lierne_plan_rows *rows, int d) {
    bool turned = d == LIERNE_DIRECTION_ADJOINT;
    shapes[LIERNE_BUFFER_IN] = (lierne_row_shape){rows->width, turned ? rows->out : rows->in};
    shapes[LIERNE_BUFFER_OUT] = (lierne_row_shape){rows->width, turned ? rows->in : rows->out};
    shapes[LIERNE_BUFFER_SCRATCH] = (lierne_row_shape){rows->width, rows->width};
}

static lierne_status retype_side(lierne_plan_side *side, const lierne_plan_side *from,
                                 lierne_dtype dtype, const lierne_row_shape *was,
                                 const lierne_row_shape *now) {
    int64_t is = now->width, used = was->width;
    side->naxes = from->naxes;
    for (int a = 0; a < from->naxes; a++) {
        side->in[a] = a < from->naxes - 1 ? from->in[a] : is;
        side->out[a] = a < from->naxes - 1 ? from->out[a] : is;
    }
    side->balanced = from->balanced;
    side->partial = from->partial;
    LIERNE_TRY(lierne_route_retype(&side->route, from->route, dtype, was, now));
    side->min_elements = from->min_elements / used * is;
    side->untouched = from->untouched / used * is;
    for (size_t i = 0; i < from->owned.count; i++) {
        lierne_block block = from->owned.at[i];
        LIERNE_TRY(lierne_block_retype(&block, from->route->rank, &was[LIERNE_BUFFER_OUT],
                                       &now[LIERNE_BUFFER_OUT]));
        LIERNE_TRY(LIERNE_VEC_PUSH(&side->owned, block));
    }
    return LIERNE_OK;
}

static lierne_status retype(lierne_plan_parts *parts, const lierne_plan_parts *from,
                            const lierne_retyped_spec *spec) {
    parts->dtype = spec->dtype;
    parts->max_inflight = spec->max_inflight;
    parts->kind = retyped_kind;
    parts->no_adjoint = from->no_adjoint;
    parts->in_place = from->in_place && spec->in_stride == spec->out_stride;
    parts->rows = from->rows;
    parts->row = (lierne_plan_rows){spec->width, spec->in_stride, spec->out_stride};
    parts->accumulate = from->accumulate;
    parts->waits = from->waits;
    for (int d = 0; d < 2; d++) {
        lierne_row_shape was[LIERNE_BUFFER_COUNT], now[LIERNE_BUFFER_COUNT];
        shapes_of(was, &from->row, d);
        shapes_of(now, &parts->row, d);
        parts->algorithm[d] = from->algorithm[d];
        LIERNE_TRY(retype_side(&parts->side[d], &from->side[d], spec->dtype, was, now));
    }
    return LIERNE_OK;
}

lierne_status lierne_plan_create_retyped(lierne_plan **out, const lierne_plan *like,
                                         const lierne_retyped_spec *given) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_retyped_spec spec = {0};
    lierne_plan_parts parts = {0};
    LIERNE_TRY(lierne_check_set(like, "like"));
    LIERNE_TRY(lierne_context_alive(like->context));
    lierne_status status =
        out ? take_spec(&spec, given, like)
            : LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: out is NULL", like->context->rank);
    if (status == LIERNE_OK) {
        status = retype(&parts, &like->parts, &spec);
    }
    parts.group = like->group;
    const lierne_field fields[] = {{.name = "lierne_plan_create_retyped"},
                                   {.name = "like", .value = like->decision},
                                   {.name = "dtype", .value = spec.dtype},
                                   {.name = "width", .value = spec.width},
                                   {.name = "max_inflight", .value = spec.max_inflight}};
    parts.name = spec.name;
    return lierne_plan_new(out, like->context, status, &parts, fields,
                           sizeof fields / sizeof *fields);
}

lierne_status lierne_plan_check_retyped(const lierne_plan *plan, const char *which) {
    return strcmp(plan->parts.kind, retyped_kind) == 0
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INVALID,
                             "rank %d: %s is of kind %s, must be one of "
                             "lierne_plan_create_retyped",
                             plan->context->rank, which, plan->parts.kind);
}

lierne_status lierne_plan_retype_parts(lierne_plan_parts *parts, const lierne_plan *retyped,
                                       const lierne_plan_parts *like) {
    const lierne_retyped_spec spec = {.dtype = retyped->parts.dtype,
                                      .width = retyped->parts.row.width,
                                      .in_stride = retyped->parts.row.in,
                                      .out_stride = retyped->parts.row.out,
                                      .max_inflight = retyped->parts.max_inflight};
    return retype(parts, like, &spec);
}

static lierne_status check_update(const lierne_plan *plan, const lierne_plan *like) {
    LIERNE_TRY(lierne_plan_check_retyped(plan, "the plan"));
    if (like->context != plan->context) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: like is of another context than the plan",
                           plan->context->rank);
    }
    LIERNE_TRY(lierne_plan_check_changeable(plan));
    return check_like(like);
}

lierne_status lierne_plan_update_retyped(lierne_plan *plan, const lierne_plan *like) {
    LIERNE_PUBLIC_CALL();
    lierne_plan_parts parts = {0};
    LIERNE_TRY(lierne_check_set(plan, "plan"));
    LIERNE_TRY(lierne_context_alive(plan->context));
    lierne_status status = like ? check_update(plan, like) : lierne_check_set(like, "like");
    if (status == LIERNE_OK) {
        status = lierne_plan_retype_parts(&parts, plan, &like->parts);
    }
    const lierne_field fields[] = {{.name = "lierne_plan_update_retyped"},
                                   {.name = "plan", .value = plan->decision},
                                   {.name = "like", .value = like ? like->decision : -1}};
    parts.waits = plan->parts.waits;
    return lierne_plan_replace(plan, status, &parts, fields, sizeof fields / sizeof *fields);
}
