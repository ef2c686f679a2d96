/* A tensor set while it is planned. */
#ifndef LIERNE_SET_H
#define LIERNE_SET_H

#include "layout/layout.h"
#include "lierne/redistribute.h"
#include "plan/plan.h"

/* A layout of the set, and how many elements this rank's buffer has under it. */
typedef struct lierne_set_layout {
    const lierne_layout *layout;
    int64_t elements;
    uint64_t hash;
} lierne_set_layout;

/* What moves from one layout to another: members[first] on, ascending. */
typedef struct lierne_set_class {
    int64_t layouts[2]; /* of the source and the destination */
    int64_t first;
    int64_t count;
} lierne_set_class;

/* Which of two sides of a set: its sources or its destinations. */
enum { LIERNE_SET_SRC = 0, LIERNE_SET_DST = 1 };

/* Elements of a source that are in no box. */
typedef struct lierne_set_gap {
    int64_t tensor;
    lierne_box box; /* without places */
} lierne_set_gap;

typedef struct lierne_set {
    int64_t n[2];                /* tensors of either side */
    int64_t nmoves;              /* boxes, or tensors */
    const lierne_set_box *boxes; /* or NULL: move i is tensor i of both sides */
    int rank;
    LIERNE_VEC(lierne_set_layout) layouts; /* all different */
    LIERNE_VEC(lierne_set_class) classes;  /* in the order of their first tensors */
    int64_t *layout_of[2];                 /* of each tensor */
    int64_t *class_of;                     /* of each move */
    int64_t *members;                      /* the moves, class by class */
    int64_t *offsets[2];                   /* of each tensor in this rank's buffers */
    int64_t elements[2];                   /* of this rank's buffers */
    LIERNE_VEC(lierne_set_gap) gaps;
    bool repeats; /* an element of a source is in several boxes */
} lierne_set;

/* Takes a spec whose size was taken, as rank. The set borrows the layouts and boxes. To be
 * destroyed also on failure. Errors: those of lierne_route_create_set. */
lierne_status lierne_set_create(lierne_set *set, const lierne_set_spec *spec, int rank);
/* The same without places in buffers: offsets are not read. */
lierne_status lierne_set_describe(lierne_set *set, const lierne_set_spec *spec, int rank);
void lierne_set_destroy(lierne_set *set);

/* The tensor of one side that a move is about. */
static inline int64_t lierne_set_tensor(const lierne_set *set, int64_t move, int side) {
    return !set->boxes              ? move
           : side == LIERNE_SET_SRC ? set->boxes[move].src
                                    : set->boxes[move].dst;
}
/* What a tensor is under its layout. */
static inline const lierne_set_layout *lierne_set_layout_of(const lierne_set *set, int64_t tensor,
                                                            int side) {
    return &set->layouts.at[set->layout_of[side][tensor]];
}

/* set_boxes.c. Whether box i of a spec is within its tensors. */
lierne_status lierne_set_check_box(const lierne_set_spec *spec, int64_t i);
/* A hash of where a box is in its tensors, whose layouts have this hash. */
uint64_t lierne_set_hash_box(uint64_t hash, const lierne_set_spec *spec, int64_t i);
/* Whether every element of every destination is in one box; sets the gaps and repeats of sources.
 */
lierne_status lierne_set_cover(lierne_set *set);

/* The route from one side to the other one; *min_elements: what this rank must receive. */
lierne_status lierne_set_route(lierne_route **out, int64_t *min_elements, const lierne_set *set,
                               int from);

#endif
