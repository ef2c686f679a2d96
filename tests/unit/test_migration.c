/* Migrations: random steps against a serial model, and what each rank may do wrong. */
#include <criterion/criterion.h>
#include <lierne.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "rank_threads.h"
#include "ranks.h"
#include "runtime/context/context.h"
#include "seeds.h"
#include "unit/migration_case.h"

enum { SEEDS = 10, STEPS = 10 }; /* LIERNE_SEEDS=1000: 10,000 steps */

static void run_steps(lierne_context *context, void *shared) {
    migration_steps *m = shared;
    migration_steps_run(&m[lierne_context_get_rank(context)], context);
}

Test(migration, random_steps_equal_a_serial_model) {
    seed_range seeds = test_seeds(SEEDS);
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        migration_steps m[MIGRATION_RANKS] = {0};
        int world = 1 + (int)(seed % MIGRATION_RANKS);
        int64_t moved = 0;
        for (int r = 0; r < world; r++) {
            m[r] = (migration_steps){.seed = seed, .steps = STEPS};
        }
        ranks_run(world, NULL, run_steps, m);
        for (int r = 0; r < world; r++) {
            cr_assert_eq(m[r].wrong, 0, "seed %d, step %d, rank %d: line %d: %s", (int)seed,
                         m[r].step, r, m[r].wrong, m[r].what);
            moved += m[r].moved;
        }
        cr_assert(world == 1 || moved > 0, "seed %d: no row moved", (int)seed);
    }
}

/* By hand: rank 0 has 10, 11, 12, rank 1 has 20, 21. 11 and 20 change places, 21 ends. */
static const int32_t owners[2][3] = {{0, 1, 0}, {0, -1, 0}};
static const int64_t values[2][3] = {{10, 11, 12}, {20, 21, 0}};

static lierne_migration_spec spec_of(int rank) {
    return (lierne_migration_spec){.size = sizeof(lierne_migration_spec),
                                   .nrows = 3 - rank,
                                   .owner = owners[rank],
                                   .dtype = LIERNE_DTYPE_I64,
                                   .width = 1};
}

static bool moves_by_hand(lierne_plan *plan, int rank) {
    static const int64_t forth[2][3] = {{10, 12, 20}, {11, -1, -1}};
    static const int64_t back[2][3] = {{10, 11, 12}, {20, 0, -1}};
    int64_t out[3] = {-1, -1, -1}, home[3] = {-1, -1, -1};
    return lierne_plan_forward(plan, out, values[rank], NULL) == LIERNE_OK &&
           memcmp(out, forth[rank], sizeof out) == 0 &&
           lierne_plan_adjoint(plan, home, out, NULL) == LIERNE_OK &&
           memcmp(home, back[rank], sizeof home) == 0;
}

static void run_by_hand(lierne_context *context, void *shared) {
    bool *right = shared;
    int r = lierne_context_get_rank(context);
    const lierne_migration_spec spec = spec_of(r);
    lierne_plan *plan = NULL;
    lierne_report report[2] = {{.size = sizeof *report}, {.size = sizeof *report}};
    right[r] = lierne_plan_create_migration(&plan, context, &spec) == LIERNE_OK &&
               strcmp(lierne_plan_get_kind(plan), "migration") == 0 && moves_by_hand(plan, r);
    for (int d = 0; plan && d < 2; d++) {
        lierne_plan_get_report(&report[d], plan, (lierne_direction)d);
        right[r] = right[r] && report[d].min_bytes == 8 && report[d].received_bytes == 8 &&
                   report[d].stages == 1 && report[d].scratch_bytes == 0;
    }
    right[r] = right[r] && lierne_plan_reduce(plan, LIERNE_REDUCTION_MAX, (int64_t[3]){0},
                                              values[r], NULL) == LIERNE_ERR_INVALID;
    lierne_plan_destroy(plan);
}

Test(migration, two_rows_change_places_and_one_ends) {
    bool right[2] = {0};
    ranks_run(2, NULL, run_by_hand, right);
    cr_assert(right[0] && right[1], "%d %d", right[0], right[1]);
}

/* Written as references, and read again. */
static void run_text(lierne_context *context, void *shared) {
    bool *right = shared;
    int r = lierne_context_get_rank(context);
    const lierne_migration_spec spec = spec_of(r);
    lierne_plan *plan = NULL, *read = NULL;
    char *text = NULL;
    right[r] = lierne_plan_create_migration(&plan, context, &spec) == LIERNE_OK &&
               lierne_plan_serialize(&text, plan) == LIERNE_OK &&
               lierne_plan_deserialize(&read, context, text, strlen(text)) == LIERNE_OK &&
               moves_by_hand(read, r);
    lierne_text_destroy(text);
    lierne_plan_destroy(read);
    lierne_plan_destroy(plan);
}

Test(migration, a_text_has_the_references) {
    bool right[2] = {0};
    ranks_run(2, NULL, run_text, right);
    cr_assert(right[0] && right[1], "%d %d: %s", right[0], right[1], lierne_last_error());
}

/* What rank 1 gives, what both ranks must get of creating and of an update, and that the plan keeps
 * its rows. */
typedef struct fault {
    void (*break_it)(lierne_migration_spec *spec);
    lierne_status status;
    const char *text;
    bool update_only;
} fault;
typedef struct got {
    const fault *of;
    lierne_status status[2][2];
    char message[2][2][400];
    bool right[2];
} got;

#define FAULT(name, ...)                                                                           \
    static void name(lierne_migration_spec *s) {                                                   \
        __VA_ARGS__;                                                                               \
    }
static const int32_t high[] = {1, 2}, low[] = {-2, 0};
FAULT(bad_size, s->size = 3)
FAULT(negative, s->nrows = -1)
FAULT(no_owner, s->owner = NULL)
FAULT(owner_high, s->owner = high)
FAULT(owner_low, s->owner = low)
FAULT(no_width, s->width = 0)
FAULT(short_stride, s->stride = 3; s->width = 4)
FAULT(bad_dtype, s->dtype = (lierne_dtype)99)
FAULT(other_dtype, s->dtype = LIERNE_DTYPE_F64)
FAULT(other_width, s->width = 2)
FAULT(many_inflight, s->max_inflight = 65)
FAULT(wide, s->stride = INT64_MAX / 8)
static const fault faults[] = {
    {bad_size, LIERNE_ERR_INVALID, "rank 1: spec->size is 3", false},
    {negative, LIERNE_ERR_COUNT_RANGE, "rank 1: -1 owned rows", false},
    {no_owner, LIERNE_ERR_INVALID, "owner is NULL", false},
    {owner_high, LIERNE_ERR_OWNER_RANGE, "rank 1: row 1 gets owner 2, which must be", false},
    {owner_low, LIERNE_ERR_OWNER_RANGE, "rank 1: row 0 gets owner -2, which must be", false},
    {no_width, LIERNE_ERR_INVALID, "rank 1: width is 0", false},
    {short_stride, LIERNE_ERR_INVALID, "width is 4 and stride 3", false},
    {bad_dtype, LIERNE_ERR_INVALID, "dtype is 99", false},
    {other_dtype, LIERNE_ERR_MISMATCH, "dtype", false},
    {other_width, LIERNE_ERR_MISMATCH, "width", false},
    {many_inflight, LIERNE_ERR_INVALID, "max_inflight is 65", false},
    {wide, LIERNE_ERR_COUNT_RANGE, "rank 1: 2 owned rows", false},
    {other_dtype, LIERNE_ERR_INVALID, "rank 1: dtype 0, width 1", true},
};

static void keep(got *g, int r, int which, lierne_status status) {
    g->status[r][which] = status;
    snprintf(g->message[r][which], sizeof g->message[r][which], "%s", lierne_last_error());
}

static void run_fault(lierne_context *context, void *shared) {
    got *g = shared;
    int r = lierne_context_get_rank(context);
    const lierne_migration_spec good = spec_of(r);
    lierne_migration_spec bad = good;
    lierne_plan *none = (lierne_plan *)&bad, *plan = NULL;
    if (r == 1) {
        g->of->break_it(&bad);
    }
    keep(g, r, 0, lierne_plan_create_migration(&none, context, &bad));
    g->right[r] = !none && lierne_plan_create_migration(&plan, context, &good) == LIERNE_OK;
    keep(g, r, 1, lierne_plan_update_migration(plan, &bad));
    g->right[r] = g->right[r] && moves_by_hand(plan, r);
    lierne_plan_destroy(none);
    lierne_plan_destroy(plan);
}

Test(migration, an_error_of_one_rank_is_every_ranks_and_the_plan_keeps_its_rows) {
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const fault *f = &faults[i];
        got g = {.of = f};
        ranks_run(2, NULL, run_fault, &g);
        bool typed = f->status == LIERNE_ERR_MISMATCH || strstr(f->text, "width") != NULL ||
                     strstr(f->text, "inflight") != NULL || strstr(f->text, "99") != NULL;
        for (int r = 0; r < 2; r++) {
            cr_expect(f->update_only ||
                          (g.status[r][0] == f->status && strstr(g.message[r][0], f->text)),
                      "case %zu, rank %d: %s: %s", i, r, lierne_status_name(g.status[r][0]),
                      g.message[r][0]);
            cr_expect(g.status[r][1] == (typed ? LIERNE_ERR_INVALID : f->status) &&
                          strstr(g.message[r][1], "rank 1: "),
                      "case %zu, update, rank %d: %s: %s", i, r, lierne_status_name(g.status[r][1]),
                      g.message[r][1]);
            cr_expect(g.right[r], "case %zu, rank %d", i, r);
        }
    }
}

/* Plans that cannot be updated together: in flight, held by others too, of other kinds; and those
 * that keep their rows where one rank's are wrong. */
static bool updates_together(lierne_coalesced *held, lierne_plan *plan, lierne_plan *retyped,
                             lierne_plan *barrier, int rank) {
    lierne_migration_spec spec = spec_of(rank), bad = spec;
    lierne_coalesced *more = NULL, *alone = NULL;
    int64_t out[2][3];
    void *const outs[] = {out[0], out[1]};
    const void *const ins[] = {values[rank], values[rank]};
    bad.owner = rank ? high : bad.owner;
    bool right =
        lierne_coalesced_update_migration(held, &bad) == LIERNE_ERR_OWNER_RANGE &&
        strstr(lierne_last_error(), "rank 1: row 1 gets owner 2") && moves_by_hand(plan, rank) &&
        moves_by_hand(retyped, rank) &&
        lierne_coalesced_begin(held, LIERNE_DIRECTION_FORWARD, outs, ins, NULL) == LIERNE_OK &&
        lierne_coalesced_update_migration(held, &spec) == LIERNE_ERR_BUSY &&
        strstr(lierne_last_error(), "is in flight") &&
        lierne_coalesced_end(held, LIERNE_DIRECTION_FORWARD) == LIERNE_OK &&
        lierne_coalesced_create(&more, (lierne_plan *[]){retyped, barrier}, 2) == LIERNE_OK &&
        lierne_coalesced_update_migration(held, &spec) == LIERNE_ERR_BUSY &&
        strstr(lierne_last_error(), "hold the plan") &&
        lierne_coalesced_update_migration(more, &spec) == LIERNE_ERR_INVALID &&
        strstr(lierne_last_error(), "none of the coalesced plans is a migration") &&
        lierne_coalesced_destroy(more) == LIERNE_OK;
    lierne_coalesced_create(&alone, (lierne_plan *[]){plan, barrier}, 2);
    right = right && lierne_coalesced_update_migration(alone, &spec) == LIERNE_ERR_INVALID &&
            strstr(lierne_last_error(), "plan 1 is of kind barrier") &&
            lierne_coalesced_update_migration(NULL, &spec) == LIERNE_ERR_INVALID;
    lierne_coalesced_destroy(alone);
    return right && lierne_coalesced_update_migration(held, &spec) == LIERNE_OK &&
           lierne_plan_update_migration(plan, &spec) == LIERNE_ERR_BUSY &&
           moves_by_hand(retyped, rank);
}

/* Plans that are held, of another kind or missing. */
static void run_updates(lierne_context *context, void *shared) {
    bool *right = shared;
    int r = lierne_context_get_rank(context);
    const lierne_migration_spec spec = spec_of(r);
    const lierne_retyped_spec other = {sizeof other, LIERNE_DTYPE_I64, 1, 0, 0, 0, NULL};
    const lierne_barrier_spec nothing = {.size = sizeof nothing};
    lierne_plan *plan = NULL, *retyped = NULL, *barrier = NULL;
    lierne_coalesced *held = NULL;
    right[r] = lierne_plan_create_migration(&plan, context, &spec) == LIERNE_OK &&
               lierne_plan_create_retyped(&retyped, plan, &other) == LIERNE_OK &&
               lierne_plan_create_barrier(&barrier, context, &nothing) == LIERNE_OK &&
               lierne_coalesced_create(&held, (lierne_plan *[]){plan, retyped}, 2) == LIERNE_OK &&
               lierne_plan_update_migration(plan, &spec) == LIERNE_ERR_BUSY &&
               lierne_plan_update_retyped(retyped, plan) == LIERNE_ERR_BUSY &&
               updates_together(held, plan, retyped, barrier, r) &&
               lierne_coalesced_destroy(held) == LIERNE_OK &&
               lierne_plan_update_migration(retyped, &spec) == LIERNE_ERR_INVALID &&
               strstr(lierne_last_error(), "the plan is not a migration") &&
               lierne_plan_update_retyped(plan, retyped) == LIERNE_ERR_INVALID &&
               strstr(lierne_last_error(), "the plan is of kind migration") &&
               lierne_plan_update_retyped(retyped, barrier) == LIERNE_ERR_INVALID &&
               strstr(lierne_last_error(), "of kind barrier that has no rows") &&
               lierne_plan_update_retyped(retyped, r ? NULL : plan) == LIERNE_ERR_INVALID &&
               strstr(lierne_last_error(), "like is NULL") && moves_by_hand(retyped, r) &&
               lierne_plan_update_migration(NULL, &spec) == LIERNE_ERR_INVALID &&
               lierne_plan_update_retyped(NULL, plan) == LIERNE_ERR_INVALID;
    lierne_plan_destroy(barrier);
    lierne_plan_destroy(retyped);
    lierne_plan_destroy(plan);
}

Test(migration, plans_that_cannot_be_updated) {
    bool right[2] = {0};
    ranks_run(2, NULL, run_updates, right);
    cr_assert(right[0] && right[1], "%d %d: %s", right[0], right[1], lierne_last_error());
}

/* Rank 1 runs out of memory at some allocation of an update: all ranks return it and keep their
 * rows, or none. */
typedef struct shortage {
    size_t at;
    lierne_status status[2];
    bool right[2];
} shortage;

static const int32_t stay[2][3] = {{0, 0, 0}, {1, 1, 1}};

static void run_shortage(lierne_context *context, void *shared) {
    shortage *s = shared;
    int r = lierne_context_get_rank(context);
    const lierne_retyped_spec other = {sizeof other, LIERNE_DTYPE_I64, 1, 0, 0, 0, NULL};
    lierne_migration_spec spec = spec_of(r);
    lierne_plan *plan = NULL, *retyped = NULL, *created = NULL;
    s->right[r] = lierne_plan_create_migration(&plan, context, &spec) == LIERNE_OK &&
                  lierne_plan_create_retyped(&retyped, plan, &other) == LIERNE_OK;
    spec.owner = stay[r];
    if (r == 1) {
        lierne_mem_fail_at(s->at);
    }
    s->status[r] = lierne_plan_update_migration(plan, &spec);
    bool updated = s->status[r] == LIERNE_OK;
    if (updated) {
        s->status[r] = lierne_plan_update_retyped(retyped, plan);
    }
    if (s->status[r] == LIERNE_OK) {
        s->status[r] = lierne_plan_create_migration(&created, context, &spec);
    }
    lierne_mem_fail_at(0);
    s->right[r] = s->right[r] && (updated || moves_by_hand(plan, r)) &&
                  (s->status[r] == LIERNE_OK || updated || moves_by_hand(retyped, r));
    lierne_plan_destroy(created);
    lierne_plan_destroy(retyped);
    lierne_plan_destroy(plan);
}

/* The same of an update of all fields, which both change or both keep. */
static void run_shortage_together(lierne_context *context, void *shared) {
    shortage *s = shared;
    int r = lierne_context_get_rank(context);
    const lierne_retyped_spec other = {sizeof other, LIERNE_DTYPE_I64, 1, 0, 0, 0, NULL};
    lierne_migration_spec spec = spec_of(r);
    lierne_plan *plans[2] = {NULL};
    lierne_coalesced *all = NULL;
    int64_t out[2][3];
    s->right[r] = lierne_plan_create_migration(&plans[0], context, &spec) == LIERNE_OK &&
                  lierne_plan_create_retyped(&plans[1], plans[0], &other) == LIERNE_OK &&
                  lierne_coalesced_create(&all, plans, 2) == LIERNE_OK &&
                  lierne_coalesced_update_migration(all, &spec) == LIERNE_OK; /* waits for all */
    spec.owner = stay[r];
    if (r == 1) {
        lierne_mem_fail_at(s->at);
    }
    s->status[r] = lierne_coalesced_update_migration(all, &spec);
    lierne_mem_fail_at(0);
    for (int i = 0; i < 2; i++) {
        bool stayed = lierne_plan_forward(plans[i], out[i], values[r], NULL) == LIERNE_OK &&
                      memcmp(out[i], values[r], (size_t)spec.nrows * sizeof **out) == 0;
        s->right[r] = s->right[r] && (s->status[r] == LIERNE_OK ? stayed : !stayed);
        s->right[r] = s->right[r] && (s->status[r] == LIERNE_OK || moves_by_hand(plans[i], r));
    }
    lierne_coalesced_destroy(all);
    lierne_plan_destroy(plans[1]);
    lierne_plan_destroy(plans[0]);
}

static void run_out_of_memory(void (*run)(lierne_context *, void *)) {
    bool failed = true;
    for (size_t k = 1; failed && k < 600; k++) {
        shortage s = {.at = k};
        ranks_run(2, NULL, run, &s);
        failed = s.status[1] != LIERNE_OK;
        cr_assert(!failed || s.status[1] == LIERNE_ERR_NO_MEMORY, "allocation %zu: %s", k,
                  lierne_status_name(s.status[1]));
        cr_assert(s.status[0] == s.status[1], "allocation %zu", k);
        cr_assert(s.right[0] && s.right[1], "allocation %zu", k);
    }
    cr_assert(!failed, "every allocation fails");
}

Test(migration, memory_that_one_rank_lacks_is_every_ranks_error) {
    run_out_of_memory(run_shortage);
    run_out_of_memory(run_shortage_together);
}

/* What planning a step of three fields takes: agreements and sparse exchanges, by the recorder. */
static void run_waits(lierne_context *context, void *shared) {
    int64_t *waits = shared;
    int r = lierne_context_get_rank(context);
    const lierne_retyped_spec other = {sizeof other, LIERNE_DTYPE_I64, 1, 0, 0, 0, NULL};
    const lierne_migration_spec spec = spec_of(r);
    lierne_plan *plans[3] = {NULL};
    lierne_coalesced *all = NULL;
    lierne_plan_create_migration(&plans[0], context, &spec);
    lierne_plan_create_retyped(&plans[1], plans[0], &other);
    lierne_plan_create_retyped(&plans[2], plans[0], &other);
    lierne_coalesced_create(&all, plans, 3);
    waits[r] = -context->recorder.controls;
    lierne_status status = lierne_coalesced_update_migration(all, &spec);
    waits[r] = status == LIERNE_OK ? waits[r] + context->recorder.controls : -1;
    lierne_coalesced_destroy(all);
    for (int i = 3; i-- > 0;) {
        lierne_plan_destroy(plans[i]);
    }
}

Test(migration, fields_that_are_updated_together_cost_no_agreement_of_their_own) {
    int64_t waits[2] = {0};
    ranks_run(2, NULL, run_waits, waits);
    /* On sim an agreement is two: taking part, and waiting. */
    cr_assert(waits[0] == 5 && waits[1] == 5, "%d %d", (int)waits[0], (int)waits[1]);
}
