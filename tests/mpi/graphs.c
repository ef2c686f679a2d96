/* The oracle of graphs: finds rows and edges by searching all of them. */
#include "mpi/graphs.h"

#include <stdlib.h>
#include <string.h>

/* Whom a row may belong to. */
static int32_t owner_of(kind k, int64_t row, uint64_t *seed) {
    int world = test_world;
    switch (k) {
    case SOME_OWN:
        return (int32_t)(2 * draw(seed, (uint64_t)(world + 1) / 2));
    case ROW_EACH:
        return (int32_t)row;
    case ONE_OWNS:
        return (int32_t)(world - 1);
    default:
        return (int32_t)draw(seed, (uint64_t)world);
    }
}

void graph_random(graph *g, kind k, uint64_t seed) {
    static const char *const names[] = {"random",     "some own", "no edge",  "no row",
                                        "a row each", "dense",    "one owns", "one way"};
    g->kind = names[k];
    g->nrows = k == NO_ROW ? 0 : k == ROW_EACH ? test_world : 1 + (int64_t)draw(&seed, MAX_ROWS);
    g->nrows = k == DENSE ? 10 : g->nrows;
    for (int64_t i = 0; i < g->nrows; i++) {
        g->owner[i] = owner_of(k, i, &seed);
    }
    int64_t n = k == NO_EDGE || k == NO_ROW ? 0
                : k == DENSE                ? 100
                                            : (int64_t)draw(&seed, MAX_EDGES);
    g->nedges = 0;
    for (int64_t e = 0; e < n; e++) {
        int64_t from = k == DENSE ? e / 10 : (int64_t)draw(&seed, (uint64_t)g->nrows);
        int64_t to = k == DENSE ? e % 10 : (int64_t)draw(&seed, (uint64_t)g->nrows);
        if (k != ONE_WAY || g->owner[from] <= g->owner[to]) {
            g->source[g->nedges] = from;
            g->target[g->nedges++] = to;
        }
    }
}

static int64_t local_row(const graph *g, int64_t row) {
    int64_t at = 0;
    for (int64_t i = 0; i < row; i++) {
        at += g->owner[i] == g->owner[row];
    }
    return at;
}

static bool needs(const graph *g, int rank, int64_t row) {
    for (int64_t e = 0; e < g->nedges; e++) {
        if (g->source[e] == row && g->owner[g->target[e]] == rank) {
            return g->owner[row] != rank;
        }
    }
    return false;
}

void graph_forest(const graph *g, forest *f) {
    *f = (forest){.world = test_world};
    for (int r = 0; r < test_world; r++) {
        f->ghosts[r] = malloc((size_t)(g->nrows + 1) * sizeof(root));
        for (int64_t i = 0; i < g->nrows; i++) {
            f->nowned[r] += g->owner[i] == r;
        }
        for (int64_t i = 0; i < g->nrows * test_world; i++) {
            int64_t row = i % g->nrows;
            if (g->owner[row] == i / g->nrows && needs(g, r, row)) {
                f->ghosts[r][f->nghosts[r]++] = (root){g->owner[row], local_row(g, row)};
            }
        }
    }
}

lierne_graph_spec graph_spec(const graph *g, const shape *s, own_edges *own) {
    own->n = 0;
    for (int64_t e = 0; e < g->nedges; e++) {
        if (g->owner[g->target[e]] == test_rank) {
            own->source[own->n] = g->source[e];
            own->target[own->n++] = g->target[e];
        }
    }
    return (lierne_graph_spec){.size = sizeof(lierne_graph_spec),
                               .nrows = g->nrows,
                               .owner = g->owner,
                               .nedges = own->n,
                               .source = own->source,
                               .target = own->target,
                               .dtype = s->dtype,
                               .width = s->width,
                               .stride = s->stride};
}

static bool equal(int64_t n, const int64_t *a, int64_t m, const int64_t *b) {
    return n == m && (n == 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0);
}

/* Rows and edges as the plan has them, against the definition. */
static void check_rows(const lierne_graph_lists *lists, const graph *g, const forest *f,
                       const own_edges *own) {
    int64_t owned[MAX_ROWS], ghosts[MAX_ROWS], local[MAX_ROWS], n = 0, m = 0, wrong = 0;
    for (int64_t i = 0; i < g->nrows * test_world; i++) {
        int64_t row = i % g->nrows, owner = i / g->nrows;
        if (g->owner[row] == owner && owner == test_rank) {
            local[row] = n;
            owned[n++] = row;
        } else if (g->owner[row] == owner && needs(g, test_rank, row)) {
            local[row] = f->nowned[test_rank] + m;
            ghosts[m++] = row;
        }
    }
    CHECK(equal(lists->nowned, lists->owned, n, owned), "%s: owned rows", g->kind);
    CHECK(equal(lists->nghosts, lists->ghosts, m, ghosts), "%s: ghosts", g->kind);
    CHECK(lists->nedges == own->n && lists->nlocal_edges + lists->nremote_edges == own->n,
          "%s: %lld edges", g->kind, (long long)lists->nedges);
    for (int64_t e = 0, l = 0, r = 0; e < lists->nedges; e++) {
        bool here = g->owner[own->source[e]] == test_rank;
        wrong += lists->edge_source[e] != local[own->source[e]];
        wrong += lists->edge_target[e] != local[own->target[e]];
        wrong += here ? lists->local_edges[l++] != e : lists->remote_edges[r++] != e;
    }
    CHECK(wrong == 0, "%s: %lld wrong edges", g->kind, (long long)wrong);
}

/* Peers, ascending, with what they get in the order in which they have it. */
static void check_peers(const lierne_graph_lists *lists, const forest *f, const char *what) {
    int64_t sources = 0, targets = 0, at = 0, wrong = 0;
    for (int q = 0; q < test_world; q++) {
        int64_t from = 0, to = 0;
        for (int64_t k = 0; k < f->nghosts[test_rank]; k++) {
            from += q != test_rank && f->ghosts[test_rank][k].rank == q;
        }
        for (int64_t k = 0; k < f->nghosts[q]; k++) {
            if (q != test_rank && f->ghosts[q][k].rank == test_rank) {
                wrong += lists->receiver_rows[at + to++] != f->ghosts[q][k].row;
            }
        }
        at += to;
        if (from) {
            wrong += sources >= lists->nsenders || lists->sender_ranks[sources] != q ||
                     lists->sender_counts[sources] != from;
            sources++;
        }
        if (to) {
            wrong += targets >= lists->nreceivers || lists->receiver_ranks[targets] != q ||
                     lists->receiver_counts[targets] != to;
            targets++;
        }
    }
    CHECK(wrong == 0 && sources == lists->nsenders && targets == lists->nreceivers,
          "%s: %lld wrong of %lld sources and %lld targets", what, (long long)wrong,
          (long long)sources, (long long)targets);
}

void graph_lists_check(lierne_plan *plan, const graph *g, const forest *f, const own_edges *own) {
    lierne_graph_lists lists = {.size = sizeof lists};
    if (CHECK_OK(lierne_plan_get_graph_lists(&lists, plan))) {
        check_rows(&lists, g, f, own);
        check_peers(&lists, f, g->kind);
    }
}
