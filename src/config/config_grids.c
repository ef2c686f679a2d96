/* Grids and their views.
 *
 * The library's own constructors decide what is a valid grid, and return at their first error. So
 * everything that has a place of its own in the file (a size, a name, a dim that is in the order
 * but not in the shape) is checked here first, value by value. What the constructors reject beyond
 * that gets a diagnostic at the rejected value. */
#include "config/read.h"

#include <string.h>

static void add_rejected(lierne_reader *r, lierne_status status, const lierne_json_node *shape,
                         const lierne_json_node *offset) {
    if (status == LIERNE_ERR_OVERSIZED) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_GRID_OVERSIZED, offset ? offset : shape,
                              "shape, rank_offset and world_size must fit together", "%s",
                              lierne_error_text());
    } else if (status == LIERNE_ERR_OVERFLOW) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_GRID_OVERFLOW, shape, "choose smaller sizes",
                              "%s", lierne_error_text());
    } else {
        lierne_diagnostic_add(r, status, shape, "", "%s", lierne_error_text());
    }
}

static void check_heads(lierne_reader *r, const lierne_json_node *node, const lierne_grid *grid) {
    int64_t heads;
    int tp = lierne_grid_find_dim_size(grid, NULL, "tp");
    if (lierne_config_integer(r, node, 1, INT64_MAX, &heads) && tp > 0 && heads % tp) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_HEADS, node,
                              "choose a tp that divides the heads",
                              "%lld heads are not divisible by tp %d", (long long)heads, tp);
    }
}

/* The orders that Megatron-LM uses. */
enum { COMMON = 6 };
static const char *const common_orders[][COMMON] = {
    {"tp", "gtp_remat", "cp", "ep", "dp", "pp"},
    {"tp", "gtp_remat", "cp", "ep", "pp", "dp"},
};

/* Whether dims, from the first on or from the last, stand in one of these orders. Without `all`,
 * dims of size 1 do not count. */
static bool is_common(const lierne_config_dims *dims, bool from_last, bool all) {
    for (size_t i = 0; i < sizeof common_orders / sizeof *common_orders; i++) {
        int place = 0, d = 0;
        for (; d < dims->count && place < COMMON; d++) {
            int dim = from_last ? dims->count - 1 - d : d;
            if (!all && dims->sizes[dim] == 1) {
                continue;
            }
            while (place < COMMON && strcmp(common_orders[i][place], dims->names[dim]) != 0) {
                place++;
            }
        }
        if (place < COMMON) {
            return true;
        }
    }
    return false;
}

/* An order from the slowest dim to the fastest, as torch lists the dims of a mesh: from its end it
 * is one of Megatron-LM's, and from its beginning none. */
static void check_order(lierne_reader *r, const lierne_json_node *order,
                        const lierne_config_dims *dims) {
    lierne_text given = {0}, hint = {0};
    if (is_common(dims, false, false) || !is_common(dims, true, true)) {
        return;
    }
    lierne_text_add(&hint, "list the fastest dim first: ");
    for (int d = 0; d < dims->count; d++) {
        lierne_text_add(&given, d ? ", %s" : "%s", dims->names[d]);
        lierne_text_add(&hint, d ? ", %s" : "%s", dims->names[dims->count - 1 - d]);
    }
    r->failed |= given.failed || hint.failed;
    if (!r->failed) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_ORDER_REVERSED, order, hint.data,
                              "order %s seems to have the slowest dim first, as torch lists them",
                              given.data);
    }
    lierne_text_clear(&given);
    lierne_text_clear(&hint);
}

/* Makes the grid that was read; NULL if it is none. */
static lierne_grid *make_grid(lierne_reader *r, const lierne_json_node *order,
                              const lierne_json_node *shape, const lierne_json_node *offset,
                              int64_t world, const char *name) {
    lierne_config_dims dims;
    lierne_grid *grid = NULL;
    lierne_grid_spec spec = {.size = sizeof spec,
                             .world_size = world,
                             .name = lierne_check_name(name) == LIERNE_OK ? name : NULL};
    bool ok = !offset || lierne_config_integer(r, offset, 0, LIERNE_MAX_RANKS, &spec.rank_offset);
    ok &= lierne_config_read_dims(r, order, shape, &dims);
    if (!ok) {
        return NULL;
    }
    check_order(r, order, &dims);
    spec.ndims = dims.count;
    spec.names = dims.names;
    spec.sizes = dims.sizes;
    lierne_status status = lierne_grid_create(&grid, &spec);
    if (!lierne_reader_ok(r, status) && !r->failed) {
        add_rejected(r, status, shape, offset);
    }
    return grid;
}

static void read_grid(lierne_reader *r, const lierne_json_node *node, int64_t world) {
    enum { ORDER, SHAPE, OFFSET, VIEWS, HEADS, KEYS };
    static const lierne_config_key keys[KEYS] = {
        [ORDER] = {"order", LIERNE_JSON_ARRAY, true},
        [SHAPE] = {"shape", LIERNE_JSON_OBJECT, true},
        [OFFSET] = {"rank_offset", LIERNE_JSON_NUMBER, false},
        [VIEWS] = {"views", LIERNE_JSON_OBJECT, false},
        [HEADS] = {"heads", LIERNE_JSON_NUMBER, false},
    };
    const lierne_json_node *found[KEYS];
    lierne_config_grid_entry entry = {0};
    lierne_config_name(r, node, true, LIERNE_CONFIG_FREE_NAME);
    if (lierne_config_object(r, node, keys, KEYS, found)) {
        entry.grid =
            make_grid(r, found[ORDER], found[SHAPE], found[OFFSET], world, lierne_json_key(node));
    }
    check_heads(r, found[HEADS], entry.grid);
    if (found[VIEWS]) {
        lierne_config_read_views(r, found[VIEWS], entry.grid);
    }
    if (!lierne_reader_ok(r, lierne_strdup(&entry.name, lierne_json_key(node))) ||
        !lierne_reader_ok(r, LIERNE_VEC_PUSH(&r->config->grids, entry))) {
        lierne_mem_free(entry.name);
        lierne_grid_destroy(entry.grid);
    }
}

void lierne_config_read_grids(lierne_reader *r, const lierne_json_node *grids, int64_t world) {
    const lierne_json_node *first = lierne_config_first(r, grids);
    if (!first || grids->count > LIERNE_CONFIG_MAX_GRIDS) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_LIMIT, grids, "use several files for more",
                              "%d grids, must be 1 to %d", first ? grids->count : 0,
                              LIERNE_CONFIG_MAX_GRIDS);
        return;
    }
    for (const lierne_json_node *n = first; n; n = lierne_config_next(r, n)) {
        read_grid(r, n, world);
    }
}
