/* Binary searches in an array of ranks by load. A rank that moves is found by its old load. */
#include "plan/samples/assignment.h"

#include <string.h>

/* The first place, from `from` to `to`, whose rank does not come before (load, rank). */
static int find_place(const lierne_load_order *order, const int64_t *loads, int64_t load, int rank,
                      int from, int to) {
    while (from < to) {
        int middle = from + (to - from) / 2, other = order->ranks[middle];
        if (loads[other] < load || (loads[other] == load && other < rank)) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from;
}

void lierne_load_order_move(lierne_load_order *order, const int64_t *load, int rank, int64_t to) {
    int at = find_place(order, load, load[rank], rank, 0, order->n);
    int *ranks = order->ranks;
    if (to > load[rank]) {
        int place = find_place(order, load, to, rank, at + 1, order->n) - 1;
        memmove(ranks + at, ranks + at + 1, (size_t)(place - at) * sizeof *ranks);
        ranks[place] = rank;
    } else {
        int place = find_place(order, load, to, rank, 0, at);
        memmove(ranks + place + 1, ranks + place, (size_t)(at - place) * sizeof *ranks);
        ranks[place] = rank;
    }
}

int lierne_load_order_highest(const lierne_load_order *order, const int64_t *load) {
    int64_t highest = load[order->ranks[order->n - 1]];
    return order->ranks[find_place(order, load, highest, -1, 0, order->n)];
}
