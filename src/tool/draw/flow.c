/* Each arrow has a line of its own on either side, and its label stands on its straight part, so
 * that labels never lie on each other, however many arrows cross. */
#include "flow.h"

#include "tool/tool.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { BOX = 200, LABEL = 150, WAY = 190, SLOT = 20, GAP = 12, LINE = 16, CELL = 18 };
enum { ABOVE = 4, BELOW = 4 }; /* a label and its arrow, from the middle of their line */

const char *flow_label(char text[FLOW_LABEL], const flow_arrow *arrow) {
    char bytes[TOOL_BYTES];
    snprintf(text, FLOW_LABEL, "%s, %" PRId64 " message%s", tool_bytes(bytes, arrow->bytes),
             arrow->messages, arrow->messages == 1 ? "" : "s");
    return text;
}

static const flow_arrow *arrow_of(const flow *f, int side, int box, int other) {
    return side == 0 ? &f->arrow[box][other] : &f->arrow[other][box];
}

/* Lines that the arrows of a box take. */
static int slots_of(const flow *f, int side, int box) {
    int slots = 0;
    for (int other = 0; other < f->n[!side]; other++) {
        const flow_arrow *a = arrow_of(f, side, box, other);
        slots += (a->messages > 0) + (a->kept > 0);
    }
    return slots;
}

static int lines_of(const flow_box *box) {
    int lines = 0;
    while (lines < FLOW_LINES && *box->line[lines]) {
        lines++;
    }
    return lines;
}

static int cells_of(const flow_box *box) {
    return box->ncells > 0 ? CELL * box->nrows + GAP : 0;
}

static int height_of(const flow *f, int side, int box) {
    const flow_box *b = &f->box[side][box];
    int slots = SLOT * slots_of(f, side, box), content = LINE * lines_of(b) + cells_of(b);
    return GAP + (slots > content ? slots : content);
}

/* One column per sample, one row per cp rank. */
static void draw_cells(const flow_box *b, svg *s, int x, int y) {
    int label = b->nrows > 1 ? 36 : 0, width = (BOX - 2 * GAP - label) / b->ncells;
    for (int row = 0; row < b->nrows; row++) {
        if (label) {
            svg_style style = {SVG_SMALL, SVG_LEFT, SVG_INK};
            svg_write(s, x + GAP, y + CELL * row + CELL / 2, style, "cp %d", row);
        }
        for (int c = 0; c < b->ncells; c++) {
            svg_box at = {x + GAP + label + width * c, y + CELL * row, width, CELL};
            svg_rect(s, at, b->cell[c], SVG_GREY);
            svg_write(s, at.x + width / 2, at.y + CELL / 2,
                      (svg_style){SVG_SMALL, SVG_MIDDLE, SVG_INK}, "%" PRId64, b->first + c);
        }
    }
}

static int draw_box(const flow *f, svg *s, int side, int box, int x, int y) {
    const flow_box *b = &f->box[side][box];
    int height = height_of(f, side, box), lines = lines_of(b), cells = cells_of(b);
    svg_rect(s, (svg_box){x, y, BOX, height}, b->color, SVG_GREY);
    for (int l = 0; l < lines; l++) {
        svg_style style = {l ? SVG_SMALL : SVG_TEXT, SVG_MIDDLE, SVG_INK};
        svg_write(s, x + BOX / 2, y + (height - cells) / 2 + (2 * l - lines + 1) * 8, style, "%s",
                  b->line[l]);
    }
    if (cells > 0) {
        draw_cells(b, s, x, y + (height - cells + LINE * lines) / 2 + 2);
    }
    return y + height + GAP;
}

/* The places of the lines of a side, in the order of its boxes and then of the other side's. */
static void place_lines(const flow *f, int side, int y, int lines[FLOW_MOST][FLOW_MOST]) {
    for (int box = 0; box < f->n[side]; box++) {
        int line = y + (height_of(f, side, box) - SLOT * slots_of(f, side, box) + SLOT) / 2;
        for (int other = 0; other < f->n[!side]; other++) {
            const flow_arrow *a = arrow_of(f, side, box, other);
            lines[box][other] = line;
            line += SLOT * ((a->messages > 0) + (a->kept > 0));
        }
        y += height_of(f, side, box) + GAP;
    }
}

static void draw_arrows(const flow *f, svg *s, int x, int y) {
    static int left[FLOW_MOST][FLOW_MOST], right[FLOW_MOST][FLOW_MOST];
    const svg_style style = {SVG_SMALL, SVG_LEFT, SVG_INK};
    char text[FLOW_LABEL];
    place_lines(f, 0, y, left);
    place_lines(f, 1, y, right);
    for (int i = 0; i < f->n[0]; i++) {
        for (int j = 0; j < f->n[1]; j++) {
            const flow_arrow *a = &f->arrow[i][j];
            int y0 = left[i][j], y1 = right[j][i];
            svg_span way = {x + BOX, x + BOX + LABEL, x + BOX + LABEL + WAY};
            if (a->messages > 0) {
                svg_write(s, way.from + 8, y0 - ABOVE, style, "%s", flow_label(text, a));
                svg_arrow(s, way, y0 + BELOW, y1 + BELOW, 0x2563eb, false);
                y0 += SLOT;
                y1 += SLOT;
            }
            if (a->kept > 0) {
                svg_write(s, way.from + 8, y0 - ABOVE, style, "%s kept", tool_bytes(text, a->kept));
                svg_arrow(s, way, y0 + BELOW, y1 + BELOW, SVG_GREY, true);
            }
        }
    }
}

int flow_draw(const flow *f, svg *s, int x, int y) {
    const svg_style style = {SVG_TEXT, SVG_LEFT, SVG_INK};
    int end = y;
    if (*f->title) {
        svg_write(s, x, y + 8, style, "%s", f->title);
        y += 24;
    }
    for (int side = 0; side < 2; side++) {
        int below = y;
        for (int box = 0; box < f->n[side]; box++) {
            below = draw_box(f, s, side, box, x + side * (BOX + LABEL + WAY), below);
        }
        end = below > end ? below : end;
    }
    draw_arrows(f, s, x, y);
    return end;
}

void flow_print_quoted(const char *text) {
    char *plain = NULL;
    size_t length;
    FILE *memory = tool_open_text(&plain, &length);
    if (memory) {
        tool_print_text(memory, text);
        fclose(memory);
    }
    for (const char *c = plain; c && *c; c++) {
        printf("%s%c", *c == '"' || *c == '\\' ? "\\" : "", *c);
    }
    free(plain);
}

static void print_dot_box(const flow *f, int id, int side, int box) {
    const flow_box *b = &f->box[side][box];
    printf("    %c%d_%d [label=\"", side ? 'r' : 'l', id, box);
    for (int l = 0; l < FLOW_LINES && *b->line[l]; l++) {
        fputs(l ? "\\n" : "", stdout);
        flow_print_quoted(b->line[l]);
    }
    printf("\", fillcolor=\"#%06x\"];\n", (unsigned)b->color);
}

void flow_print_dot(const flow *f, int id) {
    char text[FLOW_LABEL];
    printf("  subgraph cluster_%d {\n    label=\"", id);
    flow_print_quoted(f->title);
    printf("\";\n");
    for (int side = 0; side < 2; side++) {
        for (int box = 0; box < f->n[side]; box++) {
            print_dot_box(f, id, side, box);
        }
    }
    for (int i = 0; i < f->n[0]; i++) {
        for (int j = 0; j < f->n[1]; j++) {
            const flow_arrow *a = &f->arrow[i][j];
            if (a->messages > 0) {
                printf("    l%d_%d -> r%d_%d [label=\"%s\"];\n", id, i, id, j, flow_label(text, a));
            }
            if (a->kept > 0) {
                printf("    l%d_%d -> r%d_%d [label=\"%s\", style=dashed];\n", id, i, id, j,
                       tool_bytes(text, a->kept));
            }
        }
    }
    printf("  }\n");
}

void flow_print_text(const flow *f) {
    char text[FLOW_LABEL];
    if (*f->title) {
        tool_print_text(stdout, f->title);
        putchar('\n');
    }
    for (int i = 0; i < f->n[0]; i++) {
        for (int j = 0; j < f->n[1]; j++) {
            const flow_arrow *a = &f->arrow[i][j];
            if (a->messages == 0 && a->kept == 0) {
                continue;
            }
            fputs("  ", stdout);
            tool_print_padded(f->box[0][i].line[0], -20);
            fputs(" -> ", stdout);
            tool_print_padded(f->box[1][j].line[0], -20);
            printf(" %s", a->messages ? flow_label(text, a) : "");
            if (a->kept) {
                printf("%s%s kept", a->messages ? "; " : "", tool_bytes(text, a->kept));
            }
            putchar('\n');
        }
    }
}
