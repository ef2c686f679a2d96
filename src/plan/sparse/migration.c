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

static lierne_status check_update(const lierne_plan *plan, lierne_migration_spec *spec,
                                  const lierne_migration_spec *given) {
    const lierne_star_forest_saved_spec *saved = lierne_star_forest_saved_spec_of(plan);
    int rank = lierne_plan_context(plan)->rank;
    if (!saved || !saved->forest.migrates) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: the plan is not a migration", rank);
    }
    LIERNE_TRY(lierne_plan_check_changeable(plan));
    LIERNE_TRY(lierne_spec_take_at(spec, sizeof *spec, given, rank));
    return lierne_star_forest_check_type(saved, spec->dtype, spec->width, spec->max_inflight);
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
