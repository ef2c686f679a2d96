/* Largest differencing: states of one set per rank are joined, the two of the largest spread first,
 * the heavy sets of one with the light sets of the other.
 *
 * Empty sets are the last ones of a state and not stored, so that all states together have at most
 * a set per item. A set is the list of its items in the order in which they joined; lists are
 * compared by their first items, which no two sets share. */
#include "plan/samples/assignment.h"

#include <stdlib.h>
#include <string.h>

typedef struct set {
    int64_t sum, count;
    int64_t first, last; /* items */
} set;

typedef struct state {
    set *sets; /* descending */
    int count, capacity;
} state;

typedef struct kk {
    const lierne_balance_task *task;
    state *states; /* a heap, the largest spread first */
    int64_t n;
    int64_t *next; /* of each item in its set */
} kk;

static int compare_values(int64_t a, int64_t b) {
    return (a > b) - (a < b);
}

static int compare_sets(const void *a, const void *b) {
    const set *x = a, *y = b;
    int order = compare_values(y->sum, x->sum);
    order = order ? order : compare_values(y->count, x->count);
    return order ? order : compare_values(y->first, x->first);
}

static int64_t spread(const kk *k, const state *s) {
    return s->sets[0].sum - (s->count < k->task->nranks ? 0 : s->sets[s->count - 1].sum);
}

static bool comes_before(const kk *k, const state *a, const state *b) {
    int64_t x = spread(k, a), y = spread(k, b);
    return x != y ? x > y : compare_sets(&a->sets[0], &b->sets[0]) < 0;
}

static void sink(kk *k, int64_t at) {
    state moved = k->states[at];
    for (int64_t child = 2 * at + 1; child < k->n; child = 2 * at + 1) {
        child += child + 1 < k->n && comes_before(k, &k->states[child + 1], &k->states[child]);
        if (!comes_before(k, &k->states[child], &moved)) {
            break;
        }
        k->states[at] = k->states[child];
        at = child;
    }
    k->states[at] = moved;
}

static void append(kk *k, set *to, const set *from) {
    if (from->count == 0) {
        return;
    }
    if (to->count == 0) {
        *to = *from;
        return;
    }
    k->next[to->last] = from->first;
    *to = (set){to->sum + from->sum, to->count + from->count, to->first, from->last};
}

/* Space for n sets. Sets that are left behind were as many as items at most, in every doubling. */
static lierne_status grow_state(const kk *k, state *s, int n) {
    set *sets = s->sets;
    if (n > s->capacity) {
        s->capacity = 2 * s->capacity > n ? 2 * s->capacity : n;
        LIERNE_TRY(
            lierne_balance_take(k->task->memory, &s->sets, (size_t)s->capacity, sizeof *s->sets));
        if (sets) {
            memcpy(s->sets, sets, (size_t)s->count * sizeof *sets);
        }
    }
    memset(s->sets + s->count, 0, (size_t)(n - s->count) * sizeof *sets);
    return LIERNE_OK;
}

/* Set i takes the items of set nranks - 1 - i of b, which goes. */
static lierne_status join_states(kk *k, state *a, state *b) {
    int wanted = a->count + b->count, n = wanted < k->task->nranks ? wanted : k->task->nranks;
    LIERNE_TRY(grow_state(k, a, n));
    for (int i = 0; i < b->count; i++) {
        append(k, &a->sets[n - 1 - i], &b->sets[i]);
    }
    a->count = n;
    qsort(a->sets, (size_t)n, sizeof *a->sets, compare_sets);
    return LIERNE_OK;
}

/* The last state takes the place of the one that was joined with the first. */
static lierne_status join_all(kk *k) {
    while (k->n > 1) {
        state first = k->states[0];
        k->states[0] = k->states[k->n - 1];
        k->states[k->n - 1] = first;
        k->n--;
        sink(k, 0);
        LIERNE_TRY(join_states(k, &k->states[k->n], &k->states[0]));
        k->states[0] = k->states[k->n];
        sink(k, 0);
    }
    return LIERNE_OK;
}

/* States of `size` items each, in ascending cost; the first one has what is left over. */
static lierne_status begin(kk *k, int size) {
    const lierne_balance_task *t = k->task;
    int64_t rest = t->n % size, at = 0;
    LIERNE_TRY(
        lierne_balance_take(t->memory, &k->states, (size_t)(t->n / size + 1), sizeof *k->states));
    LIERNE_TRY(lierne_balance_take(t->memory, &k->next, (size_t)t->n, sizeof *k->next));
    while (at < t->n) {
        state *s = &k->states[k->n];
        int n = at == 0 && rest > 0 ? (int)rest : size;
        LIERNE_TRY(grow_state(k, s, n));
        for (k->n++; s->count < n; s->count++) {
            int64_t item = t->by_cost[at++].value;
            s->sets[s->count] = (set){t->cost[item], 1, item, item};
        }
        qsort(s->sets, (size_t)n, sizeof *s->sets, compare_sets);
    }
    for (int64_t i = k->n / 2; i-- > 0;) {
        sink(k, i);
    }
    return LIERNE_OK;
}

static void write_ranks(int32_t *rank, const kk *k) {
    for (int p = 0; k->n > 0 && p < k->states[0].count; p++) {
        const set *s = &k->states[0].sets[p];
        int64_t item = s->first;
        for (int64_t i = 0; i < s->count; i++) {
            rank[item] = p;
            item = k->next[item];
        }
    }
}

lierne_status lierne_balance_kk(int32_t *rank, const lierne_balance_task *task) {
    kk k = {.task = task};
    LIERNE_TRY(begin(&k, task->equal_items ? task->nranks : 1));
    LIERNE_TRY(join_all(&k));
    write_ranks(rank, &k);
    return LIERNE_OK;
}
