/* The stages of a plan, one below the other: who sends to whom in each, or, where ranks are many,
 * how much is sent in each, and by the busiest rank. Stages that do not fit are added up. */
#include "flow.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 8, STAGES = 6, LINES = 40, TITLE = 160, WIDEST = 240 };

static int box_of(const draw_task *task, int rank) {
    return task->bridge.world > SHOWN && rank >= SHOWN - 1 ? SHOWN - 1 : rank;
}

static void name_boxes(const draw_task *task, flow *f) {
    int world = task->bridge.world;
    for (int side = 0; side < 2; side++) {
        f->n[side] = world < SHOWN ? world : SHOWN;
        for (int box = 0; box < f->n[side]; box++) {
            flow_box *b = &f->box[side][box];
            b->color = 0xf3f4f6;
            if (box == SHOWN - 1 && world > SHOWN) {
                snprintf(b->line[0], FLOW_LINE, "ranks %d to %d", box, world - 1);
                snprintf(b->line[1], FLOW_LINE, "%d ranks as one box", world - box);
            } else {
                snprintf(b->line[0], FLOW_LINE, "rank %d", box);
            }
        }
    }
}

/* The flow of a stage; title gets its numbers. */
static void fill_stage(const draw_task *task, int stage, flow *f, char title[TITLE]) {
    const draw_traffic *t = &task->traffic;
    const draw_stage *sum = &t->stages[stage];
    char label[FLOW_LABEL], summed[TOOL_BYTES];
    *f = (flow){.title = title};
    name_boxes(task, f);
    for (size_t m = 0; m < t->count; m++) {
        flow_arrow *a = &f->arrow[box_of(task, t->at[m].from)][box_of(task, t->at[m].to)];
        if (t->at[m].stage == stage) {
            a->bytes += t->at[m].bytes;
            a->messages++;
        }
    }
    flow_label(label, &(flow_arrow){.bytes = sum->bytes, .messages = sum->messages});
    snprintf(title, TITLE, "Stage %d: %s%s%s", stage, label, sum->summed ? "; sums of " : "",
             sum->summed ? tool_bytes(summed, sum->summed) : "");
}

/* Where a rank has no box of its own: the numbers of each stage, with bars. */
typedef struct busiest {
    int64_t sent, received;
} busiest;

/* The most that one rank sends and receives in a stage; sums has room for two numbers per rank. */
static busiest busiest_of(const draw_task *task, int stage, int64_t *sums) {
    const draw_traffic *t = &task->traffic;
    busiest b = {0};
    memset(sums, 0, 2 * (size_t)task->bridge.world * sizeof *sums);
    for (size_t m = 0; m < t->count; m++) {
        if (t->at[m].stage == stage) {
            int64_t sent = sums[2 * t->at[m].from] += t->at[m].bytes;
            int64_t received = sums[2 * t->at[m].to + 1] += t->at[m].bytes;
            b.sent = sent > b.sent ? sent : b.sent;
            b.received = received > b.received ? received : b.received;
        }
    }
    return b;
}

static int64_t most_bytes(const draw_task *task) {
    int64_t most = 1;
    for (int i = 0; i < task->traffic.nstages; i++) {
        most = task->traffic.stages[i].bytes > most ? task->traffic.stages[i].bytes : most;
    }
    return most;
}

static void draw_line(const draw_task *task, svg *s, int stage, int y, int64_t most,
                      int64_t *sums) {
    const draw_stage *sum = &task->traffic.stages[stage];
    const svg_style left = {SVG_SMALL, SVG_LEFT, SVG_INK}, right = {SVG_SMALL, SVG_RIGHT, SVG_INK};
    busiest b = busiest_of(task, stage, sums);
    char text[TOOL_BYTES];
    int length = (int)((double)WIDEST * ((double)sum->bytes / (double)most));
    svg_write(s, 16, y, left, "stage %d", stage);
    svg_rect(s, (svg_box){80, y - 8, length > 0 ? length : 1, 16}, 0x2563eb, SVG_NONE);
    svg_write(s, 80 + WIDEST + 90, y, right, "%s", tool_bytes(text, sum->bytes));
    svg_write(s, 80 + WIDEST + 190, y, right, "%" PRId64, sum->messages);
    svg_write(s, 80 + WIDEST + 300, y, right, "%s", tool_bytes(text, b.sent));
    svg_write(s, 80 + WIDEST + 410, y, right, "%s", tool_bytes(text, b.received));
    svg_write(s, 80 + WIDEST + 510, y, right, "%s", tool_bytes(text, sum->summed));
}

static void draw_table(const draw_task *task, svg *s, int y) {
    static const char *const columns[] = {"bytes", "messages", "most sent by one", "most to one",
                                          "summed"};
    static const int at[] = {90, 190, 300, 410, 510};
    int64_t *sums = calloc(2 * (size_t)task->bridge.world, sizeof *sums);
    if (!sums) {
        tool_lack_memory();
    }
    for (int c = 0; c < 5; c++) {
        svg_write(s, 80 + WIDEST + at[c], y, (svg_style){SVG_SMALL, SVG_RIGHT, SVG_GREY}, "%s",
                  columns[c]);
    }
    for (int i = 0; sums && i < task->traffic.nstages && i < LINES; i++) {
        draw_line(task, s, i, y += 24, most_bytes(task), sums);
    }
    free(sums);
}

/* What the stages that are not shown do. */
static void draw_rest(const draw_task *task, svg *s, int shown) {
    char label[FLOW_LABEL];
    flow_arrow rest = {0};
    int more = task->traffic.nstages - shown;
    for (int i = shown; i < task->traffic.nstages; i++) {
        rest.bytes += task->traffic.stages[i].bytes;
        rest.messages += task->traffic.stages[i].messages;
    }
    if (more > 0) {
        svg_write(s, 16, s->height + 20, (svg_style){SVG_TEXT, SVG_LEFT, SVG_INK},
                  "%d more stage%s: %s", more, more == 1 ? "" : "s", flow_label(label, &rest));
    }
}

void draw_stages(const draw_task *task, svg *s) {
    char title[TITLE];
    flow f;
    int y = draw_head(task, s, "Stages of the plan");
    bool large = task->bridge.world > SHOWN;
    if (task->traffic.nstages == 0) {
        svg_write(s, 16, y, (svg_style){SVG_TEXT, SVG_LEFT, SVG_INK}, "No rank does anything.");
    }
    if (large) {
        draw_table(task, s, y);
    }
    for (int i = 0; !large && i < task->traffic.nstages && i < STAGES; i++) {
        fill_stage(task, i, &f, title);
        y = flow_draw(&f, s, 16, y) + 16;
    }
    draw_rest(task, s, large ? LINES : STAGES);
}

void draw_stages_dot(const draw_task *task) {
    char title[TITLE];
    flow f;
    draw_dot_begin();
    for (int i = 0; i < task->traffic.nstages; i++) {
        fill_stage(task, i, &f, title);
        flow_print_dot(&f, i);
    }
    printf("}\n");
}

void draw_stages_text(const draw_task *task) {
    char title[TITLE];
    flow f;
    draw_head_text(task);
    for (int i = 0; i < task->traffic.nstages; i++) {
        fill_stage(task, i, &f, title);
        flow_print_text(&f);
    }
}
