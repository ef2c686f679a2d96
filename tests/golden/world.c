/* Worlds of threads: what every rank finds is kept apart, and becomes the case's when all are done.
 */
#include "exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

golden_world golden_world_new(golden_case *c, int n) {
    golden_world world = {.n = n};
    lierne_context_spec spec = {.size = sizeof spec, .timeout = 20};
    lierne_status status = lierne_sim_create(&world.sim, n, &spec);
    golden_expect_status(c, "lierne_sim_create", status, LIERNE_OK);
    world.cases = golden_alloc(n, sizeof *world.cases);
    world.plans = golden_alloc(n, sizeof(lierne_plan *));
    world.dots = golden_alloc(n, sizeof *world.dots);
    for (int r = 0; r < n; r++) {
        world.cases[r].item = c->item;
    }
    return world;
}

void golden_world_end(golden_case *c, golden_world *world, const char *what) {
    for (int r = 0; r < world->n; r++) {
        golden_expect(c, !world->cases[r].failed, "%s: rank %d: %s", what, r, world->cases[r].why);
        lierne_status status = lierne_plan_free(world->plans[r]);
        golden_expect_status(c, "lierne_plan_free", status, LIERNE_OK);
    }
    golden_expect_status(c, "lierne_sim_free", lierne_sim_free(world->sim), LIERNE_OK);
    free(world->cases);
    free(world->plans);
    free(world->dots);
}

void golden_expect_refusal(golden_case *c, lierne_status status, const lierne_plan *plan,
                           int blamed) {
    char rank[24];
    const char *name = lierne_status_name(status), *wanted = golden_string(c->item, "expect");
    const char *message = status ? lierne_last_error() : "planned";
    snprintf(rank, sizeof rank, blamed < 0 ? "rank " : "rank %d", blamed);
    golden_expect(c, strncmp(name, "LIERNE_", 7) == 0 && strcmp(name + 7, wanted) == 0,
                  "%s, expected %s; %s", name, wanted, message);
    golden_expect(c, strstr(message, rank) != NULL, "'%s' does not name %s", message, rank);
    golden_expect(c, !plan, "a plan in spite of the error");
}

void golden_world_check(golden_case *c, const golden_world *world) {
    lierne_status status = lierne_plan_check((const lierne_plan *const *)world->plans, world->n);
    golden_expect_status(c, "lierne_plan_check", status, LIERNE_OK);
}

void golden_world_expect_adjoint(golden_case *c, const golden_world *world) {
    double forward = 0, adjoint = 0;
    for (int r = 0; r < world->n; r++) {
        forward += world->dots[r][0];
        adjoint += world->dots[r][1];
    }
    golden_expect(c, forward >= adjoint && forward <= adjoint, "<F x, y> is %.17g, <x, F* y> %.17g",
                  forward, adjoint);
}

lierne_report golden_world_report(golden_case *c, const golden_world *world,
                                  lierne_direction direction) {
    lierne_report all = {0};
    for (int r = 0; r < world->n; r++) {
        lierne_report one = {.size = sizeof one};
        lierne_status status = lierne_plan_report(world->plans[r], direction, &one);
        golden_expect_status(c, "lierne_plan_report", status, LIERNE_OK);
        all.sent_bytes += one.sent_bytes;
        all.received_bytes += one.received_bytes;
        all.local_bytes += one.local_bytes;
        all.min_bytes += one.min_bytes;
        all.sent_messages += one.sent_messages;
        all.received_messages += one.received_messages;
        all.stages = one.stages > all.stages ? one.stages : all.stages;
        all.algorithm = r == 0 ? one.algorithm : all.algorithm;
        golden_expect(c, one.algorithm && strcmp(one.algorithm, all.algorithm) == 0,
                      "rank %d has another algorithm than rank 0", r);
    }
    return all;
}
