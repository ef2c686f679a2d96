/* Migrations between processes: random steps against a serial model, with rows of several types. */
#include "mpi/common.h"
#include "unit/migration_case.h"

enum { SEEDS = 4, STEPS = 25 };

static void run_all(lierne_context *context) {
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        migration_steps m = {.seed = seed * 10 + (uint64_t)test_world, .steps = STEPS};
        size_t before = lierne_mem_live();
        migration_steps_run(&m, context);
        CHECK(m.wrong == 0, "seed %d, step %d: line %d: %s", (int)m.seed, m.step, m.wrong, m.what);
        CHECK(test_world == 1 || m.moved > STEPS, "%d rows moved", (int)m.moved);
        CHECK(lierne_mem_live() == before, "seed %d: leaked", (int)m.seed);
    }
}

int main(int argc, char **argv) {
    return test_main(&argc, &argv, run_all);
}
