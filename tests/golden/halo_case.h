/* A halo of halo.json, as each rank gets it. */
#ifndef LIERNE_TESTS_GOLDEN_HALO_CASE_H
#define LIERNE_TESTS_GOLDEN_HALO_CASE_H

#include "row_case.h"

enum { GOLDEN_HALO_WIDTH = 2 };

/* Swaps of a rank, and what spec points to. */
typedef struct golden_swaps {
    int n;
    int64_t nlocal, nghost;
    int *sendproc, *recvproc;
    int64_t *sendnum, *recvnum;
    int64_t **sendlist;
} golden_swaps;

/* procs: what has sendproc and recvproc; counts: nlocal, nghost, recvnum, sendlist, and sendnum
 * where that is not the lists' lengths. */
golden_swaps golden_swaps_read(const cJSON *procs, const cJSON *counts);
void golden_swaps_free(golden_swaps *swaps);
lierne_halo_spec golden_swaps_spec(const golden_swaps *swaps, golden_type type);
/* Whether a plan has these swaps. */
void golden_swaps_expect(golden_case *c, const char *what, const lierne_halo_spec *spec,
                         const golden_swaps *swaps);

typedef struct golden_halo_case {
    int world;
    int nswap;
    bool phantom;
    bool drops;           /* rows, of before: the others are in plain */
    bool inexact;         /* the upstream gradient */
    golden_swaps *swaps;  /* of each rank */
    golden_swaps *plain;  /* without phantom rows */
    golden_swaps *before; /* without them, and before rows were dropped: as bricks have them */
    int64_t **gid;        /* of rows of swaps */
    int64_t **gid_before; /* of rows of before */
    golden_forest forest;
} golden_halo_case;

golden_halo_case golden_halo_read(const cJSON *item);
void golden_halo_free(golden_halo_case *halo);
const cJSON *golden_halo_rank(const cJSON *item, int rank);

/* Of whole arrays, by the definition: ghost rows are zero after the adjoint. */
golden_row_case golden_halo_duty(const golden_halo_case *halo, int rank, golden_type type);
/* With keep_ghosts: the adjoint swap by swap, which leaves in each ghost row what it gathered.
 * flat: in one round, which leaves it as it was. */
void golden_halo_keep(const golden_halo_case *halo, int rank, golden_row_case *row_case, bool flat);
/* The same exchange with the ghosts in an array of their own. */
golden_row_case golden_halo_separate(const golden_halo_case *halo, int rank, golden_type type);

/* lierne_brick_create, where the case has positions: the same swaps, and ghosts where they belong.
 * Collective. */
void golden_halo_bricks(golden_case *c, lierne_context *context, const golden_halo_case *halo);

#endif
