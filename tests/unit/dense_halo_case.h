/* Random layouts with halos, and an oracle that intersects nothing: for every rank and axis it
 * lists the positions of the windows, maps each to an element by the definition of its boundary,
 * and a buffer is the product of these lists. */
#ifndef DENSE_HALO_CASE_H
#define DENSE_HALO_CASE_H

#include "lierne.h"
#include "numbers.h"

enum { HALO_DIMS = 3, HALO_SIZE = 10, HALO_WORLD = 12, HALO_POSITIONS = 512, HALO_SEGMENTS = 4 };

/* What a place of a buffer shows, where it is no element. */
enum { HALO_ZERO = -1, HALO_KEEP = -2, HALO_FOREIGN = -3 };

typedef struct halo_side {
    int ndims;
    int64_t sizes[HALO_DIMS];
    int offset;
    lierne_placement placements[HALO_DIMS];
    int64_t counts[HALO_DIMS][HALO_WORLD];
    int32_t rows[HALO_DIMS][HALO_SIZE + 2];
    uint32_t full_axes;
    int nhalos;
    lierne_dense_halo halos[LIERNE_MAX_AXES];
    int64_t segments[LIERNE_MAX_AXES][HALO_SEGMENTS + 1]; /* by axis */
    int64_t starts[LIERNE_MAX_AXES][HALO_WORLD];
    int64_t ends[LIERNE_MAX_AXES][HALO_WORLD];
    lierne_stencil stencil;
    lierne_halo_storage storage;
} halo_side;

typedef struct halo_case {
    int world;
    int naxes;
    int64_t shape[LIERNE_MAX_AXES];
    lierne_dtype dtype; /* any; an opaque one only without PARTIAL */
    bool equal;         /* both sides are the same */
    halo_side sides[2];
} halo_case;

/* A rank's buffer under a side: of each place the element, or what else it shows. */
typedef struct halo_buffer {
    bool holds;
    int first;   /* the first rank of its replicas */
    int partial; /* its contribution, of so many */
    int partials;
    int64_t shape[LIERNE_MAX_AXES]; /* of padded storage */
    int64_t n;
    int64_t *at;
    bool *core;
} halo_buffer;

/* The outputs of a rank on an axis of the destination: whether each is in the run of its window
 * that needs nothing from others. */
typedef struct halo_outputs {
    int n;
    bool ready[HALO_SIZE + 2];
} halo_outputs;
void halo_list_outputs(halo_outputs *out, const halo_case *c, int rank, int axis);

/* Draws a case; one of any width, or of windows that the source does not have. */
void halo_random(halo_case *c, uint64_t seed);
/* Draws other documents of the first axis that has some, for both sides; -1: none has. */
int halo_redivide(halo_case *c, uint64_t seed);
lierne_status halo_layout(lierne_layout **out, const halo_case *c, int side);
/* One line per side, in static storage. */
const char *halo_text(const halo_case *c);

void halo_fill(halo_buffer *buffer, const halo_case *c, int side, int rank);
void halo_free(halo_buffer *buffer);
/* The halo of an axis, or NULL; what placements cut of the axis; the dim that cuts it, -1 if none
 * does, -2 if not one alone with SHARD. */
const lierne_dense_halo *halo_of(const halo_side *side, int axis);
int64_t halo_extent(const halo_case *c, const halo_side *side, int axis);
int halo_cut(const halo_side *side, int axis);
/* Whether every window has its core in the buffer. */
bool halo_has_cores(const halo_side *side);

#endif
