/* What boxes on the left send to boxes on the right, with bytes on the arrows: the rows' way and
 * the stages are pictures of this kind. */
#ifndef LIERNE_TOOL_FLOW_H
#define LIERNE_TOOL_FLOW_H

#include "draw.h"

enum { FLOW_MOST = 10, FLOW_LINES = 4, FLOW_LINE = 80, FLOW_CELLS = 8 };

/* Of one box to another one. */
typedef struct flow_arrow {
    int64_t bytes;
    int64_t messages;
    int64_t kept; /* bytes that stay on their ranks */
} flow_arrow;

typedef struct flow_box {
    char line[FLOW_LINES][FLOW_LINE]; /* untrusted text; "" is not written */
    int color;
    /* Its samples as cells, a row of them for each cp rank; none where they are too many. */
    int cell[FLOW_CELLS]; /* colours */
    int64_t first;        /* number of the first sample */
    int ncells, nrows;
} flow_box;

typedef struct flow {
    const char *title;
    int n[2]; /* boxes on the left, on the right */
    flow_box box[2][FLOW_MOST];
    flow_arrow arrow[FLOW_MOST][FLOW_MOST];
} flow;

/* A number of messages in words, with their bytes. Returns text. */
#define FLOW_LABEL 64
const char *flow_label(char text[FLOW_LABEL], const flow_arrow *arrow);

/* Draws it with its upper left corner at x, y. Returns the y below it. */
int flow_draw(const flow *f, svg *s, int x, int y);
/* Prints a cluster; id makes its names unlike those of other flows. */
void flow_print_dot(const flow *f, int id);
void flow_print_text(const flow *f);
/* Text between the quotes of DOT. */
void flow_print_quoted(const char *text);

#endif
