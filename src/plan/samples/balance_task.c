/* What all modes read: items and homes, checked, with their sums, caps, order and lower bound. */
#include "plan/samples/assignment.h"

#include <stdio.h>

#define MOST_COST ((int64_t)1 << 60)
#define MOST_ROWS ((int64_t)1 << 31)
#define NO_CAP    (INT64_MAX / 2)

static lierne_status take_homes(lierne_balance_task *t, const lierne_items *items,
                                const int64_t *counts) {
    int64_t n = 0;
    for (int p = 0; p < t->nranks; p++) {
        if (counts[p] < 0 || counts[p] > items->nitems - n) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "counts[%d] is %lld, and %lld of %lld items are left for it", p,
                               (long long)counts[p], (long long)(items->nitems - n),
                               (long long)items->nitems);
        }
        for (int64_t i = 0; i < counts[p]; i++) {
            t->home[n++] = p;
        }
    }
    return n == items->nitems
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INVALID, "counts sum up to %lld, and there are %lld items",
                             (long long)n, (long long)items->nitems);
}

static lierne_status reject_number(const lierne_balance_task *t, int64_t item, const char *what,
                                   int64_t value, const char *bound) {
    return LIERNE_FAIL(LIERNE_ERR_COUNT_RANGE, "rank %d: item %lld: %s is %lld, must be %s",
                       t->home[item], (long long)item, what, (long long)value, bound);
}

/* Rows of an item that begins at a segment. */
static lierne_status sum_rows(lierne_balance_task *t, const lierne_items *items, int64_t item,
                              int64_t *segment) {
    int64_t n = items->segments ? items->segments[item] : 1, sum = 0;
    if (n < 0) {
        return reject_number(t, item, "its number of segments", n, "at least 0");
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t rows = items->rows ? items->rows[(*segment)++] : items->cost[item * items->ncosts];
        sum = rows < 0 || rows >= MOST_ROWS ? rows : sum + rows;
        if (sum < 0 || sum >= MOST_ROWS) {
            return reject_number(t, item, rows < 0 ? "rows" : "the sum of its rows", sum,
                                 "0 to 2147483647");
        }
    }
    t->rows[item] = sum;
    return LIERNE_OK;
}

static lierne_status take_numbers(lierne_balance_task *t, const lierne_items *items, int cost) {
    int64_t segment = 0;
    for (int64_t i = 0; i < t->n; i++) {
        for (int k = 0; k < items->ncosts; k++) {
            int64_t value = items->cost[i * items->ncosts + k];
            if (value < 0) {
                return reject_number(t, i, "a cost", value, "at least 0");
            }
        }
        t->cost[i] = items->cost[i * items->ncosts + cost];
        t->max_cost = t->cost[i] > t->max_cost ? t->cost[i] : t->max_cost;
        LIERNE_TRY(sum_rows(t, items, i, &segment));
    }
    for (int64_t i = 0; i < t->n; i++) {
        if (t->cost[i] > MOST_COST - t->total_cost) {
            return LIERNE_FAIL(LIERNE_ERR_OVERFLOW,
                               "costs of the items up to item %lld sum up to more than 2^60",
                               (long long)i);
        }
        t->total_cost += t->cost[i];
    }
    return LIERNE_OK;
}

/* Items of the rank that has most, if the others have as many as possible. */
static int64_t most_of_equal(const lierne_balance_task *t) {
    return t->n / t->nranks + (t->n % t->nranks > 0);
}

static void take_caps(lierne_balance_task *t, const lierne_balance_spec *s) {
    t->equal_items = s->equal_items != 0;
    t->min_items = t->equal_items ? t->n / t->nranks : s->min_items;
    t->max_items = t->equal_items ? most_of_equal(t) : s->max_items ? s->max_items : NO_CAP;
    t->max_rows = s->max_rows ? s->max_rows : NO_CAP;
}

static lierne_status check_item_counts(const lierne_balance_task *t) {
    if (t->max_items < most_of_equal(t)) {
        int64_t item = t->max_items * t->nranks;
        return LIERNE_FAIL(LIERNE_ERR_INFEASIBLE,
                           "item %lld of rank %d has no space: there are %lld items, and max_items "
                           "is %lld on %d ranks",
                           (long long)item, t->home[item], (long long)t->n, (long long)t->max_items,
                           t->nranks);
    }
    if (t->min_items > t->n / t->nranks) {
        return LIERNE_FAIL(LIERNE_ERR_INFEASIBLE,
                           "there are %lld items, and min_items is %lld on %d ranks",
                           (long long)t->n, (long long)t->min_items, t->nranks);
    }
    return LIERNE_OK;
}

static lierne_status check_feasible(const lierne_balance_task *t) {
    int64_t item = 0, sum = 0;
    while (item < t->n && t->rows[item] <= t->max_rows) {
        item++;
    }
    if (item < t->n) {
        return LIERNE_FAIL(LIERNE_ERR_INFEASIBLE,
                           "item %lld of rank %d has %lld rows, and max_rows is %lld",
                           (long long)item, t->home[item], (long long)t->rows[item],
                           (long long)t->max_rows);
    }
    LIERNE_TRY(check_item_counts(t));
    for (item = 0; item < t->n && t->max_rows < NO_CAP; item++) {
        sum += t->rows[item];
        if (sum / t->nranks > t->max_rows ||
            (sum / t->nranks == t->max_rows && sum % t->nranks > 0)) {
            return LIERNE_FAIL(LIERNE_ERR_INFEASIBLE,
                               "item %lld of rank %d has no space: the items up to it have %lld "
                               "rows, and max_rows is %lld on %d ranks",
                               (long long)item, t->home[item], (long long)sum,
                               (long long)t->max_rows, t->nranks);
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_balance_not_found(const lierne_balance_task *t, int64_t item) {
    char caps[128];
    snprintf(caps, sizeof caps, "max_items %lld, max_rows %lld, min_items %lld",
             (long long)(t->max_items < NO_CAP ? t->max_items : 0),
             (long long)(t->max_rows < NO_CAP ? t->max_rows : 0), (long long)t->min_items);
    return item < 0 ? LIERNE_FAIL(LIERNE_ERR_INFEASIBLE,
                                  "found no assignment with %s in which no rank has too few items; "
                                  "one may exist, because packing is hard",
                                  caps)
                    : LIERNE_FAIL(LIERNE_ERR_INFEASIBLE,
                                  "found no assignment with %s: item %lld of rank %d is left; one "
                                  "may exist, because packing is hard",
                                  caps, (long long)item, t->home[item]);
}

void lierne_balance_descend(lierne_keyed *items, lierne_keyed *spare, const lierne_balance_task *t,
                            const int64_t *by, int64_t most) {
    for (int64_t i = 0; i < t->n; i++) {
        items[i] = (lierne_keyed){(uint64_t)(most - by[i]), i};
    }
    lierne_sort_keyed(items, spare, (size_t)t->n, (uint64_t)most);
}

/* The cost at a place of the descending order. */
static int64_t cost_at(const lierne_balance_task *t, int64_t place) {
    return (int64_t)t->by_cost[t->n - 1 - place].key;
}

/* Of k * nranks + 1 costs, some rank has k + 1. The window of k + 1 costs ends at place k * nranks;
 * the next one begins nranks - 1 later and ends nranks later. */
static int64_t bound_windows(const lierne_balance_task *t) {
    int64_t bound = 0, sum = t->n > 0 ? cost_at(t, 0) : 0, begin = 0, end = 0;
    for (int64_t k = 1; k * t->nranks < t->n; k++) {
        while (end < k * t->nranks) {
            sum += cost_at(t, ++end);
        }
        while (begin < k * (t->nranks - 1)) {
            sum -= cost_at(t, begin++);
        }
        bound = sum > bound ? sum : bound;
    }
    return bound;
}

static int64_t find_bound(const lierne_balance_task *t) {
    int64_t bound = t->total_cost / t->nranks + (t->total_cost % t->nranks > 0);
    int64_t windows = bound_windows(t), filled = t->max_cost;
    for (int64_t i = 1; i < t->min_items; i++) {
        filled += cost_at(t, t->n - i);
    }
    bound = windows > bound ? windows : bound;
    return filled > bound ? filled : bound;
}

static lierne_status reserve_items(lierne_balance_task *t) {
    size_t n = (size_t)t->n;
    LIERNE_TRY(lierne_balance_take(t->memory, &t->cost, n, sizeof *t->cost));
    LIERNE_TRY(lierne_balance_take(t->memory, &t->rows, n, sizeof *t->rows));
    LIERNE_TRY(lierne_balance_take(t->memory, &t->home, n, sizeof *t->home));
    return lierne_balance_take(t->memory, &t->by_cost, n, sizeof *t->by_cost);
}

static lierne_status sort_items(lierne_balance_task *t) {
    lierne_keyed *spare;
    LIERNE_TRY(lierne_balance_take(t->memory, &spare, (size_t)t->n, sizeof *spare));
    for (int64_t i = 0; i < t->n; i++) {
        t->by_cost[i] = (lierne_keyed){(uint64_t)t->cost[i], i};
    }
    lierne_sort_keyed(t->by_cost, spare, (size_t)t->n, (uint64_t)t->max_cost);
    return LIERNE_OK;
}

lierne_status lierne_balance_task_fill(lierne_balance_task *t, lierne_balance_memory *memory,
                                       const lierne_items *items, const int64_t *counts, int nranks,
                                       const lierne_balance_spec *spec) {
    *t = (lierne_balance_task){.memory = memory,
                               .n = items->nitems,
                               .nranks = nranks,
                               .nodes = spec->nodes,
                               .given = spec->assignment};
    LIERNE_TRY(reserve_items(t));
    LIERNE_TRY(take_homes(t, items, counts));
    LIERNE_TRY(take_numbers(t, items, spec->cost));
    take_caps(t, spec);
    LIERNE_TRY(check_feasible(t));
    LIERNE_TRY(sort_items(t));
    int64_t bound = find_bound(t);
    t->threshold = bound + bound / 1024 * spec->tolerance + bound % 1024 * spec->tolerance / 1024;
    t->lower_bound = bound;
    return LIERNE_OK;
}
