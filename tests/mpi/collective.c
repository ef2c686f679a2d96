/* Collectives on real ranks: every kind against its definition, both directions, begun and
 * blocking; long buffers by both algorithms; the order of short sums; a barrier; and faults of one
 * rank, which are the error of every rank. */
#include "collectives.h"
#include "mpi/common.h"
#include "unit/collective_case.h"
#include "unit/collective_faults.h"

#include <string.h>
#include <unistd.h>

static void execute(const collective_case *c, lierne_plan *plan, lierne_direction direction,
                    bool blocking) {
    collective_run run;
    int64_t wrong = 0;
    lierne_status status = (blocking ? collective_run_call
                                     : collective_run_start)(&run, c, plan, test_rank, direction);
    status = status ? status : collective_run_end(&run, &wrong);
    CHECK(status == LIERNE_OK && wrong == 0, "%s, direction %d: %lld elements are wrong; %s",
          collective_case_text(c), (int)direction, (long long)wrong,
          status ? lierne_last_error() : "");
}

static void run_case(lierne_context *context, const collective_case *c) {
    lierne_plan *plan;
    lierne_status status = collective_case_plan(&plan, context, c);
    if (!CHECK(status == LIERNE_OK, "%s: %s", collective_case_text(c), lierne_last_error())) {
        return;
    }
    for (int i = 0; i < 5; i++) { /* a blocking call may find what a begun one has left */
        collective_case run = *c;
        run.in_place = c->kind == ALL_REDUCE && i % 2;
        execute(&run, plan, LIERNE_DIRECTION_FORWARD, i % 3 != 0);
        if (collective_case_has_adjoint(c)) {
            execute(&run, plan, LIERNE_DIRECTION_ADJOINT, i % 3 != 0);
        }
    }
    CHECK_OK(lierne_plan_destroy(plan));
}

/* Every kind, with dtype, reduction, algorithm and root in turn. */
static void run_kinds(lierne_context *context, int n, const int *ranks) {
    for (int v = 0; v < COLLECTIVE_KINDS * 2 * 8; v++) {
        collective_case c = {.kind = (collective_kind)(v / 16),
                             .n = n,
                             .ranks = ranks,
                             .even = v % 2,
                             .dtype = (lierne_dtype)(LIERNE_DTYPE_F64 + v / 2 % 8),
                             .root = v / 2 % n};
        if (c.kind == ALL_REDUCE || c.kind == BROADCAST) {
            c.algorithm = (lierne_collective_algorithm)(v % 3);
            c.even = true;
        }
        if (c.kind == ALL_REDUCE || c.kind == REDUCE_SCATTER) {
            c.reduction = (lierne_reduction)(v / 2 % (c.dtype < LIERNE_DTYPE_I64 ? 5 : 4));
        }
        collective_case_size(&c, 12);
        run_case(context, &c);
    }
}

/* Every other rank, the last one first. */
static void run_list(lierne_context *context) {
    int ranks[COLLECTIVE_RANKS], n = 0;
    for (int r = test_world - 1; r >= 0; r -= 2) {
        ranks[n++] = r;
    }
    run_kinds(context, n, ranks);
}

/* 3 MiB: a message that MPI moves in several pieces. */
enum { LONG = 786433 };

static bool reduce_long(lierne_context *context, lierne_collective_algorithm algorithm, float *out,
                        const float *in) {
    const lierne_all_reduce_spec spec = all_reduce_of(LONG, LIERNE_DTYPE_F32, algorithm);
    lierne_plan *plan = NULL;
    lierne_status status = lierne_plan_create_all_reduce(&plan, context, &spec);
    status = status ? status : lierne_plan_forward(plan, out, in, NULL);
    status = status ? status : lierne_plan_destroy(plan);
    return CHECK_OK(status);
}

/* Contributions of very different sizes: the sums depend on their order. */
static float term(int rank, int i) {
    return (float)(mix((uint64_t)(rank * LONG + i)) % 1000003) * (rank % 2 ? 1e-3f : -37.0f);
}

static void run_long(lierne_context *context) {
    float *in = test_buffer(LONG * sizeof *in), *out[4];
    int64_t wrong = 0;
    for (int i = 0; i < LONG; i++) {
        in[i] = term(test_rank, i);
    }
    for (int a = 0; a < 4; a++) { /* both algorithms, then both in place */
        out[a] = test_buffer(LONG * sizeof *in);
        memcpy(out[a], in, LONG * sizeof *in);
        reduce_long(context, (lierne_collective_algorithm)(1 + a % 2), out[a], a < 2 ? in : out[a]);
    }
    for (int i = 0; i < LONG; i++) {
        float sum = term(0, i);
        for (int r = 1; r < test_world; r++) {
            sum += term(r, i);
        }
        for (int a = 0; a < 4; a++) {
            wrong += memcmp(&sum, &out[a][i], sizeof sum) != 0;
        }
    }
    CHECK(wrong == 0, "%lld of 4 * %d sums have other bits", (long long)wrong, LONG);
}

/* Blocking calls whose messages are short enough to be added where they are exposed. */
static void run_short(lierne_context *context) {
    enum { N = 64 };
    const lierne_all_reduce_spec spec =
        all_reduce_of(N, LIERNE_DTYPE_F32, LIERNE_COLLECTIVE_ALGORITHM_AUTO);
    float in[N], out[N];
    lierne_plan *plan;
    int64_t wrong = 0;
    CHECK_OK(lierne_plan_create_all_reduce(&plan, context, &spec));
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < N; i++) {
            in[i] = term(test_rank, round * N + i);
            out[i] = -1;
        }
        CHECK_OK(lierne_plan_forward(plan, out, in, NULL));
        for (int i = 0; i < N; i++) {
            float sum = term(0, round * N + i);
            for (int r = 1; r < test_world; r++) {
                sum += term(r, round * N + i);
            }
            wrong += memcmp(&sum, &out[i], sizeof sum) != 0;
        }
    }
    CHECK(wrong == 0, "%lld short sums have other bits", (long long)wrong);
    CHECK_OK(lierne_plan_destroy(plan));
}

/* The last rank comes late: nobody is through before it has begun. */
static void run_barrier(lierne_context *context) {
    const lierne_barrier_spec spec = {.size = sizeof spec};
    lierne_plan *plan;
    CHECK_OK(lierne_plan_create_barrier(&plan, context, &spec));
    for (int i = 0; i < 4; i++) {
        if (test_rank == test_world - 1) {
            usleep(50000);
        }
        double began = lierne_now();
        CHECK_OK(lierne_plan_forward(plan, NULL, NULL, NULL));
        double ended = lierne_now();
        MPI_Bcast(&began, 1, MPI_DOUBLE, test_world - 1, MPI_COMM_WORLD);
        CHECK(ended >= began, "through %g s before the last rank began", began - ended);
    }
    CHECK_OK(lierne_plan_destroy(plan));
}

static void check_fault(lierne_context *context, const collective_fault *fault, int bad) {
    lierne_plan *plan = NULL;
    size_t before = lierne_mem_live();
    lierne_status status = collective_fault_plan(&plan, context, fault, test_rank == bad);
    test_same_error(status, fault->status, fault->name);
    CHECK(!plan && lierne_mem_live() == before, "%s: something was kept", fault->name);
    CHECK(strstr(lierne_last_error(), fault->text), "%s, rank %d: %s", fault->name, bad,
          lierne_last_error());
}

/* A list of both ranks of two in their order is no list. */
static bool applies(const collective_fault *fault) {
    return test_world > 2 || strcmp(fault->name, "gather: other order") != 0;
}

static void run_faults(lierne_context *context) {
    for (const collective_fault *fault = collective_faults; fault->name; fault++) {
        for (int third = 0; third < 3 && applies(fault); third++) {
            check_fault(context, fault, third * (test_world - 1) / 2);
        }
    }
}

static void run_all(lierne_context *context) {
    run_kinds(context, test_world, NULL);
    run_list(context);
    run_long(context);
    run_short(context);
    run_barrier(context);
    run_faults(context);
    run_kinds(context, test_world, NULL);
}

int main(int argc, char **argv) {
    return test_main(&argc, &argv, run_all);
}
