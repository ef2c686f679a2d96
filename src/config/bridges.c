/* Bridges: from their values in the file to the spec that lierne_plan_bridge takes. Values are
 * read here one by one; what must be true between them is in bridge_rules.c. */
#include "config/read.h"

#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static const char *const axis_words[] = {"b", "s", "h"};

/* Name of the grid that node names; NULL, with a finding, if there is none. */
static const lierne_config_grid_entry *find_grid(lierne_reader *r, const lierne_json_node *node) {
    for (size_t i = 0; node && i < r->config->grids.count; i++) {
        if (strcmp(r->config->grids.at[i].name, lierne_json_string(node)) == 0) {
            return &r->config->grids.at[i];
        }
    }
    if (node) {
        lierne_finding_add(r, LIERNE_FINDING_GRID_UNKNOWN, node, "name one of the keys of 'grids'",
                           "there is no grid %s", lierne_quote(lierne_json_string(node)).text);
    }
    return NULL;
}

static int axis_index(const lierne_config_bridge_entry *bridge, const char *name) {
    int a = 0;
    while (a < bridge->spec.naxes && strcmp(bridge->axes[a], name) != 0) {
        a++;
    }
    return a < bridge->spec.naxes ? a : -1;
}

static void read_axes(lierne_reader *r, const lierne_json_node *axes,
                      lierne_config_bridge_entry *bridge) {
    if (axes->count < 2 || axes->count > COUNT(axis_words)) {
        lierne_finding_add(r, LIERNE_FINDING_AXES, axes, "", "%d axes, must be 2 or 3",
                           axes->count);
        return;
    }
    for (const lierne_json_node *n = lierne_json_first(axes); n; n = lierne_json_next(r->doc, n)) {
        int word;
        if (!lierne_config_word(r, n, axis_words, COUNT(axis_words), &word)) {
            continue;
        }
        if (axis_index(bridge, axis_words[word]) >= 0) {
            lierne_finding_add(r, LIERNE_FINDING_AXES, n, "", "axis '%s' stands twice",
                               axis_words[word]);
            continue;
        }
        bridge->axes[bridge->spec.naxes++] = axis_words[word];
    }
}

static void read_shape(lierne_reader *r, lierne_config_bridge_nodes *nodes,
                       lierne_config_bridge_entry *bridge) {
    for (const lierne_json_node *n = lierne_config_first(r, nodes->shape); n;
         n = lierne_config_next(r, n)) {
        int a = axis_index(bridge, lierne_json_key(n));
        if (a < 0) {
            lierne_finding_add_key(r, LIERNE_FINDING_UNKNOWN_KEY, n, "write it into axes",
                                   "%s is not an axis of the tensor", lierne_label(n).text);
        } else {
            nodes->sizes[a] = n;
            lierne_config_integer(r, n, 1, INT64_MAX, &bridge->shape[a]);
        }
    }
    for (int a = 0; a < bridge->spec.naxes; a++) {
        if (!nodes->sizes[a]) {
            lierne_finding_add(r, LIERNE_FINDING_AXIS_SIZE, nodes->shape, "",
                               "axis '%s' has no size", bridge->axes[a]);
        }
    }
}

static void read_dtype(lierne_reader *r, const lierne_json_node *node, lierne_dtype *dtype) {
    const char *names[16];
    int count = 0, word;
    while (count < COUNT(names) && lierne_dtype_name((lierne_dtype)count)) {
        names[count] = lierne_dtype_name((lierne_dtype)count);
        count++;
    }
    if (lierne_config_word(r, node, names, count, &word)) {
        *dtype = (lierne_dtype)word;
    }
}

static void read_tensor(lierne_reader *r, lierne_config_bridge_nodes *nodes,
                        lierne_config_bridge_entry *bridge) {
    enum { AXES, SHAPE, DTYPE, KEYS };
    static const lierne_config_key keys[KEYS] = {
        [AXES] = {"axes", LIERNE_JSON_ARRAY, true},
        [SHAPE] = {"shape", LIERNE_JSON_OBJECT, true},
        [DTYPE] = {"dtype", LIERNE_JSON_STRING, true},
    };
    const lierne_json_node *found[KEYS];
    lierne_config_object(r, nodes->tensor, keys, KEYS, found);
    nodes->axes = found[AXES];
    nodes->shape = found[SHAPE];
    nodes->dtype = found[DTYPE];
    if (nodes->axes) {
        int errors = r->config->errors;
        read_axes(r, nodes->axes, bridge);
        /* Sizes of axes that are wrong themselves are not worth a finding. */
        if (nodes->shape && errors == r->config->errors) {
            read_shape(r, nodes, bridge);
        }
    }
    read_dtype(r, nodes->dtype, &bridge->spec.dtype);
}

/* The axis that batch or sequence names, -1 if none. */
static int read_axis(lierne_reader *r, const lierne_json_node *node,
                     const lierne_config_bridge_entry *bridge) {
    if (!node || !bridge->spec.naxes) {
        return -1;
    }
    int a = axis_index(bridge, lierne_json_string(node));
    if (a < 0) {
        lierne_finding_add(r, LIERNE_FINDING_AXIS_UNKNOWN, node, "",
                           "%s is %s, which is not an axis of the tensor", lierne_label(node).text,
                           lierne_quote(lierne_json_string(node)).text);
    }
    return a;
}

static void read_rows(lierne_reader *r, const lierne_json_node *rows,
                      lierne_config_bridge_entry *bridge) {
    int64_t owner = 0;
    int i = 0;
    if (!lierne_reader_ok(r,
                          lierne_alloc(&bridge->rows, (size_t)rows->count, sizeof *bridge->rows))) {
        return;
    }
    for (const lierne_json_node *n = lierne_json_first(rows); n; n = lierne_json_next(r->doc, n)) {
        lierne_config_integer(r, n, 0, LIERNE_MAX_RANKS, &owner);
        bridge->rows[i++] = (int32_t)owner;
    }
    bridge->spec.row_owner = bridge->rows;
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
        nodes->owner = NULL; /* rules must not judge by an owner that is none */
    }
    if (lierne_config_word(r, nodes->storage, storages, COUNT(storages), &word)) {
        bridge->spec.gradient_storage = (lierne_storage)word;
    }
    if (nodes->rows) {
        read_rows(r, nodes->rows, bridge);
    }
}

static int64_t *read_lane_counts(lierne_reader *r, const lierne_json_node *list) {
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
    lierne_config_object(r, nodes->counts, keys, COUNT(keys), nodes->lane_counts);
    for (int side = 0; side < 2; side++) {
        bridge->counts[side] = read_lane_counts(r, nodes->lane_counts[side]);
    }
    bridge->spec.src_counts = bridge->counts[0];
    bridge->spec.dst_counts = bridge->counts[1];
}

static void read_ends(lierne_reader *r, const lierne_config_bridge_nodes *nodes,
                      lierne_config_bridge_entry *bridge) {
    const lierne_config_grid_entry *src = find_grid(r, nodes->src);
    const lierne_config_grid_entry *dst = find_grid(r, nodes->dst);
    bridge->src = src ? src->name : NULL;
    bridge->dst = dst ? dst->name : NULL;
    bridge->spec.src = src ? src->grid : NULL;
    bridge->spec.dst = dst ? dst->grid : NULL;
}

static void read_name(lierne_reader *r, const lierne_json_node *node,
                      lierne_config_bridge_entry *bridge) {
    if (!lierne_config_name(r, node, false, LIERNE_CONFIG_FREE_NAME)) {
        return;
    }
    const char *name = lierne_json_string(node);
    if (lierne_config_bridge(r->config, name)) {
        lierne_finding_add(r, LIERNE_FINDING_BRIDGE_DUPLICATE, node, "",
                           "there is a bridge %s already", lierne_quote(name).text);
    }
    lierne_reader_ok(r, lierne_strdup(&bridge->name, name));
}

/* Reads all values of a bridge. */
static bool read_values(lierne_reader *r, lierne_config_bridge_nodes *nodes,
                        lierne_config_bridge_entry *bridge) {
    enum { NAME, SRC, DST, TENSOR, BATCH, SEQUENCE, GRADIENT, ALGORITHM, COUNTS, DIVISIBLE, KEYS };
    static const lierne_config_key keys[KEYS] = {
        [NAME] = {"name", LIERNE_JSON_STRING, true},
        [SRC] = {"src", LIERNE_JSON_STRING, true},
        [DST] = {"dst", LIERNE_JSON_STRING, true},
        [TENSOR] = {"tensor", LIERNE_JSON_OBJECT, true},
        [BATCH] = {"batch", LIERNE_JSON_STRING, true},
        [SEQUENCE] = {"sequence", LIERNE_JSON_STRING, false},
        [GRADIENT] = {"gradient", LIERNE_JSON_OBJECT, false},
        [ALGORITHM] = {"algorithm", LIERNE_JSON_STRING, false},
        [COUNTS] = {"counts", LIERNE_JSON_OBJECT, false},
        [DIVISIBLE] = {"require_divisible", LIERNE_JSON_BOOLEAN, false},
    };
    static const char *const algorithms[] = {"direct", "collective"}; /* in the enum's order */
    const lierne_json_node *found[KEYS];
    int word;
    if (!lierne_config_object(r, nodes->bridge, keys, KEYS, found)) {
        return false;
    }
    *nodes = (lierne_config_bridge_nodes){.bridge = nodes->bridge,
                                          .name = found[NAME],
                                          .src = found[SRC],
                                          .dst = found[DST],
                                          .tensor = found[TENSOR],
                                          .batch = found[BATCH],
                                          .sequence = found[SEQUENCE],
                                          .gradient = found[GRADIENT],
                                          .algorithm = found[ALGORITHM],
                                          .counts = found[COUNTS],
                                          .require_divisible = found[DIVISIBLE]};
    read_name(r, nodes->name, bridge);
    read_ends(r, nodes, bridge);
    if (nodes->tensor) {
        read_tensor(r, nodes, bridge);
    }
    bridge->spec.batch_axis = read_axis(r, nodes->batch, bridge);
    bridge->spec.sequence_axis = read_axis(r, nodes->sequence, bridge);
    if (nodes->gradient) {
        read_gradient(r, nodes, bridge);
    }
    if (lierne_config_word(r, nodes->algorithm, algorithms, COUNT(algorithms), &word)) {
        bridge->spec.algorithm = (lierne_bridge_algorithm)word;
    }
    if (nodes->counts) {
        read_counts(r, nodes, bridge);
    }
    bridge->spec.require_divisible = lierne_config_true(nodes->require_divisible);
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
    if (read_values(r, &nodes, bridge) && !r->failed) {
        lierne_config_check_bridge(r, &nodes, bridge, errors == r->config->errors);
    }
    if (!lierne_reader_ok(r, LIERNE_VEC_PUSH(&r->config->bridges, bridge))) {
        lierne_config_bridge_free(bridge);
    }
}

void lierne_config_read_bridges(lierne_reader *r, const lierne_json_node *bridges) {
    if (bridges->count > LIERNE_CONFIG_MAX_BRIDGES) {
        lierne_finding_add(r, LIERNE_FINDING_LIMIT, bridges, "", "%d bridges, at most %d are taken",
                           bridges->count, LIERNE_CONFIG_MAX_BRIDGES);
        return;
    }
    for (const lierne_json_node *n = lierne_json_first(bridges); n;
         n = lierne_json_next(r->doc, n)) {
        read_bridge(r, n);
    }
}

void lierne_config_bridge_free(lierne_config_bridge_entry *bridge) {
    lierne_mem_free(bridge->counts[0]);
    lierne_mem_free(bridge->counts[1]);
    lierne_mem_free(bridge->rows);
    lierne_mem_free(bridge->name);
    lierne_mem_free(bridge);
}
