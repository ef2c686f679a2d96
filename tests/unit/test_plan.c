/* Plans as users see them: aliases, requests, threads, deadlines, calls that are compared, groups.
 */
#include "unit/expect.h"
#include "unit/plan_case.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

Test(plan, fan_out_along_the_leading_axis_is_an_alias) {
    lierne_grid *src = grid(4, 4, 1, 1), *dst = grid(4, 1, 1, 4);
    lierne_bridge_spec spec = spec_of(src, dst);
    lierne_sim *sim = sim_of(4, 5);
    lierne_plan *plans[4];
    float in[64], out[16];
    for (int i = 0; i < 64; i++) {
        in[i] = (float)(i + 1);
    }
    for (int r = 0; r < 4; r++) {
        int64_t offset;
        assert_ok(lierne_plan_create_bridge(&plans[r], lierne_sim_get_context(sim, r), &spec));
        assert_ok(lierne_plan_get_alias(&offset, plans[r], LIERNE_DIRECTION_FORWARD));
        cr_assert_eq(offset, 16 * r);
        assert_ok(lierne_plan_forward(plans[r], NULL, in, NULL));
        memset(out, 0xa5, sizeof out);
        assert_ok(lierne_plan_forward(plans[r], out, in, NULL));
        cr_assert_eq(memcmp(out, in + offset, sizeof out), 0);
        assert_ok(lierne_plan_get_alias(&offset, plans[r], LIERNE_DIRECTION_ADJOINT));
        cr_assert_eq(offset, -1, "the adjoint gathers");
    }
    spec.batch_axis = 1;
    spec.sequence_axis = 0;
    for (int r = 0; r < 4; r++) {
        lierne_plan *strided;
        int64_t offset;
        assert_ok(lierne_plan_create_bridge(&strided, lierne_sim_get_context(sim, r), &spec));
        lierne_plan_get_alias(&offset, strided, LIERNE_DIRECTION_FORWARD);
        cr_assert_eq(offset, -1, "a narrow of an inner axis is no alias");
        cr_assert_eq(lierne_plan_forward(strided, NULL, in, NULL), LIERNE_ERR_INVALID);
        lierne_plan_destroy(strided);
        lierne_plan_destroy(plans[r]);
    }
    assert_ok(lierne_sim_destroy(sim));
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

typedef struct worker {
    lierne_context *context;
    const lierne_bridge_spec *spec;
    test_algorithm algorithm;
    int rounds;
    int bad;
} worker;

static void *work(void *arg) {
    worker *w = arg;
    lierne_plan *plan;
    float in[64], out[64], back[64];
    if (test_plan_bridge(&plan, w->context, w->spec, w->algorithm) != LIERNE_OK) {
        w->bad = 1;
        return NULL;
    }
    int dp = lierne_context_get_rank(w->context) / 2; /* of the source: tp2 dp4 */
    for (int i = 0; i < w->rounds; i++) {
        for (int k = 0; k < 16; k++) {
            in[k] = (float)(16 * dp + k + i);
        }
        memset(out, 0xa5, sizeof out);
        w->bad |= lierne_plan_forward(plan, out, in, NULL) != LIERNE_OK;
        for (int k = 0; k < 32; k++) {
            w->bad |= out[k] != (float)(dp / 2 * 32 + k + i);
        }
        w->bad |= lierne_plan_adjoint(plan, back, out, NULL) != LIERNE_OK;
        for (int k = 0; k < 16; k++) { /* both cp ranks gave the whole: their sum */
            w->bad |= back[k] != 2 * in[k];
        }
    }
    w->bad |= lierne_plan_destroy(plan) != LIERNE_OK;
    return NULL;
}

Test(plan, blocking_calls_on_a_thread_per_rank) {
    lierne_grid *src = grid(8, 2, 1, 4), *dst = grid(8, 2, 2, 2);
    for (int a = 0; a < 2; a++) {
        lierne_bridge_spec spec = spec_of(src, dst);
        lierne_sim *sim = sim_of(8, 30);
        pthread_t threads[8];
        worker workers[8];
        for (int r = 0; r < 8; r++) {
            workers[r] = (worker){lierne_sim_get_context(sim, r), &spec, (test_algorithm)a, 50, 0};
            cr_assert_eq(pthread_create(&threads[r], NULL, work, &workers[r]), 0);
        }
        for (int r = 0; r < 8; r++) {
            pthread_join(threads[r], NULL);
            cr_assert(!workers[r].bad, "rank %d", r);
        }
        assert_ok(lierne_sim_destroy(sim));
    }
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

Test(plan, requests_in_flight_and_busy) {
    lierne_grid *src = grid(2, 1, 1, 2), *dst = grid(2, 2, 1, 1);
    lierne_bridge_spec spec = spec_of(src, dst);
    spec.max_inflight = 2;
    lierne_sim *sim = sim_of(2, 5);
    lierne_plan *plans[2];
    lierne_request *q[2][3];
    float in[2][3][32], out[2][3][64];
    for (int r = 0; r < 2; r++) {
        assert_ok(lierne_plan_create_bridge(&plans[r], lierne_sim_get_context(sim, r), &spec));
    }
    for (int i = 0; i < 2; i++) {
        for (int r = 0; r < 2; r++) {
            for (int k = 0; k < 32; k++) {
                in[r][i][k] = (float)(1000 * i + 100 * r + k);
            }
            cr_assert_eq(lierne_plan_forward_begin(&q[r][i], plans[r], out[r][i], in[r][i], NULL),
                         0);
        }
    }
    assert_error(lierne_plan_forward_begin(&q[0][2], plans[0], out[0][2], in[0][2], NULL),
                 LIERNE_ERR_BUSY, "all 2 requests are in flight");
    cr_assert_null(q[0][2]);
    cr_assert_eq(lierne_plan_destroy(plans[0]), LIERNE_ERR_BUSY);
    for (int i = 1; i >= 0; i--) { /* ended in reverse order */
        for (int r = 0; r < 2; r++) {
            assert_ok(lierne_request_end(q[r][i]));
            cr_assert(out[r][i][0] == (float)(1000 * i) &&
                      out[r][i][32] == (float)(1000 * i + 100));
        }
    }
    /* The second of two ended first: a third can begin while the first is in flight. */
    for (int i = 0; i < 2; i++) {
        for (int r = 0; r < 2; r++) {
            cr_assert_eq(lierne_plan_forward_begin(&q[r][i], plans[r], out[r][i], in[r][i], NULL),
                         0);
        }
    }
    for (int k = 0; k < 100; k++) { /* after 64 calls tags repeat: the first must end before */
        lierne_status status[2];
        for (int r = 0; r < 2; r++) {
            cr_assert_eq(lierne_request_end(q[r][1]), k < 63 ? LIERNE_OK : LIERNE_ERR_INVALID);
            status[r] = lierne_plan_forward_begin(&q[r][2], plans[r], out[r][2], in[r][1], NULL);
            q[r][1] = q[r][2] ? q[r][2] : q[r][1];
        }
        cr_assert(status[0] == status[1]);
        cr_assert_eq(status[0], k < 62 ? LIERNE_OK : LIERNE_ERR_BUSY, "call %d: %s", k,
                     lierne_last_error());
    }
    for (int r = 0; r < 2; r++) {
        assert_ok(lierne_request_end(q[r][0]));
        cr_assert(out[r][2][32] == 1100.0f);
    }
    cr_assert_eq(lierne_request_end(q[0][0]), LIERNE_ERR_INVALID, "ending twice");
    assert_ok(lierne_request_end(NULL));
    for (int r = 0; r < 2; r++) {
        assert_ok(lierne_plan_destroy(plans[r]));
    }
    lierne_sim_destroy(sim);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

Test(plan, a_rank_that_waits_for_nobody_times_out) {
    lierne_grid *src = grid(2, 1, 1, 2), *dst = grid(2, 2, 1, 1);
    lierne_bridge_spec spec = spec_of(src, dst);
    lierne_sim *sim = sim_of(2, 0.2);
    lierne_plan *plans[2];
    lierne_request *request;
    float x[32] = {1}, y[64];
    for (int r = 0; r < 2; r++) {
        assert_ok(lierne_plan_create_bridge(&plans[r], lierne_sim_get_context(sim, r), &spec));
    }
    double start = lierne_now();
    cr_assert_eq(lierne_plan_forward(plans[0], y, x, NULL), LIERNE_ERR_TIMEOUT);
    cr_assert(lierne_now() - start < 10);
    assert_says("rank 0: forward 0 of plan 0, stage 0 of 1: 1 of 2 messages "
                "missing after 0.2 s, with rank 1");
    cr_assert_eq(lierne_plan_forward_begin(&request, plans[0], y, x, NULL), LIERNE_ERR_TIMEOUT,
                 "it is dead");
    const char *dead = "lierne_plan_forward_begin: the context is dead, destroy it; "
                       "lierne_plan_forward failed: rank 0: ";
    cr_assert_eq(strncmp(lierne_last_error(), dead, strlen(dead)), 0, "%s", lierne_last_error());
    char dump[1024], little[10];
    assert_ok(lierne_context_dump(dump, sizeof dump, lierne_sim_get_context(sim, 0)));
    cr_assert(strstr(dump, "rank 0 of 2 over sim: 2 calls\n"), "%s", dump);
    cr_assert(strstr(dump, "in flight: forward 0 of plan 0, stage 0 of 1"), "%s", dump);
    cr_assert(strstr(dump, "waits for rank 1 (sim)\n"), "%s", dump);
    const char *planning = strstr(dump, "\nplanning, LIERNE_OK after");
    cr_assert(planning && strtod(strstr(planning, "after") + 5, NULL) < 10, "%s", dump);
    assert_ok(lierne_context_dump(little, sizeof little, lierne_sim_get_context(sim, 1)));
    cr_assert_eq(lierne_plan_forward(plans[1], y, x, NULL), LIERNE_ERR_TIMEOUT,
                 "rank 0 gave up before");
    assert_says("lierne_plan_forward: rank 0 gave up: lierne_plan_forward: rank 0: ");
    cr_assert_str_eq(little, "rank 1 of");
    cr_assert_eq(lierne_context_dump(dump, sizeof dump, NULL), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_context_dump(dump, 0, lierne_sim_get_context(sim, 1)), LIERNE_ERR_INVALID);
    lierne_plan *third;
    cr_assert_eq(lierne_plan_create_bridge(&third, lierne_sim_get_context(sim, 0), &spec),
                 LIERNE_ERR_TIMEOUT);
    for (int r = 0; r < 2; r++) {
        assert_ok(lierne_plan_destroy(plans[r]));
    }
    assert_ok(lierne_sim_destroy(sim));
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
}

/* Where the context checks, calls that differ are found before data moves. */
Test(plan, calls_are_compared_where_the_context_checks) {
    lierne_grid *src = grid(2, 1, 1, 2), *dst = grid(2, 2, 1, 1);
    lierne_bridge_spec spec = spec_of(src, dst);
    lierne_context_spec context = {.size = sizeof context, .timeout = 60, .check = 1};
    float x[64] = {1, 2, 3}, y[64], z[64];
    for (int kind = 0; kind < 2; kind++) {
        lierne_sim *sim;
        lierne_plan *a[2], *b[2];
        lierne_request *q[2];
        assert_ok(lierne_sim_create(&sim, 2, &context));
        for (int r = 0; r < 2; r++) {
            lierne_plan_create_bridge(&a[r], lierne_sim_get_context(sim, r), &spec);
            lierne_plan_create_bridge(&b[r], lierne_sim_get_context(sim, r), &spec);
        }
        for (int r = 0; r < 2; r++) {
            assert_ok(lierne_plan_forward_begin(&q[r], a[r], r ? z : y, x, NULL));
        }
        assert_ok(lierne_request_end(q[0]));
        assert_ok(lierne_request_end(q[1]));
        assert_ok(lierne_plan_forward_begin(&q[0], a[0], y, x, NULL));
        memset(z, 0x5a, sizeof z);
        cr_assert_eq(kind ? lierne_plan_forward(b[1], z, x, NULL)
                          : lierne_plan_adjoint(a[1], z, x, NULL),
                     LIERNE_ERR_MISMATCH);
        assert_says(kind ? "plan differs between ranks: 0 on rank 0, 1 on "
                           "rank 1"
                         : "ranks make different calls: forward on rank 0, "
                           "adjoint on rank 1: ");
        cr_assert_eq(((unsigned char *)z)[0], 0x5a, "nothing moved");
        cr_assert_eq(lierne_request_end(q[0]), LIERNE_ERR_MISMATCH, "who called first is told");
        for (int r = 0; r < 2; r++) {
            lierne_plan_destroy(a[r]), lierne_plan_destroy(b[r]);
        }
        assert_ok(lierne_sim_destroy(sim));
    }
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
}

Test(plan, groups_are_shared_and_freed_with_the_last_plan) {
    lierne_grid *src = grid(8, 2, 1, 4), *dst = grid(8, 2, 2, 2);
    lierne_bridge_spec spec = spec_of(src, dst);
    lierne_sim *sim = sim_of(8, 5);
    lierne_plan *a, *b;
    lierne_report report = {.size = sizeof report};
    const lierne_megatron_spec megatron = {sizeof megatron, LIERNE_MEGATRON_ALGORITHM_COLLECTIVE,
                                           &spec};
    lierne_context *context = lierne_sim_get_context(sim, 3);
    assert_ok(lierne_plan_create_megatron(&a, context, &megatron));
    cr_assert_eq(lierne_context_get_ngroups(lierne_sim_get_context(sim, 3)), 2);
    assert_ok(lierne_plan_create_megatron(&b, context, &megatron));
    cr_assert_eq(lierne_context_get_ngroups(lierne_sim_get_context(sim, 3)), 2);
    assert_ok(lierne_plan_get_report(&report, b, LIERNE_DIRECTION_ADJOINT));
    cr_assert_eq(report.groups, 2);
    lierne_plan_destroy(a);
    cr_assert_eq(lierne_context_get_ngroups(lierne_sim_get_context(sim, 3)), 2);
    lierne_plan_destroy(b);
    cr_assert_eq(lierne_context_get_ngroups(lierne_sim_get_context(sim, 3)), 0);
    lierne_sim_destroy(sim);
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
}
