/* The model adds in double and rounds each sum to the dtype. This equals the sum rounded once,
 * because double has more than twice the digits of the other types. */
#include "unit/halo_case.h"

#include <string.h>

uint64_t halo_case_pick(uint64_t seed, uint64_t a, uint64_t b, uint64_t n) {
    uint64_t h = seed * 0x9e3779b97f4a7c15u + a * 0xbf58476d1ce4e5b9u + b * 0x94d049bb133111ebu;
    h = (h ^ (h >> 31)) * 0xd6e8feb86659fd93u;
    return (h ^ (h >> 29)) % n;
}

int64_t halo_case_rows(const halo_case *c, int rank) {
    return c->spec[rank].nlocal + c->spec[rank].nghost;
}

static void point(halo_case *c) {
    for (int r = 0; r < c->world; r++) {
        lierne_halo_spec *s = &c->spec[r];
        s->sendproc = c->sendproc[r];
        s->recvproc = c->recvproc[r];
        s->sendnum = c->sendnum[r];
        s->recvnum = c->recvnum[r];
        s->sendlist = c->lists[r];
        for (int i = 0; i < HALO_SWAPS; i++) {
            c->lists[r][i] = c->rows[r][i];
        }
    }
}

/* The sender and receiver of each rank in swap s: a shuffled world. */
static void shuffle(halo_case *c, int s, uint64_t seed) {
    int to[HALO_WORLD];
    for (int r = 0; r < c->world; r++) {
        int other = (int)halo_case_pick(seed, (uint64_t)s, (uint64_t)r + 100, (uint64_t)r + 1);
        to[r] = r;
        to[r] = to[other];
        to[other] = r;
    }
    for (int r = 0; r < c->world; r++) {
        c->sendproc[r][s] = to[r];
        c->recvproc[to[r]][s] = r;
    }
}

static void fill_lists(halo_case *c, int s, uint64_t seed) {
    for (int r = 0; r < c->world; r++) {
        uint64_t filled = (uint64_t)halo_case_rows(c, r), at = (uint64_t)(r * HALO_SWAPS + s);
        int64_t n = filled ? (int64_t)halo_case_pick(seed, at, 200, HALO_LIST) - 2 : 0;
        c->sendnum[r][s] = n > 0 ? n : 0;
        for (int64_t i = 0; i < n; i++) {
            c->rows[r][s][i] = (int64_t)halo_case_pick(seed, at, 300 + (uint64_t)i, filled);
        }
    }
    for (int r = 0; r < c->world; r++) {
        c->recvnum[r][s] = c->sendnum[c->recvproc[r][s]][s];
        c->spec[r].nghost += c->recvnum[r][s];
    }
}

void halo_case_random(halo_case *c, int world, uint64_t seed) {
    int nswap = 1 + (int)halo_case_pick(seed, 1, 0, HALO_SWAPS);
    memset(c, 0, sizeof *c);
    c->world = world;
    point(c);
    for (int r = 0; r < world; r++) {
        int64_t n = (int64_t)halo_case_pick(seed, 2, (uint64_t)r, 9) - 2;
        c->spec[r].size = sizeof c->spec[r];
        c->spec[r].dtype = LIERNE_DTYPE_I64;
        c->spec[r].width = HALO_WIDTH;
        c->spec[r].nswap = nswap;
        c->spec[r].nlocal = n > 0 ? n : 0;
        c->spec[r].nlocal += seed % 8 == 7 && r % 2 == 0 ? 2000 : 0;
    }
    for (int s = 0; s < nswap; s++) {
        shuffle(c, s, seed);
        fill_lists(c, s, seed);
    }
}

static int64_t first_ghost(const halo_case *c, int rank, int swap) {
    int64_t first = c->spec[rank].nlocal;
    for (int s = 0; s < swap; s++) {
        first += c->recvnum[rank][s];
    }
    return first;
}

void halo_model_forward(const halo_case *c, halo_values x) {
    for (int s = 0; s < c->spec[0].nswap; s++) {
        for (int r = 0; r < c->world; r++) {
            int from = c->recvproc[r][s];
            for (int64_t i = 0; i < c->recvnum[r][s]; i++) {
                memcpy(x[r][first_ghost(c, r, s) + i], x[from][c->rows[from][s][i]],
                       sizeof x[0][0]);
            }
        }
    }
}

static double round_to(lierne_dtype dtype, double value) {
    float f = (float)value;
    uint32_t bits;
    if (dtype == LIERNE_DTYPE_F64 || dtype >= LIERNE_DTYPE_I64) {
        return value;
    }
    if (dtype == LIERNE_DTYPE_BF16) { /* nearest, ties to even */
        memcpy(&bits, &f, sizeof bits);
        bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u;
        memcpy(&f, &bits, sizeof f);
    }
    return (double)f;
}

static void add_row(double *to, const double *from, lierne_dtype dtype) {
    for (int e = 0; e < HALO_WIDTH; e++) {
        to[e] = round_to(dtype, to[e] + from[e]);
    }
}

void halo_model_adjoint(const halo_case *c, halo_values x, lierne_dtype dtype, bool keep) {
    for (int s = c->spec[0].nswap - 1; s >= 0; s--) {
        for (int r = 0; r < c->world; r++) {
            int to = c->sendproc[r][s];
            for (int64_t i = 0; i < c->sendnum[r][s]; i++) {
                add_row(x[r][c->rows[r][s][i]], x[to][first_ghost(c, to, s) + i], dtype);
            }
        }
    }
    for (int r = 0; r < c->world && !keep && c->spec[0].nswap > 0; r++) {
        memset(x[r][c->spec[r].nlocal], 0, (size_t)c->spec[r].nghost * sizeof x[0][0]);
    }
}
