/* The Hungarian algorithm with prices: rows enter one by one, and each takes the cheapest chain of
 * changes to what the rows before have, in the manner of Dijkstra. n rows of n steps of n: 512
 * rows take a fraction of a second. A gain is a cost below zero. */
#include "assign.h"

#include <stdlib.h>

/* Rows and columns count from 1; column 0 is the place of the row that enters. */
typedef struct search {
    int n;
    const int64_t *gain;
    int64_t *row_price, *column_price;
    int64_t *least; /* of each column: the cheapest way into it so far, beyond the prices */
    int *row_of;    /* 0: none */
    int *before;    /* the column from which that way comes */
    bool *done;
} search;

static int64_t cost_of(const search *s, int row, int column) {
    int64_t gain = s->gain[(int64_t)(row - 1) * s->n + column - 1];
    return -gain - s->row_price[row] - s->column_price[column];
}

/* Looks from a column's row into all others; returns the cheapest column that is not done. */
static int find_next(search *s, int from) {
    int next = 0;
    for (int c = 1; c <= s->n; c++) {
        if (s->done[c]) {
            continue;
        }
        int64_t cost = cost_of(s, s->row_of[from], c);
        if (cost < s->least[c]) {
            s->least[c] = cost;
            s->before[c] = from;
        }
        next = next == 0 || s->least[c] < s->least[next] ? c : next;
    }
    return next;
}

/* Makes the way to the next column free of cost, and keeps those of the columns that are done so.
 */
static void change_prices(search *s, int64_t by) {
    for (int c = 0; c <= s->n; c++) {
        if (s->done[c]) {
            s->row_price[s->row_of[c]] += by;
            s->column_price[c] -= by;
        } else {
            s->least[c] -= by;
        }
    }
}

static void enter_row(search *s, int row) {
    int at = 0;
    for (int c = 0; c <= s->n; c++) {
        s->least[c] = INT64_MAX;
        s->done[c] = false;
    }
    s->row_of[0] = row;
    do {
        s->done[at] = true;
        int next = find_next(s, at);
        change_prices(s, s->least[next]);
        at = next;
    } while (s->row_of[at] != 0);
    while (at != 0) {
        s->row_of[at] = s->row_of[s->before[at]];
        at = s->before[at];
    }
}

bool tool_assign(int *column, const int64_t *gain, int n) {
    size_t size = (size_t)n + 1;
    search s = {.n = n, .gain = gain};
    s.row_price = calloc(3 * size, sizeof *s.row_price);
    s.row_of = calloc(2 * size, sizeof *s.row_of);
    s.done = calloc(size, sizeof *s.done);
    bool good = s.row_price && s.row_of && s.done;
    if (good) {
        s.column_price = s.row_price + size;
        s.least = s.column_price + size;
        s.before = s.row_of + size;
    }
    for (int row = 1; good && row <= n; row++) {
        enter_row(&s, row);
    }
    for (int c = 1; good && c <= n; c++) {
        column[s.row_of[c] - 1] = c - 1;
    }
    free(s.row_price);
    free(s.row_of);
    free(s.done);
    return good;
}
