/* Redistributions between random layouts, and random tensor sets, on real ranks: the cases of
 * tests/unit/test_redistribute.c and test_set.c, each rank doing its own part. Every rank makes the
 * same case from the same seed. */
#include "mpi/common.h"
#include "unit/redistribute_case.h"
#include "unit/set_case.h"

#include <stdlib.h>
#include <string.h>

enum { CASES = 150, SETS = 40 };

static void run_seed(lierne_context *context, uint64_t seed, lierne_sharing sharing) {
    redistribute_case c;
    lierne_plan *plan;
    int64_t dots[2], sums[2];
    random_redistribute(&c, seed, test_world);
    c.sharing = sharing;
    lierne_status status = redistribute_plan(&plan, &c, context);
    CHECK(status == LIERNE_OK, "seed %d: %s", (int)seed, lierne_last_error());
    if (status != LIERNE_OK) {
        return;
    }
    for (int d = 0; d < 2; d++) {
        const char *wrong = redistribute_run(&c, plan, test_rank, (lierne_direction)d, &dots[d]);
        CHECK(!wrong, "seed %d: %s\n%s", (int)seed, wrong, redistribute_text(&c));
    }
    MPI_Allreduce(dots, sums, 2, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    CHECK(c.stated_adjoint || sums[0] == sums[1], "seed %d: <Fx, y> is %lld, <x, F*y> is %lld",
          (int)seed, (long long)sums[0], (long long)sums[1]);
    CHECK_OK(lierne_plan_destroy(plan));
}

/* The last rank's dst is of another kind: every rank gets the same error. */
static void reject(lierne_context *context, const redistribute_case *c, lierne_placement_kind kind,
                   lierne_status wanted, const char *words) {
    redistribute_case other = *c;
    lierne_plan *plan;
    bool last = test_rank == test_world - 1;
    other.layouts[CASE_DST].placements[0].kind = kind;
    test_same_error(redistribute_plan(&plan, last ? &other : c, context), wanted, words);
    CHECK(strstr(lierne_last_error(), words), "'%s' has no '%s'", lierne_last_error(), words);
    CHECK(!plan, "a plan beside an error");
}

static void ranks_that_disagree(lierne_context *context) {
    redistribute_case c;
    random_redistribute(&c, 1, test_world);
    c.stated_adjoint = 0;
    for (int which = CASE_SRC; which <= CASE_DST; which++) {
        c.layouts[which] = (case_layout){.ndims = 1, .sizes = {test_world}};
        c.layouts[which].placements[0].kind =
            which == CASE_SRC ? LIERNE_PLACEMENT_REPLICATE : LIERNE_PLACEMENT_SHARD;
    }
    reject(context, &c, LIERNE_PLACEMENT_REPLICATE, LIERNE_ERR_MISMATCH,
           "dst.dim[0].kind differs between ranks");
    reject(context, &c, LIERNE_PLACEMENT_PARTIAL, LIERNE_ERR_UNSUPPORTED,
           "dim 0 of dst is PARTIAL");
}

/* One direction of a set: blocking, then begin and end. */
static void run_direction(const set_case *c, lierne_plan *plan, lierne_direction d, int64_t *dot) {
    set_buffers b;
    CHECK(set_open(&b, c, plan, test_rank, d), "sizes of buffers");
    for (int round = 0; round < 2; round++) {
        lierne_request *request;
        set_poison(&b);
        lierne_status status =
            round == 0 ? (d ? lierne_plan_adjoint : lierne_plan_forward)(plan, b.out, b.in, NULL)
                       : (d ? lierne_plan_adjoint_begin
                            : lierne_plan_forward_begin)(&request, plan, b.out, b.in, NULL);
        status = status == LIERNE_OK && round ? lierne_request_end(request) : status;
        CHECK_OK(status);
        *dot = 0;
        const char *wrong = set_check(&b, c, test_rank, d, dot);
        CHECK(!wrong, "direction %d, round %d: %s", (int)d, round, wrong);
    }
    set_close(&b);
}

static void run_set(lierne_context *context, uint64_t seed) {
    set_case c;
    lierne_plan *plan;
    int64_t dots[2], sums[2];
    random_set(&c, seed, test_world);
    lierne_status status = set_plan(&plan, &c, context, test_rank);
    CHECK(status == LIERNE_OK, "set %d: %s", (int)seed, lierne_last_error());
    if (status != LIERNE_OK) {
        return;
    }
    run_direction(&c, plan, LIERNE_DIRECTION_FORWARD, &dots[0]);
    run_direction(&c, plan, LIERNE_DIRECTION_ADJOINT, &dots[1]);
    MPI_Allreduce(dots, sums, 2, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sums[0] == sums[1], "set %d: <Fx, y> is %lld, <x, F*y> is %lld", (int)seed,
          (long long)sums[0], (long long)sums[1]);
    CHECK_OK(lierne_plan_destroy(plan));
}

/* The last rank has a tensor less: every rank gets the same error. */
static void sets_that_disagree(lierne_context *context) {
    set_case c;
    lierne_plan *plan;
    random_set(&c, 7, test_world);
    c.ntensors -= test_rank == test_world - 1;
    test_same_error(set_plan(&plan, &c, context, test_rank), LIERNE_ERR_MISMATCH,
                    "ntensors differs");
    CHECK(!plan, "a plan beside an error");
}

static void run_all(lierne_context *context) {
    for (uint64_t seed = 0; seed < CASES; seed++) {
        run_seed(context, 1000 * (uint64_t)test_world + seed, LIERNE_SHARING_NONE);
        run_seed(context, 1000 * (uint64_t)test_world + seed, (lierne_sharing)(1 + seed % 3));
    }
    for (uint64_t seed = 0; seed < SETS; seed++) {
        run_set(context, seed);
    }
    if (test_world > 1) {
        ranks_that_disagree(context);
        sets_that_disagree(context);
    }
}

int main(int argc, char **argv) {
    return test_main(&argc, &argv, run_all);
}
