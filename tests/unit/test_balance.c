/* Balanced routing: how much the busiest ranks move, against the bound; the bound against a
 * formula; the bits against those of direct routing. That results are right is tested by all cases
 * with LIERNE_TEST_ROUTING=balanced (tests/cli/test_balance.sh). */
#include "unit/random_case.h"
#include "unit/redistribute_case.h"

#include "base/base.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 400, BOUNDS = 4000, MOST = 8, LEAST_BYTES = 64 << 10 };

/* --- how much the busiest ranks move -----------------------------------------------------------
 */

typedef struct load {
    int64_t received; /* bytes, of all ranks */
    int64_t minimum;
    int64_t most_received; /* of the busiest one */
    int64_t most_sent;
} load;

static void add_load(load *l, const lierne_plan *plan, lierne_direction d) {
    lierne_report report = {.size = sizeof report};
    cr_assert_eq(lierne_plan_get_report(&report, plan, d), LIERNE_OK);
    l->received += report.received_bytes;
    l->minimum += report.min_bytes;
    l->most_received =
        report.received_bytes > l->most_received ? report.received_bytes : l->most_received;
    l->most_sent = report.sent_bytes > l->most_sent ? report.sent_bytes : l->most_sent;
}

static void load_of(const bridge_case *c, load loads[2]) {
    lierne_sim *sim;
    const lierne_context_spec spec = {.size = sizeof spec, .nodes = c->nodes};
    memset(loads, 0, 2 * sizeof *loads);
    cr_assert_eq(lierne_sim_create(&sim, c->world, &spec), LIERNE_OK);
    for (int r = 0; r < c->world; r++) {
        lierne_plan *plan;
        cr_assert_eq(case_plan_rank(c, lierne_sim_get_context(sim, r), &plan), LIERNE_OK, "%s",
                     lierne_last_error());
        add_load(&loads[0], plan, LIERNE_FORWARD);
        add_load(&loads[1], plan, LIERNE_ADJOINT);
        lierne_plan_destroy(plan);
    }
    lierne_sim_destroy(sim);
}

/* Makes the tensor so large that each dp rank has LEAST_BYTES. */
static void enlarge(bridge_case *c) {
    int64_t src = case_size(&c->src, "dp"), dst = case_size(&c->dst, "dp");
    int64_t bytes = c->batch * c->sequence * c->hidden * (int64_t)lierne_dtype_size(c->dtype);
    int64_t wanted = LEAST_BYTES * (src > dst ? src : dst);
    c->hidden *= 1 + wanted / (bytes > 0 ? bytes : wanted);
}

/* The worst ratios that were seen, in thousandths of the bound. */
static int64_t worst[2][2];

static void expect_near(const char *what, int direction, uint64_t seed, int64_t most, int64_t bound,
                        bool is_sent) {
    int64_t ratio = bound > 0 ? most * 1000 / bound : 1000;
    worst[direction][is_sent] =
        ratio > worst[direction][is_sent] ? ratio : worst[direction][is_sent];
    cr_expect(most >= bound, "seed %llu: %s %lld, below the bound %lld", (unsigned long long)seed,
              what, (long long)most, (long long)bound);
    cr_expect(ratio <= 1050, "seed %llu, direction %d: the busiest rank %s %lld bytes, bound %lld",
              (unsigned long long)seed, direction, what, (long long)most, (long long)bound);
}

static void run_seed(uint64_t seed) {
    static case_arrays arrays;
    bridge_case c;
    load loads[2];
    random_case(seed, 1 + (int)(seed * 0x9e3779b97f4a7c15u >> 40) % MAX_WORLD, &c, &arrays);
    enlarge(&c);
    c.routing = LIERNE_ROUTING_BALANCED;
    load_of(&c, loads);
    for (int d = 0; d < 2; d++) {
        int64_t received, sent;
        cr_assert_eq(case_bound(&c, (lierne_direction)d, &received, &sent), LIERNE_OK);
        cr_expect_eq(loads[d].received, loads[d].minimum, "seed %llu: %lld bytes, minimum %lld",
                     (unsigned long long)seed, (long long)loads[d].received,
                     (long long)loads[d].minimum);
        expect_near("receives", d, seed, loads[d].most_received, received, false);
        expect_near("sends", d, seed, loads[d].most_sent, sent, true);
    }
}

/* LIERNE_SEED=n runs one seed, LIERNE_SEEDS=n so many. */
Test(balance, busiest_ranks_are_near_the_bound) {
    const char *one = getenv("LIERNE_SEED"), *many = getenv("LIERNE_SEEDS");
    uint64_t first = one ? strtoull(one, NULL, 10) : 0;
    uint64_t end = one ? first + 1 : many ? strtoull(many, NULL, 10) : SEEDS;
    size_t before = lierne_mem_live();
    for (uint64_t seed = first; seed < end; seed++) {
        run_seed(seed);
    }
    printf("busiest rank over its bound: forward received %.3f, sent %.3f; adjoint %.3f, %.3f\n",
           (double)worst[0][0] / 1000, (double)worst[0][1] / 1000, (double)worst[1][0] / 1000,
           (double)worst[1][1] / 1000);
    cr_assert_eq(lierne_mem_live(), before);
}

/* --- the bound against a formula ----------------------------------------------------------------
 */

/* Of each element of a tensor: the ranks that have it under a layout, a bit each. */
static void find_ranks(const lierne_layout *layout, const redistribute_case *c, unsigned *ranks) {
    for (int r = 0; r < c->world; r++) {
        lierne_box boxes[600];
        size_t n;
        cr_assert_eq(lierne_layout_get_boxes(boxes, 600, &n, layout, r), LIERNE_OK);
        cr_assert_leq(n, 600);
        for (size_t b = 0; b < n; b++) {
            int64_t at[LIERNE_MAX_AXES] = {0};
            for (int a = 0; a >= 0;) {
                int64_t element = 0;
                for (int x = 0; x < c->naxes; x++) {
                    element = element * c->shape[x] + boxes[b].start[x] + at[x];
                }
                ranks[element] |= 1u << r;
                for (a = c->naxes - 1; a >= 0 && ++at[a] == boxes[b].size[a]; a--) {
                    at[a] = 0;
                }
            }
        }
    }
}

static int64_t elements_of(const redistribute_case *c) {
    int64_t n = 1;
    for (int a = 0; a < c->naxes; a++) {
        n *= c->shape[a];
    }
    return n;
}

static int bits(unsigned set) {
    return __builtin_popcount(set);
}

/* Every element that is needed: one copy from its holders, the others from holders or receivers. */
static int64_t most_sent(const unsigned *have, const unsigned *need, int64_t n, int world) {
    int64_t most = 0;
    for (unsigned set = 1; set < 1u << world; set++) {
        int64_t sum = 0, size = bits(set);
        for (int64_t e = 0; e < n; e++) {
            unsigned lack = need[e] & ~have[e];
            sum += lack && (have[e] & ~set) == 0;
            sum += lack && ((have[e] | lack) & ~set) == 0 ? bits(lack) - 1 : 0;
        }
        most = (sum + size - 1) / size > most ? (sum + size - 1) / size : most;
    }
    return most;
}

static int64_t most_received(const unsigned *have, const unsigned *need, int64_t n, int world) {
    int64_t most = 0;
    for (int r = 0; r < world; r++) {
        int64_t sum = 0;
        for (int64_t e = 0; e < n; e++) {
            sum += (need[e] & ~have[e]) >> r & 1;
        }
        most = sum > most ? sum : most;
    }
    return most;
}

static bool has_partial(const case_layout *l) {
    for (int d = 0; d < l->ndims; d++) {
        if (l->placements[d].kind == LIERNE_PARTIAL && l->sizes[d] > 1) {
            return true;
        }
    }
    return false;
}

static bool compare_bound(uint64_t seed) {
    redistribute_case c;
    int64_t received, sent;
    random_redistribute(&c, seed, 1 + (int)(seed % MOST));
    int64_t n = elements_of(&c), bytes = (int64_t)lierne_dtype_size(c.dtype);
    if (has_partial(&c.layouts[CASE_SRC]) || n > 600) {
        return false;
    }
    lierne_layout *src = redistribute_layout(&c, CASE_SRC),
                  *dst = redistribute_layout(&c, CASE_DST);
    unsigned have[600] = {0}, need[600] = {0};
    find_ranks(src, &c, have);
    find_ranks(dst, &c, need);
    cr_assert_eq(lierne_redistribute_get_bound(&received, &sent, src, dst), LIERNE_OK);
    int64_t expected = most_sent(have, need, n, c.world) * bytes;
    cr_assert_eq(sent, expected, "seed %llu: sent %lld, formula %lld\n%s", (unsigned long long)seed,
                 (long long)sent, (long long)expected, redistribute_text(&c));
    cr_assert_eq(received, most_received(have, need, n, c.world) * bytes, "seed %llu",
                 (unsigned long long)seed);
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    return sent > 0;
}

Test(balance, bound_is_that_of_the_formula) {
    int compared = 0;
    for (uint64_t seed = 0; seed < BOUNDS; seed++) {
        compared += compare_bound(seed);
    }
    cr_assert_gt(compared, BOUNDS / 20);
}

/* --- bits ---------------------------------------------------------------------------------------
 */

/* Long enough for several chunks. */
static void compare_bits(bridge_case c, lierne_direction chunked) {
    case_result direct, balanced;
    load loads[2];
    c.data = RANDOM;
    c.routing = LIERNE_ROUTING_DIRECT;
    const char *wrong = run_case(&c, &direct);
    cr_assert(!wrong && direct.status == LIERNE_OK, "%s%s", wrong ? wrong : "", direct.message);
    c.routing = LIERNE_ROUTING_BALANCED;
    wrong = run_case(&c, &balanced);
    cr_assert(!wrong && balanced.status == LIERNE_OK, "%s%s", wrong ? wrong : "", balanced.message);
    cr_assert_eq(direct.forward_bytes, balanced.forward_bytes);
    cr_assert_eq(memcmp(direct.forward, balanced.forward, direct.forward_bytes), 0);
    cr_assert_eq(memcmp(direct.adjoint, balanced.adjoint, direct.adjoint_bytes), 0);
    load_of(&c, loads);
    cr_assert_gt(loads[chunked].received, 0);
    free_result(&direct);
    free_result(&balanced);
}

Test(balance, chunks_that_are_passed_on_have_the_bits_of_direct) {
    compare_bits(
        (bridge_case){.world = 5,
                      .src = {.ndims = 2, .names = {"tp", "dp"}, .sizes = {1, 1}},
                      .dst = {.ndims = 2, .names = {"tp", "dp"}, .sizes = {4, 1}, .offset = 1},
                      .batch = 2,
                      .sequence = 1037,
                      .hidden = 1024,
                      .axis_s = 1,
                      .axis_h = 2,
                      .dtype = LIERNE_F32},
        LIERNE_FORWARD);
}

Test(balance, chunks_of_sums_have_the_bits_of_direct) {
    compare_bits(
        (bridge_case){.world = 8,
                      .src = {.ndims = 2, .names = {"tp", "dp"}, .sizes = {3, 1}, .offset = 1},
                      .dst = {.ndims = 3, .names = {"tp", "cp", "dp"}, .sizes = {2, 4, 1}},
                      .batch = 2,
                      .sequence = 1037,
                      .hidden = 1024,
                      .axis_s = 1,
                      .axis_h = 2,
                      .dtype = LIERNE_F32},
        LIERNE_ADJOINT);
}
