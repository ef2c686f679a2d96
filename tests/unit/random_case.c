/* Random bridges: see random_case.h. */
#include "unit/random_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local uint64_t state; /* ranks may be threads */
static int64_t draw(int64_t n) {     /* xorshift64* */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (int64_t)((state * 0x2545f4914f6cdd1du >> 33) % (uint64_t)n);
}

static void shuffle(mesh *g) {
    for (int d = g->ndims - 1; d > 0; d--) {
        int64_t e = draw(d + 1), size = g->sizes[d];
        const char *name = g->names[d];
        g->names[d] = g->names[e];
        g->sizes[d] = g->sizes[e];
        g->names[e] = name;
        g->sizes[e] = size;
    }
}

static mesh random_grid(int world, int dims) {
    static const char *const names[5] = {"tp", "dp", "pp", "cp", "ep"};
    static const int64_t most[5] = {4, 5, 3, 4, 2};
    mesh g = {.ndims = dims};
    int64_t size = 1;
    for (int d = 0; d < g.ndims; d++) {
        int64_t n = 1 + draw(most[d]);
        g.names[d] = names[d];
        g.sizes[d] = size * n <= world ? n : 1;
        size *= g.sizes[d];
    }
    g.offset = (int)draw(world - size + 1);
    shuffle(&g);
    return g;
}

static const int64_t *random_counts(int64_t shares, int64_t batch, int64_t *counts) {
    if (draw(3)) {
        return NULL;
    }
    memset(counts, 0, (size_t)shares * sizeof *counts);
    for (int64_t i = 0; i < batch; i++) {
        counts[draw(shares)]++; /* some shares stay empty */
    }
    return counts;
}

static void random_owner(bridge_case *c, int32_t *rows) {
    int64_t cp = mesh_size(&c->dst, "cp");
    c->storage =
        c->owner == LIERNE_GRADIENT_OWNER_PARTIAL ? LIERNE_STORAGE_FULL : (lierne_storage)draw(2);
    c->output = c->owner == LIERNE_GRADIENT_OWNER_PARTIAL ? LIERNE_BRIDGE_OUTPUT_WHOLE
                                                          : (lierne_bridge_output)draw(2);
    for (int d = 0; d < c->dst.ndims; d++) {
        if (c->dst_placed[d].kind != LIERNE_PLACEMENT_REPLICATE && c->dst_placed[d].axis == 1 &&
            c->owner != LIERNE_GRADIENT_OWNER_PARTIAL && c->owner != LIERNE_GRADIENT_OWNER_ROWS) {
            c->output =
                LIERNE_BRIDGE_OUTPUT_SHARDED; /* else its own rows would not be in its output */
        }
    }
    if (c->owner == LIERNE_GRADIENT_OWNER_ROWS) {
        if (abs(c->axis_b - c->axis_s) != 1) {
            c->storage = LIERNE_STORAGE_FULL;
        }
        for (int64_t i = 0; i < c->batch * c->sequence; i++) {
            rows[i] = (int32_t)draw(cp);
        }
        c->rows = rows;
    }
}

/* Cuts of dims that have no meaning of their own; at most one zigzag of an axis. */
static void random_placements(const mesh *g, int at_source, int zigzag, lierne_placement *p) {
    int zigzags[3] = {0, zigzag, 0};
    for (int d = 0; d < g->ndims; d++) {
        int fixed = strcmp(g->names[d], "dp") == 0 || strcmp(g->names[d], "pp") == 0 ||
                    (!at_source && strcmp(g->names[d], "cp") == 0);
        int axis = 1 + (int)draw(2);
        p[d] = (lierne_placement){.kind = LIERNE_PLACEMENT_REPLICATE};
        if (fixed || draw(2)) {
            continue;
        }
        p[d] = (lierne_placement){.kind = LIERNE_PLACEMENT_SHARD, .axis = axis};
        if (!zigzags[axis] && draw(2)) {
            p[d].kind = LIERNE_PLACEMENT_SHARD_ZIGZAG;
            zigzags[axis] = 1;
        }
    }
}

/* What a zigzag needs of an axis: every slower cut's shares divide by 2n. */
static int64_t divisor(const mesh *g, const lierne_placement *p, int axis,
                       lierne_gradient_owner owner) {
    int64_t need = 1;
    for (int d = 0; d < g->ndims; d++) {
        int zigzag =
            (p[d].kind == LIERNE_PLACEMENT_SHARD_ZIGZAG && p[d].axis == axis) ||
            (owner == LIERNE_GRADIENT_OWNER_ZIGZAG && axis == 1 && strcmp(g->names[d], "cp") == 0);
        if (!zigzag) {
            continue;
        }
        need = 2 * g->sizes[d];
        for (int e = d + 1; e < g->ndims; e++) {
            int owned = (owner == LIERNE_GRADIENT_OWNER_ZIGZAG ||
                         owner == LIERNE_GRADIENT_OWNER_CONTIGUOUS) &&
                        axis == 1 && strcmp(g->names[e], "cp") == 0;
            need *= owned || (p[e].kind != LIERNE_PLACEMENT_REPLICATE && p[e].axis == axis)
                        ? g->sizes[e]
                        : 1;
        }
    }
    return need;
}

static int64_t common(int64_t a, int64_t b) { /* the least common multiple */
    int64_t x = a, y = b;
    while (y) {
        int64_t t = x % y;
        x = y, y = t;
    }
    return a / x * b;
}

static void place(bridge_case *c) {
    int zigzag = c->owner == LIERNE_GRADIENT_OWNER_ZIGZAG;
    int64_t need[3];
    c->placed = 1;
    random_placements(&c->src, 1, 0, c->src_placed);
    random_placements(&c->dst, 0, zigzag, c->dst_placed);
    for (int axis = 1; axis < 3; axis++) {
        need[axis] = common(divisor(&c->src, c->src_placed, axis, LIERNE_GRADIENT_OWNER_PARTIAL),
                            divisor(&c->dst, c->dst_placed, axis, c->owner));
    }
    c->sequence = need[1] > 1 ? need[1] : c->sequence;
    c->hidden = need[2] > 1 ? need[2] : c->hidden;
}

/* A 2-D tensor of rows, its samples' rows together or apart. */
static void flatten(bridge_case *c) {
    memset(c->src_placed, 0, sizeof c->src_placed);
    memset(c->dst_placed, 0, sizeof c->dst_placed);
    c->placed = 0;
    c->axis_b = (int)draw(2);
    c->axis_h = 1 - c->axis_b;
    c->axis_s = -1;
    c->sequence = 2 + draw(5);
    c->row_order = (lierne_row_order)draw(2);
    c->owner = LIERNE_GRADIENT_OWNER_PARTIAL;
    c->storage = LIERNE_STORAGE_FULL;
    c->output = LIERNE_BRIDGE_OUTPUT_WHOLE;
}

static void random_axes(bridge_case *c) {
    int axes[3] = {0, 1, 2};
    for (int a = 2; a > 0; a--) {
        int64_t e = draw(a + 1);
        int keep = axes[a];
        axes[a] = axes[e];
        axes[e] = keep;
    }
    c->axis_b = axes[0];
    c->axis_s = axes[1];
    c->axis_h = axes[2];
}

static void show_grid(const char *side, const mesh *g, const lierne_placement *p) {
    printf("%s from rank %d:", side, g->offset);
    for (int d = 0; d < g->ndims; d++) {
        static const char *const kinds[3] = {"", " shard", " zigzag"};
        printf(" %s%lld%s%.*s", g->names[d], (long long)g->sizes[d], kinds[p[d].kind],
               p[d].kind ? 2 : 0, &" b s h"[2 * p[d].axis]);
    }
    printf("\n");
}

void show_case(const bridge_case *c) {
    printf("world %d, b %lld s %lld h %lld at %d %d %d, owner %d storage %d output %d rows %d\n",
           c->world, (long long)c->batch, (long long)c->sequence, (long long)c->hidden, c->axis_b,
           c->axis_s, c->axis_h, (int)c->owner, (int)c->storage, (int)c->output, (int)c->row_order);
    show_grid("source", &c->src, c->src_placed);
    show_grid("destination", &c->dst, c->dst_placed);
}

void random_case(uint64_t seed, int world, bridge_case *c, case_arrays *arrays) {
    state = seed * 0x9e3779b97f4a7c15u + 1;
    *c = (bridge_case){.world = world,
                       .hidden = 1 + draw(3),
                       .batch = draw(13),
                       .sequence = 1 + draw(7)};
    c->src = random_grid(c->world, 3 + 2 * (int)draw(2));
    c->dst = random_grid(c->world, 5);
    c->dtype = (lierne_dtype)(LIERNE_DTYPE_F64 + draw(8));
    random_axes(c);
    c->owner = (lierne_gradient_owner)draw(4);
    place(c);
    if (draw(8) == 0 && mesh_size(&c->src, "cp") == 1) {
        flatten(c);
    } else {
        random_owner(c, arrays->rows);
    }
    c->src_counts = random_counts(mesh_size(&c->src, "dp"), c->batch, arrays->src_counts);
    c->dst_counts = random_counts(mesh_size(&c->dst, "dp"), c->batch, arrays->dst_counts);
    for (int r = 0; r < c->world; r++) {
        arrays->nodes[r] = r / 3;
    }
    c->nodes = draw(2) ? arrays->nodes : NULL;
}
