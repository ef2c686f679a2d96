/* Results that go straight to another assignment L: M(E, L) gives the bytes of a return home that
 * a dispatch to L follows, both ways, and sends fewer rows. */
#include "expect.h"
#include "lierne.h"
#include "ranks.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { WORLD = 4, LOCAL = 5, STEPS = 12, WIDTH = 3, COSTS = 2 };
enum { MOST_ROWS = WORLD * LOCAL * 8, VALUES = MOST_ROWS * WIDTH };

typedef struct route_sums {
    int wrong;
    char what[400];
    int64_t direct, by_home; /* bytes that this rank sent, in all steps */
} route_sums;

/* To L at once; home; and from home to L. */
typedef struct ways {
    route_sums *o;
    lierne_samples *samples[3];
    lierne_plan *plans[3];
} ways;

static void note(route_sums *o, bool ok, int step, const char *what) {
    if (!ok && o->wrong++ == 0) {
        snprintf(o->what, sizeof o->what, "step %d: %s: %s", step, what, lierne_last_error());
    }
}

static void create(ways *w, lierne_context *context) {
    const lierne_samples_tensor results = {LIERNE_SAMPLES_RETURN, LIERNE_DTYPE_I64, WIDTH},
                                rows = {LIERNE_SAMPLES_DISPATCH, LIERNE_DTYPE_I64, WIDTH};
    lierne_samples_spec spec = {.size = sizeof spec,
                                .max_local_items = LOCAL,
                                .ncosts = COSTS,
                                .max_rows = MOST_ROWS,
                                .ntensors = 1};
    for (int i = 0; i < 3; i++) {
        spec.tensors = i < 2 ? &results : &rows;
        note(w->o, lierne_samples_create(&w->samples[i], context, &spec) == LIERNE_OK, -1,
             "create");
        note(w->o, lierne_samples_get_plan(&w->plans[i], w->samples[i], 0) == LIERNE_OK, -1,
             "get_plan");
    }
}

/* Rank 3 is empty in every third step. Images merge 2:1, so results have half the rows. */
static void update(ways *w, int rank, int step) {
    int64_t cost[LOCAL * COSTS], rows[LOCAL], returned[LOCAL];
    lierne_balance_spec encoder = LIERNE_BALANCE_SPEC_INIT, llm = encoder;
    for (int j = 0; j < LOCAL; j++) {
        rows[j] = 2 * ((5 * rank + 3 * j + step) % 5 + (rank == step % WORLD));
        returned[j] = rows[j] / 2;
        cost[COSTS * j] = 1 + rows[j] * rows[j];
        cost[COSTS * j + 1] = (7 * rank + 11 * j + 2 * step) % 40;
    }
    lierne_items items = {.size = sizeof items,
                          .nitems = rank == 3 && step % 3 == 0 ? 0 : LOCAL - (rank + step) % 2,
                          .ncosts = COSTS,
                          .cost = cost,
                          .rows = rows,
                          .returned_rows = returned};
    encoder.mode = step % 2 ? LIERNE_BALANCE_LPT : LIERNE_BALANCE_SHED;
    llm.mode = LIERNE_BALANCE_LPT;
    llm.cost = 1;
    note(w->o, lierne_samples_update(w->samples[0], &items, &encoder, &llm) == LIERNE_OK, step,
         "update");
    note(w->o, lierne_samples_update(w->samples[1], &items, &encoder, NULL) == LIERNE_OK, step,
         "update");
    items.rows = returned;
    note(w->o, lierne_samples_update(w->samples[2], &items, &llm, NULL) == LIERNE_OK, step,
         "update");
}

static int64_t sent_by(ways *w, int plan, int step) {
    lierne_report r = {.size = sizeof r};
    note(w->o, lierne_plan_get_report(&r, w->plans[plan], LIERNE_DIRECTION_FORWARD) == LIERNE_OK,
         step, "report");
    return r.sent_bytes;
}

/* Results of the encoder, of which each element is another one on every rank. */
static void move(ways *w, int rank, int step) {
    int64_t in[VALUES], out[VALUES], home[VALUES], onward[VALUES];
    for (int i = 0; i < VALUES; i++) {
        in[i] = (int64_t)rank * VALUES + i;
        out[i] = home[i] = onward[i] = -7;
    }
    note(w->o, lierne_plan_forward(w->plans[0], out, in, NULL) == LIERNE_OK, step, "to L");
    note(w->o, lierne_plan_forward(w->plans[1], home, in, NULL) == LIERNE_OK, step, "home");
    note(w->o, lierne_plan_forward(w->plans[2], onward, home, NULL) == LIERNE_OK, step, "onward");
    note(w->o, memcmp(out, onward, sizeof out) == 0, step, "M(E, L)");
    for (int i = 0; i < VALUES; i++) {
        onward[i] = home[i] = in[i] = -7;
    }
    note(w->o, lierne_plan_adjoint(w->plans[0], in, out, NULL) == LIERNE_OK, step, "from L");
    note(w->o, lierne_plan_adjoint(w->plans[2], home, out, NULL) == LIERNE_OK, step, "home");
    note(w->o, lierne_plan_adjoint(w->plans[1], onward, home, NULL) == LIERNE_OK, step, "back");
    note(w->o, memcmp(in, onward, sizeof in) == 0, step, "M(L, E)");
    w->o->direct += sent_by(w, 0, step);
    w->o->by_home += sent_by(w, 1, step) + sent_by(w, 2, step);
}

static void run(lierne_context *context, void *shared) {
    int rank = lierne_context_get_rank(context);
    ways w = {.o = &((route_sums *)shared)[rank]};
    create(&w, context);
    for (int step = 0; step < STEPS && !w.o->wrong; step++) {
        update(&w, rank, step);
        move(&w, rank, step);
    }
    for (int i = 0; i < 3; i++) {
        note(w.o, lierne_samples_destroy(w.samples[i]) == LIERNE_OK, STEPS, "destroy");
    }
}

Test(samples, results_go_to_another_assignment_at_once) {
    route_sums all[WORLD] = {{0}};
    int64_t direct = 0, by_home = 0;
    ranks_run(WORLD, NULL, run, all);
    for (int r = 0; r < WORLD; r++) {
        cr_expect_eq(all[r].wrong, 0, "rank %d: %s", r, all[r].what);
        direct += all[r].direct;
        by_home += all[r].by_home;
    }
    cr_expect(direct > 0 && direct * 4 < by_home * 3, "%lld bytes, and %lld by home",
              (long long)direct, (long long)by_home);
}
