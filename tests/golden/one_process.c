/* Where one process plays all ranks of a golden case, as threads (threads.c, tests/nccl/golden.c):
 * what processes must tell each other is known. Apart from these, so that a program may have either
 * and processes of its own (tests/mpi/golden.c) neither. */
#include "golden/row_case.h"

void golden_ranks_sum(double *values, int n) {
    (void)values, (void)n;
}

double golden_ranks_most(double value) {
    return value;
}

void golden_ranks_agree(golden_case *c) {
    (void)c;
}
