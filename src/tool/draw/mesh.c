/* The mesh: a frame per node, in it a cell per GPU, in the cell a bar per dim of each grid, the
 * encoder's above the LLM's. The bar has the dim's colour, deeper for higher coordinates: the way a
 * dim varies over the ranks is seen at any size. Where bars are too small for numbers, they have
 * none. */
#include "flow.h"

#include "tool/tool.h"

#include <string.h>

enum { LARGE = 64, MOST_BLOCKS = 128, MOST_CELLS = 64, BLOCK = 8, LINE = 1200 };

typedef struct scale {
    bool numbers;
    int cell, bar, names; /* sizes in pixels; names: of the grids, left of the cells */
    int width, height;    /* of the block that is drawn */
} scale;

/* The ranks that a frame holds: those of a node, or BLOCK in order where nodes are not known.
 * Returns how many there are, of which `most` are listed. */
static int ranks_of(const draw_task *task, int block, int most, int *ranks) {
    int n = 0;
    for (int rank = 0; rank < task->bridge.world; rank++) {
        if ((task->nodes ? task->nodes[rank] : rank / BLOCK) == block) {
            if (n < most) {
                ranks[n] = rank;
            }
            n++;
        }
    }
    return n;
}

static int count_blocks(const draw_task *task) {
    int last = 0;
    for (int rank = 0; rank < task->bridge.world; rank++) {
        int block = task->nodes ? task->nodes[rank] : rank / BLOCK;
        last = block > last ? block : last;
    }
    return last + 1;
}

/* Dims that tell ranks apart; the others would be bars of one colour. */
static int dims_of(const draw_side *side, int dims[LIERNE_MAX_DIMS]) {
    int n = 0;
    for (int d = 0; d < lierne_grid_get_ndims(side->grid, side->view); d++) {
        if (lierne_grid_get_dim_size(side->grid, side->view, d) > 1) {
            dims[n++] = d;
        }
    }
    return n;
}

/* The colour of a rank's bar; grey where the rank is outside of the grid. */
static int fill_of(const draw_side *side, int d, int rank, int *at) {
    int coords[LIERNE_MAX_DIMS];
    if (lierne_grid_get_coords(coords, side->grid, side->view, rank) != LIERNE_OK) {
        *at = -1;
        return 0xf3f4f6;
    }
    *at = coords[d];
    return draw_dim_color(lierne_grid_get_dim_name(side->grid, side->view, d), coords[d],
                          lierne_grid_get_dim_size(side->grid, side->view, d));
}

static void draw_number(const draw_side *side, svg *s, const scale *c, int d, int rank, int x,
                        int y) {
    int at, fill = fill_of(side, d, rank, &at);
    svg_rect(s, (svg_box){x, y, c->cell, c->bar}, fill, SVG_PALE);
    if (at >= 0) {
        svg_write(s, x + c->cell / 2, y + c->bar / 2,
                  (svg_style){SVG_SMALL, SVG_MIDDLE, svg_ink_on(fill)}, "%.5s %d",
                  lierne_grid_get_dim_name(side->grid, side->view, d), at);
    }
}

/* The bars of a dim. Where they have no numbers, neighbours of one colour are one. */
static void draw_dim(const draw_side *side, svg *s, const scale *c, int d, const int *ranks, int n,
                     int x, int y) {
    int at;
    for (int i = 0, next; i < n; i = next) {
        int fill = fill_of(side, d, ranks[i], &at);
        for (next = i + 1; !c->numbers && next < n; next++) {
            if (fill_of(side, d, ranks[next], &at) != fill) {
                break;
            }
        }
        if (c->numbers) {
            draw_number(side, s, c, d, ranks[i], x + i * (c->cell + 4), y);
        } else {
            svg_rect(s, (svg_box){x + i * c->cell, y, (next - i) * c->cell, c->bar}, fill,
                     SVG_NONE);
        }
    }
}

/* A grid of one rank has no dims to draw: its rank is marked. */
static void draw_member(const draw_side *side, svg *s, const scale *c, const int *ranks, int n,
                        int x, int y) {
    for (int i = 0; i < n; i++) {
        svg_box box = {x + i * (c->cell + (c->numbers ? 4 : 0)), y, c->cell, c->bar};
        bool inside = ranks[i] == lierne_grid_get_rank_offset(side->grid);
        svg_rect(s, box, inside ? 0x94a3b8 : 0xf3f4f6, c->numbers ? SVG_PALE : SVG_NONE);
    }
}

static void draw_block_name(const draw_task *task, svg *s, const scale *c, int block,
                            const int *ranks, int n, int x, int y) {
    const svg_style grey = {SVG_SMALL, SVG_LEFT, SVG_GREY}, ink = {SVG_SMALL, SVG_MIDDLE, SVG_INK};
    if (!c->numbers) {
        svg_write(s, x + 6, y + 10, grey, "%d to %d", ranks[0], ranks[n - 1]);
        return;
    }
    if (task->nodes) {
        svg_write(s, x + 6, y + 12, grey, "node %d", block);
    }
    for (int i = 0; i < n; i++) {
        svg_write(s, x + 6 + c->names + i * (c->cell + 4) + c->cell / 2, y + 12, ink, "rank %d",
                  ranks[i]);
    }
}

/* Draws a frame; its size is put into the scale. */
static void draw_block(const draw_task *task, svg *s, scale *c, int block, int x, int y) {
    int ranks[MOST_CELLS], dims[LIERNE_MAX_DIMS], n = ranks_of(task, block, MOST_CELLS, ranks);
    int shown = n < MOST_CELLS ? n : MOST_CELLS, below = y + (c->numbers ? 24 : 20);
    if (n == 0) {
        return;
    }
    draw_block_name(task, s, c, block, ranks, shown, x, y);
    for (int i = 0; i < task->nsides; i++) {
        int ndims = dims_of(&task->sides[i], dims);
        if (c->numbers) {
            svg_write(s, x + 6, below + c->bar / 2, (svg_style){SVG_SMALL, SVG_LEFT, SVG_INK},
                      "%.14s", task->sides[i].name);
        }
        if (ndims == 0) {
            draw_member(&task->sides[i], s, c, ranks, shown, x + 6 + c->names, below);
        }
        for (int d = 0; d < ndims; d++) {
            draw_dim(&task->sides[i], s, c, dims[d], ranks, shown, x + 6 + c->names,
                     below + d * c->bar);
        }
        below += c->bar * (ndims ? ndims : 1) + 4;
    }
    if (n > shown) {
        svg_write(s, x + 6, below + 8, (svg_style){SVG_SMALL, SVG_LEFT, SVG_GREY},
                  "and %d more ranks", n - shown);
        below += 18;
    }
    c->width = 12 + c->names + shown * (c->cell + (c->numbers ? 4 : 0));
    c->height = below + 4 - y;
    svg_frame(s, (svg_box){x, y, c->width, c->height}, SVG_GREY, 1);
}

static int draw_legend(const draw_task *task, svg *s, int x, int y) {
    const svg_style style = {SVG_SMALL, SVG_LEFT, SVG_INK};
    char done[400] = " ";
    for (int i = 0; i < task->nsides; i++) {
        int dims[LIERNE_MAX_DIMS], n = dims_of(&task->sides[i], dims);
        for (int d = 0; d < n; d++) {
            const char *dim =
                lierne_grid_get_dim_name(task->sides[i].grid, task->sides[i].view, dims[d]);
            char word[40];
            snprintf(word, sizeof word, " %.30s ", dim);
            if (strstr(done, word) || strlen(done) + sizeof word > sizeof done) {
                continue;
            }
            strcat(done, word);
            for (int step = 0; step < 5; step++) {
                svg_rect(s, (svg_box){x + 12 * step, y - 6, 12, 12}, draw_dim_color(dim, step, 5),
                         SVG_NONE);
            }
            svg_write(s, x + 66, y, style, "%.30s", dim);
            x += 82 + svg_text_width(SVG_SMALL, dim);
        }
    }
    svg_write(s, x, y, style, "deeper: a higher coordinate; dims of size 1 are left out");
    return y + 22;
}

static int write_order(const draw_task *task, svg *s, int y, bool numbers) {
    const svg_style style = {SVG_SMALL, SVG_LEFT, SVG_GREY};
    if (!numbers) {
        svg_write(s, 16, y, style,
                  "A frame is %s and has one column per GPU; bars from top to bottom: the dims of "
                  "the grids in the order above.",
                  task->nodes ? "a node" : "8 ranks (the file has no nodes)");
        y += 18;
    } else if (!task->nodes) {
        svg_write(s, 16, y, style, "The file has no nodes: a frame is 8 ranks.");
        y += 18;
    }
    return y;
}

void draw_mesh(const draw_task *task, svg *s) {
    bool numbers = task->bridge.world <= LARGE;
    scale c = {numbers, numbers ? 52 : 13, numbers ? 18 : 7, 0, 0, 0};
    int x = 16, y = draw_legend(task, s, 16, draw_head(task, s, "The mesh"));
    int blocks = count_blocks(task), shown = blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
    for (int i = 0; i < task->nsides && numbers; i++) {
        int width = svg_text_width(SVG_SMALL, task->sides[i].name) + 12;
        c.names = width > c.names ? (width < 120 ? width : 120) : c.names;
    }
    y = write_order(task, s, y, numbers);
    for (int block = 0; block < shown; block++) {
        if (x > 16 && x + c.width > LINE) {
            x = 16;
            y += c.height + 10;
        }
        draw_block(task, s, &c, block, x, y);
        x += c.width + 10;
    }
    if (blocks > shown) {
        svg_write(s, 16, y + c.height + 20, (svg_style){SVG_TEXT, SVG_LEFT, SVG_INK},
                  "and %d more frames like these, not drawn", blocks - shown);
    }
}

static void print_coordinates(const draw_side *side, int rank) {
    int dims[LIERNE_MAX_DIMS], coords[LIERNE_MAX_DIMS], n = dims_of(side, dims);
    char text[DRAW_SIDE] = "-";
    size_t used = 0;
    if (lierne_grid_get_coords(coords, side->grid, side->view, rank) == LIERNE_OK) {
        used = (size_t)snprintf(text, sizeof text, "%.60s", side->name);
        for (int i = 0; i < n && used < sizeof text; i++) {
            used += (size_t)snprintf(text + used, sizeof text - used, " %.20s %d",
                                     lierne_grid_get_dim_name(side->grid, side->view, dims[i]),
                                     coords[dims[i]]);
        }
    }
    flow_print_quoted(text);
}

void draw_mesh_dot(const draw_task *task) {
    draw_dot_begin();
    for (int block = 0; block < count_blocks(task); block++) {
        printf("  subgraph cluster_%d {\n    label=\"%s %d\";\n", block,
               task->nodes ? "node" : "ranks, block", block);
        for (int rank = 0; rank < task->bridge.world; rank++) {
            if ((task->nodes ? task->nodes[rank] : rank / BLOCK) != block) {
                continue;
            }
            printf("    r%d [fillcolor=white, label=\"rank %d", rank, rank);
            for (int i = 0; i < task->nsides; i++) {
                fputs("\\n", stdout);
                print_coordinates(&task->sides[i], rank);
            }
            printf("\"];\n");
        }
        printf("  }\n");
    }
    printf("}\n");
}

/* The coordinates of a frame's ranks, from the least to the greatest. */
static void print_ranges(const draw_task *task, const draw_side *side, int block) {
    int dims[LIERNE_MAX_DIMS], coords[LIERNE_MAX_DIMS], n = dims_of(side, dims);
    int least[LIERNE_MAX_DIMS], greatest[LIERNE_MAX_DIMS], met = 0;
    for (int rank = 0; rank < task->bridge.world; rank++) {
        if ((task->nodes ? task->nodes[rank] : rank / BLOCK) != block ||
            lierne_grid_get_coords(coords, side->grid, side->view, rank) != LIERNE_OK) {
            continue;
        }
        for (int i = 0; i < n; i++) {
            int at = coords[dims[i]];
            least[i] = met == 0 || at < least[i] ? at : least[i];
            greatest[i] = met == 0 || at > greatest[i] ? at : greatest[i];
        }
        met++;
    }
    tool_print_text(stdout, side->name);
    for (int i = 0; i < n && met > 0; i++) {
        putchar(' ');
        tool_print_text(stdout, lierne_grid_get_dim_name(side->grid, side->view, dims[i]));
        printf(least[i] == greatest[i] ? " %d" : " %d-%d", least[i], greatest[i]);
    }
    fputs(met ? "" : " -", stdout);
}

void draw_mesh_text(const draw_task *task) {
    int ranks[1];
    draw_head_text(task);
    for (int block = 0; block < count_blocks(task); block++) {
        int n = ranks_of(task, block, 1, ranks);
        if (n == 0) {
            continue;
        }
        printf("%s %d: %d ranks from %d", task->nodes ? "node" : "block", block, n, ranks[0]);
        for (int i = 0; i < task->nsides; i++) {
            fputs(" | ", stdout);
            print_ranges(task, &task->sides[i], block);
        }
        putchar('\n');
    }
}
