/* Computes coordinates and shares without the library, on purpose: it takes only the names and
 * sizes of dims from there. For each index it decides whether it belongs to the part, which needs
 * no chunk arithmetic that could be wrong in the same way twice. */
#include "place.h"

#include <string.h>

place_axes place_axes_of(const lierne_bridge_spec *spec) {
    place_axes axes = {.size = {1, 1, 1}, .batch = spec->batch_axis, .sequence = -1};
    int64_t per = spec->rows_per_sample;
    int b = spec->batch_axis;
    if (per == 0) {
        memcpy(axes.size, spec->shape, (size_t)spec->naxes * sizeof *axes.size);
        axes.sequence = spec->sequence_axis;
        return axes;
    }
    bool sequence_first = spec->row_order == LIERNE_ROW_ORDER_SEQUENCE_MAJOR;
    axes.batch = sequence_first ? b + 1 : b;
    axes.sequence = sequence_first ? b : b + 1;
    axes.size[axes.batch] = spec->shape[b] / per;
    axes.size[axes.sequence] = per;
    axes.size[b == 0 ? 2 : 0] = spec->shape[1 - b];
    return axes;
}

static bool owner_is_chunks(const lierne_bridge_spec *spec) {
    return spec->gradient_owner == LIERNE_GRADIENT_OWNER_ZIGZAG ||
           spec->gradient_owner == LIERNE_GRADIENT_OWNER_CONTIGUOUS;
}

/* How a dim cuts; axis -1: not at all. */
static place_cut cut_of(const lierne_bridge_spec *spec, place_side side, bool owned,
                        const char *name, int dim) {
    bool source = side == PLACE_SOURCE;
    const lierne_placement *given = source ? spec->src_placements : spec->dst_placements;
    place_axes axes = place_axes_of(spec);
    if (strcmp(name, "dp") == 0) {
        return (place_cut){.axis = axes.batch,
                           .counts = source ? spec->src_counts : spec->dst_counts};
    }
    if (!source && strcmp(name, "cp") == 0) {
        return (place_cut){.axis = owned && owner_is_chunks(spec) ? axes.sequence : -1,
                           .zigzag = spec->gradient_owner == LIERNE_GRADIENT_OWNER_ZIGZAG};
    }
    if (given && given[dim].kind != LIERNE_PLACEMENT_REPLICATE) {
        return (place_cut){.axis = given[dim].axis,
                           .zigzag = given[dim].kind == LIERNE_PLACEMENT_SHARD_ZIGZAG};
    }
    return (place_cut){.axis = -1};
}

/* Puts a dim into a place; dims come the slowest first. */
static void place_dim(place *p, place_side side, const char *name, place_cut cut) {
    bool stage = strcmp(name, "pp") == 0;
    bool cp = strcmp(name, "cp") == 0;
    if (cp) {
        p->has_cp = true;
        p->cp = cut.mine;
        p->ncp = cut.n;
    }
    if (stage) {
        p->holds = p->holds && cut.mine == (side == PLACE_SOURCE ? cut.n - 1 : 0);
    } else if (cut.axis >= 0) {
        cut.zigzag = cut.zigzag && cut.n > 1;
        p->cuts[p->ncuts++] = cut;
    } else if (!cp || side == PLACE_SOURCE) {
        /* At the destination every cp rank has a contribution, or rows, of its own. */
        p->first = p->first && cut.mine == 0;
    }
}

place place_of(const lierne_bridge_spec *spec, place_side side, bool owned, int rank) {
    const lierne_grid *grid = side == PLACE_SOURCE ? spec->src : spec->dst;
    const char *view = side == PLACE_SOURCE ? spec->src_view : spec->dst_view;
    int stride = lierne_grid_get_size(grid);
    int rest = rank - lierne_grid_get_rank_offset(grid);
    place p = {.holds = rest >= 0 && rest < stride, .first = true, .ncp = 1};
    rest = p.holds ? rest : 0;
    for (int d = lierne_grid_get_ndims(grid, view) - 1; d >= 0; d--) {
        const char *name = lierne_grid_get_dim_name(grid, view, d);
        place_cut cut = cut_of(spec, side, owned, name, d);
        cut.n = lierne_grid_get_dim_size(grid, view, d);
        stride /= cut.n;
        cut.mine = rest / stride;
        rest %= stride;
        place_dim(&p, side, name, cut);
    }
    return p;
}

static void share(const place_cut *cut, int64_t size, int64_t *start, int64_t *length) {
    int64_t each = size / cut->n, rest = size % cut->n; /* the first `rest` have one more */
    if (!cut->counts) {
        *start = each * cut->mine + (cut->mine < rest ? cut->mine : rest);
        *length = each + (cut->mine < rest);
        return;
    }
    *start = 0;
    for (int i = 0; i < cut->mine; i++) {
        *start += cut->counts[i];
    }
    *length = cut->counts[cut->mine];
}

static int64_t keep_part(const place_cut *cut, int64_t *list, int64_t length) {
    int64_t start, size, kept = 0;
    share(cut, length, &start, &size);
    for (int64_t i = 0; i < length; i++) {
        int64_t chunk = cut->zigzag ? i / (length / (2 * cut->n)) : 0;
        bool mine = cut->zigzag ? chunk == cut->mine || chunk == 2 * cut->n - 1 - cut->mine
                                : i >= start && i < start + size;
        list[kept] = list[i];
        kept += mine;
    }
    return kept;
}

int64_t place_keep(const place *p, int axis, int64_t *list, int64_t length) {
    for (int i = 0; i < p->ncuts; i++) {
        if (p->cuts[i].axis == axis) {
            length = keep_part(&p->cuts[i], list, length);
        }
    }
    return p->holds ? length : 0;
}

int64_t place_parts(const place *p, int axis) {
    int64_t parts = 1;
    for (int i = 0; i < p->ncuts; i++) {
        const place_cut *cut = &p->cuts[i];
        parts *= cut->axis == axis ? (cut->zigzag ? 2 : 1) * cut->n : 1;
    }
    return parts;
}

void place_range(const lierne_bridge_spec *spec, place_side side, int rank, int64_t *start,
                 int64_t *length) {
    place p = place_of(spec, side, false, rank);
    place_axes axes = place_axes_of(spec);
    *start = *length = 0;
    for (int i = 0; p.holds && i < p.ncuts; i++) {
        if (p.cuts[i].axis == axes.batch) {
            share(&p.cuts[i], axes.size[axes.batch], start, length);
        }
    }
}

int64_t place_samples(const lierne_bridge_spec *spec, place_side side, int rank) {
    int64_t start, length;
    place_range(spec, side, rank, &start, &length);
    return length;
}
