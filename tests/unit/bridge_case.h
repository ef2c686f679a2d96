/* One bridge on the sim transport, compared with a model written from the definition: a sample
 * belongs to the dp rank that its index says, coordinates are mixed radix, and nothing else.
 * Nothing of the library is asked except to do its work. */
#ifndef BRIDGE_CASE_H
#define BRIDGE_CASE_H

#include "algorithm.h"
#include "lierne.h"
#include "lierne/sim.h"

typedef struct case_grid {
    int ndims;
    const char *names[6];
    int64_t sizes[6];
    int offset;
} case_grid;

typedef enum case_data { SMALL_INTEGERS, RANDOM } case_data;

typedef struct bridge_case {
    int world;
    case_grid src;
    case_grid dst;
    int64_t batch;
    int64_t sequence;
    int64_t hidden;
    int axis_b, axis_s, axis_h; /* where b, s, h are; axis_s -1: a 2-D tensor, of rows where the
                                   sequence is longer than 1 */
    const int64_t *src_counts;
    const int64_t *dst_counts;
    lierne_dtype dtype;
    lierne_gradient_owner owner;
    lierne_storage storage;
    test_algorithm algorithm;
    const int32_t *rows;
    lierne_bridge_output output;
    lierne_placement src_placed[6]; /* per dim, kind and axis (0 b, 1 s, 2 h); used if placed */
    lierne_placement dst_placed[6];
    int placed;
    lierne_row_order row_order; /* axis_s -1 and sequence > 1: a 2-D tensor of rows */
    const int *nodes;
    case_data data;
    lierne_routing routing; /* AUTO: that of the environment, routing.h */
} bridge_case;

/* Outputs of a run, kept for comparing runs: rank after rank. */
typedef struct case_result {
    lierne_status status; /* of planning */
    char message[1024];
    unsigned char *forward;
    unsigned char *adjoint;
    size_t forward_bytes;
    size_t adjoint_bytes;
    int64_t received; /* elements, all ranks */
    int64_t minimum;
    int64_t adjoint_received;
    int64_t adjoint_minimum;
} case_result;

/* Plans and runs the case, twice, with poisoned outputs. Returns NULL, or what was wrong (static
 * storage). With RANDOM data values are not compared with the model. A case that cannot be planned
 * is not wrong: see result->status. */
const char *run_case(const bridge_case *c, case_result *result);
void free_result(case_result *result);

/* The same rank by rank, for a transport of processes: a rank's plan; its input of a direction;
 * what is wrong with its output, NULL if nothing is, with its share of the dot test added to *dot.
 */
lierne_status case_plan_rank(const bridge_case *c, lierne_context *context, lierne_plan **plan);
void case_fill(const bridge_case *c, int rank, lierne_direction d, void *in);
const char *case_check(const bridge_case *c, int rank, lierne_direction d, void *out, double *dot);

/* lierne_redistribute_get_bound of a direction, in bytes. */
lierne_status case_bound(const bridge_case *c, lierne_direction d, int64_t *received,
                         int64_t *sent);

/* Equal bits, but for the sign of zero. */
int same_bits(lierne_dtype dtype, const unsigned char *a, const unsigned char *b, size_t bytes);

/* Size of a dim, 1 if there is none; a rank's coordinate in it, 0 if there is none. */
int64_t case_size(const case_grid *grid, const char *name);
int case_coord(const case_grid *grid, int rank, const char *name);

#endif
