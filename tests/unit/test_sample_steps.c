/* Samples in simulated worlds: random steps against an oracle, bad arguments on one rank, how often
 * ranks communicate, memory. */
#include "base/base.h"
#include "expect.h"
#include "lierne.h"
#include "plan/redistribute/varying_plan.h"
#include "plan/samples/sample_routing.h"
#include "ranks.h"
#include "runtime/context/context.h"
#include "seeds.h"
#include "unit/sample_steps.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static void run_steps(lierne_context *context, void *shared) {
    sample_steps *all = shared;
    sample_steps_run(&all[lierne_context_get_rank(context)], context);
}

/* The ranks of a world, ranks 2 to n + 1 of a larger one, or every second one of it. */
static int choose_members(sample_steps *t, uint64_t seed, lierne_context_spec *spec) {
    int n = 1 + (int)(seed % 5);
    t->nmembers = seed % 4 == 1 ? n : 0;
    for (int i = 0; i < n; i++) {
        t->members[i] = seed % 8 == 1 ? 2 + i : 2 * i;
    }
    spec->members = t->nmembers ? t->members : NULL;
    spec->nmembers = t->nmembers;
    return t->nmembers ? 9 : n;
}

/* 20 steps of each seed. */
Test(samples, random_steps, .timeout = 3600) {
    seed_range seeds = test_seeds(50);
    int64_t moved = 0, rejected = 0;
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        sample_steps all[SAMPLE_STEPS_RANKS] = {{0}};
        lierne_context_spec spec = {.size = sizeof spec, .check = seed % 7 == 3};
        sample_steps t = {.seed = seed, .steps = 20};
        int world = choose_members(&t, seed, &spec);
        for (int r = 0; r < world; r++) {
            all[r] = t;
        }
        ranks_run(world, &spec, run_steps, all);
        for (int r = 0; r < world; r++) {
            cr_assert_eq(all[r].wrong, 0, "LIERNE_SEED=%d: %s", (int)seed, all[r].what);
        }
        moved += all[t.nmembers ? t.members[0] : 0].moved;
        rejected += all[t.nmembers ? t.members[0] : 0].rejected;
    }
    cr_expect(seeds.end - seeds.first < 50 || (moved > 400 && rejected > 100), "%d and %d steps",
              (int)moved, (int)rejected);
}

enum { WORLD = 3, LOCAL = 2 };

static const lierne_samples_tensor tensor = {LIERNE_SAMPLES_DISPATCH, LIERNE_DTYPE_I64, 2};

/* Of which the first one is the usual one. */
static const lierne_samples_tensor tensors[3] = {{LIERNE_SAMPLES_DISPATCH, LIERNE_DTYPE_I64, 2},
                                                 {LIERNE_SAMPLES_DISPATCH, LIERNE_DTYPE_BF16, 3},
                                                 {LIERNE_SAMPLES_SEGMENTS, LIERNE_DTYPE_F32, 2}};

static lierne_samples_spec usual_spec(void) {
    return (lierne_samples_spec){.size = sizeof(lierne_samples_spec),
                                 .max_local_items = LOCAL,
                                 .ncosts = 1,
                                 .max_rows = 16,
                                 .ntensors = 1,
                                 .tensors = &tensor};
}

/* The arguments of a rank, of which one is spoiled. */
typedef struct arguments {
    int64_t cost[LOCAL + 1], rows[LOCAL + 1];
    int32_t segments[LOCAL + 1], assignment[LOCAL];
    int nodes[WORLD];
    lierne_items items;
    lierne_balance_spec balance, destination;
    bool moves_on;
} arguments;

static void usual_arguments(arguments *a, int rank) {
    *a = (arguments){.cost = {4, rank == 0 ? 9 : 1, 1}, .rows = {3, 5, 1}, .segments = {1, 1, 1}};
    a->items = (lierne_items){
        .size = sizeof a->items, .nitems = LOCAL, .ncosts = 1, .cost = a->cost, .rows = a->rows};
    a->balance = a->destination = (lierne_balance_spec)LIERNE_BALANCE_SPEC_INIT;
}

typedef struct bad_case {
    const char *name;
    void (*spoil)(arguments *a);
    int status;
    const char *text; /* in the message on every rank */
    bool all;         /* on all ranks, not on rank 1 alone */
} bad_case;

/* clang-format off */
static void spoil_size(arguments *a) { a->items.size = 3; }
static void spoil_nitems(arguments *a) { a->items.nitems = -1; }
static void spoil_capacity(arguments *a) { a->items.nitems = LOCAL + 1; }
static void spoil_ncosts(arguments *a) { a->items.ncosts = 2; }
static void spoil_cost(arguments *a) { a->items.cost = NULL; }
static void spoil_segments(arguments *a) { a->items.segments = a->segments; }
static void spoil_missing_rows(arguments *a) { a->items.segments = a->segments; a->items.rows = NULL; }
static void spoil_rows(arguments *a) { a->rows[1] = -2; }
static void spoil_many_rows(arguments *a) { a->rows[1] = (int64_t)1 << 31; }
static void spoil_returned(arguments *a) { a->items.returned_rows = a->cost; a->cost[1] = -3; }
static void spoil_negative_cost(arguments *a) { a->cost[1] = -3; }
static void spoil_sum(arguments *a) { a->cost[0] = ((int64_t)1 << 60) - 2; }
static void spoil_balance_size(arguments *a) { a->balance.size = 0; }
static void spoil_caller(arguments *a) { a->balance.mode = LIERNE_BALANCE_CALLER; a->balance.assignment = a->assignment; }
static void spoil_assignment(arguments *a) { a->balance.assignment = a->assignment; }
static void spoil_mode(arguments *a) { a->balance.mode = (lierne_balance_mode)7; }
static void spoil_cost_index(arguments *a) { a->balance.cost = 1; }
static void spoil_tolerance(arguments *a) { a->balance.tolerance = 21; }
static void spoil_nodes(arguments *a) { a->balance.nodes = a->nodes; }
static void spoil_destination(arguments *a) { a->moves_on = true; }
static void spoil_destination_mode(arguments *a) { a->moves_on = true; a->destination.mode = (lierne_balance_mode)9; }
static void spoil_destination_cap(arguments *a) { a->moves_on = true; a->destination.max_rows = 4; }
static void spoil_cap(arguments *a) { a->balance.max_rows = 4; }
static void spoil_home_rows(arguments *a) { a->rows[0] = 12; }
/* clang-format on */

static const bad_case bad_cases[] = {
    {"size", spoil_size, LIERNE_ERR_INVALID, "items->size", false},
    {"nitems", spoil_nitems, LIERNE_ERR_INVALID, "rank 1: nitems is -1", false},
    {"capacity", spoil_capacity, LIERNE_ERR_CAPACITY,
     "rank 1: it has 3 items, must be at most 2 (max_local_items)", false},
    {"ncosts", spoil_ncosts, LIERNE_ERR_INVALID, "rank 1: ncosts is 2, must be 1", false},
    {"cost", spoil_cost, LIERNE_ERR_INVALID, "cost is NULL", false},
    {"segments", spoil_segments, LIERNE_ERR_INVALID, "rank 1: segments is set", false},
    {"missing rows", spoil_missing_rows, LIERNE_ERR_INVALID, "rows is NULL", false},
    {"rows", spoil_rows, LIERNE_ERR_COUNT_RANGE, "rank 1: item 1 of its own: rows is -2", false},
    {"many rows", spoil_many_rows, LIERNE_ERR_COUNT_RANGE, "is 2147483648, must be 0 to 2147483647",
     false},
    {"returned rows", spoil_returned, LIERNE_ERR_COUNT_RANGE, "returned rows is -3", false},
    {"negative cost", spoil_negative_cost, LIERNE_ERR_COUNT_RANGE, "rank 1: item 3: a cost is -3",
     false},
    {"sum of costs", spoil_sum, LIERNE_ERR_OVERFLOW, "2^60", false},
    {"balance", spoil_balance_size, LIERNE_ERR_INVALID, "balance->size", false},
    {"caller", spoil_caller, LIERNE_ERR_INVALID, "rank 1: balance->mode is 4 (CALLER)", false},
    {"assignment", spoil_assignment, LIERNE_ERR_INVALID, "balance->assignment is set", false},
    {"another tolerance", spoil_tolerance, LIERNE_ERR_MISMATCH, "balance->tolerance", false},
    {"other nodes", spoil_nodes, LIERNE_ERR_MISMATCH, "balance->nodes", false},
    {"a destination", spoil_destination, LIERNE_ERR_MISMATCH, "destination is NULL", false},
    {"mode", spoil_mode, LIERNE_ERR_INVALID, "mode is 7", true},
    {"cost index", spoil_cost_index, LIERNE_ERR_INVALID, "spec->cost is 1", true},
    {"destination's mode", spoil_destination_mode, LIERNE_ERR_INVALID, "mode is 9", true},
    {"a cap", spoil_cap, LIERNE_ERR_INFEASIBLE, "max_rows is 4", true},
    {"destination's cap", spoil_destination_cap, LIERNE_ERR_INFEASIBLE, "max_rows is 4", true},
    {"rows at home", spoil_home_rows, LIERNE_ERR_CAPACITY, "17 rows HOME, must be at most 16",
     true},
};

typedef struct outcome {
    int wrong;
    char what[1200];
} outcome;

static void note(outcome *o, bool ok, const char *name, const char *text) {
    if (!ok && o->wrong++ == 0) {
        snprintf(o->what, sizeof o->what, "%s: %s", name, text);
    }
}

static lierne_status update(lierne_samples *s, const arguments *a) {
    return lierne_samples_update(s, &a->items, &a->balance, a->moves_on ? &a->destination : NULL);
}

/* Item 1 (cost 9, 5 rows) stays, item 0 (cost 4) leaves rank 0, and so on: whatever the assignment,
 * the adjoint brings home what forward took away. */
static void expect_old_routing(lierne_samples *s, outcome *o, const char *name) {
    int64_t in[16 * 2], out[16 * 2], back[16 * 2];
    lierne_samples_lists l = {.size = sizeof l};
    lierne_plan *plan;
    for (int i = 0; i < 32; i++) {
        in[i] = 1000 + i;
        out[i] = back[i] = -1;
    }
    note(o, lierne_samples_get_plan(&plan, s, 0) == LIERNE_OK, name, "get_plan");
    note(o, lierne_plan_forward(plan, out, in, NULL) == LIERNE_OK, name, lierne_last_error());
    note(o, lierne_plan_adjoint(plan, back, out, NULL) == LIERNE_OK, name, lierne_last_error());
    note(o, memcmp(back, in, 8 * 2 * sizeof *in) == 0 && back[16] == -1, name, "the old routing");
    note(o,
         lierne_samples_get_lists(&l, s, LIERNE_SAMPLES_HOME) == LIERNE_OK && l.nitems == LOCAL &&
             l.nitems_all == WORLD * LOCAL && l.cu_seqlens[LOCAL] == 8,
         name, "the old lists");
}

static void work_badly(lierne_context *context, void *shared) {
    int rank = lierne_context_get_rank(context);
    outcome *o = &((outcome *)shared)[rank];
    const lierne_samples_spec spec = usual_spec();
    lierne_samples *s = NULL;
    arguments a;
    usual_arguments(&a, rank);
    note(o, lierne_samples_create(&s, context, &spec) == LIERNE_OK, "create", lierne_last_error());
    note(o, update(s, &a) == LIERNE_OK, "update", lierne_last_error());
    for (size_t i = 0; i < sizeof bad_cases / sizeof *bad_cases; i++) {
        const bad_case *b = &bad_cases[i];
        usual_arguments(&a, rank);
        if (b->all || rank == 1) {
            b->spoil(&a);
        }
        lierne_status status = update(s, &a);
        note(o, status == (lierne_status)b->status && strstr(lierne_last_error(), b->text), b->name,
             status == LIERNE_OK ? "OK" : lierne_last_error());
        expect_old_routing(s, o, b->name);
    }
    note(o, lierne_samples_destroy(s) == LIERNE_OK, "destroy", lierne_last_error());
}

Test(samples, bad_arguments_of_one_rank_are_everyones) {
    for (int check = 0; check < 2; check++) {
        outcome all[WORLD] = {{0}};
        const lierne_context_spec spec = {.size = sizeof spec, .check = check};
        ranks_run(WORLD, &spec, work_badly, all);
        for (int r = 0; r < WORLD; r++) {
            cr_expect_eq(all[r].wrong, 0, "rank %d: %s", r, all[r].what);
        }
    }
}

/* Of plans, and of the control, which carries the blocks where plans move a device's memory. */
static int64_t calls_of(const lierne_context *context) {
    return context->ncalls + context->recorder.controls;
}

/* A step is an execution to gather, and one per call of a plan: no agreement, nothing else. */
static void count_calls(lierne_context *context, void *shared) {
    int rank = lierne_context_get_rank(context), before, after;
    outcome *o = &((outcome *)shared)[rank];
    const lierne_samples_spec spec = usual_spec();
    const lierne_field field = {.name = "test"};
    lierne_samples *s = NULL;
    lierne_plan *plan = NULL;
    arguments a;
    int64_t in[32] = {1, 2, 3}, out[32];
    usual_arguments(&a, rank);
    note(o, lierne_samples_create(&s, context, &spec) == LIERNE_OK, "create", lierne_last_error());
    note(o, lierne_samples_get_plan(&plan, s, 0) == LIERNE_OK, "get_plan", "");
    lierne_context_agree_all(context, LIERNE_OK, &field, 1, &before);
    for (int step = 0; step < 5; step++) {
        int64_t calls = calls_of(context);
        a.cost[0] = step * step;
        note(o, update(s, &a) == LIERNE_OK, "update", lierne_last_error());
        note(o, calls_of(context) == calls + 1, "update", "it executes more than the all-gather");
        note(o, lierne_plan_forward(plan, out, in, NULL) == LIERNE_OK, "forward", "");
        note(o, calls_of(context) == calls + 2, "forward", "it executes more than the plan");
    }
    lierne_context_agree_all(context, LIERNE_OK, &field, 1, &after);
    note(o, after == before + 1, "five steps", "ranks agreed");
    note(o, lierne_samples_destroy(s) == LIERNE_OK, "destroy", lierne_last_error());
}

Test(samples, a_step_communicates_twice) {
    outcome all[WORLD] = {{0}};
    ranks_run(WORLD, NULL, count_calls, all);
    for (int r = 0; r < WORLD; r++) {
        cr_expect_eq(all[r].wrong, 0, "rank %d: %s", r, all[r].what);
    }
}

/* Without a capacity, the counts are gathered before: one more. Steps that need more than all
 * before plan again, and others neither do nor agree. */
static void count_growing(lierne_context *context, void *shared) {
    int rank = lierne_context_get_rank(context);
    outcome *o = &((outcome *)shared)[rank];
    lierne_samples_spec spec = usual_spec();
    lierne_samples *s = NULL;
    lierne_plan *plan = NULL, *same;
    arguments a;
    int64_t in[32] = {1, 2, 3}, out[32];
    usual_arguments(&a, rank);
    spec.max_local_items = 0;
    note(o, lierne_samples_create(&s, context, &spec) == LIERNE_OK, "create", lierne_last_error());
    note(o, lierne_samples_get_plan(&plan, s, 0) == LIERNE_OK, "get_plan", "");
    for (int step = 0; step < 6; step++) {
        int64_t calls = calls_of(context);
        bool grows = step == 1 || step == 2; /* of either list of routings */
        a.cost[0] = step * step;
        a.items.nitems = step == 0 ? 1 : step == 4 ? 0 : LOCAL;
        note(o, update(s, &a) == LIERNE_OK, "update", lierne_last_error());
        note(o, (calls_of(context) == calls + 2) == !grows, "update", "calls that it makes");
        calls = calls_of(context);
        note(o, lierne_plan_forward(plan, out, in, NULL) == LIERNE_OK, "forward",
             lierne_last_error());
        note(o, calls_of(context) == calls + 1, "forward", "it executes more than the plan");
    }
    note(o, lierne_samples_get_plan(&same, s, 0) == LIERNE_OK && same == plan, "get_plan", "");
    expect_old_routing(s, o, "the last step");
    note(o, lierne_samples_destroy(s) == LIERNE_OK, "destroy", lierne_last_error());
}

Test(samples, without_a_capacity_a_step_communicates_three_times) {
    outcome all[WORLD] = {{0}};
    ranks_run(WORLD, NULL, count_growing, all);
    for (int r = 0; r < WORLD; r++) {
        cr_expect_eq(all[r].wrong, 0, "rank %d: %s", r, all[r].what);
    }
}

/* A step that has less memory than it needs gets more, and all ranks agree that each did. */
static void outgrow(lierne_context *context, void *shared) {
    int rank = lierne_context_get_rank(context), ids[4];
    outcome *o = &((outcome *)shared)[rank];
    const lierne_field field = {.name = "test"};
    const lierne_samples_spec spec = usual_spec();
    lierne_samples *s = NULL;
    arguments a;
    usual_arguments(&a, rank);
    note(o, lierne_samples_create(&s, context, &spec) == LIERNE_OK, "create", lierne_last_error());
    note(o, lierne_balance_reserve(&s->memory, 64) == LIERNE_OK, "reserve", lierne_last_error());
    lierne_context_agree_all(context, LIERNE_OK, &field, 1, &ids[0]);
    for (int step = 1; step < 4; step++) {
        note(o, update(s, &a) == LIERNE_OK, "update", lierne_last_error());
        lierne_context_agree_all(context, LIERNE_OK, &field, 1, &ids[step]);
    }
    note(o, ids[1] == ids[0] + 2, "the first step", "ranks did not agree on their memory");
    note(o, ids[2] == ids[1] + 1 && ids[3] == ids[2] + 1, "equal steps", "ranks agreed");
    note(o, lierne_samples_destroy(s) == LIERNE_OK, "destroy", lierne_last_error());
}

Test(samples, memory_grows_once) {
    outcome all[WORLD] = {{0}};
    ranks_run(WORLD, NULL, outgrow, all);
    for (int r = 0; r < WORLD; r++) {
        cr_expect_eq(all[r].wrong, 0, "rank %d: %s", r, all[r].what);
    }
}

/* One rank, so that the failed allocation is everybody's. */
static void run_alone(void (*run)(lierne_context *context, outcome *o)) {
    lierne_context *context;
    outcome o = {0};
    assert_ok(lierne_context_create_self(&context, NULL));
    run(context, &o);
    cr_expect_eq(o.wrong, 0, "%s", o.what);
    assert_ok(lierne_context_destroy(context));
    cr_expect_eq(lierne_mem_live(), 0);
}

static void run_out(lierne_context *context, outcome *o) {
    const lierne_samples_spec spec = usual_spec();
    lierne_status status = LIERNE_ERR_NO_MEMORY;
    lierne_samples *s = NULL;
    size_t k = 0;
    while (status == LIERNE_ERR_NO_MEMORY && ++k < 1000) {
        lierne_mem_fail_at(k);
        status = lierne_samples_create(&s, context, &spec);
        lierne_mem_fail_at(0);
        note(o, status == LIERNE_OK || !s, "create", "a pointer after an error");
    }
    note(o, status == LIERNE_OK && k > 50, "create", lierne_last_error());
    for (int step = 0; step < 3; step++) {
        arguments a;
        usual_arguments(&a, 0);
        a.items.nitems = step;
        lierne_mem_fail_at(1);
        note(o, update(s, &a) == LIERNE_OK, "update", lierne_last_error());
        lierne_mem_fail_at(0);
    }
    note(o, lierne_samples_destroy(s) == LIERNE_OK, "destroy", lierne_last_error());
}

/* Without a capacity, allocation k of a step that needs more fails: the plan moves as before,
 * unless a message had no memory. Returns the step's status. */
static lierne_status run_out_growing(lierne_context *context, outcome *o, size_t k) {
    lierne_samples_spec spec = usual_spec();
    lierne_samples *s = NULL;
    lierne_plan *plan = NULL;
    int64_t in[32] = {5, 6, 7}, out[32] = {0};
    arguments a;
    usual_arguments(&a, 0);
    a.items.nitems = 1;
    spec.max_local_items = 0;
    spec.ntensors = 2, spec.tensors = tensors;
    note(o, lierne_samples_create(&s, context, &spec) == LIERNE_OK, "create", lierne_last_error());
    note(o, lierne_samples_get_plan(&plan, s, 0) == LIERNE_OK, "get_plan", "");
    note(o, update(s, &a) == LIERNE_OK, "update", lierne_last_error());
    a.items.nitems = LOCAL;
    lierne_mem_fail_at(k);
    lierne_status status = update(s, &a);
    lierne_mem_fail_at(0);
    if (context->dead == LIERNE_OK) {
        note(o, lierne_plan_forward(plan, out, in, NULL) == LIERNE_OK, "forward",
             lierne_last_error());
        note(o, memcmp(out, in, 6 * sizeof *in) == 0, "forward", "the old routing");
        a.items.nitems = LOCAL;
        note(o, update(s, &a) == LIERNE_OK, "another update", lierne_last_error());
    }
    note(o, lierne_samples_destroy(s) == LIERNE_OK, "destroy", lierne_last_error());
    return status;
}

Test(samples, growing_runs_out_of_memory) {
    lierne_status status = LIERNE_ERR_NO_MEMORY;
    size_t k = 0;
    while (status == LIERNE_ERR_NO_MEMORY && ++k < 1000) {
        lierne_context *context;
        outcome o = {0};
        assert_ok(lierne_context_create_self(&context, NULL));
        status = run_out_growing(context, &o, k);
        cr_expect_eq(o.wrong, 0, "allocation %d: %s", (int)k, o.what);
        assert_ok(lierne_context_destroy(context));
        cr_expect_eq(lierne_mem_live(), 0);
    }
    cr_expect(status == LIERNE_OK && k > 50, "%d allocations", (int)k);
}

/* The same with less memory than a step needs: what it gets is there in the next one. */
static void run_out_of_grown(lierne_context *context, outcome *o) {
    const lierne_samples_spec spec = usual_spec();
    lierne_status status = LIERNE_ERR_NO_MEMORY;
    lierne_samples *s = NULL;
    size_t k = 0;
    arguments a;
    usual_arguments(&a, 0);
    note(o, lierne_samples_create(&s, context, &spec) == LIERNE_OK, "create", lierne_last_error());
    note(o, lierne_balance_reserve(&s->memory, 64) == LIERNE_OK, "reserve", lierne_last_error());
    while (status == LIERNE_ERR_NO_MEMORY && ++k < 1000) {
        lierne_mem_fail_at(k);
        status = update(s, &a);
        lierne_mem_fail_at(0);
    }
    note(o, status == LIERNE_OK && k > 5, "update", lierne_last_error());
    lierne_mem_fail_at(1);
    note(o, update(s, &a) == LIERNE_OK, "update", lierne_last_error());
    lierne_mem_fail_at(0);
    note(o, lierne_samples_destroy(s) == LIERNE_OK, "destroy", lierne_last_error());
}

Test(samples, memory_that_grew_is_kept) {
    run_alone(run_out_of_grown);
}

Test(samples, memory_is_reserved_by_create) {
    run_alone(run_out);
}

/* Messages of a call of n plans, in both directions together. */
static int64_t count_messages(lierne_plan *const *plans, int n, outcome *o) {
    lierne_coalesced *x = NULL;
    int64_t sent, received, all = 0;
    note(o, lierne_coalesced_create(&x, plans, n) == LIERNE_OK, "create", lierne_last_error());
    lierne_coalesced_get_messages(&sent, &received, x, LIERNE_DIRECTION_FORWARD);
    all = sent + received;
    lierne_coalesced_get_messages(&sent, &received, x, LIERNE_DIRECTION_ADJOINT);
    note(o, lierne_coalesced_destroy(x) == LIERNE_OK, "destroy", lierne_last_error());
    return all + sent + received;
}

static void expect_rejected(lierne_plan *const *plans, const char *text, outcome *o) {
    lierne_coalesced *x;
    note(o,
         lierne_coalesced_create(&x, plans, 2) == LIERNE_ERR_INVALID &&
             strstr(lierne_last_error(), text),
         text, lierne_last_error());
}

/* Three tensors have the messages of one, and a step two communications. Rank 1 ends later than
 * others: till then no rank can update. */
static void move_together(lierne_context *context, void *shared) {
    int rank = lierne_context_get_rank(context);
    outcome *o = &((outcome *)shared)[rank];
    lierne_samples_spec spec = usual_spec();
    const lierne_all_gather_spec fixed = {.size = sizeof fixed,
                                          .count = 1,
                                          .dtype = LIERNE_DTYPE_I64};
    lierne_samples *s = NULL, *growing = NULL;
    lierne_plan *plans[3], *mixed[2];
    lierne_coalesced *x = NULL;
    int64_t in[3][32] = {{7}, {8}, {9}}, out[3][32];
    arguments a;
    usual_arguments(&a, rank);
    spec.ntensors = 3, spec.tensors = tensors;
    note(o, lierne_samples_create(&s, context, &spec) == LIERNE_OK, "create", lierne_last_error());
    for (int i = 0; i < 3; i++) {
        note(o, lierne_samples_get_plan(&plans[i], s, i) == LIERNE_OK, "get_plan", "");
    }
    int64_t one = count_messages(plans, 1, o), all = count_messages(plans, 3, o);
    note(o, one == all && one > 0, "three tensors", "they have other messages than one");
    note(o, lierne_coalesced_create(&x, plans, 3) == LIERNE_OK, "create", lierne_last_error());
    void *outs[3] = {out[0], out[1], out[2]};
    const void *ins[3] = {in[0], in[1], in[2]};
    for (int step = 0; step < 4; step++) {
        int64_t calls = calls_of(context);
        a.cost[0] = step * step;
        note(o, update(s, &a) == LIERNE_OK, "update", lierne_last_error());
        note(o, calls_of(context) == calls + 1, "update", "it executes more than the all-gather");
        note(o, lierne_coalesced_begin(x, LIERNE_DIRECTION_FORWARD, outs, ins, NULL) == LIERNE_OK,
             "begin", lierne_last_error());
        note(o, calls_of(context) == calls + 2, "begin", "it executes more than one exchange");
        if (rank != 1) {
            note(o, lierne_coalesced_end(x, LIERNE_DIRECTION_FORWARD) == LIERNE_OK, "end",
                 lierne_last_error());
        }
        note(o, update(s, &a) == LIERNE_ERR_BUSY && strstr(lierne_last_error(), "rank 1"), "update",
             lierne_last_error());
        if (rank == 1) {
            note(o, lierne_coalesced_end(x, LIERNE_DIRECTION_FORWARD) == LIERNE_OK, "end",
                 lierne_last_error());
        }
    }
    note(o, lierne_samples_destroy(s) == LIERNE_ERR_BUSY, "destroy", "coalesced plans hold them");
    note(o, lierne_coalesced_destroy(x) == LIERNE_OK, "destroy", lierne_last_error());
    note(o, lierne_plan_create_all_gather(&mixed[1], context, &fixed) == LIERNE_OK, "fixed", "");
    mixed[0] = plans[0];
    expect_rejected(mixed, "the segments of plan 0 may change (max_segments in its spec), and", o);
    spec.max_local_items = 0;
    note(o, lierne_samples_create(&growing, context, &spec) == LIERNE_OK, "create", "");
    note(o, lierne_samples_get_plan(&mixed[0], growing, 0) == LIERNE_OK, "get_plan", "");
    expect_rejected(mixed, "plan 0 is of samples without a capacity (max_local_items", o);
    note(o, lierne_plan_destroy(mixed[1]) == LIERNE_OK, "destroy", lierne_last_error());
    note(o, lierne_samples_destroy(growing) == LIERNE_OK, "destroy", lierne_last_error());
    note(o, lierne_samples_destroy(s) == LIERNE_OK, "destroy", lierne_last_error());
}

Test(samples, tensors_travel_in_one_message) {
    outcome all[WORLD] = {{0}};
    ranks_run(WORLD, NULL, move_together, all);
    for (int r = 0; r < WORLD; r++) {
        cr_expect_eq(all[r].wrong, 0, "rank %d: %s", r, all[r].what);
    }
}

Test(samples, rows_beyond_32_bits) {
    const lierne_samples_tensor marks = {LIERNE_SAMPLES_SEGMENTS, LIERNE_DTYPE_F32, 1};
    lierne_samples_spec spec = usual_spec();
    const int32_t *cu;
    lierne_context *context;
    lierne_samples *s;
    arguments a;
    spec.tensors = &marks, spec.max_rows = (int64_t)1 << 40;
    usual_arguments(&a, 0);
    a.rows[0] = a.rows[1] = ((int64_t)1 << 30) - 1;
    assert_ok(lierne_context_create_self(&context, NULL));
    assert_ok(lierne_samples_create(&s, context, &spec));
    assert_ok(update(s, &a));
    assert_ok(lierne_samples_get_cu_seqlens_i32(&cu, s, LIERNE_SAMPLES_DISPATCHED));
    cr_expect_eq(cu[2], 2147483646);
    a.rows[1] += 2;
    assert_ok(update(s, &a));
    cr_expect_eq(lierne_samples_get_cu_seqlens_i32(&cu, s, LIERNE_SAMPLES_DISPATCHED),
                 LIERNE_ERR_OVERFLOW);
    cr_expect(!cu && strstr(lierne_last_error(), "cu_seqlens[2] is 2147483648, must be at most"));
    assert_ok(lierne_samples_destroy(s));
    assert_ok(lierne_context_destroy(context));
}

Test(samples, a_context_goes_with_samples_and_what_is_coalesced) {
    const lierne_samples_spec spec = usual_spec();
    lierne_context *context;
    lierne_samples *s;
    lierne_coalesced *x;
    assert_ok(lierne_context_create_self(&context, NULL));
    assert_ok(lierne_samples_create(&s, context, &spec));
    assert_ok(lierne_coalesced_create(&x, s->plans, 1));
    assert_ok(lierne_context_destroy_all(context));
    cr_expect_eq(lierne_mem_live(), 0);
}

/* On rank 1 the second of two coalesced plans has another description than on the others. Where
 * messages cannot say so, the update has compared what all gathered, and nothing is found here. */
static void move_another(lierne_context *context, void *shared) {
    int rank = lierne_context_get_rank(context);
    outcome *o = &((outcome *)shared)[rank];
    lierne_samples_spec spec = usual_spec();
    lierne_samples *s = NULL;
    lierne_coalesced *x = NULL;
    int64_t in[2][32] = {{7}, {8}}, out[2][32];
    void *outs[2] = {out[0], out[1]};
    const void *ins[2] = {in[0], in[1]};
    arguments a;
    usual_arguments(&a, rank);
    spec.ntensors = 2, spec.tensors = tensors;
    note(o, lierne_samples_create(&s, context, &spec) == LIERNE_OK, "create", lierne_last_error());
    note(o, lierne_coalesced_create(&x, s->plans, 2) == LIERNE_OK, "create", lierne_last_error());
    note(o, update(s, &a) == LIERNE_OK, "update", lierne_last_error());
    if (rank == 1) {
        lierne_varying_plan *v = lierne_varying_plan_of(s->plans[1]);
        v->ways[0].engine.stamp[LIERNE_STAMP_HASH]++;
    }
    lierne_status status = lierne_coalesced_begin(x, LIERNE_DIRECTION_FORWARD, outs, ins, NULL);
    status = status == LIERNE_OK ? lierne_coalesced_end(x, LIERNE_DIRECTION_FORWARD) : status;
    /* Rank 2 hears of rank 1, and rank 1 of rank 0; others may end before they learn of it. */
    bool hears = lierne_execution_stamps(context) && rank > 0;
    bool may_pass = !hears && status == LIERNE_OK;
    note(o,
         may_pass ||
             (status == LIERNE_ERR_MISMATCH && strstr(lierne_last_error(), "the segments of rank")),
         "forward", status == LIERNE_OK ? "OK" : lierne_last_error());
    lierne_coalesced_destroy(x);
    note(o, lierne_samples_destroy(s) == LIERNE_OK, "destroy", lierne_last_error());
}

Test(samples, another_description_of_one_tensor_is_found) {
    outcome all[WORLD] = {{0}};
    ranks_run(WORLD, NULL, move_another, all);
    for (int r = 0; r < WORLD; r++) {
        cr_expect_eq(all[r].wrong, 0, "rank %d: %s", r, all[r].what);
    }
}

/* Of rank 1 alone, on a rank that others wait for: what it holds makes all BUSY. */
static void hold_back(lierne_context *context, void *shared) {
    int rank = lierne_context_get_rank(context);
    outcome *o = &((outcome *)shared)[rank];
    const lierne_samples_spec spec = usual_spec();
    lierne_samples *s = NULL;
    lierne_request *request = NULL;
    lierne_plan *plan = NULL;
    int64_t in[32] = {5, 6}, out[32];
    arguments a;
    usual_arguments(&a, rank);
    note(o, lierne_samples_create(&s, context, &spec) == LIERNE_OK, "create", lierne_last_error());
    note(o, lierne_samples_get_plan(&plan, s, 0) == LIERNE_OK, "get_plan", "");
    note(o, lierne_plan_destroy(plan) == LIERNE_ERR_BUSY, "plan_destroy", "a plan of samples goes");
    note(o, lierne_plan_forward_begin(&request, plan, out, in, NULL) == LIERNE_OK, "begin", "");
    if (rank != 1) {
        note(o, lierne_request_end(request) == LIERNE_OK, "end", lierne_last_error());
    }
    note(o, update(s, &a) == LIERNE_ERR_BUSY && strstr(lierne_last_error(), "rank 1"), "update",
         lierne_last_error());
    if (rank == 1) {
        note(o, lierne_samples_destroy(s) == LIERNE_ERR_BUSY, "destroy", "samples are in use");
        note(o, lierne_request_end(request) == LIERNE_OK, "end", lierne_last_error());
    }
    note(o, update(s, &a) == LIERNE_OK, "update", lierne_last_error());
    expect_old_routing(s, o, "after BUSY");
    note(o, lierne_samples_destroy(s) == LIERNE_OK, "destroy", lierne_last_error());
}

Test(samples, requests_hold_an_update_back) {
    outcome all[WORLD] = {{0}};
    ranks_run(WORLD, NULL, hold_back, all);
    for (int r = 0; r < WORLD; r++) {
        cr_expect_eq(all[r].wrong, 0, "rank %d: %s", r, all[r].what);
    }
}

/* What create rejects; spoiled on rank 2 alone, so that other ranks have the same error. */
static void spoil_spec(lierne_samples_spec *spec, lierne_samples_tensor *t, int which) {
    *t = tensor;
    spec->tensors = t;
    switch (which) {
    case 0:
        spec->size = 1;
        break;
    case 1:
        spec->max_local_items = -1;
        break;
    case 2:
        spec->max_local_segments = -1;
        break;
    case 3:
        spec->ncosts = 5;
        break;
    case 4:
        spec->max_rows = 0;
        break;
    case 5:
        spec->max_returned_rows = -1;
        break;
    case 6:
        spec->ntensors = 17;
        break;
    case 7:
        spec->tensors = NULL;
        break;
    case 8:
        t->width = 0;
        break;
    case 9:
        t->dtype = LIERNE_DTYPE_NONE;
        break;
    case 10:
        t->way = (lierne_samples_way)3;
        break;
    case 11:
        spec->max_inflight = 65;
        break;
    case 12:
        spec->max_rows = (int64_t)1 << 59;
        break;
    case 13:
        t->width = 3;
        break;
    case 14:
        spec->max_local_items = 0;
        spec->max_local_segments = 3;
        break;
    case 15:
        spec->max_local_items = 0;
        break;
    default:
        spec->caller = 1;
        break;
    }
}

static void create_badly(lierne_context *context, void *shared) {
    static const struct {
        int status;
        const char *text;
    } wanted[] = {{LIERNE_ERR_INVALID, "size"},
                  {LIERNE_ERR_INVALID, "rank 2: max_local_items is -1"},
                  {LIERNE_ERR_INVALID, "rank 2: max_local_segments is -1"},
                  {LIERNE_ERR_INVALID, "rank 2: ncosts is 5, must be 1 to 4"},
                  {LIERNE_ERR_INVALID, "rank 2: max_rows is 0"},
                  {LIERNE_ERR_INVALID, "rank 2: max_returned_rows is -1"},
                  {LIERNE_ERR_INVALID, "rank 2: ntensors is 17, must be 1 to 16"},
                  {LIERNE_ERR_INVALID, "tensors is NULL"},
                  {LIERNE_ERR_INVALID, "rank 2: width of a tensor is 0"},
                  {LIERNE_ERR_INVALID, "dtype"},
                  {LIERNE_ERR_INVALID, "rank 2: way of a tensor is 3"},
                  {LIERNE_ERR_INVALID, "max_inflight"},
                  {LIERNE_ERR_OVERFLOW, "2^60"},
                  {LIERNE_ERR_MISMATCH, "width[0]"},
                  {LIERNE_ERR_INVALID, "rank 2: max_local_segments is 3, must be 0 to 0"},
                  {LIERNE_ERR_MISMATCH, "max_local_items differs between ranks"},
                  {LIERNE_ERR_MISMATCH, "caller"}};
    int rank = lierne_context_get_rank(context);
    outcome *o = &((outcome *)shared)[rank];
    for (int i = 0; i < (int)(sizeof wanted / sizeof *wanted); i++) {
        lierne_samples_spec spec = usual_spec();
        lierne_samples_tensor t;
        lierne_samples *s = (lierne_samples *)&t;
        if (rank == 2) {
            spoil_spec(&spec, &t, i);
        }
        lierne_status status = lierne_samples_create(&s, context, &spec);
        note(o,
             status == (lierne_status)wanted[i].status && !s &&
                 strstr(lierne_last_error(), wanted[i].text),
             wanted[i].text, lierne_last_error());
    }
}

Test(samples, specs_that_are_rejected) {
    outcome all[WORLD] = {{0}};
    lierne_samples *s;
    lierne_samples_lists lists = {.size = sizeof lists};
    lierne_assignment_report report = {.size = sizeof report};
    const int32_t *cu;
    lierne_plan *plan;
    ranks_run(WORLD, NULL, create_badly, all);
    for (int r = 0; r < WORLD; r++) {
        cr_expect_eq(all[r].wrong, 0, "rank %d: %s", r, all[r].what);
    }
    cr_expect_eq(lierne_samples_create(&s, NULL, NULL), LIERNE_ERR_INVALID);
    cr_expect_eq(lierne_samples_update(NULL, NULL, NULL, NULL), LIERNE_ERR_INVALID);
    cr_expect_eq(lierne_samples_get_plan(&plan, NULL, 0), LIERNE_ERR_INVALID);
    cr_expect_eq(lierne_samples_get_lists(&lists, NULL, LIERNE_SAMPLES_HOME), LIERNE_ERR_INVALID);
    cr_expect_eq(lierne_samples_get_cu_seqlens_i32(&cu, NULL, LIERNE_SAMPLES_HOME),
                 LIERNE_ERR_INVALID);
    cr_expect_eq(lierne_samples_get_report(&report, NULL), LIERNE_ERR_INVALID);
    cr_expect_eq(lierne_samples_destroy(NULL), LIERNE_OK);
}
