/* What crosses between nodes, with balanced routing and random nodes: against formulas that know
 * only which rank has and needs which element, and, of larger tensors, against the bounds. */
#include "base/base.h"
#include "seeds.h"
#include "unit/expect.h"
#include "unit/holding.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { SEEDS = 250, BOUNDS = 1000, RANKS = 8, NODES = 4 };

static uint64_t next(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* What moves between nodes: of all, of the busiest node and of the busiest rank. */
typedef struct traffic {
    int64_t between;
    int64_t most_received;
    int64_t most_sent;
    int64_t most_of_rank;
    int64_t received[MAX_WORLD]; /* of each node */
    int64_t sent[MAX_WORLD];
} traffic;

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t elements_with_others(const lierne_messages *messages, const int *nodes, int rank) {
    int64_t n = 0;
    for (size_t m = 0; m < messages->count; m++) {
        n += nodes[messages->at[m].peer] == nodes[rank] ? 0 : messages->at[m].elements;
    }
    return n;
}

/* In bytes of size each. */
static void add_traffic(traffic *t, const lierne_plan *plan, lierne_direction d, const int *nodes,
                        int rank, int64_t size) {
    const lierne_route *route;
    int64_t received = 0;
    assert_ok(lierne_plan_get_route(&route, plan, d));
    for (size_t i = 0; i < route->stages.count; i++) {
        received += size * elements_with_others(&route->stages.at[i].recvs, nodes, rank);
        t->sent[nodes[rank]] +=
            size * elements_with_others(&route->stages.at[i].sends, nodes, rank);
    }
    t->between += received;
    t->received[nodes[rank]] += received;
    t->most_of_rank = larger(t->most_of_rank, received);
    t->most_received = larger(t->most_received, t->received[nodes[rank]]);
    t->most_sent = larger(t->most_sent, t->sent[nodes[rank]]);
}

/* --- the bounds against formulas -----------------------------------------------------------------
 */

/* What the k-th set of elements needs of ranks becomes what it needs of nodes. */
static void to_nodes(const unsigned *ranks, unsigned *of, const int *nodes, int64_t n) {
    for (int64_t e = 0; e < n; e++) {
        of[e] = 0;
        for (int r = 0; r < RANKS; r++) {
            of[e] |= (ranks[e] >> r & 1) << nodes[r];
        }
    }
}

/* Elements that enter a node, which no rank outside the set can take. */
static int64_t entering(const unsigned *have, const unsigned *need, int64_t n, unsigned node,
                        unsigned set) {
    int64_t sum = 0;
    for (int64_t e = 0; e < n; e++) {
        sum += (need[e] & node) && !(have[e] & node) && !(need[e] & node & ~set);
    }
    return sum;
}

static void expected_traffic(traffic *t, const unsigned *have, const unsigned *need, int64_t n,
                             const int *nodes) {
    unsigned has[HOLDING_MOST], lacks[HOLDING_MOST], masks[NODES] = {0};
    to_nodes(have, has, nodes, n);
    to_nodes(need, lacks, nodes, n);
    for (int r = 0; r < RANKS; r++) {
        masks[nodes[r]] |= 1u << r;
    }
    *t = (traffic){.most_sent = holding_most_sent(has, lacks, n, NODES)};
    for (int k = 0; k < NODES; k++) {
        int64_t received = entering(have, need, n, masks[k], masks[k]);
        t->between += received;
        t->most_received = larger(t->most_received, received);
        for (unsigned set = 1; set < 1u << RANKS; set++) {
            int64_t of = __builtin_popcount(set & masks[k]);
            if ((set & ~masks[k]) == 0 && of > 0) {
                int64_t sum = entering(have, need, n, masks[k], set);
                t->most_of_rank = larger(t->most_of_rank, (sum + of - 1) / of);
            }
        }
    }
}

static void expect_bound(const lierne_layout *src, const lierne_layout *dst, const traffic *t,
                         const int *nodes, int64_t size, uint64_t seed) {
    lierne_node_bound bound = {.size = sizeof bound};
    int scattered[RANKS];
    for (int r = 0; r < RANKS; r++) { /* any numbers */
        scattered[r] = 7 - 1000 * nodes[r];
    }
    assert_ok(lierne_redistribute_get_node_bound(&bound, src, dst, scattered));
    cr_expect_eq(bound.between_bytes, t->between * size, "seed %llu", (unsigned long long)seed);
    cr_expect_eq(bound.received_bytes, t->most_received * size, "seed %llu",
                 (unsigned long long)seed);
    cr_expect_eq(bound.sent_bytes, t->most_sent * size, "seed %llu: %lld, formula %lld",
                 (unsigned long long)seed, (long long)bound.sent_bytes,
                 (long long)t->most_sent * size);
    cr_expect_eq(bound.rank_received_bytes, t->most_of_rank * size, "seed %llu: %lld, formula %lld",
                 (unsigned long long)seed, (long long)bound.rank_received_bytes,
                 (long long)t->most_of_rank * size);
}

/* Plans the case; what crosses is what must. */
static void expect_crossing(const redistribute_case *c, const int *nodes, int64_t size,
                            const traffic *expected, uint64_t seed) {
    lierne_sim *sim;
    traffic t = {0};
    const lierne_context_spec spec = {.size = sizeof spec, .nodes = nodes};
    assert_ok(lierne_sim_create(&sim, c->world, &spec));
    for (int r = 0; r < c->world; r++) {
        lierne_plan *plan;
        cr_assert_eq(redistribute_plan(&plan, c, lierne_sim_get_context(sim, r)), LIERNE_OK);
        add_traffic(&t, plan, LIERNE_DIRECTION_FORWARD, nodes, r, size);
        lierne_plan_destroy(plan);
    }
    cr_assert_eq(t.between, expected->between * size, "seed %llu: %lld bytes cross, %lld must\n%s",
                 (unsigned long long)seed, (long long)t.between,
                 (long long)(expected->between * size), redistribute_text(c));
    cr_assert_eq(t.most_received, expected->most_received * size, "seed %llu",
                 (unsigned long long)seed);
    lierne_sim_destroy(sim);
}

static bool compare_formulas(uint64_t seed) {
    redistribute_case c;
    unsigned have[HOLDING_MOST] = {0}, need[HOLDING_MOST] = {0};
    int nodes[RANKS];
    uint64_t state = seed;
    traffic expected;
    random_redistribute(&c, seed, RANKS);
    int64_t n = holding_elements(&c), size = (int64_t)lierne_dtype_size(c.dtype);
    if (holding_has_partial(&c) || n > HOLDING_MOST) {
        return false;
    }
    for (int r = 0; r < RANKS; r++) {
        nodes[r] = (int)(next(&state) % NODES);
    }
    c.stated_adjoint = 0;
    c.routing = LIERNE_ROUTING_BALANCED;
    lierne_layout *src = redistribute_layout(&c, CASE_SRC),
                  *dst = redistribute_layout(&c, CASE_DST);
    holding_find(src, &c, have);
    holding_find(dst, &c, need);
    expected_traffic(&expected, have, need, n, nodes);
    expect_bound(src, dst, &expected, nodes, size, seed);
    expect_crossing(&c, nodes, size, &expected, seed);
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    return expected.between > 0;
}

Test(nodes, every_row_enters_a_node_once_and_bounds_are_those_of_formulas) {
    int compared = 0;
    for (uint64_t seed = 0; seed < BOUNDS; seed++) {
        compared += compare_formulas(seed);
    }
    cr_assert_gt(compared, BOUNDS / 20);
}

Test(nodes, bounds_of_nothing_are_rejected) {
    redistribute_case c;
    int nodes[RANKS] = {0};
    lierne_node_bound bound = {.size = sizeof bound};
    random_redistribute(&c, 1, RANKS);
    lierne_layout *dst = redistribute_layout(&c, CASE_DST);
    assert_error(lierne_redistribute_get_node_bound(&bound, NULL, dst, nodes), LIERNE_ERR_INVALID,
                 "src is NULL");
    assert_error(lierne_redistribute_get_node_bound(&bound, dst, NULL, nodes), LIERNE_ERR_INVALID,
                 "dst is NULL");
    assert_error(lierne_redistribute_get_node_bound(&bound, dst, dst, NULL), LIERNE_ERR_INVALID,
                 "nodes is NULL");
    lierne_layout_destroy(dst);
}

/* --- large tensors against the bounds ------------------------------------------------------------
 */

static struct {
    int cases; /* in which something crosses */
    int node_sent;
    int rank;
    int64_t worst_node; /* thousandths of the bound */
    int64_t worst_rank;
} seen[2];

static void judge(int64_t bytes, int64_t bound, int *above, int64_t *worst) {
    int64_t ratio = bound > 0 ? bytes * 1000 / bound : 1000;
    *above += ratio > 1050;
    *worst = larger(*worst, ratio);
}

static void expect_direction(const bridge_case *c, const traffic *t, lierne_direction d,
                             uint64_t seed) {
    lierne_node_bound bound = {.size = sizeof bound};
    bool sums = d == LIERNE_DIRECTION_ADJOINT && c->owner == LIERNE_GRADIENT_OWNER_PARTIAL;
    cr_assert_eq(case_node_bound(c, d, &bound), LIERNE_OK);
    cr_expect(t->between >= bound.between_bytes && t->most_received >= bound.received_bytes &&
                  t->most_sent >= bound.sent_bytes && t->most_of_rank >= bound.rank_received_bytes,
              "seed %llu, direction %d: less than a bound", (unsigned long long)seed, d);
    cr_expect(sums ||
                  (t->between == bound.between_bytes && t->most_received == bound.received_bytes),
              "seed %llu, direction %d: %lld bytes enter nodes, bound %lld",
              (unsigned long long)seed, d, (long long)t->between, (long long)bound.between_bytes);
    if (t->between > 0 && !sums) {
        seen[d].cases++;
        judge(t->most_sent, bound.sent_bytes, &seen[d].node_sent, &seen[d].worst_node);
        judge(t->most_of_rank, bound.rank_received_bytes, &seen[d].rank, &seen[d].worst_rank);
    }
}

static void run_seed(uint64_t seed) {
    static case_arrays arrays;
    bridge_case c;
    lierne_sim *sim;
    traffic t[2] = {{0}};
    uint64_t state = seed;
    random_case(seed, 2 + (int)(next(&state) % 31), &c, &arrays);
    int count = 2 + (int)(next(&state) % NODES), scattered = next(&state) % 2;
    for (int r = 0; r < c.world; r++) {
        arrays.nodes[r] = scattered ? (int)(next(&state) % (unsigned)count) : r * count / c.world;
    }
    holding_enlarge(&c);
    c.nodes = arrays.nodes;
    c.routing = LIERNE_ROUTING_BALANCED;
    const lierne_context_spec spec = {.size = sizeof spec, .nodes = c.nodes};
    assert_ok(lierne_sim_create(&sim, c.world, &spec));
    for (int r = 0; r < c.world; r++) {
        lierne_plan *plan;
        cr_assert_eq(case_plan(&plan, lierne_sim_get_context(sim, r), &c), LIERNE_OK, "%s",
                     lierne_last_error());
        for (int d = LIERNE_DIRECTION_FORWARD; d <= LIERNE_DIRECTION_ADJOINT; d++) {
            add_traffic(&t[d], plan, (lierne_direction)d, c.nodes, r,
                        (int64_t)lierne_dtype_size(c.dtype));
        }
        lierne_plan_destroy(plan);
    }
    expect_direction(&c, &t[0], LIERNE_DIRECTION_FORWARD, seed);
    expect_direction(&c, &t[1], LIERNE_DIRECTION_ADJOINT, seed);
    lierne_sim_destroy(sim);
}

Test(nodes, busiest_nodes_and_ranks_are_near_the_bound) {
    seed_range seeds = test_seeds(SEEDS);
    size_t before = lierne_mem_live();
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        run_seed(seed);
    }
    for (int d = LIERNE_DIRECTION_FORWARD; d <= LIERNE_DIRECTION_ADJOINT; d++) {
        printf("%s, %d pairs: more than 5%% above the bound: busiest sending node %d (at most "
               "%.3f), busiest rank from other nodes %d (at most %.3f)\n",
               d ? "adjoint" : "forward", seen[d].cases, seen[d].node_sent,
               (double)seen[d].worst_node / 1000, seen[d].rank, (double)seen[d].worst_rank / 1000);
        cr_expect_eq(seen[d].rank, 0, "what enters a node is not divided evenly among its ranks");
    }
    cr_assert_eq(lierne_mem_live(), before);
}
