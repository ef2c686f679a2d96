/* Random bridges on real ranks: the cases of tests/unit/test_bridge_general.c, each rank doing its
 * own part. Every rank makes the same case from the same seed. */
#include "mpi/common.h"
#include "unit/random_case.h"

#include <stdlib.h>
#include <string.h>

enum { CASES = 200, GUARD = 64 };

typedef enum how { BLOCKING, BEGIN_AND_END, ALIAS, HOWS } how;

/* An output that is an alias of the input is left out. */
static lierne_status execute(how h, lierne_plan *plan, lierne_direction d, void *out,
                             const char *in, size_t size) {
    int64_t alias, n_in, n_out;
    lierne_request *request;
    if (h == BEGIN_AND_END) {
        LIERNE_TRY((d ? lierne_plan_adjoint_begin : lierne_plan_forward_begin)(&request, plan, out,
                                                                               in, NULL));
        return lierne_request_end(request);
    }
    LIERNE_TRY(lierne_plan_get_alias(&alias, plan, d));
    LIERNE_TRY(lierne_plan_get_elements(&n_in, &n_out, plan, d));
    bool leave = h == ALIAS && alias >= 0;
    LIERNE_TRY((d ? lierne_plan_adjoint : lierne_plan_forward)(plan, leave ? NULL : out, in, NULL));
    if (leave) {
        memcpy(out, in + (size_t)alias * size, (size_t)n_out * size);
    }
    return LIERNE_OK;
}

/* One direction in every way, into poisoned outputs; the same bits. Returns a part of a dot. */
static double run(const bridge_case *c, lierne_plan *plan, lierne_direction d, uint64_t seed) {
    int64_t n_in, n_out;
    double dot = 0;
    lierne_plan_get_elements(&n_in, &n_out, plan, d);
    size_t size = lierne_dtype_size(c->dtype), in_bytes = (size_t)n_in * size;
    size_t out_bytes = (size_t)n_out * size;
    char *in = malloc(in_bytes + 1), *kept = malloc(in_bytes + 1), poison[GUARD];
    char *out = malloc(out_bytes + GUARD);
    memset(in, 0x7b, in_bytes);
    memset(poison, 0xa5, GUARD);
    case_fill(c, test_rank, d, in);
    memcpy(kept, in, in_bytes);
    for (how h = BLOCKING; h < HOWS; h++) {
        memset(out, 0xa5, out_bytes + GUARD);
        lierne_status status = execute(h, plan, d, out, in, size);
        dot = 0;
        const char *wrong = status ? lierne_last_error() : case_check(c, test_rank, d, out, &dot);
        CHECK(!wrong, "seed %llu, %d: %s", (unsigned long long)seed, (int)h, wrong);
        CHECK(memcmp(in, kept, in_bytes) == 0 && memcmp(out + out_bytes, poison, GUARD) == 0,
              "seed %llu, %d: a byte of the input or behind the output was changed",
              (unsigned long long)seed, (int)h);
    }
    free(in), free(out), free(kept);
    return dot;
}

static void run_seed(lierne_context *context, uint64_t seed) {
    static case_arrays arrays;
    bridge_case c;
    lierne_plan *plan;
    double dots[2], sums[2];
    size_t before = lierne_mem_live();
    random_case(seed, test_world, &c, &arrays);
    test_cut_messages(context, seed % 5 == 4 ? 13 : (size_t)1 << 30);
    if (CHECK(case_plan(&plan, context, &c) == LIERNE_OK, "seed %llu: %s", (unsigned long long)seed,
              lierne_last_error())) {
        dots[0] = run(&c, plan, LIERNE_DIRECTION_FORWARD, seed);
        dots[1] = run(&c, plan, LIERNE_DIRECTION_ADJOINT, seed);
        MPI_Allreduce(dots, sums, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        CHECK(sums[0] == sums[1], "seed %llu: <Fx,y> differs from <x,F*y>",
              (unsigned long long)seed);
    }
    CHECK_OK(lierne_plan_destroy(plan));
    CHECK(lierne_mem_live() == before, "seed %llu: %zu allocations leaked",
          (unsigned long long)seed, lierne_mem_live() - before);
}

static void run_all(lierne_context *context) {
    for (uint64_t seed = 0; seed < CASES; seed++) {
        run_seed(context, 1000 * (uint64_t)test_world + seed);
    }
}

int main(int argc, char **argv) {
    return test_main(&argc, &argv, run_all);
}
