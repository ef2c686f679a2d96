/* The oracle of halos: swaps of all ranks, executed one after the other on numbers. */
#include "mpi/rows.h"

#include <stdlib.h>
#include <string.h>

static void swaps_room(swaps *all, int rank, int64_t nlocal, int nswap) {
    size_t n = (size_t)nswap + 1;
    all->rank[rank] = (lierne_halo_spec){.size = sizeof(lierne_halo_spec),
                                         .nlocal = nlocal,
                                         .nswap = nswap,
                                         .sendproc = calloc(n, sizeof(int)),
                                         .recvproc = calloc(n, sizeof(int)),
                                         .sendnum = calloc(n, sizeof(int64_t)),
                                         .recvnum = calloc(n, sizeof(int64_t)),
                                         .sendlist = calloc(n, sizeof(int64_t *))};
}

/* The arrays are the oracle's own: only the library sees them as constant. */
static void swaps_put(swaps *all, int rank, int swap, int to, const int64_t *list, int64_t n) {
    lierne_halo_spec *from = &all->rank[rank], *at = &all->rank[to];
    int64_t *copy = malloc(((size_t)n + 1) * sizeof *copy);
    memcpy(copy, list, (size_t)n * sizeof *copy);
    ((int *)from->sendproc)[swap] = to;
    ((int64_t *)from->sendnum)[swap] = n;
    ((const int64_t **)from->sendlist)[swap] = copy;
    ((int *)at->recvproc)[swap] = rank;
    ((int64_t *)at->recvnum)[swap] = n;
    at->nghost += n;
}

void swaps_free(swaps *all) {
    for (int r = 0; r < all->world; r++) {
        lierne_halo_spec *s = &all->rank[r];
        for (int i = 0; i < s->nswap; i++) {
            free((void *)s->sendlist[i]);
        }
        free((void *)s->sendproc), free((void *)s->recvproc);
        free((void *)s->sendnum), free((void *)s->recvnum), free((void *)s->sendlist);
    }
}

void swaps_random(swaps *all, int world, uint64_t seed) {
    int nswap = (int)draw(&seed, 7), to[ROWS_WORLD];
    int64_t filled[ROWS_WORLD], list[64];
    *all = (swaps){.world = world};
    for (int r = 0; r < world; r++) {
        swaps_room(all, r, draw(&seed, 3) ? (int64_t)draw(&seed, 7) : 0, nswap);
    }
    for (int s = 0; s < nswap; s++) {
        for (int r = 0; r < world; r++) {
            int other = (int)draw(&seed, (uint64_t)r + 1);
            filled[r] = all->rank[r].nlocal + all->rank[r].nghost;
            to[r] = to[other];
            to[other] = r;
        }
        for (int r = 0; r < world; r++) {
            int64_t n = filled[r] ? (int64_t)draw(&seed, 9) : 0;
            for (int64_t i = 0; i < n; i++) {
                list[i] = (int64_t)draw(&seed, (uint64_t)filled[r]);
            }
            swaps_put(all, r, s, to[r], list, n);
        }
    }
}

/* Numbers of any length from each rank, one after the other. */
static int64_t *gather(const int64_t *own, int n, int *counts, int *offsets) {
    int total = 0;
    MPI_Allgather(&n, 1, MPI_INT, counts, 1, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < test_world; r++) {
        offsets[r] = total;
        total += counts[r];
    }
    int64_t *all = malloc(((size_t)total + 1) * sizeof *all);
    MPI_Allgatherv(own, n, MPI_INT64_T, all, counts, offsets, MPI_INT64_T, MPI_COMM_WORLD);
    return all;
}

void swaps_gather(swaps *all, const lierne_halo_spec *own) {
    int counts[ROWS_WORLD], offsets[ROWS_WORLD], used = 0;
    int64_t rows = 2;
    for (int s = 0; s < own->nswap; s++) {
        rows += own->sendnum[s] + 2;
    }
    int64_t *part = malloc((size_t)rows * sizeof *part);
    part[used++] = own->nlocal;
    for (int s = 0; s < own->nswap; s++) {
        part[used++] = own->sendproc[s];
        part[used++] = own->sendnum[s];
        for (int64_t i = 0; i < own->sendnum[s]; i++) {
            part[used++] = own->sendlist[s][i];
        }
    }
    int64_t *world = gather(part, used, counts, offsets);
    *all = (swaps){.world = test_world};
    for (int r = 0; r < test_world; r++) {
        swaps_room(all, r, world[offsets[r]], own->nswap);
    }
    for (int r = 0; r < test_world; r++) {
        const int64_t *at = world + offsets[r] + 1;
        for (int s = 0; s < own->nswap; s++) {
            swaps_put(all, r, s, (int)at[0], at + 2, at[1]);
            at += at[1] + 2;
        }
    }
    free(part), free(world);
}

void swaps_forest(const swaps *all, forest *out) {
    root *labels[ROWS_WORLD];
    int64_t filled[ROWS_WORLD], got[ROWS_WORLD];
    *out = (forest){.world = all->world};
    for (int r = 0; r < all->world; r++) {
        const lierne_halo_spec *s = &all->rank[r];
        labels[r] = malloc(((size_t)(s->nlocal + s->nghost) + 1) * sizeof(root));
        filled[r] = out->nowned[r] = s->nlocal;
        out->nghosts[r] = s->nghost;
        for (int64_t i = 0; i < s->nlocal; i++) {
            labels[r][i] = (root){r, i};
        }
    }
    for (int swap = 0; swap < all->rank[0].nswap; swap++) {
        for (int r = 0; r < all->world; r++) {
            const lierne_halo_spec *s = &all->rank[r];
            int to = s->sendproc[swap];
            got[to] = s->sendnum[swap];
            for (int64_t i = 0; i < got[to]; i++) {
                labels[to][filled[to] + i] = labels[r][s->sendlist[swap][i]];
            }
        }
        for (int r = 0; r < all->world; r++) {
            filled[r] += got[r];
        }
    }
    for (int r = 0; r < all->world; r++) {
        out->ghosts[r] = malloc(((size_t)out->nghosts[r] + 1) * sizeof(root));
        memcpy(out->ghosts[r], labels[r] + out->nowned[r], (size_t)out->nghosts[r] * sizeof(root));
        free(labels[r]);
    }
}

void swaps_adjoint(const swaps *all, const shape *s, bool keep_ghosts, int rank, double *rows) {
    double *at[ROWS_WORLD];
    int64_t filled[ROWS_WORLD];
    for (int r = 0; r < all->world; r++) {
        filled[r] = all->rank[r].nlocal + all->rank[r].nghost;
        at[r] = malloc((size_t)(filled[r] * s->width + 1) * sizeof(double));
        for (int64_t i = 0; i < filled[r] * s->width; i++) {
            at[r][i] = shape_cell(s, GRADIENTS, r, i / s->width, i % s->width);
        }
    }
    for (int swap = all->rank[0].nswap - 1; swap >= 0; swap--) {
        for (int r = 0; r < all->world; r++) {
            filled[r] -= all->rank[r].recvnum[swap];
        }
        for (int r = 0; r < all->world; r++) {
            const lierne_halo_spec *own = &all->rank[r];
            const double *ghosts = at[own->sendproc[swap]];
            for (int64_t i = 0; i < own->sendnum[swap] * s->width; i++) {
                double *to = &at[r][own->sendlist[swap][i / s->width] * s->width + i % s->width];
                *to = shape_add(s, *to, ghosts[filled[own->sendproc[swap]] * s->width + i]);
            }
        }
    }
    const lierne_halo_spec *own = &all->rank[rank];
    bool zero = own->nswap > 0 && !keep_ghosts;
    for (int64_t i = 0; i < (own->nlocal + own->nghost) * s->width; i++) {
        rows[i] = zero && i >= own->nlocal * s->width ? 0 : at[rank][i];
    }
    for (int r = 0; r < all->world; r++) {
        free(at[r]);
    }
}

/* Rows before each one that are kept. */
static int64_t *kept_before(const uint8_t *keep, int64_t n) {
    int64_t *before = malloc(((size_t)n + 1) * sizeof *before);
    before[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        before[i + 1] = before[i] + (keep[i] != 0);
    }
    return before;
}

void swaps_restrict(const swaps *all, uint8_t *const *keep, swaps *out) {
    int nswap = all->rank[0].nswap;
    *out = (swaps){.world = all->world};
    for (int r = 0; r < all->world; r++) {
        int64_t nlocal = 0;
        for (int64_t i = 0; i < all->rank[r].nlocal; i++) {
            nlocal += keep[r][i] != 0;
        }
        swaps_room(out, r, nlocal, nswap);
    }
    for (int r = 0; r < all->world; r++) {
        const lierne_halo_spec *s = &all->rank[r];
        int64_t *before = kept_before(keep[r], s->nlocal + s->nghost);
        for (int swap = 0; swap < nswap; swap++) {
            int64_t n = 0, *list = malloc(((size_t)s->sendnum[swap] + 1) * sizeof *list);
            for (int64_t i = 0; i < s->sendnum[swap]; i++) {
                int64_t row = s->sendlist[swap][i];
                if (keep[r][row]) {
                    list[n++] = before[row];
                }
            }
            swaps_put(out, r, swap, s->sendproc[swap], list, n);
            free(list);
        }
        free(before);
    }
}
