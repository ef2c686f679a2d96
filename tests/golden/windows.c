/* windows.json: the results of collectives, bit by bit. Inputs are made by the formulas of the file
 * and rounded to the dtype first. An all-reduce runs by each of its algorithms. */
#include "row_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A plan of a case, and what it must give. */
typedef struct run {
    golden_world *world;
    int64_t count;   /* per rank, or of the whole where an all-reduce */
    int64_t *counts; /* of each rank, or NULL */
    lierne_dtype dtype;
    lierne_reduction reduction;
    lierne_collective_algorithm algorithm;
    const char *kind;
    const char *family;
    const double *terms; /* of each rank, where all its elements are the same; or NULL */
} run;

static double family_value(const char *family, int64_t r, int64_t i) {
    switch (*family) {
    case 'p': /* pow2 */
        return (double)(1 + (i >> r & 1));
    case 's':
        return strcmp(family, "small") == 0    ? (double)((3 * r + i) % 8)
               : strcmp(family, "signed") == 0 ? (double)((5 * r + 3 * i) % 17 - 8)
                                               : (double)(100 * r + i); /* seed */
    default:
        return NAN;
    }
}

/* To nearest, ties to even, in bits of mantissa. */
static double round_to(double value, int bits) {
    int exponent;
    frexp(value, &exponent);
    return ldexp(nearbyint(ldexp(value, bits + 1 - exponent)), exponent - bits - 1);
}

static void put(lierne_dtype dtype, void *memory, int64_t i, double value) {
    number_put(dtype, memory, i,
               dtype == LIERNE_DTYPE_F16    ? round_to(value, 10)
               : dtype == LIERNE_DTYPE_BF16 ? round_to(value, 7)
                                            : value);
}

/* FNV-1a of 64 bits. */
static uint64_t hash_of(const unsigned char *bytes, size_t n) {
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ bytes[i]) * 1099511628211u;
    }
    return hash;
}

static bool is(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

static lierne_status plan(lierne_plan **out, lierne_context *context, const run *r) {
    const lierne_all_gather_spec gather = {.size = sizeof gather,
                                           .count = r->count,
                                           .counts = r->counts,
                                           .dtype = r->dtype};
    const lierne_reduce_scatter_spec scatter = {.size = sizeof scatter,
                                                .count = r->count,
                                                .counts = r->counts,
                                                .dtype = r->dtype,
                                                .reduction = r->reduction};
    const lierne_all_reduce_spec reduce = {.size = sizeof reduce,
                                           .count = r->count,
                                           .dtype = r->dtype,
                                           .reduction = r->reduction,
                                           .algorithm = r->algorithm};
    return is(r->kind, "allgather") ? lierne_plan_create_all_gather(out, context, &gather)
           : is(r->kind, "reduce_scatter")
               ? lierne_plan_create_reduce_scatter(out, context, &scatter)
               : lierne_plan_create_all_reduce(out, context, &reduce);
}

/* Makes the plan of this rank and executes it; *n elements, to be freed. NULL after a failure. */
static unsigned char *execute(golden_case *c, lierne_context *context, const run *r, int64_t *n) {
    int rank = lierne_context_get_rank(context);
    size_t size = lierne_dtype_size(r->dtype);
    int64_t nin;
    lierne_plan **made = &r->world->plans[rank];
    if (!golden_expect_status(c, r->kind, plan(made, context, r), LIERNE_OK)) {
        return NULL;
    }
    golden_expect_status(c, "lierne_plan_get_elements",
                         lierne_plan_get_elements(&nin, n, *made, LIERNE_DIRECTION_FORWARD),
                         LIERNE_OK);
    unsigned char *in = golden_alloc(nin, size), *out = golden_alloc(*n, size);
    for (int64_t i = 0; i < nin; i++) {
        put(r->dtype, in, i, r->terms ? r->terms[rank] : family_value(r->family, rank, i));
    }
    memset(out, 0xa5, (size_t)(*n + 1) * size);
    lierne_status status = lierne_plan_forward(*made, out, in, NULL);
    golden_expect_status(c, "lierne_plan_forward", status, LIERNE_OK);
    golden_expect(c, out[(size_t)*n * size] == 0xa5, "bytes after the end of out were written");
    free(in);
    return out;
}

static void expect_value(golden_case *c, const run *r, const void *out, int64_t i,
                         const cJSON *wanted) {
    double got = number_get(r->dtype, out, i), value = golden_to_double(wanted);
    golden_expect(c, got >= value && got <= value, "element %lld is %.17g, expected %.17g",
                  (long long)i, got, value);
}

/* {"count", "fnv1a64", "first", "last", "values"}. */
static void expect_output(golden_case *c, const run *r, const unsigned char *out, int64_t n,
                          const cJSON *wanted) {
    char hash[24];
    const cJSON *one, *values = golden_get(wanted, "values");
    int64_t i = 0, count = golden_int(wanted, "count", -1);
    if (!golden_expect(c, n == count, "%lld elements, expected %lld", (long long)n,
                       (long long)count)) {
        return;
    }
    if (n > 0) {
        expect_value(c, r, out, 0, golden_get(wanted, "first"));
        expect_value(c, r, out, n - 1, golden_get(wanted, "last"));
    }
    cJSON_ArrayForEach(one, values) {
        expect_value(c, r, out, i++, one);
    }
    golden_expect(c, !values || i == n, "%lld values, expected %lld", (long long)i, (long long)n);
    snprintf(hash, sizeof hash, "%016llx",
             (unsigned long long)hash_of(out, (size_t)n * lierne_dtype_size(r->dtype)));
    golden_expect(c, is(hash, golden_string(wanted, "fnv1a64")), "the hash is %s, expected %s",
                  hash, golden_string(wanted, "fnv1a64"));
}

static void work(lierne_context *context, void *shared) {
    const run *r = shared;
    int rank = lierne_context_get_rank(context);
    golden_case *c = &r->world->cases[rank];
    int64_t n = 0;
    unsigned char *out = execute(c, context, r, &n);
    const cJSON *by_rank = golden_get(c->item, "output_by_rank");
    const cJSON *wanted =
        by_rank ? cJSON_GetArrayItem(by_rank, rank) : golden_get(c->item, "output_all_ranks");
    if (out && golden_expect(c, wanted != NULL, "the case has no output")) {
        expect_output(c, r, out, n, wanted);
    }
    free(out);
}

static void run_world(golden_case *c, run *r, void (*each)(lierne_context *, void *)) {
    char what[120];
    int n = (int)golden_int(c->item, "n", 0);
    golden_world world = golden_world_new(c, n);
    r->world = &world;
    snprintf(what, sizeof what, "%s %s %s, %d ranks, count %lld, reduction %d, algorithm %d",
             r->kind, r->family ? r->family : "", lierne_dtype_name(r->dtype), n,
             (long long)r->count, (int)r->reduction, (int)r->algorithm);
    golden_world_run(&world, each, r);
    golden_world_end(c, &world, what);
    free(r->counts);
    r->counts = NULL;
}

static bool read_dtype(golden_case *c, run *r) {
    lierne_status status = lierne_dtype_parse(&r->dtype, golden_string(c->item, "dtype"));
    return golden_expect_status(c, "the dtype", status, LIERNE_OK);
}

static bool read_reduction(golden_case *c, run *r) {
    static const char *const names[] = {"sum", "max", "min", "prod", "avg"};
    const char *op = golden_string(c->item, "op");
    for (int i = 0; i < 5 && *op; i++) {
        if (is(op, names[i])) {
            r->reduction = (lierne_reduction)i;
            return true;
        }
    }
    return golden_expect(c, !*op, "the runner does not know the op '%s'", op);
}

static void run_family(golden_case *c, const char *kind, const char *count) {
    static const char known[] = "|seed|small|signed|pow2|";
    int last = is(kind, "allreduce") ? LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT
                                     : LIERNE_COLLECTIVE_ALGORITHM_AUTO;
    run r = {.kind = kind,
             .family = golden_string(c->item, "family"),
             .count = golden_int(c->item, count, -1)};
    golden_expect(c, strlen(r.family) > 3 && strstr(known, r.family),
                  "the runner does not know the family '%s'", r.family);
    bool read = read_dtype(c, &r) && read_reduction(c, &r);
    for (int algorithm = 0; algorithm <= last && read && !c->failed; algorithm++) {
        r.algorithm = (lierne_collective_algorithm)algorithm;
        run_world(c, &r, work);
    }
}

void golden_all_gather(golden_case *c) {
    run_family(c, "allgather", "count_per_rank");
}

void golden_reduce_scatter(golden_case *c) {
    run_family(c, "reduce_scatter", "count_per_rank");
}

void golden_all_reduce(golden_case *c) {
    run_family(c, "allreduce", "count");
}

/* The bits of an element, the most significant byte first. */
static void print_bits(char *text, const unsigned char *element, size_t size) {
    for (size_t b = 0; b < size; b++) {
        snprintf(text + 2 * b, 3, "%02x", element[size - 1 - b]);
    }
}

/* overflow_mid has a term that f16 does not hold: what rounding the terms changes is then added to
 * the value that the file expects, which is exact in float32. */
static void print_wanted(char *text, const golden_case *c, const run *r) {
    const cJSON *wanted = golden_get(c->item, "canonical_ascending_acc32");
    unsigned char element[8];
    double change = 0;
    for (int64_t i = 0; i < r->world->n; i++) {
        put(r->dtype, element, 0, r->terms[i]);
        change += number_get(r->dtype, element, 0) - r->terms[i];
    }
    snprintf(text, 20, "%s", golden_string(wanted, "bits"));
    if (change < 0 || change > 0) {
        put(r->dtype, element, 0, golden_to_double(golden_get(wanted, "value")) + change);
        print_bits(text, element, lierne_dtype_size(r->dtype));
    }
}

/* Every element of out has the bits. */
static void work_bits(lierne_context *context, void *shared) {
    const run *r = shared;
    golden_case *c = &r->world->cases[lierne_context_get_rank(context)];
    size_t size = lierne_dtype_size(r->dtype);
    char bits[20], wanted[20];
    int64_t n = 0;
    unsigned char *out = execute(c, context, r, &n);
    print_wanted(wanted, c, r);
    for (int64_t i = 0; i < n && out; i++) {
        print_bits(bits, out + (size_t)i * size, size);
        golden_expect(c, is(bits, wanted), "element %lld is %s, expected %s", (long long)i, bits,
                      wanted);
    }
    golden_expect(c, n > 0, "nothing was compared");
    free(out);
}

/* With enough elements every rank reduces some by two shots. */
void golden_order_sensitive(golden_case *c) {
    int64_t n;
    double *terms = golden_read_values(golden_get(c->item, "contribution_by_rank"), &n);
    run r = {.kind = "allreduce", .count = 16 * n, .terms = terms};
    if (!read_dtype(c, &r) ||
        !golden_expect(c, n == golden_int(c->item, "n", -1), "not a term per rank")) {
        free(terms);
        return;
    }
    for (int algorithm = 0; algorithm <= LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT; algorithm++) {
        r.algorithm = (lierne_collective_algorithm)algorithm;
        run_world(c, &r, work_bits);
    }
    r.kind = "reduce_scatter";
    run_world(c, &r, work_bits);
    free(terms);
}

static void work_uneven(lierne_context *context, void *shared) {
    const run *r = shared;
    int rank = lierne_context_get_rank(context);
    bool gathers = is(r->kind, "allgather");
    golden_case *c = &r->world->cases[rank];
    const cJSON *wanted =
        golden_get(c->item, gathers ? "allgatherv_output" : "reduce_scatterv_output_by_rank");
    const cJSON *one;
    int64_t n = 0, i = 0;
    unsigned char *out = execute(c, context, r, &n);
    wanted = gathers ? wanted : cJSON_GetArrayItem(wanted, rank);
    if (out && golden_expect(c, n == cJSON_GetArraySize(wanted), "%lld elements, expected %d",
                             (long long)n, cJSON_GetArraySize(wanted))) {
        cJSON_ArrayForEach(one, wanted) {
            expect_value(c, r, out, i++, one);
        }
    }
    free(out);
}

static void run_uneven(golden_case *c, const char *kind) {
    char what[40];
    int64_t n;
    run r = {.kind = kind, .family = "seed"};
    r.counts = golden_read_ints(golden_get(c->item, "counts"), &n);
    if (read_dtype(c, &r) && golden_expect(c, n > 0, "no counts")) {
        golden_world world = golden_world_new(c, (int)n);
        r.world = &world;
        snprintf(what, sizeof what, "%s with counts", kind);
        golden_world_run(&world, work_uneven, &r);
        golden_world_end(c, &world, what);
    }
    free(r.counts);
}

void golden_uneven(golden_case *c) {
    run_uneven(c, "allgather");
    run_uneven(c, "reduce_scatter");
}

/* What a rank reduces in the first stage of two. */
static void work_partition(lierne_context *context, void *shared) {
    const run *r = shared;
    int rank = lierne_context_get_rank(context);
    golden_case *c = &r->world->cases[rank];
    const cJSON *wanted =
        cJSON_GetArrayItem(golden_get(c->item, "owner_start_and_count_by_rank"), rank);
    int64_t start = golden_to_int(cJSON_GetArrayItem(wanted, 0), -1);
    int64_t count = golden_to_int(cJSON_GetArrayItem(wanted, 1), -1);
    const lierne_route *route;
    lierne_plan **made = &r->world->plans[rank];
    if (!golden_expect_status(c, "the plan", plan(made, context, r), LIERNE_OK) ||
        !golden_expect_status(c, "its route",
                              lierne_plan_get_route(&route, *made, LIERNE_DIRECTION_FORWARD),
                              LIERNE_OK)) {
        return;
    }
    const lierne_stage *stage = &route->stages.at[0];
    const lierne_ops *ops = stage->sums.count ? &stage->sums : &stage->copies;
    const lierne_block *to = ops->count ? &ops->at[0].to.block : NULL;
    golden_expect(c, ops->count <= 1 && (to ? to->count[0] : 0) == count,
                  "it reduces %lld elements, expected %lld", to ? (long long)to->count[0] : 0LL,
                  (long long)count);
    golden_expect(c, !to || to->offset == start, "it reduces from %lld on, expected %lld",
                  to ? (long long)to->offset : 0LL, (long long)start);
}

void golden_two_shot_partition(golden_case *c) {
    run r = {.kind = "allreduce",
             .count = golden_int(c->item, "count", -1),
             .algorithm = LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT};
    if (read_dtype(c, &r)) {
        run_world(c, &r, work_partition);
    }
}
