/* Worlds: the results of each rank are kept separate, and combined when all ranks are done. Ranks
 * may be threads of this process or processes of their own, so numbers of all ranks go through
 * golden_ranks_sum and golden_ranks_most. */
#include "row_case.h"

#include "route_executor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

golden_world golden_world_new(golden_case *c, int n) {
    golden_world world = {.n = n};
    golden_expect_status(c, "a world", golden_ranks_start(&world), LIERNE_OK);
    world.cases = golden_alloc(n, sizeof *world.cases);
    world.plans = golden_alloc(n, sizeof(lierne_plan *));
    world.dots = golden_alloc(n, sizeof *world.dots);
    for (int r = 0; r < n; r++) {
        world.cases[r].item = c->item;
    }
    return world;
}

bool golden_world_run(golden_world *world, void (*work)(lierne_context *context, void *shared),
                      void *shared) {
    double planned = 0;
    golden_ranks_run(world, work, shared);
    for (int r = 0; r < world->n; r++) {
        planned += world->plans[r] != NULL;
    }
    golden_ranks_sum(&planned, 1);
    return (int)planned == world->n;
}

void golden_world_end(golden_case *c, golden_world *world, const char *what) {
    for (int r = 0; r < world->n; r++) {
        golden_expect(c, !world->cases[r].failed, "%s: rank %d: %s", what, r, world->cases[r].why);
        lierne_status status = lierne_plan_destroy(world->plans[r]);
        golden_expect_status(c, "lierne_plan_destroy", status, LIERNE_OK);
    }
    golden_expect_status(c, "the end of a world", golden_ranks_end(world), LIERNE_OK);
    golden_ranks_agree(c);
    free(world->cases);
    free(world->plans);
    free(world->dots);
}

void golden_expect_rejection(golden_case *c, lierne_status status, const lierne_plan *plan,
                             int blamed) {
    char rank[24];
    const char *name = lierne_status_name(status), *wanted = golden_string(c->item, "expect");
    const char *message = status ? lierne_last_error() : "planned";
    snprintf(rank, sizeof rank, blamed < 0 ? "rank " : "rank %d", blamed);
    golden_expect(c, strncmp(name, "LIERNE_ERR_", 11) == 0 && strcmp(name + 11, wanted) == 0,
                  "%s, expected %s; %s", name, wanted, message);
    golden_expect(c, strstr(message, rank) != NULL, "'%s' does not name %s", message, rank);
    golden_expect(c, !plan, "a plan in spite of the error");
}

void golden_world_check(golden_case *c, const golden_world *world) {
    const lierne_plan *const *plans = (const lierne_plan *const *)world->plans + world->first;
    golden_expect_status(c, "lierne_plan_check", lierne_plan_check(plans, world->here), LIERNE_OK);
    const char *fault = world->here == world->n ? route_compare(world->plans, world->n) : NULL;
    golden_expect(c, !fault, "%s", fault);
}

void golden_world_expect_adjoint(golden_case *c, const golden_world *world) {
    double sums[2] = {0};
    for (int r = 0; r < world->n; r++) {
        sums[0] += world->dots[r][0];
        sums[1] += world->dots[r][1];
    }
    golden_ranks_sum(sums, 2);
    golden_expect(c, sums[0] >= sums[1] && sums[0] <= sums[1], "<F x, y> is %.17g, <x, F* y> %.17g",
                  sums[0], sums[1]);
}

/* Sums over the ranks of this process. */
static lierne_report reports_here(golden_case *c, const golden_world *world,
                                  lierne_direction direction) {
    lierne_report all = {.algorithm = ""};
    for (int r = world->first; r < world->first + world->here; r++) {
        lierne_report one = {.size = sizeof one};
        lierne_status status = lierne_plan_get_report(&one, world->plans[r], direction);
        golden_expect_status(c, "lierne_plan_get_report", status, LIERNE_OK);
        all.sent_bytes += one.sent_bytes;
        all.received_bytes += one.received_bytes;
        all.local_bytes += one.local_bytes;
        all.min_bytes += one.min_bytes;
        all.sent_messages += one.sent_messages;
        all.received_messages += one.received_messages;
        all.stages = one.stages > all.stages ? one.stages : all.stages;
        all.algorithm = r == world->first ? one.algorithm : all.algorithm;
        golden_expect(c, one.algorithm && strcmp(one.algorithm, all.algorithm) == 0,
                      "rank %d has another algorithm than rank %d", r, world->first);
    }
    return all;
}

lierne_report golden_world_report(golden_case *c, const golden_world *world,
                                  lierne_direction direction) {
    lierne_report all = reports_here(c, world, direction);
    int64_t *const counts[] = {&all.sent_bytes, &all.received_bytes, &all.local_bytes,
                               &all.min_bytes,  &all.sent_messages,  &all.received_messages};
    enum { N = sizeof counts / sizeof counts[0] };
    double sums[N];
    for (int i = 0; i < N; i++) {
        sums[i] = (double)*counts[i];
    }
    golden_ranks_sum(sums, N);
    for (int i = 0; i < N; i++) {
        *counts[i] = (int64_t)sums[i];
    }
    all.stages = (int64_t)golden_ranks_most((double)all.stages);
    return all;
}
