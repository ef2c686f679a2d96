/* The training oracle: a model trained in two layouts with a bridge between must have, on every
 * rank, the gradients of the same model with equal dp and cp 1, where no bridge is needed, and
 * those of one process that computes everything.
 *
 * Comparing weights after a step of Adam would prove nothing: the length of its first step does not
 * depend on the gradient. So gradients are compared, bit by bit, before and after they are divided
 * by the number of tokens. Central differences, which are exact on a squared error, check those of
 * one process. Twenty steps of plain descent follow, in which only rounding may differ.
 *
 * An oracle that cannot fail would prove nothing either. LIERNE_TRAIN_FAULT names a mistake to
 * make; a line per pair of layouts says how often the encoder's gradient was wrong, and
 * tests/cli/test_oracle.sh has how often it must be. */
#include "mpi/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 20
#define BOUND                                                                                      \
    1e-12 /* rounding allowed after STEPS, in units of how far weights have moved: a step          \
             has up to 256 contributions of relative error 2^-53, 20 of them 6e-13 */

typedef struct layouts {
    int src_tp, src_dp, dst_tp, dst_cp, dst_dp;
    const char *dst_order; /* of mesh_of */
} layouts;

static const layouts of_4[] = {
    {2, 2, 2, 2, 1, "tcd"}, {4, 1, 1, 2, 2, "tcd"},                         /* half of those of 8 */
    {2, 2, 1, 2, 2, "tcd"},                                                 /* equal */
    {1, 4, 2, 1, 2, "tcd"}, {2, 2, 1, 1, 4, "tcd"}, {2, 2, 2, 1, 2, "tcd"}, /* cp 1 */
    {1, 4, 1, 4, 1, "tcd"}, {4, 1, 1, 4, 1, "tcd"},                         /* cp 4 */
    {1, 4, 1, 2, 2, "dct"}, /* misaligned dp ranks */
};
static const layouts of_8[] = {
    {2, 4, 2, 2, 2, "tcd"}, {4, 2, 1, 2, 4, "tcd"}, /* the worked examples */
    {4, 2, 2, 2, 2, "tcd"},                         /* equal */
    {1, 8, 4, 1, 2, "tcd"}, {4, 2, 2, 1, 4, "tcd"}, {2, 4, 2, 1, 4, "tcd"}, /* cp 1 */
    {1, 8, 1, 4, 2, "tcd"}, {8, 1, 1, 4, 2, "tcd"}, {4, 2, 1, 4, 2, "tcd"}, /* cp 4 */
    {2, 4, 2, 2, 2, "cdt"}, /* misaligned dp ranks */
};

/* What a case varies beside the layouts. */
typedef struct variant {
    use use;
    lierne_gradient_owner owner;
    lierne_storage storage;
    test_algorithm algorithm;
} variant;

static const variant variants[] = {
    {PLAIN, LIERNE_GRADIENT_OWNER_PARTIAL, LIERNE_STORAGE_FULL, TEST_DIRECT},
    {PLAIN, LIERNE_GRADIENT_OWNER_PARTIAL, LIERNE_STORAGE_FULL, TEST_COLLECTIVE},
    {PLAIN, LIERNE_GRADIENT_OWNER_ZIGZAG, LIERNE_STORAGE_FULL, TEST_DIRECT},
    {PLAIN, LIERNE_GRADIENT_OWNER_ZIGZAG, LIERNE_STORAGE_COMPACT, TEST_DIRECT},
    {PLAIN, LIERNE_GRADIENT_OWNER_CONTIGUOUS, LIERNE_STORAGE_FULL, TEST_DIRECT},
    {PLAIN, LIERNE_GRADIENT_OWNER_CONTIGUOUS, LIERNE_STORAGE_COMPACT, TEST_DIRECT},
    {MERGED, LIERNE_GRADIENT_OWNER_PARTIAL, LIERNE_STORAGE_FULL, TEST_DIRECT},
    {MERGED, LIERNE_GRADIENT_OWNER_PARTIAL, LIERNE_STORAGE_FULL, TEST_COLLECTIVE},
    {MERGED, LIERNE_GRADIENT_OWNER_ROWS, LIERNE_STORAGE_FULL, TEST_DIRECT},
    {MERGED, LIERNE_GRADIENT_OWNER_ROWS, LIERNE_STORAGE_COMPACT, TEST_DIRECT},
    {CROSS, LIERNE_GRADIENT_OWNER_PARTIAL, LIERNE_STORAGE_FULL, TEST_DIRECT},
    {CROSS, LIERNE_GRADIENT_OWNER_PARTIAL, LIERNE_STORAGE_FULL, TEST_COLLECTIVE},
};
enum { VARIANTS = sizeof variants / sizeof variants[0] };

/* The same training, by one process and with equal dp: after one step, and after STEPS. */
typedef struct expected {
    problem of;
    run alone, equal;
    run alone_end, equal_end;
} expected;

static bool same(const double *a, const double *b, int64_t n, double divisor_a, double divisor_b) {
    for (int64_t i = 0; i < n; i++) {
        double x = a[i] / divisor_a, y = b[i] / divisor_b;
        if (memcmp(&x, &y, sizeof x) != 0) {
            return false;
        }
    }
    return true;
}

/* Where a rank's shard lies in the weights of one process. */
static int64_t shard(const module *m) {
    return m->at.tp * module_size(m);
}

/* The gradients of a step, before and after the division. */
static bool check_gradients(const run *r, const expected *e, const char *what) {
    const run *alone = &e->alone, *equal = &e->equal;
    int64_t n = module_size(&r->encoder), at = shard(&r->encoder);
    bool ok = true;
    for (int k = 0; k < 2; k++) {
        double mine = k ? r->loss[1] : 1, theirs = k ? alone->loss[1] : 1;
        const char *when = k ? "mean" : "sum";
        ok &= CHECK(same(r->encoder.gradient, equal->encoder.gradient, n, mine, theirs),
                    "%s: encoder gradient (%s) is not that of equal dp", what, when);
        ok &= CHECK(same(r->encoder.gradient, alone->encoder.gradient + at, n, mine, theirs),
                    "%s: encoder gradient (%s) is not that of one process", what, when);
        CHECK(same(r->llm.gradient, alone->llm.gradient + shard(&r->llm), module_size(&r->llm),
                   mine, theirs),
              "%s: LLM gradient (%s) is not that of one process", what, when);
    }
    CHECK(r->loss[0] == alone->loss[0] && r->loss[1] == alone->loss[1],
          "%s: loss %g over %g tokens, not %g over %g", what, r->loss[0], r->loss[1],
          alone->loss[0], alone->loss[1]);
    return ok;
}

static double distance(const double *a, const double *b, int64_t n) {
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs(a[i] - b[i]);
        most = d <= most ? most : d; /* a NaN is the most */
    }
    return most;
}

static void check_weights(const module *m, const module *other, int64_t at, const char *what) {
    double off = distance(m->weight, other->weight + at, module_size(m));
    CHECK(off <= BOUND * other->moved, "%s: weights differ by %g, having moved by %g", what, off,
          other->moved);
}

static void descend(run *r, int steps) {
    for (int i = 0; i < steps; i++) {
        run_step(r);
        run_descend(r);
    }
}

/* A direction to nudge the weights of one of the two matrices in. */
static double nudge(const module *m, bool second, int64_t i) {
    bool in_second = i % (m->in + m->out) >= m->in;
    return in_second == second ? (double)(mix((uint64_t)i + 99) % 3) - 1 : 0;
}

/* Whether the gradient of a matrix is that of the loss. The error is a square of what is linear in
 * each matrix, so a central difference has no remainder, and all are integers. */
static void check_derivative(const problem *p, bool llm, bool second) {
    double along = 0, loss[3];
    for (int k = 0; k < 3; k++) {
        run r = run_alone(p);
        module *m = llm ? &r.llm : &r.encoder;
        for (int64_t i = 0; i < module_size(m); i++) {
            m->weight[i] += (k - 1) * nudge(m, second, i);
        }
        run_step(&r);
        for (int64_t i = 0; k == 1 && i < module_size(m); i++) {
            along += nudge(m, second, i) * m->gradient[i];
        }
        loss[k] = r.loss[0];
        run_free(&r);
    }
    CHECK(along != 0 && loss[2] - loss[0] == 4 * along,
          "use %d, %s: the loss changes by %g, the gradient says %g", p->use,
          llm ? "LLM" : "encoder", loss[2] - loss[0], 4 * along);
}

/* One process is right, its numbers are exact, and its training goes somewhere. */
static void expect_alone(expected *e) {
    problem absolute = e->of;
    absolute.absolute = true;
    run most = run_alone(&absolute);
    run_step(&most);
    double gradient = largest(most.encoder.gradient, module_size(&most.encoder));
    gradient = fmax(gradient, largest(most.llm.gradient, module_size(&most.llm)));
    CHECK(most.greatest < 0x1p24 && gradient < 0x1p24,
          "%g on the bridge or %g in a gradient is not exact in float32", most.greatest, gradient);
    run_free(&most);
    for (int i = 0; i < 4; i++) {
        check_derivative(&e->of, i / 2, i % 2);
    }
    e->alone = run_alone(&e->of);
    e->alone_end = run_alone(&e->of);
    run_step(&e->alone);
    descend(&e->alone_end, STEPS);
    CHECK(e->alone_end.loss[0] < 0.9 * e->alone.loss[0] && e->alone_end.encoder.moved > 1e-2 &&
              e->alone_end.llm.moved > 1e-2,
          "loss %g to %g, weights move by %g and %g", e->alone.loss[0], e->alone_end.loss[0],
          e->alone_end.encoder.moved, e->alone_end.llm.moved);
}

static void expect_equal(expected *e, const mesh *m) {
    e->equal = run_equal(&e->of, m);
    e->equal_end = run_equal(&e->of, m);
    run_step(&e->equal);
    descend(&e->equal_end, STEPS);
}

/* One case, on the same weights; the dtypes on the bridge alternate, and rounding is only asked of
 * f64. Returns whether the encoder's gradient is right on this rank. */
static bool train(lierne_context *context, const layouts *l, const variant *v, const expected *e,
                  int number) {
    static const lierne_dtype dtypes[] = {LIERNE_DTYPE_F64, LIERNE_DTYPE_F32, LIERNE_DTYPE_I32};
    bool batch_first = number / 3 % 2 == 0 || v->owner == LIERNE_GRADIENT_OWNER_ROWS;
    int rows = problem_rows(&e->of);
    int32_t *owner = malloc((size_t)(e->of.samples * rows) * sizeof *owner);
    for (int i = 0; i < (int)e->of.samples * rows; i++) {
        owner[i] = problem_row_owner(&e->of, l->dst_cp, i / rows, i % rows);
    }
    bridge_case c = {.src = mesh_of("tcd", l->src_tp, 1, l->src_dp),
                     .dst = mesh_of(l->dst_order, l->dst_tp, l->dst_cp, l->dst_dp),
                     .world = test_world,
                     .batch = e->of.samples,
                     .sequence = rows,
                     .hidden = HIDDEN,
                     .axis_b = !batch_first,
                     .axis_s = batch_first,
                     .axis_h = 2,
                     .dtype = dtypes[number % 3],
                     .algorithm = v->algorithm,
                     .owner = v->owner,
                     .storage = v->storage,
                     .rows = v->owner == LIERNE_GRADIENT_OWNER_ROWS ? owner : NULL};
    run r = run_bridged(&e->of, &c, context);
    run_step(&r);
    bool ok = check_gradients(&r, e, case_text(&c));
    if (c.dtype == LIERNE_DTYPE_F64) {
        run_descend(&r);
        descend(&r, STEPS - 1);
        check_weights(&r.encoder, &e->equal_end.encoder, 0, case_text(&c));
        check_weights(&r.encoder, &e->alone_end.encoder, shard(&r.encoder), case_text(&c));
        check_weights(&r.llm, &e->alone_end.llm, shard(&r.llm), case_text(&c));
    }
    run_free(&r);
    free(owner);
    return ok;
}

/* All variants that are defined for a pair of layouts, and a line that says how they went. */
static void train_pair(lierne_context *context, const layouts *l, expected *e, int number) {
    bool aligned = strcmp(l->dst_order, "tcd") == 0;
    mesh src = mesh_of("tcd", l->src_tp, 1, l->src_dp);
    int cases = 0, wrong = 0;
    for (int u = PLAIN; u <= CROSS; u++) {
        expect_equal(&e[u], &src);
    }
    for (int i = 0; i < VARIANTS; i++) {
        const variant *v = &variants[i];
        if (v->algorithm == TEST_DIRECT || aligned) {
            int bad = !train(context, l, v, &e[v->use], number + i);
            MPI_Allreduce(MPI_IN_PLACE, &bad, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
            wrong += bad;
            cases++;
        }
    }
    for (int u = PLAIN; u <= CROSS; u++) {
        run_free(&e[u].equal);
        run_free(&e[u].equal_end);
    }
    if (test_rank == 0) {
        printf("%d x %d -> %d x %d x %d %s: %d cases, %d wrong\n", l->src_tp, l->src_dp, l->dst_tp,
               l->dst_cp, l->dst_dp, l->dst_order, cases, wrong);
    }
}

/* A name that is not known must not pass for a run without faults. */
static bool set_fault(void) {
    const char *name = getenv("LIERNE_TRAIN_FAULT");
    model_fault = name ? name : "";
    bool known = !name;
    for (int i = 0; name && model_faults[i]; i++) {
        known |= strcmp(name, model_faults[i]) == 0;
    }
    return known;
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    if (!set_fault() || (test_world != 4 && test_world != 8)) {
        fprintf(stderr, "no such fault, or not on 4 or 8 ranks\n");
        MPI_Finalize();
        return 2;
    }
    size_t before = lierne_mem_live();
    lierne_context *context;
    CHECK_OK(test_context_create(&context, MPI_COMM_WORLD, NULL));
    expected e[CROSS + 1];
    for (int u = PLAIN; u <= CROSS; u++) {
        e[u].of = (problem){.use = (use)u, .samples = 2 * test_world};
        expect_alone(&e[u]);
    }
    int pairs = test_world == 4 ? sizeof of_4 / sizeof of_4[0] : sizeof of_8 / sizeof of_8[0];
    for (int i = 0; i < pairs; i++) {
        train_pair(context, test_world == 4 ? &of_4[i] : &of_8[i], e, i);
    }
    for (int u = PLAIN; u <= CROSS; u++) {
        run_free(&e[u].alone);
        run_free(&e[u].alone_end);
    }
    CHECK_OK(lierne_context_destroy(context));
    CHECK(lierne_mem_live() == before, "%zu allocations leaked", lierne_mem_live() - before);
    return test_finish();
}
