/* Halo exchanges on real ranks: the random swaps of tests/unit/test_halo.c, as they are and
 * flattened, each rank doing its own part. What plans must give is proven there; bricks over
 * processes are in tests/golden/halo.json. */
#include "mpi/common.h"
#include "unit/halo_trial.h"

#include <stdlib.h>

enum { SEEDS = 80 };

static void run_seed(lierne_context *context, halo_trial *t, uint64_t seed) {
    static const lierne_dtype dtypes[] = {LIERNE_DTYPE_I64,  LIERNE_DTYPE_F64, LIERNE_DTYPE_F32,
                                          LIERNE_DTYPE_BF16, LIERNE_DTYPE_F16, LIERNE_DTYPE_U8};
    size_t before = lierne_mem_live();
    halo_case_random(&t->swaps, test_world, seed);
    t->dtype = dtypes[seed % 6];
    t->stride = seed % 4 ? HALO_WIDTH + (int64_t)(seed % 4) : 0;
    t->flat = seed % 2;
    t->keep = seed % 5 == 4 && !t->flat;
    t->bad[test_rank] = 0;
    halo_trial_fill(t, seed, seed % 6 < 3 ? 1000 : 1);
    halo_trial_work_out(t);
    halo_trial_check(t, context);
    if (!t->flat) {
        halo_trial_overlap(t, context);
    }
    CHECK(!t->bad[test_rank], "seed %llu: %s", (unsigned long long)seed, t->why[test_rank]);
    CHECK(lierne_mem_live() == before, "seed %llu: leaked", (unsigned long long)seed);
}

static void run_all(lierne_context *context) {
    halo_trial *t = calloc(1, sizeof *t);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        run_seed(context, t, seed);
    }
    free(t);
}

int main(int argc, char **argv) {
    return test_main(&argc, &argv, run_all);
}
