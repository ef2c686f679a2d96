#include "unit/layout_case.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <stdlib.h>

lierne_grid *layout_case_grid(int n, const int64_t *sizes, int offset) {
    static const char *const names[LAYOUT_CASE_DIMS] = {"x", "y", "z"};
    lierne_grid *g;
    lierne_grid_spec spec = {.size = sizeof spec,
                             .ndims = n,
                             .names = names,
                             .sizes = sizes,
                             .rank_offset = offset,
                             .world_size = LAYOUT_CASE_WORLD};
    assert_ok(lierne_grid_create(&g, &spec));
    return g;
}

static int coord(const layout_case *t, int rank, int d) {
    for (int e = 0; e < d; e++) {
        rank /= (int)t->sizes[e];
    }
    return rank % (int)t->sizes[d];
}

/* The coordinate that has position k of `total` after the cut of dim d; index: what is there. */
static int owner(const layout_case *t, int d, int total, int k, int index) {
    const lierne_placement *p = &t->placements[d];
    int n = (int)t->sizes[d], c = 0;
    if (p->kind == LIERNE_PLACEMENT_SHARD_ROWS) {
        return p->rows[index];
    }
    if (p->kind == LIERNE_PLACEMENT_SHARD_ZIGZAG) {
        int chunk = n > 1 ? k / (total / (2 * n)) : 0;
        return chunk < n ? chunk : 2 * n - 1 - chunk;
    }
    if (p->counts) {
        for (int64_t end = p->counts[0]; k >= end; end += p->counts[++c]) {
        }
        return c;
    }
    if (p->share == LIERNE_SHARE_RULE_CHUNK) {
        return k / ((total + n - 1) / n);
    }
    int size = total / n, longer = total % n;
    return k < longer * (size + 1) ? k / (size + 1) : longer + (k - longer * (size + 1)) / size;
}

static void keep(const layout_case *t, int d, int rank, layout_indices *list) {
    layout_indices out = {0};
    for (int k = 0; k < list->n; k++) {
        if (owner(t, d, list->n, k, list->at[k]) == coord(t, rank, d)) {
            out.at[out.n++] = list->at[k];
        }
    }
    *list = out;
}

static bool is_cut(lierne_placement_kind kind) {
    return kind == LIERNE_PLACEMENT_SHARD || kind == LIERNE_PLACEMENT_SHARD_ZIGZAG;
}

layout_indices layout_case_part(const layout_case *t, int rank, int axis) {
    layout_indices list = {.n = (int)t->shape[axis]};
    for (int i = 0; i < list.n; i++) {
        list.at[i] = i;
    }
    for (int order = 0; order < 3; order++) {
        for (int d = t->ndims - 1; d >= 0; d--) {
            const lierne_placement *p = &t->placements[d];
            if (is_cut(p->kind) && p->axis == axis && p->cut_order == order) {
                keep(t, d, rank, &list);
            }
        }
    }
    for (int d = 0; d < t->ndims; d++) {
        if (t->placements[d].kind == LIERNE_PLACEMENT_SHARD_ROWS && t->placements[d].axis == axis) {
            keep(t, d, rank, &list);
        }
    }
    return list;
}

bool layout_case_holds(const layout_case *t, int rank) {
    bool all = rank >= 0 && rank < t->nranks;
    for (int d = 0; d < t->ndims && all; d++) {
        all = t->placements[d].kind != LIERNE_PLACEMENT_AT ||
              coord(t, rank, d) == t->placements[d].at;
    }
    return all;
}

int layout_case_any(int n) {
    return rand() % n;
}

/* Counts and zigzag have conditions; they are given to axes that no other dim cuts. */
static bool is_alone(const layout_case *t, int d) {
    for (int e = 0; e < t->ndims; e++) {
        if (e != d && is_cut(t->placements[e].kind) &&
            t->placements[e].axis == t->placements[d].axis) {
            return false;
        }
    }
    return true;
}

static void choose_counts(layout_case *t, int d) {
    int64_t left = t->shape[t->placements[d].axis];
    for (int c = 0; c < t->sizes[d]; c++) {
        t->counts[d][c] = c + 1 < t->sizes[d] ? layout_case_any((int)left + 1) : left;
        left -= t->counts[d][c];
    }
    t->placements[d].counts = t->counts[d];
    t->placements[d].share = LIERNE_SHARE_RULE_BALANCED;
}

static void choose_special(layout_case *t, int d) {
    lierne_placement *p = &t->placements[d];
    if (p->kind == LIERNE_PLACEMENT_SHARD && is_alone(t, d) && layout_case_any(3) == 0) {
        if (t->shape[p->axis] % (2 * t->sizes[d]) == 0 && layout_case_any(2) == 0) {
            p->kind = LIERNE_PLACEMENT_SHARD_ZIGZAG;
        } else {
            choose_counts(t, d);
        }
    }
}

static void choose_placement(layout_case *t, int d) {
    static const lierne_placement_kind kinds[] = {
        LIERNE_PLACEMENT_REPLICATE, LIERNE_PLACEMENT_AT,    LIERNE_PLACEMENT_SHARD_ROWS,
        LIERNE_PLACEMENT_SHARD,     LIERNE_PLACEMENT_SHARD, LIERNE_PLACEMENT_SHARD};
    t->placements[d] = (lierne_placement){.kind = kinds[layout_case_any(6)],
                                          .axis = layout_case_any(t->naxes),
                                          .at = layout_case_any((int)t->sizes[d]),
                                          .axis2 = -1,
                                          .rows = t->rows[d],
                                          .share = (lierne_share_rule)layout_case_any(2),
                                          .cut_order = layout_case_any(3)};
    for (int i = 0; i < LAYOUT_CASE_SIZE; i++) {
        t->rows[d][i] = layout_case_any((int)t->sizes[d]);
    }
}

layout_case layout_case_random(int naxes, const int64_t *shape) {
    layout_case t = {.ndims = 1 + layout_case_any(LAYOUT_CASE_DIMS),
                     .naxes = naxes,
                     .offset = layout_case_any(5),
                     .nranks = 1,
                     .shape = {shape[0], shape[1]},
                     .full = (uint32_t)layout_case_any(1 << naxes)};
    for (int d = 0; d < t.ndims; d++) {
        t.sizes[d] = 1 + layout_case_any(4);
        t.nranks *= (int)t.sizes[d];
    }
    return t;
}

lierne_layout *layout_case_create(layout_case *t) {
    for (int d = 0; d < t->ndims; d++) {
        choose_placement(t, d);
    }
    for (int d = 0; d < t->ndims; d++) {
        choose_special(t, d);
    }
    lierne_layout *l;
    lierne_grid *g = layout_case_grid(t->ndims, t->sizes, t->offset);
    lierne_layout_spec spec = {.size = sizeof spec,
                               .grid = g,
                               .naxes = t->naxes,
                               .shape = t->shape,
                               .dtype = LIERNE_DTYPE_I32,
                               .placements = t->placements,
                               .full_axes = t->full};
    assert_ok(lierne_layout_create(&l, &spec));
    lierne_grid_destroy(g);
    return l;
}
