/* Swaps of bricks: each rank gets every image of every point within the cutoff of its brick once,
 * and no other. Coordinates are multiples of 1/64, so that shifts are exact. */
#include <criterion/criterion.h>

#include "base/base.h"
#include "unit/halo_case.h"
#include "unit/ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS = 40, GHOSTS = 4096, WORLD = 8 };

/* A point, or an image of one. */
typedef struct image {
    double at[3];
    double number;
} image;

typedef struct box {
    lierne_brick_spec spec; /* the same on all ranks */
    double splits[3][9];
    image points[POINTS];
    int npoints;
    int owner[POINTS];
    image *got[WORLD]; /* ghosts, GHOSTS of them at most */
    int64_t ngot[WORLD];
    double copies[POINTS]; /* of each point: the adjoint of ones at its owner */
    lierne_status status[WORLD];
    char message[WORLD][LIERNE_MESSAGE_SIZE];
    const char *why[WORLD];
    void (*spoil)(lierne_brick_spec *spec); /* on rank `culprit` */
    int culprit;
} box;

static double border(const box *b, int d, int i) {
    return b->spec.box[d] * (b->spec.splits[d] ? b->splits[d][i] : (double)i / b->spec.grid[d]);
}

static void cell_of(const box *b, int rank, int *cell) {
    cell[2] = rank % b->spec.grid[2];
    cell[1] = rank / b->spec.grid[2] % b->spec.grid[1];
    cell[0] = rank / b->spec.grid[2] / b->spec.grid[1];
}

static void assign(box *b, int world) {
    for (int p = 0; p < b->npoints; p++) {
        for (int r = 0; r < world; r++) {
            int cell[3];
            bool inside = true;
            cell_of(b, r, cell);
            for (int d = 0; d < 3; d++) {
                inside &= b->points[p].at[d] >= border(b, d, cell[d]) &&
                          b->points[p].at[d] < border(b, d, cell[d] + 1);
            }
            b->owner[p] = inside ? r : b->owner[p];
        }
    }
}

/* The points of a rank, in the order of their numbers. */
static lierne_brick_spec spec_of(const box *b, int rank, double *positions, int *mine) {
    lierne_brick_spec spec = b->spec;
    spec.nlocal = 0;
    spec.positions = positions;
    for (int p = 0; p < b->npoints; p++) {
        if (b->owner[p] == rank) {
            memcpy(positions + 3 * spec.nlocal, b->points[p].at, sizeof b->points[p].at);
            mine[spec.nlocal++] = p;
        }
    }
    return spec;
}

/* Forward moves the numbers of points, the adjoint ones. */
static const char *exchange(box *b, lierne_context *context, const lierne_brick *brick,
                            const int *mine, bool flat) {
    static _Thread_local double in[GHOSTS], out[GHOSTS];
    lierne_halo_spec spec = {.size = sizeof spec, .dtype = LIERNE_DTYPE_F64, .width = 1};
    const double *ghosts = lierne_brick_get_ghosts(brick);
    int rank = lierne_context_get_rank(context);
    lierne_plan *plan, *staged;
    if (lierne_brick_get_swaps(&spec, brick) != LIERNE_OK || spec.nlocal + spec.nghost > GHOSTS ||
        lierne_plan_create_halo(&plan, context, &spec) != LIERNE_OK) {
        return "no plan";
    }
    if (flat) {
        staged = plan;
        if (lierne_plan_create_flattened(&plan, staged, 0) != LIERNE_OK) {
            return "not flat";
        }
        lierne_plan_destroy(staged);
    }
    for (int64_t i = 0; i < spec.nlocal; i++) {
        in[i] = b->points[mine[i]].number;
    }
    bool good = lierne_plan_forward(plan, out, in, NULL) == LIERNE_OK;
    b->ngot[rank] = spec.nghost;
    for (int64_t i = 0; i < spec.nghost; i++) {
        memcpy(b->got[rank][i].at, ghosts + 3 * i, 3 * sizeof *ghosts);
        b->got[rank][i].number = out[spec.nlocal + i];
    }
    for (int64_t i = 0; i < spec.nlocal + spec.nghost; i++) {
        in[i] = 1;
    }
    good &= lierne_plan_adjoint(plan, out, in, NULL) == LIERNE_OK;
    for (int64_t i = 0; i < spec.nlocal; i++) {
        b->copies[mine[i]] = out[i];
    }
    lierne_plan_destroy(plan);
    return good ? NULL : "it fails";
}

static void make_brick(lierne_context *context, void *shared) {
    box *b = shared;
    int rank = lierne_context_get_rank(context), mine[POINTS];
    double positions[3 * POINTS];
    lierne_brick_spec spec = spec_of(b, rank, positions, mine);
    lierne_brick *brick;
    if (b->spoil && rank == b->culprit) {
        b->spoil(&spec);
    }
    b->status[rank] = lierne_brick_create(&brick, context, &spec);
    strcpy(b->message[rank], lierne_last_error());
    if (b->status[rank] == LIERNE_OK) {
        b->why[rank] = exchange(b, context, brick, mine, b->npoints % 2);
        lierne_brick_destroy(brick);
    }
}

static void run_box(box *b, int world) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 60};
    ranks_run(world, &spec, make_brick, b);
}

static int compare_images(const void *a, const void *b) {
    const image *x = a, *y = b;
    for (int d = 0; d < 3; d++) {
        if (x->at[d] != y->at[d]) {
            return x->at[d] < y->at[d] ? -1 : 1;
        }
    }
    return (x->number > y->number) - (x->number < y->number);
}

/* Whether an image, unshifted along axes without swaps, is within the cutoff of a rank's brick. */
static bool reaches(const box *b, int rank, const double *at) {
    int cell[3];
    cell_of(b, rank, cell);
    for (int d = 0; d < (b->spec.dims == 2 ? 2 : 3); d++) {
        if (at[d] < border(b, d, cell[d]) - b->spec.cutoff ||
            at[d] > border(b, d, cell[d] + 1) + b->spec.cutoff) {
            return false;
        }
    }
    return true;
}

static int images_along(const box *b, int d) {
    bool none = !b->spec.periodic[d] || (d == 2 && b->spec.dims == 2);
    return none ? 0 : 1 + (int)(b->spec.cutoff / b->spec.box[d]);
}

/* All images that a rank must get, sorted. */
static int64_t work_out(const box *b, int rank, image *wanted) {
    int64_t n = 0;
    int most[3] = {images_along(b, 0), images_along(b, 1), images_along(b, 2)};
    for (int p = 0; p < b->npoints; p++) {
        for (int x = -most[0]; x <= most[0]; x++) {
            for (int y = -most[1]; y <= most[1]; y++) {
                for (int z = -most[2]; z <= most[2]; z++) {
                    image i = b->points[p];
                    bool own = b->owner[p] == rank && x == 0 && y == 0 && z == 0;
                    i.at[0] += x * b->spec.box[0];
                    i.at[1] += y * b->spec.box[1];
                    i.at[2] += z * b->spec.box[2];
                    if (!own && reaches(b, rank, i.at) && n < GHOSTS) {
                        wanted[n++] = i;
                    }
                }
            }
        }
    }
    qsort(wanted, (size_t)n, sizeof *wanted, compare_images);
    return n;
}

static void check_box(box *b, int world, uint64_t seed) {
    static image wanted[GHOSTS];
    double copies[POINTS];
    for (int p = 0; p < b->npoints; p++) {
        copies[p] = 1;
    }
    run_box(b, world);
    for (int r = 0; r < world; r++) {
        int64_t n = work_out(b, r, wanted);
        cr_assert(b->status[r] == LIERNE_OK && !b->why[r], "seed %llu rank %d: %s %s",
                  (unsigned long long)seed, r, b->message[r], b->why[r] ? b->why[r] : "");
        qsort(b->got[r], (size_t)b->ngot[r], sizeof *wanted, compare_images);
        cr_assert_eq(b->ngot[r], n, "seed %llu rank %d of %d: %lld ghosts, not %lld",
                     (unsigned long long)seed, r, world, (long long)b->ngot[r], (long long)n);
        for (int64_t i = 0; i < n; i++) {
            cr_assert_eq(compare_images(&b->got[r][i], &wanted[i]), 0,
                         "seed %llu rank %d ghost %lld", (unsigned long long)seed, r, (long long)i);
            copies[(int)wanted[i].number]++;
        }
    }
    for (int p = 0; p < b->npoints; p++) {
        cr_assert_eq(b->copies[p], copies[p], "seed %llu point %d", (unsigned long long)seed, p);
    }
}

/* Bricks of a few sixteenths of the box, the rest to the last one. */
static void split(box *b, uint64_t seed, int d) {
    int bricks = b->spec.grid[d], at = 0, spare = 16 - bricks;
    for (int i = 1; i < bricks; i++) {
        int more = (int)halo_case_pick(seed, 60 + (uint64_t)d, (uint64_t)i, (uint64_t)spare + 1);
        at += 1 + more;
        spare -= more;
        b->splits[d][i] = at / 16.0;
    }
    b->splits[d][0] = 0;
    b->splits[d][bricks] = 1;
    b->spec.splits[d] = b->splits[d];
}

/* Worlds of 1, 2, 4 or 8 ranks: their borders are exact. */
static int random_box(box *b, uint64_t seed) {
    static const double cutoffs[] = {0.5, 1.25, 3, 5};
    int world = 1;
    image **got = b->got;
    memset(&b->spec, 0, sizeof b->spec);
    memset(b->ngot, 0, sizeof b->ngot);
    b->spec.size = sizeof b->spec;
    b->spec.dims = seed % 5 == 0 ? 2 : seed % 5 == 1 ? 0 : 3;
    b->spec.cutoff = cutoffs[halo_case_pick(seed, 1, 0, 4)];
    for (int d = 0; d < 3; d++) {
        int bricks = 1 << halo_case_pick(seed, 2, (uint64_t)d, 4);
        while (world * bricks > WORLD || (d == 2 && b->spec.dims == 2 && bricks > 1)) {
            bricks /= 2;
        }
        world *= bricks;
        b->spec.grid[d] = bricks;
        b->spec.box[d] = (double)(4 + 4 * halo_case_pick(seed, 3, (uint64_t)d, 3));
        b->spec.periodic[d] = halo_case_pick(seed, 4, (uint64_t)d, 4) > 0;
        if (halo_case_pick(seed, 5, (uint64_t)d, 3) == 0) {
            split(b, seed, d);
        }
    }
    b->npoints = (int)halo_case_pick(seed, 6, 0, b->spec.cutoff > 2 ? 8 : POINTS + 1);
    for (int p = 0; p < b->npoints; p++) {
        b->points[p].number = p;
        for (int d = 0; d < 3; d++) {
            uint64_t steps = (uint64_t)b->spec.box[d] * 64;
            b->points[p].at[d] =
                (double)halo_case_pick(seed, 7 + (uint64_t)d, (uint64_t)p, steps) / 64;
        }
    }
    assign(b, world);
    for (int r = 0; r < WORLD; r++) {
        got[r] = got[r] ? got[r] : calloc(GHOSTS, sizeof **got);
        cr_assert(got[r]);
    }
    return world;
}

static void box_free(box *b) {
    for (int r = 0; r < WORLD; r++) {
        free(b->got[r]);
    }
    free(b);
}

Test(brick, every_image_within_the_cutoff_comes_once) {
    box *b = calloc(1, sizeof *b);
    cr_assert(b);
    for (uint64_t seed = 0; seed < 80; seed++) {
        int world = random_box(b, seed);
        check_box(b, world, seed);
    }
    box_free(b);
}

/* Known answers for two bricks between walls: the low one sends its upper points, the high one its
 * lower ones, and neither sends across a wall. */
static void between_walls(lierne_context *context, void *shared) {
    int *bad = shared, rank = lierne_context_get_rank(context);
    const double low[9] = {1, 1, 1, 3, 1, 1, 4.5, 1, 1}, high[6] = {5, 1, 1, 7.5, 1, 1};
    lierne_brick_spec spec = {.size = sizeof spec,
                              .grid = {2, 1, 1},
                              .box = {10, 4, 4},
                              .cutoff = 2,
                              .nlocal = rank ? 2 : 3,
                              .positions = rank ? high : low};
    lierne_halo_spec swaps = {.size = sizeof swaps};
    lierne_brick *brick;
    if (lierne_brick_create(&brick, context, &spec) != LIERNE_OK) {
        bad[rank] = 1;
        return;
    }
    const double *ghosts = lierne_brick_get_ghosts(brick);
    bad[rank] |= lierne_brick_get_swaps(&swaps, brick) != LIERNE_OK || swaps.nswap != 2;
    bad[rank] |= swaps.nlocal != spec.nlocal || swaps.nghost != (rank ? 2 : 1);
    bad[rank] |= swaps.sendproc[0] != 1 - rank || swaps.recvproc[1] != 1 - rank;
    bad[rank] |= swaps.sendnum[0] != rank || swaps.recvnum[0] != !rank;
    bad[rank] |= swaps.sendnum[1] != (rank ? 0 : 2) || swaps.recvnum[1] != (rank ? 2 : 0);
    bad[rank] |=
        rank ? swaps.sendlist[0][0] != 0 : swaps.sendlist[1][0] != 1 || swaps.sendlist[1][1] != 2;
    bad[rank] |= ghosts[0] != (rank ? 3 : 5);
    swaps.size = 0;
    bad[rank] |= lierne_brick_get_swaps(&swaps, brick) != LIERNE_ERR_INVALID;
    lierne_brick_destroy(brick);
}

Test(brick, two_bricks_between_walls) {
    int bad[2] = {0};
    ranks_run(2, NULL, between_walls, bad);
    cr_assert(!bad[0] && !bad[1]);
}

#define SPOIL(name, ...)                                                                           \
    static void name(lierne_brick_spec *s) {                                                       \
        __VA_ARGS__;                                                                               \
    }
static const double falling[3] = {0, 1.5, 1}, late[3] = {0.25, 0.5, 1}, other[3] = {0, 0.625, 1};
static const double outside[3] = {-0.5, 1, 1}, on_border[3] = {8, 8, 8}, nowhere[3] = {NAN, 1, 1};
SPOIL(bad_size, s->size = 0)
SPOIL(no_bricks, s->grid[1] = 0)
SPOIL(many_bricks, s->grid[2] = 2)
SPOIL(no_box, s->box[1] = 0)
SPOIL(endless_box, s->box[1] = INFINITY)
SPOIL(no_cutoff, s->cutoff = 0)
SPOIL(strange_cutoff, s->cutoff = NAN)
SPOIL(far_cutoff, s->cutoff = 1e9)
SPOIL(bad_dims, s->dims = 1)
SPOIL(falling_splits, s->splits[0] = falling)
SPOIL(late_splits, s->splits[0] = late)
SPOIL(negative_points, s->nlocal = -1)
SPOIL(endless_points, s->nlocal = INT64_MAX / 16)
SPOIL(no_positions, s->positions = NULL; s->nlocal = 1)
SPOIL(point_outside, s->positions = outside; s->nlocal = 1)
SPOIL(point_on_border, s->positions = on_border; s->nlocal = 1)
SPOIL(point_nowhere, s->positions = nowhere; s->nlocal = 1)
SPOIL(other_cutoff, s->cutoff = 1.5)
SPOIL(other_box, s->box[2] = 16; s->nlocal = 0)
SPOIL(other_period, s->periodic[1] = 0)
SPOIL(other_dims, s->dims = 2)
SPOIL(other_splits, s->splits[0] = other; s->nlocal = 0)
SPOIL(other_grid, s->grid[0] = 1; s->grid[1] = 2; s->nlocal = 0)

Test(brick, a_fault_on_one_rank_is_the_error_of_all) {
    static const struct {
        void (*spoil)(lierne_brick_spec *spec);
        lierne_status expected;
        const char *says;
    } faults[] = {
        {bad_size, LIERNE_ERR_INVALID, "size"},
        {no_bricks, LIERNE_ERR_INVALID, "grid[1] is 0"},
        {many_bricks, LIERNE_ERR_INVALID, "2 x 1 x 2"},
        {no_box, LIERNE_ERR_INVALID, "box[1]"},
        {endless_box, LIERNE_ERR_INVALID, "box[1]"},
        {no_cutoff, LIERNE_ERR_INVALID, "cutoff 0"},
        {strange_cutoff, LIERNE_ERR_INVALID, "cutoff"},
        {far_cutoff, LIERNE_ERR_COUNT_RANGE, "65536"},
        {bad_dims, LIERNE_ERR_INVALID, "dims is 1"},
        {falling_splits, LIERNE_ERR_INVALID, "splits[0]"},
        {late_splits, LIERNE_ERR_INVALID, "splits[0]"},
        {negative_points, LIERNE_ERR_COUNT_RANGE, "-1"},
        {endless_points, LIERNE_ERR_COUNT_RANGE, "nlocal"},
        {no_positions, LIERNE_ERR_INVALID, "positions"},
        {point_outside, LIERNE_ERR_INDEX_RANGE, "point 0"},
        {point_on_border, LIERNE_ERR_INDEX_RANGE, "point 0"},
        {point_nowhere, LIERNE_ERR_INDEX_RANGE, "point 0"},
        {other_cutoff, LIERNE_ERR_MISMATCH, "1.5 on rank"},
        {other_box, LIERNE_ERR_MISMATCH, "box[2]"},
        {other_period, LIERNE_ERR_MISMATCH, "periodic[1]"},
        {other_dims, LIERNE_ERR_MISMATCH, "dims"},
        {other_splits, LIERNE_ERR_MISMATCH, "splits[0]"},
        {other_grid, LIERNE_ERR_MISMATCH, "grid[0]"},
    };
    box *b = calloc(1, sizeof *b);
    cr_assert(b);
    b->spec = (lierne_brick_spec){.size = sizeof b->spec,
                                  .grid = {2, 1, 1},
                                  .box = {8, 8, 8},
                                  .periodic = {1, 1, 1},
                                  .cutoff = 1};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        for (b->culprit = 0; b->culprit < 2; b->culprit++) {
            b->spoil = faults[i].spoil;
            run_box(b, 2);
            for (int r = 0; r < 2; r++) {
                cr_assert_eq(b->status[r], faults[i].expected,
                             "fault %zu of rank %d: rank %d got %s", i, b->culprit, r,
                             b->message[r]);
                cr_assert(strstr(b->message[r], faults[i].says), "fault %zu: %s", i, b->message[r]);
            }
        }
    }
    free(b);
}

Test(brick, null_arguments) {
    lierne_brick *brick;
    lierne_halo_spec swaps = {.size = sizeof swaps};
    cr_assert_eq(lierne_brick_create(&brick, NULL, NULL), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_brick_get_swaps(&swaps, NULL), LIERNE_ERR_INVALID);
    cr_assert_null(lierne_brick_get_ghosts(NULL));
    lierne_brick_destroy(NULL);
}
