/* Where a rank is on one side of a bridge, and which part of each axis it has, computed from the
 * spec alone. */
#ifndef LIERNE_TOOL_PLACE_H
#define LIERNE_TOOL_PLACE_H

#include "lierne/bridge.h"

#include <stdbool.h>

#define PLACE_AXES 3

/* The axes of a tensor; rows of samples are two. Axes that are not there have size 1. */
typedef struct place_axes {
    int64_t size[PLACE_AXES];
    int batch;
    int sequence; /* -1: none */
} place_axes;

/* One dim that cuts an axis. */
typedef struct place_cut {
    int axis;
    bool zigzag;
    int n;
    int mine;
    const int64_t *counts; /* shares that are not balanced; NULL: they are */
} place_cut;

typedef struct place {
    bool holds; /* the rank is in the grid, on the stage that has the tensor */
    bool first; /* of its replicas: at coordinate 0 of every dim that cuts nothing */
    bool has_cp;
    int cp;
    int ncp;
    int ncuts;
    place_cut cuts[LIERNE_MAX_DIMS]; /* the slowest dim first, which is the order of cutting */
} place;

typedef enum place_side { PLACE_SOURCE = 0, PLACE_DESTINATION = 1 } place_side;

place_axes place_axes_of(const lierne_bridge_spec *spec);
/* owned: at the destination cp cuts as the owner of the gradient says, unless that goes row by row.
 */
place place_of(const lierne_bridge_spec *spec, place_side side, bool owned, int rank);

/* Drops from a list of length indices of an axis those that the rank does not have. Returns how
 * many are left. */
int64_t place_keep(const place *p, int axis, int64_t *list, int64_t length);
/* Number of parts into which the dims cut an axis. */
int64_t place_parts(const place *p, int axis);
/* The samples of the rank's dp rank: *length is 0 where it holds none. */
void place_range(const lierne_bridge_spec *spec, place_side side, int rank, int64_t *start,
                 int64_t *length);
/* Their number. */
int64_t place_samples(const lierne_bridge_spec *spec, place_side side, int rank);

#endif
