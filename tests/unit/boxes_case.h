/* Random tensor sets with boxes, and a model that goes over the elements one by one. */
#ifndef BOXES_CASE_H
#define BOXES_CASE_H

#include "unit/redistribute_case.h"

enum { BOXES_TENSORS = 12, BOXES_MOST = 64, BOXES_ELEMENTS = 4096 };

/* ANY: boxes of destinations from anywhere in the sources. APART: a source is taken apart into
 * destinations, and some of it is left over. TOGETHER: the reverse, without anything left over. */
typedef enum boxes_kind { BOXES_ANY, BOXES_APART, BOXES_TOGETHER } boxes_kind;

typedef struct boxes_case {
    int world;
    boxes_kind kind;
    int n[2]; /* tensors of the source, of the destination */
    redistribute_case tensors[2][BOXES_TENSORS];
    int64_t nboxes;
    lierne_set_box boxes[BOXES_MOST];
    int axes[BOXES_MOST][LIERNE_MAX_AXES];
    int scattered; /* tensors have gaps between them, further apart on higher ranks */
} boxes_case;

void random_boxes(boxes_case *c, uint64_t seed, int world);

/* The spec of a rank, whose layouts and offsets are in memory of the caller's thread until the next
 * call for that rank. */
typedef struct boxes_spec {
    lierne_layout *layouts[2][BOXES_TENSORS];
    int64_t offsets[2][BOXES_TENSORS];
    int64_t elements[2];
    lierne_set_spec spec;
} boxes_spec;
void boxes_open(boxes_spec *s, const boxes_case *c, int rank);
void boxes_close(boxes_spec *s, const boxes_case *c);

/* Fills what a rank holds of one side: numbers of its elements; poison elsewhere. */
void boxes_fill(int64_t *buffer, const boxes_spec *s, const boxes_case *c, int side, int rank);
/* What a rank must have of a side when the other side's numbers were moved to it. */
void boxes_expect(int64_t *buffer, const boxes_spec *s, const boxes_case *c, int side, int rank);

#endif
