/* Plans of fetch-and-add: from the forest of another plan, for rows of a type of their own.
 *
 * Values and additions are one buffer, as owned rows and ghosts of a combined one are, because a
 * plan has one input and one output. So a fetch-and-add is a plan as any other: it can be begun,
 * coalesced, printed and retyped. */
#include "layout/layout.h"
#include "plan/fields.h"
#include "plan/object.h"
#include "plan/sparse/sparse_saved_spec.h"

/* Fills spec; fields that are 0 and have a meaning then get it. */
static lierne_status take_spec(lierne_fetch_and_add_spec *spec,
                               const lierne_fetch_and_add_spec *given, const lierne_plan *like) {
    int rank = like->context->rank;
    LIERNE_TRY(lierne_spec_take_at(spec, sizeof *spec, given, rank));
    if (!lierne_star_forest_saved_spec_of(like)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: like is a plan of kind %s, must be one of "
                           "lierne_plan_create_graph, lierne_plan_create_references, "
                           "lierne_plan_create_migration or lierne_plan_create_flattened",
                           rank, like->parts.kind);
    }
    LIERNE_TRY(lierne_check_dtype(spec->dtype, rank));
    LIERNE_TRY(lierne_plan_check_inflight(spec->max_inflight));
    if (spec->width < 1 || (spec->stride != 0 && spec->stride < spec->width)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: width is %lld and stride %lld: width must be at least "
                           "1, stride 0 or at least width",
                           rank, (long long)spec->width, (long long)spec->stride);
    }
    spec->stride = spec->stride ? spec->stride : spec->width;
    spec->max_inflight = spec->max_inflight ? spec->max_inflight : 1;
    return LIERNE_OK;
}

/* The rows of both buffers, and of the most that scratch and staging may take. */
static lierne_status check_bytes(const lierne_star_forest *f, lierne_dtype dtype) {
    int64_t rows = f->nowned + f->nghosts, most = 4 * (f->nowned + f->nghosts + f->nsent), bytes;
    if (!lierne_mul_i64(rows, f->stride, &bytes) || !lierne_mul_i64(most, f->stride, &bytes) ||
        bytes > INT64_MAX / 4 / (int64_t)lierne_dtype_size(dtype)) {
        return LIERNE_FAIL(LIERNE_ERR_COUNT_RANGE,
                           "rank %d: bytes of %lld rows, %lld elements apart, do not fit", f->rank,
                           (long long)rows, (long long)f->stride);
    }
    return LIERNE_OK;
}

static lierne_status fill_parts(lierne_plan_parts *parts, const lierne_plan *like,
                                const lierne_fetch_and_add_spec *spec) {
    lierne_star_forest f = lierne_star_forest_saved_spec_of(like)->forest;
    const lierne_peer_rows *own = lierne_star_forest_own(&f);
    lierne_plan_side *forward = &parts->side[LIERNE_DIRECTION_FORWARD];
    lierne_plan_side *adjoint = &parts->side[LIERNE_DIRECTION_ADJOINT];
    int64_t all = f.nowned + f.nghosts;
    f.width = spec->width;
    f.stride = spec->stride;
    f.combined = true;
    f.accumulate = false;
    parts->kind = "fetch_and_add";
    parts->dtype = spec->dtype;
    parts->max_inflight = spec->max_inflight;
    parts->group = like->group;
    parts->algorithm[0] = parts->algorithm[1] =
        lierne_graph_algorithm_names[LIERNE_GRAPH_ALGORITHM_DIRECT];
    parts->no_adjoint = "a fetch-and-add moves forward only";
    parts->in_place = true;
    parts->row = (lierne_plan_rows){f.width, f.stride, f.stride};
    parts->waits = like->parts.waits;
    LIERNE_TRY(check_bytes(&f, spec->dtype));
    LIERNE_TRY(lierne_star_forest_start_side(&f, forward, all, all, true));
    LIERNE_TRY(lierne_star_forest_start_side(&f, adjoint, all, all, false));
    forward->min_elements = (f.nsent + f.nroots - (own ? own->count : 0)) * f.width;
    return lierne_star_forest_fetch(&f, forward->route);
}

lierne_status lierne_plan_create_fetch_and_add(lierne_plan **out, const lierne_plan *like,
                                               const lierne_fetch_and_add_spec *given) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_fetch_and_add_spec spec = {0};
    lierne_plan_parts parts = {0};
    LIERNE_TRY(lierne_check_set(like, "like"));
    LIERNE_TRY(lierne_context_alive(like->context));
    lierne_status status =
        out ? take_spec(&spec, given, like)
            : LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: out is NULL", like->context->rank);
    if (status == LIERNE_OK) {
        status = fill_parts(&parts, like, &spec);
    }
    const lierne_field fields[] = {{.name = "fetch_and_add"},
                                   {.name = "like", .value = like->decision},
                                   {.name = "dtype", .value = spec.dtype},
                                   {.name = "width", .value = spec.width},
                                   {.name = "max_inflight", .value = spec.max_inflight}};
    parts.name = spec.name;
    return lierne_plan_new(out, like->context, status, &parts, fields,
                           sizeof fields / sizeof *fields);
}
