/* Random redistributions: see redistribute_case.h. */
#include "unit/redistribute_case.h"
#include "base/base.h"

#include "routing.h"

#include <stdio.h>
#include <string.h>

static _Thread_local uint64_t state; /* ranks may be threads */
static int64_t draw(int64_t n) {     /* xorshift64* */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (int64_t)((state * 0x2545f4914f6cdd1du >> 33) % (uint64_t)n);
}

static void random_counts(int64_t *counts, int64_t n, int64_t size) {
    memset(counts, 0, (size_t)n * sizeof *counts);
    for (int64_t i = 0; i < size; i++) {
        counts[draw(n)]++; /* some shares stay empty */
    }
}

static void random_placement(const redistribute_case *c, case_layout *l, int d, int partial) {
    lierne_placement *p = &l->placements[d];
    p->kind = (lierne_placement_kind)draw(6);
    p->axis = (int)draw(c->naxes);
    p->at = (int)draw(l->sizes[d]);
    if (p->kind == LIERNE_PLACEMENT_PARTIAL && !partial) {
        p->kind = LIERNE_PLACEMENT_REPLICATE;
    }
    if (p->kind == LIERNE_PLACEMENT_SHARD && draw(2)) {
        random_counts(l->counts[d], l->sizes[d], c->shape[p->axis]);
        p->counts = l->counts[d];
    }
    if (p->kind == LIERNE_PLACEMENT_SHARD_ROWS) {
        if (c->naxes < 2) {
            p->kind = LIERNE_PLACEMENT_SHARD;
            return;
        }
        p->axis2 = p->axis ? p->axis - 1 : 1;
        for (int64_t i = 0; i < c->shape[p->axis] * c->shape[p->axis2]; i++) {
            l->rows[i] = (int32_t)draw(l->sizes[d]);
        }
        p->rows = l->rows;
    }
}

lierne_grid *redistribute_grid(const redistribute_case *c, int which) {
    const case_layout *l = &c->layouts[which];
    static const char *const names[CASE_DIMS] = {"x", "node", "ep", "z"};
    static const char *const base[1] = {"all"};
    int64_t size = 1;
    for (int d = 0; d < l->ndims; d++) {
        size *= l->sizes[d];
    }
    const lierne_grid_spec spec = {.size = sizeof spec,
                                   .ndims = l->in_view ? 1 : l->ndims,
                                   .names = l->in_view ? base : names,
                                   .sizes = l->in_view ? &size : l->sizes,
                                   .rank_offset = l->offset,
                                   .world_size = c->world};
    const lierne_view_spec view = {
        .size = sizeof view, .name = "other", .ndims = l->ndims, .names = names, .sizes = l->sizes};
    lierne_grid *grid = NULL;
    lierne_grid_create(&grid, &spec);
    if (grid && l->in_view) {
        lierne_grid_add_view(grid, &view);
    }
    return grid;
}

lierne_layout *redistribute_layout(const redistribute_case *c, int which) {
    const case_layout *l = &c->layouts[which];
    lierne_placement placements[CASE_DIMS];
    lierne_grid *grid = redistribute_grid(c, which);
    lierne_layout *layout = NULL;
    for (int d = 0; d < l->ndims; d++) { /* a case may have been copied */
        placements[d] = l->placements[d];
        placements[d].counts = placements[d].counts ? l->counts[d] : NULL;
        placements[d].rows = placements[d].rows ? l->rows : NULL;
    }
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .view = l->in_view ? "other" : NULL,
                                     .naxes = c->naxes,
                                     .shape = c->shape,
                                     .dtype = c->dtype,
                                     .placements = placements,
                                     .full_axes = l->full_axes};
    lierne_layout_create(&layout, &spec);
    lierne_grid_destroy(grid);
    return layout;
}

static void random_dims(const redistribute_case *c, case_layout *l) {
    int64_t size = 1;
    *l = (case_layout){.ndims = (int)draw(CASE_DIMS + 1), .in_view = (int)draw(2)};
    for (int d = 0; d < l->ndims; d++) {
        int64_t n = 1 + draw(4);
        l->sizes[d] = size * n <= c->world ? n : 1;
        size *= l->sizes[d];
    }
    l->offset = (int)draw(c->world - size + 1);
}

/* Draws placements until they make a layout; most do. */
static void random_layout(redistribute_case *c, int which, int partial) {
    case_layout *l = &c->layouts[which];
    lierne_layout *layout = NULL;
    while (!layout) {
        random_dims(c, l);
        l->full_axes = draw(3) ? 0 : (uint32_t)draw(1 << c->naxes);
        for (int d = 0; d < l->ndims; d++) {
            random_placement(c, l, d, partial);
        }
        layout = redistribute_layout(c, which);
    }
    lierne_layout_destroy(layout);
}

void random_redistribute(redistribute_case *c, uint64_t seed, int world) {
    static const int64_t sizes[] = {4, 8, 2, 3, 5, 1, 6, 0};
    state = seed * 0x9e3779b97f4a7c15u + 1;
    draw(2);
    memset(c, 0, sizeof *c);
    c->world = world;
    c->naxes = 1 + (int)draw(LIERNE_MAX_AXES);
    for (int a = 0; a < c->naxes; a++) {
        c->shape[a] = sizes[draw(draw(20) ? 7 : 8)];
    }
    c->dtype = draw(2) ? LIERNE_DTYPE_I64 : LIERNE_DTYPE_F32;
    c->stated_adjoint = draw(3) == 0;
    random_layout(c, CASE_SRC, 1);
    random_layout(c, CASE_DST, 0);
    if (c->stated_adjoint) {
        random_layout(c, CASE_ADJOINT_SRC, 1);
        random_layout(c, CASE_ADJOINT_DST, 0);
    }
}

void random_tensor(redistribute_case *c, uint64_t seed, int world, int naxes,
                   const int64_t *shape) {
    state = seed * 0x9e3779b97f4a7c15u + 1;
    draw(2);
    *c = (redistribute_case){.world = world, .naxes = naxes, .dtype = LIERNE_DTYPE_I64};
    memcpy(c->shape, shape, (size_t)naxes * sizeof *shape);
    random_layout(c, CASE_SRC, 0);
}

const char *redistribute_text(const redistribute_case *c) {
    static char text[2000];
    int n = snprintf(text, sizeof text, "world %d, shape", c->world);
    for (int a = 0; a < c->naxes; a++) {
        n += snprintf(text + n, sizeof text - (size_t)n, " %d", (int)c->shape[a]);
    }
    for (int i = 0; i < (c->stated_adjoint ? 4 : 2); i++) {
        const case_layout *l = &c->layouts[i];
        n += snprintf(text + n, sizeof text - (size_t)n, "\n  from rank %d, full %x:", l->offset,
                      l->full_axes);
        for (int d = 0; d < l->ndims; d++) {
            const lierne_placement *p = &l->placements[d];
            n += snprintf(text + n, sizeof text - (size_t)n, " %d:kind %d axis %d at %d%s",
                          (int)l->sizes[d], (int)p->kind, p->axis, p->at,
                          p->counts ? " counts" : "");
        }
    }
    return text;
}

lierne_status redistribute_plan(lierne_plan **plan, const redistribute_case *c,
                                lierne_context *context) {
    lierne_layout *l[CASE_LAYOUTS] = {NULL};
    for (int i = 0; i < (c->stated_adjoint ? 4 : 2); i++) {
        l[i] = redistribute_layout(c, i);
    }
    const lierne_routing routing = c->routing   ? c->routing
                                   : c->sharing ? LIERNE_ROUTING_DIRECT
                                                : test_routing();
    const lierne_redistribute_spec spec = {.size = sizeof spec,
                                           .src = l[CASE_SRC],
                                           .dst = l[CASE_DST],
                                           .adjoint_src = l[CASE_ADJOINT_SRC],
                                           .adjoint_dst = l[CASE_ADJOINT_DST],
                                           .shared_output = c->sharing,
                                           .routing = routing,
                                           .max_peers = c->max_peers};
    lierne_status status = lierne_plan_create_redistribute(plan, context, &spec);
    for (int i = 0; i < CASE_LAYOUTS; i++) {
        lierne_layout_destroy(l[i]);
    }
    return status;
}
