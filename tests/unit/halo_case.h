/* Random swaps of a whole world, and a serial model of them: the rows of all ranks in one process,
 * swap by swap, one addition at a time. */
#ifndef HALO_CASE_H
#define HALO_CASE_H

#include "lierne/halo.h"

#include <stdbool.h>

enum { HALO_WORLD = 8, HALO_SWAPS = 8, HALO_LIST = 12, HALO_ROWS = 2128, HALO_WIDTH = 3 };

typedef struct halo_case {
    int world;
    lierne_halo_spec spec[HALO_WORLD]; /* width HALO_WIDTH, i64; the pointers are to what follows */
    int sendproc[HALO_WORLD][HALO_SWAPS], recvproc[HALO_WORLD][HALO_SWAPS];
    int64_t sendnum[HALO_WORLD][HALO_SWAPS], recvnum[HALO_WORLD][HALO_SWAPS];
    int64_t rows[HALO_WORLD][HALO_SWAPS][HALO_LIST];
    const int64_t *lists[HALO_WORLD][HALO_SWAPS];
} halo_case;

/* Values of all rows of all ranks. */
typedef double halo_values[HALO_WORLD][HALO_ROWS][HALO_WIDTH];

/* Random permutations of the ranks, lists that repeat rows, ghosts of ghosts, empty ranks and
 * lists, ranks that send hardly any row. */
void halo_case_random(halo_case *c, int world, uint64_t seed);
int64_t halo_case_rows(const halo_case *c, int rank);
/* A number of a hash of its arguments, in 0 to n - 1. */
uint64_t halo_case_pick(uint64_t seed, uint64_t a, uint64_t b, uint64_t n);

void halo_model_forward(const halo_case *c, halo_values x);
/* Each addition is rounded to the dtype. Ghosts become zero unless keep. */
void halo_model_adjoint(const halo_case *c, halo_values x, lierne_dtype dtype, bool keep);

#endif
