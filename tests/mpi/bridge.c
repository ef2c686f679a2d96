/* Bridges between all pairs of layouts of the world, on real ranks: every rank computes from the
 * model what its buffer must hold, and compares all bits. The sweep runs through dim orders,
 * axes, dtypes, gradient owners and storages with strides that have no common factor, so that all
 * combinations occur over the pairs without running all of them for each. */
#include "mpi/common.h"
#include "runtime/context/context.h"

#include <stdlib.h>
#include <string.h>

#define GUARD  64 /* bytes behind a buffer that must stay as they are */
#define POISON 0xa5
#define ROUNDS 7 /* one per owner and storage of the gradient */

/* What one direction of a case takes and must give, as bytes. */
typedef struct trial {
    const bridge_case *c;
    lierne_plan *plan;
    lierne_direction direction;
    int64_t nin, nout;
    item *in_items, *out_items;
    size_t in_bytes, out_bytes;
    unsigned char *in, *in_copy, *out, *wanted;
} trial;

static unsigned char *poisoned(size_t bytes) {
    unsigned char *at = malloc(bytes + GUARD);
    memset(at, POISON, bytes + GUARD);
    return at;
}

/* A gradient that the rank does not own is never read: it keeps the poison. */
static void trial_open(trial *t, const bridge_case *c, lierne_plan *plan,
                       lierne_direction direction) {
    bool forward = direction == LIERNE_DIRECTION_FORWARD;
    size_t size = lierne_dtype_size(c->dtype);
    int cp = mesh_coord(&c->dst, test_rank, "cp");
    *t = (trial){.c = c, .plan = plan, .direction = direction};
    t->in_items = case_items(c, forward ? SIDE_SRC : SIDE_GRADIENT, test_rank, &t->nin, NULL);
    t->out_items = case_items(c, forward ? SIDE_DST : SIDE_SRC, test_rank, &t->nout, NULL);
    t->in_bytes = (size_t)t->nin * size;
    t->out_bytes = (size_t)t->nout * size;
    t->in = poisoned(t->in_bytes);
    t->in_copy = poisoned(t->in_bytes);
    t->out = poisoned(t->out_bytes);
    t->wanted = poisoned(t->out_bytes);
    for (int64_t i = 0; i < t->nin; i++) {
        const item *e = &t->in_items[i];
        if (e->owned) {
            number_put(c->dtype, t->in, i,
                       forward ? case_value(c, e) : case_contribution(c, e, cp));
        }
    }
    for (int64_t i = 0; i < t->nout; i++) {
        const item *e = &t->out_items[i];
        number_put(c->dtype, t->wanted, i, forward ? case_value(c, e) : case_gradient(c, e));
    }
    memcpy(t->in_copy, t->in, t->in_bytes);
}

static void trial_close(trial *t) {
    free(t->in_items);
    free(t->out_items);
    free(t->in);
    free(t->in_copy);
    free(t->out);
    free(t->wanted);
}

static const char *direction_name(const trial *t) {
    return t->direction == LIERNE_DIRECTION_FORWARD ? "forward" : "adjoint";
}

static void check_bits(const trial *t, const char *what) {
    CHECK(memcmp(t->out, t->wanted, t->out_bytes + GUARD) == 0, "%s: %s %s: wrong bits",
          case_text(t->c), direction_name(t), what);
    CHECK(memcmp(t->in, t->in_copy, t->in_bytes + GUARD) == 0, "%s: %s %s: the input changed",
          case_text(t->c), direction_name(t), what);
}

static void run_blocking(trial *t) {
    lierne_status status = t->direction == LIERNE_DIRECTION_FORWARD
                               ? lierne_plan_forward(t->plan, t->out, t->in, NULL)
                               : lierne_plan_adjoint(t->plan, t->out, t->in, NULL);
    CHECK(status == LIERNE_OK, "%s: %s: %s", case_text(t->c), direction_name(t),
          lierne_last_error());
    check_bits(t, "blocking");
}

static void run_begin_end(trial *t) {
    lierne_request *request;
    memset(t->out, POISON, t->out_bytes);
    lierne_status status = t->direction == LIERNE_DIRECTION_FORWARD
                               ? lierne_plan_forward_begin(&request, t->plan, t->out, t->in, NULL)
                               : lierne_plan_adjoint_begin(&request, t->plan, t->out, t->in, NULL);
    CHECK(status == LIERNE_OK && lierne_request_end(request) == LIERNE_OK,
          "%s: %s begin and end: %s", case_text(t->c), direction_name(t), lierne_last_error());
    check_bits(t, "begin and end");
}

/* First element of the output inside this rank's input, if it lies there unchanged, else -1. */
static int64_t view_of(const trial *t) {
    for (int64_t o = 0; o + t->nout <= t->nin && t->nout > 0; o++) {
        int64_t i = 0;
        while (i < t->nout && t->in_items[o + i].b == t->out_items[i].b &&
               t->in_items[o + i].s == t->out_items[i].s &&
               t->in_items[o + i].h == t->out_items[i].h) {
            i++;
        }
        if (i == t->nout) {
            return o;
        }
    }
    return -1;
}

/* Views save the copy: each rank leaves its output out where it may. */
static void run_view(trial *t) {
    int64_t offset;
    size_t size = lierne_dtype_size(t->c->dtype);
    CHECK(lierne_plan_get_alias(&offset, t->plan, t->direction) == LIERNE_OK, "%s",
          lierne_last_error());
    if (t->direction == LIERNE_DIRECTION_FORWARD && t->nout > 0) {
        CHECK(offset == view_of(t), "%s: view at %lld, wanted %lld", case_text(t->c),
              (long long)offset, (long long)view_of(t));
    }
    bool view = offset >= 0 && offset + t->nout <= t->nin;
    CHECK(view || offset == -1, "%s: view at %lld", case_text(t->c), (long long)offset);
    void *out = view ? NULL : t->out;
    memset(t->out, POISON, t->out_bytes);
    lierne_status status = t->direction == LIERNE_DIRECTION_FORWARD
                               ? lierne_plan_forward(t->plan, out, t->in, NULL)
                               : lierne_plan_adjoint(t->plan, out, t->in, NULL);
    CHECK(status == LIERNE_OK, "%s: %s view: %s", case_text(t->c), direction_name(t),
          lierne_last_error());
    if (view) {
        memcpy(t->out, t->in + (size_t)offset * size, t->out_bytes);
    }
    check_bits(t, "view");
}

/* <F x, y> and <x, F* y> with replicas counted once: exact, the values are small integers. */
static void check_dot(const trial *forward, const trial *adjoint) {
    const bridge_case *c = forward->c;
    long long part[2] = {0, 0}, sum[2];
    int cp = mesh_coord(&c->dst, test_rank, "cp");
    bool counts[2] = {case_first_replica(c, SIDE_DST, test_rank),
                      case_first_replica(c, SIDE_SRC, test_rank)};
    for (int64_t i = 0; i < forward->nout && counts[0]; i++) {
        const item *e = &forward->out_items[i];
        double y = e->owned ? case_contribution(c, e, cp) : 0;
        part[0] += (long long)(number_get(c->dtype, forward->out, i) * y);
    }
    for (int64_t i = 0; i < forward->nin && counts[1]; i++) {
        part[1] += (long long)(number_get(c->dtype, forward->in, i) *
                               number_get(c->dtype, adjoint->out, i));
    }
    MPI_Allreduce(part, sum, 2, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum[0] == sum[1], "%s: <Fx, y> is %lld and <x, F*y> %lld", case_text(c), sum[0], sum[1]);
}

static void check_elements(const trial *t) {
    int64_t in, out;
    lierne_plan_get_elements(&in, &out, t->plan, t->direction);
    CHECK(in == t->nin && out == t->nout, "%s: %s from %lld to %lld elements, wanted %lld and %lld",
          case_text(t->c), direction_name(t), (long long)in, (long long)out, (long long)t->nin,
          (long long)t->nout);
}

/* A rank receives what it needs and does not hold, nothing else. */
static void check_bytes(const trial *t) {
    int64_t from = INT64_MAX, to = -1, missing = 0;
    lierne_report report = {.size = sizeof report};
    for (int64_t i = 0; i < t->nin; i++) {
        from = t->in_items[i].b < from ? t->in_items[i].b : from;
        to = t->in_items[i].b > to ? t->in_items[i].b : to;
    }
    for (int64_t i = 0; i < t->nout; i++) {
        missing += t->out_items[i].b < from || t->out_items[i].b > to;
    }
    missing *= (int64_t)lierne_dtype_size(t->c->dtype);
    CHECK(lierne_plan_get_report(&report, t->plan, t->direction) == LIERNE_OK &&
              report.received_bytes == missing,
          "%s: receives %lld bytes, needs %lld", case_text(t->c), (long long)report.received_bytes,
          (long long)missing);
}

static void run_plan(const bridge_case *c, lierne_plan *plan) {
    trial forward, adjoint;
    trial_open(&forward, c, plan, LIERNE_DIRECTION_FORWARD);
    trial_open(&adjoint, c, plan, LIERNE_DIRECTION_ADJOINT);
    check_elements(&forward);
    check_elements(&adjoint);
    if (c->algorithm == TEST_DIRECT) {
        check_bytes(&forward);
    }
    run_blocking(&forward);
    run_blocking(&adjoint);
    check_dot(&forward, &adjoint);
    run_begin_end(&forward);
    run_begin_end(&adjoint);
    run_view(&forward);
    run_view(&adjoint);
    trial_close(&forward);
    trial_close(&adjoint);
}

static void run_case(lierne_context *context, const bridge_case *c) {
    size_t before = lierne_mem_live();
    lierne_plan *plan = NULL;
    lierne_status status = case_plan(&plan, context, c);
    if (c->algorithm == TEST_COLLECTIVE && !case_aligned(c)) {
        int src = mesh_size(&c->src, "dp"), dst = mesh_size(&c->dst, "dp");
        bool divides = src % dst == 0 || dst % src == 0;
        CHECK(status == (divides ? LIERNE_ERR_MISALIGNED : LIERNE_ERR_INDIVISIBLE) && !plan,
              "%s: %s", case_text(c), lierne_status_name(status));
    } else if (CHECK(status == LIERNE_OK, "%s: %s", case_text(c), lierne_last_error())) {
        run_plan(c, plan);
    }
    CHECK(lierne_plan_destroy(plan) == LIERNE_OK, "%s", lierne_last_error());
    CHECK(lierne_mem_live() == before, "%s: %zu allocations leaked", case_text(c),
          lierne_mem_live() - before);
}

/* Case number i of a pair of meshes. */
static void choose(bridge_case *c, int i) {
    static const lierne_dtype dtypes[] = {LIERNE_DTYPE_F32, LIERNE_DTYPE_BF16, LIERNE_DTYPE_F64,
                                          LIERNE_DTYPE_I32, LIERNE_DTYPE_F16,  LIERNE_DTYPE_I8};
    static const int axes[][3] = {{0, 1, 2}, {1, 0, 2}, {1, 2, 0}, {2, 1, 0}, {0, 2, 1}, {2, 0, 1}};
    static const struct {
        lierne_gradient_owner owner;
        lierne_storage storage;
    } gradients[] = {{LIERNE_GRADIENT_OWNER_PARTIAL, LIERNE_STORAGE_FULL},
                     {LIERNE_GRADIENT_OWNER_ZIGZAG, LIERNE_STORAGE_FULL},
                     {LIERNE_GRADIENT_OWNER_ZIGZAG, LIERNE_STORAGE_COMPACT},
                     {LIERNE_GRADIENT_OWNER_CONTIGUOUS, LIERNE_STORAGE_FULL},
                     {LIERNE_GRADIENT_OWNER_CONTIGUOUS, LIERNE_STORAGE_COMPACT},
                     {LIERNE_GRADIENT_OWNER_ROWS, LIERNE_STORAGE_FULL},
                     {LIERNE_GRADIENT_OWNER_ROWS, LIERNE_STORAGE_COMPACT}};
    c->owner = gradients[i % 7].owner;
    c->storage = gradients[i % 7].storage;
    c->dtype = dtypes[(i + i / 7) % 6];
    const int *at = axes[(i / 7 + i / 42) % 6];
    c->axis_b = at[0], c->axis_s = at[1], c->axis_h = at[2];
    if (c->owner == LIERNE_GRADIENT_OWNER_ROWS && c->storage == LIERNE_STORAGE_COMPACT &&
        abs(c->axis_b - c->axis_s) != 1) {
        c->storage = LIERNE_STORAGE_FULL; /* compact rows need neighbouring axes */
    }
    /* Uneven shares, dp ranks without samples, cp ranks without rows: all legal. */
    c->batch = i % 3 == 0 ? 2 * test_world : i % 3 == 1 ? 5 : test_world + 3;
    c->sequence = c->owner == LIERNE_GRADIENT_OWNER_ZIGZAG ? 2 * test_world : 7;
    c->hidden = 3;
}

static void run_pair(lierne_context *context, mesh src, mesh dst, int number) {
    int32_t rows[512];
    bridge_case c = {.world = test_world, .src = src, .dst = dst};
    choose(&c, number);
    test_cut_messages(context, number % 5 == 4 ? 13 : (size_t)1 << 30);
    if (c.owner == LIERNE_GRADIENT_OWNER_ROWS) {
        for (int64_t i = 0; i < c.batch * c.sequence; i++) {
            uint64_t m = mix((uint64_t)(i + number * 1000));
            rows[i] = (int32_t)(m % (uint64_t)mesh_size(&dst, "cp"));
        }
        c.rows = rows;
    }
    run_case(context, &c);
    c.rows = NULL;
    c.owner = LIERNE_GRADIENT_OWNER_PARTIAL;
    c.storage = LIERNE_STORAGE_FULL;
    c.algorithm = TEST_COLLECTIVE;
    c.batch = 2 * test_world;
    run_case(context, &c);
}

/* All orders of dims of size above 1 are met; orders that differ in others are the same mesh. */
static void sweep(lierne_context *context, int number) {
    static const char *const orders[] = {"tcd", "dct", "ctd", "tdc", "dtc", "cdt"};
    for (int src = 1; src <= test_world; src++) {
        for (int i = 0; i < 2 && test_world % src == 0; i++) {
            mesh from = mesh_of(orders[i], src, 1, test_world / src);
            for (int f = 0; f < test_world * test_world * 6; f++) {
                int tp = f / 6 / test_world + 1, cp = f / 6 % test_world + 1;
                if (test_world % (tp * cp) == 0) {
                    mesh to = mesh_of(orders[f % 6], tp, cp, test_world / tp / cp);
                    run_pair(context, from, to, number++);
                }
            }
        }
    }
}

/* Disjoint meshes, source before and behind: DIRECT and LEADER give the same bits, the closed
 * form's. */
static void run_disjoint(lierne_context *context, mesh src, mesh dst, int number) {
    bridge_case c = {.world = test_world, .src = src, .dst = dst};
    bool behind = number % 2;
    int src_size = mesh_size(&src, "tp") * mesh_size(&src, "dp");
    int dst_size = mesh_size(&dst, "tp") * mesh_size(&dst, "dp");
    choose(&c, 7 * number); /* a partial gradient */
    c.batch = 2 * mesh_size(&src, "dp") * mesh_size(&dst, "dp");
    c.src.offset = behind ? test_world - src_size : 0;
    c.dst.offset = behind ? 0 : test_world - dst_size;
    run_case(context, &c);
    c.algorithm = TEST_LEADER;
    run_case(context, &c);
}

/* All tp x dp on either side that leave ranks for the other, with and without idle ranks between,
 * where one dp size divides the other. */
static void sweep_disjoint(lierne_context *context) {
    int number = 0;
    for (int f = 0; f < test_world * test_world * test_world * test_world; f++) {
        int tp = f % test_world + 1, dp = f / test_world % test_world + 1;
        int to_tp = f / test_world / test_world % test_world + 1;
        int to_dp = f / test_world / test_world / test_world + 1;
        if (tp * dp + to_tp * to_dp <= test_world && (dp % to_dp == 0 || to_dp % dp == 0)) {
            run_disjoint(context, mesh_of(number % 3 ? "tcd" : "dct", tp, 1, dp),
                         mesh_of(number % 5 ? "tcd" : "dct", to_tp, 1, to_dp), number);
            number++;
        }
    }
    CHECK(number > 0 || test_world == 1, "no disjoint pair");
}

/* The context keeps its table of groups: it grows here, before each case counts what is left. */
static void grow_groups(lierne_context *context) {
    bridge_case c = case_of_samples(test_world, 1, mesh_of("tcd", 1, test_world, 1));
    c.algorithm = TEST_COLLECTIVE;
    lierne_plan *plan;
    CHECK(case_plan(&plan, context, &c) == LIERNE_OK, "%s", lierne_last_error());
    lierne_plan_destroy(plan);
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    size_t before = lierne_mem_live();
    lierne_context *context;
    CHECK(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL) == LIERNE_OK, "%s",
          lierne_last_error());
    grow_groups(context);
    for (int round = 0; round < ROUNDS; round++) {
        sweep(context, round);
    }
    sweep_disjoint(context);
    CHECK(lierne_context_destroy(context) == LIERNE_OK, "%s", lierne_last_error());
    CHECK(lierne_mem_live() == before, "%zu allocations leaked", lierne_mem_live() - before);
    return test_finish();
}
