/* lierne draw timeline: a recorded trace (LIERNE_TRACE, lierne_run_get_trace) as a picture. A lane
 * is a queue of a rank, a bar an operation of it, coloured by its purpose, an arrow a message.
 * Names lie on the arrows, and these on the bars, which may be as long as the picture. A file that
 * a program still appends to has no end, so events are read line by line, as they are written. */
#include "draw.h"
#include "messages.h"

#include "tool/tool.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: lierne draw timeline TRACE [OPTION]...\n"
    "Draws a trace in the Chrome format, as LIERNE_TRACE names it, to standard output:\n"
    "a bar per operation, and an arrow per message, of many those that took longest.\n"
    "\n"
    "  -r, --rank=R      this rank only\n"
    "      --until=MS    an axis of at least so many milliseconds, to compare pictures\n"
    "  -h, --help        show this help\n"
    "\n"
    "Exit status: 0 printed, 1 TRACE has no operations, 2 usage error or unreadable file.\n";

enum { NAME = 48, MOST_LANES = 32, MOST_ARROWS = 64, LEFT = 150, WIDE = 860, TOP = 88, LANE = 26 };
enum { HEAD = 22, KINDS = 6 };

#define LATEST 1e17 /* microseconds */

typedef struct bar {
    int rank, queue;
    double from, to; /* microseconds */
    char name[NAME];
    int kind;  /* index in kinds: its category, which is its purpose */
    bool held; /* it waited for lierne_run_resume */
} bar;

typedef struct lane {
    int rank, queue;
    char name[NAME];
    int y; /* in the picture; 0 if it is not shown */
} lane;

typedef struct trace {
    char **argv;
    int only; /* rank, or -1 */
    bar *bars;
    lane *lanes;
    int nbars, nlanes, nkinds;
    char kinds[KINDS][NAME]; /* in the order in which they are met */
    double from, to;
    messages messages;
} trace;

static const char *text_of(const cJSON *event, const char *key) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(event, key));
    return text ? text : "";
}

/* 0 where there is none, or one that no clock shows. */
static double number_of(const cJSON *event, const char *key, double most) {
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(event, key);
    return cJSON_IsNumber(number) && fabs(number->valuedouble) <= most ? number->valuedouble : 0;
}

static lane *lane_of(trace *t, int rank, int queue) {
    for (int i = 0; i < t->nlanes; i++) {
        if (t->lanes[i].rank == rank && t->lanes[i].queue == queue) {
            return &t->lanes[i];
        }
    }
    lane *lanes = realloc(t->lanes, (size_t)(t->nlanes + 1) * sizeof *lanes);
    if (!lanes) {
        return NULL;
    }
    t->lanes = lanes;
    lanes[t->nlanes] = (lane){.rank = rank, .queue = queue};
    snprintf(lanes[t->nlanes].name, NAME, "queue %d", queue);
    return &lanes[t->nlanes++];
}

/* The last kind stands for all that find no room. */
static int kind_of(trace *t, const char *name) {
    for (int k = 0; k < t->nkinds; k++) {
        if (strncmp(t->kinds[k], name, NAME - 1) == 0) {
            return k;
        }
    }
    if (t->nkinds == KINDS) {
        return KINDS - 1;
    }
    snprintf(t->kinds[t->nkinds], NAME, "%s", name);
    return t->nkinds++;
}

static bool add_bar(trace *t, const cJSON *event, bar b) {
    if ((t->nbars & (t->nbars - 1)) == 0) {
        bar *bars = realloc(t->bars, (size_t)(t->nbars ? 2 * t->nbars : 1) * sizeof *bars);
        if (!bars) {
            return false;
        }
        t->bars = bars;
    }
    b.from = number_of(event, "ts", LATEST);
    b.to = b.from + fmax(0, number_of(event, "dur", LATEST));
    snprintf(b.name, NAME, "%s", text_of(event, "name"));
    b.kind = kind_of(t, text_of(event, "cat"));
    b.held = strstr(b.name, " (held)") != NULL;
    t->from = t->nbars == 0 || b.from < t->from ? b.from : t->from;
    t->to = t->nbars == 0 || b.to > t->to ? b.to : t->to;
    t->bars[t->nbars++] = b;
    return true;
}

static bool add_message_end(trace *t, const cJSON *event, message_end end) {
    end.id = number_of(event, "id", 1LL << 53);
    end.at = number_of(event, "ts", LATEST);
    return messages_add(&t->messages, end);
}

/* False: no memory. */
static bool add_event(trace *t, const cJSON *event) {
    const char *phase = text_of(event, "ph");
    int rank = (int)number_of(event, "pid", INT32_MAX),
        queue = (int)number_of(event, "tid", INT32_MAX);
    bool named = strcmp(phase, "M") == 0 && strcmp(text_of(event, "name"), "thread_name") == 0;
    bool sends = strcmp(phase, "s") == 0, receives = strcmp(phase, "f") == 0;
    if (t->only >= 0 && rank != t->only) {
        return true;
    }
    if (sends || receives) {
        return add_message_end(t, event, (message_end){0, receives, rank, queue, 0});
    }
    if (!named && strcmp(phase, "X") != 0) {
        return true;
    }
    lane *l = lane_of(t, rank, queue);
    if (l && named) {
        const cJSON *args = cJSON_GetObjectItemCaseSensitive(event, "args");
        snprintf(l->name, NAME, "%s", text_of(args, "name"));
    }
    return l && (named || add_bar(t, event, (bar){.rank = rank, .queue = queue}));
}

/* Events stand one a line, with brackets and commas around them. False: no memory. */
static bool read_events(trace *t, FILE *file) {
    char *line = NULL;
    size_t size = 0;
    bool ok = true;
    while (ok && getline(&line, &size, file) >= 0) {
        const char *start = strchr(line, '{');
        cJSON *event = start ? cJSON_ParseWithOpts(start, NULL, 0) : NULL;
        ok = !event || add_event(t, event);
        cJSON_Delete(event);
    }
    free(line);
    return ok && (feof(file) || ferror(file)); /* else there was no memory for the line */
}

static int read_trace(trace *t, const char *path) {
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (!file) {
        tool_say(t->argv, "%s: %s", path, strerror(errno));
        return TOOL_USAGE;
    }
    errno = 0;
    bool ok = read_events(t, file) && messages_join(&t->messages);
    if (!ok || ferror(file)) { /* a directory can be opened, and not be read */
        tool_say(t->argv, "%s: %s", path, strerror(ok ? errno : ENOMEM));
        ok = false;
    }
    if (file != stdin) {
        fclose(file);
    }
    if (!ok) {
        return TOOL_USAGE;
    }
    if (t->nbars == 0) {
        tool_say(t->argv, "%s has no operations%s: a trace has one event a line", path,
                 t->only >= 0 ? " of this rank" : "");
        return TOOL_INVALID;
    }
    return -1;
}

static int by_rank(const void *a, const void *b) {
    const lane *x = a, *y = b;
    return x->rank != y->rank ? (x->rank < y->rank ? -1 : 1)
                              : (x->queue > y->queue) - (x->queue < y->queue);
}

static int by_time(const void *a, const void *b) {
    const bar *x = a, *y = b;
    return x->from != y->from ? (x->from < y->from ? -1 : 1)
                              : (x->queue > y->queue) - (x->queue < y->queue);
}

static int x_of(const trace *t, double at) {
    double all = t->to > t->from ? t->to - t->from : 1;
    return LEFT + (int)((double)WIDE * ((at - t->from) / all));
}

/* Lines at whole multiples of 1, 2 or 5 times a power of ten, about ten of them. */
static void draw_axis(const trace *t, svg *s, int y, int height) {
    double all = t->to - t->from > 1 ? t->to - t->from : 1;
    double step = pow(10, floor(log10(all / 5)));
    step *= all / step > 20 ? 5 : all / step > 10 ? 2 : 1;
    for (double at = 0; at <= all; at += step) {
        int x = x_of(t, t->from + at);
        svg_rect(s, (svg_box){x, y + 8, 1, height}, SVG_PALE, SVG_NONE);
        svg_write(s, x, y, (svg_style){SVG_SMALL, SVG_MIDDLE, SVG_GREY}, "%g", at / 1000);
    }
    svg_write(s, LEFT - 24, y, (svg_style){SVG_SMALL, SVG_RIGHT, SVG_GREY}, "ms");
}

static int color_of(const bar *b) {
    static const int colors[KINDS] = {0x2563eb, 0xea580c, 0x15803d, 0x9333ea, 0x0d9488, 0x475569};
    return b->held ? svg_mix(SVG_GROUND, colors[b->kind], 250) : colors[b->kind];
}

/* At least so wide that it is seen within its white frame. */
static void draw_bar(const trace *t, svg *s, const bar *b, int y) {
    int x = x_of(t, b->from), end = x_of(t, b->to);
    svg_rect(s, (svg_box){x, y + 3, end > x + 3 ? end - x : 3, LANE - 6}, color_of(b), SVG_GROUND);
}

/* The name stands in the bar, or right of it where the lane is free. */
static void draw_name(const trace *t, svg *s, int i, int y) {
    const bar *b = &t->bars[i];
    int x = x_of(t, b->from), end = x_of(t, b->to), next = LEFT + WIDE;
    int width = svg_text_width(SVG_SMALL, b->name) + 6;
    for (int j = i + 1; j < t->nbars; j++) {
        if (t->bars[j].rank == b->rank && t->bars[j].queue == b->queue) {
            next = x_of(t, t->bars[j].from);
            break;
        }
    }
    if (width <= end - x) {
        svg_write(s, (x + end) / 2, y + LANE / 2,
                  (svg_style){SVG_SMALL, SVG_MIDDLE, svg_ink_on(color_of(b))}, "%s", b->name);
    } else if (end + width <= next) {
        svg_write(s, end + 4, y + LANE / 2, (svg_style){SVG_SMALL, SVG_LEFT, SVG_INK}, "%s",
                  b->name);
    }
}

static bool is_first(const trace *t, int i) {
    return i == 0 || t->lanes[i].rank != t->lanes[i - 1].rank;
}

/* Places the first lanes below each other, and returns where they end. */
static int place_lanes(trace *t, int shown) {
    int y = TOP;
    for (int i = 0; i < shown; i++) {
        t->lanes[i].y = y + (is_first(t, i) ? HEAD : 0);
        y = t->lanes[i].y + LANE;
    }
    return y;
}

static void name_lane(const trace *t, svg *s, int i) {
    const lane *l = &t->lanes[i];
    if (is_first(t, i)) {
        svg_write(s, 16, l->y - HEAD + 10, (svg_style){SVG_TEXT, SVG_LEFT, SVG_INK}, "rank %d",
                  l->rank);
    }
    svg_write(s, LEFT - 8, l->y + LANE / 2, (svg_style){SVG_SMALL, SVG_RIGHT, SVG_INK}, "%.18s",
              l->name);
}

/* Of a queue that is shown; 0 of another one. */
static int y_of(const trace *t, int rank, int queue) {
    for (int i = 0; i < t->nlanes; i++) {
        if (t->lanes[i].rank == rank && t->lanes[i].queue == queue) {
            return t->lanes[i].y;
        }
    }
    return 0;
}

/* From the edge of the sender's lane that faces the receiver's, to its edge. */
static void draw_one(const trace *t, svg *s, const message *m, int from, int to) {
    bool down = to > from;
    svg_thin_arrow(s, x_of(t, m->from.at), from + (down ? LANE - 3 : 3), x_of(t, m->to.at),
                   to + (down ? 3 : LANE - 3), SVG_INK);
}

/* Those that took longest come first. Returns where the caption ends. */
static int draw_messages(const trace *t, svg *s, int y) {
    static const char what[] = "from the begin of a send to the end of its receive";
    const svg_style style = {SVG_SMALL, SVG_LEFT, SVG_GREY};
    int all = 0;
    for (size_t i = 0; i < t->messages.count; i++) {
        const message *m = &t->messages.at[i];
        int from = y_of(t, m->from.rank, m->from.queue), to = y_of(t, m->to.rank, m->to.queue);
        if (from && to && from != to && all++ < MOST_ARROWS) {
            draw_one(t, s, m, from, to);
        }
    }
    if (all > MOST_ARROWS) {
        svg_write(s, LEFT, y + 16, style, "arrows: the %d of %d messages that took longest, %s",
                  MOST_ARROWS, all, what);
    } else if (all > 0) {
        svg_write(s, LEFT, y + 16, style, "arrows: messages, %s", what);
    }
    return y + (all > 0 ? 18 : 0);
}

static void draw_bars(const trace *t, svg *s, bool names) {
    for (int i = 0; i < t->nbars; i++) {
        int y = y_of(t, t->bars[i].rank, t->bars[i].queue);
        if (y && names) {
            draw_name(t, s, i, y);
        } else if (y) {
            draw_bar(t, s, &t->bars[i], y);
        }
    }
}

static void draw_trace(trace *t, svg *s, const char *path) {
    int shown = t->nlanes < MOST_LANES ? t->nlanes : MOST_LANES, end = place_lanes(t, shown);
    svg_write(s, 16, 30, (svg_style){SVG_TITLE, SVG_LEFT, SVG_INK}, "Timeline of %s", path);
    draw_axis(t, s, TOP - 16, end - TOP + 8);
    for (int i = 0; i < shown; i++) {
        name_lane(t, s, i);
    }
    draw_bars(t, s, false);
    int y = draw_messages(t, s, end);
    draw_bars(t, s, true);
    if (t->nlanes > shown) {
        svg_write(s, 16, y + 14, (svg_style){SVG_TEXT, SVG_LEFT, SVG_INK},
                  "and %d more queues, to rank %d (--rank R)", t->nlanes - shown,
                  t->lanes[t->nlanes - 1].rank);
    }
}

int draw_timeline(int argc, char **argv) {
    trace t = {.argv = argv, .only = -1};
    const char *rank = NULL, *until = NULL, *path;
    int least = 0;
    const tool_option options[] = {{"rank", 'r', &rank, NULL, NULL},
                                   {"until", 0, &until, NULL, NULL}};
    svg s;
    int status = tool_parse(argc, argv, help, options, 2);
    status = status < 0 ? tool_bridge_number(argv, "--rank", rank, 0, INT32_MAX, &t.only) : status;
    status = status < 0 ? tool_bridge_number(argv, "--until", until, 1, INT32_MAX, &least) : status;
    status = status < 0 ? tool_one_file(argc, argv, &path) : status;
    status = status < 0 ? read_trace(&t, path) : status;
    if (status < 0) {
        qsort(t.lanes, (size_t)t.nlanes, sizeof *t.lanes, by_rank);
        qsort(t.bars, (size_t)t.nbars, sizeof *t.bars, by_time);
        t.to = fmax(t.to, t.from + 1e3 * least);
        svg_open(&s);
        draw_trace(&t, &s, path);
        status = svg_close(&s, stdout, path) ? TOOL_VALID
                                             : tool_usage(argv, "no memory for the picture");
    }
    messages_free(&t.messages);
    free(t.bars);
    free(t.lanes);
    return status;
}
