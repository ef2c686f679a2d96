/* A configuration as a whole: the file's own keys. Everything is read whatever was wrong before it,
 * so that one run shows all diagnostics. Only text that is not JSON is not read any further. */
#include "config/read.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void read_node_list(lierne_reader *r, const lierne_json_node *nodes) {
    lierne_config *config = r->config;
    int rank = 0;
    if (nodes->count != config->world) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_NODES, nodes, "give one node for each rank",
                              "nodes has %d entries, must have %d as world_size says", nodes->count,
                              config->world);
        return;
    }
    for (const lierne_json_node *n = lierne_json_first(nodes); n; n = lierne_json_next(r->doc, n)) {
        int64_t node = 0;
        lierne_config_integer(r, n, 0, LIERNE_MAX_RANKS - 1, &node);
        config->nodes[rank++] = (int)node;
    }
}

/* The ranks of the world must be known. */
static void read_nodes(lierne_reader *r, const lierne_json_node *nodes) {
    lierne_config *config = r->config;
    int64_t per_node;
    bool list = nodes->type == LIERNE_JSON_ARRAY;
    if (!list && !lierne_config_integer(r, nodes, 1, LIERNE_MAX_RANKS, &per_node)) {
        return;
    }
    if (!lierne_reader_ok(r, lierne_alloc(&config->nodes, (size_t)config->world,
                                          sizeof *config->nodes))) {
        return;
    }
    if (list) {
        read_node_list(r, nodes);
        return;
    }
    for (int rank = 0; rank < config->world; rank++) {
        config->nodes[rank] = rank / (int)per_node;
    }
}

static void read_link(lierne_reader *r, const lierne_json_node *node, lierne_link *link) {
    enum { LATENCY, BANDWIDTH, KEYS, MOST = 1000000000 };
    static const lierne_config_key keys[KEYS] = {
        [LATENCY] = {"latency_ns", LIERNE_JSON_NUMBER, true},
        [BANDWIDTH] = {"megabytes_per_second", LIERNE_JSON_NUMBER, true},
    };
    const lierne_json_node *found[KEYS];
    if (node && lierne_config_object(r, node, keys, KEYS, found)) {
        lierne_config_integer(r, found[LATENCY], 0, MOST, &link->latency_ns);
        lierne_config_integer(r, found[BANDWIDTH], 0, MOST, &link->megabytes_per_second);
    }
}

static void read_links(lierne_reader *r, const lierne_json_node *node) {
    enum { NEAR, FAR, NODE, KEYS, MOST = 1000000000 };
    static const lierne_config_key keys[KEYS] = {
        [NEAR] = {"same_node", LIERNE_JSON_OBJECT, true},
        [FAR] = {"other_node", LIERNE_JSON_OBJECT, true},
        [NODE] = {"node_megabytes_per_second", LIERNE_JSON_NUMBER, false},
    };
    const lierne_json_node *found[KEYS];
    if (node && lierne_config_object(r, node, keys, KEYS, found)) {
        read_link(r, found[NEAR], &r->config->links.same_node);
        read_link(r, found[FAR], &r->config->links.other_node);
        if (found[NODE]) {
            lierne_config_integer(r, found[NODE], 0, MOST,
                                  &r->config->links.node_megabytes_per_second);
        }
        r->config->has_links = true;
    }
}

static void read_file(lierne_reader *r) {
    enum { WORLD, GRIDS, BRIDGES, PACKED, MOVES, NODES, LINKS, COVER, KEYS };
    static const lierne_config_key keys[KEYS] = {
        [WORLD] = {"world_size", LIERNE_JSON_NUMBER, true},
        [GRIDS] = {"grids", LIERNE_JSON_OBJECT, true},
        [BRIDGES] = {"bridges", LIERNE_JSON_ARRAY, false},
        [PACKED] = {"packed_bridges", LIERNE_JSON_ARRAY, false},
        [MOVES] = {"redistributions", LIERNE_JSON_ARRAY, false},
        [NODES] = {"nodes", LIERNE_JSON_NUMBER | LIERNE_JSON_ARRAY, false},
        [LINKS] = {"links", LIERNE_JSON_OBJECT, false},
        [COVER] = {"cover_world", LIERNE_JSON_BOOLEAN, false},
    };
    const lierne_json_node *found[KEYS];
    int64_t world = 0;
    if (!lierne_config_object(r, r->doc->nodes.at, keys, KEYS, found)) {
        return;
    }
    bool known = lierne_config_integer(r, found[WORLD], 1, LIERNE_MAX_RANKS, &world);
    r->config->world = (int)world;
    if (found[GRIDS]) {
        lierne_config_read_grids(r, found[GRIDS], known ? world : LIERNE_MAX_RANKS);
    }
    if (found[BRIDGES]) {
        lierne_config_read_bridges(r, found[BRIDGES]);
    }
    if (found[PACKED]) {
        lierne_config_read_packed(r, found[PACKED]);
    }
    if (found[MOVES]) {
        lierne_config_read_redistributions(r, found[MOVES]);
    }
    read_links(r, found[LINKS]);
    if (found[NODES] && known) {
        read_nodes(r, found[NODES]);
    }
    if (found[GRIDS] && known) {
        const lierne_world_nodes w = {found[WORLD], found[GRIDS], found[COVER]};
        lierne_config_check_world(r, &w);
    }
}

/* The status of a config that was read, and a message with its first error. */
static lierne_status verdict(const lierne_config *config, lierne_status status) {
    for (size_t i = 0; i < config->diagnostics.count; i++) {
        const lierne_diagnostic *f = &config->diagnostics.at[i].diagnostic;
        if (f->severity == LIERNE_SEVERITY_ERROR) {
            return LIERNE_FAIL(status == LIERNE_ERR_SYNTAX ? LIERNE_ERR_SYNTAX : LIERNE_ERR_CONFIG,
                               "%d errors, the first at %d:%d: [%s] %s", config->errors, f->line,
                               f->column, f->code, f->message);
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_config_parse(lierne_config **out, const char *text, size_t length) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_json doc;
    lierne_reader r = {.doc = &doc};
    if (!out || !text) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL", out ? "text" : "out");
    }
    LIERNE_TRY(lierne_alloc(&r.config, 1, sizeof *r.config));
    lierne_status status = lierne_json_parse(&doc, text, length);
    if (status == LIERNE_ERR_SYNTAX) {
        lierne_diagnostic_add_text(&r);
    } else if (lierne_reader_ok(&r, status)) {
        read_file(&r);
    }
    lierne_json_destroy(&doc);
    if (r.failed) {
        lierne_config_destroy(r.config);
        return LIERNE_FAIL(LIERNE_ERR_NO_MEMORY, "no memory for a configuration of %zu bytes",
                           length);
    }
    lierne_diagnostics_sort(r.config);
    *out = r.config;
    return verdict(r.config, status);
}

/* Reads at most one byte more than a configuration may have. */
static lierne_status read_stream(FILE *file, const char *path, char **text, size_t *length) {
    size_t capacity = 0, limit = LIERNE_JSON_MAX_SIZE + 1;
    *text = NULL;
    *length = 0;
    while (*length == capacity && capacity < limit) {
        capacity = capacity ? capacity * 4 : 4096;
        capacity = capacity < limit ? capacity : limit;
        LIERNE_TRY(lierne_realloc(text, capacity, 1));
        *length += fread(*text + *length, 1, capacity - *length, file);
    }
    if (ferror(file)) {
        return LIERNE_FAIL(LIERNE_ERR_IO, "%s: %s", path, strerror(errno));
    }
    return LIERNE_OK;
}

lierne_status lierne_config_read(lierne_config **out, const char *path) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    char *text;
    size_t length;
    if (!out || !path) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL", out ? "path" : "out");
    }
    FILE *file = fopen(path, "rb");
    if (!file) {
        return LIERNE_FAIL(LIERNE_ERR_IO, "%s: %s", path, strerror(errno));
    }
    lierne_status status = read_stream(file, path, &text, &length);
    fclose(file);
    if (status == LIERNE_OK) {
        status = lierne_config_parse(out, text, length);
    }
    lierne_mem_free(text);
    return status;
}

void lierne_config_destroy(lierne_config *config) {
    if (!config) {
        return;
    }
    for (size_t i = 0; i < config->grids.count; i++) {
        lierne_grid_destroy(config->grids.at[i].grid);
        lierne_mem_free(config->grids.at[i].name);
    }
    for (size_t i = 0; i < config->bridges.count; i++) {
        lierne_config_bridge_free(config->bridges.at[i]);
    }
    for (size_t i = 0; i < config->packed.count; i++) {
        lierne_config_packed_free(config->packed.at[i]);
    }
    for (size_t i = 0; i < config->redistributions.count; i++) {
        lierne_config_redistribution_free(config->redistributions.at[i]);
    }
    lierne_diagnostics_destroy(config);
    lierne_mem_free(config->grids.at);
    lierne_mem_free(config->bridges.at);
    lierne_mem_free(config->packed.at);
    lierne_mem_free(config->redistributions.at);
    lierne_mem_free(config->nodes);
    lierne_mem_free(config);
}
