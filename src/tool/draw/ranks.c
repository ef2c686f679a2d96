/* The ranks of each grid as a table: the fast dims go to the right, the slow ones down. Cells of
 * the same samples have the same colour in both tables, so that one sees what must move. */
#include "draw.h"

#include "tool/place.h"
#include "tool/tool.h"

#include <string.h>

enum { COLUMNS = 16, ROWS = 24, CELL = 46, HEIGHT = 22, HEADER = 62 };

/* Dims with their strides in the table, the fastest first. */
typedef struct table {
    const draw_side *side;
    int ncols, nrows; /* cells */
    int split;        /* dims before this one go to the right */
    int ndims;
    int cols[COLUMNS + 1], rows[ROWS + 1]; /* what is shown; -1: a gap */
    int shown_cols, shown_rows;
} table;

static int size_of(const table *t, int d) {
    return lierne_grid_get_dim_size(t->side->grid, t->side->view, d);
}

static table table_of(const draw_side *side) {
    table t = {.side = side, .ncols = 1, .nrows = 1};
    t.ndims = lierne_grid_get_ndims(side->grid, side->view);
    while (t.split < t.ndims && (t.ncols == 1 || t.ncols * size_of(&t, t.split) <= COLUMNS) &&
           (t.split + 1 < t.ndims || t.ncols == 1)) {
        t.ncols *= size_of(&t, t.split++);
    }
    for (int d = t.split; d < t.ndims; d++) {
        t.nrows *= size_of(&t, d);
    }
    t.shown_cols = draw_choose(t.ncols, COLUMNS, t.cols);
    t.shown_rows = draw_choose(t.nrows, ROWS, t.rows);
    return t;
}

/* Ranks of a view are in its own order, the first dim fastest, as those of the grid. */
static int rank_of(const table *t, int row, int col) {
    return lierne_grid_get_rank_offset(t->side->grid) + row * t->ncols + col;
}

/* Coordinate of a dim in the index of a row or a column. */
static int coordinate(const table *t, int d, int index) {
    for (int before = d < t->split ? 0 : t->split; before < d; before++) {
        index /= size_of(t, before);
    }
    return index % size_of(t, d);
}

/* Dims of size 1 tell no ranks apart and have no header. */
static int headers(const table *t, int first, int end) {
    int n = 0;
    for (int d = first; d < end; d++) {
        n += size_of(t, d) > 1;
    }
    return n;
}

static void draw_header(const table *t, svg *s, int d, int index, svg_box box) {
    const char *dim = lierne_grid_get_dim_name(t->side->grid, t->side->view, d);
    int at = coordinate(t, d, index), fill = draw_dim_color(dim, at, size_of(t, d));
    svg_rect(s, box, fill, SVG_GROUND);
    svg_write(s, box.x + box.width / 2, box.y + box.height / 2,
              (svg_style){SVG_SMALL, SVG_MIDDLE, svg_ink_on(fill)}, "%.5s %d", dim, at);
}

static void draw_cell(const draw_task *task, svg *s, int side, int rank, svg_box box) {
    const lierne_bridge_spec *spec = &task->bridge.spec;
    int64_t start, length;
    int fill = 0xf9fafb;
    if (task->bridge.name) {
        place_axes axes = place_axes_of(spec);
        place_range(spec, side ? PLACE_DESTINATION : PLACE_SOURCE, rank, &start, &length);
        fill = length ? draw_sample_color(start, start + length, axes.size[axes.batch]) : fill;
    }
    svg_rect(s, box, fill, SVG_PALE);
    svg_write(s, box.x + box.width / 2, box.y + box.height / 2,
              (svg_style){SVG_SMALL, SVG_MIDDLE, SVG_INK}, "%d", rank);
}

static void draw_row(const draw_task *task, const table *t, svg *s, int side, int row, int x,
                     int y) {
    for (int d = t->ndims - 1; d >= t->split; d--) {
        if (size_of(t, d) > 1) {
            draw_header(t, s, d, row, (svg_box){x, y, HEADER, HEIGHT});
            x += HEADER;
        }
    }
    for (int c = 0; c < t->shown_cols; c++, x += CELL) {
        if (t->cols[c] < 0) {
            svg_write(s, x + CELL / 2, y + HEIGHT / 2, (svg_style){SVG_SMALL, SVG_MIDDLE, SVG_GREY},
                      "...");
        } else {
            draw_cell(task, s, side, rank_of(t, row, t->cols[c]), (svg_box){x, y, CELL, HEIGHT});
        }
    }
}

static int width_of(const table *t) {
    return headers(t, t->split, t->ndims) * HEADER + t->shown_cols * CELL;
}

static int draw_columns(const table *t, svg *s, int x, int y) {
    for (int d = t->split - 1; d >= 0; d--) {
        for (int c = 0; c < t->shown_cols && size_of(t, d) > 1; c++) {
            if (t->cols[c] >= 0) {
                draw_header(t, s, d, t->cols[c], (svg_box){x + c * CELL, y, CELL, HEIGHT});
            }
        }
        y += size_of(t, d) > 1 ? HEIGHT : 0;
    }
    return y;
}

/* Draws a table; returns the x right of it. */
static int draw_table(const draw_task *task, svg *s, int side, int x, int y) {
    table t = table_of(&task->sides[side]);
    char text[DRAW_SIDE];
    const svg_style grey = {SVG_SMALL, SVG_LEFT, SVG_GREY};
    const char *title = draw_side_text(text, t.side);
    svg_write(s, x, y, (svg_style){SVG_TEXT, SVG_LEFT, SVG_INK}, "%s", title);
    int right = x + svg_text_width(SVG_TEXT, title);
    y = draw_columns(&t, s, x + headers(&t, t.split, t.ndims) * HEADER, y + 16);
    for (int r = 0; r < t.shown_rows; r++, y += HEIGHT) {
        if (t.rows[r] < 0) {
            svg_write(s, x, y + HEIGHT / 2, grey, "... %d rows of ranks left out",
                      t.nrows - t.shown_rows + 1);
        } else {
            draw_row(task, &t, s, side, t.rows[r], x, y);
        }
    }
    if (t.ncols > COLUMNS) {
        svg_write(s, x, y + 12, grey, "... %d columns left out", t.ncols - t.shown_cols + 1);
    }
    return x + width_of(&t) > right ? x + width_of(&t) : right;
}

void draw_ranks(const draw_task *task, svg *s) {
    const svg_style grey = {SVG_SMALL, SVG_LEFT, SVG_GREY};
    int x = 16, y = draw_head(task, s, "Ranks");
    if (task->bridge.name) {
        svg_write(s, 16, y, grey, "Same colour: the same samples. The first dim varies fastest.");
        y += 24;
    }
    for (int side = 0; side < task->nsides; side++) {
        x = draw_table(task, s, side, x, y) + 48;
    }
}

void draw_ranks_text(const draw_task *task) {
    draw_head_text(task);
    for (int side = 0; side < task->nsides; side++) {
        table t = table_of(&task->sides[side]);
        putchar('\n');
        tool_print_text(stdout, t.side->name);
        putchar('\n');
        for (int row = 0; row < t.nrows; row++) {
            for (int d = t.ndims - 1; d >= t.split; d--) {
                tool_print_padded(lierne_grid_get_dim_name(t.side->grid, t.side->view, d), 4);
                printf(" %-5d", coordinate(&t, d, row));
            }
            for (int col = 0; col < t.ncols; col++) {
                printf(" %5d", rank_of(&t, row, col));
            }
            putchar('\n');
        }
    }
}
