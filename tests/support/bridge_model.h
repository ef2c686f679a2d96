/* A bridge written from the definition: a sample belongs to the dp rank that its index says,
 * coordinates are mixed radix, and nothing else. Nothing of the library is asked. The command has
 * the other closed form, src/tool/form.h, which shares no code with this one. */
#ifndef LIERNE_TESTS_BRIDGE_MODEL_H
#define LIERNE_TESTS_BRIDGE_MODEL_H

#include "algorithm.h"
#include "mesh.h"
#include "numbers.h"

typedef enum case_data { SMALL_INTEGERS, FRACTIONS } case_data;

/* A bridge to test. Axes: batch b, sequence s, hidden h. */
typedef struct bridge_case {
    int world;
    mesh src;
    mesh dst;
    int64_t batch;
    int64_t sequence;
    int64_t hidden;
    int axis_b, axis_s, axis_h; /* where b, s, h are; axis_s -1: a 2-D tensor, of rows where the
                                   sequence is longer than 1 */
    const int64_t *src_counts;  /* NULL: balanced */
    const int64_t *dst_counts;
    lierne_dtype dtype;
    lierne_gradient_owner owner;
    lierne_storage storage;
    test_algorithm algorithm;
    const int32_t *rows; /* owner ROWS: cp coordinate of each (b, s) */
    lierne_bridge_output output;
    lierne_placement src_placed[MESH_DIMS]; /* kind and axis (0 b, 1 s, 2 h); used if placed */
    lierne_placement dst_placed[MESH_DIMS];
    int placed;
    lierne_row_order row_order; /* axis_s -1 and sequence > 1: a 2-D tensor of rows */
    const int *nodes;
    case_data data;
    lierne_sharing sharing; /* of a direct plan */
    lierne_routing routing; /* AUTO: that of the environment, routing.h */
} bridge_case;

/* A rank's input, output, or gradient of its output. */
typedef enum case_side { SIDE_SRC, SIDE_DST, SIDE_GRADIENT } case_side;

/* One element of a rank's buffer. */
typedef struct item {
    int64_t b, s, h;
    bool held;  /* the buffer has the element; else its place is not read, or keeps what it had */
    bool owned; /* at the destination: the rank gives the gradient of it, or a contribution */
    int owner;  /* cp coordinate that owns the row of the gradient; -1: each has a contribution */
} item;

/* The elements of a buffer in order, to be freed. extent, if not NULL, gets the buffer's lengths by
 * b, s and h; where a row map makes b and s one axis, the outer of the two has the rows and the
 * other is 1. */
item *case_items(const bridge_case *c, case_side which, int rank, int64_t *count, int64_t *extent);

/* What a buffer has of one axis (0 b, 1 s, 2 h), for tensors too long for items. */
typedef struct case_axis {
    int64_t n;
    int64_t *index; /* global index of each position */
    bool *owned;    /* as in item; a row map is not in it */
} case_axis;
case_axis case_axis_open(const bridge_case *c, case_side which, int rank, int axis);
void case_axis_close(case_axis *a);

/* Of the ranks that differ in dims that cut nothing, the first: replicas count once in a dot
 * product. A destination cp rank is never a replica: its gradient is a contribution, or its own
 * rows. */
bool case_first_replica(const bridge_case *c, case_side which, int rank);
/* Whether the reference algorithm is defined: dp sizes divide, and dp ranks have common samples on
 * every rank. */
bool case_aligned(const bridge_case *c);

/* Closed forms: the value of an element, the contribution of a cp coordinate to its gradient, and
 * the gradient, their sum. Small integers, exact in every dtype, also when added; fractions from -1
 * to 1 with FRACTIONS data. */
double case_value(const bridge_case *c, const item *i);
double case_contribution(const bridge_case *c, const item *i, int cp);
double case_gradient(const bridge_case *c, const item *i);

#endif
