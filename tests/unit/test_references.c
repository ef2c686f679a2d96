/* References with owned rows and ghosts in one combined buffer. Every rank owns two rows, and has
 * ghosts of both rows of the next rank, of its own first row, and once more of the next rank's
 * first. */
#include <criterion/criterion.h>
#include <lierne.h>
#include <stdio.h>
#include <string.h>

#include "ranks.h"
#include "runtime/context/context.h"

enum { WORLD = 3, OWNED = 2, GHOSTS = 4, ROWS = OWNED + GHOSTS };

typedef struct state {
    lierne_references_spec spec[WORLD]; /* all but the references */
    lierne_status status[WORLD];
    char message[WORLD][256];
    bool in_place;
    int64_t forward[WORLD][ROWS];
    int64_t adjoint[WORLD][ROWS];
    bool told[WORLD]; /* the plan's text says how many rows each rank sends to each */
} state;

static int64_t value(int rank, int row) {
    return 100 * (rank + 1) + row;
}

/* Executes in place, or from in to out; what is unset must be written. */
static lierne_status execute(lierne_plan *plan, bool forward, bool in_place, const int64_t *in,
                             int64_t *out) {
    for (int i = 0; i < ROWS; i++) {
        out[i] = in_place ? in[i] : -1;
    }
    return (forward ? lierne_plan_forward : lierne_plan_adjoint)(plan, out, in_place ? out : in,
                                                                 NULL);
}

/* Two rows of the next rank are needed, one of them twice, and one that is the rank's own. */
static bool tells_counts(const lierne_plan *plan, int r) {
    char received[64], sent[64], *text;
    int from[WORLD] = {0}, to[WORLD] = {0};
    from[(r + 1) % WORLD] = to[(r + WORLD - 1) % WORLD] = 2;
    snprintf(received, sizeof received, "\"recv_counts\": [%d,%d,%d]", from[0], from[1], from[2]);
    snprintf(sent, sizeof sent, "\"send_counts\": [%d,%d,%d]", to[0], to[1], to[2]);
    bool told = lierne_plan_serialize(&text, plan) == LIERNE_OK && strstr(text, received) &&
                strstr(text, sent);
    lierne_text_destroy(text);
    return told;
}

static void run_rank(lierne_context *context, void *shared) {
    state *s = shared;
    int r = lierne_context_get_rank(context), next = (r + 1) % WORLD;
    const int32_t rank[GHOSTS] = {next, next, r, next};
    const int64_t row[GHOSTS] = {0, 1, 0, 0};
    lierne_references_spec spec = s->spec[r];
    lierne_plan *plan;
    int64_t in[ROWS];
    spec.size = sizeof spec;
    spec.rank = rank;
    spec.row = row;
    s->status[r] = lierne_plan_create_references(&plan, context, &spec);
    if (s->status[r] == LIERNE_OK) {
        s->told[r] = tells_counts(plan, r);
        for (int i = 0; i < ROWS; i++) {
            in[i] = value(r, i);
        }
        s->status[r] = execute(plan, true, s->in_place, in, s->forward[r]);
    }
    if (s->status[r] == LIERNE_OK) {
        s->status[r] = execute(plan, false, s->in_place, in, s->adjoint[r]);
    }
    snprintf(s->message[r], sizeof s->message[r], "%s", lierne_last_error());
    lierne_plan_destroy(plan);
}

static void fill_specs(state *s) {
    memset(s, 0, sizeof *s);
    for (int r = 0; r < WORLD; r++) {
        s->spec[r] = (lierne_references_spec){.nowned = OWNED,
                                              .nghosts = GHOSTS,
                                              .dtype = LIERNE_DTYPE_I64,
                                              .width = 1,
                                              .combined = 1};
    }
}

static void check_rank(const state *s, int r, bool keeps) {
    int next = (r + 1) % WORLD, before = (r + WORLD - 1) % WORLD;
    const int64_t forward[ROWS] = {value(r, 0),    value(r, 1), value(next, 0),
                                   value(next, 1), value(r, 0), value(next, 0)};
    const int64_t adjoint[OWNED] = {value(r, 0) + value(r, 4) + value(before, 2) + value(before, 5),
                                    value(r, 1) + value(before, 3)};
    for (int i = 0; i < ROWS; i++) {
        int64_t ghost = keeps ? value(r, i) : 0;
        cr_expect_eq(s->forward[r][i], forward[i], "forward: row %d of rank %d", i, r);
        cr_expect_eq(s->adjoint[r][i], i < OWNED ? adjoint[i] : ghost,
                     "adjoint: row %d of rank %d is %lld", i, r, (long long)s->adjoint[r][i]);
    }
}

Test(references, combined_buffers) {
    static state s;
    for (int variant = 0; variant < 4; variant++) {
        fill_specs(&s);
        s.in_place = variant & 1;
        for (int r = 0; r < WORLD; r++) {
            s.spec[r].keep_ghosts = variant & 2;
        }
        ranks_run(WORLD, NULL, run_rank, &s);
        for (int r = 0; r < WORLD; r++) {
            cr_assert_eq(s.status[r], LIERNE_OK, "%s", s.message[r]);
            check_rank(&s, r, variant & 2);
            cr_expect(s.told[r], "counts in the text of rank %d", r);
        }
    }
}

static void expect_rejected(state *s, lierne_status status, const char *says) {
    ranks_run(WORLD, NULL, run_rank, s);
    for (int r = 0; r < WORLD; r++) {
        cr_expect(s->status[r] == status && strstr(s->message[r], says), "%d: %s", s->status[r],
                  s->message[r]);
        cr_expect_str_eq(s->message[r], s->message[0]);
    }
}

/* Separate buffers of owned rows and ghosts are never the same. */
Test(references, separate_buffers_not_in_place) {
    static state s;
    fill_specs(&s);
    s.in_place = true;
    for (int r = 0; r < WORLD; r++) {
        s.spec[r].combined = 0;
    }
    ranks_run(WORLD, NULL, run_rank, &s);
    for (int r = 0; r < WORLD; r++) {
        cr_expect(s.status[r] == LIERNE_ERR_INVALID && strstr(s.message[r], "in and out overlap"),
                  "%s", s.message[r]);
    }
}

/* What does not go together on one rank is every rank's error. */
Test(references, fields_that_contradict_each_other) {
    static state s;
    fill_specs(&s);
    s.spec[1].accumulate = 1;
    expect_rejected(&s, LIERNE_ERR_INVALID, "rank 1: combined and accumulate are set");
    fill_specs(&s);
    s.spec[1].algorithm = LIERNE_GRAPH_ALGORITHM_ALL_GATHER;
    expect_rejected(&s, LIERNE_ERR_INVALID, "rank 1: combined is set, and algorithm is");
    fill_specs(&s);
    s.spec[2].combined = 0;
    s.spec[2].keep_ghosts = 1;
    expect_rejected(&s, LIERNE_ERR_INVALID, "rank 2: keep_ghosts is set, but combined is not");
    fill_specs(&s);
    s.spec[2].combined = 0;
    expect_rejected(&s, LIERNE_ERR_MISMATCH, "combined");
}

/* A ring of WORLD * OWNED rows, where row i has an edge from row i + shift. */
static lierne_graph_spec ring(int rank, int shift, int64_t *source, int64_t *target) {
    static const int32_t owner[WORLD * OWNED] = {0, 0, 1, 1, 2, 2};
    for (int e = 0; e < OWNED; e++) {
        target[e] = rank * OWNED + e;
        source[e] = (target[e] + shift) % (WORLD * OWNED);
    }
    return (lierne_graph_spec){.size = sizeof(lierne_graph_spec),
                               .nrows = WORLD * OWNED,
                               .owner = owner,
                               .nedges = OWNED,
                               .source = source,
                               .target = target,
                               .dtype = LIERNE_DTYPE_I64,
                               .width = 1,
                               .combined = 1,
                               .keep_ghosts = shift == OWNED};
}

/* forward and adjoint of the ring, in place; the rows of the ghosts come back in `adjoint`. */
static void run_ring(lierne_context *context, void *shared) {
    state *s = shared;
    int r = lierne_context_get_rank(context);
    int64_t source[OWNED], target[OWNED];
    lierne_graph_spec spec = ring(r, OWNED, source, target);
    lierne_plan *plan;
    s->status[r] = lierne_plan_create_graph(&plan, context, &spec);
    if (s->in_place && s->status[r] == LIERNE_OK) { /* again, with another graph */
        spec = ring(r, 2 * OWNED, source, target);
        s->status[r] = lierne_plan_update_graph(plan, &spec);
    }
    for (int i = 0; i < OWNED; i++) {
        s->forward[r][i] = value(r, i);
    }
    for (int i = 0; i < 2 * OWNED; i++) {
        s->adjoint[r][i] = value(r, i);
    }
    if (s->status[r] == LIERNE_OK) {
        s->status[r] = lierne_plan_forward(plan, s->forward[r], s->forward[r], NULL);
    }
    if (s->status[r] == LIERNE_OK) {
        s->status[r] = lierne_plan_adjoint(plan, s->adjoint[r], s->adjoint[r], NULL);
    }
    snprintf(s->message[r], sizeof s->message[r], "%s", lierne_last_error());
    lierne_plan_destroy(plan);
}

/* Owned rows and ghosts of a graph in one buffer, also after an update that drops keep_ghosts. */
Test(references, combined_graph) {
    static state s;
    for (int updated = 0; updated < 2; updated++) {
        int step = updated ? 2 : 1;
        memset(&s, 0, sizeof s);
        s.in_place = updated;
        ranks_run(WORLD, NULL, run_ring, &s);
        for (int r = 0; r < WORLD; r++) {
            int from = (r + step) % WORLD, to = (r + WORLD - step) % WORLD;
            cr_assert_eq(s.status[r], LIERNE_OK, "%s", s.message[r]);
            for (int i = 0; i < OWNED; i++) {
                cr_expect_eq(s.forward[r][i], value(r, i));
                cr_expect_eq(s.forward[r][OWNED + i], value(from, i));
                cr_expect_eq(s.adjoint[r][i], value(r, i) + value(to, OWNED + i));
                cr_expect_eq(s.adjoint[r][OWNED + i], updated ? 0 : value(r, OWNED + i));
            }
        }
    }
}

/* A maximum, not in place, of a row and its own ghost, which is kept: what out held is no part of
 * it. */
Test(references, a_maximum_of_a_combined_buffer) {
    const int32_t rank = 0;
    const int64_t row = 0, in[2] = {3, 7};
    const lierne_references_spec spec = {.size = sizeof spec,
                                         .nowned = 1,
                                         .nghosts = 1,
                                         .rank = &rank,
                                         .row = &row,
                                         .dtype = LIERNE_DTYPE_I64,
                                         .width = 1,
                                         .combined = 1,
                                         .keep_ghosts = 1};
    int64_t out[2] = {99, 99};
    lierne_context *self;
    lierne_plan *plan;
    cr_assert_eq(lierne_context_create_self(&self, NULL), LIERNE_OK);
    cr_assert_eq(lierne_plan_create_references(&plan, self, &spec), LIERNE_OK);
    cr_assert_eq(lierne_plan_reduce(plan, LIERNE_REDUCTION_MAX, out, in, NULL), LIERNE_OK);
    cr_expect(out[0] == 7 && out[1] == 7, "%d, %d", (int)out[0], (int)out[1]);
    lierne_plan_destroy(plan);
    lierne_context_destroy(self);
}

/* Two ranks gain nothing by an all-gather, so that they need not compare what it costs. */
static void count_controls(lierne_context *context, void *shared) {
    const lierne_graph_algorithm algorithms[2] = {LIERNE_GRAPH_ALGORITHM_AUTO,
                                                  LIERNE_GRAPH_ALGORITHM_DIRECT};
    int64_t controls[2];
    bool created = true;
    for (int i = 0; i < 2; i++) {
        lierne_references_spec spec = LIERNE_REFERENCES_SPEC_INIT;
        lierne_plan *plan;
        spec.dtype = LIERNE_DTYPE_F32;
        spec.algorithm = algorithms[i];
        controls[i] = -context->recorder.controls;
        created &= lierne_plan_create_references(&plan, context, &spec) == LIERNE_OK;
        controls[i] += context->recorder.controls;
        lierne_plan_destroy(plan);
    }
    ((bool *)shared)[lierne_context_get_rank(context)] = created && controls[0] == controls[1];
}

Test(references, two_ranks_choose_without_a_message) {
    bool equal[2] = {false};
    ranks_run(2, NULL, count_controls, equal);
    cr_assert(equal[0] && equal[1]);
}
