/* The square of ranks in which messages stop over (relay.h). */
#include "route/relay.h"

lierne_square lierne_square_of(const int *ranks, int n) {
    lierne_square s = {.ranks = ranks, .n = n};
    while ((int64_t)s.columns * s.columns < n) {
        s.columns++;
    }
    s.rows = n > 0 ? (n + s.columns - 1) / s.columns : 0;
    return s;
}

int lierne_square_peers(const lierne_square *s) {
    return s->n > 0 ? s->columns - 1 + s->rows - 1 : 0;
}

int lierne_square_place(const lierne_square *s, int rank) {
    return lierne_search_int(s->ranks, s->n, rank);
}

bool lierne_square_adjacent(const lierne_square *s, int a, int b) {
    return a / s->columns == b / s->columns || a % s->columns == b % s->columns;
}

int lierne_square_stopover(const lierne_square *s, int from, int to) {
    if (lierne_square_adjacent(s, from, to)) {
        return -1;
    }
    int place = from / s->columns * s->columns + to % s->columns;
    return place < s->n ? place : to / s->columns * s->columns + from % s->columns;
}

static int row_length(const lierne_square *s, int row) {
    return row < s->rows - 1 ? s->columns : s->n - row * s->columns;
}

/* The column where a tour leaves a row for the next one, that of the last row for place 0. A row is
 * left in another column than it is entered, unless it has only one: 1 and 0 in turn, and 2 once
 * where these would not fit the end. */
static int exit_of(const lierne_square *s, int row) {
    bool lone = row_length(s, s->rows - 1) == 1;
    int last = lone ? s->rows - 2 : s->rows - 1; /* the last row with several places ends in 0 */
    if (row >= last) {
        return 0;
    }
    int turn = row % 2 == 0 ? 1 : 0;
    bool fits = last % 2 == 1;
    return fits || row < last - 2 ? turn : row == last - 2 ? 2 : 1;
}

int lierne_square_next(const lierne_square *s, int place) {
    int row = place / s->columns, column = place % s->columns, length = row_length(s, row);
    if (s->rows == 1) {
        return (place + 1) % s->n;
    }
    int enter = row > 0 ? exit_of(s, row - 1) : 0, leave = exit_of(s, row);
    if (column == leave) {
        return row == s->rows - 1 ? 0 : (row + 1) * s->columns + leave;
    }
    int next = column == enter ? 0 : column + 1;
    while (next < length && (next == enter || next == leave)) {
        next++;
    }
    return row * s->columns + (next < length ? next : leave);
}
