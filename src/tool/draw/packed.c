/* The rows of packed sequences: a bar per rank and side, as long as its buffer, in runs of one
 * colour. An image has one colour on both sides, so that it needs no arrows to be found again; text
 * is white, padding grey. Without images the segments are coloured. */
#include "draw.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MOST_BARS = 24, BAR = 300, HEIGHT = 14, STEP = 20, LABEL = 62, GAP = 40, MOST_RUNS = 12 };

/* A piece of a bar: rows of one image, one segment, text or padding. */
typedef struct piece {
    int64_t thing; /* image or segment; TEXT, PADDING */
    int64_t first; /* its first row or token, of that image or segment */
    int64_t length;
} piece;
enum { TEXT = -1, PADDING = -2 };

static int64_t segment_of(const lierne_segments *segments, int64_t index) {
    int64_t low = 0, high = segments->nsegments - 1;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        bool before = segments->cu_seqlens[middle] <= index;
        low = before ? middle : low;
        high = before ? high : middle - 1;
    }
    return low;
}

/* What row k of a side is. */
static piece piece_of(const tool_packed *p, int side, int64_t id) {
    int64_t row = side && p->images && id != PACKED_PADDING ? p->rows[id] : id;
    const lierne_segments *segments = p->given[p->images ? 0 : side]->segments;
    if (id == PACKED_PADDING || row < 0) {
        return (piece){id == PACKED_PADDING ? PADDING : TEXT, 0, 1};
    }
    int64_t thing = segment_of(segments, row);
    return (piece){thing, row - segments->cu_seqlens[thing], 1};
}

static bool follows(piece last, piece next) {
    return last.thing == next.thing && (next.thing < 0 || last.first + last.length == next.first);
}

/* The pieces of a rank, n of them. NULL: no memory. */
static piece *pieces_of(const tool_packed *p, int side, int rank, int64_t *n) {
    packed_rows rows;
    *n = 0;
    if (!packed_rows_of(&rows, p, side, rank)) {
        tool_lack_memory();
        return NULL;
    }
    piece *at = malloc(((size_t)rows.nrows + 1) * sizeof *at);
    if (!at) {
        tool_lack_memory();
    }
    for (int64_t k = 0; at && k < rows.nrows; k++) {
        piece next = piece_of(p, side, rows.ids[k]);
        if (*n > 0 && follows(at[*n - 1], next)) {
            at[*n - 1].length++;
        } else {
            at[(*n)++] = next;
        }
    }
    free(rows.ids);
    free(rows.columns);
    return at;
}

static int color_of(const tool_packed *p, int64_t thing) {
    int64_t all = p->given[0]->segments->nsegments;
    return thing == TEXT      ? SVG_GROUND
           : thing == PADDING ? SVG_PALE
                              : draw_sample_color(thing, thing + 1, all);
}

static int64_t longest(const draw_task *task, int side) {
    int64_t shape[2] = {1, 1}, most = 1;
    const tool_packed *p = task->bridge.packed;
    for (int rank = 0; rank < task->bridge.world; rank++) {
        if (lierne_layout_get_shape(shape, p->layouts[side], rank) == LIERNE_OK) {
            int64_t rows = shape[packed_axis(p)];
            most = rows > most ? rows : most;
        }
    }
    return most;
}

static void draw_bar(svg *s, const tool_packed *p, svg_box place, const piece *at, int64_t n,
                     int64_t most) {
    int64_t done = 0;
    for (int64_t k = 0; k < n; k++) {
        int from = (int)(done * place.width / most);
        done += at[k].length;
        int to = (int)(done * place.width / most);
        svg_box box = {place.x + from, place.y, to - from, place.height};
        if (to > from) {
            svg_rect(s, box, color_of(p, at[k].thing), SVG_NONE);
        }
    }
    place.width = (int)(done * place.width / most);
    if (done > 0) {
        svg_frame(s, place, SVG_GREY, 1);
    }
}

static void draw_bars(const draw_task *task, svg *s, int x, int y, int side, int64_t most) {
    int list[MOST_BARS], n = draw_choose(task->bridge.world, MOST_BARS, list);
    const svg_style label = {SVG_SMALL, SVG_RIGHT, SVG_GREY}, head = {SVG_TEXT, SVG_LEFT, SVG_INK};
    svg_write(s, x, y, head, "%s", task->sides[side].name);
    y += STEP;
    for (int i = 0; i < n; i++, y += STEP) {
        int64_t count;
        if (list[i] < 0) {
            svg_write(s, x, y + HEIGHT / 2, label, "...");
            continue;
        }
        piece *at = pieces_of(task->bridge.packed, side, list[i], &count);
        svg_write(s, x - 6, y + HEIGHT / 2, label, "rank %d", list[i]);
        draw_bar(s, task->bridge.packed, (svg_box){x, y, BAR, HEIGHT}, at, at ? count : 0, most);
        free(at);
    }
}

void draw_packed_rows(const draw_task *task, svg *s) {
    const tool_packed *p = task->bridge.packed;
    int y = draw_head(task, s, "Rows of each rank");
    int64_t most = longest(task, 0), other = longest(task, 1);
    most = most > other ? most : other;
    svg_write(s, 16, y, (svg_style){SVG_SMALL, SVG_LEFT, SVG_GREY}, "%s",
              p->images ? "A colour is an image, on both sides. White: text; grey: padding."
                        : "A colour is a segment, on both sides. Grey: padding.");
    draw_bars(task, s, 16 + LABEL, y + 26, 0, most);
    draw_bars(task, s, 16 + LABEL + BAR + GAP + LABEL, y + 26, 1, most);
}

static void print_piece(const tool_packed *p, piece at) {
    if (at.thing < 0) {
        printf(" %" PRId64 " %s", at.length, at.thing == TEXT ? "text" : "padding");
    } else {
        printf(" %s %" PRId64 "[%" PRId64 ":%" PRId64 "]", p->images ? "image" : "segment",
               at.thing, at.first, at.first + at.length);
    }
}

void draw_packed_text(const draw_task *task) {
    draw_head_text(task);
    for (int side = 0; side < 2; side++) {
        for (int rank = 0; rank < task->bridge.world; rank++) {
            int64_t n;
            piece *at = pieces_of(task->bridge.packed, side, rank, &n);
            printf("%s rank %d:", side ? "destination" : "source", rank);
            for (int64_t k = 0; at && k < n && k < MOST_RUNS; k++) {
                print_piece(task->bridge.packed, at[k]);
            }
            if (n > MOST_RUNS) {
                printf(" ... %" PRId64 " more", n - MOST_RUNS);
            }
            putchar('\n');
            free(at);
        }
    }
}
