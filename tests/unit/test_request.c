/* Requests that are tested and progressed instead of waited for. */
#include "base/base.h"
#include "bridge_plan.h"
#include "lierne.h"
#include "lierne/sim.h"
#include "mesh.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <string.h>

enum { RANKS = 2, ROWS = 5 };

typedef struct world {
    lierne_sim *sim;
    lierne_plan *plans[RANKS];
    float in[RANKS][2 * ROWS], out[RANKS][2 * ROWS];
} world;

/* A sample on each rank; the output is both. */
static void open_world(world *w, double timeout) {
    static const int64_t shape[3] = {2, ROWS, 1};
    const lierne_context_spec context = {.size = sizeof context, .timeout = timeout};
    lierne_grid *src = grid_of(1, 1, 2, RANKS), *dst = grid_of(1, 2, 1, RANKS);
    const lierne_bridge_spec spec = bridge_spec_of(src, dst, shape);
    assert_ok(lierne_sim_create(&w->sim, RANKS, &context));
    for (int r = 0; r < RANKS; r++) {
        assert_ok(
            lierne_plan_create_bridge(&w->plans[r], lierne_sim_get_context(w->sim, r), &spec));
        for (int i = 0; i < 2 * ROWS; i++) {
            w->in[r][i] = (float)(100 * r + i + 1);
        }
        memset(w->out[r], 0xa5, sizeof w->out[r]);
    }
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

static void close_world(world *w) {
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_plan_destroy(w->plans[r]));
    }
    assert_ok(lierne_sim_destroy(w->sim));
    cr_assert_eq(lierne_mem_live(), 0);
}

static lierne_request *begin(world *w, int r) {
    lierne_request *request;
    assert_ok(lierne_plan_forward_begin(&request, w->plans[r], w->out[r], w->in[r], NULL));
    return request;
}

Test(request, is_done_when_its_data_is_there) {
    world w;
    int done[RANKS] = {0};
    open_world(&w, 30);
    lierne_request *first = begin(&w, 0);
    for (int i = 0; i < 100; i++) {
        cr_assert(lierne_request_test(&done[0], first) == LIERNE_OK && !done[0],
                  "done without rank 1");
    }
    lierne_request *second = begin(&w, 1);
    while (!done[0] || !done[1]) {
        assert_ok(lierne_request_test(&done[0], first));
        assert_ok(lierne_request_test(&done[1], second));
    }
    for (int i = 0; i < 2 * ROWS; i++) {
        cr_assert(w.out[0][i] == w.in[i / ROWS][i % ROWS] && w.out[1][i] == w.out[0][i],
                  "element %d is %g", i, (double)w.out[0][i]);
    }
    assert_ok(lierne_request_test(&done[0], first));
    cr_assert(done[0], "no longer done");
    assert_ok(lierne_request_end(first));
    assert_ok(lierne_request_end(second));
    cr_assert_eq(lierne_request_test(&done[0], first), LIERNE_ERR_INVALID, "it has ended");
    assert_says("has ended");
    close_world(&w);
}

Test(request, progress_needs_no_request) {
    world w;
    int done = 0;
    open_world(&w, 30);
    lierne_request *requests[RANKS] = {begin(&w, 0), begin(&w, 1)};
    for (int i = 0; i < 10; i++) {
        assert_ok(lierne_context_progress(lierne_sim_get_context(w.sim, i % RANKS)));
    }
    cr_assert(w.out[0][2 * ROWS - 1] == w.in[1][ROWS - 1], "nothing progressed");
    assert_ok(lierne_request_test(&done, requests[0]));
    cr_assert(done);
    assert_ok(lierne_request_end(requests[0]));
    assert_ok(lierne_request_end(requests[1]));
    close_world(&w);
}

/* A loop of tests is a wait: it has the deadline of one. */
Test(request, a_loop_of_tests_times_out) {
    world w;
    int done = 0;
    size_t borrowed = 9;
    lierne_status status = LIERNE_OK;
    open_world(&w, 0.2);
    lierne_request *request = begin(&w, 0);
    while (status == LIERNE_OK && !done) {
        status = lierne_request_test(&done, request);
    }
    cr_assert_eq(status, LIERNE_ERR_TIMEOUT, "%s", lierne_status_name(status));
    assert_says("with rank 1 (sim)");
    lierne_context *context = lierne_sim_get_context(w.sim, 0);
    cr_assert_eq(lierne_context_progress(context), LIERNE_ERR_TIMEOUT, "the context is dead");
    cr_assert_eq(lierne_request_end(request), LIERNE_ERR_TIMEOUT);
    cr_assert_eq(lierne_context_get_borrowed(NULL, 0, &borrowed, context), LIERNE_ERR_INVALID);
    assert_ok(lierne_plan_destroy(w.plans[0]));
    w.plans[0] = NULL;
    assert_ok(lierne_context_get_borrowed(NULL, 0, &borrowed, context));
    cr_assert_eq(borrowed, 0, "messages of a simulated world are copies");
    close_world(&w);
}

Test(request, bad_arguments) {
    world w;
    int done;
    size_t n;
    open_world(&w, 30);
    cr_assert_eq(lierne_request_test(&done, NULL), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_context_progress(NULL), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_context_get_borrowed(NULL, 0, &n, NULL), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_context_get_borrowed(NULL, 1, &n, lierne_sim_get_context(w.sim, 0)),
                 LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_context_get_borrowed(NULL, 0, NULL, lierne_sim_get_context(w.sim, 0)),
                 LIERNE_ERR_INVALID);
    lierne_request *requests[RANKS] = {begin(&w, 0), begin(&w, 1)};
    cr_assert_eq(lierne_request_test(NULL, requests[0]), LIERNE_ERR_INVALID);
    assert_ok(lierne_request_end(requests[0]));
    assert_ok(lierne_request_end(requests[1]));
    close_world(&w);
}
