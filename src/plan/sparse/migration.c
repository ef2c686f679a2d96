/* Plans of migrations: migration_rows.c finds what moves, and the planner of star forests makes the
 * plan, whose owned rows are those before and whose ghosts are those afterwards. */
#include "plan/plan.h"
#include "plan/sparse/sparse_saved_spec.h"

static lierne_star_forest_spec forest_of(const lierne_migration_spec *s) {
    return (lierne_star_forest_spec){.references = {.size = sizeof(lierne_references_spec),
                                                    .nowned = s->nrows,
                                                    .dtype = s->dtype,
                                                    .width = s->width,
                                                    .stride = s->stride,
                                                    .algorithm = LIERNE_GRAPH_ALGORITHM_DIRECT,
                                                    .max_inflight = s->max_inflight,
                                                    .group = s->group,
                                                    .name = s->name},
                                     .nrows = -1,
                                     .migrates = true,
                                     .to = s->owner};
}

lierne_status lierne_plan_create_migration(lierne_plan **out, lierne_context *context,
                                           const lierne_migration_spec *given) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_migration_spec spec = {0};
    LIERNE_TRY(lierne_check_set(context, "context"));
    LIERNE_TRY(lierne_context_alive(context));
    lierne_status status =
        out ? lierne_spec_take_at(&spec, sizeof spec, given, context->rank)
            : LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: out is NULL", context->rank);
    const lierne_star_forest_spec forest = forest_of(&spec);
    return lierne_plan_star_forest(out, context, status, &forest);
}

static bool migrates(const lierne_plan *plan) {
    const lierne_star_forest_saved_spec *saved = lierne_star_forest_saved_spec_of(plan);
    return saved && saved->forest.migrates;
}

static lierne_status take_update(lierne_migration_spec *spec, const lierne_plan *plan,
                                 const lierne_migration_spec *given) {
    LIERNE_TRY(lierne_spec_take_at(spec, sizeof *spec, given, lierne_plan_context(plan)->rank));
    return lierne_star_forest_check_type(lierne_star_forest_saved_spec_of(plan), spec->dtype,
                                         spec->width, spec->max_inflight);
}

static lierne_status check_update(const lierne_plan *plan, lierne_migration_spec *spec,
                                  const lierne_migration_spec *given) {
    if (!migrates(plan)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: the plan is not a migration",
                           lierne_plan_context(plan)->rank);
    }
    LIERNE_TRY(lierne_plan_check_changeable(plan));
    return take_update(spec, plan, given);
}

lierne_status lierne_plan_update_migration(lierne_plan *plan, const lierne_migration_spec *given) {
    LIERNE_PUBLIC_CALL();
    lierne_migration_spec spec = {0};
    LIERNE_TRY(lierne_check_set(plan, "plan"));
    LIERNE_TRY(lierne_context_alive(lierne_plan_context(plan)));
    lierne_status status = check_update(plan, &spec, given);
    const lierne_star_forest_spec forest = forest_of(&spec);
    return lierne_plan_update_star_forest(plan, status, &forest);
}

static lierne_plan *find_migration(const lierne_coalesced *coalesced) {
    int i = 0;
    while (lierne_coalesced_plan(coalesced, i) && !migrates(lierne_coalesced_plan(coalesced, i))) {
        i++;
    }
    return lierne_coalesced_plan(coalesced, i);
}

static lierne_status check_coalesced(const lierne_coalesced *coalesced, const lierne_plan *plan,
                                     lierne_migration_spec *spec,
                                     const lierne_migration_spec *given) {
    if (!plan) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: none of the coalesced plans is a migration",
                           lierne_coalesced_context(coalesced)->rank);
    }
    LIERNE_TRY(lierne_coalesced_check_changeable(coalesced, plan));
    return take_update(spec, plan, given);
}

lierne_status lierne_coalesced_update_migration(lierne_coalesced *coalesced,
                                                const lierne_migration_spec *given) {
    LIERNE_PUBLIC_CALL();
    lierne_migration_spec spec = {0};
    LIERNE_TRY(lierne_check_set(coalesced, "coalesced"));
    LIERNE_TRY(lierne_context_alive(lierne_coalesced_context(coalesced)));
    const lierne_plan *plan = find_migration(coalesced);
    lierne_status status = check_coalesced(coalesced, plan, &spec, given);
    const lierne_star_forest_spec forest = forest_of(&spec);
    return lierne_coalesced_update_star_forest(coalesced, plan, status, &forest);
}
