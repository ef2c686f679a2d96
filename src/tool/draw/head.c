/* What stands above every picture, so that it can be read without the command that made it. */
#include "draw.h"

#include "tool/tool.h"

#include <inttypes.h>
#include <stdio.h>

enum { LINE = 600 };

const char *draw_side_text(char text[DRAW_SIDE], const draw_side *side) {
    size_t used = (size_t)snprintf(text, DRAW_SIDE, "%.60s:", side->name);
    if (lierne_grid_get_size(side->grid) == 1) {
        snprintf(text + used, DRAW_SIDE - used, " one rank");
    }
    for (int d = 0; d < lierne_grid_get_ndims(side->grid, side->view); d++) {
        int size = lierne_grid_get_dim_size(side->grid, side->view, d);
        if (size > 1 && used < DRAW_SIDE) {
            used += (size_t)snprintf(text + used, DRAW_SIDE - used, " %.20s %d",
                                     lierne_grid_get_dim_name(side->grid, side->view, d), size);
        }
    }
    return text;
}

static void write_tensor(const draw_task *task, char text[LINE]) {
    const tool_bridge *bridge = &task->bridge;
    int64_t bytes = (int64_t)lierne_dtype_size(bridge->spec.dtype);
    char size[TOOL_BYTES];
    size_t used = 0;
    const lierne_layout_spec *given = bridge->own_packed.given[0];
    bool moved = bridge->packed && bridge->packed->redistribution;
    int naxes = moved ? given->naxes : bridge->spec.naxes;
    const int64_t *shape = moved ? given->shape : bridge->spec.shape;
    for (int a = 0; a < naxes && used < LINE; a++) {
        const char *name = bridge->packed && !moved
                               ? packed_axis_name(bridge->packed, a)
                               : lierne_config_get_bridge_axis(bridge->config, bridge->name, a);
        bytes *= shape[a];
        used += (size_t)snprintf(text + used, LINE - used, "%.20s %" PRId64 ", ", name, shape[a]);
    }
    if (used < LINE) {
        snprintf(text + used, LINE - used, "%s: %s, algorithm %s",
                 lierne_dtype_name(bridge->spec.dtype), tool_bytes(size, bytes),
                 tool_bridge_algorithm(bridge->method));
    }
}

/* Of a picture that shows messages. */
static const char *direction_of(const draw_task *task) {
    return !task->traffic.kept ? "" : task->direction ? ", adjoint" : ", forward";
}

int draw_head(const draw_task *task, svg *s, const char *what) {
    const svg_style title = {SVG_TITLE, SVG_LEFT, SVG_INK}, line = {SVG_SMALL, SVG_LEFT, SVG_GREY};
    char text[LINE], side[DRAW_SIDE];
    int y = 30;
    if (!task->bridge.name) {
        svg_write(s, 16, y, title, "%s of %s, %d ranks", what, task->bridge.path,
                  task->bridge.world);
        y += 6;
    } else {
        svg_write(s, 16, y, title, "%s: %s%s, %d ranks", what, task->bridge.name,
                  direction_of(task), task->bridge.world);
        write_tensor(task, text);
        svg_write(s, 16, y += 22, line, "%s", text);
    }
    for (int i = 0; i < task->nsides; i++) {
        svg_write(s, 16, y += 16, line, "%s", draw_side_text(side, &task->sides[i]));
    }
    if (task->nleft_out > 0) {
        svg_write(s, 16, y += 16, line, "and %d more grid%s, not drawn", task->nleft_out,
                  task->nleft_out == 1 ? "" : "s");
    }
    return y + 26;
}

void draw_head_text(const draw_task *task) {
    char text[LINE], side[DRAW_SIDE];
    if (task->bridge.name) {
        tool_print_text(stdout, task->bridge.name);
        write_tensor(task, text);
        printf("%s, %d ranks: ", direction_of(task), task->bridge.world);
        tool_print_text(stdout, text);
        putchar('\n');
    }
    for (int i = 0; i < task->nsides; i++) {
        tool_print_text(stdout, draw_side_text(side, &task->sides[i]));
        putchar('\n');
    }
}

void draw_dot_begin(void) {
    printf("digraph lierne {\n  rankdir=LR;\n  bgcolor=white;\n"
           "  node [shape=box, style=filled, fontname=\"sans-serif\"];\n"
           "  edge [fontname=\"sans-serif\", fontsize=10];\n");
}
