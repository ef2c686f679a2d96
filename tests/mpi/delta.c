/* Deltas of random tensor sets between processes, against the plans' own forward. */
#include "mpi/common.h"
#include "unit/delta_steps.h"

enum { SEEDS = 20 };

static void run(lierne_context *context) {
    static set_case set;
    static delta_steps t;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        random_set(&set, seed, test_world);
        t = (delta_steps){.seed = seed};
        delta_steps_run(&t, &set, context);
        CHECK(t.wrong == 0, "seed %d: %s", (int)seed, t.what);
    }
}

int main(int argc, char **argv) {
    return test_main(&argc, &argv, run);
}
