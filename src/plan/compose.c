/* Plans made of plans: transposed and composed ones, and copies in another group.
 *
 * Both need the routes alone. These are copied, so that the new plan is independent. */
#include "plan/object.h"

#include <string.h>

/* Whether this rank may make a plan of `plan`. other is a plan that is not NULL and gives the rank.
 */
static lierne_status check_source(const lierne_plan *plan, const lierne_plan *other,
                                  const char *which, const void *out) {
    int rank = other->context->rank;
    if (!out) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: out is NULL", rank);
    }
    if (!plan) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: %s is NULL", rank, which);
    }
    if (plan->context != other->context) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: the plans are of different contexts",
                           rank);
    }
    if (plan->group != other->group) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: the plans are of different groups", rank);
    }
    if (plan->parts.accumulate) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: %s accumulates: a plan made of plans cannot add to "
                           "what out holds",
                           rank, which);
    }
    return lierne_plan_check_not_shared(plan, which);
}

static void copy_shape(lierne_plan_side *side, const lierne_plan_side *in,
                       const lierne_plan_side *out) {
    side->naxes = in->naxes > out->naxes ? in->naxes : out->naxes;
    for (int a = 0; a < side->naxes; a++) {
        side->in[a] = a < in->naxes ? in->in[a] : 1;
        side->out[a] = a < out->naxes ? out->out[a] : 1;
    }
    side->min_elements = in == out ? in->min_elements : 0;
}

static lierne_status copy_owned(lierne_plan_side *side, const lierne_plan_side *from) {
    for (size_t i = 0; i < from->owned.count; i++) {
        LIERNE_TRY(LIERNE_VEC_PUSH(&side->owned, from->owned.at[i]));
    }
    return LIERNE_OK;
}

/* first, then second, through scratch. */
static lierne_status join(lierne_plan_side *side, const lierne_plan_side *first,
                          const lierne_plan_side *second) {
    static const lierne_buffer from_in[LIERNE_BUFFER_COUNT] = {LIERNE_BUFFER_IN,
                                                               LIERNE_BUFFER_SCRATCH,
                                                               LIERNE_BUFFER_SCRATCH};
    static const lierne_buffer to_out[LIERNE_BUFFER_COUNT] = {LIERNE_BUFFER_SCRATCH,
                                                              LIERNE_BUFFER_OUT,
                                                              LIERNE_BUFFER_SCRATCH};
    const lierne_route *a = first->route, *b = second->route;
    int64_t between, scratch_a, scratch_b;
    LIERNE_TRY(lierne_route_create(&side->route, a->rank, a->elements[LIERNE_BUFFER_IN],
                                   b->elements[LIERNE_BUFFER_OUT]));
    LIERNE_TRY(lierne_route_scratch(side->route, a->elements[LIERNE_BUFFER_OUT], &between));
    LIERNE_TRY(lierne_route_scratch(side->route, a->elements[LIERNE_BUFFER_SCRATCH], &scratch_a));
    LIERNE_TRY(lierne_route_scratch(side->route, b->elements[LIERNE_BUFFER_SCRATCH], &scratch_b));
    LIERNE_TRY(
        lierne_route_append(side->route, a, from_in, (const int64_t[]){0, between, scratch_a}));
    LIERNE_TRY(
        lierne_route_append(side->route, b, to_out, (const int64_t[]){between, 0, scratch_b}));
    LIERNE_TRY(lierne_route_keep_lists(side->route));
    if ((first->partial || first->untouched > 0) &&
        lierne_route_check(side->route, NULL, 0) != LIERNE_OK) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: one plan leaves elements of its output as they are, and the "
                           "other reads them",
                           a->rank);
    }
    side->untouched = second->untouched;
    side->partial = second->partial;
    copy_shape(side, first, second);
    return copy_owned(side, second);
}

/* The adjoint of a plan that has none. */
static lierne_status leave_empty(lierne_plan_side *side, const lierne_plan_side *first,
                                 const lierne_plan_side *second) {
    const lierne_route *a = first->route, *b = second->route;
    copy_shape(side, first, second);
    return lierne_route_create(&side->route, a->rank, a->elements[LIERNE_BUFFER_IN],
                               b->elements[LIERNE_BUFFER_OUT]);
}

static lierne_status duplicate(lierne_plan_side *side, const lierne_plan_side *from) {
    static const lierne_buffer same[LIERNE_BUFFER_COUNT] = {LIERNE_BUFFER_IN, LIERNE_BUFFER_OUT,
                                                            LIERNE_BUFFER_SCRATCH};
    const lierne_route *route = from->route;
    LIERNE_TRY(lierne_route_create(&side->route, route->rank, route->elements[LIERNE_BUFFER_IN],
                                   route->elements[LIERNE_BUFFER_OUT]));
    side->route->elements[LIERNE_BUFFER_SCRATCH] = route->elements[LIERNE_BUFFER_SCRATCH];
    LIERNE_TRY(lierne_route_append(side->route, route, same, (const int64_t[]){0, 0, 0}));
    LIERNE_TRY(lierne_route_keep_lists(side->route));
    copy_shape(side, from, from);
    side->untouched = from->untouched;
    side->partial = from->partial;
    return copy_owned(side, from);
}

/* Direction d becomes that of the plan, or with `turned` the other one. */
static lierne_status duplicate_sides(lierne_plan_parts *parts, const lierne_plan *plan,
                                     bool turned) {
    parts->dtype = plan->parts.dtype;
    parts->in_place = plan->parts.in_place;
    for (int d = 0; d < 2; d++) {
        int from = turned ? 1 - d : d;
        parts->algorithm[d] = plan->parts.algorithm[from];
        LIERNE_TRY(duplicate(&parts->side[d], &plan->parts.side[from]));
    }
    return LIERNE_OK;
}

static lierne_status transpose(lierne_plan_parts *parts, const lierne_plan *plan) {
    parts->kind = "transposed";
    parts->name = plan->parts.name;
    parts->max_inflight = plan->parts.max_inflight;
    parts->group = plan->group;
    return duplicate_sides(parts, plan, true);
}

static lierne_status copy_plan(lierne_plan_parts *parts, const lierne_plan *plan,
                               lierne_group *group) {
    LIERNE_TRY(lierne_plan_check_not_shared(plan, "the plan"));
    parts->kind = plan->parts.kind;
    parts->name = plan->parts.name;
    parts->group = group;
    parts->no_adjoint = plan->parts.no_adjoint;
    parts->accumulate = plan->parts.accumulate;
    parts->rows = plan->parts.rows;
    return duplicate_sides(parts, plan, false);
}

/* Of a rank that has nothing to do in the plan. */
static lierne_status leave_out(lierne_plan_parts *parts, int rank) {
    parts->kind = parts->algorithm[0] = parts->algorithm[1] = "none";
    parts->dtype = LIERNE_DTYPE_I32;
    LIERNE_TRY(lierne_route_create(&parts->side[0].route, rank, 0, 0));
    return lierne_route_create(&parts->side[1].route, rank, 0, 0);
}

lierne_status lierne_plan_copy(lierne_plan **out, lierne_context *context, const lierne_plan *plan,
                               lierne_group *group, int number) {
    lierne_plan_parts parts = {.max_inflight = 1, .waits = true};
    const lierne_field fields[] = {{.name = "a run's plan of a group"},
                                   {.name = "plan", .value = number}};
    lierne_status status = plan ? copy_plan(&parts, plan, group) : leave_out(&parts, context->rank);
    LIERNE_TRY(lierne_plan_new(out, context, status, &parts, fields, 2));
    lierne_plan_own(*out);
    return LIERNE_OK;
}

lierne_status lierne_plan_create_transposed(lierne_plan **out, const lierne_plan *plan) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_plan_parts parts = {0};
    LIERNE_TRY(lierne_check_set(plan, "plan"));
    LIERNE_TRY(lierne_context_alive(plan->context));
    const lierne_field fields[] = {{.name = "lierne_plan_create_transposed"},
                                   {.name = "plan", .value = plan->decision}};
    lierne_status status = check_source(plan, plan, "plan", out);
    if (status == LIERNE_OK) {
        status = lierne_plan_check_side(plan, LIERNE_DIRECTION_ADJOINT);
    }
    if (status == LIERNE_OK) {
        status = transpose(&parts, plan);
    }
    return lierne_plan_new(out, plan->context, status, &parts, fields, 2);
}

/* Whether there are elements between rows, which no plan writes. */
static bool has_gaps(int naxes, const int64_t *shape, int64_t elements) {
    int64_t written = 1;
    for (int a = 0; a < naxes; a++) {
        written *= shape[a];
    }
    return written != elements;
}

/* Whether `to` reads the elements that `from` writes; both buffers have the same length. */
static bool same_elements(const lierne_plan_side *from, const lierne_plan_side *to) {
    int64_t n = from->route->elements[LIERNE_BUFFER_OUT];
    bool gaps = has_gaps(from->naxes, from->out, n) || has_gaps(to->naxes, to->in, n);
    return !gaps || (from->naxes == to->naxes &&
                     memcmp(from->out, to->in, (size_t)to->naxes * sizeof *to->in) == 0);
}

static lierne_status check_fit(const lierne_plan *first, const lierne_plan *second) {
    for (int d = 0; d < 2; d++) {
        const lierne_plan_side *from =
            &(d == LIERNE_DIRECTION_FORWARD ? first : second)->parts.side[d];
        const lierne_plan_side *to =
            &(d == LIERNE_DIRECTION_FORWARD ? second : first)->parts.side[d];
        int64_t n = from->route->elements[LIERNE_BUFFER_OUT],
                wanted = to->route->elements[LIERNE_BUFFER_IN];
        if (n != wanted) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "rank %d: %s: one plan writes %lld elements, the other "
                               "reads %lld",
                               first->context->rank,
                               d == LIERNE_DIRECTION_FORWARD ? "forward" : "adjoint", (long long)n,
                               (long long)wanted);
        }
        if (!same_elements(from, to)) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "rank %d: there are gaps between the rows of one plan, and the "
                               "other has other rows",
                               first->context->rank);
        }
    }
    if (first->parts.dtype != second->parts.dtype) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "dtypes %s and %s differ",
                           lierne_dtype_name(first->parts.dtype),
                           lierne_dtype_name(second->parts.dtype));
    }
    return LIERNE_OK;
}

static lierne_status compose(lierne_plan_parts *parts, const lierne_plan *first,
                             const lierne_plan *second) {
    const lierne_plan_side *a = first->parts.side, *b = second->parts.side;
    LIERNE_TRY(check_fit(first, second));
    parts->no_adjoint =
        first->parts.no_adjoint ? first->parts.no_adjoint : second->parts.no_adjoint;
    parts->kind = "composed";
    parts->dtype = first->parts.dtype;
    parts->max_inflight = first->parts.max_inflight;
    parts->group = first->group;
    parts->algorithm[LIERNE_DIRECTION_FORWARD] = parts->algorithm[LIERNE_DIRECTION_ADJOINT] =
        "composed";
    LIERNE_TRY(join(&parts->side[LIERNE_DIRECTION_FORWARD], &a[LIERNE_DIRECTION_FORWARD],
                    &b[LIERNE_DIRECTION_FORWARD]));
    if (parts->no_adjoint) {
        return leave_empty(&parts->side[LIERNE_DIRECTION_ADJOINT], &b[LIERNE_DIRECTION_ADJOINT],
                           &a[LIERNE_DIRECTION_ADJOINT]);
    }
    return join(&parts->side[LIERNE_DIRECTION_ADJOINT], &b[LIERNE_DIRECTION_ADJOINT],
                &a[LIERNE_DIRECTION_ADJOINT]);
}

static lierne_status check_both(const lierne_plan *first, const lierne_plan *second,
                                const void *out) {
    LIERNE_TRY(check_source(first, first ? first : second, "first", out));
    return check_source(second, first, "second", out);
}

lierne_status lierne_plan_create_composed(lierne_plan **out, const lierne_plan *first,
                                          const lierne_plan *second) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_plan_parts parts = {0};
    const lierne_plan *known = first ? first : second;
    if (!known) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "first and second are NULL");
    }
    lierne_context *context = known->context;
    LIERNE_TRY(lierne_context_alive(context));
    lierne_field fields[] = {{.name = "lierne_plan_create_composed"},
                             {.name = "first"},
                             {.name = "second"}};
    lierne_status status = check_both(first, second, out);
    if (status == LIERNE_OK) {
        fields[1].value = first->decision;
        fields[2].value = second->decision;
        status = compose(&parts, first, second);
    }
    return lierne_plan_new(out, context, status, &parts, fields, 3);
}
