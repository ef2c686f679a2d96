/* Deltas of random sets and redistributions, against the plan's own forward: bit for bit, step
 * after step, with any share of changed elements, outputs that were overwritten, and ranks whose
 * arguments are bad; what does not change is not sent. */
#include "base/base.h"
#include "lierne.h"
#include "lierne/sim.h"
#include "plan/redistribute/delta_plans.h"
#include "unit/delta_steps.h"
#include "unit/expect.h"
#include "unit/ranks.h"

#include "layouts.h"
#include "seeds.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

typedef struct trial {
    set_case set;
    delta_steps ranks[DELTA_STEPS_RANKS];
} trial;

static void work(lierne_context *context, void *shared) {
    trial *t = shared;
    delta_steps_run(&t->ranks[lierne_context_get_rank(context)], &t->set, context);
}

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

Test(delta, random_sets_step_after_step, .timeout = 3600) {
    static trial t;
    seed_range seeds = test_seeds(60);
    int64_t sent = 0, dense = 0, whole = 0;
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        random_set(&t.set, seed, 1 + (int)(seed % DELTA_STEPS_RANKS));
        for (int r = 0; r < t.set.world; r++) {
            t.ranks[r] = (delta_steps){.seed = seed};
        }
        ranks_run(t.set.world, NULL, work, &t);
        for (int r = 0; r < t.set.world; r++) {
            cr_assert_eq(t.ranks[r].wrong, 0, "rank %d: %s", r, t.ranks[r].what);
            sent += t.ranks[r].sent;
            dense += t.ranks[r].dense;
            whole += t.ranks[r].whole;
        }
    }
    cr_expect(seeds.end - seeds.first < 60 || (sent < dense && whole > 100),
              "%d of %d bytes were sent, %d messages were whole", (int)sent, (int)dense,
              (int)whole);
}

/* ---- one pair of ranks ---- */

enum { N = 40000 };

typedef struct pair {
    int wrong;
    char what[1200];
} pair;

static void see(pair *p, bool ok, const char *what) {
    if (!ok && p->wrong++ == 0) {
        snprintf(p->what, sizeof p->what, "%s: %s", what, lierne_last_error());
    }
}

/* Rank 0 has a tensor of 16-bit elements that rank 1 gets. */
static lierne_plan *create_plan(lierne_context *context, lierne_dtype dtype, int64_t n) {
    static const char *const names[] = {"one", NULL};
    static const int64_t size = 1;
    const lierne_placement none = {.kind = LIERNE_PLACEMENT_REPLICATE};
    lierne_layout *layouts[2];
    lierne_plan *plan = NULL;
    for (int side = 0; side < 2; side++) {
        lierne_grid *grid = grid_named(names, &size, side, 2);
        layouts[side] = layout_on(grid, dtype, 1, &n, &none);
        lierne_grid_destroy(grid);
    }
    const lierne_redistribute_spec spec = {.size = sizeof spec,
                                           .src = layouts[0],
                                           .dst = layouts[1]};
    (void)lierne_plan_create_redistribute(&plan, context, &spec);
    lierne_layout_destroy(layouts[0]);
    lierne_layout_destroy(layouts[1]);
    return plan;
}

static lierne_delta_report report_of(const lierne_delta *delta) {
    lierne_delta_report report = {.size = sizeof report};
    (void)lierne_delta_get_report(&report, delta);
    return report;
}

/* What is sent: everything, nothing, two percent in 23 bits each; a rank with bad arguments. */
static void run_pair(lierne_context *context, void *shared) {
    static uint16_t in[N], outs[2][N];
    int rank = lierne_context_get_rank(context);
    pair *p = &((pair *)shared)[rank];
    uint16_t *out = outs[rank];
    lierne_plan *plan = create_plan(context, LIERNE_DTYPE_BF16, N);
    lierne_delta *delta = NULL;
    see(p, lierne_delta_create(&delta, plan) == LIERNE_OK, "create");
    see(p, report_of(delta).version == 0, "no version yet");
    for (int i = 0; rank == 0 && i < N; i++) {
        in[i] = (uint16_t)mix((uint64_t)i + 1);
    }
    see(p, lierne_delta_forward(delta, out, in) == LIERNE_OK, "the first call");
    see(p, rank == 0 || memcmp(out, in, sizeof in) == 0, "the first output");
    lierne_delta_report report = report_of(delta);
    int64_t dense = rank == 0 ? 2 * N : 0;
    see(p,
        report.dense_bytes == dense && report.sent_bytes >= dense && report.version == 1 &&
            report.sent_bytes <= dense + 40 && report.whole_messages == (rank == 0),
        "all of it");
    see(p, lierne_delta_forward(delta, out, in) == LIERNE_OK, "a call without changes");
    report = report_of(delta);
    see(p, report.messages == 0 && report.sent_bytes == (rank == 0 ? 32 : 0),
        "nothing but a header");

    for (int i = 0; rank == 0 && i < N; i += 50) {
        in[i + (int)(mix((uint64_t)i) % 50)] ^= 0x8000;
    }
    see(p,
        lierne_delta_forward(delta, rank == 1 ? NULL : out, in) == LIERNE_ERR_INVALID &&
            strstr(lierne_last_error(), rank == 1 ? "out" : "rank 1 takes no part"),
        "out is NULL on rank 1");
    see(p, report_of(delta).version == 2, "a call that nobody took part in");
    see(p, lierne_delta_forward(delta, out, in) == LIERNE_OK, "two percent");
    see(p, rank == 0 || memcmp(out, in, sizeof in) == 0, "two percent arrive");
    report = report_of(delta);
    see(p, rank == 1 || (report.sent_bytes * 8 < N / 50 * 25 && report.whole_messages == 0),
        "23 bits for each");
    see(p, lierne_delta_destroy(delta) == LIERNE_OK, "destroy");
    see(p, lierne_plan_destroy(plan) == LIERNE_OK, "destroy the plan");
}

Test(delta, two_percent_of_a_tensor) {
    pair all[2] = {{0}};
    ranks_run(2, NULL, run_pair, all);
    for (int r = 0; r < 2; r++) {
        cr_expect_eq(all[r].wrong, 0, "rank %d: %s", r, all[r].what);
    }
}

/* Tensors that are large enough for messages of their own, and one that is not. */
enum { LARGE = 200000, SMALL = 30, SEVERAL = 2 * LARGE + SMALL };

static lierne_plan *create_several(lierne_context *context) {
    static const char *const names[] = {"one", NULL};
    static const int64_t size = 1, shapes[3] = {LARGE, SMALL, LARGE};
    const lierne_placement none = {.kind = LIERNE_PLACEMENT_REPLICATE};
    lierne_layout *layouts[2][3];
    lierne_plan *plan = NULL;
    for (int side = 0; side < 2; side++) {
        lierne_grid *grid = grid_named(names, &size, side, 2);
        for (int t = 0; t < 3; t++) {
            layouts[side][t] = layout_on(grid, LIERNE_DTYPE_BF16, 1, &shapes[t], &none);
        }
        lierne_grid_destroy(grid);
    }
    const lierne_set_spec spec = {.size = sizeof spec,
                                  .ntensors = 3,
                                  .src = (const lierne_layout *const *)layouts[0],
                                  .dst = (const lierne_layout *const *)layouts[1]};
    (void)lierne_plan_create_set(&plan, context, &spec);
    for (int i = 0; i < 6; i++) {
        lierne_layout_destroy(layouts[i / 3][i % 3]);
    }
    return plan;
}

static void run_several(lierne_context *context, void *shared) {
    static uint16_t ins[2][SEVERAL], outs[2][SEVERAL];
    int rank = lierne_context_get_rank(context);
    uint16_t *in = ins[rank];
    pair *p = &((pair *)shared)[rank];
    int64_t words = LIERNE_DELTA_WORDS, memory[DELTA_PATHS];
    for (delta_path path = 0; path < DELTA_PATHS; path++) {
        lierne_plan *plan = create_several(context);
        lierne_delta *delta = NULL;
        see(p, delta_create(&delta, plan, context, path) == LIERNE_OK, "create");
        see(p, !delta || rank == 1 || delta->sends.n > 1, "several messages");
        for (size_t m = 0; path == DELTA_DIRECT && m < delta->sends.n; m++) {
            words += LIERNE_DELTA_HEADER + (delta->sends.at[m + 1] - delta->sends.at[m] + 7) / 8;
        }
        memory[path] = report_of(delta).memory_bytes;
        for (int step = 0; step < 3; step++) {
            for (int i = step; i < SEVERAL; i += 11) {
                in[i] = (uint16_t)mix((uint64_t)(i + step + 1));
            }
            see(p, lierne_delta_forward(delta, outs[rank], in) == LIERNE_OK, "forward");
            see(p, rank == 0 || memcmp(outs[1], in, sizeof ins[1]) == 0, "the output");
        }
        see(p, lierne_delta_destroy(delta) == LIERNE_OK, "destroy");
        see(p, lierne_plan_destroy(plan) == LIERNE_OK, "destroy the plan");
    }
    see(p, memory[DELTA_CONTROL] == memory[DELTA_DIRECT] + 8 * words, "memory of messages");
}

Test(delta, several_messages_to_a_rank) {
    pair all[2] = {{0}};
    ranks_run(2, NULL, run_several, all);
    for (int r = 0; r < 2; r++) {
        cr_expect_eq(all[r].wrong, 0, "rank %d: %s", r, all[r].what);
    }
}

/* Two deltas are in flight at once, begin in one order and end in another one on each rank; their
 * elements are NaN with payloads and zeros of both signs. */
static void run_both(lierne_context *context, void *shared) {
    enum { EACH = 900, BOTH = 2 };
    static const uint32_t odd[] = {0x7fc00000, 0x7fc00001, 0xffc12345, 0x7f800001, 0x80000000, 0};
    int rank = lierne_context_get_rank(context);
    pair *p = &((pair *)shared)[rank];
    lierne_plan *plans[BOTH];
    lierne_delta *deltas[BOTH];
    for (int k = 0; k < BOTH; k++) {
        plans[k] = create_plan(context, LIERNE_DTYPE_F32, EACH);
        see(p, delta_create(&deltas[k], plans[k], context, DELTA_DIRECT) == LIERNE_OK, "create");
    }
    for (int step = 0; step < 8; step++) {
        uint32_t in[BOTH][EACH], out[BOTH][EACH];
        for (int i = 0; i < BOTH * EACH; i++) {
            in[i / EACH][i % EACH] = odd[mix((uint64_t)(i + (i % 7 == step ? step : 0))) % 6];
        }
        if (step == 3) {
            see(p, lierne_delta_invalidate(deltas[rank]) == LIERNE_OK, "invalidate");
        }
        for (int k = 0; k < BOTH; k++) {
            see(p, lierne_delta_forward_begin(deltas[k], out[k], in[k]) == LIERNE_OK, "begin");
        }
        for (int k = 0; k < BOTH; k++) {
            see(p, lierne_delta_forward_end(deltas[(k + rank) % BOTH]) == LIERNE_OK, "end");
        }
        see(p, rank == 0 || memcmp(in, out, sizeof in) == 0, "the bits");
    }
    for (int k = 0; k < BOTH; k++) {
        see(p, lierne_delta_destroy(deltas[k]) == LIERNE_OK, "destroy");
        see(p, lierne_plan_destroy(plans[k]) == LIERNE_OK, "destroy the plan");
    }
}

Test(delta, two_sets_at_once) {
    pair all[2] = {{0}};
    ranks_run(2, NULL, run_both, all);
    for (int r = 0; r < 2; r++) {
        cr_expect_eq(all[r].wrong, 0, "rank %d: %s", r, all[r].what);
    }
}

/* Versions beyond 32 bits, and back to 1 behind the last one: changes, and no whole messages. */
static void run_versions(lierne_context *context, void *shared) {
    enum { EACH = 90, STEPS = 4 };
    static const int64_t before[] = {INT32_MAX - 1, UINT32_MAX - 1ll, INT64_MAX - 2};
    int rank = lierne_context_get_rank(context);
    pair *p = &((pair *)shared)[rank];
    lierne_plan *plan = create_plan(context, LIERNE_DTYPE_F32, EACH);
    for (int k = 0; k < 3 * DELTA_PATHS; k++) {
        lierne_delta *delta = NULL;
        uint32_t in[EACH] = {0}, out[EACH] = {0};
        see(p, delta_create(&delta, plan, context, (delta_path)(k % DELTA_PATHS)) == LIERNE_OK,
            "create");
        see(p, lierne_delta_forward(delta, out, in) == LIERNE_OK, "the first call");
        delta->version = delta->kept = delta->held = before[k / DELTA_PATHS];
        for (int step = 0; step < STEPS; step++) {
            in[7 * step] = 5;
            see(p, lierne_delta_forward(delta, out, in) == LIERNE_OK, "a version");
            see(p, rank == 0 || memcmp(in, out, sizeof in) == 0, "the bits");
            see(p, report_of(delta).whole_messages == 0, "changes only");
        }
        see(p, report_of(delta).version == (k / DELTA_PATHS == 2 ? 2 : before[k / DELTA_PATHS] + 4),
            "a version that wraps");
        see(p, lierne_delta_destroy(delta) == LIERNE_OK, "destroy");
    }
    see(p, lierne_plan_destroy(plan) == LIERNE_OK, "destroy the plan");
}

Test(delta, versions_wrap) {
    pair all[2] = {{0}};
    ranks_run(2, NULL, run_versions, all);
    for (int r = 0; r < 2; r++) {
        cr_expect_eq(all[r].wrong, 0, "rank %d: %s", r, all[r].what);
    }
}

/* Margins that are filled in place: the input is the output. */
static void run_in_place(lierne_context *context, void *shared) {
    enum { EACH = 5, HELD = EACH + 2 };
    static const char *const names[] = {"one", NULL};
    static const int64_t size = 2, shape = 2 * EACH;
    int rank = lierne_context_get_rank(context);
    pair *p = &((pair *)shared)[rank];
    const lierne_placement cut = {.kind = LIERNE_PLACEMENT_SHARD};
    const lierne_dense_halo halo = {.lo = 1, .hi = 1, .boundary = LIERNE_BOUNDARY_ZERO};
    lierne_grid *grid = grid_named(names, &size, 0, 2);
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = 1,
                                     .shape = &shape,
                                     .dtype = LIERNE_DTYPE_F32,
                                     .placements = &cut,
                                     .nhalos = 1,
                                     .halos = &halo};
    lierne_layout *layout = NULL;
    lierne_plan *plan = NULL;
    lierne_delta *delta = NULL;
    see(p, lierne_layout_create(&layout, &spec) == LIERNE_OK, "layout");
    const lierne_redistribute_spec margins = {.size = sizeof margins, .src = layout, .dst = layout};
    see(p, lierne_plan_create_redistribute(&plan, context, &margins) == LIERNE_OK, "plan");
    see(p, lierne_delta_create(&delta, plan) == LIERNE_OK, "create");
    for (int step = 0; step < 3; step++) {
        float field[HELD];
        for (int i = 0; i < HELD; i++) {
            int at = rank * EACH + i - 1;
            field[i] = i == 0 || i == HELD - 1 ? -1 : (float)(10 * at + step);
        }
        see(p, lierne_delta_forward(delta, field, field) == LIERNE_OK, "in place");
        for (int i = 0; i < HELD; i++) {
            int at = rank * EACH + i - 1;
            see(p, field[i] == (at < 0 || at >= shape ? 0 : (float)(10 * at + step)), "a margin");
        }
    }
    see(p, lierne_delta_destroy(delta) == LIERNE_OK, "destroy");
    see(p, lierne_plan_destroy(plan) == LIERNE_OK, "destroy the plan");
    lierne_layout_destroy(layout);
    lierne_grid_destroy(grid);
}

Test(delta, margins_in_place) {
    pair all[2] = {{0}};
    ranks_run(2, NULL, run_in_place, all);
    for (int r = 0; r < 2; r++) {
        cr_expect_eq(all[r].wrong, 0, "rank %d: %s", r, all[r].what);
    }
}

/* Elements of 16 bytes are compared in halves. */
static void run_halves(lierne_context *context, void *shared) {
    pair *p = &((pair *)shared)[lierne_context_get_rank(context)];
    lierne_plan *plan = create_plan(context, LIERNE_DTYPE_BITS128, 3);
    lierne_delta *delta = NULL;
    uint64_t in[6] = {1, 2, 3, 4, 5, 6}, out[6] = {0};
    see(p, lierne_delta_create(&delta, plan) == LIERNE_OK, "create");
    for (int step = 0; step < 3; step++) {
        in[2 * step + 1] += 10;
        see(p, lierne_delta_forward(delta, out, in) == LIERNE_OK, "forward");
    }
    see(p, lierne_context_get_rank(context) == 0 || memcmp(in, out, sizeof in) == 0, "halves");
    see(p, lierne_delta_destroy(delta) == LIERNE_OK, "destroy");
    see(p, lierne_plan_destroy(plan) == LIERNE_OK, "destroy the plan");
}

Test(delta, elements_of_16_bytes) {
    pair all[2] = {{0}};
    ranks_run(2, NULL, run_halves, all);
    for (int r = 0; r < 2; r++) {
        cr_expect_eq(all[r].wrong, 0, "rank %d: %s", r, all[r].what);
    }
}

/* What the header is checked for: rank 1 expects another version, fewer elements, fewer bytes. */
enum { OTHER_VERSION, FEWER_ELEMENTS, FEWER_BYTES, HEADERS };

typedef struct header_trial {
    int kind;
    pair ranks[2];
} header_trial;

static void expect_another(lierne_delta *delta, int kind, int64_t by) {
    delta->version += kind == OTHER_VERSION ? by : 0;
    delta->recvs.first[1] -= kind == FEWER_ELEMENTS ? by : 0;
    delta->recvs.at[1] -= kind == FEWER_BYTES ? by : 0;
}

static void run_header(lierne_context *context, void *shared) {
    static uint16_t outs[2][N], ins[2][N], before[N];
    int rank = lierne_context_get_rank(context);
    header_trial *t = shared;
    pair *p = &t->ranks[rank];
    lierne_plan *plan = create_plan(context, LIERNE_DTYPE_BF16, N);
    lierne_delta *delta = NULL;
    see(p, lierne_delta_create(&delta, plan) == LIERNE_OK, "create");
    for (int i = 0; i < N; i++) {
        ins[rank][i] = (uint16_t)mix((uint64_t)i + 1);
    }
    see(p, lierne_delta_forward(delta, outs[rank], ins[rank]) == LIERNE_OK, "the first call");
    for (int i = 0; i < N; i++) {
        ins[rank][i] ^= 0x101;
    }
    if (rank == 0) {
        (void)lierne_delta_forward(delta, outs[rank], ins[rank]);
    } else {
        memcpy(before, outs[1], sizeof before);
        expect_another(delta, t->kind, 1);
        see(p,
            lierne_delta_forward(delta, outs[1], ins[1]) == LIERNE_ERR_MISMATCH &&
                strstr(lierne_last_error(), "was to come"),
            "another header than expected");
        see(p, memcmp(before, outs[1], sizeof before) == 0, "the output of the last version");
        see(p, p->wrong || lierne_delta_forward(delta, outs[1], ins[1]) != LIERNE_OK, "dead");
        expect_another(delta, t->kind, -1);
    }
    (void)lierne_delta_destroy(delta);
    (void)lierne_plan_destroy(plan);
}

Test(delta, a_header_of_another_message) {
    for (int kind = 0; kind < HEADERS; kind++) {
        header_trial t = {.kind = kind};
        ranks_run(2, NULL, run_header, &t);
        for (int r = 0; r < 2; r++) {
            cr_expect_eq(t.ranks[r].wrong, 0, "%d, rank %d: %s", kind, r, t.ranks[r].what);
        }
    }
}

/* Rank 1 takes elements for half as long, so that what arrives is no encoding for it. */
static void run_undecodable(lierne_context *context, void *shared) {
    static uint16_t outs[2][N], ins[2][N];
    int rank = lierne_context_get_rank(context);
    pair *p = &((pair *)shared)[rank];
    lierne_plan *plan = create_plan(context, LIERNE_DTYPE_BF16, N);
    lierne_delta *delta = NULL;
    see(p, lierne_delta_create(&delta, plan) == LIERNE_OK, "create");
    for (int step = 0; step < 4; step++) {
        for (int i = 0; i < N; i++) {
            ins[rank][i] = (uint16_t)mix((uint64_t)i + (step > 0 && i % 60 == step ? N : 1));
        }
        bool fails = step == 1 && rank == 1;
        delta->element = fails ? 1 : 2;
        see(p,
            lierne_delta_forward(delta, outs[rank], ins[rank]) ==
                (fails ? LIERNE_ERR_MISMATCH : LIERNE_OK),
            fails ? "no encoding" : "forward");
        see(p, rank == 0 || fails || memcmp(outs[1], ins[1], sizeof ins[1]) == 0, "the output");
        see(p, rank == 1 || report_of(delta).whole_messages == (step % 2 == 0), "who gets all");
        delta->element = 2;
    }
    see(p, lierne_delta_destroy(delta) == LIERNE_OK, "destroy");
    see(p, lierne_plan_destroy(plan) == LIERNE_OK, "destroy the plan");
}

Test(delta, all_of_it_after_bytes_that_are_no_encoding) {
    pair all[2] = {{0}};
    ranks_run(2, NULL, run_undecodable, all);
    for (int r = 0; r < 2; r++) {
        cr_expect_eq(all[r].wrong, 0, "rank %d: %s", r, all[r].what);
    }
}

/* A rank alone, so that a failed allocation is everybody's. */
Test(delta, every_failed_allocation_of_create) {
    lierne_context *context;
    lierne_plan *plan = NULL;
    lierne_delta *delta = NULL;
    const lierne_all_gather_spec spec = {.size = sizeof spec,
                                         .count = 4,
                                         .dtype = LIERNE_DTYPE_F32};
    lierne_status status = LIERNE_ERR_NO_MEMORY;
    float in[4] = {1, 2, 3, 4}, out[4] = {0};
    size_t k = 0;
    assert_ok(lierne_context_create_self(&context, NULL));
    assert_ok(lierne_plan_create_all_gather(&plan, context, &spec));
    size_t live = lierne_mem_live();
    while (status == LIERNE_ERR_NO_MEMORY && ++k < 2000) {
        lierne_mem_fail_at(k);
        status = lierne_delta_create(&delta, plan);
        lierne_mem_fail_at(0);
        cr_assert(status == LIERNE_OK || (!delta && lierne_mem_live() == live),
                  "allocation %zu: %s", k, lierne_last_error());
    }
    cr_expect(status == LIERNE_OK && k > 20, "%s at %zu", lierne_status_name(status), k);
    assert_ok(lierne_delta_forward(delta, out, in));
    cr_expect_eq(memcmp(in, out, sizeof in), 0);
    assert_ok(lierne_delta_destroy(delta));
    assert_ok(lierne_plan_destroy(plan));
    assert_ok(lierne_context_destroy(context));
    cr_expect_eq(lierne_mem_live(), 0);
}

/* A sum, and an output that is NULL where the plan's may be, on a rank that keeps what it has. */
static void run_rejected(lierne_context *context, void *shared) {
    pair *p = &((pair *)shared)[lierne_context_get_rank(context)];
    const lierne_all_reduce_spec sums = {.size = sizeof sums,
                                         .count = 4,
                                         .dtype = LIERNE_DTYPE_F32};
    lierne_plan *plan = NULL;
    lierne_delta *delta = NULL;
    see(p, lierne_plan_create_all_reduce(&plan, context, &sums) == LIERNE_OK, "all-reduce");
    see(p,
        lierne_delta_create(&delta, plan) == LIERNE_ERR_UNSUPPORTED && !delta &&
            strstr(lierne_last_error(), "sums or takes several stages"),
        "a delta of sums");
    see(p, lierne_plan_destroy(plan) == LIERNE_OK, "the plan is free again");
}

Test(delta, what_is_rejected) {
    lierne_context *context;
    lierne_plan *plan = NULL;
    lierne_delta *delta = NULL;
    lierne_delta_report report = {.size = 3};
    pair all[2] = {{0}};
    float in[4] = {1, 2, 3, 4};
    const lierne_all_gather_spec spec = {.size = sizeof spec,
                                         .count = 4,
                                         .dtype = LIERNE_DTYPE_F32};
    assert_error(lierne_delta_create(&delta, NULL), LIERNE_ERR_INVALID, "plan is NULL");
    assert_error(lierne_delta_forward(NULL, &report, &report), LIERNE_ERR_INVALID, "delta is NULL");
    assert_error(lierne_delta_invalidate(NULL), LIERNE_ERR_INVALID, "delta is NULL");
    assert_error(lierne_delta_set_previous(NULL, in), LIERNE_ERR_INVALID, "delta is NULL");
    assert_error(lierne_delta_get_report(&report, NULL), LIERNE_ERR_INVALID, "delta is NULL");
    assert_ok(lierne_delta_destroy(NULL));
    assert_ok(lierne_context_create_self(&context, NULL));
    assert_ok(lierne_plan_create_all_gather(&plan, context, &spec));
    assert_ok(lierne_plan_forward(plan, NULL, in, NULL)); /* an alias */
    assert_ok(lierne_delta_create(&delta, plan));
    assert_error(lierne_delta_get_report(&report, delta), LIERNE_ERR_INVALID, "report");
    assert_error(lierne_delta_forward(delta, NULL, in), LIERNE_ERR_INVALID, "out is NULL");
    assert_ok(lierne_delta_destroy(delta));
    assert_ok(lierne_plan_destroy(plan));
    assert_ok(lierne_context_destroy(context));
    ranks_run(2, NULL, run_rejected, all);
    for (int r = 0; r < 2; r++) {
        cr_expect_eq(all[r].wrong, 0, "rank %d: %s", r, all[r].what);
    }
}
