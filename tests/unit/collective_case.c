/* Sums over places ascend, as the header of the library says; the values are integers, so that the
 * order does not show here (tests of bits are elsewhere). */
#include "unit/collective_case.h"

#include "numbers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void collective_case_size(collective_case *c, int64_t base) {
    for (int i = 0; i < c->n; i++) {
        c->counts[i] = c->even ? base : (i * 5 + 3) % 4 * base / 3;
        for (int j = 0; j < c->n; j++) {
            c->pairs[i][j] = c->even ? base : (i * 3 + j * 2 + 1) % 4 * base / 3;
        }
    }
}

int collective_case_place(const collective_case *c, int rank) {
    for (int i = 0; i < c->n; i++) {
        if (collective_case_rank(c, i) == rank) {
            return i;
        }
    }
    return -1;
}

int collective_case_rank(const collective_case *c, int place) {
    return c->ranks ? c->ranks[place] : place;
}

bool collective_case_waits(const collective_case *c) {
    return c->kind == ALL_TO_ALL && !c->even;
}

bool collective_case_has_adjoint(const collective_case *c) {
    return c->reduction == LIERNE_REDUCTION_SUM || c->reduction == LIERNE_REDUCTION_AVG;
}

static lierne_status plan_all_gather(lierne_plan **plan, lierne_context *context,
                                     const collective_case *c) {
    const lierne_all_gather_spec spec = {.size = sizeof spec,
                                         .ranks = c->ranks,
                                         .nranks = c->ranks ? c->n : 0,
                                         .count = c->even ? c->counts[0] : -1,
                                         .counts = c->even ? NULL : c->counts,
                                         .dtype = c->dtype,
                                         .max_inflight = 2};
    return lierne_plan_create_all_gather(plan, context, &spec);
}

static lierne_status plan_reduce_scatter(lierne_plan **plan, lierne_context *context,
                                         const collective_case *c) {
    const lierne_reduce_scatter_spec spec = {.size = sizeof spec,
                                             .ranks = c->ranks,
                                             .nranks = c->ranks ? c->n : 0,
                                             .count = c->even ? c->counts[0] : -1,
                                             .counts = c->even ? NULL : c->counts,
                                             .dtype = c->dtype,
                                             .reduction = c->reduction,
                                             .max_inflight = 2};
    return lierne_plan_create_reduce_scatter(plan, context, &spec);
}

static lierne_status plan_all_reduce(lierne_plan **plan, lierne_context *context,
                                     const collective_case *c) {
    const lierne_all_reduce_spec spec = {.size = sizeof spec,
                                         .ranks = c->ranks,
                                         .nranks = c->ranks ? c->n : 0,
                                         .count = c->counts[0],
                                         .dtype = c->dtype,
                                         .reduction = c->reduction,
                                         .algorithm = c->algorithm,
                                         .max_inflight = 2};
    return lierne_plan_create_all_reduce(plan, context, &spec);
}

static lierne_status plan_broadcast(lierne_plan **plan, lierne_context *context,
                                    const collective_case *c) {
    const lierne_broadcast_spec spec = {.size = sizeof spec,
                                        .ranks = c->ranks,
                                        .nranks = c->ranks ? c->n : 0,
                                        .root = collective_case_rank(c, c->root),
                                        .count = c->counts[0],
                                        .dtype = c->dtype,
                                        .algorithm = c->algorithm,
                                        .max_inflight = 2};
    return lierne_plan_create_broadcast(plan, context, &spec);
}

/* Ranks at even places also say what they expect; one that is not in the list has lists that nobody
 * reads. */
static lierne_status plan_all_to_all(lierne_plan **plan, lierne_context *context,
                                     const collective_case *c) {
    static const int64_t nothing[COLLECTIVE_RANKS] = {-1};
    int place = collective_case_place(c, lierne_context_get_rank(context));
    int64_t expected[COLLECTIVE_RANKS];
    for (int i = 0; i < c->n && place >= 0; i++) {
        expected[i] = c->pairs[i][place];
    }
    const lierne_all_to_all_spec spec = {.size = sizeof spec,
                                         .ranks = c->ranks,
                                         .nranks = c->ranks ? c->n : 0,
                                         .count = c->even ? c->pairs[0][0] : -1,
                                         .send_counts = c->even      ? NULL
                                                        : place >= 0 ? c->pairs[place]
                                                                     : nothing,
                                         .recv_counts =
                                             c->even || place < 0 || place % 2 ? NULL : expected,
                                         .dtype = c->dtype,
                                         .max_inflight = 2,
                                         .max_peers = c->max_peers};
    return lierne_plan_create_all_to_all(plan, context, &spec);
}

lierne_status collective_case_plan(lierne_plan **plan, lierne_context *context,
                                   const collective_case *c) {
    const lierne_barrier_spec barrier = {.size = sizeof barrier,
                                         .ranks = c->ranks,
                                         .nranks = c->ranks ? c->n : 0,
                                         .max_inflight = 2};
    switch (c->kind) {
    case ALL_GATHER:
        return plan_all_gather(plan, context, c);
    case REDUCE_SCATTER:
        return plan_reduce_scatter(plan, context, c);
    case ALL_REDUCE:
        return plan_all_reduce(plan, context, c);
    case BROADCAST:
        return plan_broadcast(plan, context, c);
    case ALL_TO_ALL:
        return plan_all_to_all(plan, context, c);
    default:
        return lierne_plan_create_barrier(plan, context, &barrier);
    }
}

/* Elements before a place's. */
static int64_t before(const int64_t *counts, int place) {
    int64_t sum = 0;
    for (int i = 0; i < place; i++) {
        sum += counts[i];
    }
    return sum;
}

static int64_t received_before(const collective_case *c, int to, int from) {
    int64_t sum = 0;
    for (int i = 0; i < from; i++) {
        sum += c->pairs[i][to];
    }
    return sum;
}

int64_t collective_case_in(const collective_case *c, int place) {
    const int64_t sizes[COLLECTIVE_KINDS] = {
        [ALL_GATHER] = place < 0 ? 0 : c->counts[place],
        [REDUCE_SCATTER] = before(c->counts, c->n),
        [ALL_REDUCE] = c->counts[0],
        [BROADCAST] = place == c->root ? c->counts[0] : 0,
        [ALL_TO_ALL] = place < 0 ? 0 : before(c->pairs[place], c->n),
    };
    return place < 0 ? 0 : sizes[c->kind];
}

int64_t collective_case_out(const collective_case *c, int place) {
    const int64_t sizes[COLLECTIVE_KINDS] = {
        [ALL_GATHER] = before(c->counts, c->n),
        [REDUCE_SCATTER] = place < 0 ? 0 : c->counts[place],
        [ALL_REDUCE] = c->counts[0],
        [BROADCAST] = c->counts[0],
        [ALL_TO_ALL] = place < 0 ? 0 : received_before(c, place, c->n),
    };
    return place < 0 ? 0 : sizes[c->kind];
}

/* The element of in of place j that element e of out of place i takes; -1: none. */
static int64_t source(const collective_case *c, int i, int64_t e, int j) {
    switch (c->kind) {
    case ALL_GATHER:
        e -= before(c->counts, j);
        return e >= 0 && e < c->counts[j] ? e : -1;
    case REDUCE_SCATTER:
        return before(c->counts, i) + e;
    case ALL_REDUCE:
        return e;
    case BROADCAST:
        return j == c->root ? e : -1;
    default:
        e -= received_before(c, i, j);
        return e >= 0 && e < c->pairs[j][i] ? before(c->pairs[j], i) + e : -1;
    }
}

/* As an element of the dtype holds it. */
static double held(lierne_dtype dtype, double value) {
    int64_t whole = (int64_t)value;
    return dtype == LIERNE_DTYPE_I8   ? (int8_t)whole
           : dtype == LIERNE_DTYPE_U8 ? (uint8_t)whole
                                      : value;
}

/* Averages must be whole numbers, products small. */
static double pick(const collective_case *c, int64_t seed, int64_t e) {
    int64_t value = (7 * seed + 3 * e + seed * e % 5) % 11;
    if (c->reduction == LIERNE_REDUCTION_PROD) {
        int odd = c->dtype == LIERNE_DTYPE_U8 ? 3 : -1;
        return value % 3 == 0 ? odd : value % 3 == 1 ? 2 : 1;
    }
    return held(c->dtype, (double)(value - 5) * (c->reduction == LIERNE_REDUCTION_AVG ? c->n : 1));
}

double collective_case_x(const collective_case *c, int place, int64_t e) {
    return pick(c, place + 1, e);
}

double collective_case_y(const collective_case *c, int place, int64_t e) {
    return pick(c, 4 * place + 9, e + 2);
}

static double combine(lierne_reduction reduction, double a, double b) {
    switch (reduction) {
    case LIERNE_REDUCTION_MAX:
        return a > b ? a : b;
    case LIERNE_REDUCTION_MIN:
        return a < b ? a : b;
    case LIERNE_REDUCTION_PROD:
        return a * b;
    default:
        return a + b;
    }
}

double collective_case_forward(const collective_case *c, int place, int64_t e) {
    double result = 0;
    bool first = true;
    for (int j = 0; j < c->n; j++) {
        int64_t at = source(c, place, e, j);
        if (at >= 0) {
            double x = collective_case_x(c, j, at);
            result = first ? x : combine(c->reduction, result, x);
            first = false;
        }
    }
    bool average = c->reduction == LIERNE_REDUCTION_AVG;
    return held(c->dtype, average ? result / c->n : result);
}

double collective_case_adjoint(const collective_case *c, int place, int64_t e) {
    double sum = 0;
    for (int i = 0; i < c->n; i++) {
        for (int64_t o = 0; o < collective_case_out(c, i); o++) {
            sum += source(c, i, o, place) == e ? collective_case_y(c, i, o) : 0;
        }
    }
    bool average = c->reduction == LIERNE_REDUCTION_AVG;
    return held(c->dtype, average ? sum / c->n : sum);
}

/* Buffers of a run, the output poisoned. */
static void prepare(collective_run *run, const collective_case *c, int rank,
                    lierne_direction direction) {
    size_t size = lierne_dtype_size(c->dtype);
    int place = collective_case_place(c, rank);
    bool forward = direction == LIERNE_DIRECTION_FORWARD;
    int64_t x = collective_case_in(c, place), y = collective_case_out(c, place);
    *run =
        (collective_run){c, place, direction, forward ? x : y, forward ? y : x, NULL, NULL, NULL};
    run->in = malloc((size_t)run->nin * size + 1);
    run->out = c->in_place ? run->in : malloc((size_t)run->nout * size + 1);
    for (int64_t e = 0; e < run->nin; e++) {
        number_put(c->dtype, run->in, e,
                   (forward ? collective_case_x : collective_case_y)(c, place, e));
    }
    size_t kept = c->in_place ? (size_t)run->nout * size : 0;
    memset(run->out + kept, 0xa5, (size_t)run->nout * size + 1 - kept);
}

lierne_status collective_run_start(collective_run *run, const collective_case *c, lierne_plan *plan,
                                   int rank, lierne_direction direction) {
    prepare(run, c, rank, direction);
    return (direction == LIERNE_DIRECTION_FORWARD
                ? lierne_plan_forward_begin
                : lierne_plan_adjoint_begin)(&run->request, plan, run->out, run->in, NULL);
}

lierne_status collective_run_call(collective_run *run, const collective_case *c, lierne_plan *plan,
                                  int rank, lierne_direction direction) {
    prepare(run, c, rank, direction);
    return (direction == LIERNE_DIRECTION_FORWARD
                ? lierne_plan_forward
                : lierne_plan_adjoint)(plan, run->out, run->in, NULL);
}

lierne_status collective_run_end(collective_run *run, int64_t *wrong) {
    const collective_case *c = run->c;
    size_t size = lierne_dtype_size(c->dtype);
    lierne_status status = lierne_request_end(run->request);
    for (int64_t e = 0; e < run->nout && status == LIERNE_OK; e++) {
        unsigned char wanted[8];
        double value = (run->direction == LIERNE_DIRECTION_FORWARD
                            ? collective_case_forward
                            : collective_case_adjoint)(c, run->place, e);
        number_put(c->dtype, wanted, 0, value);
        *wrong += memcmp(run->out + (size_t)e * size, wanted, size) != 0;
    }
    *wrong += run->out[(size_t)run->nout * size] != 0xa5;
    free(c->in_place ? NULL : run->out);
    free(run->in);
    return status;
}

const char *collective_case_text(const collective_case *c) {
    static const char *const kinds[] = {"all_gather", "reduce_scatter", "all_reduce",
                                        "broadcast",  "all_to_all",     "barrier"};
    static const char *const reductions[] = {"sum", "max", "min", "prod", "avg"};
    static _Thread_local char text[128];
    snprintf(text, sizeof text, "%s %s %s, %d ranks%s, %s, count %lld, algorithm %d, root %d%s",
             kinds[c->kind], lierne_dtype_name(c->dtype), reductions[c->reduction], c->n,
             c->ranks ? " of a list" : "", c->even ? "even" : "uneven", (long long)c->counts[0],
             (int)c->algorithm, c->root, c->in_place ? ", in place" : "");
    return text;
}
