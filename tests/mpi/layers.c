/* Message passing over the atoms of a real crystal, forward and backward: distributed message
 * passing matches one rank, in all bits. Numbers are integers modulo 2^64, a ring: sums have the
 * same bits in every order, and a square has an exact derivative, so that layers need not be
 * linear.
 *
 * A layer: m[t] = h[t] + sum over edges s -> t of weight * h[s], then h'[t] = m[t] + a * m[t]^2.
 * Ranks compute edges between own atoms while communication is in flight, in both directions. */
#include "lierne/sparse.h"
#include "mpi/common.h"
#include "mpi/crystal.h"

#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, WIDTH = 4, TIMES = 3 };
#define QUARTZ "tests/structures/quartz.poscar"
#define RADIUS 3.3

/* The model and its data, on every rank. */
typedef struct model {
    crystal atoms;
    bonds edges;
    uint64_t scale[LAYERS]; /* a */
    int32_t *owner;
} model;

static uint64_t weight(double length) {
    return (uint64_t)(1000 * length);
}

/* h or a gradient of all atoms, all layers of h kept for the way back. */
typedef struct state {
    uint64_t *h[LAYERS + 1], *m[LAYERS];
    uint64_t *gradient;     /* of h[0] */
    uint64_t slope[LAYERS]; /* gradient of a */
} state;

static uint64_t *rows_new(int64_t n) {
    return calloc((size_t)(n * WIDTH) + 1, sizeof(uint64_t));
}

static void state_open(state *s, int64_t n) {
    *s = (state){.gradient = rows_new(n)};
    for (int l = 0; l <= LAYERS; l++) {
        s->h[l] = rows_new(n);
        if (l < LAYERS) {
            s->m[l] = rows_new(n);
        }
    }
}

static void state_close(state *s) {
    for (int l = 0; l <= LAYERS; l++) {
        free(s->h[l]);
        if (l < LAYERS) {
            free(s->m[l]);
        }
    }
    free(s->gradient);
}

static uint64_t input(int64_t atom, int64_t col) {
    return mix((uint64_t)(atom * WIDTH + col + 1));
}

static uint64_t upstream(int64_t atom, int64_t col) {
    return mix((uint64_t)(atom * WIDTH + col + 1) * 31 + 7);
}

/* to += w * from, by rows. */
static void add_row(uint64_t *to, uint64_t w, const uint64_t *from) {
    for (int c = 0; c < WIDTH; c++) {
        to[c] += w * from[c];
    }
}

/* h' from m, of n rows. */
static void squared(uint64_t *h, const uint64_t *m, uint64_t a, int64_t n) {
    for (int64_t i = 0; i < n * WIDTH; i++) {
        h[i] = m[i] + a * m[i] * m[i];
    }
}

/* The gradient of m from that of h', in place; returns that of a. */
static uint64_t squared_back(uint64_t *g, const uint64_t *m, uint64_t a, int64_t n) {
    uint64_t slope = 0;
    for (int64_t i = 0; i < n * WIDTH; i++) {
        slope += g[i] * m[i] * m[i];
        g[i] *= 1 + 2 * a * m[i];
    }
    return slope;
}

/* All in one process, without the library. */
static void run_alone(const model *w, state *s) {
    int64_t n = w->atoms.natoms;
    size_t bytes = (size_t)(n * WIDTH) * sizeof(uint64_t);
    uint64_t *g = rows_new(n), *back = rows_new(n);
    for (int64_t i = 0; i < n * WIDTH; i++) {
        s->h[0][i] = input(i / WIDTH, i % WIDTH);
        g[i] = upstream(i / WIDTH, i % WIDTH);
    }
    for (int l = 0; l < LAYERS; l++) {
        memcpy(s->m[l], s->h[l], bytes);
        for (int64_t e = 0; e < w->edges.n; e++) {
            add_row(s->m[l] + w->edges.target[e] * WIDTH, weight(w->edges.length[e]),
                    s->h[l] + w->edges.source[e] * WIDTH);
        }
        squared(s->h[l + 1], s->m[l], w->scale[l], n);
    }
    for (int l = LAYERS - 1; l >= 0; l--) {
        s->slope[l] = squared_back(g, s->m[l], w->scale[l], n);
        memcpy(back, g, bytes);
        for (int64_t e = 0; e < w->edges.n; e++) {
            add_row(back + w->edges.source[e] * WIDTH, weight(w->edges.length[e]),
                    g + w->edges.target[e] * WIDTH);
        }
        memcpy(g, back, bytes);
    }
    memcpy(s->gradient, g, bytes);
    free(g), free(back);
}

/* This rank's part. */
typedef struct part {
    lierne_plan *plan;
    lierne_graph_lists lists;
    uint64_t *weights; /* of its edges */
    uint64_t *ghosts;
} part;

static void part_open(part *p, lierne_context *context, const model *w) {
    size_t capacity = (size_t)w->edges.n + 1;
    int64_t *source = calloc(capacity, sizeof *source), *target = calloc(capacity, sizeof *target),
            n = 0;
    *p = (part){.lists.size = sizeof p->lists, .weights = calloc(capacity, sizeof(uint64_t))};
    for (int64_t e = 0; e < w->edges.n; e++) {
        if (w->owner[w->edges.target[e]] == test_rank) {
            source[n] = w->edges.source[e];
            target[n] = w->edges.target[e];
            p->weights[n++] = weight(w->edges.length[e]);
        }
    }
    lierne_graph_spec spec = {.size = sizeof spec,
                              .nrows = w->atoms.natoms,
                              .owner = w->owner,
                              .nedges = n,
                              .source = source,
                              .target = target,
                              .dtype = LIERNE_DTYPE_I64,
                              .width = WIDTH};
    CHECK(lierne_plan_create_graph(&p->plan, context, &spec) == LIERNE_OK &&
              lierne_plan_get_graph_lists(&p->lists, p->plan) == LIERNE_OK,
          "%s", lierne_last_error());
    free(source), free(target); /* the plan has copies */
    p->ghosts = rows_new(p->lists.nghosts);
}

static void part_close(part *p) {
    CHECK_OK(lierne_plan_destroy(p->plan));
    free(p->weights), free(p->ghosts);
}

static void layer(part *p, state *s, int l, uint64_t a) {
    const lierne_graph_lists *g = &p->lists;
    lierne_request *request;
    lierne_status status = lierne_plan_forward_begin(&request, p->plan, p->ghosts, s->h[l], NULL);
    memcpy(s->m[l], s->h[l], (size_t)(g->nowned * WIDTH) * sizeof(uint64_t));
    for (int64_t i = 0; i < g->nlocal_edges; i++) {
        int64_t e = g->local_edges[i];
        add_row(s->m[l] + g->edge_target[e] * WIDTH, p->weights[e],
                s->h[l] + g->edge_source[e] * WIDTH);
    }
    status = status ? status : lierne_request_end(request);
    CHECK_OK(status);
    for (int64_t i = 0; i < g->nremote_edges; i++) {
        int64_t e = g->remote_edges[i];
        add_row(s->m[l] + g->edge_target[e] * WIDTH, p->weights[e],
                p->ghosts + (g->edge_source[e] - g->nowned) * WIDTH);
    }
    squared(s->h[l + 1], s->m[l], a, g->nowned);
}

/* Gradients of ghosts first, so that they are sent while those of own atoms are added. */
static void layer_back(part *p, state *s, int l, uint64_t a, uint64_t *grad) {
    const lierne_graph_lists *g = &p->lists;
    size_t bytes = (size_t)(g->nowned * WIDTH) * sizeof(uint64_t);
    uint64_t *home = rows_new(g->nowned), *back = rows_new(g->nowned);
    lierne_request *request;
    s->slope[l] = squared_back(grad, s->m[l], a, g->nowned);
    memset(p->ghosts, 0, (size_t)(g->nghosts * WIDTH) * sizeof(uint64_t));
    for (int64_t i = 0; i < g->nremote_edges; i++) {
        int64_t e = g->remote_edges[i];
        add_row(p->ghosts + (g->edge_source[e] - g->nowned) * WIDTH, p->weights[e],
                grad + g->edge_target[e] * WIDTH);
    }
    lierne_status status = lierne_plan_adjoint_begin(&request, p->plan, home, p->ghosts, NULL);
    memcpy(back, grad, bytes);
    for (int64_t i = 0; i < g->nlocal_edges; i++) {
        int64_t e = g->local_edges[i];
        add_row(back + g->edge_source[e] * WIDTH, p->weights[e], grad + g->edge_target[e] * WIDTH);
    }
    status = status ? status : lierne_request_end(request);
    CHECK_OK(status);
    for (int64_t i = 0; i < g->nowned * WIDTH; i++) {
        grad[i] = back[i] + home[i];
    }
    free(home), free(back);
}

static void run_part(part *p, const model *w, state *s) {
    const lierne_graph_lists *g = &p->lists;
    for (int64_t i = 0; i < g->nowned * WIDTH; i++) {
        s->h[0][i] = input(g->owned[i / WIDTH], i % WIDTH);
        s->gradient[i] = upstream(g->owned[i / WIDTH], i % WIDTH);
    }
    for (int l = 0; l < LAYERS; l++) {
        layer(p, s, l, w->scale[l]);
    }
    for (int l = LAYERS - 1; l >= 0; l--) {
        layer_back(p, s, l, w->scale[l], s->gradient);
    }
    MPI_Allreduce(MPI_IN_PLACE, s->slope, LAYERS, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
}

static void compare(const part *p, const state *got, const state *wanted, const char *what) {
    int64_t wrong[LAYERS + 2] = {0};
    for (int64_t i = 0; i < p->lists.nowned * WIDTH; i++) {
        int64_t at = p->lists.owned[i / WIDTH] * WIDTH + i % WIDTH;
        for (int l = 0; l <= LAYERS; l++) {
            wrong[l] += got->h[l][i] != wanted->h[l][at];
        }
        wrong[LAYERS + 1] += got->gradient[i] != wanted->gradient[at];
    }
    for (int l = 0; l <= LAYERS; l++) {
        CHECK(wrong[l] == 0, "%s: %lld wrong numbers of layer %d", what, (long long)wrong[l], l);
    }
    CHECK(wrong[LAYERS + 1] == 0, "%s: %lld wrong gradients", what, (long long)wrong[LAYERS + 1]);
    for (int l = 0; l < LAYERS; l++) {
        CHECK(got->slope[l] == wanted->slope[l], "%s: gradient of parameter %d", what, l);
    }
}

static void run_owners(lierne_context *context, const model *w, const state *alone,
                       const char *what) {
    part p;
    state s;
    size_t before = lierne_mem_live();
    part_open(&p, context, w);
    state_open(&s, p.lists.nowned);
    CHECK(test_world == 1 || p.lists.nghosts > 0, "%s: no ghosts", what);
    run_part(&p, w, &s);
    compare(&p, &s, alone, what);
    state_close(&s);
    part_close(&p);
    CHECK(lierne_mem_live() == before, "%s: leaked", what);
}

/* Four oxygens around each silicon, two silicons around each oxygen: the file is what it says. */
static void check_quartz(const crystal *atoms) {
    bonds near = crystal_bonds(atoms, 1.7);
    int64_t wrong = 0, *count = calloc((size_t)atoms->natoms + 1, sizeof *count);
    for (int64_t e = 0; e < near.n; e++) {
        wrong += atoms->element[near.source[e]] == atoms->element[near.target[e]];
        count[near.target[e]]++;
    }
    for (int64_t i = 0; i < atoms->natoms; i++) {
        wrong += count[i] != (atoms->element[i] == 0 ? 4 : 2);
    }
    CHECK(atoms->natoms == 9 * TIMES * TIMES * TIMES && wrong == 0, "%lld atoms, %lld of them odd",
          (long long)atoms->natoms, (long long)wrong);
    free(count);
    bonds_free(&near);
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    model w = {.atoms = crystal_read(QUARTZ, TIMES), .scale = {3, 0x123456789u, 5}};
    state alone;
    lierne_context *context;
    check_quartz(&w.atoms);
    w.edges = crystal_bonds(&w.atoms, RADIUS);
    w.owner = calloc((size_t)w.atoms.natoms + 1, sizeof *w.owner);
    state_open(&alone, w.atoms.natoms);
    run_alone(&w, &alone);
    size_t before = lierne_mem_live();
    CHECK_OK(test_context_create(&context, MPI_COMM_WORLD, NULL));
    CHECK_OK(lierne_partition_split(w.owner, w.atoms.natoms, test_world));
    run_owners(context, &w, &alone, "split");
    CHECK_OK(
        lierne_partition_morton(w.owner, w.atoms.at, LIERNE_DTYPE_F64, w.atoms.natoms, test_world));
    run_owners(context, &w, &alone, "Morton");
    CHECK_OK(lierne_context_destroy(context));
    CHECK(lierne_mem_live() == before, "leaked");
    state_close(&alone);
    bonds_free(&w.edges);
    crystal_free(&w.atoms);
    free(w.owner);
    return test_finish();
}
