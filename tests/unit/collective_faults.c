/* A name says which collective, and what is wrong with its spec. */
#include "unit/collective_faults.h"

#include <string.h>

enum { MOST = 8 };
#define HUGE_COUNT ((int64_t)1 << 60)

const collective_fault collective_faults[] = {
    {"gather: size", LIERNE_ERR_INVALID, "spec"},
    {"gather: NULL", LIERNE_ERR_INVALID, "spec is NULL"},
    {"gather: nranks alone", LIERNE_ERR_INVALID, "nranks is 2, must be 0 without ranks"},
    {"gather: nranks 0", LIERNE_ERR_INVALID, "nranks is 0, must be 1 to"},
    {"gather: nranks 99", LIERNE_ERR_INVALID, "nranks is 99, must be 1 to"},
    {"gather: rank -1", LIERNE_ERR_INVALID, "ranks[1] is -1, must be"},
    {"gather: rank 8", LIERNE_ERR_INVALID, "ranks[1] is 8, must be"},
    {"gather: rank twice", LIERNE_ERR_INVALID, "ranks[1] is 0 again"},
    {"gather: count -1", LIERNE_ERR_COUNT_RANGE, "count is -1, must be 0 to"},
    {"gather: count huge", LIERNE_ERR_COUNT_RANGE, "count is 1152921504606846976, must be 0 to"},
    {"gather: counts -1", LIERNE_ERR_COUNT_RANGE, "counts[1] is -1, must be 0 to"},
    {"gather: dtype", LIERNE_ERR_INVALID, "dtype is 99, must be one of lierne_dtype"},
    {"gather: in flight", LIERNE_ERR_INVALID, "max_inflight is 65, must be in 0 to 64"},
    {"gather: in flight -1", LIERNE_ERR_INVALID, "max_inflight is -1, must be in 0 to 64"},
    {"gather: other count", LIERNE_ERR_MISMATCH, "count differs between ranks"},
    {"gather: other counts", LIERNE_ERR_MISMATCH, "counts[1] differs between ranks"},
    {"gather: other dtype", LIERNE_ERR_MISMATCH, "dtype differs between ranks"},
    {"gather: other order", LIERNE_ERR_MISMATCH, "ranks[0] differs between ranks"},
    {"gather: counts or not", LIERNE_ERR_MISMATCH, "counts differs between ranks: "},
    {"gather: other nranks", LIERNE_ERR_MISMATCH, "nranks differs between ranks"},
    {"gather: other in flight", LIERNE_ERR_MISMATCH, "max_inflight differs between ranks"},
    {"gather: other collective", LIERNE_ERR_MISMATCH, "ranks make different calls: "},
    {"scatter: size", LIERNE_ERR_INVALID, "spec"},
    {"scatter: reduction", LIERNE_ERR_INVALID, "reduction is 5, must be LIERNE_REDUCTION_SUM"},
    {"scatter: reduction -1", LIERNE_ERR_INVALID, "reduction is -1, must be LIERNE_REDUCTION_SUM"},
    {"scatter: average", LIERNE_ERR_INVALID, "reduction is LIERNE_REDUCTION_AVG and dtype i32"},
    {"scatter: counts -1", LIERNE_ERR_COUNT_RANGE, "counts[0] is -1, must be 0 to"},
    {"scatter: other reduction", LIERNE_ERR_MISMATCH, "reduction differs between ranks: '"},
    {"reduce: size", LIERNE_ERR_INVALID, "spec"},
    {"reduce: algorithm", LIERNE_ERR_INVALID,
     "algorithm is 3, must be LIERNE_COLLECTIVE_ALGORITHM_AUTO"},
    {"reduce: algorithm -1", LIERNE_ERR_INVALID,
     "algorithm is -1, must be LIERNE_COLLECTIVE_ALGORITHM_AUTO"},
    {"reduce: average", LIERNE_ERR_INVALID, "reduction is LIERNE_REDUCTION_AVG and dtype u8"},
    {"reduce: other algorithm", LIERNE_ERR_MISMATCH, "algorithm differs between ranks: '"},
    {"broadcast: size", LIERNE_ERR_INVALID, "spec"},
    {"broadcast: root -1", LIERNE_ERR_INVALID, "root is -1, must be one of the"},
    {"broadcast: root 8", LIERNE_ERR_INVALID, "root is 8, must be one of the"},
    {"broadcast: other root", LIERNE_ERR_MISMATCH, "root differs between ranks"},
    {"exchange: size", LIERNE_ERR_INVALID, "spec"},
    {"exchange: expects alone", LIERNE_ERR_INVALID, "recv_counts is set, but send_counts is NULL"},
    {"exchange: sends -1", LIERNE_ERR_COUNT_RANGE, "send_counts[1] is -1, must be 0 to"},
    {"exchange: expects -1", LIERNE_ERR_COUNT_RANGE, "recv_counts[0] is -1, must be 0 to"},
    {"exchange: sends one more", LIERNE_ERR_MISMATCH, "sends 4 elements to this one"},
    {"exchange: sends nothing", LIERNE_ERR_MISMATCH, "sends 0 elements to this one"},
    {"exchange: expects one more", LIERNE_ERR_MISMATCH, "recv_counts[1] is 4, but rank 1 sends 3"},
    {"exchange: even", LIERNE_ERR_MISMATCH, "send_counts differs between ranks: "},
    {"exchange: other peers", LIERNE_ERR_MISMATCH, "max_peers differs between ranks"},
    {"barrier: size", LIERNE_ERR_INVALID, "spec"},
    {"barrier: rank twice", LIERNE_ERR_INVALID, "ranks[1] is 0 again"},
    {NULL, LIERNE_OK, NULL},
};

static bool is(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

static lierne_status plan_barrier(lierne_plan **plan, lierne_context *context, const char *what) {
    int ranks[2] = {0, is(what, "rank twice") ? 0 : 1};
    lierne_barrier_spec spec = {.size = sizeof spec, .ranks = ranks, .nranks = 2};
    spec.size -= is(what, "size");
    return lierne_plan_create_barrier(plan, context, &spec);
}

/* Ranks 0 and 1 contribute 2 and 3 elements. */
static lierne_status plan_gather(lierne_plan **plan, lierne_context *context, const char *what) {
    int ranks[2] = {0, 1};
    int64_t counts[2] = {2, 3};
    bool even = begins(what, "count ") || is(what, "counts or not");
    lierne_all_gather_spec spec = {.size = sizeof spec,
                                   .ranks = ranks,
                                   .nranks = 2,
                                   .counts = counts,
                                   .dtype = LIERNE_DTYPE_F32};
    spec.size -= is(what, "size");
    spec.ranks = is(what, "nranks alone") ? NULL : ranks;
    spec.nranks = is(what, "nranks 0") ? 0 : is(what, "nranks 99") ? 99 : 2;
    spec.nranks = is(what, "other nranks") ? 1 : spec.nranks;
    ranks[1] = is(what, "rank -1") ? -1 : is(what, "rank 8") ? 8 : is(what, "rank twice") ? 0 : 1;
    if (is(what, "other order")) {
        ranks[0] = 1;
        ranks[1] = 0;
    }
    spec.counts = even ? NULL : counts;
    spec.count = is(what, "count -1") ? -1 : is(what, "count huge") ? HUGE_COUNT : 3;
    counts[1] = is(what, "counts -1") ? -1 : is(what, "other counts") ? 4 : 3;
    spec.dtype = is(what, "dtype") ? (lierne_dtype)99 : LIERNE_DTYPE_F32;
    spec.dtype = is(what, "other dtype") ? LIERNE_DTYPE_I32 : spec.dtype;
    spec.max_inflight = is(what, "in flight") ? 65 : is(what, "in flight -1") ? -1 : 0;
    spec.max_inflight += is(what, "other in flight") ? 2 : 0;
    if (is(what, "other collective")) {
        return plan_barrier(plan, context, "");
    }
    return lierne_plan_create_all_gather(plan, context, is(what, "NULL") ? NULL : &spec);
}

/* Even, and the list of all ranks where it is NULL elsewhere. */
static lierne_status plan_even_gather(lierne_plan **plan, lierne_context *context, bool bad) {
    const lierne_all_gather_spec spec = {.size = sizeof spec,
                                         .count = bad ? 4 : 3,
                                         .dtype = LIERNE_DTYPE_F64};
    return lierne_plan_create_all_gather(plan, context, &spec);
}

static lierne_status plan_scatter(lierne_plan **plan, lierne_context *context, const char *what) {
    int64_t counts[MOST] = {is(what, "counts -1") ? -1 : 2, 3};
    lierne_reduce_scatter_spec spec = {.size = sizeof spec,
                                       .counts = counts,
                                       .dtype = LIERNE_DTYPE_I32};
    spec.size += is(what, "size");
    spec.reduction = (lierne_reduction)(is(what, "reduction") ? 5 : 0);
    spec.reduction = is(what, "reduction -1") ? (lierne_reduction)-1 : spec.reduction;
    spec.reduction = is(what, "average") ? LIERNE_REDUCTION_AVG : spec.reduction;
    spec.reduction = is(what, "other reduction") ? LIERNE_REDUCTION_MAX : spec.reduction;
    return lierne_plan_create_reduce_scatter(plan, context, &spec);
}

static lierne_status plan_reduce(lierne_plan **plan, lierne_context *context, const char *what) {
    lierne_all_reduce_spec spec = {.size = sizeof spec, .count = 5, .dtype = LIERNE_DTYPE_U8};
    spec.size -= is(what, "size");
    spec.algorithm = (lierne_collective_algorithm)(is(what, "algorithm") ? 3 : 0);
    spec.algorithm = is(what, "algorithm -1") ? (lierne_collective_algorithm)-1 : spec.algorithm;
    spec.algorithm =
        is(what, "other algorithm") ? LIERNE_COLLECTIVE_ALGORITHM_ONE_SHOT : spec.algorithm;
    spec.reduction = is(what, "average") ? LIERNE_REDUCTION_AVG : LIERNE_REDUCTION_SUM;
    return lierne_plan_create_all_reduce(plan, context, &spec);
}

static lierne_status plan_broadcast(lierne_plan **plan, lierne_context *context, const char *what) {
    lierne_broadcast_spec spec = {.size = sizeof spec, .count = 5, .dtype = LIERNE_DTYPE_F16};
    spec.size -= is(what, "size");
    spec.root = is(what, "root -1") ? -1 : is(what, "root 8") ? 8 : is(what, "other root");
    return lierne_plan_create_broadcast(plan, context, &spec);
}

/* 3 elements between all pairs of ranks. */
static lierne_status plan_exchange(lierne_plan **plan, lierne_context *context, const char *what) {
    int64_t sent[MOST], received[MOST];
    int rank = lierne_context_get_rank(context), n = lierne_context_get_world_size(context);
    for (int i = 0; i < n; i++) {
        sent[i] = received[i] = 3;
    }
    lierne_all_to_all_spec spec = {.size = sizeof spec,
                                   .send_counts = sent,
                                   .recv_counts = received,
                                   .dtype = LIERNE_DTYPE_I64};
    spec.size -= is(what, "size");
    spec.send_counts = is(what, "expects alone") || is(what, "even") ? NULL : sent;
    spec.recv_counts = is(what, "even") ? NULL : received;
    spec.count = 3;
    spec.max_peers = is(what, "other peers") ? 2 : 0;
    sent[1] = is(what, "sends -1") ? -1 : 3;
    received[0] = is(what, "expects -1") ? -1 : 3;
    int next = (rank + 1) % n;
    sent[next] += is(what, "sends one more");
    sent[next] *= !is(what, "sends nothing");
    received[1] += is(what, "expects one more");
    return lierne_plan_create_all_to_all(plan, context, &spec);
}

lierne_status collective_fault_plan(lierne_plan **plan, lierne_context *context,
                                    const collective_fault *fault, bool bad) {
    const char *name = fault->name, *what = bad ? strchr(name, ':') + 2 : "";
    if (is(name, "gather: other count")) {
        return plan_even_gather(plan, context, bad);
    }
    return begins(name, "gather")      ? plan_gather(plan, context, what)
           : begins(name, "scatter")   ? plan_scatter(plan, context, what)
           : begins(name, "reduce")    ? plan_reduce(plan, context, what)
           : begins(name, "broadcast") ? plan_broadcast(plan, context, what)
           : begins(name, "exchange")  ? plan_exchange(plan, context, what)
                                       : plan_barrier(plan, context, what);
}
