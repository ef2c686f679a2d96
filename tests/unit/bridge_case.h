/* One bridge on the sim transport, compared with the model of bridge_model.h. */
#ifndef BRIDGE_CASE_H
#define BRIDGE_CASE_H

#include "bridge_plan.h"
#include "lierne/sim.h"

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
 * storage). With FRACTIONS data values are not compared with the model. A case that cannot be
 * planned is not wrong: see result->status. */
const char *run_case(const bridge_case *c, case_result *result);
void free_result(case_result *result);

/* The same rank by rank, for a transport of processes: a rank's input of a direction; what is wrong
 * with its output, NULL if nothing is, with its share of the dot test added to *dot. */
void case_fill(const bridge_case *c, int rank, lierne_direction d, void *in);
const char *case_check(const bridge_case *c, int rank, lierne_direction d, void *out, double *dot);

#endif
