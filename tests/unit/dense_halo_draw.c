/* Drawing random layouts with halos: see dense_halo_case.h. */
#include "unit/dense_halo_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;

static int64_t draw(int64_t n) { /* xorshift64* */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (int64_t)((state * 0x2545f4914f6cdd1du >> 33) % (uint64_t)n);
}

static void draw_dims(const halo_case *c, halo_side *s) {
    int64_t size = 1;
    s->ndims = (int)draw(HALO_DIMS + 1);
    for (int d = 0; d < s->ndims; d++) {
        int64_t n = 1 + draw(4);
        s->sizes[d] = size * n <= c->world ? n : 1;
        size *= s->sizes[d];
    }
    s->offset = (int)draw(c->world - size + 1);
}

static void draw_placement(const halo_case *c, halo_side *s, int d, bool source) {
    static const lierne_placement_kind kinds[] = {
        LIERNE_PLACEMENT_SHARD,     LIERNE_PLACEMENT_SHARD,        LIERNE_PLACEMENT_SHARD,
        LIERNE_PLACEMENT_SHARD,     LIERNE_PLACEMENT_SHARD_ZIGZAG, LIERNE_PLACEMENT_SHARD_ROWS,
        LIERNE_PLACEMENT_REPLICATE, LIERNE_PLACEMENT_AT,           LIERNE_PLACEMENT_PARTIAL};
    lierne_placement *p = &s->placements[d];
    *p = (lierne_placement){.kind = kinds[draw(source ? 9 : 8)],
                            .axis = (int)draw(c->naxes),
                            .axis2 = -1,
                            .at = (int)draw(s->sizes[d]),
                            .cut_order = (int)draw(2),
                            .share = (lierne_share_rule)draw(2)};
    if (p->kind == LIERNE_PLACEMENT_SHARD && draw(3) == 0) {
        memset(s->counts[d], 0, sizeof s->counts[d]);
        for (int64_t i = 0; i < halo_extent(c, s, p->axis); i++) {
            s->counts[d][draw(s->sizes[d])]++;
        }
        p->counts = s->counts[d];
        p->share = LIERNE_SHARE_RULE_BALANCED;
    }
    for (int64_t i = 0; i < halo_extent(c, s, p->axis); i++) {
        s->rows[d][i] = (int32_t)draw(s->sizes[d]);
    }
    p->rows = s->rows[d];
}

/* Widths: those of many axes stay small. */
static int64_t draw_width(const halo_case *c, int axis) {
    int64_t n = c->shape[axis];
    return draw(4) == 0    ? 0
           : c->naxes == 1 ? draw(2 * n + 3)
           : c->naxes == 2 ? draw(n + 2)
                           : draw(3);
}

/* Documents of any length, some of them empty. */
static void draw_documents(const halo_case *c, halo_side *s, lierne_dense_halo *h) {
    int64_t n = c->shape[h->axis], *at = s->segments[h->axis];
    h->nsegments = 1 + draw(HALO_SEGMENTS);
    h->segments = at;
    at[0] = 0;
    for (int64_t i = 1; i < h->nsegments; i++) {
        int64_t cut = draw(n + 1);
        int64_t k = i;
        for (; k > 1 && at[k - 1] > cut; k--) {
            at[k] = at[k - 1];
        }
        at[k] = cut;
    }
    at[h->nsegments] = n;
}

static void draw_halo(const halo_case *c, halo_side *s, lierne_dense_halo *h) {
    h->boundary = (lierne_boundary)draw(7);
    h->lo = draw_width(c, h->axis);
    h->hi = draw_width(c, h->axis);
    bool cores = s->stencil == LIERNE_STENCIL_STAR || s->storage || !h->boundary;
    if (!cores && draw(6) == 0) {
        int64_t by = draw(h->lo + h->hi + 1);
        h->lo += by;
        h->hi -= by;
    } else if (draw(4) == 0) {
        draw_documents(c, s, h);
    } else if (s->stencil == LIERNE_STENCIL_BOX && !s->storage && draw(3) == 0) {
        h->stride = 1 + draw(3);
        h->outputs = draw(c->shape[h->axis] + 2);
        h->hi -= draw(2) && h->lo + h->hi > 0 ? 1 : 0;
    }
}

static void draw_halos(const halo_case *c, halo_side *s, bool source) {
    s->stencil = (lierne_stencil)(draw(3) == 0);
    s->storage = (lierne_halo_storage)(!source && draw(4) == 0);
    for (int a = 0; a < c->naxes; a++) {
        if (draw(3) && !(s->full_axes >> a & 1)) {
            s->halos[s->nhalos].axis = a;
            draw_halo(c, s, &s->halos[s->nhalos++]);
        }
    }
    s->storage = s->nhalos ? s->storage : LIERNE_HALO_STORAGE_PADDED;
    for (int i = 0; i < s->nhalos / 2 && draw(2); i++) { /* any order of halos */
        lierne_dense_halo first = s->halos[i];
        s->halos[i] = s->halos[s->nhalos - 1 - i];
        s->halos[s->nhalos - 1 - i] = first;
    }
}

/* Windows of the coordinates instead of widths, some of them empty. */
static void draw_windows(const halo_case *c, halo_side *s, lierne_dense_halo *h) {
    int64_t n = c->shape[h->axis];
    int cut = halo_cut(s, h->axis);
    if (cut == -2 || h->stride || h->nsegments || s->storage || s->stencil || draw(4)) {
        return;
    }
    h->lo = h->hi = 0;
    h->starts = s->starts[h->axis];
    h->ends = s->ends[h->axis];
    for (int64_t i = 0; i < (cut < 0 ? 1 : s->sizes[cut]); i++) {
        int64_t out = h->boundary == LIERNE_BOUNDARY_NONE || c->naxes > 2 ? 0 : n;
        int64_t start = draw(n + 2 * out + 1) - out, most = n + out - start;
        s->starts[h->axis][i] = start;
        s->ends[h->axis][i] = start + draw((most < n + 2 ? most : n + 2) + 1);
    }
}

/* Draws until a side is valid; most are. A source has cores. */
static void draw_side(halo_case *c, int side) {
    lierne_layout *layout = NULL;
    halo_side *s = &c->sides[side];
    bool source = side == 0;
    while (!layout) {
        *s = (halo_side){.full_axes = draw(6) ? 0 : (uint32_t)draw(1 << c->naxes)};
        draw_dims(c, s);
        if (!source || c->equal || draw(4) == 0) {
            draw_halos(c, s, source);
        }
        for (int d = 0; d < s->ndims; d++) {
            draw_placement(c, s, d, source && !c->equal);
        }
        for (int i = 0; i < s->nhalos && !source; i++) {
            draw_windows(c, s, &s->halos[i]);
        }
        if (!source || halo_has_cores(s)) {
            halo_layout(&layout, c, side);
        }
    }
    lierne_layout_destroy(layout);
}

static void point_lists(halo_side *s) {
    for (int d = 0; d < s->ndims; d++) {
        s->placements[d].counts = s->placements[d].counts ? s->counts[d] : NULL;
        s->placements[d].rows = s->rows[d];
    }
    for (int i = 0; i < s->nhalos; i++) {
        s->halos[i].segments = s->halos[i].segments ? s->segments[s->halos[i].axis] : NULL;
    }
}

void halo_random(halo_case *c, uint64_t seed) {
    static const int64_t most[] = {HALO_SIZE, 7, 4, 3};
    static const lierne_dtype dtypes[] = {LIERNE_DTYPE_I64,   LIERNE_DTYPE_F32,
                                          LIERNE_DTYPE_F64,   LIERNE_DTYPE_BF16,
                                          LIERNE_DTYPE_F16,   LIERNE_DTYPE_I32,
                                          LIERNE_DTYPE_I8,    LIERNE_DTYPE_U8,
                                          LIERNE_DTYPE_BITS8, LIERNE_DTYPE_BITS32,
                                          LIERNE_DTYPE_BITS64};
    state = mix(seed + 1);
    *c = (halo_case){.world = 1 + (int)draw(HALO_WORLD), .naxes = 1 + (int)draw(LIERNE_MAX_AXES)};
    for (int a = 0; a < c->naxes; a++) {
        c->shape[a] = draw(40) == 0 ? 0 : 1 + draw(most[c->naxes - 1]);
    }
    c->dtype = dtypes[draw(sizeof dtypes / sizeof *dtypes)];
    c->equal = draw(4) == 0;
    draw_side(c, 0);
    if (c->equal) {
        c->sides[1] = c->sides[0];
        point_lists(&c->sides[1]);
    } else {
        draw_side(c, 1);
    }
    for (int d = 0; d < c->sides[0].ndims; d++) {
        bool sums = c->sides[0].placements[d].kind == LIERNE_PLACEMENT_PARTIAL;
        c->dtype = sums && c->dtype >= LIERNE_DTYPE_BITS8 ? LIERNE_DTYPE_BF16 : c->dtype;
    }
}

int halo_redivide(halo_case *c, uint64_t seed) {
    int axis = -1;
    for (int i = 0; i < c->sides[1].nhalos; i++) {
        axis = c->sides[1].halos[i].nsegments ? c->sides[1].halos[i].axis : axis;
    }
    state = mix(seed + 1);
    for (int side = 1; side >= 0 && axis >= 0; side--) {
        halo_side *s = &c->sides[side];
        for (int i = 0; i < s->nhalos; i++) {
            lierne_dense_halo *h = &s->halos[i];
            if (h->axis == axis && h->nsegments && side) {
                draw_documents(c, s, h);
            } else if (h->axis == axis && h->nsegments) {
                memcpy(s->segments[axis], c->sides[1].segments[axis], sizeof *s->segments);
                h->nsegments = halo_of(&c->sides[1], axis)->nsegments;
            }
        }
    }
    return axis;
}

lierne_status halo_layout(lierne_layout **out, const halo_case *c, int side) {
    static const char *const names[HALO_DIMS] = {"x", "y", "z"};
    const halo_side *s = &c->sides[side];
    lierne_grid *grid = NULL;
    const lierne_grid_spec grid_spec = {.size = sizeof grid_spec,
                                        .ndims = s->ndims,
                                        .names = names,
                                        .sizes = s->sizes,
                                        .rank_offset = s->offset,
                                        .world_size = c->world};
    lierne_grid_create(&grid, &grid_spec);
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = c->naxes,
                                     .shape = c->shape,
                                     .dtype = c->dtype,
                                     .placements = s->placements,
                                     .full_axes = s->full_axes,
                                     .nhalos = s->nhalos,
                                     .halos = s->halos,
                                     .stencil = s->stencil,
                                     .halo_storage = s->storage};
    lierne_status status = lierne_layout_create(out, &spec);
    lierne_grid_destroy(grid);
    return status;
}

static int print_side(char *text, size_t size, const halo_side *s) {
    int n = snprintf(text, size, "\n  from rank %d, full %x, %s, %s:", s->offset, s->full_axes,
                     s->stencil ? "star" : "box", s->storage ? "margins" : "padded");
    for (int d = 0; d < s->ndims; d++) {
        const lierne_placement *p = &s->placements[d];
        n += snprintf(text + n, size - (size_t)n, " %d:kind %d axis %d at %d order %d%s",
                      (int)s->sizes[d], (int)p->kind, p->axis, p->at, p->cut_order,
                      p->counts  ? " counts"
                      : p->share ? " chunk"
                                 : "");
    }
    for (int i = 0; i < s->nhalos; i++) {
        const lierne_dense_halo *h = &s->halos[i];
        n += snprintf(text + n, size - (size_t)n, " [axis %d boundary %d lo %d hi %d stride %d %d",
                      h->axis, (int)h->boundary, (int)h->lo, (int)h->hi, (int)h->stride,
                      (int)h->outputs);
        for (int64_t k = 0; k <= h->nsegments && h->nsegments; k++) {
            n += snprintf(text + n, size - (size_t)n, "%s%d", k ? "," : " documents ",
                          (int)h->segments[k]);
        }
        for (int64_t k = 0; h->starts && k < HALO_WORLD; k++) {
            n +=
                snprintf(text + n, size - (size_t)n, " %d..%d", (int)h->starts[k], (int)h->ends[k]);
        }
        n += snprintf(text + n, size - (size_t)n, "]");
    }
    return n;
}

const char *halo_text(const halo_case *c) {
    static char text[2000];
    int n = snprintf(text, sizeof text, "world %d, dtype %d, shape", c->world, (int)c->dtype);
    for (int a = 0; a < c->naxes; a++) {
        n += snprintf(text + n, sizeof text - (size_t)n, " %d", (int)c->shape[a]);
    }
    for (int s = 0; s < 2; s++) {
        n += print_side(text + n, sizeof text - (size_t)n, &c->sides[s]);
    }
    return text;
}
