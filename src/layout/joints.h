/* A joined axis: the rows of one packed axis (0) that go to tokens of another one (1), as runs say.
 * Layouts of either axis become layouts of the joined one, so that what plans redistributions plans
 * bridges. */
#ifndef LIERNE_JOINTS_H
#define LIERNE_JOINTS_H

#include "layout/packed.h"

/* Indices [start, start + size) of the joined axis, on both sides. */
typedef struct lierne_joint {
    int64_t start;
    int64_t size;
    int64_t segment[2]; /* the image; the segment of the token */
    int64_t index[2];   /* the first row of the axis of images; the first token */
} lierne_joint;

/* Ascending by row, then by token. Filling them allocates nothing. */
typedef struct lierne_joints {
    int64_t capacity;
    int64_t n;
    int64_t total; /* indices of the joined axis */
    int64_t rows;  /* of the axis of images */
    lierne_joint *at;
    lierne_joint *spare;
    lierne_keyed *keys;
    lierne_keyed *spare_keys;
    bool repeats; /* a row goes to several tokens */
} lierne_joints;

/* What runs must fulfil. */
typedef struct lierne_joints_rules {
    bool unused; /* rows may go nowhere */
    bool repeat; /* a row may go to several tokens */
} lierne_joints_rules;

/* INVALID unless there are n runs. */
lierne_status lierne_image_runs_check(const lierne_image_run *runs, int64_t n);

lierne_status lierne_joints_create(lierne_joints *joints, int64_t capacity);
void lierne_joints_destroy(lierne_joints *joints);
/* Takes n runs, which fit the capacity. What it has after a failure means nothing. Errors: those of
 * section "Errors" in lierne/packed_bridge.h. */
lierne_status lierne_joints_take(lierne_joints *joints, const lierne_image_run *runs, int64_t n,
                                 const lierne_packed *images, const lierne_packed *segments,
                                 const lierne_joints_rules *rules);

/* From spans of a side, ascending, those of the joined axis, ascending; the list is empty before.
 * left: spans of side 0 of which no joint has a row, start 0. */
lierne_status lierne_joints_spans(lierne_span_list *list, const lierne_joints *joints, int side,
                                  const lierne_span_list *own);
lierne_status lierne_joints_left(lierne_span_list *list, const lierne_joints *joints,
                                 const lierne_span_list *own);

#endif
