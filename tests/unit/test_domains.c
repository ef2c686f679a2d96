/* Order domains: over a transport that is ordered, a call waits for earlier ones of its own domain,
 * the context's or a group's, and for no others. Which groups a plan may be in. */
#include "backend/sim/sim_transport.h"
#include "base/base.h"
#include "collectives.h"
#include "rank_threads.h"
#include "runtime/context/context.h"

#include <criterion/criterion.h>
#include <lierne.h>
#include <string.h>

#include "unit/group_case.h"
#include "unit/ranks.h"

enum { COUNT = 8 };

static lierne_transport ordered;

/* A state per group, where the transport has them: here the context's. */
static lierne_status group_state_create(void *self, const lierne_transport_group *group,
                                        double timeout, void **out) {
    (void)timeout;
    *out = group->n > 0 ? self : NULL;
    return LIERNE_OK;
}

static lierne_status group_state_destroy(void *state, double timeout, bool alone) {
    (void)state, (void)timeout, (void)alone;
    return LIERNE_OK;
}

static const lierne_transport_groups groups = {.by_all = true,
                                               .create = group_state_create,
                                               .destroy = group_state_destroy};

typedef struct gate {
    group_state state;
    bool isolated; /* y is in a group */
    bool states;   /* the transport has one per group */
} gate;

static void use_ordered(lierne_context *context, bool states) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    ordered = *context->carriers[0].transport;
    ordered.ordered = true;
    ordered.groups = states ? &groups : NULL;
    pthread_mutex_unlock(&lock);
    context->carriers[0].transport = &ordered;
}

static lierne_group *make_group(lierne_context *context, int n) {
    static const int ranks[4] = {0, 1, 2, 3};
    const lierne_group_spec spec = group_spec_of("ep", 1, n, ranks);
    lierne_group *group = NULL;
    return lierne_group_create(&group, context, &spec) == LIERNE_OK ? group : NULL;
}

/* A sum in two stages, the second of which is not posted before the first is complete. */
static lierne_status make_x(lierne_plan **x, lierne_context *context) {
    const lierne_all_reduce_spec spec =
        all_reduce_of(COUNT, LIERNE_DTYPE_I32, LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT);
    return lierne_plan_create_all_reduce(x, context, &spec);
}

static lierne_status make_y(lierne_plan **y, lierne_context *context, lierne_group *group) {
    const lierne_all_to_all_spec spec = {.size = sizeof spec,
                                         .count = COUNT / 2,
                                         .dtype = LIERNE_DTYPE_I32,
                                         .group = group};
    return lierne_plan_create_all_to_all(y, context, &spec);
}

/* Rank 1 withholds its part of x until y is complete. */
static lierne_status pass(lierne_context *context, lierne_plan *x, lierne_plan *y) {
    int in[COUNT] = {1, 2, 3, 4, 5, 6, 7, 8}, out[2][COUNT];
    lierne_request *requests[2];
    bool first = context->rank == 0;
    LIERNE_TRY(lierne_plan_forward_begin(&requests[0], first ? x : y, out[0], in, NULL));
    if (first) {
        LIERNE_TRY(lierne_plan_forward_begin(&requests[1], y, out[1], in, NULL));
        lierne_status status = lierne_request_end(requests[1]);
        lierne_status other = lierne_request_end(requests[0]);
        return status == LIERNE_OK ? other : status;
    }
    LIERNE_TRY(lierne_request_end(requests[0]));
    return lierne_plan_forward(x, out[1], in, NULL);
}

static void run_gate(lierne_context *context, void *shared) {
    gate *g = shared;
    lierne_plan *x = NULL, *y = NULL;
    use_ordered(context, g->states);
    lierne_group *group = make_group(context, 2);
    NOTE(&g->state, group != NULL);
    NOTE(&g->state, make_x(&x, context) == LIERNE_OK);
    NOTE(&g->state, make_y(&y, context, g->isolated ? group : NULL) == LIERNE_OK);
    group_keep(&g->state, context, pass(context, x, y));
    lierne_plan_destroy(y);
    lierne_plan_destroy(x);
    lierne_group_destroy(group);
}

static void open_gate(bool isolated, bool states, bool opens) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = opens ? 20 : 0.5};
    gate g = {.isolated = isolated, .states = states};
    ordered = (lierne_transport){0};
    group_run(2, &spec, run_gate, &g.state);
    for (int r = 0; r < 2; r++) {
        cr_assert_eq(g.state.kept[r] == LIERNE_OK, opens, "rank %d: %s", r, g.state.message[r]);
    }
}

Test(domains, a_call_in_a_group_does_not_wait_for_one_outside) {
    open_gate(true, true, true);
}

Test(domains, a_call_without_a_group_waits_for_those_before_it) {
    open_gate(false, true, false);
}

Test(domains, a_transport_without_states_of_groups_has_one_order) {
    open_gate(true, false, false);
}

/* Of the first n ranks. The lists make planning wait for all ranks, so that all have one result. */
static lierne_status make_waiting(lierne_context *context, lierne_group *group, int n) {
    static const int ranks[4] = {0, 1, 2, 3};
    static const int64_t counts[4] = {2, 2, 2, 2};
    lierne_plan *plan = NULL;
    const lierne_all_to_all_spec spec = {.size = sizeof spec,
                                         .ranks = ranks,
                                         .nranks = n,
                                         .send_counts = counts,
                                         .dtype = LIERNE_DTYPE_I32,
                                         .group = group};
    lierne_status status = lierne_plan_create_all_to_all(&plan, context, &spec);
    lierne_plan_destroy(plan);
    return status;
}

static void reject_groups(lierne_context *context, void *shared) {
    group_state *s = shared;
    lierne_plan *plan = NULL, *other = NULL, *plans[2];
    lierne_coalesced *both = NULL;
    lierne_group *group = make_group(context, 2), *old = make_group(context, 4);
    NOTE(s, make_waiting(context, group, 2) == LIERNE_OK);
    NOTE(s, make_waiting(context, group, 4) == LIERNE_ERR_INVALID &&
                strstr(lierne_last_error(), "group 'ep' (uid 1) has not rank 2"));
    NOTE(s, make_waiting(context, context->rank == 0 ? group : NULL, 2) == LIERNE_ERR_MISMATCH &&
                strstr(lierne_last_error(), "group differs between ranks"));
    NOTE(s, make_waiting(context, context->rank == 0 ? group : old, 2) == LIERNE_ERR_MISMATCH);
    NOTE(s, make_y(&plan, context, old) == LIERNE_OK && make_y(&other, context, NULL) == LIERNE_OK);
    NOTE(s, lierne_group_destroy(old) == LIERNE_ERR_BUSY &&
                strstr(lierne_last_error(), "1 plans are in the group 'ep'"));
    plans[0] = plan;
    plans[1] = other;
    NOTE(s, lierne_coalesced_create(&both, plans, 2) == LIERNE_ERR_INVALID && !both);
    lierne_plan_destroy(other);
    NOTE(s, lierne_plan_create_transposed(&other, plan) == LIERNE_OK);
    NOTE(s, lierne_plan_destroy(plan) == LIERNE_OK);
    NOTE(s, lierne_group_destroy(old) == LIERNE_ERR_BUSY);
    lierne_plan_destroy(other);
    NOTE(s, lierne_group_destroy(old) == LIERNE_OK);
    NOTE(s, make_y(&plan, context, old) == LIERNE_ERR_INVALID &&
                strstr(lierne_last_error(), "is of another context, or was destroyed"));
    lierne_group_destroy(group);
}

Test(domains, a_plan_is_in_a_group_with_its_ranks) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 20};
    group_state s = {0};
    group_run(4, &spec, reject_groups, &s);
}
