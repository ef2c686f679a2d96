/* A step of atoms that leave the bricks of their ranks: found, planned and moved, with all fields.
 *
 * lierne updates its coalesced plans from an owner per atom. Beside it the exchange of LAMMPS'
 * brick communicator, written anew: axis by axis, the atoms outside of the brick leave for both
 * neighbors along the axis, which keep those that are theirs; the last atoms fill the holes. Both
 * begin with positions inside the periodic box. */
#include "bench/sparse.h"

#include <stdlib.h>
#include <string.h>

enum { FIELDS = 4, DOUBLES = 8 }; /* of an atom that travels by hand */
#define SIDE  20.0
#define DRIFT 0.067 /* along each axis and step: a hundredth of the atoms leaves */

typedef struct atoms {
    int64_t n;
    double *x, *v; /* three of each */
    int64_t *tag;
    int32_t *species;
} atoms;

typedef struct mover {
    method base;
    const int *grid;
    int place[3];
    int64_t most;
    atoms now, next; /* next: lierne moves all atoms there */
    int32_t *owner;
    lierne_context *context;
    lierne_plan *plans[FIELDS];
    lierne_coalesced *all;
    double *leaving, *arriving;
} mover;

static void take_atoms(atoms *a, int64_t n) {
    a->x = (double *)take(3 * (size_t)n * sizeof *a->x);
    a->v = (double *)take(3 * (size_t)n * sizeof *a->v);
    a->tag = (int64_t *)take((size_t)n * sizeof *a->tag);
    a->species = (int32_t *)take((size_t)n * sizeof *a->species);
}

static void free_atoms(atoms *a) {
    free(a->x);
    free(a->v);
    free(a->tag);
    free(a->species);
}

/* Every field follows from the tag, but for the position. */
static void put_atom(atoms *a, int64_t i, int64_t tag) {
    a->tag[i] = tag;
    a->species[i] = (int32_t)(tag % 5);
    for (int d = 0; d < 3; d++) {
        a->v[3 * i + d] = (double)(tag * 3 + d);
    }
}

static mover *open_mover(const sparse *w, bool (*run)(method *, int)) {
    mover *m = (mover *)take(sizeof *m);
    m->base = (method){.workload = w, .run = run, .checked = true};
    m->grid = w->grid;
    m->most = w->nowned + w->nowned / 4 + 1000;
    m->place[0] = test_rank / w->grid[2] / w->grid[1];
    m->place[1] = test_rank / w->grid[2] % w->grid[1];
    m->place[2] = test_rank % w->grid[2];
    take_atoms(&m->now, m->most);
    for (int64_t i = 0; i < w->nowned; i++) {
        put_atom(&m->now, i, (int64_t)test_rank * w->nowned + i);
        for (int d = 0; d < 3; d++) {
            uint64_t random = mix(mix((uint64_t)(3 * i + d + 1)) + (uint64_t)test_rank);
            m->now.x[3 * i + d] = SIDE * (m->place[d] + (double)(random >> 11) * 0x1p-53);
        }
    }
    m->now.n = w->nowned;
    return m;
}

/* Atoms drift to and fro, those of odd tags against the others. */
static void drift(method *base, int direction) {
    mover *m = (mover *)base;
    for (int64_t i = 0; i < m->now.n; i++) {
        for (int d = 0; d < 3; d++) {
            double box = SIDE * m->grid[d], *x = &m->now.x[3 * i + d];
            *x += (m->now.tag[i] + direction) % 2 ? DRIFT : -DRIFT;
            *x += *x < 0 ? box : *x >= box ? -box : 0;
        }
    }
}

static int brick_of(const mover *m, int d, double x) {
    int at = (int)(x / SIDE);
    return at < m->grid[d] ? at : m->grid[d] - 1;
}

static lierne_migration_spec find_owners(const mover *m) {
    for (int64_t i = 0; i < m->now.n; i++) {
        const double *x = m->now.x + 3 * i;
        m->owner[i] = (brick_of(m, 0, x[0]) * m->grid[1] + brick_of(m, 1, x[1])) * m->grid[2] +
                      brick_of(m, 2, x[2]);
    }
    return (lierne_migration_spec){.size = sizeof(lierne_migration_spec),
                                   .nrows = m->now.n,
                                   .owner = m->owner,
                                   .dtype = LIERNE_DTYPE_F64,
                                   .width = 3};
}

static bool run_lierne(method *base, int direction) {
    mover *m = (mover *)base;
    const lierne_migration_spec spec = find_owners(m);
    const void *in[FIELDS] = {m->now.x, m->now.v, m->now.tag, m->now.species};
    void *out[FIELDS] = {m->next.x, m->next.v, m->next.tag, m->next.species};
    lierne_graph_lists moved = {.size = sizeof moved};
    atoms was = m->now;
    (void)direction;
    bool ok =
        lierne_coalesced_update_migration(m->all, &spec) == LIERNE_OK &&
        lierne_plan_get_graph_lists(&moved, m->plans[0]) == LIERNE_OK && moved.nghosts <= m->most &&
        lierne_coalesced_begin(m->all, LIERNE_DIRECTION_FORWARD, out, in, NULL) == LIERNE_OK &&
        lierne_coalesced_end(m->all, LIERNE_DIRECTION_FORWARD) == LIERNE_OK;
    m->now = m->next;
    m->now.n = moved.nghosts;
    m->next = was;
    return ok;
}

static method *open_lierne(const void *of) {
    mover *m = open_mover(of, run_lierne);
    const lierne_retyped_spec other[FIELDS] = {{0},
                                               {sizeof *other, LIERNE_DTYPE_F64, 3, 0, 0, 0, NULL},
                                               {sizeof *other, LIERNE_DTYPE_I64, 1, 0, 0, 0, NULL},
                                               {sizeof *other, LIERNE_DTYPE_I32, 1, 0, 0, 0, NULL}};
    take_atoms(&m->next, m->most);
    m->owner = (int32_t *)take((size_t)m->most * sizeof *m->owner);
    const lierne_migration_spec spec = find_owners(m);
    bool ok = lierne_context_create_mpi(&m->context, MPI_COMM_WORLD, NULL) == LIERNE_OK &&
              lierne_plan_create_migration(&m->plans[0], m->context, &spec) == LIERNE_OK;
    for (int i = 1; ok && i < FIELDS; i++) {
        ok = lierne_plan_create_retyped(&m->plans[i], m->plans[0], &other[i]) == LIERNE_OK;
    }
    ok = ok && lierne_coalesced_create(&m->all, m->plans, FIELDS) == LIERNE_OK;
    CHECK(ok, "%s", lierne_last_error());
    m->base.before = drift;
    return &m->base;
}

static void pack(double *to, const atoms *a, int64_t i) {
    memcpy(to, a->x + 3 * i, 3 * sizeof *to);
    memcpy(to + 3, a->v + 3 * i, 3 * sizeof *to);
    memcpy(to + 6, a->tag + i, sizeof *to);
    to[7] = a->species[i];
}

static void unpack(atoms *a, int64_t i, const double *from) {
    memcpy(a->x + 3 * i, from, 3 * sizeof *from);
    memcpy(a->v + 3 * i, from + 3, 3 * sizeof *from);
    memcpy(a->tag + i, from + 6, sizeof *from);
    a->species[i] = (int32_t)from[7];
}

/* Packs the atoms outside of the brick along d; the last atom fills the hole. */
static int64_t leave(mover *m, int d) {
    atoms *a = &m->now;
    double low = SIDE * m->place[d], high = SIDE * (m->place[d] + 1);
    int64_t n = 0;
    for (int64_t i = 0; i < a->n;) {
        if (a->x[3 * i + d] >= low && a->x[3 * i + d] < high) {
            i++;
            continue;
        }
        double last[DOUBLES];
        pack(m->leaving + DOUBLES * n++, a, i);
        pack(last, a, --a->n);
        unpack(a, i, last);
    }
    return n;
}

static void keep(mover *m, int d, int64_t n) {
    double low = SIDE * m->place[d], high = SIDE * (m->place[d] + 1);
    for (int64_t i = 0; i < n; i++) {
        const double *at = m->arriving + DOUBLES * i;
        if (at[d] >= low && at[d] < high) {
            unpack(&m->now, m->now.n++, at);
        }
    }
}

static int neighbor(const mover *m, int d, int step) {
    int at[3] = {m->place[0], m->place[1], m->place[2]};
    at[d] = (at[d] + step + m->grid[d]) % m->grid[d];
    return (at[0] * m->grid[1] + at[1]) * m->grid[2] + at[2];
}

static bool run_lammps(method *base, int direction) {
    mover *m = (mover *)base;
    (void)direction;
    for (int d = 0; d < 3; d++) {
        int n = m->grid[d] > 1 ? (int)leave(m, d) : 0, counts[2] = {0};
        MPI_Request arriving[2];
        for (int s = 0; s < (m->grid[d] > 2 ? 2 : m->grid[d] - 1); s++) {
            MPI_Sendrecv(&n, 1, MPI_INT, neighbor(m, d, s ? 1 : -1), 0, &counts[s], 1, MPI_INT,
                         neighbor(m, d, s ? -1 : 1), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (counts[0] + counts[1] > m->most) {
                return false;
            }
            MPI_Irecv(m->arriving + (s ? DOUBLES * counts[0] : 0), DOUBLES * counts[s], MPI_DOUBLE,
                      neighbor(m, d, s ? -1 : 1), 1, MPI_COMM_WORLD, &arriving[s]);
            MPI_Send(m->leaving, DOUBLES * n, MPI_DOUBLE, neighbor(m, d, s ? 1 : -1), 1,
                     MPI_COMM_WORLD);
            MPI_Wait(&arriving[s], MPI_STATUS_IGNORE);
        }
        keep(m, d, counts[0] + counts[1]);
    }
    return true;
}

static method *open_lammps(const void *of) {
    mover *m = open_mover(of, run_lammps);
    m->leaving = (double *)take(DOUBLES * (size_t)m->most * sizeof *m->leaving);
    m->arriving = (double *)take(DOUBLES * (size_t)m->most * sizeof *m->arriving);
    m->base.before = drift;
    return &m->base;
}

static void close_mover(method *base) {
    mover *m = (mover *)base;
    free_atoms(&m->now);
    free_atoms(&m->next);
    free(m->owner);
    free(m->leaving);
    free(m->arriving);
    lierne_coalesced_destroy(m->all);
    CHECK(lierne_context_destroy_all(m->context) == LIERNE_OK, "%s", lierne_last_error());
    free(m);
}

/* Whether the atoms that a rank has are those in its brick, with all fields, and none is lost. */
bool migration_right(const method *base, int direction) {
    const mover *m = (const mover *)base;
    const sparse *w = base->workload;
    const atoms *a = &m->now;
    int64_t mine[2] = {a->n, 0}, all[2], tags = w->nowned * test_world;
    bool right = true;
    (void)direction;
    for (int64_t i = 0; i < a->n; i++) {
        right = right && a->species[i] == (int32_t)(a->tag[i] % 5);
        for (int d = 0; d < 3; d++) {
            right = right && brick_of(m, d, a->x[3 * i + d]) == m->place[d] &&
                    a->v[3 * i + d] == (double)(a->tag[i] * 3 + d);
        }
        mine[1] += a->tag[i];
    }
    MPI_Allreduce(mine, all, 2, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    return right && all[0] == tags && all[1] == tags * (tags - 1) / 2;
}

const method_kind migration_lierne = {"lierne", open_lierne, close_mover};
const method_kind migration_lammps = {"LAMMPS' exchange", open_lammps, close_mover};
