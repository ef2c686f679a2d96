/* Ranks that are threads: all of them are in this process, so results need no messages to be
 * combined. */
#include "rank_threads.h"
#include "row_case.h"

lierne_status golden_ranks_start(golden_world *world) {
    lierne_context_spec spec = {.size = sizeof spec, .timeout = 120};
    world->here = world->n;
    return lierne_sim_create(&world->sim, world->n, &spec);
}

lierne_status golden_ranks_end(golden_world *world) {
    return lierne_sim_destroy(world->sim);
}

void golden_ranks_run(const golden_world *world,
                      void (*work)(lierne_context *context, void *shared), void *shared) {
    rank_threads(world->sim, world->n, work, shared);
}

void golden_ranks_sum(double *values, int n) {
    (void)values, (void)n;
}

double golden_ranks_most(double value) {
    return value;
}

void golden_ranks_agree(golden_case *c) {
    (void)c;
}
