/* Samples in simulated worlds: random steps against an oracle, how often ranks communicate, memory,
 * tensors together. test_sample_reject.c has what is rejected. */
#include "base/base.h"
#include "expect.h"
#include "lierne.h"
#include "plan/redistribute/varying_plan.h"
#include "plan/samples/sample_routing.h"
#include "ranks.h"
#include "runtime/context/context.h"
#include "seeds.h"
#include "unit/sample_steps.h"
#include "unit/sample_world.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
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

/* Of which the first one is the usual one. */
static const lierne_samples_tensor tensors[3] = {{LIERNE_SAMPLES_DISPATCH, LIERNE_DTYPE_I64, 2},
                                                 {LIERNE_SAMPLES_DISPATCH, LIERNE_DTYPE_BF16, 3},
                                                 {LIERNE_SAMPLES_SEGMENTS, LIERNE_DTYPE_F32, 2}};

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

/* A step that is too large for any memory: the next one asks for what it needs itself. */
static void shrink(lierne_context *context, outcome *o) {
    const lierne_samples_tensor wide = {LIERNE_SAMPLES_DISPATCH, LIERNE_DTYPE_U8, INT32_MAX};
    const int32_t many = 1 << 25;
    int64_t *none = calloc((size_t)many, sizeof *none);
    lierne_samples_spec spec = usual_spec();
    lierne_samples *s = NULL;
    arguments a;
    spec.max_local_items = 0, spec.max_rows = 1, spec.tensors = &wide;
    note(o, lierne_samples_create(&s, context, &spec) == LIERNE_OK, "create", lierne_last_error());
    usual_arguments(&a, 0);
    a.items.nitems = 1, a.items.segments = &many, a.items.rows = none;
    note(o, update(s, &a) == LIERNE_ERR_OVERFLOW, "large", lierne_last_error());
    usual_arguments(&a, 0);
    a.rows[0] = a.rows[1] = 0;
    note(o, update(s, &a) == LIERNE_OK, "small", lierne_last_error());
    note(o, lierne_samples_destroy(s) == LIERNE_OK, "destroy", lierne_last_error());
    free(none);
}

Test(samples, a_step_that_is_too_large_is_not_kept) {
    run_alone(shrink);
}

/* Without memory, where a step outgrows what there is: what it gets is there in the next one. */
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
    const lierne_field field = {.name = "test"};
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
    lierne_context_agree_all(context, LIERNE_OK, &field, 1, NULL); /* no rank fails before that */
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
