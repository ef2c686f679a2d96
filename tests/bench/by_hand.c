/* The same bridge as a good engineer writes it without lierne.
 *
 * naive: the algorithm of the frameworks with MPI's collectives. The gradient is summed over cp
 * into a copy, then narrowed or gathered over the sub-communicator of a wide dp rank. Gathering
 * puts the batch first, so it takes another pass where the batch is not the first axis.
 *
 * optimal: nonblocking messages of exactly the rows that are needed, straight from and to the
 * tensors where they are contiguous, else packed by loops. It relies on what the workloads have in
 * common (aligned dp ranks, one owner per row) and is right for no others. */
#include "bench/bridge.h"

#include <stdlib.h>
#include <string.h>

/* Copies samples [first, first + n) of rows [s0, s1) between a tensor of `samples` samples and
 * memory where they lie packed, in the order of the tensor; returns the end of that memory. */
static char *move_rows(const workload *w, char *tensor, int64_t samples, int64_t first, int64_t n,
                       int64_t s0, int64_t s1, char *packed, bool pack) {
    int64_t outer = w->axis == 0 ? n : s1 - s0;
    int64_t inner = (w->axis == 0 ? s1 - s0 : n) * w->h;
    size_t run = (size_t)inner * w->size;
    for (int64_t i = 0; i < outer; i++, packed += run) {
        int64_t at = w->axis == 0 ? (first + i) * w->s + s0 : (s0 + i) * samples + first;
        char *row = tensor + (size_t)(at * w->h) * w->size;
        memcpy(pack ? packed : row, pack ? row : packed, run);
    }
    return packed;
}

static int64_t share_of(const workload *w, int rank) {
    const mesh *fine = w->fan_in ? &w->src : &w->dst;
    return mesh_coord(fine, rank, "dp") % w->dp_ratio;
}

typedef struct naive {
    method base;
    MPI_Comm gather;
    MPI_Comm cp;
    MPI_Datatype type;
    MPI_Op sum;
    bool own_sum;
    char *clone;
    char *gathered; /* dp rank after dp rank, where the batch is not the first axis */
} naive;

static float widen(uint16_t bits) {
    uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

static uint16_t shorten(float value) {
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

/* MPI has no sum of bf16. */
static void add_bf16(void *in, void *inout, int *n, MPI_Datatype *type) {
    const uint16_t *restrict a = in;
    uint16_t *restrict b = inout;
    (void)type;
    for (int i = 0; i < *n; i++) {
        b[i] = shorten(widen(b[i]) + widen(a[i]));
    }
}

static MPI_Comm split(int color, int key) {
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, color, key, &comm);
    return comm;
}

static bool gather(const naive *n, const char *from, char *to, size_t bytes) {
    const workload *w = n->base.workload;
    int count = (int)(bytes / w->size);
    char *landing = w->axis == 0 ? to : n->gathered;
    MPI_Allgather(from, count, n->type, landing, count, n->type, n->gather);
    for (int k = 0; w->axis != 0 && k < w->dp_ratio; k++) {
        landing = move_rows(w, to, w->narrow * w->dp_ratio, k * w->narrow, w->narrow, 0, w->s,
                            landing, false);
    }
    return true;
}

/* A slice of the leading axis is a view. */
static bool narrow(naive *n, char *from, int direction) {
    const workload *w = n->base.workload;
    int64_t first = share_of(w, test_rank) * w->narrow;
    if (w->axis == 0) {
        n->base.result[direction] = from + (size_t)(first * w->s * w->h) * w->size;
        return true;
    }
    n->base.result[direction] = w->out[direction];
    move_rows(w, from, w->narrow * w->dp_ratio, first, w->narrow, 0, w->s, w->out[direction], true);
    return true;
}

static bool run_naive(method *m, int direction) {
    naive *n = (naive *)m;
    const workload *w = m->workload;
    char *from = w->in[direction];
    size_t bytes = w->bytes[direction][0];
    if (direction == ADJOINT && w->cp > 1) {
        MPI_Allreduce(from, n->clone, (int)(bytes / w->size), n->type, n->sum, n->cp);
        from = n->clone;
    }
    return w->fan_in == (direction == FORWARD) ? gather(n, from, w->out[direction], bytes)
                                               : narrow(n, from, direction);
}

static void close_naive(method *m) {
    naive *n = (naive *)m;
    MPI_Comm_free(&n->gather);
    MPI_Comm_free(&n->cp);
    if (n->own_sum) {
        MPI_Op_free(&n->sum);
    }
    free(n->clone);
    free(n->gathered);
    free(n);
}

static method *open_naive(const void *of) {
    const workload *w = of;
    if (w->disjoint) {
        return NULL;
    }
    naive *n = (naive *)take(sizeof *n);
    const mesh *fine = w->fan_in ? &w->src : &w->dst;
    int wide = mesh_coord(fine, test_rank, "dp") / w->dp_ratio;
    int rest = mesh_coord(fine, test_rank, "tp") * w->cp + mesh_coord(fine, test_rank, "cp");
    int d = mesh_coord(&w->dst, test_rank, "dp"), t = mesh_coord(&w->dst, test_rank, "tp");
    n->gather = split(wide * test_world + rest, test_rank);
    n->cp = split(d * test_world + t, test_rank);
    n->own_sum = w->dtype == LIERNE_DTYPE_BF16;
    n->type = n->own_sum ? MPI_UINT16_T : MPI_FLOAT;
    n->sum = MPI_SUM;
    if (n->own_sum) {
        MPI_Op_create(add_bf16, 1, &n->sum);
    }
    n->clone = take(w->bytes[ADJOINT][0]);
    n->gathered = take(w->fan_in ? w->bytes[FORWARD][1] : w->bytes[ADJOINT][1]);
    n->base = (method){.workload = w,
                       .run = run_naive,
                       .checked = true,
                       .result = {w->out[FORWARD], w->out[ADJOINT]}};
    return &n->base;
}

const method_kind naive_mpi = {"naive MPI", open_naive, close_naive};

/* A rank that this one exchanges rows with, itself too. */
typedef struct partner {
    int rank;
    int64_t share; /* index of its narrow dp rank within the wide one's batch */
    int cp;
    char *outgoing; /* packed rows; NULL where they are sent as they lie */
    char *incoming;
} partner;

typedef struct optimal {
    method base;
    int n;
    partner *partners[2]; /* per direction; the first n, this rank the last */
    int count[2];
    MPI_Request *requests;
} optimal;

/* Rows of the gradient that a cp rank owns: chunks c and 2 cp - 1 - c, all of them without cp. */
static int chunks(const workload *w, int cp, int64_t at[2][2]) {
    int64_t size = w->s / (2 * w->cp);
    if (w->cp == 1) {
        at[0][0] = 0;
        at[0][1] = w->s;
        return 1;
    }
    at[0][0] = cp * size;
    at[1][0] = (2 * w->cp - 1 - cp) * size;
    at[0][1] = at[0][0] + size;
    at[1][1] = at[1][0] + size;
    return 2;
}

/* What passes between two ranks: samples of the one tensor, rows of an owner. */
typedef struct part {
    char *tensor;
    int64_t samples; /* of the tensor */
    int64_t first;
    int64_t n;
    int cp; /* owner of the rows, -1: all rows */
} part;

static size_t part_bytes(const workload *w, const part *p) {
    return (size_t)(p->n * w->s / (p->cp < 0 ? 1 : w->cp) * w->h) * w->size;
}

static bool lies_packed(const workload *w, const part *p) {
    return p->cp < 0 && (w->axis == 0 || p->n == p->samples);
}

static char *start_of(const workload *w, const part *p) {
    int64_t at = w->axis == 0 ? p->first * w->s : p->first;
    return p->tensor + (size_t)(at * w->h) * w->size;
}

static void move_part(const workload *w, const part *p, char *packed, bool pack) {
    int64_t at[2][2] = {{0, w->s}, {0, 0}};
    int n = p->cp < 0 ? 1 : chunks(w, p->cp, at);
    for (int i = 0; i < n; i++) {
        packed =
            move_rows(w, p->tensor, p->samples, p->first, p->n, at[i][0], at[i][1], packed, pack);
    }
}

/* The rows of the partner in this rank's output, or of this rank for the partner in its input. */
static part part_of(const workload *w, int direction, const partner *p, bool incoming) {
    bool gathers = w->fan_in == (direction == FORWARD);
    bool one = gathers != incoming; /* the tensor at this end is that of a narrow dp rank */
    bool owned = direction == ADJOINT && w->cp > 1;
    return (part){.tensor = incoming ? w->out[direction] : w->in[direction],
                  .samples = one ? w->narrow : w->narrow * w->dp_ratio,
                  .first = one ? 0 : p->share * w->narrow,
                  .n = w->narrow,
                  .cp = !owned     ? -1
                        : incoming ? p->cp
                                   : mesh_coord(&w->dst, test_rank, "cp")};
}

static void copy_own(const workload *w, int direction, const partner *own) {
    part from = part_of(w, direction, own, false), to = part_of(w, direction, own, true);
    int64_t at[2][2] = {{0, w->s}, {0, 0}};
    int n = from.cp < 0 ? 1 : chunks(w, from.cp, at);
    for (int i = 0; i < n; i++) {
        int64_t outer = w->axis == 0 ? from.n : at[i][1] - at[i][0];
        int64_t run = (w->axis == 0 ? at[i][1] - at[i][0] : from.n) * w->h;
        for (int64_t k = 0; k < outer; k++) {
            int64_t s = at[i][0];
            int64_t a =
                w->axis == 0 ? (from.first + k) * w->s + s : (s + k) * from.samples + from.first;
            int64_t b = w->axis == 0 ? (to.first + k) * w->s + s : (s + k) * to.samples + to.first;
            memcpy(to.tensor + (size_t)(b * w->h) * w->size,
                   from.tensor + (size_t)(a * w->h) * w->size, (size_t)run * w->size);
        }
    }
}

static void post(optimal *o, int direction) {
    const workload *w = o->base.workload;
    int n = o->count[direction] - 1;
    for (int i = 0; i < n; i++) {
        const partner *p = &o->partners[direction][i];
        part in = part_of(w, direction, p, true);
        MPI_Irecv(p->incoming ? p->incoming : start_of(w, &in), (int)part_bytes(w, &in), MPI_BYTE,
                  p->rank, direction, MPI_COMM_WORLD, &o->requests[i]);
    }
    for (int i = 0; i < n; i++) {
        const partner *p = &o->partners[direction][i];
        part out = part_of(w, direction, p, false);
        if (p->outgoing) {
            move_part(w, &out, p->outgoing, true);
        }
        MPI_Isend(p->outgoing ? p->outgoing : start_of(w, &out), (int)part_bytes(w, &out), MPI_BYTE,
                  p->rank, direction, MPI_COMM_WORLD, &o->requests[n + i]);
    }
}

static bool run_optimal(method *m, int direction) {
    optimal *o = (optimal *)m;
    const workload *w = m->workload;
    int n = o->count[direction] - 1, i;
    if (m->result[direction] != w->out[direction]) {
        return true;
    }
    post(o, direction);
    copy_own(w, direction, &o->partners[direction][n]);
    for (int done = 0; done < 2 * n; done++) {
        MPI_Waitany(2 * n, o->requests, &i, MPI_STATUS_IGNORE);
        const partner *p = &o->partners[direction][i < n ? i : 0];
        if (i < n && p->incoming) {
            part in = part_of(w, direction, p, true);
            move_part(w, &in, p->incoming, false);
        }
    }
    return true;
}

/* Whether a rank sends to this one: the same wide dp rank, and of its replicas the one with this
 * rank's index among them. */
static bool supplies(const workload *w, int direction, int rank) {
    const mesh *wide = w->fan_in ? &w->dst : &w->src, *fine = w->fan_in ? &w->src : &w->dst;
    bool gathers = w->fan_in == (direction == FORWARD);
    if (!gathers && (direction == FORWARD || w->cp == 1)) {
        return rank == test_rank; /* a narrow dp rank receives nothing from others */
    }
    if (mesh_coord(wide, rank, "dp") != mesh_coord(wide, test_rank, "dp")) {
        return false;
    }
    if (!gathers) {
        return mesh_coord(wide, rank, "tp") == mesh_coord(wide, test_rank, "tp");
    }
    return mesh_coord(fine, rank, "tp") == mesh_coord(fine, test_rank, "tp");
}

static void find_partners(optimal *o, int direction) {
    const workload *w = o->base.workload;
    const mesh *fine = w->fan_in ? &w->src : &w->dst;
    partner *list = (partner *)take((size_t)test_world * sizeof *list);
    int n = 0;
    for (int k = 1; k <= test_world; k++) { /* from the next rank on: not all to the same first */
        int rank = (test_rank + k) % test_world;
        if (!supplies(w, direction, rank)) {
            continue;
        }
        partner *p = &list[n++];
        *p = (partner){.rank = rank,
                       .share = mesh_coord(fine, rank, "dp") % w->dp_ratio,
                       .cp = mesh_coord(&w->dst, rank, "cp")};
        part in = part_of(w, direction, p, true), out = part_of(w, direction, p, false);
        if (rank != test_rank) {
            p->incoming = lies_packed(w, &in) ? NULL : take(part_bytes(w, &in));
            p->outgoing = lies_packed(w, &out) ? NULL : take(part_bytes(w, &out));
        }
    }
    o->partners[direction] = list;
    o->count[direction] = n;
}

static void close_optimal(method *m) {
    optimal *o = (optimal *)m;
    for (int d = FORWARD; d <= ADJOINT; d++) {
        for (int i = 0; i < o->count[d]; i++) {
            free(o->partners[d][i].incoming);
            free(o->partners[d][i].outgoing);
        }
        free(o->partners[d]);
    }
    free(o->requests);
    free(o);
}

static method *open_optimal(const void *of) {
    const workload *w = of;
    if (w->disjoint) {
        return NULL;
    }
    optimal *o = (optimal *)take(sizeof *o);
    o->base = (method){.workload = w, .run = run_optimal, .checked = true};
    for (int d = FORWARD; d <= ADJOINT; d++) {
        bool narrows = w->fan_in != (d == FORWARD) && (d == FORWARD || w->cp == 1);
        int64_t first = share_of(w, test_rank) * w->narrow;
        o->base.result[d] = narrows && w->axis == 0
                                ? w->in[d] + (size_t)(first * w->s * w->h) * w->size
                                : w->out[d];
        find_partners(o, d);
    }
    o->requests = (MPI_Request *)take(2 * (size_t)test_world * sizeof *o->requests);
    return &o->base;
}

const method_kind optimal_mpi = {"byte-optimal MPI", open_optimal, close_optimal};
