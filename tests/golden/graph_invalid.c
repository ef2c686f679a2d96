/* graph_a2a.json, invalid: one rank's input is wrong, and every rank must get the same error. The
 * file has it on one rank; here each rank once has it, by renumbering. The others have no edges. An
 * owner that is no rank is known to one rank or to all. */
#include "row_case.h"

#include <stdlib.h>

typedef struct trial {
    golden_world *world;
    int bad;    /* the rank whose input is wrong */
    bool alone; /* only it has the wrong owners */
    int64_t nrows, nedges;
    int64_t *owner, *source, *target;
} trial;

/* Owners for a rank: those of the case, with its rank now `bad`, or with all of them legal. */
static int32_t *owners(const trial *t, int rank, int was) {
    int32_t *owner = golden_alloc(t->nrows, sizeof *owner);
    int world = t->world->n;
    for (int64_t i = 0; i < t->nrows; i++) {
        bool legal = t->owner[i] >= 0 && t->owner[i] < world;
        int64_t turned = legal ? (t->owner[i] + t->bad - was + world) % world : t->owner[i];
        owner[i] = (int32_t)(legal || !t->alone || rank == t->bad ? turned : 0);
    }
    return owner;
}

static bool wrong_owners(const trial *t) {
    bool wrong = false;
    for (int64_t i = 0; i < t->nrows; i++) {
        wrong = wrong || t->owner[i] < 0 || t->owner[i] >= t->world->n;
    }
    return wrong;
}

static void work(lierne_context *context, void *shared) {
    const trial *t = shared;
    int rank = lierne_context_get_rank(context);
    golden_case *c = &t->world->cases[rank];
    int32_t *owner = owners(t, rank, (int)golden_int(c->item, "rank", 0));
    lierne_graph_spec spec = {.size = sizeof spec,
                              .nrows = t->nrows,
                              .owner = owner,
                              .nedges = rank == t->bad ? t->nedges : 0,
                              .source = t->source,
                              .target = t->target,
                              .dtype = LIERNE_DTYPE_F32,
                              .width = 1};
    lierne_status status = lierne_plan_create_graph(&t->world->plans[rank], context, &spec);
    bool all = !t->alone && wrong_owners(t); /* then the first one that came speaks */
    golden_expect_rejection(c, status, t->world->plans[rank], all ? -1 : t->bad);
    free(owner);
}

static void check_trial(golden_case *c, trial *t, int n) {
    golden_world world = golden_world_new(c, n);
    t->world = &world;
    golden_world_run(&world, work, t);
    golden_world_end(c, &world, t->alone ? "one rank has other owners" : "owners are the same");
}

void golden_graph_invalid(golden_case *c) {
    const cJSON *edges = golden_get(c->item, "edges");
    int world = (int)golden_int(c->item, "world", 0);
    int64_t ntargets;
    trial t = {.owner = golden_read_ints(golden_get(c->item, "assignment"), &t.nrows)};
    t.source = golden_read_ints(cJSON_GetArrayItem(edges, 0), &t.nedges);
    t.target = golden_read_ints(cJSON_GetArrayItem(edges, 1), &ntargets);
    if (golden_expect(c, t.nedges == ntargets, "edges have two ends")) {
        for (int i = 0; i < 2 * world; i++) {
            t.bad = i / 2;
            t.alone = i % 2;
            check_trial(c, &t, world);
        }
    }
    free(t.owner);
    free(t.source);
    free(t.target);
}
