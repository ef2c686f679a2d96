/* The golden cases of dense halos over NCCL without NCCL and without a GPU: 4 threads are the
 * ranks, on a device and over a NCCL that are played (cuda.c, fake.h), by the checks of
 * tests/golden. Last line: N passed, N failed. */
#include "fake.h"
#include "golden/row_case.h"
#include "node_ranks.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static lierne_context *contexts[RANKS]; /* for all cases */
static void (*to_do)(lierne_context *context, void *shared);
static void *to_do_with;

/* The checks give no stream; what is put on this one is done at once. */
static char stream;
#define WRAP(name)                                                                                 \
    lierne_status __real_##name(lierne_plan *plan, void *out, const void *in, void *none);         \
    lierne_status __wrap_##name(lierne_plan *plan, void *out, const void *in, void *none);         \
    lierne_status __wrap_##name(lierne_plan *plan, void *out, const void *in, void *none) {        \
        (void)none;                                                                                \
        return __real_##name(plan, out, in, &stream);                                              \
    }
WRAP(lierne_plan_forward)
WRAP(lierne_plan_adjoint)

lierne_status golden_ranks_start(golden_world *world) {
    world->here = 1; /* one thread cannot play all ranks, since group calls wait for each other */
    return world->n == RANKS ? LIERNE_OK : LIERNE_ERR_INVALID;
}

lierne_status golden_ranks_end(golden_world *world) {
    world->here = 0;
    return LIERNE_OK;
}

static void *do_rank(void *argument) {
    to_do(contexts[(intptr_t)argument], to_do_with);
    return NULL;
}

void golden_ranks_run(const golden_world *world,
                      void (*work)(lierne_context *context, void *shared), void *shared) {
    (void)world;
    to_do = work;
    to_do_with = shared;
    run_ranks(do_rank);
}

static void *open_context(void *argument) {
    contexts[(intptr_t)argument] = open_nccl("golden", (int)(intptr_t)argument, 60);
    return NULL;
}

static void *close_context(void *argument) {
    check(lierne_context_destroy(contexts[(intptr_t)argument]) == LIERNE_OK, "destroy");
    return NULL;
}

/* Cases of this world; returns how many. */
static int run_list(const cJSON *root, const char *list, golden_check *run) {
    const cJSON *one;
    int n = 0;
    cJSON_ArrayForEach(one, golden_get(root, list)) {
        golden_case c = {.item = one};
        if (golden_int(one, "world", 0) == RANKS) {
            run(&c);
            if (c.failed) {
                printf("%s: %s\n", golden_string(one, "id"), c.why);
            }
            check(!c.failed, list);
            n++;
        }
    }
    return n;
}

int main(void) {
    const char *why = "";
    cJSON *root = golden_read("tests/golden/dense_halo.json", &why);
    check(root != NULL, why);
    run_ranks(open_context);
    int before = fake_nccl_count().messages;
    check(run_list(root, "cases", golden_dense_halo) > 30, "cases");
    check(run_list(root, "order", golden_dense_halo_order) > 0, "cases of order");
    check(run_list(root, "invalid", golden_dense_halo_invalid) > 0, "bad halos");
    check(fake_nccl_count().messages - before > 1000, "messages are NCCL's");
    run_ranks(close_context);
    cJSON_Delete(root);
    return print_checks();
}
