/* Writes SVG: boxes, lines, arrows and text on a white ground, in whole pixels, so that the same
 * picture is the same bytes everywhere. */
#ifndef LIERNE_TOOL_SVG_H
#define LIERNE_TOOL_SVG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define SVG_INK    0x1f2937 /* text */
#define SVG_GREY   0x6b7280 /* text that matters less, frames */
#define SVG_PALE   0xd1d5db /* frames of cells */
#define SVG_GROUND 0xffffff /* of the picture; it needs one on dark pages */
#define SVG_NONE   (-1)     /* no frame, or no filling */
/* For readers whose scheme is dark: light becomes dark, and every colour keeps its hue. */
#define SVG_DARK                                                                                   \
    "@media (prefers-color-scheme: dark) { svg { filter: invert(0.92) hue-rotate(180deg); } }"

typedef enum svg_font { SVG_TITLE = 0, SVG_TEXT = 1, SVG_SMALL = 2 } svg_font;
typedef enum svg_anchor { SVG_LEFT = 0, SVG_MIDDLE = 1, SVG_RIGHT = 2 } svg_anchor;

/* A picture that grows with what is drawn on it. */
typedef struct svg {
    FILE *body; /* NULL: no memory */
    char *text;
    size_t length;
    int width, height; /* so far */
} svg;

typedef struct svg_box {
    int x, y, width, height;
} svg_box;

/* Text: its place is the middle of its height. */
typedef struct svg_style {
    svg_font font;
    svg_anchor anchor;
    int color;
} svg_style;

void svg_open(svg *s);
/* Writes the picture and frees what it holds. False: no memory. title: untrusted text. */
bool svg_close(svg *s, FILE *out, const char *title);

/* Colours are 0xRRGGBB or SVG_NONE. */
void svg_rect(svg *s, svg_box box, int fill, int frame);
void svg_frame(svg *s, svg_box box, int frame, int thickness);
/* Untrusted text: control characters become escapes, and XML's characters entities. */
void svg_write(svg *s, int x, int y, svg_style style, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* An arrow from left to right: straight until it bends, then a curve with a head at its end. */
typedef struct svg_span {
    int from, bend, to;
} svg_span;
void svg_arrow(svg *s, svg_span x, int y0, int y1, int color, bool dashed);
/* A thin straight line in any direction with a small head at its end. */
void svg_thin_arrow(svg *s, int x0, int y0, int x1, int y1, int color);

/* Columns that fit in so many pixels, and pixels that a text takes, about. */
int svg_text_width(svg_font font, const char *text);

/* Between a and b, where 0 of 1000 is a. */
int svg_mix(int a, int b, int part);
/* Ink or white, which is easier to read on it. */
int svg_ink_on(int fill);

#endif
