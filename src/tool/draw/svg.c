/* The body is kept in memory until the size of the picture is known: everything that is drawn makes
 * the picture as large as it needs, so that nothing lies outside of it. Fonts differ between
 * machines; widths of texts are those of a wide one. */
#include "svg.h"

#include "tool/tool.h"

#include <math.h>
#include <stdlib.h>

enum { MARGIN = 16 };

static const int sizes[] = {18, 13, 11}; /* pixels of each font */

void svg_open(svg *s) {
    *s = (svg){0};
    s->body = tool_open_text(&s->text, &s->length);
}

static void reach(svg *s, int x, int y) {
    s->width = x > s->width ? x : s->width;
    s->height = y > s->height ? y : s->height;
}

bool svg_close(svg *s, FILE *out, const char *title) {
    bool whole = s->body && !ferror(s->body);
    if (s->body) {
        whole = fclose(s->body) == 0 && whole;
    }
    if (whole) {
        int width = s->width + MARGIN, height = s->height + MARGIN;
        fprintf(out,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                "viewBox=\"0 0 %d %d\" role=\"img\" font-family=\"'DejaVu Sans', Verdana, "
                "sans-serif\">\n<style>" SVG_DARK "</style>\n<title>",
                width, height, width, height);
        tool_print_xml(out, title);
        fprintf(out, "</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#%06x\"/>\n%s</svg>\n",
                width, height, SVG_GROUND, s->text);
    }
    free(s->text);
    return whole;
}

static void write_color(const svg *s, const char *key, int color) {
    if (color == SVG_NONE) {
        fprintf(s->body, " %s=\"none\"", key);
    } else {
        fprintf(s->body, " %s=\"#%06x\"", key, (unsigned)color);
    }
}

void svg_rect(svg *s, svg_box box, int fill, int frame) {
    if (!s->body) {
        return;
    }
    reach(s, box.x + box.width, box.y + box.height);
    fprintf(s->body, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"", box.x, box.y, box.width,
            box.height);
    write_color(s, "fill", fill);
    if (frame != SVG_NONE) {
        write_color(s, "stroke", frame);
    }
    fputs("/>\n", s->body);
}

void svg_frame(svg *s, svg_box box, int frame, int thickness) {
    if (!s->body) {
        return;
    }
    reach(s, box.x + box.width, box.y + box.height);
    fprintf(s->body,
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#%06x\" "
            "stroke-width=\"%d\"/>\n",
            box.x, box.y, box.width, box.height, (unsigned)frame, thickness);
}

int svg_text_width(svg_font font, const char *text) {
    return tool_text_columns(text) * sizes[font] * 64 / 100;
}

void svg_write(svg *s, int x, int y, svg_style style, const char *format, ...) {
    static const char *const anchors[] = {"start", "middle", "end"};
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0) {
        tool_lack_memory();
    } else if (s->body) {
        int width = svg_text_width(style.font, text);
        int size = sizes[style.font];
        reach(s, x + width * (2 - (int)style.anchor) / 2, y + size / 2);
        fprintf(s->body, "<text x=\"%d\" y=\"%d\" font-size=\"%d\"", x, y + size * 36 / 100, size);
        if (style.anchor != SVG_LEFT) {
            fprintf(s->body, " text-anchor=\"%s\"", anchors[style.anchor]);
        }
        fputs(style.font == SVG_TITLE ? " font-weight=\"bold\"" : "", s->body);
        write_color(s, "fill", style.color);
        fputs(">", s->body);
        tool_print_xml(s->body, text);
        fputs("</text>\n", s->body);
    }
    free(text);
    va_end(args);
}

void svg_arrow(svg *s, svg_span x, int y0, int y1, int color, bool dashed) {
    enum { HEAD = 7 };
    int bend = (x.to - x.bend) / 2, tip = x.to - HEAD;
    if (!s->body) {
        return;
    }
    reach(s, x.to, y0 > y1 ? y0 : y1);
    fprintf(s->body, "<path d=\"M%d %dH%dC%d %d %d %d %d %d\" fill=\"none\" stroke-width=\"2\"%s",
            x.from, y0, x.bend, x.bend + bend, y0, tip - bend, y1, tip, y1,
            dashed ? " stroke-dasharray=\"5 4\"" : "");
    write_color(s, "stroke", color);
    fprintf(s->body, "/>\n<path d=\"M%d %dL%d %dL%d %dZ\"", x.to, y1, tip, y1 - 4, tip, y1 + 4);
    write_color(s, "fill", color);
    fputs("/>\n", s->body);
}

void svg_thin_arrow(svg *s, int x0, int y0, int x1, int y1, int color) {
    double length = hypot(x1 - x0, y1 - y0);
    if (!s->body || length == 0) {
        return;
    }
    double dx = (x1 - x0) / length, dy = (y1 - y0) / length;
    double bx = x1 - 6 * dx, by = y1 - 6 * dy; /* where the head begins */
    reach(s, x0 > x1 ? x0 : x1, y0 > y1 ? y0 : y1);
    fprintf(s->body, "<path d=\"M%d %dL%d %d\" fill=\"none\"", x0, y0, x1, y1);
    write_color(s, "stroke", color);
    fprintf(s->body, "/>\n<path d=\"M%d %dL%ld %ldL%ld %ldZ\"", x1, y1, lround(bx - 3 * dy),
            lround(by + 3 * dx), lround(bx + 3 * dy), lround(by - 3 * dx));
    write_color(s, "fill", color);
    fputs("/>\n", s->body);
}

int svg_mix(int a, int b, int part) {
    int mixed = 0;
    for (int shift = 0; shift < 24; shift += 8) {
        int from = a >> shift & 255, to = b >> shift & 255;
        mixed |= (from + (to - from) * part / 1000) << shift;
    }
    return mixed;
}

int svg_ink_on(int fill) {
    int light = 30 * (fill >> 16 & 255) + 59 * (fill >> 8 & 255) + 11 * (fill & 255);
    return light < 140 * 100 ? SVG_GROUND : SVG_INK;
}
