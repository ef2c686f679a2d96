/* What LIERNE_ROUTING_AUTO chooses by the links of a context, and the two times that it compares,
 * against formulas. Rank 0 sends S bytes to each of three others: directly it sends 3 S; balanced a
 * third to each of them, which each passes on to the two others. */
#include <lierne.h>
#include <lierne/sim.h>

#include "base/base.h"
#include "layouts.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <string.h>

enum { WORLD = 4 };

/* Plans a tensor of so many f32 of which the first ranks hold equal shares and the others need all;
 * returns the report of a rank. */
static lierne_report report_of(int sources, int64_t elements, const lierne_links *links,
                               const int *nodes, lierne_routing routing, int rank) {
    const lierne_placement placements[2] = {{.kind = LIERNE_PLACEMENT_SHARD},
                                            {.kind = LIERNE_PLACEMENT_REPLICATE}};
    const lierne_context_spec spec = {.size = sizeof spec, .nodes = nodes, .links = links};
    lierne_redistribute_spec r = {.size = sizeof r, .routing = routing};
    lierne_report report = {.size = sizeof report};
    lierne_layout *layouts[2];
    lierne_sim *sim;
    lierne_plan *plan;
    for (int i = 0; i < 2; i++) {
        const mesh tp = {.ndims = 1,
                         .names = {"tp"},
                         .sizes = {i ? WORLD - sources : sources},
                         .offset = i * sources};
        layouts[i] = layout_over(&tp, WORLD, LIERNE_DTYPE_F32, 1, &elements, &placements[i]);
    }
    r.src = layouts[0], r.dst = layouts[1];
    assert_ok(lierne_sim_create(&sim, WORLD, &spec));
    assert_ok(lierne_plan_create_redistribute(&plan, lierne_sim_get_context(sim, rank), &r));
    assert_ok(lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_FORWARD));
    report.transports = NULL;
    assert_ok(lierne_sim_destroy_all(sim));
    lierne_layout_destroy(layouts[0]);
    lierne_layout_destroy(layouts[1]);
    return report;
}

static bool is_balanced(const lierne_report *r) {
    return strcmp(r->algorithm, "balanced") == 0;
}

/* b may differ from a by one part in 64, in which loads may exceed the least. */
static void expect_ns(int64_t got, double wanted, const char *what, int64_t elements) {
    double off = (double)got - wanted;
    off = off < 0 ? -off : off;
    cr_expect(off <= wanted / 50 + 1, "%s of %lld elements: %lld ns, expected %.0f", what,
              (long long)elements, (long long)got, wanted);
}

/* On every rank both times are these, and AUTO takes the shorter. */
static void expect_choice(int sources, int64_t elements, const lierne_links *links,
                          const int *nodes, double direct, double balanced) {
    for (int rank = 0; rank < WORLD; rank++) {
        lierne_report r = report_of(sources, elements, links, nodes, LIERNE_ROUTING_AUTO, rank);
        expect_ns(r.direct_ns, direct, "direct", elements);
        expect_ns(r.balanced_ns, balanced, "balanced", elements);
        cr_expect_eq(is_balanced(&r), balanced < direct, "rank %d, %lld elements: %s", rank,
                     (long long)elements, r.algorithm);
    }
}

/* One node, or a node per rank, whose links are the same then; in one chunk. */
static void compare(int64_t elements, bool apart, int64_t latency, int64_t speed) {
    static const int each[WORLD] = {0, 1, 2, 3};
    const lierne_link link = {.latency_ns = latency, .megabytes_per_second = speed};
    const lierne_link other = {.latency_ns = 7, .megabytes_per_second = 3};
    const lierne_links links = {.same_node = apart ? other : link,
                                .other_node = apart ? link : other};
    double moved = (double)elements * 4 * 1000 / (double)speed;
    double direct = (double)latency + 3 * moved;
    double balanced = 2 * (double)latency + moved + 2 * moved / 3;
    expect_choice(1, elements, &links, apart ? each : NULL, direct, balanced);
}

/* Of 1,000 ns and 1,000 MB/s a stage is worth 750 bytes: 4/3 of what each passes on. */
Test(links, choose_one_stage_for_small_tensors) {
    static const int64_t sizes[] = {3, 90, 150, 240, 3000, 600000};
    size_t before = lierne_mem_live();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        compare(sizes[i], false, 1000, 1000);
        compare(sizes[i], true, 1000, 1000);
        compare(sizes[i], true, 0, 1000);
        compare(sizes[i], false, 100000, 100);
    }
    cr_expect_eq(lierne_mem_live(), before);
}

/* 6 chunks of 4 MiB through two stages: 7 stages; most of the time all of them at once. */
Test(links, count_chunks) {
    const lierne_links links = {.same_node = {.latency_ns = 50000, .megabytes_per_second = 1000}};
    int64_t elements = 6 << 20;
    double moved = (double)elements * 4;
    lierne_report r = report_of(1, elements, &links, NULL, LIERNE_ROUTING_AUTO, 0);
    expect_ns(r.direct_ns, 50000 + 3 * moved, "direct", elements);
    expect_ns(r.balanced_ns, 7 * 50000.0 + moved * 5 / 3 / 6 + moved * 5 / 6, "balanced", elements);
    cr_expect(is_balanced(&r));
}

/* Ranks 0 and 1 have contributions to S bytes, of which ranks 0 to 2 need the first half and three
 * others the second. 0 and 1 sum a quarter each; each sends the other's quarter to it and all of
 * the second half to others first, 3/4 S. Directly each then sends its sum to two ranks. Balanced,
 * it sends it to rank 2 alone, which passes on both. */
Test(links, count_chunks_of_sums) {
    const mesh src = {.ndims = 1, .names = {"tp"}, .sizes = {2}};
    const mesh dst = {.ndims = 2, .names = {"tp", "dp"}, .sizes = {3, 2}};
    const lierne_placement partial = {.kind = LIERNE_PLACEMENT_PARTIAL};
    const lierne_placement halves[2] = {{.kind = LIERNE_PLACEMENT_REPLICATE},
                                        {.kind = LIERNE_PLACEMENT_SHARD}};
    const lierne_links links = {.same_node = {.latency_ns = 50000, .megabytes_per_second = 1000}};
    const lierne_context_spec spec = {.size = sizeof spec, .links = &links};
    const int64_t elements = 12 << 20; /* a half has 6 chunks */
    const double moved = (double)elements * 4;
    lierne_layout *from = layout_over(&src, 6, LIERNE_DTYPE_F32, 1, &elements, &partial),
                  *to = layout_over(&dst, 6, LIERNE_DTYPE_F32, 1, &elements, halves);
    const lierne_redistribute_spec r = {.size = sizeof r, .src = from, .dst = to};
    lierne_report report = {.size = sizeof report};
    lierne_sim *sim;
    lierne_plan *plan;
    assert_ok(lierne_sim_create(&sim, 6, &spec));
    assert_ok(lierne_plan_create_redistribute(&plan, lierne_sim_get_context(sim, 0), &r));
    assert_ok(lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_FORWARD));
    expect_ns(report.direct_ns, 2 * 50000 + moved * 5 / 4, "direct", elements);
    expect_ns(report.balanced_ns, 8 * 50000 + moved * 7 / 4 / 6 + moved * 5 / 6, "balanced",
              elements);
    assert_ok(lierne_sim_destroy_all(sim));
    lierne_layout_destroy(from);
    lierne_layout_destroy(to);
}

/* Two ranks with half of S bytes each, and two that need both halves. Node 0 has both senders, or
 * node 2 both receivers; only nodes have a limit, R. Directly the shared node moves 2 S. Balanced,
 * receivers of one node get S and pass on the rest in it, which costs nothing but its latency;
 * receivers of two nodes get S from the shared one, and pass on half of it. */
static void share_node(bool senders, int64_t elements, int64_t speed) {
    const int nodes[WORLD] = {0, !senders, senders ? 1 : 2, 2};
    const lierne_links links = {.same_node = {.latency_ns = 100},
                                .other_node = {.latency_ns = 1000},
                                .node_megabytes_per_second = speed};
    double moved = (double)elements * 4 * 1000 / (double)speed;
    double direct = 1000 + 2 * moved;
    double balanced = senders ? 2 * 1000 + moved * 3 / 2 : 1000 + 100 + moved;
    expect_choice(2, elements, &links, nodes, direct, balanced);
}

Test(links, count_what_ranks_of_a_node_share) {
    static const int64_t sizes[] = {20, 200, 2000, 200000};
    size_t before = lierne_mem_live();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        share_node(false, sizes[i], 1000);
        share_node(true, sizes[i], 1000);
        share_node(true, sizes[i], 100);
    }
    cr_expect_eq(lierne_mem_live(), before);
}

/* Each rank's own link takes longer: the node's changes nothing. One node: nothing crosses. */
Test(links, ignore_a_node_that_is_faster_than_its_ranks) {
    static const int nodes[WORLD] = {0, 0, 1, 2};
    lierne_links links = {.same_node = {.latency_ns = 100, .megabytes_per_second = 500},
                          .other_node = {.latency_ns = 1000, .megabytes_per_second = 500}};
    for (int apart = 0; apart < 2; apart++) {
        const int *of = apart ? nodes : NULL;
        links.node_megabytes_per_second = 0;
        lierne_report a = report_of(2, 4000, &links, of, LIERNE_ROUTING_AUTO, 0);
        links.node_megabytes_per_second = apart ? 1000 : 1;
        lierne_report b = report_of(2, 4000, &links, of, LIERNE_ROUTING_AUTO, 0);
        cr_expect(a.direct_ns > 0 && a.direct_ns == b.direct_ns, "%lld, %lld",
                  (long long)a.direct_ns, (long long)b.direct_ns);
        cr_expect_eq(a.balanced_ns, b.balanced_ns);
    }
}

Test(links, compare_nothing_without_need) {
    static const int each[WORLD] = {0, 1, 2, 3};
    const lierne_links links = {.same_node = {.latency_ns = 1000, .megabytes_per_second = 1000}};
    lierne_report r = report_of(1, 1 << 20, NULL, NULL, LIERNE_ROUTING_AUTO, 0);
    cr_expect(!is_balanced(&r) && r.direct_ns == 0 && r.balanced_ns == 0, "one node, no links");
    r = report_of(1, 1 << 20, &links, NULL, LIERNE_ROUTING_DIRECT, 0);
    cr_expect(!is_balanced(&r) && r.direct_ns == 0 && r.balanced_ns == 0, "direct");
    r = report_of(1, 3, &links, NULL, LIERNE_ROUTING_BALANCED, 0);
    cr_expect(is_balanced(&r) && r.direct_ns == 0 && r.balanced_ns == 0, "balanced");
    const lierne_links late = {.same_node = {.latency_ns = 1000}};
    r = report_of(1, 30000, &late, NULL, LIERNE_ROUTING_AUTO, 0);
    cr_expect(!is_balanced(&r) && r.direct_ns == 1000 && r.balanced_ns == 2000, "latency alone");
    r = report_of(1, 30000, NULL, each, LIERNE_ROUTING_AUTO, 0); /* 20 us and 50 GB/s */
    cr_expect(!is_balanced(&r) && r.direct_ns == 20000 + 3 * 120000 / 50, "%lld",
              (long long)r.direct_ns);
}

static void rejected(lierne_links links, const char *text) {
    const lierne_context_spec spec = {.size = sizeof spec, .links = &links};
    lierne_context *context;
    cr_expect_eq(lierne_context_create_self(&context, &spec), LIERNE_ERR_INVALID);
    expect_says(text);
    cr_expect_null(context);
}

Test(links, reject_what_is_out_of_range) {
    rejected((lierne_links){.same_node = {.latency_ns = -1}},
             "links.same_node.latency_ns is -1, must be 0 to 1000000000");
    rejected((lierne_links){.same_node = {.megabytes_per_second = 1000000001}},
             "links.same_node.megabytes_per_second is 1000000001, must be 0 to 1000000000");
    rejected((lierne_links){.other_node = {.latency_ns = 1000000001}},
             "links.other_node.latency_ns is 1000000001, must be");
    rejected((lierne_links){.other_node = {.megabytes_per_second = -5}},
             "links.other_node.megabytes_per_second is -5, must be");
    rejected((lierne_links){.node_megabytes_per_second = -2},
             "links.node_megabytes_per_second is -2, must be 0 to 1000000000");
}
