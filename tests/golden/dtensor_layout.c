/* dtensor.json, cases: lierne's layouts against the parts that torch gives every rank. */
#include "dtensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Who owns each index of the axis that mesh dim d shards: its coordinate of the rank that has it.
 */
static int32_t *map_of(const golden_dtensor *t, int d) {
    int32_t *rows = golden_alloc(t->shape[t->shards[d].axis], sizeof *rows);
    int64_t faster = 1;
    for (int e = d + 1; e < t->ndims; e++) {
        faster *= t->mesh[e];
    }
    for (int r = 0; r < t->nranks; r++) {
        golden_indices parts[LIERNE_MAX_AXES];
        golden_dtensor_parts(t, r, parts);
        const golden_indices *own = &parts[t->shards[d].axis];
        for (int64_t i = 0; i < own->n; i++) {
            rows[own->at[i]] = (int32_t)(r / faster % t->mesh[d]);
        }
        golden_indices_free(parts, t->naxes);
    }
    return rows;
}

/* The placement of mesh dim d. *rows is to be freed. */
static lierne_placement place(const golden_dtensor *t, int d, golden_statement statement,
                              int32_t **rows) {
    const golden_shard *s = &t->shards[d];
    *rows = NULL;
    if (s->axis < 0) {
        return (lierne_placement){.kind = LIERNE_PLACEMENT_REPLICATE};
    }
    if (statement == GOLDEN_AS_CUTS) {
        return (lierne_placement){.kind = LIERNE_PLACEMENT_SHARD,
                                  .axis = s->axis,
                                  .share = LIERNE_SHARE_RULE_CHUNK,
                                  .cut_order = s->factor > 0};
    }
    *rows = map_of(t, d);
    return (lierne_placement){.kind = LIERNE_PLACEMENT_SHARD_ROWS,
                              .axis = s->axis,
                              .axis2 = -1,
                              .rows = *rows};
}

/* The mesh, its slowest dim last. */
static lierne_grid *mesh_grid(golden_case *c, const golden_dtensor *t, int64_t world) {
    char text[GOLDEN_MAX_DIMS][16];
    const char *names[GOLDEN_MAX_DIMS];
    int64_t sizes[GOLDEN_MAX_DIMS];
    lierne_grid *grid = NULL;
    lierne_grid_spec spec = {.size = sizeof spec,
                             .ndims = t->ndims,
                             .names = names,
                             .sizes = sizes,
                             .rank_offset = t->offset,
                             .world_size = world};
    for (int d = 0; d < t->ndims; d++) {
        snprintf(text[d], sizeof text[d], "mesh%d", t->ndims - 1 - d);
        names[d] = text[d];
        sizes[d] = t->mesh[t->ndims - 1 - d];
    }
    golden_expect_status(c, "lierne_grid_create", lierne_grid_create(&grid, &spec), LIERNE_OK);
    return grid;
}

lierne_layout *golden_dtensor_layout(golden_case *c, const golden_dtensor *t,
                                     golden_statement statement, int64_t world,
                                     lierne_dtype dtype) {
    lierne_placement placements[GOLDEN_MAX_DIMS];
    int32_t *rows[GOLDEN_MAX_DIMS];
    lierne_grid *grid = mesh_grid(c, t, world);
    lierne_layout *layout = NULL;
    lierne_layout_spec spec = {.size = sizeof spec,
                               .grid = grid,
                               .naxes = t->naxes,
                               .shape = t->shape,
                               .dtype = dtype,
                               .placements = placements};
    for (int d = 0; d < t->ndims; d++) {
        placements[t->ndims - 1 - d] = place(t, d, statement, &rows[d]);
    }
    if (grid) {
        lierne_status status = lierne_layout_create(&layout, &spec);
        golden_expect_status(c, "lierne_layout_create", status, LIERNE_OK);
    }
    /* A layout needs nothing of what it was made from. */
    lierne_grid_destroy(grid);
    for (int d = 0; d < t->ndims; d++) {
        free(rows[d]);
    }
    return layout;
}

/* Writes the global numbers of a box to where they are in the buffer. */
static void fill_box(const golden_dtensor *t, const lierne_box *box, const int64_t *local_shape,
                     int64_t *buffer) {
    int64_t n = 1;
    for (int a = 0; a < t->naxes; a++) {
        n *= box->size[a];
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, number = 0, below = 1, at = 0, local_below = 1;
        for (int a = t->naxes - 1; a >= 0; a--) {
            int64_t index = rest % box->size[a];
            number += (box->start[a] + index) * below;
            at += (box->local[a] + index) * local_below;
            rest /= box->size[a];
            below *= t->shape[a];
            local_below *= local_shape[a];
        }
        buffer[at] = number;
    }
}

/* The numbers that a rank's buffer holds by the layout's boxes; -1 where no box is. */
static int64_t *numbers_of(golden_case *c, const golden_dtensor *t, const lierne_layout *layout,
                           int rank, const int64_t *shape, int64_t n) {
    size_t count = 0;
    int64_t *buffer = golden_alloc(n, sizeof *buffer);
    memset(buffer, 0xff, (size_t)n * sizeof *buffer);
    lierne_status status = lierne_layout_get_boxes(NULL, 0, &count, layout, rank);
    golden_expect_status(c, "lierne_layout_get_boxes", status, LIERNE_OK);
    lierne_box *boxes = golden_alloc((int64_t)count, sizeof *boxes);
    status = lierne_layout_get_boxes(boxes, count, &count, layout, rank);
    golden_expect_status(c, "lierne_layout_get_boxes", status, LIERNE_OK);
    for (size_t b = 0; b < count; b++) {
        fill_box(t, &boxes[b], shape, buffer);
    }
    free(boxes);
    return buffer;
}

static void expect_rank(golden_case *c, const golden_dtensor *t, const lierne_layout *layout,
                        int rank) {
    golden_indices parts[LIERNE_MAX_AXES];
    int64_t shape[LIERNE_MAX_AXES] = {0}, n, stored = -1, owned = -1;
    golden_dtensor_parts(t, rank, parts);
    int64_t *wanted = golden_dtensor_numbers(t, parts, &n);
    lierne_status status = lierne_layout_get_shape(shape, layout, t->offset + rank);
    golden_expect_status(c, "lierne_layout_get_shape", status, LIERNE_OK);
    status = lierne_layout_get_elements(&stored, &owned, layout, t->offset + rank);
    golden_expect_status(c, "lierne_layout_get_elements", status, LIERNE_OK);
    golden_expect(c, stored == n && owned == n, "rank %d stores %lld and owns %lld, must be %lld",
                  rank, (long long)stored, (long long)owned, (long long)n);
    for (int a = 0; a < t->naxes; a++) {
        golden_expect(c, shape[a] == parts[a].n, "rank %d has %lld of axis %d, must be %lld", rank,
                      (long long)shape[a], a, (long long)parts[a].n);
    }
    if (!c->failed) {
        int64_t *got = numbers_of(c, t, layout, t->offset + rank, shape, n);
        golden_expect(c, memcmp(got, wanted, (size_t)n * sizeof *got) == 0,
                      "rank %d holds other elements", rank);
        free(got);
    }
    free(wanted);
    golden_indices_free(parts, t->naxes);
}

void golden_layout_expect(golden_case *c, const golden_dtensor *t, const lierne_layout *layout) {
    for (int r = 0; layout && r < t->nranks; r++) {
        expect_rank(c, t, layout, r);
    }
}

/* A layout stated one way. */
static void try_statement(golden_case *c, const golden_dtensor *t, golden_statement statement) {
    golden_case one = {.item = c->item};
    lierne_layout *layout = golden_dtensor_layout(&one, t, statement, t->nranks, LIERNE_DTYPE_F32);
    golden_layout_expect(&one, t, layout);
    lierne_layout_destroy(layout);
    golden_expect(c, !one.failed, "%s: %s", statement == GOLDEN_AS_CUTS ? "as cuts" : "by index",
                  one.why);
}

void golden_dtensor_case(golden_case *c) {
    golden_dtensor t;
    if (!golden_dtensor_read(c, &t, golden_get(c->item, "shape"), c->item)) {
        return;
    }
    golden_dtensor_expect(c, &t, golden_get(c->item, "expect"));
    if (golden_dtensor_is_nested(&t)) {
        try_statement(c, &t, GOLDEN_AS_CUTS);
    }
    try_statement(c, &t, GOLDEN_BY_INDEX);
}
