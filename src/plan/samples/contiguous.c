/* Items in their order, a run for each rank: for a bound of the load the greedy cut is exact, and
 * the least bound for which it succeeds is found by halving. */
#include "plan/samples/assignment.h"

/* The end of the run that begins at item `first`, on a rank that `later` ranks follow. */
static int64_t end_run(const lierne_balance_task *t, int64_t bound, int64_t first, int later) {
    int64_t room = bound, space = t->max_rows, i = first;
    int64_t last = t->n - later * t->min_items;
    last = last - first > t->max_items ? first + t->max_items : last;
    while (i < last && t->cost[i] <= room && t->rows[i] <= space) {
        room -= t->cost[i];
        space -= t->rows[i];
        i++;
    }
    return i;
}

/* Cuts under a bound; rank: NULL, or where to write. Returns the first item that is left, n: none
 * is. */
static int64_t cut(int32_t *rank, const lierne_balance_task *t, int64_t bound) {
    int64_t first = 0;
    for (int p = 0; p < t->nranks; p++) {
        int64_t end = end_run(t, bound, first, t->nranks - 1 - p);
        if (end - first < t->min_items) {
            return first;
        }
        for (; first < end; first++) {
            if (rank) {
                rank[first] = p;
            }
        }
    }
    return first;
}

lierne_status lierne_balance_contiguous(int32_t *rank, const lierne_balance_task *task) {
    int64_t low = 0, high = task->total_cost;
    if (task->min_items > 1) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "every rank must get %lld items (min_items or equal_items), and mode "
                           "CONTIGUOUS takes 0 and 1",
                           (long long)task->min_items);
    }
    int64_t left = cut(NULL, task, high);
    if (left < task->n) {
        return lierne_balance_not_found(task, left);
    }
    while (low < high) {
        int64_t bound = low + (high - low) / 2;
        if (cut(NULL, task, bound) == task->n) {
            high = bound;
        } else {
            low = bound + 1;
        }
    }
    cut(rank, task, low);
    return LIERNE_OK;
}
