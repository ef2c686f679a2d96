/* Halo exchanges on real ranks: random swaps between random ranks, and swaps that the library makes
 * for random points in bricks. The expected results of swaps come from executing them on plain
 * numbers (tests/mpi/swaps.c); the expected ghosts of a brick, from all images of all points. */
#include "mpi/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SWAPS = 60, BRICKS = 24, POINTS = 60, FLIGHTS = 3 };

static lierne_halo_spec spec_of(const swaps *all, const shape *s) {
    lierne_halo_spec spec = all->rank[test_rank];
    spec.dtype = s->dtype, spec.width = s->width, spec.stride = s->stride;
    return spec;
}

/* One array: owned rows, then ghosts. Of the forward's input no ghost is read. */
typedef struct arrays {
    int64_t nlocal, nrows;
    buffer x, fx, y, fy, empty;
    double *cells;
} arrays;

static void arrays_open(arrays *a, const swaps *all, const forest *f, const shape *s) {
    a->nlocal = all->rank[test_rank].nlocal;
    a->nrows = a->nlocal + all->rank[test_rank].nghost;
    a->cells = malloc((size_t)(a->nrows * s->width + 1) * sizeof *a->cells);
    a->x = buffer_new(s, a->nrows), a->fx = buffer_new(s, a->nrows);
    a->y = buffer_new(s, a->nrows), a->fy = buffer_new(s, a->nrows);
    a->empty = buffer_new(s, a->nrows);
    buffer_fill(s, &a->x, 0, a->nlocal, VALUES, test_rank);
    buffer_fill(s, &a->y, 0, a->nrows, GRADIENTS, test_rank);
    buffer_fill(s, &a->fx, 0, a->nlocal, VALUES, test_rank);
    forest_forward(f, s, test_rank, a->cells);
    buffer_set(s, &a->fx, a->nlocal, a->nrows - a->nlocal, a->cells);
}

static void arrays_close(arrays *a) {
    buffer_free(&a->x), buffer_free(&a->fx), buffer_free(&a->y), buffer_free(&a->fy);
    buffer_free(&a->empty);
    free(a->cells);
}

/* in == out, both ways. */
static void check_in_place(lierne_plan *plan, const shape *s, const arrays *a, const char *what) {
    buffer at = buffer_new(s, a->nrows);
    memcpy(at.at, a->x.at, at.bytes);
    CHECK(lierne_plan_forward(plan, at.at, at.at, NULL) == LIERNE_OK &&
              memcmp(at.at, a->fx.at, at.bytes) == 0,
          "%s: forward in place", what);
    memcpy(at.at, a->y.at, at.bytes);
    CHECK(lierne_plan_adjoint(plan, at.at, at.at, NULL) == LIERNE_OK &&
              memcmp(at.at, a->fy.at, at.bytes) == 0,
          "%s: adjoint in place", what);
    buffer_free(&at);
}

static void check_reduce(lierne_plan *plan, const swaps *all, const forest *f, const shape *s,
                         lierne_reduction op, const char *what) {
    arrays a;
    int64_t at[ROWS_WORLD];
    arrays_open(&a, all, f, s);
    for (int r = 0; r < test_world; r++) {
        at[r] = all->rank[r].nlocal;
    }
    forest_reduce(f, s, op, GRADIENTS, at, test_rank, a.cells);
    buffer_set(s, &a.fy, 0, a.nlocal, a.cells);
    CHECK(lierne_plan_reduce(plan, op, a.fx.at, a.y.at, NULL) == LIERNE_OK, "%s: %s", what,
          lierne_last_error());
    int64_t wrong = 0;
    for (int64_t i = 0; i < a.nlocal * s->width; i++) {
        int64_t row = i / s->width, col = i % s->width;
        wrong += buffer_get(s, &a.fx, row, col) != a.cells[i];
    }
    CHECK(wrong == 0, "%s: %lld wrong values of %s", what, (long long)wrong,
          op == LIERNE_REDUCTION_MAX ? "max" : "min");
    arrays_close(&a);
}

/* A plan of swaps; transposed: one whose directions are exchanged. */
static void check_swaps(lierne_plan *plan, const swaps *all, const shape *s, bool keep,
                        bool transposed, const char *what) {
    forest f;
    arrays a;
    swaps_forest(all, &f);
    arrays_open(&a, all, &f, s);
    swaps_adjoint(all, s, keep, test_rank, a.cells);
    buffer_set(s, &a.fy, 0, a.nrows, a.cells);
    buffer_check(plan, transposed ? LIERNE_DIRECTION_ADJOINT : LIERNE_DIRECTION_FORWARD, &a.x,
                 &a.empty, &a.fx, what);
    buffer_check(plan, transposed ? LIERNE_DIRECTION_FORWARD : LIERNE_DIRECTION_ADJOINT, &a.y,
                 &a.empty, &a.fy, what);
    if (!transposed) {
        check_in_place(plan, s, &a, what);
    }
    arrays_close(&a);
    forest_free(&f);
}

static void check_roots(lierne_plan *plan, const forest *f, const char *what) {
    int64_t n = f->nghosts[test_rank], wrong = 0;
    int32_t *rank = malloc((size_t)(n + 1) * sizeof *rank);
    int64_t *row = malloc((size_t)(n + 1) * sizeof *row);
    CHECK(lierne_plan_get_halo_roots(rank, row, plan) == LIERNE_OK, "%s: %s", what,
          lierne_last_error());
    for (int64_t k = 0; k < n; k++) {
        const root *g = &f->ghosts[test_rank][k];
        wrong += rank[k] != g->rank || row[k] != g->row;
    }
    CHECK(wrong == 0, "%s: %lld wrong roots", what, (long long)wrong);
    free(rank), free(row);
}

/* Bytes: each row once to each rank that has ghosts of it. */
static void check_flat_bytes(lierne_plan *plan, const forest *f, const shape *s, const char *what) {
    int64_t rows = 0;
    lierne_report report = {.size = sizeof report};
    for (int64_t k = 0; k < f->nghosts[test_rank]; k++) {
        const root *g = &f->ghosts[test_rank][k];
        bool first = g->rank != test_rank;
        for (int64_t j = 0; j < k && first; j++) {
            const root *h = &f->ghosts[test_rank][j];
            first = h->rank != g->rank || h->row != g->row;
        }
        rows += first;
    }
    int64_t wanted = rows * s->width * (int64_t)lierne_dtype_size(s->dtype);
    CHECK(lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_FORWARD) == LIERNE_OK &&
              report.received_bytes == wanted && report.min_bytes == wanted,
          "%s: %lld bytes, wanted %lld", what, (long long)report.received_bytes, (long long)wanted);
}

/* The flattened plan with ghosts behind the owned rows. */
static void check_whole(lierne_plan *flat, const swaps *all, const forest *f, const shape *s,
                        bool keep, const char *what) {
    arrays a;
    int64_t at[ROWS_WORLD];
    arrays_open(&a, all, f, s);
    for (int r = 0; r < test_world; r++) {
        at[r] = all->rank[r].nlocal;
    }
    forest_reduce(f, s, LIERNE_REDUCTION_SUM, GRADIENTS, at, test_rank, a.cells);
    buffer_set(s, &a.fy, 0, a.nlocal, a.cells);
    for (int64_t i = a.nlocal * s->width; i < a.nrows * s->width; i++) {
        int64_t row = i / s->width, col = i % s->width;
        buffer_put(s, &a.fy, row, col, keep ? shape_cell(s, GRADIENTS, test_rank, row, col) : 0);
    }
    buffer_check(flat, LIERNE_DIRECTION_FORWARD, &a.x, &a.empty, &a.fx, what);
    buffer_check(flat, LIERNE_DIRECTION_ADJOINT, &a.y, &a.empty, &a.fy, what);
    check_in_place(flat, s, &a, what);
    arrays_close(&a);
}

/* The flattened plan with ghosts in an array of their own. */
static void check_separate(lierne_plan *flat, const forest *f, const shape *s, const char *what) {
    int64_t nowned = f->nowned[test_rank], nghosts = f->nghosts[test_rank];
    double *cells = malloc((size_t)((nowned + nghosts) * s->width + 1) * sizeof *cells);
    buffer x = buffer_new(s, nowned), fx = buffer_new(s, nghosts), y = buffer_new(s, nghosts);
    buffer fy = buffer_new(s, nowned), ghosts = buffer_new(s, nghosts),
           owned = buffer_new(s, nowned);
    buffer_fill(s, &x, 0, nowned, VALUES, test_rank);
    buffer_fill(s, &y, 0, nghosts, GRADIENTS, test_rank);
    forest_forward(f, s, test_rank, cells);
    buffer_set(s, &fx, 0, nghosts, cells);
    forest_reduce(f, s, LIERNE_REDUCTION_SUM, NOTHING, NULL, test_rank, cells);
    buffer_set(s, &fy, 0, nowned, cells);
    buffer_check(flat, LIERNE_DIRECTION_FORWARD, &x, &ghosts, &fx, what);
    buffer_check(flat, LIERNE_DIRECTION_ADJOINT, &y, &owned, &fy, what);
    buffer_free(&x), buffer_free(&fx), buffer_free(&y);
    buffer_free(&fy), buffer_free(&ghosts), buffer_free(&owned);
    free(cells);
}

static void check_flat(lierne_plan *plan, const swaps *all, const shape *s, bool keep) {
    forest f;
    lierne_plan *flat = NULL;
    swaps_forest(all, &f);
    check_roots(plan, &f, "roots");
    check_reduce(plan, all, &f, s, LIERNE_REDUCTION_MAX, "swaps");
    check_reduce(plan, all, &f, s, LIERNE_REDUCTION_MIN, "swaps");
    if (CHECK(lierne_plan_create_flattened(&flat, plan, 0) == LIERNE_OK, "%s",
              lierne_last_error())) {
        check_whole(flat, all, &f, s, keep, "flat");
        check_flat_bytes(flat, &f, s, "flat");
        check_reduce(flat, all, &f, s, LIERNE_REDUCTION_MAX, "flat");
    }
    lierne_plan_destroy(flat);
    flat = NULL;
    if (CHECK(lierne_plan_create_flattened(&flat, plan, 1) == LIERNE_OK, "%s",
              lierne_last_error())) {
        check_separate(flat, &f, s, "flat, ghosts apart");
    }
    lierne_plan_destroy(flat);
    forest_free(&f);
}

/* Whether rows stay is decided by what they are copies of; then with a rank that thinks otherwise.
 */
static void check_restricted(lierne_plan *plan, const swaps *all, const shape *s, bool keep_ghosts,
                             uint64_t seed) {
    forest f;
    swaps cut;
    lierne_plan *plans[2] = {NULL, NULL};
    uint8_t *keep[ROWS_WORLD];
    swaps_forest(all, &f);
    for (int r = 0; r < test_world; r++) {
        int64_t nlocal = f.nowned[r], n = nlocal + f.nghosts[r];
        keep[r] = malloc((size_t)n + 1);
        for (int64_t i = 0; i < n; i++) {
            root g = i < nlocal ? (root){r, i} : f.ghosts[r][i - nlocal];
            keep[r][i] = mix(seed + (uint64_t)(g.rank * 1000 + g.row)) % 3 != 0;
        }
    }
    swaps_restrict(all, keep, &cut);
    if (CHECK(lierne_plan_create_restricted(&plans[0], plan, keep[test_rank]) == LIERNE_OK, "%s",
              lierne_last_error())) {
        check_swaps(plans[0], &cut, s, keep_ghosts, false, "restricted");
    }
    if (f.nghosts[test_world - 1] > 0) {
        keep[test_world - 1][f.nowned[test_world - 1]] ^= 1;
        test_same_error(lierne_plan_create_restricted(&plans[1], plan, keep[test_rank]),
                        LIERNE_ERR_MISMATCH, "a ghost that only one side keeps");
    }
    CHECK(lierne_plan_destroy(plans[0]) == LIERNE_OK && !plans[1], "%s", lierne_last_error());
    for (int r = 0; r < test_world; r++) {
        free(keep[r]);
    }
    swaps_free(&cut);
    forest_free(&f);
}

static void check_others(lierne_context *context, lierne_plan *plan, const swaps *all,
                         const shape *s, bool keep) {
    lierne_plan *once = NULL, *twice = NULL, *read = NULL;
    char *text = NULL;
    if (CHECK(lierne_plan_create_transposed(&once, plan) == LIERNE_OK &&
                  lierne_plan_create_transposed(&twice, once) == LIERNE_OK,
              "%s", lierne_last_error())) {
        check_swaps(once, all, s, keep, true, "transposed swaps");
        check_swaps(twice, all, s, keep, false, "swaps transposed twice");
    }
    CHECK(lierne_plan_serialize(&text, plan) == LIERNE_OK, "%s", lierne_last_error());
    if (CHECK(lierne_plan_deserialize(&read, context, text, text ? strlen(text) : 0) == LIERNE_OK,
              "%s", lierne_last_error())) {
        check_swaps(read, all, s, keep, false, "swaps read again");
    }
    lierne_text_destroy(text);
    lierne_plan_destroy(once), lierne_plan_destroy(twice), lierne_plan_destroy(read);
}

static void run_swaps(lierne_context *context, const swaps *all, uint64_t seed, int number) {
    lierne_plan *plan = NULL;
    shape s = shape_random(seed, number % 3 == 0);
    lierne_halo_spec spec = spec_of(all, &s);
    spec.keep_ghosts = number / 2 % 3 == 0;
    bool keep = spec.keep_ghosts, filled = spec.nswap > 0;
    size_t before = lierne_mem_live();
    if (CHECK(lierne_plan_create_halo(&plan, context, &spec) == LIERNE_OK, "%s",
              lierne_last_error())) {
        check_swaps(plan, all, &s, keep, false, "swaps");
        check_others(context, plan, all, &s, keep);
        check_restricted(plan, all, &s, keep, seed);
        if (filled) {
            check_flat(plan, all, &s, keep);
        }
    }
    CHECK(lierne_plan_destroy(plan) == LIERNE_OK, "%s", lierne_last_error());
    CHECK(lierne_mem_live() == before, "swaps: leaked");
}

/* Without swaps nobody fills ghosts: both directions are the identity on all rows. */
static void run_no_swaps(lierne_context *context) {
    lierne_plan *plan = NULL;
    shape s = shape_random(3, false);
    int64_t nlocal = test_rank, nghost = 2;
    lierne_halo_spec spec = {.size = sizeof spec,
                             .nlocal = nlocal,
                             .nghost = nghost,
                             .dtype = s.dtype,
                             .width = s.width,
                             .stride = s.stride};
    buffer x = buffer_new(&s, nlocal + nghost), empty = buffer_new(&s, nlocal + nghost);
    buffer_fill(&s, &x, 0, nlocal + nghost, VALUES, test_rank);
    if (CHECK(lierne_plan_create_halo(&plan, context, &spec) == LIERNE_OK, "%s",
              lierne_last_error())) {
        buffer_check(plan, LIERNE_DIRECTION_FORWARD, &x, &empty, &x, "no swaps");
        buffer_check(plan, LIERNE_DIRECTION_ADJOINT, &x, &empty, &x, "no swaps");
    }
    lierne_plan_destroy(plan);
    buffer_free(&x), buffer_free(&empty);
}

/* Several requests of both directions at once, ended in another order on every second rank. */
static void run_flights(lierne_context *context, uint64_t seed) {
    swaps all;
    forest f;
    arrays a[FLIGHTS];
    buffer out[2 * FLIGHTS];
    lierne_request *requests[2 * FLIGHTS], *one_more = NULL;
    lierne_plan *plan = NULL;
    shape s = shape_random(seed, false);
    swaps_random(&all, test_world, seed);
    swaps_forest(&all, &f);
    lierne_halo_spec spec = spec_of(&all, &s);
    spec.max_inflight = FLIGHTS;
    CHECK(lierne_plan_create_halo(&plan, context, &spec) == LIERNE_OK, "%s", lierne_last_error());
    for (int i = 0; i < FLIGHTS; i++) {
        s.seed = seed + (uint64_t)i;
        arrays_open(&a[i], &all, &f, &s);
        swaps_adjoint(&all, &s, false, test_rank, a[i].cells);
        buffer_set(&s, &a[i].fy, 0, a[i].nrows, a[i].cells);
        out[2 * i] = buffer_new(&s, a[i].nrows), out[2 * i + 1] = buffer_new(&s, a[i].nrows);
        lierne_plan_forward_begin(&requests[2 * i], plan, out[2 * i].at, a[i].x.at, NULL);
        lierne_plan_adjoint_begin(&requests[2 * i + 1], plan, out[2 * i + 1].at, a[i].y.at, NULL);
    }
    lierne_status status =
        lierne_plan_forward_begin(&one_more, plan, a[0].empty.at, a[0].x.at, NULL);
    CHECK(status == LIERNE_ERR_BUSY && !one_more, "one more than may be: %s",
          lierne_status_name(status));
    for (int k = 0; k < 2 * FLIGHTS; k++) {
        int i = test_rank % 2 ? 2 * FLIGHTS - 1 - k : k;
        const buffer *wanted = i % 2 ? &a[i / 2].fy : &a[i / 2].fx;
        CHECK(lierne_request_end(requests[i]) == LIERNE_OK, "%s", lierne_last_error());
        CHECK(memcmp(out[i].at, wanted->at, wanted->bytes) == 0, "request %d: wrong bits", i);
    }
    for (int i = 0; i < FLIGHTS; i++) {
        arrays_close(&a[i]);
        buffer_free(&out[2 * i]), buffer_free(&out[2 * i + 1]);
    }
    CHECK(lierne_plan_destroy(plan) == LIERNE_OK, "%s", lierne_last_error());
    forest_free(&f);
    swaps_free(&all);
}

/* Points of a world cut in bricks. */
typedef struct space {
    lierne_brick_spec spec;
    double splits[3][ROWS_WORLD + 1];
    int64_t npoints;
    double point[POINTS][3];
    int owner[POINTS];
    int64_t row[POINTS];
    double own[POINTS][3];
} space;

/* The next grid of the world; 1, 2 or 3 dims. */
static void space_grid(space *p, int number) {
    int grids = 0, chosen[64][3];
    for (int x = 1; x <= test_world; x++) {
        for (int y = 1; y <= test_world; y++) {
            for (int z = 1; z <= test_world; z++) {
                if (x * y * z == test_world) {
                    memcpy(chosen[grids++], (int[]){x, y, z}, sizeof chosen[0]);
                }
            }
        }
    }
    memcpy(p->spec.grid, chosen[number % grids], sizeof p->spec.grid);
}

/* Which slab a coordinate is in. */
static int slab(const space *p, int d, double x) {
    int i = 0;
    while (i + 1 < p->spec.grid[d] && x >= p->splits[d][i + 1] * p->spec.box[d]) {
        i++;
    }
    return i;
}

static double unit(uint64_t *seed) {
    return (double)draw(seed, 1 << 20) / (1 << 20);
}

static void space_random(space *p, int number, uint64_t seed) {
    memset(p, 0, sizeof *p);
    p->spec.size = sizeof p->spec;
    space_grid(p, number);
    p->spec.cutoff = 0.2 + 1.3 * unit(&seed);
    p->spec.dims = p->spec.grid[2] == 1 && number % 4 == 1 ? 2 : 3;
    for (int d = 0; d < 3; d++) {
        bool uneven = number % 3 == 2;
        double part = 0;
        p->spec.box[d] = 1 + unit(&seed);
        p->spec.periodic[d] = draw(&seed, 3) != 0;
        for (int i = 0; i <= p->spec.grid[d]; i++) {
            p->splits[d][i] = i == p->spec.grid[d] ? 1 : part;
            part += (1 - part) / (p->spec.grid[d] - i + (uneven ? unit(&seed) : 0));
        }
        p->spec.splits[d] = uneven ? p->splits[d] : NULL;
        for (int i = 0; i <= p->spec.grid[d] && !uneven; i++) {
            p->splits[d][i] = (double)i / p->spec.grid[d];
        }
    }
    p->npoints = (int64_t)draw(&seed, POINTS);
    for (int64_t i = 0; i < p->npoints; i++) {
        int at[3];
        for (int d = 0; d < 3; d++) {
            p->point[i][d] = p->spec.box[d] * unit(&seed);
            at[d] = slab(p, d, p->point[i][d]);
        }
        p->owner[i] = (at[0] * p->spec.grid[1] + at[1]) * p->spec.grid[2] + at[2];
        for (int64_t j = 0; j < i; j++) {
            p->row[i] += p->owner[j] == p->owner[i];
        }
        if (p->owner[i] == test_rank) {
            memcpy(p->own[p->spec.nlocal++], p->point[i], sizeof p->own[0]);
        }
    }
    p->spec.positions = p->own[0];
}

/* Distance of a coordinate from the brick along an axis, 0 within. */
static double beyond(const space *p, int d, double x) {
    const int *grid = p->spec.grid;
    int at[3] = {test_rank / grid[2] / grid[1], test_rank / grid[2] % grid[1], test_rank % grid[2]};
    double lo = p->splits[d][at[d]] * p->spec.box[d];
    double hi = p->splits[d][at[d] + 1] * p->spec.box[d];
    return x < lo ? lo - x : x > hi ? x - hi : 0;
}

/* How often an image is among the ghosts. */
static int images(const space *p, const forest *f, const double *ghosts, int64_t point,
                  const double *at) {
    int n = 0;
    for (int64_t k = 0; k < f->nghosts[test_rank]; k++) {
        const root *g = &f->ghosts[test_rank][k];
        double off = 0;
        for (int d = 0; d < 3; d++) {
            off += fabs(ghosts[3 * k + d] - at[d]);
        }
        n += g->rank == p->owner[point] && g->row == p->row[point] && off < 1e-9;
    }
    return n;
}

/* Every image of every point within the cutoff of the brick is a ghost, once; and no other one. */
static void check_ghosts(const space *p, const forest *f, const double *ghosts) {
    int64_t wanted = 0, missing = 0;
    for (int64_t i = 0; i < p->npoints; i++) {
        for (int shift = 0; shift < 7 * 7 * 7; shift++) {
            int by[3] = {shift % 7 - 3, shift / 7 % 7 - 3, shift / 49 - 3};
            bool image = by[0] || by[1] || by[2], near = image || p->owner[i] != test_rank;
            double at[3];
            for (int d = 0; d < 3; d++) {
                at[d] = p->point[i][d] + by[d] * p->spec.box[d];
                near = near && (by[d] == 0 || p->spec.periodic[d]) &&
                       (d < p->spec.dims || by[d] == 0) && beyond(p, d, at[d]) <= p->spec.cutoff;
            }
            wanted += near;
            missing += near && images(p, f, ghosts, i, at) != 1;
        }
    }
    CHECK(missing == 0 && wanted == f->nghosts[test_rank],
          "%lld of %lld images are missing or doubled; %lld ghosts", (long long)missing,
          (long long)wanted, (long long)f->nghosts[test_rank]);
}

static void run_brick(lierne_context *context, int number) {
    static space p;
    uint64_t seed = (uint64_t)(number * 10 + test_world);
    lierne_brick *brick = NULL;
    size_t before = lierne_mem_live();
    space_random(&p, number, seed);
    if (CHECK(lierne_brick_create(&brick, context, &p.spec) == LIERNE_OK, "%s",
              lierne_last_error())) {
        lierne_halo_spec own = {.size = sizeof own};
        swaps all;
        forest f;
        CHECK(lierne_brick_get_swaps(&own, brick) == LIERNE_OK, "%s", lierne_last_error());
        CHECK(own.nlocal == p.spec.nlocal, "%lld rows", (long long)own.nlocal);
        swaps_gather(&all, &own);
        swaps_forest(&all, &f);
        check_ghosts(&p, &f, lierne_brick_get_ghosts(brick));
        forest_free(&f);
        run_swaps(context, &all, seed, number);
        swaps_free(&all);
    }
    lierne_brick_destroy(brick);
    CHECK(lierne_mem_live() == before, "brick: leaked");
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    size_t before = lierne_mem_live();
    lierne_context *context;
    CHECK(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL) == LIERNE_OK, "%s",
          lierne_last_error());
    for (int i = 0; i < SWAPS; i++) {
        swaps all;
        uint64_t seed = (uint64_t)(i * 10 + test_world);
        swaps_random(&all, test_world, seed);
        run_swaps(context, &all, seed, i);
        swaps_free(&all);
    }
    for (uint64_t seed = 0; seed < 20; seed++) {
        run_flights(context, seed);
    }
    run_no_swaps(context);
    for (int i = 0; i < BRICKS; i++) {
        run_brick(context, i);
    }
    CHECK(lierne_context_destroy(context) == LIERNE_OK, "%s", lierne_last_error());
    CHECK(lierne_mem_live() == before, "leaked");
    return test_finish();
}
