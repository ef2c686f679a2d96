/* The first call in which ranks differ. All ranks make the same executing calls in one order, or
 * they would not need each other; so calls are compared by their place in that order. The operation
 * of most ranks counts as the right one, of as many on both sides that of the lowest rank. */
#include "diagnose/hang_view.h"

#define MOST_COMPARED 4096 /* calls; bounds a hostile file */

/* A rank's call at a place, if it began before the hang; else NULL. */
static const lierne_hang_operation *call_at(const lierne_hang_context *c, int index,
                                            int64_t place) {
    const lierne_hang_view *view = c->at[index];
    for (size_t i = view->operations.count; i > 0; i--) {
        const lierne_hang_operation *o = &view->operations.at[i - 1];
        if (o->place == place) {
            return o->begun <= c->at_time ? o : NULL;
        }
        if (!o->control && o->place < place) {
            return NULL;
        }
    }
    return NULL;
}

static bool alike(const lierne_hang_operation *a, const lierne_hang_operation *b) {
    return !a == !b && (!a || (a->what == b->what && a->plan == b->plan));
}

/* How many ranks made the same call there as one of them. */
static int count_alike(const lierne_hang_context *c, int index, int64_t place) {
    const lierne_hang_operation *own = call_at(c, index, place);
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        n += alike(call_at(c, i, place), own);
    }
    return n;
}

/* The view with the fewest like it; -1: all are alike. */
static int find_odd(const lierne_hang_context *c, int64_t place) {
    int odd = -1, fewest = 0;
    for (int i = 1; i < c->n; i++) {
        if (alike(call_at(c, i, place), call_at(c, 0, place))) {
            continue;
        }
        int n = count_alike(c, i, place);
        if (odd < 0 || n < fewest) {
            odd = i;
            fewest = n;
        }
    }
    return odd >= 0 && count_alike(c, 0, place) < fewest ? 0 : odd;
}

/* The calls that every ring still has, and those that any has. */
static void find_range(const lierne_hang_context *c, int64_t *low, int64_t *high) {
    *low = *high = 0;
    for (int v = 0; v < c->n; v++) {
        const lierne_hang_view *view = c->at[v];
        size_t count = view->operations.count, i = 0;
        while (i < count && view->operations.at[i].control) {
            i++;
        }
        if (i < count) {
            int64_t first = view->operations.at[i].place;
            *low = first > *low ? first : *low;
        }
        while (count > i && view->operations.at[count - 1].control) {
            count--;
        }
        if (count > i) {
            int64_t last = view->operations.at[count - 1].place;
            *high = last + 1 > *high ? last + 1 : *high;
        }
    }
}

bool lierne_hang_first_difference(int64_t *place, int *rank, const lierne_hang_context *c) {
    int64_t low, high;
    find_range(c, &low, &high);
    for (*place = low; *place < high && *place - low < 2 * (int64_t)MOST_COMPARED; (*place)++) {
        int odd = find_odd(c, *place);
        if (odd >= 0) {
            *rank = lierne_hang_rank(c, odd);
            return true;
        }
    }
    return false;
}

int lierne_hang_other(const lierne_hang_context *c, int rank, int64_t place) {
    const lierne_hang_operation *own = call_at(c, lierne_hang_index(c, rank), place);
    int i = 0;
    while (i < c->n - 1 && alike(call_at(c, i, place), own)) {
        i++;
    }
    return lierne_hang_rank(c, i);
}
