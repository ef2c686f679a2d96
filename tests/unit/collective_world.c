#include "unit/collective_world.h"
#include "rank_threads.h"
#include "unit/expect.h"

#include <criterion/criterion.h>

static void plan_one(lierne_context *context, void *shared) {
    collective_world *w = shared;
    collective_case_plan(&w->plans[lierne_context_get_rank(context)], context, w->c);
}

void collective_world_open(collective_world *w, const collective_case *c, int n) {
    *w = (collective_world){.c = c, .n = n};
    assert_ok(lierne_sim_create(&w->sim, n, NULL));
    w->transports = test_transports_attach_asked(w->sim, n);
    w->streams = test_streams_attach_asked(w->sim, n);
    if (collective_case_waits(c)) {
        rank_threads(w->sim, n, plan_one, w);
    } else {
        for (int r = 0; r < n; r++) {
            plan_one(lierne_sim_get_context(w->sim, r), w);
        }
    }
    for (int r = 0; r < n; r++) {
        cr_assert_not_null(w->plans[r], "%s, rank %d: %s", collective_case_text(c), r,
                           lierne_last_error());
    }
}

void collective_world_close(collective_world *w) {
    for (int r = 0; r < w->n; r++) {
        assert_ok(lierne_plan_destroy(w->plans[r]));
    }
    assert_ok(lierne_sim_destroy(w->sim));
    test_streams_destroy(w->streams);
    cr_assert(test_transports_destroy(w->transports));
}
