/* Redistributions between random layouts, and random tensor sets, on real ranks: the cases of
 * tests/unit/test_redistribute.c and test_set.c, each rank doing its own part. Every rank makes the
 * same case from the same seed. */
#include "mpi/common.h"
#include "unit/redistribute_case.h"
#include "unit/set_case.h"

#include <stdlib.h>
#include <string.h>

enum { CASES = 150, SETS = 40 };

/* Copies the result out of a plan's own memory. Places that no element belongs to are zero there.
 */
static void take_shared(const redistribute_case *c, const lierne_plan *plan, lierne_direction d,
                        char *out, size_t bytes) {
    const void *result;
    CHECK(lierne_plan_get_shared_output(&result, plan, d) == LIERNE_OK && (result || bytes == 0),
          "%s", lierne_last_error());
    redistribute_copy_owned(c, test_rank, d, out, result);
}

/* One direction: blocking, then begin and end, into poisoned outputs; the same bits. */
static void run(const redistribute_case *c, lierne_plan *plan, lierne_direction d, int64_t *dot,
                uint64_t seed) {
    int64_t n_in, n_out;
    lierne_request *request;
    lierne_plan_get_elements(&n_in, &n_out, plan, d);
    size_t size = lierne_dtype_size(c->dtype), in_bytes = (size_t)n_in * size;
    size_t out_bytes = (size_t)n_out * size;
    char *in = malloc(in_bytes + 1), *out = malloc(out_bytes + 1), *kept = malloc(in_bytes + 1);
    memset(in, 0x7b, in_bytes);
    redistribute_fill(c, test_rank, d, in);
    memcpy(kept, in, in_bytes);
    bool shared = (c->sharing >> d & 1) != 0;
    for (int round = 0; round < 2; round++) {
        memset(out, 0xa5, out_bytes);
        void *to = shared ? NULL : out;
        lierne_status status =
            round == 0 ? (d ? lierne_plan_adjoint : lierne_plan_forward)(plan, to, in, NULL)
                       : (d ? lierne_plan_adjoint_begin : lierne_plan_forward_begin)(&request, plan,
                                                                                     to, in, NULL);
        status = status == LIERNE_OK && round ? lierne_request_end(request) : status;
        CHECK(status == LIERNE_OK, "seed %d: %s", (int)seed, lierne_last_error());
        if (shared) {
            take_shared(c, plan, d, out, out_bytes);
        }
        const char *wrong = redistribute_check(c, test_rank, d, out);
        CHECK(!wrong, "seed %d, round %d: %s\n%s", (int)seed, round, wrong, redistribute_text(c));
    }
    CHECK(memcmp(in, kept, in_bytes) == 0, "seed %d: the input was changed", (int)seed);
    *dot = c->dtype == LIERNE_DTYPE_I64 ? redistribute_dot(c, test_rank, d, out) : 0;
    free(in), free(out), free(kept);
}

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
    run(&c, plan, LIERNE_DIRECTION_FORWARD, &dots[0], seed);
    run(&c, plan, LIERNE_DIRECTION_ADJOINT, &dots[1], seed);
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
