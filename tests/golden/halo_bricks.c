/* The swaps that lierne makes from positions are those of the file; and ghosts are at their row's
 * position, moved by whole boxes across periodic borders, within the cutoff of the brick. */
#include "halo_case.h"

#include <math.h>
#include <stdlib.h>

/* The box, the brick of a rank and what there is of it. */
typedef struct space {
    lierne_brick_spec spec;
    double *borders[3]; /* fractions; NULL: equal bricks */
    double *positions;  /* of all rows */
    int64_t npositions;
    double *own; /* of the rank's rows */
} space;

static void read_three(const cJSON *list, double *to) {
    int64_t n;
    double *values = golden_read_values(list, &n);
    for (int64_t d = 0; d < n && d < 3; d++) {
        to[d] = values[d];
    }
    free(values);
}

static space read_space(const cJSON *item, const golden_halo_case *halo, int rank) {
    space s = {.spec = {.size = sizeof s.spec, .nlocal = halo->before[rank].nlocal}};
    double grid[3] = {0}, periodic[3] = {0};
    int64_t n;
    read_three(golden_get(item, "grid"), grid);
    read_three(golden_get(item, "periodic"), periodic);
    read_three(golden_get(item, "box"), s.spec.box);
    s.spec.cutoff = golden_to_double(golden_get(item, "cutoff"));
    s.spec.dims = (int)golden_int(item, "dim", 0);
    for (int d = 0; d < 3; d++) {
        const cJSON *borders = cJSON_GetArrayItem(golden_get(item, "splits"), d);
        s.spec.grid[d] = (int)grid[d];
        s.spec.periodic[d] = (int)periodic[d];
        s.borders[d] = cJSON_IsArray(borders) ? golden_read_values(borders, &n) : NULL;
        s.spec.splits[d] = s.borders[d];
    }
    s.positions = golden_read_values(golden_get(item, "pos"), &s.npositions);
    s.own = golden_alloc(3 * s.spec.nlocal, sizeof *s.own);
    for (int64_t i = 0; i < 3 * s.spec.nlocal; i++) {
        s.own[i] = s.positions[3 * halo->gid_before[rank][i / 3] + i % 3];
    }
    s.spec.positions = s.own;
    return s;
}

static void free_space(space *s) {
    for (int d = 0; d < 3; d++) {
        free(s->borders[d]);
    }
    free(s->positions);
    free(s->own);
}

/* Lower (side 0) or upper border of a rank's brick. */
static double border(const space *s, int rank, int axis, int side) {
    const int *grid = s->spec.grid;
    int cells[3] = {rank / grid[2] / grid[1], rank / grid[2] % grid[1], rank % grid[2]};
    int at = cells[axis] + side;
    double fraction = s->borders[axis] ? s->borders[axis][at] : (double)at / grid[axis];
    return fraction * s->spec.box[axis];
}

static void expect_ghost(golden_case *c, const space *s, int rank, const double *ghost,
                         const double *row, int64_t k) {
    const double slack = 1e-9;
    for (int d = 0; d < 3; d++) {
        double moved = (ghost[d] - row[d]) / s->spec.box[d];
        bool swapped = d < 2 || s->spec.dims != 2;
        golden_expect(c, fabs(moved - round(moved)) < slack, "ghost %lld is no image: %g boxes off",
                      (long long)k, moved);
        golden_expect(c, (s->spec.periodic[d] && swapped) || fabs(moved) < slack,
                      "ghost %lld moved along axis %d", (long long)k, d);
        golden_expect(c,
                      !swapped || (ghost[d] >= border(s, rank, d, 0) - s->spec.cutoff - slack &&
                                   ghost[d] <= border(s, rank, d, 1) + s->spec.cutoff + slack),
                      "ghost %lld is at %g on axis %d, too far", (long long)k, ghost[d], d);
    }
}

static void expect_ghosts(golden_case *c, const space *s, const lierne_brick *brick,
                          const golden_halo_case *halo, int rank) {
    const double *ghosts = lierne_brick_get_ghosts(brick);
    const golden_swaps *swaps = &halo->before[rank];
    golden_expect(c, (ghosts != NULL) == (swaps->nghost > 0), "positions of %lld ghosts are %s",
                  (long long)swaps->nghost, ghosts ? "there" : "missing");
    for (int64_t k = 0; ghosts && k < swaps->nghost; k++) {
        int64_t gid = halo->gid_before[rank][swaps->nlocal + k];
        expect_ghost(c, s, rank, ghosts + 3 * k, s->positions + 3 * gid, k);
    }
}

/* A plan of the brick's swaps outlives the brick. */
static void expect_plan(golden_case *c, lierne_context *context, lierne_brick *brick,
                        lierne_halo_spec *spec, const golden_halo_case *halo) {
    golden_type type = {LIERNE_DTYPE_F32, GOLDEN_HALO_WIDTH, GOLDEN_HALO_WIDTH + 1};
    bool same = !halo->phantom && !halo->drops && !halo->inexact;
    lierne_plan *plan = NULL;
    spec->dtype = type.dtype;
    spec->width = type.width;
    spec->stride = type.stride;
    lierne_status status = lierne_plan_create_halo(&plan, context, spec);
    lierne_brick_destroy(brick);
    if (golden_expect_status(c, "plan of a brick", status, LIERNE_OK) && same) {
        golden_row_case row_case = golden_halo_duty(halo, lierne_context_get_rank(context), type);
        golden_row_case_expect(c, "plan of a brick", plan, &row_case);
        golden_row_case_free(&row_case);
    }
    golden_expect_status(c, "lierne_plan_destroy", lierne_plan_destroy(plan), LIERNE_OK);
}

void golden_halo_bricks(golden_case *c, lierne_context *context, const golden_halo_case *halo) {
    int rank = lierne_context_get_rank(context);
    lierne_brick *brick = NULL;
    lierne_halo_spec spec = {.size = sizeof spec};
    if (!golden_get(c->item, "grid")) {
        return;
    }
    space s = read_space(c->item, halo, rank);
    lierne_status status = lierne_brick_create(&brick, context, &s.spec);
    if (golden_expect_status(c, "lierne_brick_create", status, LIERNE_OK)) {
        status = lierne_brick_get_swaps(&spec, brick);
        golden_expect_status(c, "lierne_brick_get_swaps", status, LIERNE_OK);
        golden_swaps_expect(c, "swaps of a brick", &spec, &halo->before[rank]);
        expect_ghosts(c, &s, brick, halo, rank);
        expect_plan(c, context, brick, &spec, halo);
    }
    free_space(&s);
}
