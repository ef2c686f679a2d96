/* From the specs of collectives to plans.
 *
 * Every constructor brings its spec into one form and names the function that fills the routes of a
 * rank that takes part. A rank that does not has empty routes, and agrees like all others. */
#include "plan/collective/collective.h"

#include "layout/layout.h"

/* Fills both sides of a plan. */
typedef lierne_status fill_sides(lierne_plan_side *sides, const lierne_team *team,
                                 const lierne_collective *spec);

lierne_status lierne_collective_begin(lierne_plan **out, lierne_context *context) {
    LIERNE_NULL_OUTPUT(out);
    return context ? lierne_context_alive(context)
                   : LIERNE_FAIL(LIERNE_ERR_INVALID, "context is NULL");
}

lierne_status lierne_collective_side(lierne_plan_side *side, int rank, int64_t in, int64_t out,
                                     int64_t min_elements) {
    side->naxes = 1;
    side->in[0] = in;
    side->out[0] = out;
    side->min_elements = min_elements;
    LIERNE_TRY(lierne_route_create(&side->route, rank, in, out));
    return LIERNE_VEC_PUSH(&side->owned, lierne_block_range(0, out));
}

lierne_status lierne_collective_absent(lierne_plan_side *sides, int rank) {
    LIERNE_TRY(lierne_collective_side(&sides[LIERNE_DIRECTION_FORWARD], rank, 0, 0, 0));
    return lierne_collective_side(&sides[LIERNE_DIRECTION_ADJOINT], rank, 0, 0, 0);
}

/* Why a collective has no adjoint; NULL: it has one. */
static const char *reason_without_adjoint(const lierne_collective *spec) {
    static const char *const reasons[] = {
        [LIERNE_REDUCTION_MAX] = "its reduction is LIERNE_REDUCTION_MAX, and only "
                                 "LIERNE_REDUCTION_SUM and LIERNE_REDUCTION_AVG have one",
        [LIERNE_REDUCTION_MIN] = "its reduction is LIERNE_REDUCTION_MIN, and only "
                                 "LIERNE_REDUCTION_SUM and LIERNE_REDUCTION_AVG have one",
        [LIERNE_REDUCTION_PROD] = "its reduction is LIERNE_REDUCTION_PROD, and only "
                                  "LIERNE_REDUCTION_SUM and LIERNE_REDUCTION_AVG have one",
        [LIERNE_REDUCTION_AVG] = NULL,
    };
    bool copies = spec->kind == LIERNE_ALL_GATHER || spec->kind == LIERNE_BROADCAST;
    return copies && lierne_dtype_is_opaque(spec->dtype)
               ? "its dtype can only be copied, and the adjoint would sum"
               : reasons[spec->reduction];
}

static const char *kind_of(const lierne_collective *spec) {
    return spec->kind == LIERNE_ALL_GATHER       ? "all_gather"
           : spec->kind == LIERNE_REDUCE_SCATTER ? "reduce_scatter"
           : spec->kind == LIERNE_ALL_REDUCE     ? "all_reduce"
           : spec->kind == LIERNE_BROADCAST      ? "broadcast"
                                                 : "barrier";
}

static bool is_divided(const lierne_collective *spec) {
    return spec->kind == LIERNE_ALL_REDUCE || spec->kind == LIERNE_BROADCAST;
}

static const char *algorithm_of(const lierne_collective *spec) {
    return spec->kind == LIERNE_BARRIER                              ? "dissemination"
           : !is_divided(spec)                                       ? "direct"
           : spec->algorithm == LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT ? "two_shot"
                                                                     : "one_shot";
}

static lierne_status fill_parts(lierne_plan_parts *parts, const lierne_team *team,
                                const lierne_collective *spec, fill_sides *fill, int rank) {
    parts->kind = kind_of(spec);
    parts->dtype = spec->dtype;
    parts->max_inflight = spec->max_inflight ? spec->max_inflight : 1;
    parts->group = spec->group;
    parts->in_place = spec->kind == LIERNE_ALL_REDUCE; /* every element stays where it is */
    parts->algorithm[LIERNE_DIRECTION_FORWARD] = parts->algorithm[LIERNE_DIRECTION_ADJOINT] =
        algorithm_of(spec);
    parts->no_adjoint = reason_without_adjoint(spec);
    LIERNE_TRY(team->me >= 0 ? fill(parts->side, team, spec)
                             : lierne_collective_absent(parts->side, rank));
    if (parts->no_adjoint) {
        parts->side[LIERNE_DIRECTION_ADJOINT].owned.count = 0; /* nothing writes it */
    }
    return LIERNE_OK;
}

/* status: that of taking the spec. */
static lierne_status create_collective(lierne_plan **out, lierne_context *context,
                                       lierne_status status, const lierne_collective *given,
                                       fill_sides *fill) {
    lierne_plan_parts parts = {0};
    lierne_plan_fields fields = {0};
    lierne_collective spec = *given;
    lierne_team team;
    if (status == LIERNE_OK && !out) {
        status = LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: out is NULL", context->rank);
    }
    if (status == LIERNE_OK) {
        status = lierne_collective_check(&team, context, &spec);
    }
    if (status == LIERNE_OK) {
        status = lierne_collective_read_environment(&spec.algorithm, context->rank);
    }
    if (status == LIERNE_OK) {
        lierne_collective_compare(&fields, &team, &spec);
        int64_t size = (int64_t)lierne_dtype_size(spec.dtype);
        spec.algorithm = lierne_collective_choose(spec.algorithm, team.n, spec.count * size);
        status = fill_parts(&parts, &team, &spec, fill, context->rank);
    }
    parts.name = given->name;
    return lierne_plan_new(out, context, status, &parts, fields.at, fields.count);
}

static lierne_status gather_sides(lierne_plan_side *sides, const lierne_team *team,
                                  const int64_t *parts, const lierne_collective *spec) {
    int rank = lierne_team_rank(team, team->me), others = team->n - 1;
    int64_t all = parts[team->n], own = parts[team->me + 1] - parts[team->me];
    lierne_plan_side *forward = &sides[LIERNE_DIRECTION_FORWARD],
                     *adjoint = &sides[LIERNE_DIRECTION_ADJOINT];
    LIERNE_TRY(lierne_collective_side(forward, rank, own, all, all - own));
    LIERNE_TRY(lierne_collective_side(adjoint, rank, all, own, others * own));
    LIERNE_TRY(lierne_route_all_gather(forward->route, team, parts, 0));
    return reason_without_adjoint(spec)
               ? LIERNE_OK
               : lierne_route_reduce_scatter(adjoint->route, team, parts, LIERNE_REDUCTION_SUM);
}

static lierne_status fill_all_gather(lierne_plan_side *sides, const lierne_team *team,
                                     const lierne_collective *spec) {
    int64_t *parts;
    LIERNE_TRY(lierne_parts_by_count(&parts, team->n, spec->count, spec->counts));
    lierne_status status = gather_sides(sides, team, parts, spec);
    lierne_mem_free(parts);
    return status;
}

lierne_status lierne_plan_create_all_gather(lierne_plan **out, lierne_context *context,
                                            const lierne_all_gather_spec *given) {
    LIERNE_PUBLIC_CALL();
    lierne_all_gather_spec s = {0};
    LIERNE_TRY(lierne_collective_begin(out, context));
    lierne_status status = lierne_spec_take_at(&s, sizeof s, given, context->rank);
    const lierne_collective spec = {.kind = LIERNE_ALL_GATHER,
                                    .ranks = s.ranks,
                                    .nranks = s.nranks,
                                    .count = s.count,
                                    .counts = s.counts,
                                    .dtype = s.dtype,
                                    .max_inflight = s.max_inflight,
                                    .group = s.group,
                                    .name = s.name};
    return create_collective(out, context, status, &spec, fill_all_gather);
}

static lierne_status scatter(lierne_plan_side *sides, const lierne_team *team, const int64_t *parts,
                             const lierne_collective *spec) {
    int rank = lierne_team_rank(team, team->me), others = team->n - 1;
    int64_t all = parts[team->n], own = parts[team->me + 1] - parts[team->me];
    lierne_plan_side *forward = &sides[LIERNE_DIRECTION_FORWARD],
                     *adjoint = &sides[LIERNE_DIRECTION_ADJOINT];
    LIERNE_TRY(lierne_collective_side(forward, rank, all, own, others * own));
    LIERNE_TRY(lierne_collective_side(adjoint, rank, own, all, all - own));
    LIERNE_TRY(lierne_route_reduce_scatter(forward->route, team, parts, spec->reduction));
    return reason_without_adjoint(spec)
               ? LIERNE_OK
               : lierne_route_all_gather(adjoint->route, team, parts,
                                         spec->reduction == LIERNE_REDUCTION_AVG ? team->n : 0);
}

static lierne_status fill_reduce_scatter(lierne_plan_side *sides, const lierne_team *team,
                                         const lierne_collective *spec) {
    int64_t *parts;
    LIERNE_TRY(lierne_parts_by_count(&parts, team->n, spec->count, spec->counts));
    lierne_status status = scatter(sides, team, parts, spec);
    lierne_mem_free(parts);
    return status;
}

lierne_status lierne_plan_create_reduce_scatter(lierne_plan **out, lierne_context *context,
                                                const lierne_reduce_scatter_spec *given) {
    LIERNE_PUBLIC_CALL();
    lierne_reduce_scatter_spec s = {0};
    LIERNE_TRY(lierne_collective_begin(out, context));
    lierne_status status = lierne_spec_take_at(&s, sizeof s, given, context->rank);
    const lierne_collective spec = {.kind = LIERNE_REDUCE_SCATTER,
                                    .ranks = s.ranks,
                                    .nranks = s.nranks,
                                    .count = s.count,
                                    .counts = s.counts,
                                    .dtype = s.dtype,
                                    .reduction = s.reduction,
                                    .max_inflight = s.max_inflight,
                                    .group = s.group,
                                    .name = s.name};
    return create_collective(out, context, status, &spec, fill_reduce_scatter);
}

/* What one rank must receive: as reducer of its part, and as receiver of the others. */
static int64_t min_all_reduce(const lierne_team *team, const int64_t *parts) {
    int64_t own = parts[team->me + 1] - parts[team->me];
    return (team->n - 1) * own + parts[team->n] - own;
}

static lierne_status all_reduce(lierne_plan_side *sides, const lierne_team *team,
                                const int64_t *parts, const lierne_collective *spec) {
    int rank = lierne_team_rank(team, team->me), n = reason_without_adjoint(spec) ? 1 : 2;
    int64_t count = parts[team->n], least = min_all_reduce(team, parts);
    LIERNE_TRY(lierne_collective_side(&sides[LIERNE_DIRECTION_FORWARD], rank, count, count, least));
    LIERNE_TRY(lierne_collective_side(&sides[LIERNE_DIRECTION_ADJOINT], rank, count, count, least));
    for (int d = 0; d < n; d++) {
        LIERNE_TRY(spec->algorithm == LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT
                       ? lierne_route_two_shot(sides[d].route, team, parts, spec->reduction)
                       : lierne_route_one_shot(sides[d].route, team, parts, spec->reduction));
    }
    return LIERNE_OK;
}

static lierne_status fill_all_reduce(lierne_plan_side *sides, const lierne_team *team,
                                     const lierne_collective *spec) {
    int64_t *parts;
    LIERNE_TRY(lierne_parts_two_shot(&parts, team->n, spec->count, spec->dtype));
    lierne_status status = all_reduce(sides, team, parts, spec);
    lierne_mem_free(parts);
    return status;
}

lierne_status lierne_plan_create_all_reduce(lierne_plan **out, lierne_context *context,
                                            const lierne_all_reduce_spec *given) {
    LIERNE_PUBLIC_CALL();
    lierne_all_reduce_spec s = {0};
    LIERNE_TRY(lierne_collective_begin(out, context));
    lierne_status status = lierne_spec_take_at(&s, sizeof s, given, context->rank);
    const lierne_collective spec = {.kind = LIERNE_ALL_REDUCE,
                                    .ranks = s.ranks,
                                    .nranks = s.nranks,
                                    .count = s.count,
                                    .dtype = s.dtype,
                                    .reduction = s.reduction,
                                    .algorithm = s.algorithm,
                                    .max_inflight = s.max_inflight,
                                    .group = s.group,
                                    .name = s.name};
    return create_collective(out, context, status, &spec, fill_all_reduce);
}

static lierne_status broadcast(lierne_plan_side *sides, const lierne_team *team,
                               const int64_t *parts, const lierne_collective *spec, int root) {
    int rank = lierne_team_rank(team, team->me);
    int64_t count = parts[team->n], at_root = team->me == root ? count : 0;
    lierne_plan_side *forward = &sides[LIERNE_DIRECTION_FORWARD],
                     *adjoint = &sides[LIERNE_DIRECTION_ADJOINT];
    LIERNE_TRY(lierne_collective_side(forward, rank, at_root, count, count - at_root));
    LIERNE_TRY(lierne_collective_side(adjoint, rank, count, at_root, (team->n - 1) * at_root));
    LIERNE_TRY(lierne_route_broadcast(forward->route, team, parts, root));
    return reason_without_adjoint(spec) ? LIERNE_OK
                                        : lierne_route_reduce_to(adjoint->route, team, parts, root);
}

static lierne_status fill_broadcast(lierne_plan_side *sides, const lierne_team *team,
                                    const lierne_collective *spec) {
    int64_t *parts;
    int root = lierne_team_find(team, *spec->root);
    LIERNE_TRY(spec->algorithm == LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT
                   ? lierne_parts_two_shot(&parts, team->n, spec->count, spec->dtype)
                   : lierne_parts_at(&parts, team->n, spec->count, root));
    lierne_status status = broadcast(sides, team, parts, spec, root);
    lierne_mem_free(parts);
    return status;
}

lierne_status lierne_plan_create_broadcast(lierne_plan **out, lierne_context *context,
                                           const lierne_broadcast_spec *given) {
    LIERNE_PUBLIC_CALL();
    lierne_broadcast_spec s = {0};
    LIERNE_TRY(lierne_collective_begin(out, context));
    lierne_status status = lierne_spec_take_at(&s, sizeof s, given, context->rank);
    const lierne_collective spec = {.kind = LIERNE_BROADCAST,
                                    .ranks = s.ranks,
                                    .nranks = s.nranks,
                                    .count = s.count,
                                    .dtype = s.dtype,
                                    .algorithm = s.algorithm,
                                    .root = &s.root,
                                    .max_inflight = s.max_inflight,
                                    .group = s.group,
                                    .name = s.name};
    return create_collective(out, context, status, &spec, fill_broadcast);
}

static lierne_status fill_barrier(lierne_plan_side *sides, const lierne_team *team,
                                  const lierne_collective *spec) {
    (void)spec;
    for (int d = 0; d < 2; d++) {
        LIERNE_TRY(lierne_collective_side(&sides[d], lierne_team_rank(team, team->me), 0, 0, 0));
        LIERNE_TRY(lierne_route_barrier(sides[d].route, team));
    }
    return LIERNE_OK;
}

lierne_status lierne_plan_create_barrier(lierne_plan **out, lierne_context *context,
                                         const lierne_barrier_spec *given) {
    LIERNE_PUBLIC_CALL();
    lierne_barrier_spec s = {0};
    LIERNE_TRY(lierne_collective_begin(out, context));
    lierne_status status = lierne_spec_take_at(&s, sizeof s, given, context->rank);
    const lierne_collective spec = {.kind = LIERNE_BARRIER,
                                    .ranks = s.ranks,
                                    .nranks = s.nranks,
                                    .dtype = LIERNE_DTYPE_U8,
                                    .max_inflight = s.max_inflight,
                                    .group = s.group,
                                    .name = s.name};
    return create_collective(out, context, status, &spec, fill_barrier);
}
