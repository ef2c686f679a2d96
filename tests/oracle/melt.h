/* A Lennard-Jones melt in LAMMPS, and the swaps that fill its ghosts. */
#ifndef TESTS_ORACLE_MELT_H
#define TESTS_ORACLE_MELT_H

#include <mpi.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { MELT_SWAPS = 64 };

typedef struct melt_swaps {
    int64_t nlocal, nghost;
    int nswap;
    int sendproc[MELT_SWAPS], recvproc[MELT_SWAPS]; /* -1 where nothing is sent or received */
    int64_t sendnum[MELT_SWAPS], recvnum[MELT_SWAPS];
    int64_t *sendlist[MELT_SWAPS];
    int64_t *tag; /* of all atoms */
    double *at;   /* 3 coordinates each */
    double box[3], cutoff;
    int grid[3], neighbour[3][2]; /* ranks to the low and the high side */
} melt_swaps;

typedef struct melt melt;
/* cells: of an fcc lattice along each axis. NULL if LAMMPS fails. Collective. */
melt *melt_open(MPI_Comm comm, const int *cells, double skin, melt_swaps *swaps);
/* What LAMMPS makes of a number per atom: ghosts from owners; ghosts added to owners. Collective.
 */
void melt_forward(melt *m, double *values);
void melt_reverse(melt *m, double *values);
void melt_close(melt *m, melt_swaps *swaps);

#ifdef __cplusplus
}
#endif
#endif
