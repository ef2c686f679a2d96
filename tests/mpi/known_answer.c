/* Bridges with values that a reader can check without computing: fan-in, fan-out and equal dp, in
 * both directions and with both algorithms; masks of ones that must sum to ones; and random floats,
 * where the two algorithms must round in the same way. Even numbers of ranks. */
#include "mpi/common.h"

#include <stdlib.h>
#include <string.h>

typedef double (*form)(const bridge_case *c, const item *i, int rank);

/* One direction of a bridge: what goes in by `in`, what must come out by `want`; equal numbers,
 * so that the sign of a zero does not count. */
static void run(lierne_context *context, const char *name, const bridge_case *c,
                lierne_direction direction, form in, form want) {
    bool forward = direction == LIERNE_DIRECTION_FORWARD;
    int64_t nin, nout, wrong = 0;
    item *from = case_items(c, forward ? SIDE_SRC : SIDE_GRADIENT, test_rank, &nin, NULL);
    item *to = case_items(c, forward ? SIDE_DST : SIDE_SRC, test_rank, &nout, NULL);
    size_t size = lierne_dtype_size(c->dtype);
    void *input = calloc((size_t)nin + 1, size), *output = malloc(((size_t)nout + 1) * size);
    lierne_plan *plan;
    for (int64_t i = 0; i < nin; i++) {
        number_put(c->dtype, input, i, in(c, &from[i], test_rank));
    }
    memset(output, 0xa5, (size_t)nout * size);
    lierne_status status = case_plan(&plan, context, c);
    if (status == LIERNE_OK) {
        status = (forward ? lierne_plan_forward : lierne_plan_adjoint)(plan, output, input, NULL);
    }
    CHECK(status == LIERNE_OK, "%s: %s", name, lierne_last_error());
    for (int64_t i = 0; i < nout; i++) {
        wrong += number_get(c->dtype, output, i) != want(c, &to[i], test_rank);
    }
    CHECK(wrong == 0, "%s: %s: %lld of %lld elements are wrong", name, case_text(c),
          (long long)wrong, (long long)nout);
    lierne_plan_destroy(plan);
    free(from);
    free(to);
    free(input);
    free(output);
}

/* Two samples per wide dp rank; both algorithms, batch on the first and on the second axis. */
static void both(lierne_context *context, const char *name, mesh src, mesh dst,
                 lierne_direction direction, form in, form want) {
    for (int i = 0; i < 4; i++) {
        bridge_case c = {.src = src,
                         .dst = dst,
                         .world = test_world,
                         .batch = 2 * test_world,
                         .sequence = 8,
                         .hidden = 3,
                         .axis_b = i / 2,
                         .axis_s = 1 - i / 2,
                         .axis_h = 2,
                         .dtype = LIERNE_DTYPE_F32,
                         .algorithm = (test_algorithm)(i % 2)};
        run(context, name, &c, direction, in, want);
    }
}

static double place(const bridge_case *c, const item *i, int rank) {
    (void)c, (void)rank;
    return (double)(i->b * 100 + i->s * 10 + i->h + 1);
}

static double source_dp(const bridge_case *c, const item *i, int rank) {
    (void)i;
    return mesh_coord(&c->src, rank, "dp") + 1;
}

static double source_dp_of_sample(const bridge_case *c, const item *i, int rank) {
    (void)rank;
    return (double)(i->b / (c->batch / mesh_size(&c->src, "dp")) + 1);
}

static double share(const bridge_case *c, const item *i, int rank) {
    (void)i;
    return mesh_coord(&c->dst, rank, "dp") % 2 + 1;
}

static double share_of_sample(const bridge_case *c, const item *i, int rank) {
    (void)rank;
    return (double)(i->b / (c->batch / mesh_size(&c->dst, "dp")) % 2 + 1);
}

static double one(const bridge_case *c, const item *i, int rank) {
    (void)c, (void)i, (void)rank;
    return 1;
}

/* One where this cp rank of two owns the position by the zigzag split, zero elsewhere. */
static double zigzag_mask(const bridge_case *c, const item *i, int rank) {
    bool outer = i->s < c->sequence / 4 || i->s >= c->sequence / 4 * 3;
    return outer == (mesh_coord(&c->dst, rank, "cp") == 0);
}

static double wide_float(uint64_t m) {
    static const double scales[] = {1e-6, 1e-3, 1, 1e3, 0};
    float f = (float)((double)(int64_t)(m % 2000001 - 1000000) * scales[m / 7 % 5]);
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    bits &= 0xffff0000u; /* also a bf16 */
    memcpy(&f, &bits, sizeof bits);
    return (double)f;
}

static double random_value(const bridge_case *c, const item *i, int rank) {
    (void)c, (void)rank;
    return wide_float(mix((uint64_t)(i->b * 10007 + i->s * 101 + i->h + 5)));
}

static double random_contribution(const bridge_case *c, const item *i, int rank) {
    uint64_t cp = (uint64_t)mesh_coord(&c->dst, rank, "cp");
    return wide_float(mix((uint64_t)(i->b * 10007 + i->s * 101 + i->h + 5) + (cp + 1) * 777767777));
}

/* Contributions of ascending cp, in float; for bf16 rounded once, to nearest even. */
static double ordered_sum(const bridge_case *c, const item *i, int rank) {
    int cp = mesh_size(&c->dst, "cp");
    volatile float sum = 0; /* no excess precision, no reordering */
    (void)rank;
    for (int k = 0; k < cp; k++) {
        uint64_t seed = (uint64_t)(i->b * 10007 + i->s * 101 + i->h + 5);
        sum += (float)wide_float(mix(seed + (uint64_t)(k + 1) * 777767777));
    }
    float rounded = sum;
    if (c->dtype == LIERNE_DTYPE_BF16) {
        uint32_t bits;
        memcpy(&bits, &rounded, sizeof bits);
        bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
        memcpy(&rounded, &bits, sizeof bits);
    }
    return (double)rounded;
}

static void directions(lierne_context *context) {
    int n = test_world, half = test_world / 2;
    mesh many = mesh_of("tcd", 1, 1, n), few = mesh_of("tcd", 2, 1, half);
    both(context, "fan-in forward concatenates", many, few, LIERNE_DIRECTION_FORWARD, source_dp,
         source_dp_of_sample);
    both(context, "fan-in adjoint narrows", many, few, LIERNE_DIRECTION_ADJOINT, place, place);
    both(context, "fan-out forward narrows", few, many, LIERNE_DIRECTION_FORWARD, place, place);
    both(context, "fan-out adjoint concatenates the siblings", few, many, LIERNE_DIRECTION_ADJOINT,
         share, share_of_sample);
    both(context, "equal forward is the identity", few, few, LIERNE_DIRECTION_FORWARD, place,
         place);
    both(context, "equal adjoint is the identity", many, many, LIERNE_DIRECTION_ADJOINT, place,
         place);
}

/* The sum of the masks is one everywhere; where the owner is known, only its ones are taken. */
static void masks(lierne_context *context) {
    int half = test_world / 2;
    mesh from[2] = {mesh_of("tcd", 1, 1, test_world), mesh_of("tcd", half, 1, 2)};
    for (int i = 0; i < 2; i++) {
        bridge_case c = {.src = from[i],
                         .dst = mesh_of("tcd", 1, 2, half),
                         .world = test_world,
                         .batch = 2 * test_world,
                         .sequence = 8,
                         .hidden = 3,
                         .axis_b = 0,
                         .axis_s = 1,
                         .axis_h = 2,
                         .dtype = LIERNE_DTYPE_F32,
                         .owner = LIERNE_GRADIENT_OWNER_ZIGZAG};
        both(context, "zigzag masks of ones", c.src, c.dst, LIERNE_DIRECTION_ADJOINT, zigzag_mask,
             one);
        run(context, "zigzag masks of ones, owned", &c, LIERNE_DIRECTION_ADJOINT, zigzag_mask, one);
    }
}

/* Every pair of dp sizes with all cp sizes: both algorithms round as the ordered sum does. */
static void floats(lierne_context *context) {
    for (int f = 0; f < test_world * test_world * 4; f++) {
        int src_tp = f / 4 / test_world + 1, cp = f / 4 % test_world + 1;
        if (test_world % src_tp != 0 || test_world % cp != 0) {
            continue;
        }
        bridge_case c = {.src = mesh_of("tcd", src_tp, 1, test_world / src_tp),
                         .dst = mesh_of("tcd", 1, cp, test_world / cp),
                         .world = test_world,
                         .batch = test_world,
                         .sequence = 16,
                         .hidden = 5,
                         .axis_b = f / 2 % 2,
                         .axis_s = 1 - f / 2 % 2,
                         .axis_h = 2,
                         .dtype = f % 2 ? LIERNE_DTYPE_BF16 : LIERNE_DTYPE_F32};
        for (int a = 0; a < 2; a++) {
            c.algorithm = (test_algorithm)a;
            run(context, "random floats", &c, LIERNE_DIRECTION_FORWARD, random_value, random_value);
            run(context, "random floats", &c, LIERNE_DIRECTION_ADJOINT, random_contribution,
                ordered_sum);
        }
    }
}

/* A tensor of rows has two axes and no sequence. */
static void rows_without_sequence(lierne_context *context) {
    mesh from = mesh_of("tcd", 1, 1, test_world), to = mesh_of("tcd", 1, 2, test_world / 2);
    lierne_grid *src = mesh_grid(&from, test_world), *dst = mesh_grid(&to, test_world);
    int64_t shape[2] = {3 * test_world, 2};
    lierne_bridge_spec spec = {.size = sizeof spec,
                               .src = src,
                               .dst = dst,
                               .naxes = 2,
                               .shape = shape,
                               .dtype = LIERNE_DTYPE_I32,
                               .sequence_axis = -1};
    lierne_plan *plan;
    int32_t in[6], out[12] = {0}, back[6];
    int wrong = 0, dp = mesh_coord(&to, test_rank, "dp");
    for (int i = 0; i < 6; i++) {
        in[i] = test_rank * 6 + i;
    }
    lierne_status status = lierne_plan_create_bridge(&plan, context, &spec);
    CHECK(status == LIERNE_OK && lierne_plan_forward(plan, out, in, NULL) == LIERNE_OK &&
              lierne_plan_adjoint(plan, back, out, NULL) == LIERNE_OK,
          "rows: %s", lierne_last_error());
    for (int i = 0; i < 12; i++) {
        wrong += out[i] != dp * 12 + i;
        wrong += i < 6 && back[i] != 2 * in[i]; /* two equal contributions over cp */
    }
    CHECK(wrong == 0, "rows: %d values are wrong", wrong);
    lierne_plan_destroy(plan);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

static void run_all(lierne_context *context) {
    directions(context);
    masks(context);
    floats(context);
    rows_without_sequence(context);
}

int main(int argc, char **argv) {
    return test_main(&argc, &argv, run_all);
}
