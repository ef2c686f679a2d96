/* Assignments: what every mode keeps on random items, each error with its item, and memory.
 * Expected assignments are in tests/golden/samples.json. */
#include "base/base.h"
#include "lierne.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ITEMS = 40, MOST_RANKS = 9, CASES = 3000 };

typedef struct input {
    int64_t counts[MOST_RANKS], cost[MOST_ITEMS], rows[MOST_ITEMS];
    int nodes[MOST_RANKS];
    int nranks;
    lierne_items items;
    lierne_balance_spec spec;
} input;

static int64_t pick(int64_t n) {
    return (int64_t)(((uint64_t)rand() << 31 | (uint64_t)rand()) % (uint64_t)n);
}

/* Costs of one item up to `most`; caps that most assignments can keep. */
static void draw_input(input *in, int64_t most) {
    *in = (input){.nranks = 1 + (int)pick(MOST_RANKS), .spec = LIERNE_BALANCE_SPEC_INIT};
    int64_t n = pick(MOST_ITEMS + 1), rows = 0;
    in->items = (lierne_items){sizeof in->items, n, 1, in->cost, in->rows, NULL, NULL};
    for (int64_t i = 0; i < n; i++) {
        in->cost[i] = pick(4) == 0 ? pick(most + 1) : pick(most / 16 + 1);
        rows += in->rows[i] = pick(30);
        in->counts[pick(3) == 0 ? 0 : pick(in->nranks)]++;
    }
    for (int p = 0; p < in->nranks; p++) {
        in->nodes[p] = (int)pick(3) * 7;
    }
    in->spec.tolerance = (int)pick(100);
    in->spec.nodes = pick(2) ? in->nodes : NULL;
    in->spec.equal_items = pick(4) == 0;
    in->spec.max_rows = pick(3) == 0 ? 30 + rows / in->nranks : 0;
    if (!in->spec.equal_items && pick(3) == 0) {
        in->spec.max_items = 1 + n / in->nranks + pick(3);
        in->spec.min_items = n / in->nranks / 2;
    }
}

static lierne_status assign(lierne_assignment **a, input *in, lierne_balance_mode mode) {
    in->spec.mode = mode;
    return lierne_assignment_create(a, &in->items, in->counts, in->nranks, &in->spec);
}

static int home_of(const input *in, int64_t item) {
    int p = 0;
    for (int64_t end = in->counts[0]; item >= end; end += in->counts[p]) {
        p++;
    }
    return p;
}

/* The caps hold, and the report says what the ranks say. */
static void check_result(const input *in, const lierne_assignment *a) {
    const int32_t *ranks = lierne_assignment_get_ranks(a);
    int64_t items[MOST_RANKS] = {0}, rows[MOST_RANKS] = {0}, load[MOST_RANKS] = {0}, moved = 0;
    int64_t n = in->items.nitems, least = n / in->nranks, most = (n + in->nranks - 1) / in->nranks;
    int64_t highest = 0;
    lierne_assignment_report r = {.size = sizeof r};
    cr_assert_eq(lierne_assignment_get_report(&r, a), LIERNE_OK);
    for (int64_t i = 0; i < n; i++) {
        items[ranks[i]]++;
        rows[ranks[i]] += in->rows[i];
        load[ranks[i]] += in->cost[i];
        moved += ranks[i] != home_of(in, i) ? in->rows[i] : 0;
    }
    for (int p = 0; p < in->nranks; p++) {
        highest = load[p] > highest ? load[p] : highest;
        cr_assert_eq(load[p], lierne_assignment_get_loads(a)[p]);
        cr_assert(!in->spec.max_items || items[p] <= in->spec.max_items);
        cr_assert(!in->spec.max_rows || rows[p] <= in->spec.max_rows);
        cr_assert(items[p] >= in->spec.min_items);
        cr_assert(!in->spec.equal_items || (items[p] >= least && items[p] <= most));
    }
    cr_assert_eq(r.max_load, highest);
    cr_assert_eq(r.moved_rows, moved);
    cr_assert_geq(highest, r.lower_bound);
    cr_assert_geq(r.threshold, r.lower_bound);
}

/* SHED stays at home where it may, and is at most as high as the threshold or LPT. */
static void check_shed(const input *in, const lierne_assignment *a, const lierne_assignment *lpt) {
    lierne_assignment_report r = {.size = sizeof r}, other = {.size = sizeof other};
    cr_assert_eq(lierne_assignment_get_report(&r, a), LIERNE_OK);
    if (lpt) {
        lierne_assignment_get_report(&other, lpt);
        cr_assert(r.max_load <= r.threshold || r.max_load <= other.max_load);
        cr_assert_lt(r.step, 6);
    }
    input home = *in;
    int32_t ranks[MOST_ITEMS];
    lierne_assignment *stays = NULL;
    for (int64_t i = 0; i < in->items.nitems; i++) {
        ranks[i] = home_of(in, i);
    }
    home.spec.assignment = ranks;
    if (assign(&stays, &home, LIERNE_BALANCE_CALLER) == LIERNE_OK) {
        lierne_assignment_get_report(&other, stays);
        cr_assert_eq(other.moved_items, 0);
        cr_assert(other.max_load > r.threshold || r.moved_items == 0);
    }
    lierne_assignment_destroy(stays);
}

static void check_modes(input *in) {
    lierne_assignment *lpt = NULL, *shed = NULL, *other = NULL;
    lierne_status first = assign(&lpt, in, LIERNE_BALANCE_LPT);
    lierne_status second = assign(&shed, in, LIERNE_BALANCE_SHED);
    cr_assert(first == LIERNE_OK || first == LIERNE_ERR_INFEASIBLE, "%s", lierne_last_error());
    cr_assert(second == LIERNE_OK || (first == second && !shed), "%s", lierne_last_error());
    if (lpt) {
        check_result(in, lpt);
    }
    if (shed) {
        check_result(in, shed);
        check_shed(in, shed, lpt);
    }
    if (assign(&other, in, LIERNE_BALANCE_CONTIGUOUS) == LIERNE_OK) {
        const int32_t *ranks = lierne_assignment_get_ranks(other);
        check_result(in, other);
        for (int64_t i = 1; i < in->items.nitems; i++) {
            cr_assert_leq(ranks[i - 1], ranks[i]);
        }
    }
    lierne_assignment_destroy(other);
    lierne_assignment_destroy(shed);
    lierne_assignment_destroy(lpt);
    input plain = *in;
    plain.spec.max_items = plain.spec.max_rows = plain.spec.min_items = 0;
    cr_assert_eq(assign(&other, &plain, LIERNE_BALANCE_KK), LIERNE_OK, "%s", lierne_last_error());
    check_result(&plain, other);
    lierne_assignment_destroy(other);
}

/* Costs of which the sums are nearly 2^60, too. */
Test(samples, every_mode_keeps_the_caps) {
    srand(35);
    for (int i = 0; i < CASES; i++) {
        input in;
        draw_input(&in, i % 3 == 0 ? (int64_t)1 << 54 : i % 3 == 1 ? 1000 : 3);
        check_modes(&in);
    }
    cr_assert_eq(lierne_mem_live(), 0);
}

/* No contiguous cut has a lower highest load: all cuts of few items. */
static int64_t find_cut(const input *in, int64_t first, int ranks) {
    int64_t best = INT64_MAX, load = 0;
    if (ranks == 1) {
        for (int64_t i = first; i < in->items.nitems; i++) {
            load += in->cost[i];
        }
        return load;
    }
    for (int64_t end = first; end <= in->items.nitems; end++) {
        int64_t rest = find_cut(in, end, ranks - 1);
        rest = rest > load ? rest : load;
        best = rest < best ? rest : best;
        load += end < in->items.nitems ? in->cost[end] : 0;
    }
    return best;
}

Test(samples, no_cut_is_lower) {
    srand(36);
    for (int i = 0; i < 300; i++) {
        input in;
        lierne_assignment *a;
        lierne_assignment_report r = {.size = sizeof r};
        draw_input(&in, 50);
        in.nranks = 1 + (int)pick(4);
        in.items.nitems = pick(9);
        memset(in.counts, 0, sizeof in.counts);
        in.counts[0] = in.items.nitems;
        in.spec = (lierne_balance_spec)LIERNE_BALANCE_SPEC_INIT;
        cr_assert_eq(assign(&a, &in, LIERNE_BALANCE_CONTIGUOUS), LIERNE_OK);
        lierne_assignment_get_report(&r, a);
        cr_assert_eq(r.max_load, find_cut(&in, 0, in.nranks));
        lierne_assignment_destroy(a);
    }
}

/* Costs per row are compared exactly: 4 for 500 rows is better than 1 for 130, in units of 2^54. */
Test(samples, large_costs_per_row) {
    const int64_t unit = (int64_t)1 << 54, counts[] = {3, 1};
    const int64_t cost[] = {4 * unit, unit, 7 * unit, 4 * unit}, rows[] = {499, 129, 1 << 30, 5};
    const lierne_items items = {sizeof items, 4, 1, cost, rows, NULL, NULL};
    lierne_balance_spec spec = LIERNE_BALANCE_SPEC_INIT;
    lierne_assignment *a;
    spec.tolerance = 0;
    cr_assert_eq(lierne_assignment_create(&a, &items, counts, 2, &spec), LIERNE_OK);
    const int32_t *ranks = lierne_assignment_get_ranks(a);
    cr_assert(ranks[0] == 1 && ranks[1] == 0 && ranks[2] == 0 && ranks[3] == 1);
    lierne_assignment_destroy(a);
}

/* Ranks 0 and 1 have equally many rows, and too many: the lower one moves an item first. */
Test(samples, the_lower_of_equal_ranks_is_first) {
    const int64_t counts[] = {2, 2, 0}, cost[4] = {0}, rows[] = {3, 2, 3, 2};
    const int32_t wanted[] = {2, 0, 1, 0};
    const lierne_items items = {sizeof items, 4, 1, cost, rows, NULL, NULL};
    lierne_balance_spec spec = LIERNE_BALANCE_SPEC_INIT;
    lierne_assignment *a;
    spec.max_rows = 4;
    cr_assert_eq(lierne_assignment_create(&a, &items, counts, 3, &spec), LIERNE_OK);
    cr_assert_arr_eq(lierne_assignment_get_ranks(a), wanted, sizeof wanted);
    lierne_assignment_destroy(a);
}

/* Then all ranks have as many. */
Test(samples, the_most_items_may_be_their_average) {
    const int64_t counts[] = {4, 0}, cost[] = {1, 1, 1, 9}, rows[4] = {0};
    const lierne_items items = {sizeof items, 4, 1, cost, rows, NULL, NULL};
    lierne_balance_spec spec = LIERNE_BALANCE_SPEC_INIT;
    lierne_assignment *a;
    spec.max_items = 2;
    cr_assert_eq(lierne_assignment_create(&a, &items, counts, 2, &spec), LIERNE_OK);
    const int32_t *ranks = lierne_assignment_get_ranks(a);
    cr_assert_eq(ranks[0] + ranks[1] + ranks[2] + ranks[3], 2);
    lierne_assignment_destroy(a);
}

/* An item has the rows of its segments, or its first cost. */
Test(samples, rows_of_segments) {
    const int64_t cost[] = {5, 1, 9, 2, 4, 3}, rows[] = {1, 2, 3, 4}, counts[] = {3, 0};
    const int32_t segments[] = {3, 0, 1}, given[] = {1, 1, 0};
    lierne_items items = {sizeof items, 3, 2, cost, rows, segments, NULL};
    lierne_balance_spec spec = LIERNE_BALANCE_SPEC_INIT;
    lierne_assignment_report r = {.size = sizeof r};
    lierne_assignment *a;
    spec.mode = LIERNE_BALANCE_CALLER;
    spec.assignment = given;
    spec.cost = 1;
    cr_assert_eq(lierne_assignment_create(&a, &items, counts, 2, &spec), LIERNE_OK);
    cr_assert_eq(lierne_assignment_get_report(&r, a), LIERNE_OK);
    cr_assert(r.moved_items == 2 && r.moved_rows == 6 && r.messages == 1 && r.max_load == 3);
    lierne_assignment_destroy(a);
    items.rows = NULL, items.segments = NULL;
    cr_assert_eq(lierne_assignment_create(&a, &items, counts, 2, &spec), LIERNE_OK);
    cr_assert_eq(lierne_assignment_get_report(&r, a), LIERNE_OK);
    cr_assert_eq(r.moved_rows, 14);
    lierne_assignment_destroy(a);
    cr_assert_eq(lierne_assignment_get_report(&r, NULL), LIERNE_ERR_INVALID);
    cr_assert_null(lierne_assignment_get_ranks(NULL));
    cr_assert_null(lierne_assignment_get_loads(NULL));
    lierne_assignment_destroy(NULL);
}

/* Changes one thing of an input that is right. */
typedef void spoil(input *in);
static void negative_items(input *in) {
    in->items.nitems = -1;
}
static void no_costs(input *in) {
    in->items.ncosts = 0;
}
static void many_costs(input *in) {
    in->items.ncosts = LIERNE_MAX_COSTS + 1;
}
static void null_cost(input *in) {
    in->items.cost = NULL;
}
static void segments_alone(input *in) {
    in->items.rows = NULL, in->items.segments = in->nodes;
}
static void no_rank(input *in) {
    in->nranks = 0;
}
static void unknown_mode(input *in) {
    in->spec.mode = (lierne_balance_mode)5;
}
static void second_cost(input *in) {
    in->spec.cost = 1;
}
static void wide_tolerance(input *in) {
    in->spec.tolerance = 1025;
}
static void negative_cap(input *in) {
    in->spec.max_rows = -1;
}
static void negative_least(input *in) {
    in->spec.min_items = -1;
}
static void two_counts(input *in) {
    in->spec.equal_items = 1, in->spec.min_items = 1;
}
static void kk_cap(input *in) {
    in->spec.mode = LIERNE_BALANCE_KK, in->spec.max_rows = 9;
}
static void negative_node(input *in) {
    in->spec.nodes = in->nodes, in->nodes[2] = -4;
}
static void narrow_tolerance(input *in) {
    in->spec.tolerance = -1;
}
static void two_caps(input *in) {
    in->spec.equal_items = 1, in->spec.max_items = 4;
}
static void kk_items(input *in) {
    in->spec.mode = LIERNE_BALANCE_KK, in->spec.max_items = 9;
}
static void kk_least(input *in) {
    in->spec.mode = LIERNE_BALANCE_KK, in->spec.min_items = 1;
}
static void negative_segments(input *in) {
    in->nodes[4] = -3, in->items.segments = in->nodes;
}
static void short_items(input *in) {
    in->items.size = 7;
}
static void short_spec(input *in) {
    in->spec.size = 7;
}
static const int32_t beyond[] = {0, 1, 3, 0, 0, 0}, before[] = {0, 0, 0, 0, -1, 0};
static void given_beyond(input *in) {
    in->spec.mode = LIERNE_BALANCE_CALLER, in->spec.assignment = beyond;
}
static void given_before(input *in) {
    in->spec.mode = LIERNE_BALANCE_CALLER, in->spec.assignment = before;
}
static void given_none(input *in) {
    in->spec.mode = LIERNE_BALANCE_CALLER;
}
static void given_none_for_one(input *in) {
    in->counts[0] = in->items.nitems = 1, in->counts[1] = in->counts[2] = 0;
    given_none(in);
}
static void small_count(input *in) {
    in->counts[1] = 1;
}
static void large_count(input *in) {
    in->counts[2] = 3;
}
static void negative_cost(input *in) {
    in->cost[4] = -6;
}
static void negative_rows(input *in) {
    in->rows[3] = -2;
}
static void many_rows(input *in) {
    in->rows[5] = (int64_t)1 << 31;
}
static void large_sum(input *in) {
    in->cost[1] = in->cost[3] = (int64_t)1 << 59;
}
static void long_item(input *in) {
    in->spec.max_rows = 5;
}
static void few_places(input *in) {
    in->spec.max_items = 1;
}
static void few_items(input *in) {
    in->spec.min_items = 3;
}
static void few_rows(input *in) {
    in->spec.max_rows = 6;
}
static void contiguous_least(input *in) {
    in->spec.mode = LIERNE_BALANCE_CONTIGUOUS, in->spec.min_items = 2;
}

/* 6 items of 1 to 6 rows, two on each of 3 ranks. */
Test(samples, errors_name_what_is_wrong) {
    static const struct {
        spoil *change;
        lierne_status status;
        const char *text;
    } cases[] = {
        {negative_items, LIERNE_ERR_INVALID, "nitems is -1, must be 0"},
        {no_costs, LIERNE_ERR_INVALID, "ncosts is 0, must be 1 to 4"},
        {many_costs, LIERNE_ERR_INVALID, "ncosts is 5, must be 1 to 4"},
        {null_cost, LIERNE_ERR_INVALID, "cost is NULL"},
        {segments_alone, LIERNE_ERR_INVALID, "rows is NULL"},
        {no_rank, LIERNE_ERR_INVALID, "nranks is 0, must be 1 to 16777216"},
        {unknown_mode, LIERNE_ERR_INVALID, "mode is 5, must be 0 to 4"},
        {second_cost, LIERNE_ERR_INVALID, "spec->cost is 1, must be 0 to 0"},
        {wide_tolerance, LIERNE_ERR_INVALID, "tolerance is 1025, must be 0 to 1024"},
        {negative_cap, LIERNE_ERR_INVALID, "max_rows is -1, must be"},
        {negative_least, LIERNE_ERR_INVALID, "min_items is -1, must be"},
        {two_counts, LIERNE_ERR_INVALID, "min_items is 1, must be 0: equal_items"},
        {kk_cap, LIERNE_ERR_INVALID, "max_rows is set, and mode KK"},
        {kk_items, LIERNE_ERR_INVALID, "max_items is set, and mode KK"},
        {kk_least, LIERNE_ERR_INVALID, "min_items is set, and mode KK"},
        {narrow_tolerance, LIERNE_ERR_INVALID, "tolerance is -1, must be 0 to 1024"},
        {two_caps, LIERNE_ERR_INVALID, "max_items is 4, must be 0: equal_items"},
        {short_items, LIERNE_ERR_INVALID, "items->size is 7"},
        {short_spec, LIERNE_ERR_INVALID, "spec->size is 7"},
        {given_beyond, LIERNE_ERR_INVALID, "item 2: its rank is 3, must be 0 to 2"},
        {given_before, LIERNE_ERR_INVALID, "item 4: its rank is -1, must be 0 to 2"},
        {negative_segments, LIERNE_ERR_COUNT_RANGE, "rank 2: item 4: its number of segments is -3"},
        {negative_node, LIERNE_ERR_INVALID, "nodes[2] is -4, must be 0"},
        {given_none, LIERNE_ERR_INVALID, "spec->assignment is NULL in mode 4"},
        {given_none_for_one, LIERNE_ERR_INVALID, "spec->assignment is NULL in mode 4"},
        {small_count, LIERNE_ERR_INVALID, "counts sum up to 5, and there are 6 items"},
        {large_count, LIERNE_ERR_INVALID, "counts[2] is 3, and 2 of 6 items are left for it"},
        {negative_cost, LIERNE_ERR_COUNT_RANGE, "rank 2: item 4: a cost is -6, must be"},
        {negative_rows, LIERNE_ERR_COUNT_RANGE, "rank 1: item 3: rows is -2, must be"},
        {many_rows, LIERNE_ERR_COUNT_RANGE, "rank 2: item 5: the sum of its rows is 2147483648"},
        {large_sum, LIERNE_ERR_OVERFLOW, "up to item 3 sum up to more than 2^60"},
        {long_item, LIERNE_ERR_INFEASIBLE, "item 5 of rank 2 has 6 rows, and max_rows is 5"},
        {few_places, LIERNE_ERR_INFEASIBLE, "item 3 of rank 1 has no space: there are 6 items"},
        {few_items, LIERNE_ERR_INFEASIBLE, "there are 6 items, and min_items is 3 on 3 ranks"},
        {few_rows, LIERNE_ERR_INFEASIBLE, "item 5 of rank 2 has no space: the items up to it"},
        {contiguous_least, LIERNE_ERR_UNSUPPORTED, "every rank must get 2 items"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        input in = {.counts = {2, 2, 2},
                    .cost = {1, 2, 3, 4, 5, 6},
                    .rows = {1, 2, 3, 4, 5, 6},
                    .nranks = 3,
                    .spec = LIERNE_BALANCE_SPEC_INIT};
        lierne_assignment *a = (lierne_assignment *)&in;
        in.items = (lierne_items){sizeof in.items, 6, 1, in.cost, in.rows, NULL, NULL};
        cases[i].change(&in);
        lierne_status got = assign(&a, &in, in.spec.mode);
        cr_expect_eq(got, cases[i].status, "%s: %s", cases[i].text, lierne_last_error());
        cr_expect(strstr(lierne_last_error(), cases[i].text), "%s, not %s", lierne_last_error(),
                  cases[i].text);
        cr_expect_null(a);
    }
    cr_assert_eq(lierne_mem_live(), 0);
}

/* Every allocation fails once, in every mode; the hard caps take SHED to its last step. */
Test(samples, without_memory) {
    for (int mode = LIERNE_BALANCE_SHED; mode <= LIERNE_BALANCE_CALLER; mode++) {
        lierne_status status = LIERNE_ERR_NO_MEMORY;
        int32_t given[6] = {0};
        input in = {.counts = {6, 0, 0},
                    .cost = {9, 2, 3, 8, 5, 6},
                    .rows = {1, 2, 3, 4, 5, 6},
                    .nranks = 3,
                    .spec = LIERNE_BALANCE_SPEC_INIT};
        in.items = (lierne_items){sizeof in.items, 6, 1, in.cost, in.rows, NULL, NULL};
        in.spec.nodes = in.nodes;
        in.spec.tolerance = 0;
        in.spec.assignment = mode == LIERNE_BALANCE_CALLER ? given : NULL;
        for (size_t k = 1; status == LIERNE_ERR_NO_MEMORY; k++) {
            lierne_assignment *a;
            lierne_mem_fail_at(k);
            status = assign(&a, &in, (lierne_balance_mode)mode);
            lierne_mem_fail_at(0);
            cr_assert(status == LIERNE_OK || (k < 100 && !a));
            lierne_assignment_destroy(a);
            cr_assert_eq(lierne_mem_live(), 0);
        }
        cr_assert_eq(status, LIERNE_OK, "%s", lierne_last_error());
    }
}
