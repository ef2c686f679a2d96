/* Dense halos by lierne, and by MPI's neighborhood collective with derived datatypes.
 *
 * MPI_Neighbor_alltoallw takes one datatype per neighbor: here a struct of the subarrays of all
 * boxes that the two ranks exchange, so that no neighbor is listed twice. It has no adjoint:
 * gradients arrive packed and are added by hand, in the order of ranks, and margins are set to
 * zero, as lierne leaves them. */
#include "bench/dense.h"

#include <stdlib.h>
#include <string.h>

/* Both sides of every row that is contiguous in a box of one buffer and in one of another. */
void dense_row_pairs(const dense *w, const int64_t *shape, const int64_t *start,
                     const int64_t *other_shape, const int64_t *other_start, const int64_t *size,
                     dense_row *row, void *with) {
    int64_t run = 1, steps[2][AXES], i[AXES] = {0}, at[2] = {0};
    int outer = w->naxes;
    for (int k = w->naxes - 1; k >= 0; k--) {
        steps[0][k] = k + 1 < w->naxes ? steps[0][k + 1] * shape[k + 1] : 1;
        steps[1][k] = k + 1 < w->naxes ? steps[1][k + 1] * other_shape[k + 1] : 1;
        at[0] += start[k] * steps[0][k];
        at[1] += other_start[k] * steps[1][k];
    }
    do {
        run *= size[--outer];
    } while (outer > 0 && size[outer] == shape[outer] && size[outer] == other_shape[outer]);
    for (;;) {
        row(with, (size_t)at[0] * w->element, (size_t)at[1] * w->element, (size_t)run * w->element);
        int k = outer - 1;
        while (k >= 0 && ++i[k] == size[k]) {
            at[0] -= (i[k] - 1) * steps[0][k];
            at[1] -= (i[k] - 1) * steps[1][k];
            i[k--] = 0;
        }
        if (k < 0) {
            return;
        }
        at[0] += steps[0][k];
        at[1] += steps[1][k];
    }
}

void dense_rows(const dense *w, const int64_t *shape, const int64_t *start, const int64_t *size,
                dense_row *row, void *with) {
    const int64_t zeros[AXES] = {0};
    dense_row_pairs(w, shape, start, size, zeros, size, row, with);
}

static void add_bf16(uint16_t *restrict to, const uint16_t *restrict from, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t a = (uint32_t)to[i] << 16, b = (uint32_t)from[i] << 16, bits;
        float x, y;
        memcpy(&x, &a, sizeof x);
        memcpy(&y, &b, sizeof y);
        x += y;
        memcpy(&bits, &x, sizeof bits);
        to[i] = (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    }
}

static void add_f32(float *restrict to, const float *restrict from, size_t n) {
    for (size_t i = 0; i < n; i++) {
        to[i] += from[i];
    }
}

static void add_f64(double *restrict to, const double *restrict from, size_t n) {
    for (size_t i = 0; i < n; i++) {
        to[i] += from[i];
    }
}

void dense_add(const dense *w, char *to, const char *from, size_t bytes) {
    size_t n = bytes / w->element;
    if (w->dtype == LIERNE_DTYPE_F64) {
        add_f64((void *)to, (const void *)from, n);
    } else if (w->dtype == LIERNE_DTYPE_F32) {
        add_f32((void *)to, (const void *)from, n);
    } else {
        add_bf16((void *)to, (const void *)from, n);
    }
}

/* --- lierne --- */

typedef struct planned {
    method base;
    lierne_context *context; /* of its own, or NULL where it is the workload's */
    lierne_plan *plan;
    char *in[2], *out[2];
} planned;

static bool run_plan(method *m, int direction) {
    planned *p = (planned *)m;
    return (direction == FORWARD ? lierne_plan_forward
                                 : lierne_plan_adjoint)(p->plan, p->out[direction],
                                                        p->in[direction], NULL) == LIERNE_OK;
}

static void close_plan(method *m) {
    planned *p = (planned *)m;
    CHECK_OK(lierne_plan_destroy(p->plan));
    CHECK_OK(lierne_context_destroy(p->context));
    free(p);
}

/* No rank receives more than it must, and images not at all. */
static void check_bytes(const dense *w, const lierne_plan *plan) {
    lierne_report report = {.size = sizeof report};
    CHECK_OK(lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_FORWARD));
    int64_t all;
    MPI_Allreduce(&report.received_bytes, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    CHECK(all <= dense_margins(w) && report.received_bytes == report.min_bytes,
          "%s: %lld bytes are received, margins have %lld", w->name, (long long)all,
          (long long)dense_margins(w));
}

static planned *open_plan(const dense *w, const lierne_layout *src, const lierne_layout *dst,
                          char *part, char *halo) {
    planned *p = (planned *)(void *)take(sizeof *p);
    lierne_redistribute_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    spec.accumulate = dst == w->alone;
    CHECK_OK(lierne_plan_create_redistribute(&p->plan, w->context, &spec));
    p->base = (method){.workload = w,
                       .run = run_plan,
                       .before = dense_rewrite,
                       .owns_inputs = true,
                       .checked = true,
                       .result = {halo, part}};
    p->in[FORWARD] = p->out[ADJOINT] = part;
    p->in[ADJOINT] = p->out[FORWARD] = halo;
    check_bytes(w, p->plan);
    return p;
}

static method *open_place(const void *of) {
    const dense *w = of;
    return &open_plan(w, w->halo, w->halo, w->place, w->place)->base;
}

static method *open_padded(const void *of) {
    const dense *w = of;
    return &open_plan(w, w->plain, w->halo, w->part, w->padded)->base;
}

static method *open_margins(const void *of) {
    const dense *w = of;
    return &open_plan(w, w->plain, w->alone, w->part, w->margins)->base;
}

static method *open_over_mpi(const void *of) {
    dense w = *(const dense *)of;
    setenv("LIERNE_TRANSPORTS", "mpi", 1);
    CHECK_OK(lierne_context_create_mpi(&w.context, MPI_COMM_WORLD, NULL));
    planned *p = open_plan(&w, w.halo, w.halo, w.place, w.place);
    p->base.workload = of;
    p->context = w.context;
    return &p->base;
}

const method_kind dense_place = {"lierne, in place", open_place, close_plan};
const method_kind dense_padded = {"lierne, padded", open_padded, close_plan};
const method_kind dense_margin_storage = {"lierne, margins", open_margins, close_plan};
const method_kind dense_over_mpi = {"lierne over MPI", open_over_mpi, close_plan};

/* --- MPI_Neighbor_alltoallw --- */

enum { PEERS = 64 };

typedef struct neighbor {
    method base;
    MPI_Comm comm;
    int n;
    int ranks[PEERS], ones[PEERS], bytes[PEERS];
    MPI_Aint zeros[PEERS], offsets[PEERS]; /* of packed gradients */
    MPI_Datatype shown[PEERS], owned[PEERS], packed[PEERS];
    char *gradients;
} neighbor;

static bool is_peer(const dense *w, int rank) {
    for (size_t i = 0; i < w->nboxes; i++) {
        const dense_box *b = &w->boxes[i];
        if ((b->from == rank && b->to == test_rank) || (b->to == rank && b->from == test_rank)) {
            return true;
        }
    }
    return false;
}

/* All boxes from one rank to another, at their place in the buffer of the rank that shows them or
 * of the one that owns them; *bytes of them. */
static MPI_Datatype type_of(const dense *w, int from, int to, bool shown, int *bytes) {
    MPI_Datatype *parts = (void *)take((w->nboxes + 1) * sizeof *parts), element, all;
    int *ones = (void *)take((w->nboxes + 1) * sizeof *ones), n = 0;
    MPI_Aint *zeros = (void *)take((w->nboxes + 1) * sizeof *zeros);
    *bytes = 0;
    MPI_Type_contiguous((int)w->element, MPI_BYTE, &element);
    for (size_t i = 0; i < w->nboxes; i++) {
        const dense_box *b = &w->boxes[i];
        int shape[AXES], size[AXES], start[AXES], elements = 1;
        if (b->from != from || b->to != to) {
            continue;
        }
        for (int k = 0; k < w->naxes; k++) {
            shape[k] = (int)w->shapes[test_rank][k];
            size[k] = (int)b->size[k];
            start[k] = (int)(shown ? b->here[k] : b->there[k]);
            elements *= size[k];
        }
        MPI_Type_create_subarray(w->naxes, shape, size, start, MPI_ORDER_C, element, &parts[n]);
        ones[n++] = 1;
        *bytes += elements * (int)w->element;
    }
    MPI_Type_create_struct(n, ones, zeros, parts, &all);
    MPI_Type_commit(&all);
    for (int i = 0; i < n; i++) {
        MPI_Type_free(&parts[i]);
    }
    MPI_Type_free(&element);
    free(parts);
    free(ones);
    free(zeros);
    return all;
}

static void zero_row(void *with, size_t at, size_t packed, size_t bytes) {
    (void)packed;
    memset((char *)with + at, 0, bytes);
}

void dense_clear_margins(const dense *w, char *buffer) {
    for (size_t i = 0; i < w->nboxes; i++) {
        if (w->boxes[i].to == test_rank) {
            dense_rows(w, w->shapes[test_rank], w->boxes[i].here, w->boxes[i].size, zero_row,
                       buffer);
        }
    }
}

void dense_add_row(void *with, size_t at, size_t packed, size_t bytes) {
    const dense_sides *a = with;
    dense_add(a->w, a->to + at, a->from + packed, bytes);
}

static bool run_neighbor(method *m, int direction) {
    neighbor *h = (neighbor *)m;
    const dense *w = m->workload;
    if (direction == FORWARD) {
        return MPI_Neighbor_alltoallw(w->place, h->ones, h->zeros, h->owned, w->place, h->ones,
                                      h->zeros, h->shown, h->comm) == MPI_SUCCESS;
    }
    bool ok = MPI_Neighbor_alltoallw(w->place, h->ones, h->zeros, h->shown, h->gradients, h->bytes,
                                     h->offsets, h->packed, h->comm) == MPI_SUCCESS;
    for (int i = 0; i < h->n; i++) {
        dense_sides a = {w, w->place, h->gradients + h->offsets[i]};
        for (size_t j = 0; j < w->nboxes; j++) {
            const dense_box *b = &w->boxes[j];
            if (b->from == test_rank && b->to == h->ranks[i]) {
                int64_t elements = 1;
                dense_rows(w, w->shapes[test_rank], b->there, b->size, dense_add_row, &a);
                for (int k = 0; k < w->naxes; k++) {
                    elements *= b->size[k];
                }
                a.from += (size_t)elements * w->element;
            }
        }
    }
    dense_clear_margins(w, w->place);
    return ok;
}

static void close_neighbor(method *m) {
    neighbor *h = (neighbor *)m;
    for (int i = 0; i < h->n; i++) {
        MPI_Type_free(&h->shown[i]);
        MPI_Type_free(&h->owned[i]);
    }
    MPI_Comm_free(&h->comm);
    free(h->gradients);
    free(h);
}

static method *open_neighbor(const void *of) {
    const dense *w = of;
    neighbor *h = (neighbor *)(void *)take(sizeof *h);
    MPI_Aint total = 0;
    for (int r = 0; r < test_world && h->n < PEERS; r++) {
        int n = h->n, shown;
        if (is_peer(w, r)) {
            h->ranks[n] = r;
            h->ones[n] = 1;
            h->shown[n] = type_of(w, r, test_rank, true, &shown);
            h->owned[n] = type_of(w, test_rank, r, false, &h->bytes[n]);
            h->packed[n] = MPI_BYTE;
            h->offsets[n] = total;
            total += h->bytes[n];
            h->n++;
        }
    }
    h->gradients = take((size_t)total + 1);
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, h->n, h->ranks, h->ones, h->n, h->ranks, h->ones,
                                   MPI_INFO_NULL, 0, &h->comm);
    h->base = (method){.workload = w,
                       .run = run_neighbor,
                       .before = dense_rewrite,
                       .owns_inputs = true,
                       .checked = true,
                       .result = {w->place, w->place}};
    return &h->base;
}

const method_kind dense_neighbor = {"MPI_Neighbor_alltoallw", open_neighbor, close_neighbor};
