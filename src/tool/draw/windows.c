/* The windows of one rank: its buffer as a table, the two first axes with a halo down and across. A
 * cell is a part of the core or of a margin that one rank holds, in the colour of that rank; the
 * head of a row or column says which elements it shows. Cells are not to scale: margins are thin.
 */
#include "draw.h"

#include "tool/redistribution_rows.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MOST_RUNS = 13, CORE_WIDTH = 170, WIDTH = 92, CORE_HEIGHT = 96, HEIGHT = 38, LABEL = 92 };

/* Consecutive positions that show consecutive elements with the same holders, or nothing. */
typedef struct run {
    int64_t element, size;
    bool core;
} run;

typedef struct windows {
    const draw_task *task;
    const tool_packed *p;
    int rank;
    int axes[2]; /* down, across; -1: the buffer has one axis with a halo */
    run runs[2][MOST_RUNS];
    int nruns[2];
    bool more[2];
    int64_t first[LIERNE_MAX_AXES]; /* of the elements that the rank shows */
} windows;

/* Writes the boxes that a rank has of the source, most of them at most, and returns how many. */
static size_t list_boxes(const windows *w, int rank, lierne_box *boxes, size_t most) {
    size_t n = 0;
    if (lierne_layout_get_boxes(boxes, most, &n, w->p->layouts[0], rank) == LIERNE_ERR_NO_MEMORY) {
        tool_lack_memory();
    }
    return n < most ? n : most;
}

/* Whether some rank's part of the source begins or ends at an element. */
static bool is_border(const windows *w, int axis, int64_t element) {
    for (int rank = 0; rank < w->task->bridge.world; rank++) {
        lierne_box boxes[8];
        size_t n = list_boxes(w, rank, boxes, 8);
        for (size_t i = 0; i < n; i++) {
            if (boxes[i].start[axis] == element ||
                boxes[i].start[axis] + boxes[i].size[axis] == element) {
                return true;
            }
        }
    }
    return false;
}

static void split(windows *w, int which, const redistribution_axis *l) {
    for (int64_t i = 0; i < l->n; i++) {
        run *last = w->nruns[which] ? &w->runs[which][w->nruns[which] - 1] : NULL;
        int64_t element = l->element[i];
        bool nothing = last && last->element < 0 && element < 0;
        bool follows = last && element >= 0 && element == last->element + last->size &&
                       !is_border(w, w->axes[which], element);
        if (last && last->core == l->core[i] && (nothing || follows)) {
            last->size++;
        } else if (w->nruns[which] < MOST_RUNS) {
            w->runs[which][w->nruns[which]++] = (run){element, 1, l->core[i]};
        } else {
            w->more[which] = true;
        }
    }
}

static bool find_runs(windows *w) {
    const lierne_layout_spec *spec = &w->p->specs[1];
    int coords[LIERNE_MAX_DIMS], found = 0;
    bool ok = lierne_grid_get_coords(coords, spec->grid, spec->view, w->rank) == LIERNE_OK;
    for (int a = 0; ok && a < spec->naxes; a++) {
        redistribution_axis l;
        ok = redistribution_axis_open(&l, spec, coords, a);
        if (!ok) {
            tool_lack_memory();
        }
        for (int64_t i = l.n - 1; ok && i >= 0; i--) {
            w->first[a] = l.core[i] || l.element[i] < 0 ? w->first[a] : l.element[i];
        }
        for (int64_t i = l.n - 1; ok && i >= 0; i--) {
            w->first[a] = l.core[i] ? l.element[i] : w->first[a];
        }
        if (ok && l.halo && found < 2) {
            w->axes[found] = a;
            split(w, found++, &l);
        }
        redistribution_axis_close(&l);
    }
    if (found == 1) { /* one row */
        w->axes[1] = w->axes[0];
        w->axes[0] = -1;
        for (int i = 0; i < w->nruns[0]; i++) {
            w->runs[1][i] = w->runs[0][i];
        }
        w->nruns[1] = w->nruns[0];
        w->more[1] = w->more[0];
        w->runs[0][0] = (run){0, 1, true};
        w->nruns[0] = 1;
        w->more[0] = false;
    }
    return ok && found > 0;
}

/* The first rank that holds the elements of a cell; -1: they are none. */
static int holder_of(const windows *w, const run *down, const run *across) {
    int64_t at[LIERNE_MAX_AXES];
    const run *runs[] = {down, across};
    for (int a = 0; a < w->p->specs[0].naxes; a++) {
        at[a] = w->first[a];
    }
    for (int i = 0; i < 2; i++) {
        if (runs[i]->element < 0) {
            return -1;
        }
        if (w->axes[i] >= 0) {
            at[w->axes[i]] = runs[i]->element;
        }
    }
    for (int rank = 0; rank < w->task->bridge.world; rank++) {
        lierne_box boxes[64];
        size_t n = list_boxes(w, rank, boxes, 64);
        for (size_t i = 0; i < n; i++) {
            bool inside = true;
            for (int a = 0; a < w->p->specs[0].naxes; a++) {
                inside = inside && at[a] >= boxes[i].start[a] &&
                         at[a] < boxes[i].start[a] + boxes[i].size[a];
            }
            if (inside) {
                return rank;
            }
        }
    }
    return -1;
}

static bool is_empty(const windows *w, const run *down, const run *across) {
    bool star = w->p->specs[1].stencil == LIERNE_STENCIL_STAR;
    return (star && !down->core && !across->core) || holder_of(w, down, across) < 0;
}

static const char *axis_name(const windows *w, int which) {
    const tool_bridge *b = &w->task->bridge;
    return w->axes[which] < 0 ? ""
                              : lierne_config_get_bridge_axis(b->config, b->name, w->axes[which]);
}

static const char *label_of(const windows *w, int which, int i, char text[64]) {
    const run *r = &w->runs[which][i];
    if (w->axes[which] < 0) {
        return "";
    }
    if (r->element < 0) {
        snprintf(text, 64, "%.16s outside", axis_name(w, which));
    } else if (r->size == 1) {
        snprintf(text, 64, "%.16s %" PRId64, axis_name(w, which), r->element);
    } else {
        snprintf(text, 64, "%.16s %" PRId64 " to %" PRId64, axis_name(w, which), r->element,
                 r->element + r->size - 1);
    }
    return text;
}

static void draw_cell(const windows *w, svg *s, svg_box box, int i, int j) {
    const svg_style middle = {SVG_SMALL, SVG_MIDDLE, SVG_INK};
    const run *down = &w->runs[0][i], *across = &w->runs[1][j];
    int holder = holder_of(w, down, across), world = w->task->bridge.world;
    bool core = down->core && across->core;
    if (is_empty(w, down, across)) {
        svg_rect(s, box, SVG_GROUND, SVG_PALE);
        return;
    }
    svg_rect(s, box, draw_sample_color(holder, holder + 1, world), SVG_PALE);
    svg_write(s, box.x + box.width / 2, box.y + box.height / 2, middle,
              holder == w->rank && core ? "core" : "rank %d", holder);
    if (core) {
        svg_frame(s, box, SVG_INK, 2);
    }
}

void draw_windows(const draw_task *task, svg *s) {
    windows w = {.task = task, .p = task->bridge.packed, .rank = task->rank, .axes = {-1, -1}};
    const svg_style head = {SVG_SMALL, SVG_MIDDLE, SVG_GREY},
                    side = {SVG_SMALL, SVG_RIGHT, SVG_GREY};
    const svg_style note = {SVG_SMALL, SVG_LEFT, SVG_GREY};
    char text[64];
    snprintf(text, sizeof text, "Windows of rank %d", task->rank);
    int y = draw_head(task, s, text) + 12, x, top = y + 18;
    if (!find_runs(&w)) {
        svg_write(s, 24, y, note, "%s", "the rank holds nothing, or the destination has no halo");
        return;
    }
    for (int i = 0; i < w.nruns[0]; i++) {
        int height = w.runs[0][i].core ? CORE_HEIGHT : HEIGHT;
        x = LABEL + 24;
        svg_write(s, x - 8, top + height / 2, side, "%s", label_of(&w, 0, i, text));
        for (int j = 0; j < w.nruns[1]; j++) {
            int width = w.runs[1][j].core ? CORE_WIDTH : WIDTH;
            if (i == 0) {
                svg_write(s, x + width / 2, y + 6, head, "%s", label_of(&w, 1, j, text));
            }
            draw_cell(&w, s, (svg_box){x, top, width, height}, i, j);
            x += width;
        }
        top += height;
    }
    svg_write(s, LABEL + 24, top + 16, note, "%s",
              w.more[0] || w.more[1]
                  ? "There are more windows than fit."
                  : "Who holds what the rank's buffer shows; its core is framed.");
}

void draw_windows_text(const draw_task *task) {
    windows w = {.task = task, .p = task->bridge.packed, .rank = task->rank, .axes = {-1, -1}};
    char down[64], across[64];
    draw_head_text(task);
    if (!find_runs(&w)) {
        printf("rank %d holds nothing, or the destination has no halo\n", task->rank);
        return;
    }
    for (int i = 0; i < w.nruns[0]; i++) {
        for (int j = 0; j < w.nruns[1]; j++) {
            const run *d = &w.runs[0][i], *a = &w.runs[1][j];
            bool core = d->core && a->core;
            if (!is_empty(&w, d, a)) {
                printf("%s of rank %d: %s%s%s from rank %d\n", core ? "core" : "margin", w.rank,
                       label_of(&w, 0, i, down), w.axes[0] < 0 ? "" : ", ",
                       label_of(&w, 1, j, across), holder_of(&w, d, a));
            }
        }
    }
    if (w.more[0] || w.more[1]) {
        printf("there are more windows than fit\n");
    }
}
