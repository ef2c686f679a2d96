/* Longest processing time first, and first the items of most rows where rows would not fit that
 * way.
 *
 * The first items go to ranks 0, 1, 2, ..., whatever they cost: by load alone, those without cost
 * would all go to rank 0. */
#include "plan/samples/assignment.h"

#include <string.h>

typedef struct lpt {
    const lierne_balance_task *task;
    int32_t *rank;
    int64_t *load, *rows, *items; /* per rank */
    lierne_load_order order;
    int64_t missing; /* items that ranks lack to min_items */
} lpt;

static bool has_room(const lpt *s, int rank, int64_t item) {
    const lierne_balance_task *t = s->task;
    return s->items[rank] < t->max_items && t->rows[item] <= t->max_rows - s->rows[rank];
}

/* The rank of the lowest load that takes the item, -1: none. needy: only those below min_items. */
static int find_lowest(const lpt *s, int64_t item, bool needy) {
    for (int i = 0; i < s->order.n; i++) {
        int rank = s->order.ranks[i];
        if (has_room(s, rank, item) && (!needy || s->items[rank] < s->task->min_items)) {
            return rank;
        }
    }
    return -1;
}

static int find_fullest(const lpt *s, int64_t item) {
    int best = -1;
    for (int rank = 0; rank < s->task->nranks; rank++) {
        if (has_room(s, rank, item) && (best < 0 || s->rows[rank] > s->rows[best])) {
            best = rank;
        }
    }
    return best;
}

static void give(lpt *s, int64_t item, int rank) {
    s->rank[item] = rank;
    s->missing -= s->items[rank] < s->task->min_items;
    s->items[rank]++;
    s->rows[rank] += s->task->rows[item];
}

/* By cost. Returns whether all items had room. */
static bool place_costs(lpt *s, const lierne_keyed *items) {
    const lierne_balance_task *t = s->task;
    for (int64_t i = 0; i < t->n; i++) {
        int64_t item = items[i].value;
        int rank = i < t->nranks ? (int)i : find_lowest(s, item, t->n - i == s->missing);
        if (rank < 0) {
            return false;
        }
        int64_t load = s->load[rank] + t->cost[item];
        lierne_load_order_move(&s->order, s->load, rank, load);
        s->load[rank] = load;
        give(s, item, rank);
    }
    return true;
}

static lierne_status place_rows(lpt *s, const lierne_keyed *items) {
    const lierne_balance_task *t = s->task;
    memset(s->rows, 0, (size_t)t->nranks * sizeof *s->rows);
    memset(s->items, 0, (size_t)t->nranks * sizeof *s->items);
    s->missing = t->min_items * t->nranks;
    for (int64_t i = 0; i < t->n; i++) {
        int rank = find_fullest(s, items[i].value);
        if (rank < 0) {
            return lierne_balance_not_found(t, items[i].value);
        }
        give(s, items[i].value, rank);
    }
    return s->missing > 0 ? lierne_balance_not_found(t, -1) : LIERNE_OK;
}

static lierne_status run(lpt *s) {
    const lierne_balance_task *t = s->task;
    lierne_keyed *items, *spare;
    LIERNE_TRY(lierne_balance_take(t->memory, &items, (size_t)t->n, sizeof *items));
    LIERNE_TRY(lierne_balance_take(t->memory, &spare, (size_t)t->n, sizeof *spare));
    LIERNE_TRY(lierne_balance_take(t->memory, &s->load, (size_t)t->nranks, sizeof *s->load));
    LIERNE_TRY(lierne_balance_take(t->memory, &s->rows, (size_t)t->nranks, sizeof *s->rows));
    LIERNE_TRY(lierne_balance_take(t->memory, &s->items, (size_t)t->nranks, sizeof *s->items));
    LIERNE_TRY(
        lierne_balance_take(t->memory, &s->order.ranks, (size_t)t->nranks, sizeof *s->order.ranks));
    for (s->order.n = 0; s->order.n < t->nranks; s->order.n++) {
        s->order.ranks[s->order.n] = s->order.n;
    }
    s->missing = t->min_items * t->nranks;
    lierne_balance_descend(items, spare, t, t->cost, t->max_cost);
    if (place_costs(s, items)) {
        return LIERNE_OK;
    }
    lierne_balance_descend(items, spare, t, t->rows, INT32_MAX);
    return place_rows(s, items);
}

lierne_status lierne_balance_lpt(int32_t *rank, const lierne_balance_task *task) {
    lpt s = {.task = task, .rank = rank};
    return run(&s);
}
