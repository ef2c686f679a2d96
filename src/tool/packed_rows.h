/* A packed bridge of a file, or a redistribution: its layouts, and which rows each rank has,
 * counted out token by token without the library's formulas. Of a redistribution a row is an
 * element of the source, and a token a place of a destination's buffer. */
#ifndef LIERNE_TOOL_PACKED_ROWS_H
#define LIERNE_TOOL_PACKED_ROWS_H

#include "lierne/config.h"

#include <stdbool.h>

/* Ids of rows that are no index of the packed axis. */
enum { PACKED_PADDING = -1 };

typedef struct tool_packed {
    const lierne_layout_spec *given[2];
    const lierne_packed_bridge_spec *images; /* of the file; NULL: segments only move */
    const lierne_redistribute_spec *move;    /* or this one, which a redistribution has */
    int64_t shape[2][2];
    lierne_layout_spec specs[2]; /* those given, of this shape */
    lierne_layout *layouts[2];
    int max_peers;
    int64_t *rows;      /* by token: the row of the source that it gets, or -1 */
    int64_t *first_use; /* by row: where its tokens begin in used_by */
    int64_t *used_by;
    int64_t most_uses;
    int ncontributions; /* of partial dims */
    bool redistribution;
    int world;
    int64_t elements;     /* of its tensor */
    int64_t places;       /* of all buffers of its destination, those of replicas once */
    int64_t *first_place; /* by rank */
} tool_packed;

/* Finds a packed bridge. False: there is none of this name. */
bool packed_find(tool_packed *packed, const lierne_config *config, const char *name);
/* Makes the layouts, with this size of the hidden axis, and the tables; of a redistribution those
 * only if they are asked for. close in any case. */
lierne_status packed_open(tool_packed *packed, int64_t hidden, bool tables);
void packed_close(tool_packed *packed);

/* What it is: "packed bridge" or "redistribution". */
const char *packed_word(const tool_packed *packed);
/* The axis that is packed, the other one, and its size; 1 where there is none. */
int packed_axis(const tool_packed *packed);
const char *packed_axis_name(const tool_packed *packed, int axis); /* "s" or "h" */
int64_t packed_hidden(const tool_packed *packed);
int64_t packed_given_hidden(const tool_packed *packed); /* of the file */
/* The least size of the other axis that is cut as the given one. */
int64_t packed_least_hidden(const tool_packed *packed);
int64_t packed_tokens(const tool_packed *packed, int side);
int64_t packed_padded_rows(const tool_packed *packed, int side);

/* Plans it. Collective. */
lierne_status packed_plan(lierne_plan **out, lierne_context *context, const tool_packed *packed);

/* What a rank has of a side. */
typedef struct packed_rows {
    int64_t *ids; /* of each row of its buffer: index of the packed axis, or PACKED_PADDING */
    int64_t nrows;
    int64_t *columns; /* indices of the other axis */
    int64_t ncolumns;
    bool first;       /* of its replicas, which count once in a dot product */
    int contribution; /* which one of a partial gradient */
} packed_rows;

/* False: no memory. The lists are the caller's. */
bool packed_rows_of(packed_rows *out, const tool_packed *packed, int side, int rank);

#endif
