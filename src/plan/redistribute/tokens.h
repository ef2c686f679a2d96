/* The tokens of a packed axis that a rank shares with the cells of the other side, found in one
 * pass over its own: planning costs what the rank has, not that times the number of cells. */
#ifndef LIERNE_TOKENS_H
#define LIERNE_TOKENS_H

#include "layout/locator.h"

/* Tokens which one cell of either side has; local: their first row in the buffer of each, 0 where
 * that is no buffer of this rank. */
typedef struct lierne_token_piece {
    int64_t start;
    int64_t size;
    int64_t local[2];
} lierne_token_piece;

/* One that was cut, and the part of the other side that has it. */
typedef struct lierne_cut_piece {
    lierne_token_piece piece;
    int64_t index[2]; /* on the axis of either side: not the same where the axis is a joined one */
    size_t part;
} lierne_cut_piece;

/* counts: of the pieces of each part of the other side, which cutting sets. merged: parts of which
 * only the rows of the own buffer matter, so that pieces whose rows follow one another may be one,
 * whatever their tokens; NULL: none. */
typedef struct lierne_cut_pieces {
    lierne_cut_piece *at;
    size_t count;
    size_t capacity;
    size_t *counts;
    const bool *merged;
} lierne_cut_pieces;

typedef struct lierne_tokens {
    int axis;
    lierne_locator locators[2]; /* of source and destination */
    int other;                  /* whose parts the pieces are sorted by */
    lierne_token_piece *at;     /* those of a part begin at first[part], ascending */
    size_t *first;
} lierne_tokens;

/* The axis that a side has packed, if lierne_tokens_create serves both sides; else -1. */
int lierne_tokens_axis(const lierne_layout *from, const lierne_layout *to);
/* The pieces of a cell of side `own`; mine: the rank's own cell of the other side, or NULL. To be
 * destroyed also on failure. */
lierne_status lierne_tokens_create(lierne_tokens *t, const lierne_layout *const layouts[2], int own,
                                   const lierne_cell *cell, const lierne_cell *mine);
void lierne_tokens_destroy(lierne_tokens *t);
/* Cuts what a cell of side `own` has, in the order of tokens, where coordinates of either side or
 * segments change. mine: this rank's cell of the other side and what it has there, or NULL. A list
 * that has space does not grow. apart: spans end where coordinates of their own side change, and
 * the axis is no joined one. */
lierne_status lierne_tokens_cut(lierne_cut_pieces *pieces, lierne_locator locators[2], int own,
                                bool apart, const lierne_spans *spans, const lierne_cell *mine,
                                const lierne_spans *mine_spans);
/* Rows of the axis, packed or not, in the buffer of a cell's ranks. */
int64_t lierne_tokens_rows(const lierne_layout *layout, int axis, const lierne_cell *cell);
/* The pieces of an ordinary axis that a cell has. */
void lierne_tokens_shares(lierne_pieces *pieces, const lierne_layout *layout, int axis,
                          const lierne_cell *cell);
/* Of the axes that are not packed: what two cells have in common, what one has in its buffer of
 * this shape, and the cells of a layout that have something of another one's. */
lierne_status lierne_tokens_columns(lierne_overlaps *out, int axis, const lierne_layout *from,
                                    const lierne_layout *to, const lierne_cell *from_cell,
                                    const lierne_cell *to_cell);
lierne_status lierne_tokens_cell_columns(lierne_boxes *out, int64_t *shape, int axis,
                                         const lierne_layout *layout, const lierne_cell *cell);
lierne_status lierne_tokens_cells(lierne_cells *out, int axis, const lierne_layout *layout,
                                  const lierne_layout *other, const lierne_cell *cell);
/* What the cell has in common with one of the other side, as boxes: of each piece those of the
 * other axes. Their order is the same for both cells. */
lierne_status lierne_tokens_boxes(lierne_overlaps *out, const lierne_tokens *t,
                                  const lierne_cell *from, const lierne_cell *to);

#endif
