/* The closed form of a bridge: which samples a rank holds, and the value of each element of a
 * buffer. Coordinates are computed here, without the library: the last dim is the slowest. */
#include "simulate.h"

#include <stdlib.h>
#include <string.h>

enum { GARBAGE = -1234567 }; /* what a gradient holds in rows that the rank does not own */

/* What a rank holds on a side of the bridge. */
typedef struct held {
    bool holds;
    int64_t first; /* sample */
    int64_t count;
    int cp;
    int ncp;
} held;

static int coordinate(const lierne_grid *grid, const char *name, int rank, int *size) {
    int rest = rank - lierne_grid_get_offset(grid), found = 0;
    *size = 1;
    for (int d = 0; d < lierne_grid_get_ndims(grid, NULL); d++) {
        int n = lierne_grid_get_dim_size(grid, NULL, d);
        if (strcmp(lierne_grid_get_dim_name(grid, NULL, d), name) == 0) {
            found = rest % n;
            *size = n;
        }
        rest /= n;
    }
    return found;
}

static held held_by(const golden_bridge *bridge, bool at_source, int rank) {
    const lierne_grid *grid = at_source ? bridge->src : bridge->dst;
    int offset = lierne_grid_get_offset(grid), ndp, npp;
    held l = {.ncp = 1};
    if (rank < offset || rank >= offset + lierne_grid_get_size(grid)) {
        return l;
    }
    int dp = coordinate(grid, "dp", rank, &ndp), pp = coordinate(grid, "pp", rank, &npp);
    int64_t share = bridge->samples / ndp, more = bridge->samples % ndp;
    l.holds = pp == (at_source ? npp - 1 : 0);
    l.first = dp * share + (dp < more ? dp : more);
    l.count = share + (dp < more);
    l.cp = coordinate(grid, "cp", rank, &l.ncp);
    return l;
}

/* How often cp coordinate l->cp counts the row of sample g and position s. */
static int64_t weight(const golden_bridge *bridge, const held *l, int64_t g, int64_t s) {
    int64_t n = l->ncp;
    if (bridge->mode == GOLDEN_DENSE) {
        return l->cp + 1;
    }
    if (bridge->mode == GOLDEN_ROWMAP) {
        return (3 * g + 5 * s + s / 3) % n == l->cp;
    }
    if (n == 1) {
        return 1;
    }
    int64_t chunk = s / (bridge->length / (bridge->mode == GOLDEN_ZIGZAG ? 2 * n : n));
    return chunk == l->cp || (bridge->mode == GOLDEN_ZIGZAG && chunk == 2 * n - 1 - l->cp);
}

/* Sum of the weights over all cp coordinates of the destination. */
static int64_t total_weight(const golden_bridge *bridge) {
    int64_t n = lierne_grid_find_dim_size(bridge->dst, NULL, "cp");
    return bridge->mode == GOLDEN_DENSE ? n * (n + 1) / 2 : 1;
}

static int64_t gradient(int64_t g, int64_t s, int64_t h) {
    return 1000 * (g + 1) + 10 * s + h + 1;
}

static int64_t value(const golden_bridge *bridge, golden_buffer buffer, const held *l, int64_t g,
                     int64_t s, int64_t h) {
    switch (buffer) {
    case GOLDEN_OUTPUT_GRADIENT: {
        int64_t m = weight(bridge, l, g, s);
        bool unread = m == 0 && bridge->owner != LIERNE_GRADIENT_PARTIAL;
        return unread ? GARBAGE : m * gradient(g, s, h);
    }
    case GOLDEN_INPUT_GRADIENT:
        return total_weight(bridge) * gradient(g, s, h);
    default:
        return 10000 * g + 100 * s + h;
    }
}

static int64_t axis_size(const golden_bridge *bridge, const held *l, char axis) {
    return axis == 'b' ? l->count : axis == 's' ? bridge->length : bridge->width;
}

static bool has_cp(const lierne_grid *grid) {
    bool found = false;
    for (int d = 0; d < lierne_grid_get_ndims(grid, NULL); d++) {
        found = found || strcmp(lierne_grid_get_dim_name(grid, NULL, d), "cp") == 0;
    }
    return found;
}

/* Compact rows are in the order of (sample, position), whichever axis is the slower one. Without a
 * cp dim there is nobody to leave rows to, and the tensor stays as it is. */
static bool rows_are_compact(const golden_bridge *bridge, golden_buffer buffer) {
    return buffer == GOLDEN_OUTPUT_GRADIENT && bridge->storage == LIERNE_COMPACT &&
           bridge->owner == LIERNE_GRADIENT_ROWS && has_cp(bridge->dst);
}

/* Shape of a buffer of n elements whose axes are in this order. */
static void shape_of(const golden_bridge *bridge, golden_buffer buffer, const held *l,
                     const char *order, int64_t n, int64_t *shape) {
    int64_t positions = bridge->length;
    if (buffer == GOLDEN_OUTPUT_GRADIENT && bridge->storage == LIERNE_COMPACT) {
        positions = 0;
        for (int64_t s = 0; s < bridge->length; s++) {
            positions += weight(bridge, l, 0, s) != 0;
        }
    }
    for (int a = 0; a < 3; a++) {
        int64_t size = order[a] == 's' ? positions : axis_size(bridge, l, order[a]);
        shape[a] = l->holds ? size : 0;
    }
    if (l->holds && rows_are_compact(bridge, buffer)) {
        int first = order[0] == 'h';
        shape[first] = n / bridge->width;
        shape[first + 1] = 1;
    }
}

int64_t *golden_values(const golden_bridge *bridge, golden_buffer buffer, int rank, int64_t *n,
                       int64_t *shape) {
    bool at_source = buffer == GOLDEN_INPUT || buffer == GOLDEN_INPUT_GRADIENT;
    bool compact = buffer == GOLDEN_OUTPUT_GRADIENT && bridge->storage == LIERNE_COMPACT;
    const char *order = !rows_are_compact(bridge, buffer) ? bridge->order
                        : bridge->order[0] == 'h'         ? "hbs"
                                                          : "bsh";
    held l = held_by(bridge, at_source, rank);
    int64_t all = l.holds ? l.count * bridge->length * bridge->width : 0;
    int64_t *values = malloc((size_t)(all + 1) * sizeof *values);
    *n = 0;
    for (int64_t i = 0; values && i < all; i++) {
        int64_t rest = i, b = 0, s = 0, h = 0;
        for (int a = 2; a >= 0; a--) {
            int64_t *at = order[a] == 'b' ? &b : order[a] == 's' ? &s : &h;
            int64_t size = axis_size(bridge, &l, order[a]);
            *at = rest % size;
            rest /= size;
        }
        if (!compact || weight(bridge, &l, l.first + b, s) != 0) {
            values[(*n)++] = value(bridge, buffer, &l, l.first + b, s, h);
        }
    }
    shape_of(bridge, buffer, &l, order, *n, shape);
    return values;
}
