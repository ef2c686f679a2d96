/* Random layouts of packed sequences, and an oracle that knows no formula: it writes out the padded
 * sequence of every owner as a list of (segment, offset), applies each cut as a filter over that
 * list, and what is left is a rank's buffer. */
#ifndef PACKED_CASE_H
#define PACKED_CASE_H

#include "lierne.h"
#include "numbers.h"

enum { PACKED_SEGMENTS = 8, PACKED_ROWS = 1024, PACKED_DIMS = 3, PACKED_WORLD = 24 };

/* The segments of a case, and its tensor [tokens, width]. */
typedef struct packed_tokens {
    int64_t n;
    int64_t cu[PACKED_SEGMENTS + 1];
    int64_t width;
} packed_tokens;

typedef struct packed_side {
    int ndims;
    int64_t sizes[PACKED_DIMS];
    int offset;
    lierne_placement placements[PACKED_DIMS];
    bool plain; /* no packing: the axis is an ordinary one */
    bool full;
    bool aligned; /* align is given instead of padded boundaries */
    int64_t align;
    int64_t padded[PACKED_SEGMENTS + 1];
    int64_t lead[PACKED_SEGMENTS];
    int64_t order[PACKED_SEGMENTS];
    bool no_lead; /* it is 0, and NULL is given */
    bool no_order;
    int32_t owner[PACKED_SEGMENTS];
    lierne_packing_store store;
    lierne_padding padding;
    lierne_row_order row_order;
} packed_side;

/* What a rank's buffer has: of each row its token, PACKED_PADDING or PACKED_FOREIGN (a row of a
 * full buffer that is another rank's); of each column its number. */
enum { PACKED_PADDING = -1, PACKED_FOREIGN = -2 };
typedef struct packed_buffer {
    int64_t nrows;
    int64_t rows[PACKED_ROWS];
    int64_t first_column;
    int64_t ncolumns;
    int64_t contribution; /* of PARTIAL dims: which one, from 0 on */
    int64_t contributions;
} packed_buffer;

/* Numbers that look random. */
typedef struct packed_random {
    uint64_t state;
} packed_random;
int64_t packed_draw(packed_random *random, int64_t n);

void packed_random_tokens(packed_random *random, packed_tokens *tokens);
/* Placements and grid; destination: without PARTIAL. */
void packed_random_side(packed_random *random, packed_side *side, int world, bool destination);
/* A packing of these segments for the placements of the side. lengths: the same, but of the store,
 * padding and order of rows that the side has. */
void packed_random_packing(packed_random *random, packed_side *side, const packed_tokens *tokens);
void packed_random_lengths(packed_random *random, packed_side *side, const packed_tokens *tokens);

/* The buffer of a rank by the oracle; false if a zigzag does not divide on some rank. */
bool packed_divides(const packed_side *side, const packed_tokens *tokens);
void packed_fill_buffer(packed_buffer *buffer, const packed_side *side, const packed_tokens *tokens,
                        int rank);

/* Elements of a buffer; what an output has before a call. */
int64_t packed_elements(const packed_buffer *buffer);
int64_t packed_before(int64_t rank, int64_t i);
/* A direction on all ranks of a simulated world. */
void packed_execute(lierne_plan **plans, lierne_direction d, int64_t **out, int64_t **in, int world,
                    uint64_t seed);

/* The side as lierne has it. */
lierne_status packed_layout(lierne_layout **layout, const packed_side *side,
                            const packed_tokens *tokens, int world);
lierne_segments packed_segments(const packed_tokens *tokens);
lierne_packing packed_packing(const packed_side *side);

#endif
