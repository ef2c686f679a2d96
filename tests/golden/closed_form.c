/* The values of the golden files' bridges: a formula of the element, and whom the mode lets fill
 * which row. Where an element lies, the tests' model says. */
#include "simulate.h"

#include "bridge_model.h"

#include <stdlib.h>
#include <string.h>

enum { GARBAGE = -1234567 }; /* what a gradient holds in rows that the rank does not own */

int32_t *golden_row_owners(const golden_bridge *bridge) {
    int n = lierne_grid_find_dim_size(bridge->dst, NULL, "cp");
    int32_t *owners = malloc((size_t)(bridge->samples * bridge->length + 1) * sizeof *owners);
    for (int64_t i = 0; owners && i < bridge->samples * bridge->length; i++) {
        int64_t g = i / bridge->length, s = i % bridge->length;
        owners[i] = (int32_t)((3 * g + 5 * s + s / 3) % n);
    }
    return owners;
}

static int place_of(const golden_bridge *bridge, char axis) {
    return (int)(strchr(bridge->order, axis) - bridge->order);
}

/* Who fills a row owns it, also where the library is told of contributions. */
static bridge_case case_of(const golden_bridge *bridge, const int32_t *rows) {
    static const lierne_gradient_owner owners[] = {
        [GOLDEN_ZIGZAG] = LIERNE_GRADIENT_OWNER_ZIGZAG,
        [GOLDEN_CONTIGUOUS] = LIERNE_GRADIENT_OWNER_CONTIGUOUS,
        [GOLDEN_ROWMAP] = LIERNE_GRADIENT_OWNER_ROWS,
        [GOLDEN_DENSE] = LIERNE_GRADIENT_OWNER_PARTIAL,
    };
    return (bridge_case){.world = lierne_grid_get_world_size(bridge->src),
                         .src = mesh_from_grid(bridge->src),
                         .dst = mesh_from_grid(bridge->dst),
                         .batch = bridge->samples,
                         .sequence = bridge->length,
                         .hidden = bridge->width,
                         .axis_b = place_of(bridge, 'b'),
                         .axis_s = place_of(bridge, 's'),
                         .axis_h = place_of(bridge, 'h'),
                         .owner = owners[bridge->mode],
                         .storage = bridge->storage,
                         .rows = rows};
}

/* How often cp coordinate cp counts an element. */
static int64_t weight(const golden_bridge *bridge, const item *e, int cp) {
    return bridge->mode == GOLDEN_DENSE ? cp + 1 : e->owner == cp;
}

/* How often all of them do. */
static int64_t total_weight(const golden_bridge *bridge, int64_t ncp) {
    return bridge->mode == GOLDEN_DENSE ? ncp * (ncp + 1) / 2 : 1;
}

static int64_t value(const golden_bridge *bridge, golden_buffer buffer, const item *e, int cp,
                     int ncp) {
    int64_t gradient = 1000 * (e->b + 1) + 10 * e->s + e->h + 1, m;
    switch (buffer) {
    case GOLDEN_OUTPUT_GRADIENT:
        m = weight(bridge, e, cp);
        return m == 0 && bridge->owner != LIERNE_GRADIENT_OWNER_PARTIAL ? GARBAGE : m * gradient;
    case GOLDEN_INPUT_GRADIENT:
        return total_weight(bridge, ncp) * gradient;
    default:
        return 10000 * e->b + 100 * e->s + e->h;
    }
}

int64_t *golden_values(const golden_bridge *bridge, golden_buffer buffer, int rank, int64_t *n,
                       int64_t *shape) {
    static const case_side sides[] = {[GOLDEN_INPUT] = SIDE_SRC,
                                      [GOLDEN_OUTPUT] = SIDE_DST,
                                      [GOLDEN_OUTPUT_GRADIENT] = SIDE_GRADIENT,
                                      [GOLDEN_INPUT_GRADIENT] = SIDE_SRC};
    int32_t *rows = golden_row_owners(bridge);
    bridge_case c = case_of(bridge, rows);
    int64_t extent[3];
    item *items = case_items(&c, sides[buffer], rank, n, extent);
    int cp = mesh_coord(&c.dst, rank, "cp"), ncp = mesh_size(&c.dst, "cp");
    int64_t *values = malloc((size_t)(*n + 1) * sizeof *values);
    for (int64_t i = 0; values && i < *n; i++) {
        values[i] = value(bridge, buffer, &items[i], cp, ncp);
    }
    shape[c.axis_b] = extent[0];
    shape[c.axis_s] = extent[1];
    shape[c.axis_h] = extent[2];
    free(items);
    free(rows);
    return values;
}
