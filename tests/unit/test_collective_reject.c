/* Bad specs of collectives, specs that differ between ranks, plans without an adjoint, and memory
 * that ends at any allocation. That a fault is the error of every rank is in
 * tests/mpi/collective.c: ranks of a simulated world that plan before the bad one learn it later.
 */
#include "base/base.h"
#include "collectives.h"
#include "unit/collective_case.h"
#include "unit/collective_faults.h"
#include "unit/expect.h"
#include "unit/ranks.h"

#include "lierne/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { WORLD = 3, BAD = 1 };

typedef struct attempt {
    const collective_fault *fault;
    lierne_status status[WORLD];
    char message[WORLD][300];
    bool planned[WORLD];
} attempt;

static void try_to_plan(lierne_context *context, void *shared) {
    attempt *a = shared;
    int rank = lierne_context_get_rank(context);
    lierne_plan *plan = (lierne_plan *)&a; /* must become NULL */
    a->status[rank] = collective_fault_plan(&plan, context, a->fault, rank == BAD);
    a->planned[rank] = plan != NULL;
    if (a->status[rank] != LIERNE_OK) {
        snprintf(a->message[rank], sizeof a->message[rank], "%s", lierne_last_error());
    } else {
        lierne_plan_destroy(plan);
    }
}

static void check_attempt(const attempt *a) {
    int failed = 0;
    for (int r = 0; r < WORLD; r++) {
        cr_expect_eq(a->planned[r], a->status[r] == LIERNE_OK, "%s", a->fault->name);
        failed += a->status[r] != LIERNE_OK;
        if (a->status[r] != LIERNE_OK) {
            cr_expect_eq(a->status[r], a->fault->status, "%s: %s", a->fault->name, a->message[r]);
            cr_expect(strstr(a->message[r], a->fault->text), "%s: '%s'", a->fault->name,
                      a->message[r]);
            cr_expect(strstr(a->message[r], "lierne_plan_create_") == a->message[r], "%s",
                      a->message[r]);
        }
    }
    cr_expect(failed > 0 &&
                  (a->fault->status == LIERNE_ERR_MISMATCH || a->status[BAD] != LIERNE_OK),
              "%s: %d ranks failed", a->fault->name, failed);
}

Test(collective_reject, a_fault_is_named) {
    for (const collective_fault *fault = collective_faults; fault->name; fault++) {
        attempt a = {.fault = fault};
        ranks_run(WORLD, NULL, try_to_plan, &a);
        check_attempt(&a);
    }
}

Test(collective_reject, in_place_but_all_reduces) {
    const lierne_all_gather_spec gather = all_gather_of(2, LIERNE_DTYPE_I32);
    const lierne_all_reduce_spec reduce =
        all_reduce_of(2, LIERNE_DTYPE_I32, LIERNE_COLLECTIVE_ALGORITHM_AUTO);
    lierne_context *context;
    lierne_plan *plans[2];
    int32_t data[3] = {3, 5, 7};
    assert_ok(lierne_context_create_self(&context, NULL));
    assert_ok(lierne_plan_create_all_gather(&plans[0], context, &gather));
    assert_ok(lierne_plan_create_all_reduce(&plans[1], context, &reduce));
    cr_expect_eq(lierne_plan_forward(plans[0], data, data, NULL), LIERNE_ERR_INVALID);
    expect_says("in and out overlap");
    cr_expect_eq(lierne_plan_forward(plans[1], data, data + 1, NULL), LIERNE_ERR_INVALID);
    expect_says("in and out overlap");
    assert_ok(lierne_plan_forward(plans[1], data, data, NULL));
    cr_expect(data[0] == 3 && data[1] == 5);
    lierne_plan_destroy(plans[0]);
    lierne_plan_destroy(plans[1]);
    assert_ok(lierne_context_destroy(context));
}

Test(collective_reject, without_a_context_or_a_place_for_the_plan) {
    const lierne_barrier_spec barrier = {.size = sizeof barrier};
    const lierne_all_to_all_spec exchange = {.size = sizeof exchange, .dtype = LIERNE_DTYPE_F64};
    lierne_context *context;
    lierne_plan *plan = (lierne_plan *)&context;
    cr_expect_eq(lierne_plan_create_barrier(&plan, NULL, &barrier), LIERNE_ERR_INVALID);
    cr_expect_null(plan);
    cr_expect_eq(lierne_plan_create_all_to_all(&plan, NULL, &exchange), LIERNE_ERR_INVALID);
    assert_ok(lierne_context_create_self(&context, NULL));
    cr_expect_eq(lierne_plan_create_barrier(NULL, context, &barrier), LIERNE_ERR_INVALID);
    expect_says("rank 0: out is NULL");
    cr_expect_eq(lierne_plan_create_all_to_all(NULL, context, &exchange), LIERNE_ERR_INVALID);
    expect_says("rank 0: out is NULL");
    assert_ok(lierne_context_destroy(context));
}

static void expect_no_adjoint(lierne_status status) {
    cr_expect_eq(status, LIERNE_ERR_INVALID);
    expect_says("the plan has no adjoint: its reduction is LIERNE_REDUCTION_MAX");
}

static void check_getters(const lierne_plan *plan) {
    int64_t n, in[LIERNE_MAX_AXES], out[LIERNE_MAX_AXES];
    int naxes;
    char *text;
    const lierne_route *route;
    lierne_report report = {.size = sizeof report};
    const void *output;
    expect_no_adjoint(lierne_plan_get_elements(&n, &n, plan, LIERNE_DIRECTION_ADJOINT));
    expect_no_adjoint(lierne_plan_get_shape(&naxes, in, out, plan, LIERNE_DIRECTION_ADJOINT));
    expect_no_adjoint(lierne_plan_get_alias(&n, plan, LIERNE_DIRECTION_ADJOINT));
    expect_no_adjoint(lierne_plan_get_shared_output(&output, plan, LIERNE_DIRECTION_ADJOINT));
    expect_no_adjoint(lierne_plan_get_route(&route, plan, LIERNE_DIRECTION_ADJOINT));
    expect_no_adjoint(lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_ADJOINT));
    expect_no_adjoint(lierne_plan_print(&text, plan, LIERNE_DIRECTION_ADJOINT));
}

/* A plan that gathers, on one rank: it has an adjoint, and its output is the other one's input. */
static lierne_plan *plan_gather(lierne_context *context) {
    const lierne_all_gather_spec spec = all_gather_of(4, LIERNE_DTYPE_F64);
    lierne_plan *plan;
    assert_ok(lierne_plan_create_all_gather(&plan, context, &spec));
    return plan;
}

static void check_made_of(lierne_plan *plan, lierne_plan *gather) {
    const double x[4] = {1, -2, 3, -4};
    double y[4];
    lierne_plan *composed[2], *transposed;
    lierne_coalesced *both;
    lierne_plan *const pair[2] = {plan, gather};
    expect_no_adjoint(lierne_plan_create_transposed(&transposed, plan));
    assert_ok(lierne_plan_create_composed(&composed[0], plan, gather));
    assert_ok(lierne_plan_create_composed(&composed[1], gather, plan));
    for (int i = 0; i < 2; i++) {
        expect_ok(lierne_plan_check((const lierne_plan *const *)&composed[i], 1));
        memset(y, 0xa5, sizeof y);
        expect_ok(lierne_plan_forward(composed[i], y, x, NULL));
        cr_expect_eq(memcmp(y, x, sizeof y), 0);
        expect_no_adjoint(lierne_plan_adjoint(composed[i], y, x, NULL));
        lierne_plan_destroy(composed[i]);
    }
    assert_ok(lierne_coalesced_create(&both, pair, 2));
    expect_no_adjoint(lierne_coalesced_begin(both, LIERNE_DIRECTION_ADJOINT, (void *[]){y, y},
                                             (const void *[]){x, x}, NULL));
    assert_ok(lierne_coalesced_destroy(both));
}

Test(collective_reject, a_maximum_has_no_adjoint) {
    const lierne_all_reduce_spec spec = {.size = sizeof spec,
                                         .count = 4,
                                         .dtype = LIERNE_DTYPE_F64,
                                         .reduction = LIERNE_REDUCTION_MAX};
    const double x[4] = {1, -2, 3, -4};
    double y[4];
    lierne_context *context;
    lierne_plan *plan;
    lierne_request *request;
    assert_ok(lierne_context_create_self(&context, NULL));
    assert_ok(lierne_plan_create_all_reduce(&plan, context, &spec));
    lierne_plan *gather = plan_gather(context);
    expect_no_adjoint(lierne_plan_adjoint(plan, y, x, NULL));
    expect_no_adjoint(lierne_plan_adjoint_begin(&request, plan, y, x, NULL));
    check_getters(plan);
    check_made_of(plan, gather);
    cr_expect_eq(lierne_plan_reduce(plan, LIERNE_REDUCTION_MAX, y, x, NULL), LIERNE_ERR_INVALID);
    lierne_plan_destroy(plan);
    lierne_plan_destroy(gather);
    assert_ok(lierne_context_destroy(context));
    cr_assert_eq(lierne_mem_live(), 0);
}

Test(collective_reject, products_and_minima_say_which_they_are) {
    static const char *const names[] = {[LIERNE_REDUCTION_MIN] = "LIERNE_REDUCTION_MIN",
                                        [LIERNE_REDUCTION_PROD] = "LIERNE_REDUCTION_PROD"};
    lierne_context *context;
    double x[1] = {7}, y[1];
    assert_ok(lierne_context_create_self(&context, NULL));
    for (int reduction = LIERNE_REDUCTION_MIN; reduction <= LIERNE_REDUCTION_PROD; reduction++) {
        const lierne_reduce_scatter_spec spec = {.size = sizeof spec,
                                                 .count = 1,
                                                 .dtype = LIERNE_DTYPE_F64,
                                                 .reduction = (lierne_reduction)reduction};
        lierne_plan *plan;
        assert_ok(lierne_plan_create_reduce_scatter(&plan, context, &spec));
        cr_expect_eq(lierne_plan_adjoint(plan, y, x, NULL), LIERNE_ERR_INVALID);
        expect_says(names[reduction]);
        lierne_plan_destroy(plan);
    }
    assert_ok(lierne_context_destroy(context));
}

static void forward_opaque(lierne_plan *const *plans, const char *words) {
    unsigned char in[2][64], out[2][64], kept[64];
    lierne_request *requests[2];
    int64_t n;
    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < 64; i++) {
            in[r][i] = (unsigned char)(7 * i + 101 * r + 3);
        }
        memset(out[r], 0xa5, sizeof out[r]);
        assert_ok(lierne_plan_forward_begin(&requests[r], plans[r], out[r], in[r], NULL));
    }
    for (int r = 0; r < 2; r++) {
        assert_ok(lierne_request_end(requests[r]));
        assert_ok(lierne_plan_get_elements(NULL, &n, plans[r], LIERNE_DIRECTION_FORWARD));
        cr_expect_eq(lierne_plan_adjoint(plans[r], kept, kept, NULL), LIERNE_ERR_INVALID);
        expect_says(words);
        cr_expect_eq(memcmp(out[r], in[0], 16 * (size_t)n > 32 ? 32 : 16 * (size_t)n), 0);
        lierne_plan_destroy(plans[r]);
    }
}

/* What can only be copied is gathered and broadcast, and not summed. */
Test(collective_reject, opaque_elements_have_no_sum) {
    const lierne_all_gather_spec gather = all_gather_of(2, LIERNE_DTYPE_BITS128);
    const lierne_broadcast_spec broadcast = {.size = sizeof broadcast,
                                             .count = 3,
                                             .dtype = LIERNE_DTYPE_BITS128,
                                             .algorithm = LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT};
    const lierne_all_reduce_spec reduce =
        all_reduce_of(2, LIERNE_DTYPE_BITS8, LIERNE_COLLECTIVE_ALGORITHM_AUTO);
    lierne_sim *sim;
    lierne_plan *plans[2], *none;
    assert_ok(lierne_sim_create(&sim, 2, NULL));
    for (int kind = 0; kind < 2; kind++) {
        for (int r = 0; r < 2; r++) {
            lierne_context *context = lierne_sim_get_context(sim, r);
            cr_assert_eq(kind ? lierne_plan_create_broadcast(&plans[r], context, &broadcast)
                              : lierne_plan_create_all_gather(&plans[r], context, &gather),
                         LIERNE_OK, "%s", lierne_last_error());
        }
        forward_opaque(plans, "the plan has no adjoint: its dtype can only be copied");
    }
    cr_expect_eq(lierne_plan_create_all_reduce(&none, lierne_sim_get_context(sim, 0), &reduce),
                 LIERNE_ERR_INVALID);
    expect_says("dtype bits8 can only be copied");
    assert_ok(lierne_sim_destroy(sim));
}

static void expect_kind(const lierne_plan *plan, const char *kind) {
    cr_expect_str_eq(lierne_plan_get_kind(plan), kind);
}

Test(collective_reject, plans_know_their_kind) {
    static const char *const kinds[] = {"all_gather", "reduce_scatter", "all_reduce",
                                        "broadcast",  "all_to_all",     "barrier"};
    lierne_context *context;
    assert_ok(lierne_context_create_self(&context, NULL));
    for (int kind = ALL_GATHER; kind < COLLECTIVE_KINDS; kind++) {
        collective_case c = {.kind = (collective_kind)kind,
                             .n = 1,
                             .even = true,
                             .dtype = LIERNE_DTYPE_F64};
        lierne_plan *plan;
        cr_assert_eq(collective_case_plan(&plan, context, &c), LIERNE_OK);
        expect_kind(plan, kinds[kind]);
        lierne_plan_destroy(plan);
    }
    assert_ok(lierne_context_destroy(context));
}

/* Plans on the first of two ranks while the k-th allocation fails; true once it has not. */
static bool plan_without(const collective_case *c, size_t k) {
    lierne_sim *sim;
    lierne_plan *plan = NULL;
    assert_ok(lierne_sim_create(&sim, c->n, NULL));
    lierne_mem_fail_at(k);
    lierne_status status = collective_case_plan(&plan, lierne_sim_get_context(sim, 0), c);
    lierne_mem_fail_at(0);
    cr_expect(status == LIERNE_OK || status == LIERNE_ERR_NO_MEMORY, "%s", lierne_last_error());
    cr_expect_eq(plan != NULL, status == LIERNE_OK);
    lierne_plan_destroy(plan);
    assert_ok(lierne_sim_destroy(sim));
    return status == LIERNE_OK;
}

Test(collective_reject, no_memory_at_any_allocation) {
    for (int v = 0; v < COLLECTIVE_KINDS * 2; v++) {
        collective_case c = {.kind = (collective_kind)(v / 2),
                             .even = v % 2,
                             .dtype = LIERNE_DTYPE_F32,
                             .algorithm = LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT};
        size_t k = 1;
        c.n = collective_case_waits(&c) ? 1 : 4; /* counts of its own would wait for the others */
        c.reduction = c.kind == REDUCE_SCATTER ? LIERNE_REDUCTION_AVG : LIERNE_REDUCTION_SUM;
        collective_case_size(&c, 9);
        while (k < 1000 && !plan_without(&c, k)) {
            k++;
        }
        cr_expect(k > 5 && k < 1000, "%zu allocations", k);
        cr_assert_eq(lierne_mem_live(), 0, "%s: %zu are left", collective_case_text(&c),
                     lierne_mem_live());
    }
}
