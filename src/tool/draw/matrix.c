/* The communication matrix. Where a rank would be too small, a cell stands for a square of ranks,
 * and the numbers become bars. */
#include "matrix.h"

#include "draw.h"
#include "tool/tool.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MOST_CELLS = 64, MOST_NUMBERS = 16, MOST_TEXT = 16, LEFT = 110 };

/* Amounts between blocks of `per` ranks. */
typedef struct grid {
    int n, per;
    int64_t cell[MOST_CELLS][MOST_CELLS];
    int64_t sent[MOST_CELLS], received[MOST_CELLS];
    int64_t most, most_total, total, crossing;
} grid;

static int64_t max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static void fill_grid(const matrix_input *in, int most, grid *g) {
    int world = in->world;
    *g = (grid){.per = 1};
    while ((world + g->per - 1) / g->per > most) {
        g->per *= 2;
    }
    g->n = (world + g->per - 1) / g->per;
    for (size_t m = 0; m < in->count; m++) {
        const matrix_entry *e = &in->at[m];
        int from = e->from / g->per, to = e->to / g->per;
        g->cell[from][to] += e->amount;
        g->sent[from] += e->amount;
        g->received[to] += e->amount;
        g->total += e->amount;
        g->crossing += in->nodes && in->nodes[e->from] != in->nodes[e->to] ? e->amount : 0;
    }
    for (int i = 0; i < g->n; i++) {
        for (int j = 0; j < g->n; j++) {
            g->most = max(g->most, g->cell[i][j]);
        }
        g->most_total = max(g->most_total, max(g->sent[i], g->received[i]));
    }
}

/* "12 KiB", or a number of the unit. */
static const char *print_amount(char text[TOOL_BYTES], const matrix_input *in, int64_t amount) {
    if (!in->unit) {
        return tool_bytes(text, amount);
    }
    snprintf(text, TOOL_BYTES, "%" PRId64, amount);
    return text;
}

/* "3", or "48-63". */
static const char *name(char text[24], const matrix_input *in, const grid *g, int i) {
    int first = i * g->per, last = first + g->per - 1;
    last = last < in->world ? last : in->world - 1;
    if (first == last) {
        snprintf(text, 24, "%d", first);
    } else {
        snprintf(text, 24, "%d-%d", first, last);
    }
    return text;
}

static void draw_cell(const matrix_input *in, svg *s, const grid *g, svg_box box, int64_t amount) {
    int fill = svg_mix(SVG_GROUND, 0x1d4ed8, 120 + (int)(880.0 * (double)amount / (double)g->most));
    char text[TOOL_BYTES];
    svg_rect(s, box, fill, SVG_NONE);
    if (g->n <= MOST_NUMBERS) {
        svg_write(s, box.x + box.width / 2, box.y + box.height / 2,
                  (svg_style){SVG_SMALL, SVG_MIDDLE, svg_ink_on(fill)}, "%s",
                  print_amount(text, in, amount));
    }
}

/* Cells without an amount are what is left white. */
static void draw_lines(svg *s, const grid *g, svg_box cell) {
    int width = g->n * cell.width, height = g->n * cell.height;
    for (int i = 0; i <= g->n; i++) {
        svg_rect(s, (svg_box){cell.x, cell.y + i * cell.height, width, 1}, SVG_PALE, SVG_NONE);
        svg_rect(s, (svg_box){cell.x + i * cell.width, cell.y, 1, height}, SVG_PALE, SVG_NONE);
    }
}

/* The total of a row or a column: a number, or a bar as long as its part of the largest one. */
static void draw_total(const matrix_input *in, svg *s, const grid *g, svg_box box, bool row,
                       int64_t amount) {
    enum { LONGEST = 100 };
    char text[TOOL_BYTES];
    int length = g->most_total ? (int)(LONGEST * amount / g->most_total) : 0;
    if (g->n <= MOST_NUMBERS) {
        svg_write(s, box.x + box.width / 2, box.y + box.height / 2,
                  (svg_style){SVG_SMALL, SVG_MIDDLE, SVG_INK}, "%s",
                  print_amount(text, in, amount));
    } else if (length > 0 && row) {
        svg_rect(s, (svg_box){box.x + 6, box.y + 2, length, box.height - 4}, 0x64748b, SVG_NONE);
    } else if (length > 0) {
        svg_rect(s, (svg_box){box.x + 2, box.y + 6, box.width - 4, length}, 0x64748b, SVG_NONE);
    }
}

/* Frames around the ranks of each node, on the diagonal and beside it, where a node is several
 * cells. */
static void draw_nodes(const matrix_input *in, svg *s, const grid *g, svg_box cell) {
    int starts[MOST_CELLS + 1], n = 0;
    for (int i = 0; i < g->n && in->nodes; i++) {
        if (i == 0 || in->nodes[i * g->per] != in->nodes[(i - 1) * g->per]) {
            starts[n++] = i;
        }
    }
    starts[n] = g->n;
    for (int a = 0; a < n && n < g->n && n > 1; a++) {
        for (int b = 0; b < n; b++) {
            svg_frame(s,
                      (svg_box){cell.x + starts[b] * cell.width, cell.y + starts[a] * cell.height,
                                (starts[b + 1] - starts[b]) * cell.width,
                                (starts[a + 1] - starts[a]) * cell.height},
                      SVG_INK, 2);
        }
    }
}

static void draw_labels(const matrix_input *in, svg *s, const grid *g, svg_box cell) {
    const svg_style right = {SVG_SMALL, SVG_RIGHT, SVG_INK},
                    middle = {SVG_SMALL, SVG_MIDDLE, SVG_INK},
                    left = {SVG_SMALL, SVG_LEFT, SVG_INK};
    int step = g->n <= MOST_NUMBERS ? 1 : 4;
    char text[24];
    for (int i = 0; i < g->n; i += step) {
        svg_write(s, cell.x - 8, cell.y + i * cell.height + cell.height / 2, right, "%s",
                  name(text, in, g, i));
        if (step == 1) {
            svg_write(s, cell.x + i * cell.width + cell.width / 2, cell.y - 10, middle, "%s", text);
        } else {
            svg_write(s, cell.x + i * cell.width, cell.y - 10, left, "%d", i * g->per);
        }
    }
    svg_write(s, cell.x - 8, cell.y - 28, right, "sender");
    svg_write(s, cell.x, cell.y - 28, left, "receiver");
    svg_write(s, cell.x + g->n * cell.width + 6, cell.y - 10, left, "sent");
    svg_write(s, cell.x - 8, cell.y + g->n * cell.height + (step == 1 ? cell.height / 2 : 12),
              right, "received");
}

static int write_numbers(const matrix_input *in, svg *s, const grid *g, int y) {
    const svg_style style = {SVG_SMALL, SVG_LEFT, SVG_INK};
    const char *unit = in->unit ? in->unit : "", *space = in->unit ? " " : "";
    char total[TOOL_BYTES], most[TOOL_BYTES], crossing[TOOL_BYTES];
    svg_write(s, 16, y, style,
              "%s%s%s in %" PRId64 " messages; the most from one %s to another: %s",
              print_amount(total, in, g->total), space, unit, in->messages,
              g->per > 1 ? "block" : "rank", print_amount(most, in, g->most));
    if (in->nodes) {
        svg_write(s, 16, y += 16, style, "%s%s%s between nodes, %s within them%s",
                  print_amount(crossing, in, g->crossing), space, unit,
                  print_amount(total, in, g->total - g->crossing),
                  g->per == 1 ? "; thick lines: nodes" : "");
    }
    if (g->per > 1) {
        svg_write(s, 16, y += 16, style, "A cell is %d x %d ranks, added up; every 4th is named.",
                  g->per, g->per);
    }
    if (g->n > MOST_NUMBERS) {
        svg_write(s, 16, y += 16, style, "The longest bar is %s%s%s.",
                  print_amount(most, in, g->most_total), space, unit);
    }
    return y + 56;
}

static void draw_grid(const matrix_input *in, svg *s, const grid *g, svg_box cell) {
    for (int i = 0; i < g->n; i++) {
        svg_box at = {cell.x, cell.y + i * cell.height, cell.width, cell.height};
        for (int j = 0; j < g->n; j++, at.x += cell.width) {
            if (g->cell[i][j] > 0) {
                draw_cell(in, s, g, at, g->cell[i][j]);
            }
        }
        draw_total(in, s, g, at, true, g->sent[i]);
        at = (svg_box){cell.x + i * cell.width, cell.y + g->n * cell.height, cell.width,
                       cell.height};
        draw_total(in, s, g, at, false, g->received[i]);
    }
    draw_lines(s, g, cell);
    draw_nodes(in, s, g, cell);
    draw_labels(in, s, g, cell);
}

void matrix_draw(svg *s, int y, const matrix_input *in) {
    grid *g = malloc(sizeof *g);
    if (!g) {
        tool_lack_memory();
        return;
    }
    fill_grid(in, MOST_CELLS, g);
    bool numbers = g->n <= MOST_NUMBERS;
    svg_box cell = {LEFT, 0, numbers ? 64 : 13, numbers ? 28 : 13};
    cell.y = write_numbers(in, s, g, y);
    draw_grid(in, s, g, cell);
    free(g);
}

static void print_matrix(const matrix_input *in) {
    grid *g = malloc(sizeof *g);
    char text[24], amount[TOOL_BYTES];
    if (!g) {
        tool_lack_memory();
        return;
    }
    fill_grid(in, MOST_TEXT, g);
    printf("%-10s", "from\\to");
    for (int j = 0; j < g->n; j++) {
        printf(" %10s", name(text, in, g, j));
    }
    printf(" %10s\n", "sent");
    for (int i = 0; i < g->n; i++) {
        printf("%-10s", name(text, in, g, i));
        for (int j = 0; j < g->n; j++) {
            printf(" %10s", g->cell[i][j] ? print_amount(amount, in, g->cell[i][j]) : "-");
        }
        printf(" %10s\n", print_amount(amount, in, g->sent[i]));
    }
    printf("%-10s", "received");
    for (int j = 0; j < g->n; j++) {
        printf(" %10s", print_amount(amount, in, g->received[j]));
    }
    printf(" %10s\n", print_amount(amount, in, g->total));
    free(g);
}

/* The messages of a plan, whose memory is to be freed; at is NULL without memory. */
static matrix_input take_traffic(const draw_task *task) {
    const draw_traffic *t = &task->traffic;
    matrix_entry *at = malloc((t->count + 1) * sizeof *at);
    if (!at) {
        tool_lack_memory();
    }
    for (size_t m = 0; at && m < t->count; m++) {
        at[m] = (matrix_entry){t->at[m].from, t->at[m].to, t->at[m].bytes};
    }
    return (matrix_input){.at = at,
                          .count = t->count,
                          .messages = (int64_t)t->count,
                          .world = task->bridge.world,
                          .nodes = task->nodes};
}

void draw_matrix(const draw_task *task, svg *s) {
    const matrix_input in = take_traffic(task);
    int y = draw_head(task, s, "Bytes from rank to rank");
    if (in.at) {
        matrix_draw(s, y, &in);
    }
    free((void *)in.at);
}

void draw_matrix_text(const draw_task *task) {
    const matrix_input in = take_traffic(task);
    draw_head_text(task);
    if (in.at) {
        print_matrix(&in);
    }
    free((void *)in.at);
}
