/* Mode SHED: every item stays at home but those that a rank above the threshold must give away.
 *
 * Each change takes load from the rank of the highest load, for the fewest rows per load, or, where
 * that ends above the threshold, as much load as possible. Gain beyond what the rank has too much
 * counts as nothing. A change lifts no rank above the threshold, so changes end. Only the ranks of
 * the lowest loads are looked at as receivers: they have most room, and one of them suffices. */
#include "plan/samples/assignment.h"

#include <string.h>

#define CANDIDATES 16 /* ranks that are looked at: of the node, and of all */

__extension__ typedef __int128 wide;

/* An item, with its cost as the key, by ascending cost, then number. */
typedef struct held_items {
    lierne_keyed *at;
    size_t count, capacity;
} held_items;

typedef struct shed {
    const lierne_balance_task *task;
    int64_t threshold;
    bool least_rows; /* the rule: fewest rows per load; else the largest step */
    int32_t *rank;
    int64_t *load, *rows; /* per rank */
    held_items *held;
    lierne_load_order all,
        *nodes;           /* nodes: one order per rank, empty but for the first of a node */
    int *first;           /* the first rank of a rank's node */
    int *of_nodes;        /* memory of the orders of nodes */
    lierne_keyed *sorted; /* two per rank */
} shed;

/* Item x goes to rank `to`, and item y back (-1: none does). */
typedef struct option {
    int64_t gain, price, x, y;
    int to;
} option;

static int64_t find_held(const held_items *held, int64_t cost, int64_t item) {
    int64_t from = 0, to = (int64_t)held->count;
    while (from < to) {
        int64_t middle = from + (to - from) / 2;
        const lierne_keyed *other = &held->at[middle];
        if ((int64_t)other->key < cost || ((int64_t)other->key == cost && other->value < item)) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from;
}

/* Adds an item behind the last one. */
static lierne_status push_item(const shed *s, held_items *held, lierne_keyed item) {
    const lierne_keyed *old = held->at;
    if (held->count == held->capacity) {
        held->capacity = held->capacity ? 2 * held->capacity : 4;
        LIERNE_TRY(
            lierne_balance_take(s->task->memory, &held->at, held->capacity, sizeof *held->at));
        memcpy(held->at, old ? old : held->at, held->count * sizeof *old);
    }
    held->at[held->count++] = item;
    return LIERNE_OK;
}

static lierne_status insert_item(const shed *s, held_items *held, lierne_keyed item) {
    int64_t at = find_held(held, (int64_t)item.key, item.value);
    LIERNE_TRY(push_item(s, held, item));
    memmove(held->at + at + 1, held->at + at, (held->count - 1 - (size_t)at) * sizeof *held->at);
    held->at[at] = item;
    return LIERNE_OK;
}

static void remove_item(held_items *held, lierne_keyed item) {
    int64_t at = find_held(held, (int64_t)item.key, item.value);
    held->count--;
    memmove(held->at + at, held->at + at + 1, (held->count - (size_t)at) * sizeof *held->at);
}

static void set_load(shed *s, int rank, int64_t load) {
    lierne_load_order_move(&s->all, s->load, rank, load);
    if (s->nodes) {
        lierne_load_order_move(&s->nodes[s->first[rank]], s->load, rank, load);
    }
    s->load[rank] = load;
}

static lierne_status move_item(shed *s, int64_t x, int to) {
    const lierne_balance_task *t = s->task;
    const lierne_keyed item = {(uint64_t)t->cost[x], x};
    int from = s->rank[x];
    LIERNE_TRY(insert_item(s, &s->held[to], item));
    remove_item(&s->held[from], item);
    set_load(s, from, s->load[from] - t->cost[x]);
    set_load(s, to, s->load[to] + t->cost[x]);
    s->rows[from] -= t->rows[x];
    s->rows[to] += t->rows[x];
    s->rank[x] = to;
    return LIERNE_OK;
}

/* Of a rank's items with rows that fit into `rows`, the one with most; -1: none. */
static int64_t find_longest(const shed *s, int rank, int64_t rows) {
    const lierne_balance_task *t = s->task;
    int64_t best = -1;
    for (size_t i = 0; i < s->held[rank].count; i++) {
        int64_t x = s->held[rank].at[i].value, r = t->rows[x];
        if (r > 0 && r <= rows &&
            (best < 0 || r > t->rows[best] || (r == t->rows[best] && x < best))) {
            best = x;
        }
    }
    return best;
}

/* Moves an item from the rank with most rows to the lowest load that has room for one. */
static lierne_status lower_rows(shed *s, int from, bool *found) {
    const lierne_balance_task *t = s->task;
    *found = false;
    for (int i = 0; i < s->all.n; i++) {
        int to = s->all.ranks[i];
        int64_t x = to == from || (int64_t)s->held[to].count >= t->max_items
                        ? -1
                        : find_longest(s, from, t->max_rows - s->rows[to]);
        if (x >= 0) {
            *found = true;
            return move_item(s, x, to);
        }
    }
    return LIERNE_OK;
}

static lierne_status level_rows(shed *s, bool *found) {
    for (*found = true; *found;) {
        int most = 0;
        for (int p = 1; p < s->task->nranks; p++) {
            most = s->rows[p] > s->rows[most] ? p : most;
        }
        if (s->rows[most] <= s->task->max_rows) {
            return LIERNE_OK;
        }
        LIERNE_TRY(lower_rows(s, most, found));
    }
    return LIERNE_OK;
}

static bool has_more_items(const shed *s, int a, int b) {
    size_t x = s->held[a].count, y = s->held[b].count;
    return x != y ? x > y : s->load[a] > s->load[b];
}

static bool has_fewer_items(const shed *s, int a, int b) {
    size_t x = s->held[a].count, y = s->held[b].count;
    return x != y ? x < y : s->load[a] < s->load[b];
}

/* Of the items whose rows fit, the costliest that stays within the threshold, or else the cheapest;
 * -1: none fits. */
static int64_t find_to_level(const shed *s, int from, int to) {
    const lierne_balance_task *t = s->task;
    const held_items *held = &s->held[from];
    int64_t cheapest = -1, best = -1;
    for (size_t i = 0; i < held->count; i++) {
        int64_t x = held->at[i].value;
        if (t->rows[x] > t->max_rows - s->rows[to]) {
            continue;
        }
        cheapest = cheapest < 0 ? x : cheapest;
        if (s->load[to] + t->cost[x] <= s->threshold && (best < 0 || t->cost[x] > t->cost[best])) {
            best = x;
        }
    }
    return best < 0 ? cheapest : best;
}

static lierne_status level_counts(shed *s, bool *found) {
    const lierne_balance_task *t = s->task;
    for (*found = true; *found;) {
        int most = 0, fewest = 0;
        for (int p = 1; p < t->nranks; p++) {
            most = has_more_items(s, p, most) ? p : most;
            fewest = has_fewer_items(s, p, fewest) ? p : fewest;
        }
        if ((int64_t)s->held[most].count <= t->max_items &&
            (int64_t)s->held[fewest].count >= t->min_items) {
            return LIERNE_OK;
        }
        int64_t x = find_to_level(s, most, fewest);
        *found = x >= 0;
        LIERNE_TRY(x >= 0 ? move_item(s, x, fewest) : LIERNE_OK);
    }
    return LIERNE_OK;
}

/* Whether an option of one receiver is better than another one, whose gain is 0 where there is
 * none. Of equal ones the first stays. */
static bool is_better(const shed *s, const option *a, const option *b) {
    if (s->least_rows) {
        wide x = (wide)a->gain * b->price, y = (wide)b->gain * a->price;
        return x != y ? x > y : a->gain > b->gain;
    }
    return a->gain != b->gain ? a->gain > b->gain : a->price < b->price;
}

/* The same of receivers that were looked at one after the other. */
static bool is_better_receiver(const shed *s, const option *a, const option *b) {
    return s->least_rows ? (wide)a->gain * b->price > (wide)b->gain * a->price : is_better(s, a, b);
}

/* Ties: the lower x, and a move before an exchange. */
static void consider(const shed *s, option *best, const option *other) {
    bool less = is_better(s, best, other), more = is_better(s, other, best);
    if (other->gain > 0 &&
        (more || (!less && (other->x < best->x || (other->x == best->x && other->y < best->y))))) {
        *best = *other;
    }
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void consider_move(const shed *s, option *best, int from, int to, int64_t x) {
    const lierne_balance_task *t = s->task;
    if (t->cost[x] <= s->threshold - s->load[to] && (int64_t)s->held[to].count < t->max_items &&
        (int64_t)s->held[from].count > t->min_items && t->rows[x] <= t->max_rows - s->rows[to]) {
        consider(s, best,
                 &(option){least(t->cost[x], s->load[from] - s->threshold), t->rows[x] + 1, x, -1,
                           to});
    }
}

static void consider_exchange(const shed *s, option *best, int from, int to, int64_t x, int64_t y) {
    const lierne_balance_task *t = s->task;
    int64_t more = t->rows[x] - t->rows[y];
    if (t->cost[y] < t->cost[x] && more <= t->max_rows - s->rows[to] &&
        -more <= t->max_rows - s->rows[from]) {
        consider(s, best,
                 &(option){least(t->cost[x] - t->cost[y], s->load[from] - s->threshold),
                           t->rows[x] + t->rows[y] + 1, x, y, to});
    }
}

/* The best option of a receiver. Both lists ascend, so that the item that can come back for x is
 * found from the one for the x before. */
static option find_option(const shed *s, int from, int to) {
    const held_items *mine = &s->held[from], *theirs = &s->held[to];
    int64_t room = s->threshold - s->load[to];
    option best = {.gain = 0, .price = 1};
    size_t at = 0;
    for (size_t i = 0; i < mine->count; i++) {
        int64_t x = mine->at[i].value, cost = (int64_t)mine->at[i].key;
        if (cost == 0) {
            continue;
        }
        consider_move(s, &best, from, to, x);
        while (at < theirs->count && (int64_t)theirs->at[at].key < cost - room) {
            at++;
        }
        if (at < theirs->count) {
            consider_exchange(s, &best, from, to, x, theirs->at[at].value);
        }
    }
    return best;
}

/* Looks at the receivers of an order. Returns whether one of them ends the search for one. */
static bool look(const shed *s, const lierne_load_order *order, int from, option *best) {
    int looked = 0;
    for (int i = 0; i < order->n && looked < CANDIDATES; i++) {
        int to = order->ranks[i];
        if (s->load[to] >= s->threshold) {
            return false;
        }
        if (to == from) {
            continue;
        }
        looked++;
        option found = find_option(s, from, to);
        if (found.gain > 0 && (best->gain == 0 || is_better_receiver(s, &found, best))) {
            *best = found;
        }
        if (found.gain > 0 &&
            (s->least_rows ? found.y < 0 : found.gain == s->load[from] - s->threshold)) {
            return true;
        }
    }
    return false;
}

static lierne_status shed_load(shed *s, bool *found) {
    for (int64_t changes = 0;; changes++) {
        int from = lierne_load_order_highest(&s->all, s->load);
        option best = {.gain = 0, .price = 1};
        *found = s->load[from] <= s->threshold;
        if (*found || changes >= 4 * s->task->n) {
            return LIERNE_OK;
        }
        if (!s->nodes || !look(s, &s->nodes[s->first[from]], from, &best)) {
            look(s, &s->all, from, &best);
        }
        if (best.gain == 0) {
            return LIERNE_OK;
        }
        LIERNE_TRY(move_item(s, best.x, best.to));
        LIERNE_TRY(best.y >= 0 ? move_item(s, best.y, from) : LIERNE_OK);
    }
}

/* Every item at home. */
static lierne_status go_home(shed *s) {
    const lierne_balance_task *t = s->task;
    memset(s->load, 0, (size_t)t->nranks * sizeof *s->load);
    memset(s->rows, 0, (size_t)t->nranks * sizeof *s->rows);
    for (int p = 0; p < t->nranks; p++) {
        s->held[p].count = 0;
    }
    for (int64_t i = 0; i < t->n; i++) {
        int64_t x = t->by_cost[i].value;
        int home = s->rank[x] = t->home[x];
        LIERNE_TRY(push_item(s, &s->held[home], t->by_cost[i]));
        s->load[home] += t->cost[x];
        s->rows[home] += t->rows[x];
    }
    return LIERNE_OK;
}

/* Orders the ranks of each node: sorted by load, and then by node, they lie side by side. */
static void order_nodes(shed *s, lierne_keyed *ranks, lierne_keyed *spare) {
    const lierne_balance_task *t = s->task;
    int first = 0;
    for (int i = 0; i < t->nranks; i++) {
        ranks[i].key = (uint64_t)t->nodes[ranks[i].value];
    }
    lierne_sort_keyed(ranks, spare, (size_t)t->nranks, INT32_MAX);
    for (int i = 0; i < t->nranks; i++) {
        int rank = (int)ranks[i].value;
        first = i > 0 && ranks[i].key == ranks[i - 1].key ? first : i;
        s->of_nodes[i] = rank;
        s->first[rank] = first;
        s->nodes[first] = (lierne_load_order){s->of_nodes + first, i - first + 1};
    }
}

static void order_ranks(shed *s) {
    size_t n = (size_t)s->task->nranks;
    lierne_keyed *ranks = s->sorted;
    for (size_t p = 0; p < n; p++) {
        ranks[p] = (lierne_keyed){(uint64_t)s->load[p], (int64_t)p};
    }
    lierne_sort_keyed(ranks, ranks + n, n, (uint64_t)s->task->total_cost);
    for (size_t p = 0; p < n; p++) {
        s->all.ranks[p] = (int)ranks[p].value;
    }
    s->all.n = (int)n;
    if (s->nodes) {
        order_nodes(s, ranks, ranks + n);
    }
}

static lierne_status search(shed *s, int64_t threshold, bool least_rows, bool *found) {
    s->threshold = threshold;
    s->least_rows = least_rows;
    LIERNE_TRY(go_home(s));
    order_ranks(s);
    LIERNE_TRY(level_rows(s, found));
    LIERNE_TRY(*found ? level_counts(s, found) : LIERNE_OK);
    return *found ? shed_load(s, found) : LIERNE_OK;
}

static int64_t find_highest(const lierne_balance_task *t, const int32_t *rank, int64_t *load) {
    int64_t highest = 0;
    memset(load, 0, (size_t)t->nranks * sizeof *load);
    for (int64_t i = 0; i < t->n; i++) {
        load[rank[i]] += t->cost[i];
        highest = load[rank[i]] > highest ? load[rank[i]] : highest;
    }
    return highest;
}

/* Where no search ends at the threshold. */
static lierne_status follow_lpt(shed *s, int *step) {
    const lierne_balance_task *t = s->task;
    int32_t *lpt;
    bool found = false;
    LIERNE_TRY(lierne_balance_take(t->memory, &lpt, (size_t)t->n, sizeof *lpt));
    lierne_status status = lierne_balance_lpt(lpt, t);
    int64_t highest = status == LIERNE_OK ? find_highest(t, lpt, s->load) : 0;
    highest = highest > t->threshold ? highest : t->threshold;
    for (*step = 3; *step < 5 && status == LIERNE_OK && !found; *step += !found) {
        status = search(s, highest, *step == 3, &found);
    }
    if (status == LIERNE_OK && !found) {
        memcpy(s->rank, lpt, (size_t)t->n * sizeof *lpt);
    }
    return status;
}

static lierne_status run(shed *s, int *step) {
    const lierne_balance_task *t = s->task;
    bool found = false;
    for (*step = 1; *step < 3 && !found; *step += !found) {
        LIERNE_TRY(search(s, t->threshold, *step == 1, &found));
    }
    if (found) {
        return LIERNE_OK;
    }
    lierne_status status = follow_lpt(s, step);
    if (status == LIERNE_ERR_INFEASIBLE) {
        *step = 6;
        LIERNE_TRY(search(s, t->total_cost, true, &found));
    }
    return found ? LIERNE_OK : status;
}

static lierne_status reserve(shed *s) {
    lierne_balance_memory *memory = s->task->memory;
    size_t n = (size_t)s->task->nranks;
    LIERNE_TRY(lierne_balance_take(memory, &s->load, n, sizeof *s->load));
    LIERNE_TRY(lierne_balance_take(memory, &s->rows, n, sizeof *s->rows));
    LIERNE_TRY(lierne_balance_take(memory, &s->held, n, sizeof *s->held));
    LIERNE_TRY(lierne_balance_take(memory, &s->all.ranks, n, sizeof *s->all.ranks));
    LIERNE_TRY(lierne_balance_take(memory, &s->sorted, 2 * n, sizeof *s->sorted));
    if (s->task->nodes) {
        LIERNE_TRY(lierne_balance_take(memory, &s->nodes, n, sizeof *s->nodes));
        LIERNE_TRY(lierne_balance_take(memory, &s->first, n, sizeof *s->first));
        LIERNE_TRY(lierne_balance_take(memory, &s->of_nodes, n, sizeof *s->of_nodes));
    }
    return LIERNE_OK;
}

lierne_status lierne_balance_shed(int32_t *rank, int *step, const lierne_balance_task *task) {
    shed s = {.task = task, .rank = rank};
    LIERNE_TRY(reserve(&s));
    return run(&s, step);
}
