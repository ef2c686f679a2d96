/* Redistribution between any two layouts: random ones against a model, and every rejection. */
#include "bridge_plan.h"
#include "layouts.h"
#include "routing.h"
#include "seeds.h"
#include "unit/expect.h"
#include "unit/redistribute_case.h"

#include "base/base.h"
#include "lierne/sim.h"
#include "route/route.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8, SEEDS = 1500 };

typedef struct buffers {
    char *in[MOST];
    char *out[MOST];
    size_t bytes[MOST]; /* of out */
} buffers;

static void open_buffers(buffers *b, const redistribute_case *c, lierne_plan **plans,
                         lierne_direction d) {
    size_t size = lierne_dtype_size(c->dtype);
    for (int r = 0; r < c->world; r++) {
        int64_t in, out;
        assert_ok(lierne_plan_get_elements(&in, &out, plans[r], d));
        b->bytes[r] = (size_t)out * size;
        b->in[r] = malloc((size_t)in * size + 1);
        b->out[r] = malloc(b->bytes[r] + 1);
        memset(b->in[r], 0x7b, (size_t)in * size);
        redistribute_fill(c, r, d, b->in[r]);
    }
}

static void execute(const redistribute_case *c, lierne_plan **plans, lierne_direction d,
                    buffers *b) {
    lierne_request *requests[MOST];
    bool shared = (c->sharing >> d & 1) != 0;
    for (int r = 0; r < c->world; r++) {
        memset(b->out[r], 0xa5, b->bytes[r]);
        cr_assert_eq((d ? lierne_plan_adjoint_begin
                        : lierne_plan_forward_begin)(&requests[r], plans[r],
                                                     shared ? NULL : b->out[r], b->in[r], NULL),
                     LIERNE_OK, "%s", lierne_last_error());
    }
    for (int r = 0; r < c->world; r++) {
        const void *out;
        assert_ok(lierne_request_end(requests[r]));
        if (shared) {
            assert_ok(lierne_plan_get_shared_output(&out, plans[r], d));
            redistribute_copy_owned(c, r, d, b->out[r], out);
        }
    }
}

/* Runs a direction twice; returns the dot product of its output. */
static int64_t run(const redistribute_case *c, lierne_plan **plans, lierne_direction d,
                   uint64_t seed) {
    buffers b;
    int64_t dot = 0;
    open_buffers(&b, c, plans, d);
    for (int round = 0; round < 2; round++) {
        execute(c, plans, d, &b);
        for (int r = 0; r < c->world; r++) {
            const char *wrong = redistribute_check(c, r, d, b.out[r]);
            cr_assert(!wrong, "seed %llu: %s\n%s", (unsigned long long)seed, wrong,
                      redistribute_text(c));
        }
    }
    for (int r = 0; r < c->world; r++) {
        dot += c->dtype == LIERNE_DTYPE_I64 ? redistribute_dot(c, r, d, b.out[r]) : 0;
        free(b.in[r]);
        free(b.out[r]);
    }
    return dot;
}

/* No rank has more peers than it may, nor sends on what nobody passed to it. */
static void expect_few_peers(const redistribute_case *c, lierne_plan **plans, uint64_t seed) {
    for (int r = 0; r < c->world && c->max_peers > 0; r++) {
        for (int d = 0; d < 2; d++) {
            bool met[MOST] = {false};
            int peers = 0;
            const lierne_route *route;
            assert_ok(lierne_plan_get_route(&route, plans[r], (lierne_direction)d));
            for (size_t i = 0; i < route->stages.count; i++) {
                const lierne_messages *lists[2] = {&route->stages.at[i].sends,
                                                   &route->stages.at[i].recvs};
                for (size_t k = 0; k < lists[0]->count + lists[1]->count; k++) {
                    bool sends = k < lists[0]->count;
                    int peer = lists[!sends]->at[sends ? k : k - lists[0]->count].peer;
                    peers += !met[peer];
                    met[peer] = true;
                }
            }
            cr_assert_leq(peers, c->max_peers, "seed %llu: rank %d has %d peers, may have %d\n%s",
                          (unsigned long long)seed, r, peers, c->max_peers, redistribute_text(c));
        }
    }
}

/* What all ranks receive is the lower bound. */
static void expect_fewest_bytes(const redistribute_case *c, lierne_plan **plans, uint64_t seed) {
    for (int d = 0; d < 2; d++) {
        int64_t received = 0, least = 0;
        for (int r = 0; r < c->world; r++) {
            lierne_report report = {.size = sizeof report};
            assert_ok(lierne_plan_get_report(&report, plans[r], (lierne_direction)d));
            received += report.received_bytes - report.forwarded_bytes;
            least += report.min_bytes;
        }
        cr_assert_eq(received, least, "seed %llu: %lld bytes, at least %lld\n%s",
                     (unsigned long long)seed, (long long)received, (long long)least,
                     redistribute_text(c));
    }
}

/* rules: sharing, routing and max_peers of the case. */
static void run_seed(uint64_t seed, const redistribute_case *rules) {
    redistribute_case c;
    lierne_plan *plans[MOST] = {NULL};
    lierne_sim *sim;
    random_redistribute(&c, seed, 1 + (int)(seed % MOST));
    c.sharing = rules->sharing;
    c.routing = rules->routing;
    c.max_peers = rules->max_peers > 0 ? fewest_peers(c.world) : 0;
    assert_ok(lierne_sim_create(&sim, c.world, NULL));
    for (int r = 0; r < c.world; r++) {
        cr_assert_eq(redistribute_plan(&plans[r], &c, lierne_sim_get_context(sim, r)), LIERNE_OK,
                     "seed %llu: %s\n%s", (unsigned long long)seed, lierne_last_error(),
                     redistribute_text(&c));
    }
    cr_assert_eq(lierne_plan_check((const lierne_plan *const *)plans, c.world), LIERNE_OK,
                 "seed %llu: %s", (unsigned long long)seed, lierne_last_error());
    expect_fewest_bytes(&c, plans, seed);
    expect_few_peers(&c, plans, seed);
    int64_t forward = run(&c, plans, LIERNE_DIRECTION_FORWARD, seed);
    int64_t adjoint = run(&c, plans, LIERNE_DIRECTION_ADJOINT, seed);
    if (!c.stated_adjoint) {
        cr_assert_eq(forward, adjoint, "seed %llu: <Fx, y> is %lld, <x, F*y> is %lld\n%s",
                     (unsigned long long)seed, (long long)forward, (long long)adjoint,
                     redistribute_text(&c));
    }
    for (int r = 0; r < c.world; r++) {
        assert_ok(lierne_plan_destroy(plans[r]));
    }
    assert_ok(lierne_sim_destroy(sim));
}

Test(redistribute, random_layouts_of_any_dims_and_axes) {
    size_t before = lierne_mem_live();
    seed_range seeds = test_seeds(SEEDS);
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        run_seed(seed, &(redistribute_case){.world = 0});
    }
    cr_assert_eq(lierne_mem_live(), before);
}

/* One process shares nothing: the outputs are the plans' own, with the same calls. */
Test(redistribute, outputs_of_the_plan) {
    size_t before = lierne_mem_live();
    for (uint64_t seed = 0; seed < 200; seed++) {
        run_seed(seed, &(redistribute_case){.sharing = (lierne_sharing)(1 + seed % 3)});
    }
    cr_assert_eq(lierne_mem_live(), before);
}

Test(redistribute, over_few_peers) {
    size_t before = lierne_mem_live();
    seed_range seeds = test_seeds(SEEDS / 4);
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        run_seed(seed,
                 &(redistribute_case){.routing = (lierne_routing)(1 + seed % 2), .max_peers = 1});
    }
    cr_assert_eq(lierne_mem_live(), before);
}

/* Blocking calls in a world of one rank, which need no other. */
Test(redistribute, blocking_equals_begin_and_end) {
    lierne_context *self;
    assert_ok(lierne_context_create_self(&self, NULL));
    for (uint64_t seed = 0; seed < 100; seed++) {
        redistribute_case c;
        lierne_plan *plan;
        random_redistribute(&c, seed, 1);
        cr_assert_eq(redistribute_plan(&plan, &c, self), LIERNE_OK, "%s", lierne_last_error());
        for (int d = 0; d < 2; d++) {
            const char *wrong = redistribute_run(&c, plan, 0, (lierne_direction)d, NULL);
            cr_assert(!wrong, "seed %llu: %s", (unsigned long long)seed, wrong);
        }
        lierne_plan_destroy(plan);
    }
    lierne_context_destroy(self);
}

/* --- layouts by hand ---------------------------------------------------------------------------
 */

enum { WORLD = 4 };

/* [6, 4] f32 over two dims of two ranks each. */
static lierne_layout *layout_of(lierne_placement x, lierne_placement y) {
    const mesh dims = {.ndims = 2, .names = {"x", "y"}, .sizes = {2, 2}};
    const int64_t shape[2] = {6, 4};
    const lierne_placement placements[2] = {x, y};
    return layout_over(&dims, WORLD, LIERNE_DTYPE_F32, 2, shape, placements);
}

static const lierne_placement replicate, shard = {.kind = LIERNE_PLACEMENT_SHARD},
                                         partial = {.kind = LIERNE_PLACEMENT_PARTIAL};

/* A contribution of each x rank; after the sum, y cuts the rows and x holds replicas. */
Test(redistribute, the_derived_adjoint_gives_every_contributor_the_whole_gradient) {
    lierne_layout *src = layout_of(partial, replicate), *dst = layout_of(replicate, shard);
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    lierne_plan *plans[WORLD];
    lierne_request *requests[2][WORLD];
    float x[WORLD][24], y[WORLD][12], back[WORLD][24];
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, WORLD, NULL));
    for (int r = 0; r < WORLD; r++) {
        assert_ok(
            lierne_plan_create_redistribute(&plans[r], lierne_sim_get_context(sim, r), &spec));
        for (int i = 0; i < 24; i++) {
            x[r][i] = (float)(i + 100 * (r % 2));
        }
    }
    for (int r = 0; r < WORLD; r++) {
        assert_ok(lierne_plan_forward_begin(&requests[0][r], plans[r], y[r], x[r], NULL));
    }
    for (int r = 0; r < WORLD; r++) {
        assert_ok(lierne_request_end(requests[0][r]));
        for (int i = 0; i < 12; i++) {
            cr_assert(y[r][i] == (float)(2 * (i + 12 * (r / 2)) + 100), "rank %d, %d", r, i);
        }
    }
    for (int r = 0; r < WORLD; r++) {
        assert_ok(lierne_plan_adjoint_begin(&requests[1][r], plans[r], back[r], y[r], NULL));
    }
    for (int r = 0; r < WORLD; r++) {
        assert_ok(lierne_request_end(requests[1][r]));
        for (int i = 0; i < 24; i++) {
            cr_assert(back[r][i] == (float)(2 * i + 100), "rank %d, %d: %g", r, i, back[r][i]);
        }
        assert_ok(lierne_plan_destroy(plans[r]));
    }
    assert_ok(lierne_sim_destroy(sim));
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
}

/* --- routes ------------------------------------------------------------------------------------
 */

static void expect_same_route(const lierne_route *route, const lierne_plan *plan,
                              lierne_direction d) {
    const lierne_route *planned;
    lierne_text a = {0}, b = {0};
    assert_ok(lierne_plan_get_route(&planned, plan, d));
    lierne_route_print(route, &a);
    lierne_route_print(planned, &b);
    cr_assert_str_eq(a.data, b.data);
    cr_assert_eq(route->dtype, planned->dtype);
    cr_assert_eq(route->rank, planned->rank);
    lierne_text_clear(&a);
    lierne_text_clear(&b);
}

Test(redistribute, a_rank_makes_its_route_alone) {
    for (uint64_t seed = 0; seed < 40; seed++) {
        redistribute_case c;
        lierne_sim *sim;
        lierne_plan *plan;
        lierne_route *route;
        int64_t least;
        lierne_report report = {.size = sizeof report};
        random_redistribute(&c, seed, MOST);
        lierne_layout *src = redistribute_layout(&c, CASE_SRC);
        lierne_layout *dst = redistribute_layout(&c, CASE_DST);
        int rank = (int)(seed % MOST);
        assert_ok(lierne_sim_create(&sim, MOST, NULL));
        cr_assert_eq(redistribute_plan(&plan, &c, lierne_sim_get_context(sim, rank)), LIERNE_OK);
        assert_ok(lierne_route_create_redistribute(&route, &least, src, dst, rank, NULL));
        expect_same_route(route, plan, LIERNE_DIRECTION_FORWARD);
        assert_ok(lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_FORWARD));
        cr_assert_eq(least * (int64_t)lierne_dtype_size(c.dtype), report.min_bytes);
        lierne_route_destroy(route);
        lierne_plan_destroy(plan);
        lierne_layout_destroy(src);
        lierne_layout_destroy(dst);
        lierne_sim_destroy(sim);
    }
}

/* Many ranks that all hold what they need: a rank copies its own and plans in a short time. */
Test(redistribute, many_replicas_are_planned_in_a_short_time, .timeout = 10) {
    const int64_t n = 1 << 16;
    const mesh dp = {.ndims = 1, .names = {"dp"}, .sizes = {n}};
    lierne_layout *src = layout_over(&dp, n, LIERNE_DTYPE_F32, 1, &n, &replicate);
    lierne_layout *dst = layout_over(&dp, n, LIERNE_DTYPE_F32, 1, &n, &shard);
    lierne_route *route;
    assert_ok(lierne_route_create_redistribute(&route, NULL, src, dst, 5, NULL));
    cr_assert(route->stages.count == 1 && route->stages.at[0].copies.count == 1);
    cr_assert(route->stages.at[0].sends.count == 0 && route->stages.at[0].recvs.count == 0);
    lierne_route_destroy(route);
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
}

static void route_rejected(const lierne_layout *src, const lierne_layout *dst, int rank,
                           lierne_status wanted, const char *words) {
    lierne_route *route = (lierne_route *)&wanted;
    cr_assert_eq(lierne_route_create_redistribute(&route, NULL, src, dst, rank, NULL), wanted, "%s",
                 words);
    cr_assert_null(route);
    assert_says(words);
}

Test(redistribute, routes_that_do_not_exist) {
    lierne_layout *src = layout_of(shard, replicate), *dst = layout_of(replicate, shard);
    lierne_layout *sums = layout_of(partial, shard);
    cr_assert_eq(lierne_route_create_redistribute(NULL, NULL, src, dst, 0, NULL),
                 LIERNE_ERR_INVALID);
    route_rejected(NULL, dst, 0, LIERNE_ERR_INVALID, "src is NULL");
    route_rejected(src, NULL, 0, LIERNE_ERR_INVALID, "dst is NULL");
    route_rejected(src, dst, -1, LIERNE_ERR_INVALID, "rank is -1, must be in 0 to 3");
    route_rejected(src, dst, WORLD, LIERNE_ERR_INVALID, "rank is 4, must be in 0 to 3");
    route_rejected(src, sums, 0, LIERNE_ERR_UNSUPPORTED, "dim 0 of dst is PARTIAL");
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_layout_destroy(sums);
}

/* --- the bridge is a preset --------------------------------------------------------------------
 */

Test(redistribute, a_bridge_is_a_redistribution_of_its_layouts) {
    const int64_t shape[3] = {8, 4, 3};
    lierne_grid *src = grid_of(2, 1, 4, 8), *dst = grid_of(2, 2, 2, 8);
    for (int owner = LIERNE_GRADIENT_OWNER_PARTIAL; owner <= LIERNE_GRADIENT_OWNER_CONTIGUOUS;
         owner++) {
        lierne_bridge_spec spec = bridge_spec_of(src, dst, shape);
        spec.gradient_owner = (lierne_gradient_owner)owner;
        lierne_layout *l[3];
        lierne_sim *sim;
        lierne_plan *plan;
        assert_ok(lierne_layout_create_bridge(&l[0], &l[1], &l[2], &spec));
        assert_ok(lierne_sim_create(&sim, 8, NULL));
        assert_ok(lierne_plan_create_bridge(&plan, lierne_sim_get_context(sim, 3), &spec));
        for (int d = 0; d < 2; d++) {
            lierne_route *route;
            assert_ok(lierne_route_create_redistribute(&route, NULL, d ? l[2] : l[0],
                                                       d ? l[0] : l[1], 3, NULL));
            expect_same_route(route, plan, (lierne_direction)d);
            lierne_route_destroy(route);
        }
        lierne_plan_destroy(plan);
        lierne_sim_destroy(sim);
        for (int i = 0; i < 3; i++) {
            lierne_layout_destroy(l[i]);
        }
    }
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}
