/* Threads rather than processes, so that a failure is seen in one debugger and memory counts add
 * up. */
#include "unit/ranks.h"

#include "base/base.h"

#include <criterion/criterion.h>
#include <pthread.h>

typedef struct worker {
    pthread_t thread;
    lierne_context *context;
    void (*work)(lierne_context *context, void *shared);
    void *shared;
} worker;

static void *run(void *argument) {
    const worker *w = argument;
    w->work(w->context, w->shared);
    return NULL;
}

void ranks_run(int world, const lierne_context_spec *spec,
               void (*work)(lierne_context *context, void *shared), void *shared) {
    enum { MOST = 64 };
    worker workers[MOST];
    lierne_sim *sim;
    size_t live = lierne_mem_live();
    cr_assert(world >= 1 && world <= MOST);
    cr_assert_eq(lierne_sim_create(&sim, world, spec), LIERNE_OK, "%s", lierne_last_error());
    for (int r = 0; r < world; r++) {
        workers[r] =
            (worker){.context = lierne_sim_context(sim, r), .work = work, .shared = shared};
        cr_assert_eq(pthread_create(&workers[r].thread, NULL, run, &workers[r]), 0);
    }
    for (int r = 0; r < world; r++) {
        pthread_join(workers[r].thread, NULL);
    }
    cr_assert_eq(lierne_sim_free(sim), LIERNE_OK, "%s", lierne_last_error());
    cr_assert_eq(lierne_mem_live(), live, "%zu allocations are left", lierne_mem_live() - live);
}
