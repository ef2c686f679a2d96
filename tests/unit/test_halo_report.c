/* Queries of halo plans: costs, lower bounds, roots, the spec. Expected values are counted from the
 * lists, one ghost at a time. */
#include <criterion/criterion.h>

#include "unit/halo_case.h"
#include "unit/ranks.h"

#include <stdlib.h>
#include <string.h>

/* Whether ghost g of a rank, as labelled, is the first of a row that another rank owns. */
static bool counts(const halo_case *c, halo_values label, int rank, int64_t g) {
    if (label[rank][g][0] == rank) {
        return false;
    }
    for (int64_t i = c->spec[rank].nlocal; i < g; i++) {
        if (label[rank][i][0] == label[rank][g][0] && label[rank][i][1] == label[rank][g][1]) {
            return false;
        }
    }
    return true;
}

typedef struct costs {
    halo_case swaps;
    halo_values label; /* owner and its row */
    int64_t needed[HALO_WORLD], asked[HALO_WORLD];
    const char *why[HALO_WORLD];
} costs;

static const char *check_costs(const costs *t, int rank, const lierne_plan *plan) {
    const halo_case *c = &t->swaps;
    lierne_report f = {.size = sizeof f}, a = {.size = sizeof a};
    int64_t out[2] = {0}, in[2] = {0}, row = HALO_WIDTH * 8;
    for (int s = 0; s < c->spec[0].nswap; s++) {
        bool sends = c->sendproc[rank][s] != rank && c->sendnum[rank][s] > 0;
        bool receives = c->recvproc[rank][s] != rank && c->recvnum[rank][s] > 0;
        out[0] += sends;
        out[1] += sends ? c->sendnum[rank][s] * row : 0;
        in[0] += receives;
        in[1] += receives ? c->recvnum[rank][s] * row : 0;
    }
    if (lierne_plan_get_report(&f, plan, LIERNE_DIRECTION_FORWARD) != LIERNE_OK ||
        lierne_plan_get_report(&a, plan, LIERNE_DIRECTION_ADJOINT) != LIERNE_OK) {
        return "report";
    }
    if (f.stages != c->spec[0].nswap || a.stages != f.stages) {
        return "stages";
    }
    if (f.sent_messages != out[0] || f.received_messages != in[0] || a.sent_messages != in[0] ||
        a.received_messages != out[0]) {
        return "messages";
    }
    if (f.sent_bytes != out[1] || f.received_bytes != in[1] || a.sent_bytes != in[1]) {
        return "bytes";
    }
    return f.min_bytes != t->needed[rank] * row || a.min_bytes != t->asked[rank] * row ? "bound"
                                                                                       : NULL;
}

static const char *check_roots(costs *t, int rank, const lierne_plan *plan) {
    const lierne_halo_spec *spec = &t->swaps.spec[rank];
    int32_t owner[HALO_ROWS];
    int64_t row[HALO_ROWS];
    if (lierne_plan_get_halo_roots(owner, row, plan) != LIERNE_OK) {
        return "roots fail";
    }
    for (int64_t i = 0; i < spec->nghost; i++) {
        const double *label = t->label[rank][spec->nlocal + i];
        if (label[0] != owner[i] || label[1] != (double)row[i]) {
            return "a root";
        }
    }
    return NULL;
}

/* The spec of a plan equals the one that it was made from, in memory of its own. */
static const char *check_spec(const lierne_halo_spec *given, const lierne_plan *plan) {
    lierne_halo_spec got = {.size = sizeof got};
    if (lierne_plan_get_halo_spec(&got, plan) != LIERNE_OK || got.nlocal != given->nlocal ||
        got.nghost != given->nghost || got.nswap != given->nswap || got.stride != given->width) {
        return "spec";
    }
    if (got.nswap > 0 && (got.sendproc == given->sendproc || got.recvproc == given->recvproc ||
                          got.sendnum == given->sendnum || got.recvnum == given->recvnum)) {
        return "the caller's memory";
    }
    for (int s = 0; s < got.nswap; s++) {
        if (got.sendproc[s] != given->sendproc[s] || got.recvproc[s] != given->recvproc[s] ||
            got.sendnum[s] != given->sendnum[s] || got.recvnum[s] != given->recvnum[s] ||
            got.sendlist[s] == given->sendlist[s] ||
            memcmp(got.sendlist[s], given->sendlist[s], (size_t)got.sendnum[s] * 8) != 0) {
            return "a swap of the spec";
        }
    }
    return NULL;
}

static void ask(lierne_context *context, void *shared) {
    costs *t = shared;
    int rank = lierne_context_get_rank(context);
    lierne_plan *plan;
    if (lierne_plan_create_halo(&plan, context, &t->swaps.spec[rank]) != LIERNE_OK) {
        t->why[rank] = "no plan";
        return;
    }
    const char *whys[] = {check_costs(t, rank, plan), check_roots(t, rank, plan),
                          check_spec(&t->swaps.spec[rank], plan)};
    t->why[rank] = whys[0] ? whys[0] : whys[1] ? whys[1] : whys[2];
    lierne_plan_destroy(plan);
}

Test(halo_report, costs_roots_and_spec_of_a_plan) {
    costs *t = calloc(1, sizeof *t);
    cr_assert(t);
    for (uint64_t seed = 600; seed < 632; seed++) {
        memset(t, 0, sizeof *t);
        halo_case_random(&t->swaps, 1 + (int)(seed % HALO_WORLD), seed);
        for (int r = 0; r < t->swaps.world; r++) {
            for (int64_t i = 0; i < t->swaps.spec[r].nlocal; i++) {
                t->label[r][i][0] = r;
                t->label[r][i][1] = (double)i;
            }
        }
        halo_model_forward(&t->swaps, t->label);
        for (int r = 0; r < t->swaps.world; r++) {
            for (int64_t g = t->swaps.spec[r].nlocal; g < halo_case_rows(&t->swaps, r); g++) {
                bool counted = counts(&t->swaps, t->label, r, g);
                t->needed[r] += counted;
                t->asked[(int)t->label[r][g][0]] += counted;
            }
        }
        ranks_run(t->swaps.world, NULL, ask, t);
        for (int r = 0; r < t->swaps.world; r++) {
            cr_assert(!t->why[r], "seed %llu, rank %d: %s", (unsigned long long)seed, r, t->why[r]);
        }
    }
    free(t);
}
