/* The picture of an assignment: a pair of bars for each rank, its load at home and the assigned
 * one, under them the rows that leave and arrive, and the matrix of who sends them to whom. Many
 * ranks share a column: the highest load of each run of them is drawn, because that is the one all
 * wait for. */
#include "matrix.h"

#include "tool/balance_input.h"

#include <stdlib.h>

enum {
    MOST_COLUMNS = 64,
    HEIGHT = 240,
    LEFT = 90,
    TOP = 70,
    COLUMN = 14,
    BEFORE = 0x9ca3af,
    AFTER = 0x2563eb
};

/* What a column shows. */
typedef struct column {
    int64_t before, after; /* loads */
    int64_t leave, arrive; /* rows */
} column;

static void fill_columns(column *columns, int each, const lierne_items *items,
                         const int64_t *counts, int nranks, const lierne_assignment *a) {
    const int32_t *ranks = lierne_assignment_get_ranks(a);
    const int64_t *loads = lierne_assignment_get_loads(a);
    int64_t i = 0;
    for (int p = 0; p < nranks; p++) {
        column *c = &columns[p / each];
        int64_t load = 0;
        for (int64_t end = i + counts[p]; i < end; i++) {
            load += items->cost[i];
            if (ranks[i] != p) {
                c->leave += items->rows[i];
                columns[ranks[i] / each].arrive += items->rows[i];
            }
        }
        c->before = load > c->before ? load : c->before;
        c->after = loads[p] > c->after ? loads[p] : c->after;
    }
}

static int pixels(int64_t value, int64_t most) {
    return most > 0 ? (int)((double)value / (double)most * (double)HEIGHT + 0.5) : 0;
}

static void draw_line(svg *s, int64_t load, int64_t most, int width, const char *name) {
    int y = TOP + HEIGHT - pixels(load, most);
    svg_rect(s, (svg_box){LEFT, y, width, 1}, SVG_GREY, SVG_NONE);
    svg_write(s, LEFT - 6, y, (svg_style){SVG_SMALL, SVG_RIGHT, SVG_GREY}, "%s %lld", name,
              (long long)load);
}

static void draw_bars(svg *s, const column *columns, int n, int each, int64_t most) {
    const svg_style small = {SVG_SMALL, SVG_MIDDLE, SVG_GREY};
    for (int k = 0; k < n; k++) {
        int x = LEFT + 4 + k * (2 * COLUMN + 8), ground = TOP + HEIGHT;
        int heights[2] = {pixels(columns[k].before, most), pixels(columns[k].after, most)};
        for (int b = 0; b < 2; b++) {
            svg_rect(s, (svg_box){x + b * COLUMN, ground - heights[b], COLUMN, heights[b]},
                     b ? AFTER : BEFORE, SVG_NONE);
        }
        svg_write(s, x + COLUMN, ground + 12, small, "%d", k * each);
    }
}

static int64_t find_most(const column *columns, int n) {
    int64_t most = 0;
    for (int k = 0; k < n; k++) {
        most = columns[k].before > most ? columns[k].before : most;
        most = columns[k].after > most ? columns[k].after : most;
    }
    return most;
}

/* The rows of a column as two short bars, in units of the most that any has. */
static void draw_rows(svg *s, const column *columns, int n) {
    int64_t most = 1;
    int y = TOP + HEIGHT + 40;
    for (int k = 0; k < n; k++) {
        most = columns[k].leave > most ? columns[k].leave : most;
        most = columns[k].arrive > most ? columns[k].arrive : most;
    }
    for (int k = 0; k < n; k++) {
        int x = LEFT + 4 + k * (2 * COLUMN + 8);
        int leave = pixels(columns[k].leave, most) / 4,
            arrive = pixels(columns[k].arrive, most) / 4;
        svg_rect(s, (svg_box){x, y + 60 - leave, COLUMN, leave}, BEFORE, SVG_NONE);
        svg_rect(s, (svg_box){x + COLUMN, y + 60 - arrive, COLUMN, arrive}, AFTER, SVG_NONE);
    }
    svg_write(s, LEFT - 6, y, (svg_style){SVG_SMALL, SVG_RIGHT, SVG_GREY}, "%lld rows",
              (long long)most);
    svg_write(s, LEFT, y + 74, (svg_style){SVG_SMALL, SVG_LEFT, SVG_GREY},
              "rows that leave (grey) and arrive (blue)");
}

static void draw_all(svg *s, const column *columns, int n, int each, const lierne_assignment *a,
                     const char *title) {
    lierne_assignment_report r = {.size = sizeof r};
    int64_t most = find_most(columns, n);
    int width = n * (2 * COLUMN + 8) + 8;
    lierne_assignment_get_report(&r, a);
    svg_write(s, LEFT, 20, (svg_style){SVG_TITLE, SVG_LEFT, SVG_INK}, "%s", title);
    svg_write(s, LEFT, 42, (svg_style){SVG_TEXT, SVG_LEFT, SVG_GREY},
              "load at home (grey) and assigned (blue)%s; %lld of the rows move, in %lld messages",
              each > 1 ? ", the highest of each run of ranks" : "", (long long)r.moved_rows,
              (long long)r.messages);
    draw_bars(s, columns, n, each, most);
    svg_rect(s, (svg_box){LEFT, TOP + HEIGHT, width, 1}, SVG_INK, SVG_NONE);
    draw_line(s, r.lower_bound, most, width, "bound");
    if (most > r.lower_bound + r.lower_bound / 10) {
        draw_line(s, most, most, width, "highest");
    }
    draw_rows(s, columns, n);
}

/* Items that move; *at is to be freed. */
static void list_moves(matrix_entry **at, size_t *count, const lierne_items *items,
                       const int64_t *counts, int nranks, const int32_t *ranks) {
    int64_t i = 0;
    *count = 0;
    *at = malloc(((size_t)items->nitems + 1) * sizeof **at);
    for (int p = 0; *at && p < nranks; p++) {
        for (int64_t end = i + counts[p]; i < end; i++) {
            if (ranks[i] != p) {
                (*at)[(*count)++] = (matrix_entry){p, ranks[i], items->rows[i]};
            }
        }
    }
    if (!*at) {
        tool_lack_memory();
    }
}

static void draw_moves(svg *s, const lierne_items *items, const int64_t *counts, int nranks,
                       const int *nodes, const lierne_assignment *a) {
    lierne_assignment_report r = {.size = sizeof r};
    matrix_input in = {.world = nranks, .nodes = nodes, .unit = "rows"};
    matrix_entry *at;
    int y = TOP + HEIGHT + 160;
    lierne_assignment_get_report(&r, a);
    in.messages = r.messages;
    list_moves(&at, &in.count, items, counts, nranks, lierne_assignment_get_ranks(a));
    in.at = at;
    svg_write(s, 16, y, (svg_style){SVG_TEXT, SVG_LEFT, SVG_INK}, "Rows from rank to rank");
    matrix_draw(s, y + 24, &in);
    free(at);
}

bool balance_draw(const lierne_items *items, const int64_t *counts, int nranks, const int *nodes,
                  const lierne_assignment *assignment, const char *title) {
    int each = (nranks + MOST_COLUMNS - 1) / MOST_COLUMNS, n = (nranks + each - 1) / each;
    column *columns = calloc((size_t)n, sizeof *columns);
    svg s;
    svg_open(&s);
    if (columns) {
        fill_columns(columns, each, items, counts, nranks, assignment);
        draw_all(&s, columns, n, each, assignment, title);
    }
    draw_moves(&s, items, counts, nranks, nodes, assignment);
    bool good = svg_close(&s, stdout, title) && columns;
    free(columns);
    return good;
}
