/* Requests in flight that each rank ends in another order. All ranks begin them in one order, as
 * they must. The sums take two stages, so a rank that waits for one request must progress the
 * others: a peer may wait for those first. */
#include "mpi/common.h"

#include <stdlib.h>

enum { PLANS = 3, SAMPLES = 4, SEQUENCE = 8, HIDDEN = 6, ELEMENTS = SAMPLES * SEQUENCE * HIDDEN };

typedef struct setup {
    lierne_context *context;
    lierne_grid *src, *dst;
    lierne_bridge_spec spec;
    lierne_plan *plans[PLANS];
    float in[PLANS][ELEMENTS], out[PLANS][ELEMENTS];
    lierne_request *requests[PLANS];
} setup;

static void open_setup(setup *s, int check) {
    static const int64_t shape[3] = {SAMPLES, SEQUENCE, HIDDEN};
    mesh src = mesh_of("tcd", test_world, 1, 1), dst = mesh_of("tcd", 1, test_world, 1);
    lierne_context_spec context = {.size = sizeof context, .timeout = PATIENT, .check = check};
    CHECK_OK(test_context_create(&s->context, MPI_COMM_WORLD, &context));
    s->src = mesh_grid(&src, test_world);
    s->dst = mesh_grid(&dst, test_world);
    s->spec = bridge_spec_of(s->src, s->dst, shape);
    for (int p = 0; p < PLANS; p++) {
        CHECK_OK(lierne_plan_create_bridge(&s->plans[p], s->context, &s->spec));
    }
}

static void close_setup(setup *s) {
    for (int p = 0; p < PLANS; p++) {
        CHECK_OK(lierne_plan_destroy(s->plans[p]));
    }
    CHECK_OK(lierne_context_destroy(s->context));
    lierne_grid_destroy(s->src), lierne_grid_destroy(s->dst);
}

static void begin(setup *s, int p) {
    for (int i = 0; i < ELEMENTS; i++) {
        s->in[p][i] = (float)(1000 * p + 7 * i + test_rank);
        s->out[p][i] = -1;
    }
    CHECK(lierne_plan_adjoint_begin(&s->requests[p], s->plans[p], s->out[p], s->in[p], NULL) ==
              LIERNE_OK,
          "plan %d: %s", p, lierne_last_error());
}

static void end(setup *s, int p) {
    int wrong = 0;
    CHECK(lierne_request_end(s->requests[p]) == LIERNE_OK, "plan %d: %s", p, lierne_last_error());
    for (int i = 0; i < ELEMENTS; i++) {
        int sum = test_world * (1000 * p + 7 * i) + test_world * (test_world - 1) / 2;
        wrong += s->out[p][i] != (float)sum;
    }
    CHECK(wrong == 0, "plan %d: %d wrong elements", p, wrong);
}

/* Every rank begins with another plan's end. */
static void rotated(setup *s) {
    for (int p = 0; p < PLANS; p++) {
        begin(s, p);
    }
    for (int p = 0; p < PLANS; p++) {
        end(s, (p + test_rank) % PLANS);
    }
}

/* Every second rank ends a request before it begins the next one, the others after. */
static void overlapping(setup *s) {
    begin(s, 0);
    if (test_rank % 2) {
        end(s, 0);
    }
    begin(s, 1);
    end(s, 1);
    if (test_rank % 2 == 0) {
        end(s, 0);
    }
}

/* Every second rank plans while its request is in flight. */
static void planning(setup *s) {
    lierne_plan *more;
    begin(s, 2);
    if (test_rank % 2) {
        end(s, 2);
    }
    CHECK_OK(lierne_plan_create_bridge(&more, s->context, &s->spec));
    if (test_rank % 2 == 0) {
        end(s, 2);
    }
    CHECK_OK(lierne_plan_destroy(more));
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    size_t before = lierne_mem_live();
    setup *s = calloc(1, sizeof *s);
    for (int check = 0; check < 2; check++) {
        open_setup(s, check);
        rotated(s);
        overlapping(s);
        planning(s);
        close_setup(s);
    }
    free(s);
    CHECK(lierne_mem_live() == before, "leaked");
    return test_finish();
}
