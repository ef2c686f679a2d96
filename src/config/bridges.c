/* Bridges: from their values in the file to the spec that lierne_plan_create_bridge takes. Values
 * are read here one by one; what must be true between them is in bridge_rules.c. */
#include "config/read.h"

#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static void add_unknown_grid(lierne_reader *r, const lierne_json_node *node) {
    lierne_text hint = {0};
    lierne_config_words names = {0};
    for (size_t i = 0; i < r->config->grids.count; i++) {
        names.at[names.n++] = r->config->grids.at[i].name;
    }
    lierne_config_suggest(&hint, lierne_json_string(node), "grids: ", &names);
    r->failed |= hint.failed;
    lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_GRID_UNKNOWN, node, hint.data ? hint.data : "",
                          "there is no grid %s", lierne_quote(lierne_json_string(node)).text);
    lierne_text_clear(&hint);
}

/* Name of the grid that node names; NULL, with a diagnostic, if there is none. */
static const lierne_config_grid_entry *find_grid(lierne_reader *r, const lierne_json_node *node) {
    for (size_t i = 0; node && i < r->config->grids.count; i++) {
        if (strcmp(r->config->grids.at[i].name, lierne_json_string(node)) == 0) {
            return &r->config->grids.at[i];
        }
    }
    if (node) {
        add_unknown_grid(r, node);
    }
    return NULL;
}

static void read_rows(lierne_reader *r, const lierne_json_node *rows,
                      lierne_config_bridge_entry *bridge) {
    bridge->spec.row_owner = bridge->rows = lierne_config_coordinates(r, rows);
}

static void read_gradient(lierne_reader *r, lierne_config_bridge_nodes *nodes,
                          lierne_config_bridge_entry *bridge) {
    enum { OWNER, STORAGE, ROWS, KEYS };
    static const lierne_config_key keys[KEYS] = {
        [OWNER] = {"owner", LIERNE_JSON_STRING, true},
        [STORAGE] = {"storage", LIERNE_JSON_STRING, false},
        [ROWS] = {"rows", LIERNE_JSON_ARRAY, false},
    };
    /* In the order of the enums. */
    static const char *const owners[] = {"partial", "zigzag", "contiguous", "rows"};
    static const char *const storages[] = {"full", "compact"};
    const lierne_json_node *found[KEYS];
    int word;
    lierne_config_object(r, nodes->gradient, keys, KEYS, found);
    nodes->owner = found[OWNER];
    nodes->storage = found[STORAGE];
    nodes->rows = found[ROWS];
    if (lierne_config_word(r, nodes->owner, owners, COUNT(owners), &word)) {
        bridge->spec.gradient_owner = (lierne_gradient_owner)word;
    } else {
        nodes->owner = NULL; /* the rules must not use an invalid owner */
    }
    if (lierne_config_word(r, nodes->storage, storages, COUNT(storages), &word)) {
        bridge->spec.gradient_storage = (lierne_storage)word;
    }
    if (nodes->rows) {
        read_rows(r, nodes->rows, bridge);
    }
}

static int64_t *read_dp_counts(lierne_reader *r, const lierne_json_node *list) {
    int64_t *counts = NULL;
    int i = 0;
    if (!list || !lierne_reader_ok(r, lierne_alloc(&counts, (size_t)list->count, sizeof *counts))) {
        return NULL;
    }
    for (const lierne_json_node *n = lierne_json_first(list); n; n = lierne_json_next(r->doc, n)) {
        lierne_config_integer(r, n, 0, INT64_MAX, &counts[i++]);
    }
    return counts;
}

static void read_counts(lierne_reader *r, lierne_config_bridge_nodes *nodes,
                        lierne_config_bridge_entry *bridge) {
    static const lierne_config_key keys[] = {
        {"src", LIERNE_JSON_ARRAY, false},
        {"dst", LIERNE_JSON_ARRAY, false},
    };
    lierne_config_object(r, nodes->counts, keys, COUNT(keys), nodes->dp_counts);
    for (int side = 0; side < 2; side++) {
        bridge->counts[side] = read_dp_counts(r, nodes->dp_counts[side]);
    }
    bridge->spec.src_counts = bridge->counts[0];
    bridge->spec.dst_counts = bridge->counts[1];
}

static void add_unknown_view(lierne_reader *r, const lierne_config_grid_entry *grid,
                             const lierne_json_node *node) {
    lierne_text hint = {0};
    lierne_config_words names = {.n = lierne_grid_get_nviews(grid->grid)};
    for (int i = 0; i < names.n; i++) {
        names.at[i] = lierne_grid_get_view_name(grid->grid, i);
    }
    lierne_config_suggest(&hint, lierne_json_string(node),
                          "its views, base for its own dims: ", &names);
    r->failed |= hint.failed;
    lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_VIEW_UNKNOWN, node, hint.data ? hint.data : "",
                          "grid %s has no view %s", lierne_quote(grid->name).text,
                          lierne_quote(lierne_json_string(node)).text);
    lierne_text_clear(&hint);
}

/* The view's name as its grid has it, NULL, with a diagnostic, if the grid has no such view. */
static const char *find_view(lierne_reader *r, const lierne_config_grid_entry *grid,
                             const lierne_json_node *node) {
    for (int i = 0; i < lierne_grid_get_nviews(grid->grid); i++) {
        if (strcmp(lierne_grid_get_view_name(grid->grid, i), lierne_json_string(node)) == 0) {
            return lierne_grid_get_view_name(grid->grid, i);
        }
    }
    add_unknown_view(r, grid, node);
    return NULL;
}

void lierne_config_read_end(lierne_reader *r, const lierne_json_node *node,
                            const lierne_json_node *view, const char **name,
                            const lierne_grid **grid, const char **view_name) {
    const lierne_config_grid_entry *found = find_grid(r, node);
    *name = found ? found->name : NULL;
    *grid = found ? found->grid : NULL;
    if (view && *grid) {
        *view_name = find_view(r, found, view);
        *grid = *view_name ? *grid : NULL;
    }
}

void lierne_config_pair(lierne_reader *r, const lierne_json_node *node,
                        const lierne_json_node *found[2]) {
    static const lierne_config_key pair[] = {{"src", LIERNE_JSON_OBJECT, false},
                                             {"dst", LIERNE_JSON_OBJECT, false}};
    found[0] = found[1] = NULL;
    if (node) {
        lierne_config_object(r, node, pair, 2, found);
    }
}

static void read_ends(lierne_reader *r, const lierne_config_bridge_nodes *nodes,
                      lierne_config_bridge_entry *bridge) {
    lierne_bridge_spec *spec = &bridge->spec;
    lierne_config_read_end(r, nodes->src, nodes->views[0], &bridge->src, &spec->src,
                           &spec->src_view);
    lierne_config_read_end(r, nodes->dst, nodes->views[1], &bridge->dst, &spec->dst,
                           &spec->dst_view);
}

char *lierne_config_bridge_name(lierne_reader *r, const lierne_json_node *node) {
    char *copy = NULL;
    if (!lierne_config_name(r, node, false, LIERNE_CONFIG_FREE_NAME)) {
        return NULL;
    }
    const char *name = lierne_json_string(node);
    if (lierne_config_get_bridge(r->config, name) ||
        lierne_config_get_packed_bridge(r->config, name) ||
        lierne_config_get_packed_move(r->config, name) ||
        lierne_config_get_redistribution(r->config, name)) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_BRIDGE_DUPLICATE, node, "choose another name",
                              "there is a bridge %s already", lierne_quote(name).text);
    }
    lierne_reader_ok(r, lierne_strdup(&copy, name));
    return copy;
}

/* Keys of a bridge. */
enum {
    NAME,
    SRC,
    DST,
    SRC_VIEW,
    DST_VIEW,
    TENSOR,
    BATCH,
    SEQUENCE,
    PLACEMENTS,
    OUTPUT,
    GRADIENT,
    ALGORITHM,
    COUNTS,
    DIVISIBLE,
    MAX_PEERS,
    KEYS
};
static const lierne_config_key keys[KEYS] = {
    [NAME] = {"name", LIERNE_JSON_STRING, true},
    [SRC] = {"src", LIERNE_JSON_STRING, true},
    [DST] = {"dst", LIERNE_JSON_STRING, true},
    [SRC_VIEW] = {"src_view", LIERNE_JSON_STRING, false},
    [DST_VIEW] = {"dst_view", LIERNE_JSON_STRING, false},
    [TENSOR] = {"tensor", LIERNE_JSON_OBJECT, true},
    [BATCH] = {"batch", LIERNE_JSON_STRING, true},
    [SEQUENCE] = {"sequence", LIERNE_JSON_STRING, false},
    [PLACEMENTS] = {"placements", LIERNE_JSON_OBJECT, false},
    [OUTPUT] = {"output", LIERNE_JSON_STRING, false},
    [GRADIENT] = {"gradient", LIERNE_JSON_OBJECT, false},
    [ALGORITHM] = {"algorithm", LIERNE_JSON_STRING, false},
    [COUNTS] = {"counts", LIERNE_JSON_OBJECT, false},
    [DIVISIBLE] = {"require_divisible", LIERNE_JSON_BOOLEAN, false},
    [MAX_PEERS] = {"max_peers", LIERNE_JSON_NUMBER, false},
};
static const char *const algorithms[] = {"direct", "collective", "leader"}; /* 0; as the enum */
static const char *const outputs[] = {"whole", "sharded"};                  /* likewise */

/* Reads all values of a bridge. */
static bool read_values(lierne_reader *r, lierne_config_bridge_nodes *nodes,
                        lierne_config_bridge_entry *bridge) {
    const lierne_json_node *found[KEYS];
    int64_t peers = 0;
    int word;
    if (!lierne_config_object(r, nodes->bridge, keys, KEYS, found)) {
        return false;
    }
    *nodes = (lierne_config_bridge_nodes){.bridge = nodes->bridge,
                                          .name = found[NAME],
                                          .src = found[SRC],
                                          .dst = found[DST],
                                          .views = {found[SRC_VIEW], found[DST_VIEW]},
                                          .tensor = found[TENSOR],
                                          .batch = found[BATCH],
                                          .sequence = found[SEQUENCE],
                                          .output = found[OUTPUT],
                                          .gradient = found[GRADIENT],
                                          .algorithm = found[ALGORITHM],
                                          .counts = found[COUNTS],
                                          .require_divisible = found[DIVISIBLE]};
    bridge->name = lierne_config_bridge_name(r, nodes->name);
    bridge->spec.name = bridge->name;
    read_ends(r, nodes, bridge);
    lierne_config_read_tensor(r, nodes, bridge);
    if (found[PLACEMENTS]) {
        lierne_config_read_placements(r, found[PLACEMENTS], nodes, bridge);
    }
    if (lierne_config_word(r, nodes->output, outputs, COUNT(outputs), &word)) {
        bridge->spec.output = (lierne_bridge_output)word;
    }
    if (nodes->gradient) {
        read_gradient(r, nodes, bridge);
    }
    if (lierne_config_word(r, nodes->algorithm, algorithms, COUNT(algorithms), &word)) {
        bridge->megatron.algorithm = (lierne_megatron_algorithm)word;
    }
    if (nodes->counts) {
        read_counts(r, nodes, bridge);
    }
    bridge->spec.require_divisible = lierne_config_true(nodes->require_divisible);
    lierne_config_integer(r, found[MAX_PEERS], 0, LIERNE_MAX_RANKS, &peers);
    bridge->spec.max_peers = (int)peers;
    return true;
}

static void read_bridge(lierne_reader *r, const lierne_json_node *node) {
    lierne_config_bridge_nodes nodes = {.bridge = node};
    lierne_config_bridge_entry *bridge;
    int errors = r->config->errors;
    if (!lierne_reader_ok(r, lierne_alloc(&bridge, 1, sizeof *bridge))) {
        return;
    }
    bridge->spec.size = sizeof bridge->spec;
    bridge->spec.shape = bridge->shape;
    bridge->megatron.size = sizeof bridge->megatron;
    bridge->megatron.bridge = &bridge->spec;
    if (read_values(r, &nodes, bridge) && !r->failed) {
        lierne_config_check_bridge(r, &nodes, bridge, errors == r->config->errors);
    }
    if (!lierne_reader_ok(r, LIERNE_VEC_PUSH(&r->config->bridges, bridge))) {
        lierne_config_bridge_free(bridge);
    }
}

void lierne_config_each_bridge(lierne_reader *r, const lierne_json_node *bridges, const char *what,
                               void (*read)(lierne_reader *r, const lierne_json_node *node)) {
    if (bridges->count > LIERNE_CONFIG_MAX_BRIDGES) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_LIMIT, bridges, "use several files",
                              "%d %s, must be at most %d", bridges->count, what,
                              LIERNE_CONFIG_MAX_BRIDGES);
        return;
    }
    for (const lierne_json_node *n = lierne_json_first(bridges); n;
         n = lierne_json_next(r->doc, n)) {
        read(r, n);
    }
}

void lierne_config_read_bridges(lierne_reader *r, const lierne_json_node *bridges) {
    lierne_config_each_bridge(r, bridges, "bridges", read_bridge);
}

void lierne_config_bridge_free(lierne_config_bridge_entry *bridge) {
    lierne_mem_free(bridge->counts[0]);
    lierne_mem_free(bridge->counts[1]);
    lierne_mem_free(bridge->rows);
    lierne_mem_free(bridge->name);
    lierne_mem_free(bridge);
}
