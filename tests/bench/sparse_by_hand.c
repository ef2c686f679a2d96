/* A graph exchange as a good engineer writes it without lierne: contiguous rows are sent in place,
 * others are packed first; ghosts are received in place; gradients are added in the order of
 * arrival. neighbor: the same through MPI_Neighbor_alltoallv, which needs all rows packed in one
 * buffer.
 *
 * Halo swaps by hand are those of MD programs: blocking, one after the other, each with its
 * packing. */
#include "bench/sparse.h"

#include <stdlib.h>
#include <string.h>

void rows_pack(const sparse *w, char *to, const char *from, const int64_t *rows, int64_t n) {
    if (w->row == 8) {
        uint64_t *restrict words = (uint64_t *)(void *)to;
        const uint64_t *restrict source = (const uint64_t *)(const void *)from;
        for (int64_t i = 0; i < n; i++) {
            words[i] = source[rows[i]];
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + (size_t)i * w->row, from + (size_t)rows[i] * w->row, w->row);
    }
}

static void add_f64(double *restrict to, const double *restrict from, const int64_t *restrict rows,
                    int64_t n, int64_t width) {
    if (width == 1) {
        for (int64_t i = 0; i < n; i++) {
            to[rows[i]] += from[i];
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t c = 0; c < width; c++) {
            to[rows[i] * width + c] += from[i * width + c];
        }
    }
}

static void add_f32(float *restrict to, const float *restrict from, const int64_t *restrict rows,
                    int64_t n, int64_t width) {
    for (int64_t i = 0; i < n; i++) {
        for (int64_t c = 0; c < width; c++) {
            to[rows[i] * width + c] += from[i * width + c];
        }
    }
}

void rows_add(const sparse *w, char *to, const char *from, const int64_t *rows, int64_t n) {
    if (w->dtype == LIERNE_DTYPE_F64) {
        add_f64((double *)(void *)to, (const double *)(const void *)from, rows, n, w->width);
    } else {
        add_f32((float *)(void *)to, (const float *)(const void *)from, rows, n, w->width);
    }
}

typedef struct hand {
    method base;
    MPI_Request *requests;
    MPI_Request *persistent[2]; /* per direction: of the ghosts, then of the rows that are given */
    char *packed;               /* as many rows as are given */
    bool *straight;     /* of each lot that is given: whether its rows lie one after the other */
    MPI_Comm comms[2];  /* of the neighbours, per direction */
    int *taken, *given; /* bytes of each lot, then where it begins */
} hand;

static hand *open_hand(const sparse *w, bool (*run)(method *, int)) {
    hand *h = (hand *)take(sizeof *h);
    h->base = (method){.workload = w, .run = run, .checked = true};
    h->packed = take((size_t)w->ngiven * w->row);
    h->comms[FORWARD] = h->comms[ADJOINT] = MPI_COMM_NULL;
    return h;
}

static void close_hand(method *m) {
    hand *h = (hand *)m;
    for (int d = FORWARD; d <= ADJOINT; d++) {
        if (h->comms[d] != MPI_COMM_NULL) {
            MPI_Comm_free(&h->comms[d]);
        }
    }
    free(h->requests);
    free(h->straight);
    free(h->packed);
    free(h->taken);
    free(h->given);
    free(h);
}

static int bytes_of(const sparse *w, int64_t rows) {
    return (int)((size_t)rows * w->row);
}

static char *row_of(const sparse *w, char *rows, int64_t i) {
    return rows + (size_t)i * w->row;
}

static void forward_direct(const hand *h, const sparse *w) {
    char *owned = w->owned[FORWARD];
    for (int i = 0; i < w->ntakes; i++) {
        const lot *l = &w->takes[i];
        MPI_Irecv(row_of(w, w->ghosts[FORWARD], l->first), bytes_of(w, l->n), MPI_BYTE, l->rank, 0,
                  MPI_COMM_WORLD, &h->requests[i]);
    }
    for (int i = 0; i < w->ngives; i++) {
        const lot *l = &w->gives[i];
        const int64_t *rows = w->given_rows + l->first;
        char *from = h->straight[i] ? row_of(w, owned, rows[0]) : row_of(w, h->packed, l->first);
        if (!h->straight[i]) {
            rows_pack(w, from, owned, rows, l->n);
        }
        MPI_Isend(from, bytes_of(w, l->n), MPI_BYTE, l->rank, 0, MPI_COMM_WORLD,
                  &h->requests[w->ntakes + i]);
    }
    MPI_Waitall(w->ntakes + w->ngives, h->requests, MPI_STATUSES_IGNORE);
}

static void adjoint_direct(const hand *h, const sparse *w) {
    int n = w->ntakes + w->ngives, at;
    for (int i = 0; i < w->ngives; i++) {
        const lot *l = &w->gives[i];
        MPI_Irecv(row_of(w, h->packed, l->first), bytes_of(w, l->n), MPI_BYTE, l->rank, 1,
                  MPI_COMM_WORLD, &h->requests[i]);
    }
    for (int i = 0; i < w->ntakes; i++) {
        const lot *l = &w->takes[i];
        MPI_Isend(row_of(w, w->ghosts[ADJOINT], l->first), bytes_of(w, l->n), MPI_BYTE, l->rank, 1,
                  MPI_COMM_WORLD, &h->requests[w->ngives + i]);
    }
    for (int done = 0; done < n; done++) {
        MPI_Waitany(n, h->requests, &at, MPI_STATUS_IGNORE);
        if (at < w->ngives) {
            const lot *l = &w->gives[at];
            rows_add(w, w->owned[ADJOINT], row_of(w, h->packed, l->first), w->given_rows + l->first,
                     l->n);
        }
    }
}

static bool run_direct(method *m, int direction) {
    (direction == FORWARD ? forward_direct : adjoint_direct)((hand *)m, m->workload);
    return true;
}

static method *open_direct(const void *of) {
    const sparse *w = of;
    hand *h = open_hand(w, run_direct);
    h->requests = (MPI_Request *)take((size_t)(w->ntakes + w->ngives + 1) * sizeof *h->requests);
    h->straight = (bool *)take((size_t)w->ngives * sizeof *h->straight);
    for (int i = 0; i < w->ngives; i++) {
        const int64_t *rows = w->given_rows + w->gives[i].first;
        h->straight[i] = true;
        for (int64_t k = 1; k < w->gives[i].n; k++) {
            h->straight[i] = h->straight[i] && rows[k] == rows[k - 1] + 1;
        }
    }
    return &h->base;
}

const method_kind direct_mpi = {"isend, irecv by hand", open_direct, close_hand};

/* The same with requests that are made once. */
static void make_request(MPI_Request *r, bool receives, char *rows, int bytes, int rank) {
    if (receives) {
        MPI_Recv_init(rows, bytes, MPI_BYTE, rank, 0, MPI_COMM_WORLD, r);
    } else {
        MPI_Send_init(rows, bytes, MPI_BYTE, rank, 0, MPI_COMM_WORLD, r);
    }
}

static void make_requests(const hand *h, const sparse *w, int d) {
    MPI_Request *r = h->persistent[d];
    for (int i = 0; i < w->ntakes; i++) {
        const lot *l = &w->takes[i];
        make_request(r++, d == FORWARD, row_of(w, w->ghosts[d], l->first), bytes_of(w, l->n),
                     l->rank);
    }
    for (int i = 0; i < w->ngives; i++) {
        const lot *l = &w->gives[i];
        bool in_place = d == FORWARD && h->straight[i];
        make_request(r++, d == ADJOINT,
                     in_place ? row_of(w, w->owned[d], w->given_rows[l->first])
                              : row_of(w, h->packed, l->first),
                     bytes_of(w, l->n), l->rank);
    }
}

static bool run_persistent(method *m, int direction) {
    const hand *h = (const hand *)m;
    const sparse *w = m->workload;
    MPI_Request *r = h->persistent[direction];
    int n = w->ntakes + w->ngives, at;
    for (int i = 0; direction == FORWARD && i < w->ngives; i++) {
        const lot *l = &w->gives[i];
        if (!h->straight[i]) {
            rows_pack(w, row_of(w, h->packed, l->first), w->owned[FORWARD],
                      w->given_rows + l->first, l->n);
        }
    }
    MPI_Startall(n, r);
    for (int done = 0; direction == ADJOINT && done < n; done++) {
        MPI_Waitany(n, r, &at, MPI_STATUS_IGNORE);
        if (at >= w->ntakes) {
            const lot *l = &w->gives[at - w->ntakes];
            rows_add(w, w->owned[ADJOINT], row_of(w, h->packed, l->first), w->given_rows + l->first,
                     l->n);
        }
    }
    MPI_Waitall(n, r, MPI_STATUSES_IGNORE);
    return true;
}

static method *open_persistent(const void *of) {
    const sparse *w = of;
    hand *h = (hand *)open_direct(of);
    h->base.run = run_persistent;
    for (int d = FORWARD; d <= ADJOINT; d++) {
        h->persistent[d] =
            (MPI_Request *)take((size_t)(w->ntakes + w->ngives + 1) * sizeof(MPI_Request));
        make_requests(h, w, d);
    }
    return &h->base;
}

static void close_persistent(method *m) {
    const hand *h = (const hand *)m;
    const sparse *w = m->workload;
    for (int d = FORWARD; d <= ADJOINT; d++) {
        for (int i = 0; i < w->ntakes + w->ngives; i++) {
            MPI_Request_free(&h->persistent[d][i]);
        }
        free(h->persistent[d]);
    }
    close_hand(m);
}

const method_kind persistent_mpi = {"persistent by hand", open_persistent, close_persistent};

static bool run_neighbor(method *m, int direction) {
    hand *h = (hand *)m;
    const sparse *w = m->workload;
    if (direction == FORWARD) {
        rows_pack(w, h->packed, w->owned[FORWARD], w->given_rows, w->ngiven);
        MPI_Neighbor_alltoallv(h->packed, h->given, h->given + w->ngives, MPI_BYTE,
                               w->ghosts[FORWARD], h->taken, h->taken + w->ntakes, MPI_BYTE,
                               h->comms[FORWARD]);
        return true;
    }
    MPI_Neighbor_alltoallv(w->ghosts[ADJOINT], h->taken, h->taken + w->ntakes, MPI_BYTE, h->packed,
                           h->given, h->given + w->ngives, MPI_BYTE, h->comms[ADJOINT]);
    rows_add(w, w->owned[ADJOINT], h->packed, w->given_rows, w->ngiven);
    return true;
}

/* Ranks of lots; their bytes and where they begin go to *bytes. */
static int *list_lots(const sparse *w, const lot *lots, int n, int **bytes) {
    int *ranks = (int *)take(((size_t)n + 1) * sizeof *ranks);
    *bytes = (int *)take((2 * (size_t)n + 1) * sizeof **bytes);
    for (int i = 0; i < n; i++) {
        ranks[i] = lots[i].rank;
        (*bytes)[i] = bytes_of(w, lots[i].n);
        (*bytes)[n + i] = bytes_of(w, lots[i].first);
    }
    return ranks;
}

static method *open_neighbor(const void *of) {
    const sparse *w = of;
    hand *h = open_hand(w, run_neighbor);
    int *from = list_lots(w, w->takes, w->ntakes, &h->taken);
    int *to = list_lots(w, w->gives, w->ngives, &h->given);
    /* Bytes are the weights. */
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, w->ntakes, from, h->taken, w->ngives, to,
                                   h->given, MPI_INFO_NULL, 0, &h->comms[FORWARD]);
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, w->ngives, to, h->given, w->ntakes, from,
                                   h->taken, MPI_INFO_NULL, 0, &h->comms[ADJOINT]);
    free(from);
    free(to);
    return &h->base;
}

const method_kind neighbor_mpi = {"MPI_Neighbor_alltoallv", open_neighbor, close_hand};

static void forward_swaps(const hand *h, const sparse *w) {
    const lierne_halo_spec *s = &w->swaps;
    char *rows = w->owned[FORWARD], *at = w->ghosts[FORWARD];
    for (int i = 0; i < s->nswap; i++) {
        bool own = s->sendproc[i] == test_rank;
        rows_pack(w, own ? at : h->packed, rows, s->sendlist[i], s->sendnum[i]);
        if (!own) {
            MPI_Irecv(at, bytes_of(w, s->recvnum[i]), MPI_BYTE, s->recvproc[i], 0, MPI_COMM_WORLD,
                      h->requests);
            MPI_Send(h->packed, bytes_of(w, s->sendnum[i]), MPI_BYTE, s->sendproc[i], 0,
                     MPI_COMM_WORLD);
            MPI_Wait(h->requests, MPI_STATUS_IGNORE);
        }
        at += bytes_of(w, s->recvnum[i]);
    }
}

static void adjoint_swaps(const hand *h, const sparse *w) {
    const lierne_halo_spec *s = &w->swaps;
    char *rows = w->owned[ADJOINT], *at = w->ghosts[ADJOINT] + w->ghost_bytes;
    for (int i = s->nswap - 1; i >= 0; i--) {
        bool own = s->sendproc[i] == test_rank;
        at -= bytes_of(w, s->recvnum[i]);
        if (!own) {
            MPI_Irecv(h->packed, bytes_of(w, s->sendnum[i]), MPI_BYTE, s->sendproc[i], 0,
                      MPI_COMM_WORLD, h->requests);
            MPI_Send(at, bytes_of(w, s->recvnum[i]), MPI_BYTE, s->recvproc[i], 0, MPI_COMM_WORLD);
            MPI_Wait(h->requests, MPI_STATUS_IGNORE);
        }
        rows_add(w, rows, own ? at : h->packed, s->sendlist[i], s->sendnum[i]);
    }
    memset(w->ghosts[ADJOINT], 0, w->ghost_bytes);
}

static bool run_swaps(method *m, int direction) {
    (direction == FORWARD ? forward_swaps : adjoint_swaps)((hand *)m, m->workload);
    return true;
}

static method *open_swaps(const void *of) {
    const sparse *w = of;
    hand *h = open_hand(w, run_swaps);
    int64_t most = 0;
    for (int i = 0; i < w->swaps.nswap; i++) {
        most = w->swaps.sendnum[i] > most ? w->swaps.sendnum[i] : most;
    }
    free(h->packed);
    h->packed = take((size_t)most * w->row);
    h->requests = (MPI_Request *)take(sizeof *h->requests);
    return &h->base;
}

const method_kind swaps_mpi = {"swaps by hand", open_swaps, close_hand};
