/* What samples reject: arguments and specs that are bad on one rank, which every rank hears of. */
#include "expect.h"
#include "lierne.h"
#include "plan/samples/sample_routing.h"
#include "ranks.h"
#include "runtime/context/context.h"
#include "unit/sample_world.h"

#include <criterion/criterion.h>
#include <string.h>

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

/* Where items have segments and CALLER may be: what every rank asks for, and what rank 1 alone
 * breaks then, or asks for. */
typedef struct balance_case {
    const char *name;
    void (*ask)(arguments *a);    /* all ranks; or NULL */
    void (*breaks)(arguments *a); /* rank 1; or NULL */
    int status;
    const char *text;
} balance_case;

/* clang-format off */
static void ask_caller(arguments *a) { a->balance.mode = LIERNE_BALANCE_CALLER; a->balance.assignment = a->assignment; }
static void ask_three_items(arguments *a) { ask_caller(a); a->balance.max_items = 3; a->assignment[0] = 1; a->assignment[1] = 2; }
static void ask_one_item(arguments *a) { ask_caller(a); a->balance.min_items = 1; a->assignment[0] = 1; a->assignment[1] = 2; }
static void ask_rows(arguments *a) { a->balance.max_rows = 8; }
static void ask_tight_rows(arguments *a) { a->balance.max_rows = 12; a->rows[0] = 7; a->rows[1] = 4; }
static void ask_tight_cut(arguments *a) { ask_tight_rows(a); a->balance.mode = LIERNE_BALANCE_CONTIGUOUS; }
static void ask_few_items(arguments *a) { a->balance.max_items = 1; }
static void ask_many_items(arguments *a) { a->balance.min_items = 3; }
static void ask_two_counts(arguments *a) { a->balance.equal_items = 1; a->balance.max_items = 2; }
static void ask_kk_rows(arguments *a) { a->balance.mode = LIERNE_BALANCE_KK; a->balance.max_rows = 50; }
static void ask_cut(arguments *a) { a->balance.mode = LIERNE_BALANCE_CONTIGUOUS; a->balance.min_items = 2; }
static void break_segments(arguments *a) { a->items.segments = a->segments; a->segments[1] = -3; }
static void break_many_segments(arguments *a) { a->items.segments = a->segments; a->segments[1] = 9; }
static void break_rank(arguments *a) { a->assignment[1] = WORLD; }
static void break_to_1(arguments *a) { a->assignment[1] = 1; }
static void break_no_list(arguments *a) { a->balance.assignment = NULL; }
static void break_long(arguments *a) { a->rows[1] = 9; }
static void break_two_long(arguments *a) { a->rows[1] = 7; }
static void break_mode(arguments *a) { a->balance.mode = LIERNE_BALANCE_LPT; }
static void break_cost_index(arguments *a) { a->balance.cost = 1; }
static void break_max_items(arguments *a) { a->balance.max_items = 5; }
static void break_max_rows(arguments *a) { a->balance.max_rows = 50; }
static void break_min_items(arguments *a) { a->balance.min_items = 1; }
static void break_equal_items(arguments *a) { a->balance.equal_items = 1; }
/* clang-format on */

static const balance_case balance_cases[] = {
    {"negative segments", NULL, break_segments, LIERNE_ERR_COUNT_RANGE,
     "rank 1: item 1 of its own: its number of segments is -3"},
    {"many segments", NULL, break_many_segments, LIERNE_ERR_CAPACITY,
     "rank 1: it has 10 segments, must be at most 4 (max_local_segments)"},
    {"no such rank", ask_caller, break_rank, LIERNE_ERR_INVALID,
     "item 3: its rank is 3, must be 0 to 2"},
    {"no list", ask_caller, break_no_list, LIERNE_ERR_INVALID, "balance->assignment is NULL"},
    {"caller, max_items", ask_three_items, break_to_1, LIERNE_ERR_INFEASIBLE,
     "item 4 of rank 2: spec->assignment gives rank 1 4 items, and max_items is 3"},
    {"caller, min_items", ask_one_item, NULL, LIERNE_ERR_INFEASIBLE,
     "spec->assignment gives rank 0 0 items, and min_items is 1"},
    {"a long item", ask_rows, break_long, LIERNE_ERR_INFEASIBLE,
     "item 3 of rank 1 has 9 rows, and max_rows is 8"},
    {"rows that do not pack", ask_tight_rows, break_two_long, LIERNE_ERR_INFEASIBLE,
     "found no assignment with max_items 0, max_rows 12, min_items 0: item 4 of rank 2 is left"},
    {"rows that cannot be cut", ask_tight_cut, break_two_long, LIERNE_ERR_INFEASIBLE,
     "found no assignment"},
    {"few places", ask_few_items, NULL, LIERNE_ERR_INFEASIBLE, "item 3 of rank 1 has no space"},
    {"few items", ask_many_items, NULL, LIERNE_ERR_INFEASIBLE, "6 items, and min_items is 3"},
    {"two counts", ask_two_counts, NULL, LIERNE_ERR_INVALID, "max_items is 2, must be 0"},
    {"KK with a cap", ask_kk_rows, NULL, LIERNE_ERR_INVALID, "max_rows is set, and mode KK"},
    {"a cut with min_items", ask_cut, NULL, LIERNE_ERR_UNSUPPORTED, "2 items"},
    {"another mode", NULL, break_mode, LIERNE_ERR_MISMATCH,
     "balance->mode differs between ranks: "},
    {"another cost", NULL, break_cost_index, LIERNE_ERR_MISMATCH, "balance->cost"},
    {"another max_items", NULL, break_max_items, LIERNE_ERR_MISMATCH, "balance->max_items"},
    {"another max_rows", NULL, break_max_rows, LIERNE_ERR_MISMATCH, "balance->max_rows"},
    {"another min_items", NULL, break_min_items, LIERNE_ERR_MISMATCH, "balance->min_items"},
    {"other equal_items", NULL, break_equal_items, LIERNE_ERR_MISMATCH, "balance->equal_items"},
};

static void expect_rejected(lierne_samples *s, outcome *o, const arguments *a, const char *name,
                            int wanted, const char *text) {
    lierne_status status = update(s, a);
    note(o, status == (lierne_status)wanted && strstr(lierne_last_error(), text), name,
         status == LIERNE_OK ? "OK" : lierne_last_error());
    expect_old_routing(s, o, name);
}

static lierne_samples *create_usual(lierne_context *context, outcome *o,
                                    const lierne_samples_spec *spec) {
    lierne_samples *s = NULL;
    arguments a;
    usual_arguments(&a, lierne_context_get_rank(context));
    note(o, lierne_samples_create(&s, context, spec) == LIERNE_OK, "create", lierne_last_error());
    note(o, update(s, &a) == LIERNE_OK, "update", lierne_last_error());
    return s;
}

static void work_badly(lierne_context *context, void *shared) {
    int rank = lierne_context_get_rank(context);
    outcome *o = &((outcome *)shared)[rank];
    const lierne_samples_spec spec = usual_spec();
    lierne_samples *s = create_usual(context, o, &spec);
    arguments a;
    for (size_t i = 0; i < sizeof bad_cases / sizeof *bad_cases; i++) {
        const bad_case *b = &bad_cases[i];
        usual_arguments(&a, rank);
        if (b->all || rank == 1) {
            b->spoil(&a);
        }
        expect_rejected(s, o, &a, b->name, b->status, b->text);
    }
    note(o, lierne_samples_destroy(s) == LIERNE_OK, "destroy", lierne_last_error());
}

static void balance_badly(lierne_context *context, void *shared) {
    int rank = lierne_context_get_rank(context);
    outcome *o = &((outcome *)shared)[rank];
    lierne_samples_spec spec = usual_spec();
    spec.max_local_segments = 4, spec.caller = 1;
    lierne_samples *s = create_usual(context, o, &spec);
    arguments a;
    for (size_t i = 0; i < sizeof balance_cases / sizeof *balance_cases; i++) {
        const balance_case *b = &balance_cases[i];
        usual_arguments(&a, rank);
        if (b->ask) {
            b->ask(&a);
        }
        if (b->breaks && rank == 1) {
            b->breaks(&a);
        }
        expect_rejected(s, o, &a, b->name, b->status, b->text);
    }
    note(o, lierne_samples_destroy(s) == LIERNE_OK, "destroy", lierne_last_error());
}

/* Also where contexts check calls. */
static void run_twice(void (*work)(lierne_context *context, void *shared)) {
    for (int check = 0; check < 2; check++) {
        outcome all[WORLD] = {{0}};
        const lierne_context_spec spec = {.size = sizeof spec, .check = check};
        ranks_run(WORLD, &spec, work, all);
        for (int r = 0; r < WORLD; r++) {
            cr_expect_eq(all[r].wrong, 0, "rank %d: %s", r, all[r].what);
        }
    }
}

Test(samples, bad_arguments_of_one_rank_are_everyones) {
    run_twice(work_badly);
}

Test(samples, what_no_assignment_keeps_is_everyones) {
    run_twice(balance_badly);
}

/* What a transport gets over does not replace the error of the rank that it works for. */
static _Thread_local const lierne_transport *quiet;

static lierne_status poll_noisily(void *batch, size_t *done, size_t *ndone) {
    lierne_set_error("a poll that has to be made again");
    return quiet->poll(batch, done, ndone);
}

static void work_noisily(lierne_context *context, void *shared) {
    quiet = context->carriers[0].transport;
    lierne_transport noisy = *quiet;
    noisy.poll = poll_noisily;
    context->carriers[0].transport = &noisy;
    work_badly(context, shared);
    context->carriers[0].transport = quiet;
}

Test(samples, an_error_is_kept_while_blocks_are_gathered) {
    run_twice(work_noisily);
}

/* Blocks that are control messages, as those of a device's memory, would be taken for each other.
 */
static void update_another(lierne_context *context, void *shared) {
    int rank = lierne_context_get_rank(context);
    outcome *o = &((outcome *)shared)[rank];
    const lierne_samples_spec spec = usual_spec();
    const lierne_memory *host = context->memory, device = *host;
    context->memory = &device;
    lierne_samples *s[2] = {create_usual(context, o, &spec), create_usual(context, o, &spec)};
    arguments a;
    usual_arguments(&a, rank);
    note(o,
         update(s[rank == 1], &a) == LIERNE_ERR_MISMATCH &&
             strstr(lierne_last_error(), "samples differs between ranks"),
         "another object", lierne_last_error());
    expect_old_routing(s[0], o, "another object");
    note(o, lierne_samples_destroy(s[0]) == LIERNE_OK, "destroy", lierne_last_error());
    note(o, lierne_samples_destroy(s[1]) == LIERNE_OK, "destroy", lierne_last_error());
    context->memory = host;
}

Test(samples, ranks_update_one_object) {
    run_twice(update_another);
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

/* Blocks of 2^60 bytes are of millions of ranks, which no test has. */
Test(samples, blocks_may_have_2_to_the_60_bytes) {
    const int64_t most = (int64_t)1 << 57;
    lierne_context context = {.rank = 4};
    lierne_samples s = {.context = &context, .spec = usual_spec(), .nranks = 1 << 23};
    s.tensors[0] = tensor;
    assert_ok(lierne_samples_check_bytes(&s, most));
    assert_error(lierne_samples_check_bytes(&s, most + 1), LIERNE_ERR_OVERFLOW,
                 "rank 4: 8388608 ranks of 16 rows, and blocks of 144115188075855873 words, have "
                 "more than 2^60 bytes");
}
