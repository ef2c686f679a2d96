/* The rows' way between the two layouts. A box is a dp rank: it holds the same samples on all its
 * ranks. What does not fit is one more box, so that the bytes add up. */
#include "flow.h"

#include "tool/place.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = FLOW_MOST - 2 }; /* dp ranks; the rest, and ranks of none, are a box each */
enum { COLORS = 32 };           /* samples that their colours tell apart */

/* How the dp ranks of one side become boxes. */
typedef struct column {
    const draw_side *side;
    place_side where;
    int ndp;
    int rest;   /* box of the dp ranks that are not shown, or -1 */
    int others; /* box of ranks that are in no dp rank, once one is needed, or -1 */
} column;

static column column_of(const draw_task *task, place_side where, flow *f, int at) {
    const draw_side *side = &task->sides[where];
    int ndp = lierne_grid_find_dim_size(side->grid, side->view, "dp");
    column c = {.side = side, .where = where, .ndp = ndp < 1 ? 1 : ndp, .rest = -1, .others = -1};
    f->n[at] = c.ndp;
    if (c.ndp > SHOWN) {
        c.rest = SHOWN - 1;
        f->n[at] = SHOWN;
        snprintf(f->box[at][c.rest].line[0], FLOW_LINE, "%d more dp ranks", c.ndp - SHOWN + 1);
        snprintf(f->box[at][c.rest].line[1], FLOW_LINE, "of %.18s, as one box", side->name);
        f->box[at][c.rest].color = 0xf3f4f6;
    }
    return c;
}

/* The dp rank of a rank, or -1: it holds nothing of the tensor on this side. */
static int dp_of(const draw_task *task, const column *c, int rank) {
    const lierne_grid *grid = c->side->grid;
    int coords[LIERNE_MAX_DIMS], dp = 0;
    if (!place_of(&task->bridge.spec, c->where, false, rank).holds ||
        lierne_grid_get_coords(coords, grid, c->side->view, rank) != LIERNE_OK) {
        return -1;
    }
    for (int d = 0; d < lierne_grid_get_ndims(grid, c->side->view); d++) {
        if (strcmp(lierne_grid_get_dim_name(grid, c->side->view, d), "dp") == 0) {
            dp = coords[d];
        }
    }
    return dp;
}

/* The ranks of a box, as they are met in ascending order. */
typedef struct members {
    int first, second, last, count;
} members;

static void name_ranks(const members *m, char line[FLOW_LINE]) {
    if (m->count == 1) {
        snprintf(line, FLOW_LINE, "rank %d", m->first);
    } else if (m->count == 2) {
        snprintf(line, FLOW_LINE, "ranks %d and %d", m->first, m->last);
    } else if (m->last - m->first == m->count - 1) {
        snprintf(line, FLOW_LINE, "ranks %d to %d", m->first, m->last);
    } else {
        snprintf(line, FLOW_LINE, "ranks %d, %d and %d more", m->first, m->second, m->count - 2);
    }
}

/* The samples of a box, on each of its cp ranks; of a gradient also how these make one. */
static void fill_cells(const draw_task *task, const column *c, flow_box *box, int64_t start,
                       int64_t length, int rank) {
    const lierne_bridge_spec *spec = &task->bridge.spec;
    place_axes axes = place_axes_of(spec);
    int64_t all = axes.size[axes.batch];
    box->color = draw_sample_color(start, start + length, all);
    if (length > 0 && length <= FLOW_CELLS && all <= COLORS) {
        box->first = start;
        box->ncells = (int)length;
        box->color = SVG_GROUND;
        box->nrows = c->where == PLACE_DESTINATION ? place_of(spec, c->where, false, rank).ncp : 1;
    }
    for (int64_t i = 0; i < box->ncells; i++) {
        box->cell[i] = draw_sample_color(start + i, start + i + 1, all);
    }
}

/* What a source's box does with the gradients of the cp ranks, if there are several. */
static void name_sum(const draw_task *task, const column *c, flow_box *box) {
    const draw_side *dst = &task->sides[PLACE_DESTINATION];
    int ncp = lierne_grid_find_dim_size(dst->grid, dst->view, "cp");
    if (task->direction != LIERNE_DIRECTION_ADJOINT || c->where == PLACE_DESTINATION || ncp < 2) {
        return;
    }
    bool summed = task->bridge.spec.gradient_owner == LIERNE_GRADIENT_OWNER_PARTIAL;
    snprintf(box->line[3], FLOW_LINE, "%s of cp 0 %s %d", summed ? "the sum" : "rows",
             ncp == 2 ? "and" : "to", ncp - 1);
}

static void name_box(const draw_task *task, const column *c, flow_box *box, int dp,
                     const members *m) {
    int64_t start, length;
    place_range(&task->bridge.spec, c->where, m->first, &start, &length);
    snprintf(box->line[0], FLOW_LINE, "%.18s dp %d", c->side->name, dp);
    if (length > 1) {
        snprintf(box->line[1], FLOW_LINE, "samples %" PRId64 " to %" PRId64, start,
                 start + length - 1);
    } else if (length == 1) {
        snprintf(box->line[1], FLOW_LINE, "sample %" PRId64, start);
    } else {
        snprintf(box->line[1], FLOW_LINE, "no samples");
    }
    name_ranks(m, box->line[2]);
    name_sum(task, c, box);
    fill_cells(task, c, box, start, length, m->first);
}

static int box_of(const draw_task *task, column *c, flow *f, int at, int rank) {
    int dp = dp_of(task, c, rank);
    if (dp < 0 && c->others < 0) {
        c->others = f->n[at]++;
        snprintf(f->box[at][c->others].line[0], FLOW_LINE, "ranks outside of %.10s", c->side->name);
        snprintf(f->box[at][c->others].line[1], FLOW_LINE, "%s", "which pass rows on");
        f->box[at][c->others].color = 0xf3f4f6;
    }
    return dp < 0 ? c->others : c->rest >= 0 && dp >= c->rest ? c->rest : dp;
}

static void name_boxes(const draw_task *task, const column *c, flow *f, int at) {
    members in[FLOW_MOST] = {0};
    for (int rank = 0; rank < task->bridge.world; rank++) {
        int dp = dp_of(task, c, rank);
        if (dp >= 0 && (c->rest < 0 || dp < c->rest)) {
            members *m = &in[dp];
            m->first = m->count == 0 ? rank : m->first;
            m->second = m->count == 1 ? rank : m->second;
            m->last = rank;
            m->count++;
        }
    }
    for (int dp = 0; dp < FLOW_MOST; dp++) {
        if (in[dp].count > 0) {
            name_box(task, c, &f->box[at][dp], dp, &in[dp]);
        }
    }
}

static void fill_flow(const draw_task *task, flow *f) {
    const draw_traffic *t = &task->traffic;
    bool adjoint = task->direction == LIERNE_DIRECTION_ADJOINT;
    column from = column_of(task, adjoint ? PLACE_DESTINATION : PLACE_SOURCE, f, 0);
    column to = column_of(task, adjoint ? PLACE_SOURCE : PLACE_DESTINATION, f, 1);
    f->title = "";
    name_boxes(task, &from, f, 0);
    name_boxes(task, &to, f, 1);
    for (size_t m = 0; m < t->count; m++) {
        int i = box_of(task, &from, f, 0, t->at[m].from), j = box_of(task, &to, f, 1, t->at[m].to);
        f->arrow[i][j].bytes += t->at[m].bytes;
        f->arrow[i][j].messages++;
    }
    for (int rank = 0; rank < task->bridge.world; rank++) {
        if (t->kept[rank] > 0) {
            int i = box_of(task, &from, f, 0, rank), j = box_of(task, &to, f, 1, rank);
            f->arrow[i][j].kept += t->kept[rank];
        }
    }
}

void draw_rows(const draw_task *task, svg *s) {
    flow f = {0};
    fill_flow(task, &f);
    int y = draw_head(task, s, "Who sends which samples");
    svg_write(
        s, 16, y, (svg_style){SVG_SMALL, SVG_LEFT, SVG_GREY},
        "A box is a dp rank, a colour a sample. Blue: bytes that its ranks send; dashed: stays "
        "on the rank.");
    flow_draw(&f, s, 16, y + 20);
}

void draw_rows_dot(const draw_task *task) {
    flow f = {0};
    fill_flow(task, &f);
    draw_dot_begin();
    flow_print_dot(&f, 0);
    printf("}\n");
}

void draw_rows_text(const draw_task *task) {
    flow f = {0};
    fill_flow(task, &f);
    draw_head_text(task);
    flow_print_text(&f);
}
