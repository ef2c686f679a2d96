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

/* The tensors that move from one layout to another: members[first] on, ascending. */
typedef struct lierne_set_class {
    int64_t layouts[2]; /* of the source and the destination */
    int64_t first;
    int64_t count;
} lierne_set_class;

/* Which of two sides of a set: its sources or its destinations. */
enum { LIERNE_SET_SRC = 0, LIERNE_SET_DST = 1 };

typedef struct lierne_set {
    int64_t n;
    int rank;
    LIERNE_VEC(lierne_set_layout) layouts; /* all different */
    LIERNE_VEC(lierne_set_class) classes;  /* in the order of their first tensors */
    int64_t *class_of;                     /* of each tensor */
    int64_t *members;                      /* the tensors, class by class */
    int64_t *offsets[2];                   /* of each tensor in this rank's buffers */
    int64_t elements[2];                   /* of this rank's buffers */
} lierne_set;

/* Takes a spec whose size was taken, as rank. The set borrows the layouts. To be destroyed also on
 * failure. Errors: those of lierne_route_create_set. */
lierne_status lierne_set_create(lierne_set *set, const lierne_set_spec *spec, int rank);
void lierne_set_destroy(lierne_set *set);
/* The layout of a tensor or a class. */
const lierne_set_layout *lierne_set_layout_of(const lierne_set *set, int64_t class_number,
                                              int side);

/* The route from one side to the other one; *min_elements: what this rank must receive. */
lierne_status lierne_set_route(lierne_route **out, int64_t *min_elements, const lierne_set *set,
                               int from);

#endif
