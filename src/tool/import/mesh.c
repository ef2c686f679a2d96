/* Sizes in lists NAME=SIZE: Megatron-Bridge's components (the fastest first: tp, cp, dp, pp, with
 * the offset in the list) and PyTorch's DeviceMesh (the slowest first, so it is turned round here).
 */
#include "tool/import.h"

#include <stdlib.h>
#include <string.h>

enum { PAIRS = 16 };

typedef struct pairs {
    char text[512]; /* cut into names and values */
    const char *name[PAIRS];
    int64_t value[PAIRS];
    int n;
} pairs;

static int64_t *find_pair(pairs *p, const char *name) {
    for (int i = 0; i < p->n; i++) {
        if (strcmp(p->name[i], name) == 0) {
            return &p->value[i];
        }
    }
    return NULL;
}

static int read_pair(const import_world *world, pairs *p, char *item) {
    char *equals = strchr(item, '=');
    if (!equals || equals == item) {
        return tool_usage(world->argv, "'%s' is not NAME=SIZE", item);
    }
    *equals = '\0';
    if (find_pair(p, item) || p->n == PAIRS) {
        return tool_usage(world->argv,
                          p->n == PAIRS ? "more than 16 sizes at '%s'" : "'%s' is there twice",
                          item);
    }
    p->name[p->n] = item;
    int64_t least = strcmp(item, "rank_offset") != 0;
    return import_number(world, item, equals + 1, least, &p->value[p->n++]);
}

static int read_pairs(const import_world *world, pairs *p, const char *list) {
    char *rest;
    int status = -1;
    if (strlen(list) >= sizeof p->text) {
        return tool_usage(world->argv, "a list has %zu bytes, must have fewer than %zu",
                          strlen(list), sizeof p->text);
    }
    strcpy(p->text, list);
    for (char *item = strtok_r(p->text, ",", &rest); item && status < 0;
         item = strtok_r(NULL, ",", &rest)) {
        status = read_pair(world, p, item);
    }
    return status < 0 && p->n == 0 ? tool_usage(world->argv, "'%s' has no sizes", list) : status;
}

int import_devicemesh(import_world *world, int argc, char **argv) {
    pairs p = {0};
    if (argc != 1) {
        return tool_usage(world->argv, "%d meshes given, must be 1", argc);
    }
    int status = read_pairs(world, &p, argv[0]);
    if (status < 0 && p.n > IMPORT_DIMS) {
        status = tool_usage(world->argv, "%d dims, must be at most %d", p.n, IMPORT_DIMS);
    }
    import_grid *grid = status < 0 ? import_add_grid(world, "llm") : NULL;
    for (int i = p.n - 1; grid && i >= 0; i--) {
        import_add_dim(&grid->base, p.name[i], p.value[i]);
    }
    return status;
}

static int add_component(import_world *world, const char *name, pairs *p, bool alone) {
    static const char *const order[] = {"tp", "cp", "dp", "pp"};
    int64_t *offset = find_pair(p, "rank_offset");
    int known = offset != NULL;
    if (!find_pair(p, "dp") || (!offset && !alone)) {
        tool_say(world->argv, "component %s has no %s, and it does not follow from the rest", name,
                 find_pair(p, "dp") ? "rank_offset" : "dp");
        return TOOL_INVALID;
    }
    import_grid *grid = import_add_grid(world, name);
    if (!grid) {
        return TOOL_INVALID;
    }
    for (size_t d = 0; d < sizeof order / sizeof *order; d++) {
        int64_t *size = find_pair(p, order[d]);
        known += size != NULL;
        import_add_dim(&grid->base, order[d], size ? *size : 1);
    }
    grid->offset = offset ? *offset : 0;
    if (known != p->n) {
        return tool_usage(world->argv,
                          "component %s has a size that is not tp, cp, dp, pp or rank_offset: how "
                          "its ranks fold is not known, write the view by hand",
                          name);
    }
    return -1;
}

int import_component(import_world *world, int argc, char **argv) {
    int status = -1, left = 0;
    for (int i = 0; i < argc; i++) {
        left += strcmp(argv[i], "--component") != 0;
    }
    bool alone = left == 1;
    for (int i = 0; i < argc && status < 0; i++) {
        pairs p = {0};
        char name[IMPORT_NAME];
        const char *word = strncmp(argv[i], "--component=", 12) ? argv[i] : argv[i] + 12;
        const char *equals = strchr(word, '=');
        if (strcmp(word, "--component") == 0) {
            continue;
        }
        if (!equals || equals == word || (size_t)(equals - word) >= sizeof name) {
            return tool_usage(world->argv, "'%s' is not NAME=tp=4,dp=2,rank_offset=0", word);
        }
        snprintf(name, sizeof name, "%.*s", (int)(equals - word), word);
        status = read_pairs(world, &p, equals + 1);
        status = status < 0 ? add_component(world, name, &p, alone) : status;
    }
    return status < 0 && left == 0 ? tool_usage(world->argv, "no component given") : status;
}
