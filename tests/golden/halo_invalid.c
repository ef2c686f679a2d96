/* halo.json, invalid: one rank's swaps are wrong, and every rank must get the error. The file has
 * them on rank 0; here each rank once has them, by renumbering, and swaps of a world of one are
 * also those of a rank of a larger world. The other ranks' swaps fit the wrong ones, so that there
 * is no other error: they receive what is sent to them, send what is expected, and have as many
 * swaps, unless the number of rows or swaps is the error. */
#include "halo_case.h"

#include <string.h>

typedef struct trial {
    golden_world *world;
    const char *expect;
    int old; /* ranks of the world that the case knows */
    int bad;
    bool wide; /* rows too long */
    const golden_swaps *swaps;
} trial;

static bool expects(const trial *t, const char *name) {
    return strcmp(t->expect, name) == 0;
}

/* Rank 0 of the case is now bad, and so on; what is no rank stays none. */
static int renumbered(const trial *t, int proc) {
    int outside = proc < 0 ? proc : proc + t->world->n;
    return proc >= 0 && proc < t->old ? (proc + t->bad) % t->world->n : outside;
}

/* Swaps of a rank with n swaps, and lists for rows of row 0. */
static golden_swaps swaps_for(int n, int64_t nlocal, int64_t rows) {
    golden_swaps s = {.n = n,
                      .nlocal = nlocal,
                      .sendproc = golden_alloc(n, sizeof(int)),
                      .recvproc = golden_alloc(n, sizeof(int)),
                      .sendnum = golden_alloc(n, sizeof(int64_t)),
                      .recvnum = golden_alloc(n, sizeof(int64_t)),
                      .sendlist = golden_alloc(n, sizeof(int64_t *))};
    for (int i = 0; i < n; i++) {
        s.sendlist[i] = golden_alloc(rows, sizeof(int64_t));
    }
    return s;
}

/* Swap s of another rank: with the bad one where that swaps with it, else with itself, without
 * rows.
 */
static void answer(const trial *t, golden_swaps *own, int rank, int s) {
    const golden_swaps *bad = t->swaps;
    bool sends = renumbered(t, bad->sendproc[s]) == rank;
    bool takes = renumbered(t, bad->recvproc[s]) == rank;
    own->sendproc[s] = own->recvproc[s] = sends || takes ? t->bad : rank;
    own->sendnum[s] = takes && bad->recvnum[s] > 0 ? bad->recvnum[s] : 0;
    own->recvnum[s] = sends && bad->sendnum[s] > 0 ? bad->sendnum[s] : 0;
    if (expects(t, "PEER_COUNT") && own->recvnum[s] > 0) {
        own->recvnum[s]--;
    } else if (expects(t, "PEER_COUNT") && own->sendnum[s] > 0) {
        own->sendnum[s]--;
    }
    own->nghost += own->recvnum[s];
}

static golden_swaps others(const trial *t, int rank) {
    const golden_swaps *bad = t->swaps;
    int64_t rows = 1;
    for (int s = 0; s < bad->n; s++) {
        rows = bad->recvnum[s] > rows ? bad->recvnum[s] : rows;
    }
    golden_swaps own = swaps_for(bad->n + expects(t, "PLAN_DEPTH"), 1, rows);
    for (int s = 0; s < bad->n; s++) {
        answer(t, &own, rank, s);
    }
    for (int s = bad->n; s < own.n; s++) {
        own.sendproc[s] = own.recvproc[s] = rank;
    }
    return own;
}

static golden_swaps wrong(const trial *t) {
    const golden_swaps *bad = t->swaps;
    int64_t rows = 0;
    for (int s = 0; s < bad->n; s++) {
        rows = bad->sendnum[s] > rows ? bad->sendnum[s] : rows;
    }
    golden_swaps own = swaps_for(bad->n, bad->nlocal, rows);
    own.nghost = bad->nghost;
    for (int s = 0; s < bad->n; s++) {
        own.sendproc[s] = renumbered(t, bad->sendproc[s]);
        own.recvproc[s] = renumbered(t, bad->recvproc[s]);
        own.sendnum[s] = bad->sendnum[s];
        own.recvnum[s] = bad->recvnum[s];
        for (int64_t i = 0; i < bad->sendnum[s]; i++) {
            own.sendlist[s][i] = bad->sendlist[s][i];
        }
    }
    return own;
}

static void work(lierne_context *context, void *shared) {
    const trial *t = shared;
    int rank = lierne_context_get_rank(context);
    golden_case *c = &t->world->cases[rank];
    golden_swaps swaps = rank == t->bad ? wrong(t) : others(t, rank);
    int64_t width = t->wide ? INT64_MAX / 8 : 2;
    lierne_halo_spec spec =
        golden_swaps_spec(&swaps, (golden_type){LIERNE_DTYPE_F64, width, width});
    lierne_status status = lierne_plan_create_halo(&t->world->plans[rank], context, &spec);
    golden_expect_rejection(c, status, t->world->plans[rank], t->bad);
    golden_swaps_free(&swaps);
}

static void check_trial(golden_case *c, trial *t, int n) {
    golden_world world = golden_world_new(c, n);
    t->world = &world;
    golden_world_run(&world, work, t);
    golden_world_end(c, &world, n == t->old ? "in its world" : "in a larger world");
}

static bool negative(const golden_swaps *swaps) {
    bool any = swaps->nlocal < 0 || swaps->nghost < 0;
    for (int s = 0; s < swaps->n; s++) {
        any = any || swaps->sendnum[s] < 0 || swaps->recvnum[s] < 0;
    }
    return any;
}

/* Rows of more than INT_MAX elements are none too long. */
static void check_long_rows(golden_case *c, const golden_swaps *swaps) {
    lierne_context *context = NULL;
    lierne_plan *plan = NULL;
    int64_t elements = 0, width = (int64_t)1 << 31;
    lierne_halo_spec spec = golden_swaps_spec(swaps, (golden_type){LIERNE_DTYPE_F64, width, width});
    lierne_status status = lierne_context_create_self(&context, NULL);
    status = status ? status : lierne_plan_create_halo(&plan, context, &spec);
    golden_expect_status(c, "rows of 2^31 elements", status, LIERNE_OK);
    if (plan) {
        lierne_plan_get_elements(&elements, NULL, plan, LIERNE_DIRECTION_FORWARD);
        golden_expect(c, elements == swaps->nlocal * width, "%lld elements", (long long)elements);
    }
    lierne_plan_destroy(plan);
    lierne_context_destroy(context);
}

void golden_halo_reject(golden_case *c, int n) {
    golden_swaps swaps = golden_swaps_read(c->item, c->item);
    trial t = {.expect = golden_string(c->item, "expect"),
               .old = (int)golden_int(c->item, "world", 0),
               .swaps = &swaps};
    t.wide = expects(&t, "COUNT_RANGE") && !negative(&swaps);
    for (t.bad = 0; t.bad < n; t.bad++) {
        check_trial(c, &t, n);
    }
    if (t.wide && swaps.n == 0 && n == 1) {
        check_long_rows(c, &swaps);
    }
    golden_swaps_free(&swaps);
}

void golden_halo_invalid(golden_case *c) {
    int world = (int)golden_int(c->item, "world", 0);
    golden_halo_reject(c, world);
    if (world == 1) {
        golden_halo_reject(c, 3);
    }
}
