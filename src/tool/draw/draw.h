/* lierne draw: pictures of a configuration, as SVG, DOT or text. */
#ifndef LIERNE_TOOL_DRAW_H
#define LIERNE_TOOL_DRAW_H

#include "svg.h"

#include "tool/bridge.h"

enum { DRAW_SVG = 0, DRAW_DOT = 1, DRAW_TEXT = 2, DRAW_FORMATS = 3 };
#define DRAW_MOST_SIDES 4

/* A grid of the picture, with the view that is drawn. */
typedef struct draw_side {
    const char *name;
    const lierne_grid *grid;
    const char *view;
} draw_side;

/* One message of a plan. */
typedef struct draw_message {
    int from, to, stage;
    int64_t bytes;
} draw_message;

/* What one stage of all ranks does. */
typedef struct draw_stage {
    int64_t messages;
    int64_t bytes;
    int64_t summed; /* bytes of results of sums */
} draw_stage;

/* All messages of one direction of a plan. */
typedef struct draw_traffic {
    size_t count, room;
    draw_message *at;
    int64_t *kept; /* per rank: bytes copied from its input to its output */
    int nstages;
    draw_stage *stages;
} draw_traffic;

typedef struct draw_task {
    char **argv;
    tool_bridge bridge;
    lierne_direction direction;
    const char *given_rank;
    int rank;                         /* whose windows */
    const int *nodes;                 /* per rank; NULL: the file has none */
    int nsides, nleft_out;            /* grids that are drawn, and that are not */
    draw_side sides[DRAW_MOST_SIDES]; /* of a bridge: source, destination */
    draw_traffic traffic;
} draw_task;

/* Plans all ranks of the bridge and collects their messages. Returns -1, or an exit status. */
int draw_traffic_open(draw_task *task);
void draw_traffic_close(draw_task *task);

/* The picture of a trace, which has options of its own. Returns an exit status. */
int draw_timeline(int argc, char **argv);

/* Pictures. Text and DOT go to standard output; a picture as SVG is drawn on s. */
void draw_mesh(const draw_task *task, svg *s);
void draw_mesh_dot(const draw_task *task);
void draw_mesh_text(const draw_task *task);
void draw_ranks(const draw_task *task, svg *s);
void draw_ranks_text(const draw_task *task);
void draw_matrix(const draw_task *task, svg *s);
void draw_matrix_text(const draw_task *task);
void draw_rows(const draw_task *task, svg *s);
void draw_rows_dot(const draw_task *task);
void draw_rows_text(const draw_task *task);
/* Rows of a packed bridge. */
void draw_packed_rows(const draw_task *task, svg *s);
void draw_packed_text(const draw_task *task);
/* Windows of one rank of a redistribution. */
void draw_windows(const draw_task *task, svg *s);
void draw_windows_text(const draw_task *task);
void draw_stages(const draw_task *task, svg *s);
void draw_stages_dot(const draw_task *task);
void draw_stages_text(const draw_task *task);

/* The title and what is drawn. Returns the y of what comes below. */
int draw_head(const draw_task *task, svg *s, const char *what);
void draw_head_text(const draw_task *task);
void draw_dot_begin(void);
/* A side in words: "llm: tp 2, dp 4". Returns text. */
#define DRAW_SIDE 200
const char *draw_side_text(char text[DRAW_SIDE], const draw_side *side);

/* The colour of a dim, paler for lower coordinates; by its name, so that pictures agree. */
int draw_dim_color(const char *dim, int coordinate, int size);
/* The colour of the samples in the middle of start and end, of `all`. */
int draw_sample_color(int64_t start, int64_t end, int64_t all);

/* Which of n things are shown where at most `most` fit: all, or the first and the last ones. list
 * gets at most `most` indices, and -1 in the place of those left out. Returns its length. */
int draw_choose(int n, int most, int *list);

#endif
