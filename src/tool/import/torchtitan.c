/* torchtitan's degrees, from its TOML file. Its mesh is pp, dp_replicate, dp_shard, cp, tp, the
 * slowest first; -1 is what remains of the world. The degrees stood in several sections over its
 * releases, so they are found by their names, which are unique. */
#include "tool/import.h"

#include <stdlib.h>
#include <string.h>

enum { TP, CP, SHARD, REPLICATE, PP, EP, EXPT_TP, NDEGREES };

static const char *const degrees[NDEGREES] = {
    "tensor_parallel_degree",         "context_parallel_degree",  "data_parallel_shard_degree",
    "data_parallel_replicate_degree", "pipeline_parallel_degree", "expert_parallel_degree",
    "expert_tensor_parallel_degree"};

static int read_degree(const import_world *world, int64_t *size, int d, char *value) {
    value += strspn(value, " \t");
    value[strcspn(value, " \t\r#")] = '\0';
    if (size[d]) {
        tool_say(world->argv, "%s is there twice: leave one", degrees[d]);
        return TOOL_INVALID;
    }
    if (d == SHARD && strcmp(value, "-1") == 0) {
        size[d] = -1;
        return -1;
    }
    return import_number(world, degrees[d], value, 1, &size[d]);
}

static int read_line(const import_world *world, int64_t *size, char *line) {
    line += strspn(line, " \t");
    size_t length = strcspn(line, " \t=");
    char *equals = line + length + strspn(line + length, " \t");
    for (int d = 0; d < NDEGREES; d++) {
        if (*equals == '=' && strlen(degrees[d]) == length &&
            strncmp(line, degrees[d], length) == 0) {
            return read_degree(world, size, d, equals + 1);
        }
    }
    return -1;
}

static int complete_size(const import_world *world, int64_t *size) {
    int64_t rest, others = 1;
    if (size[EP] > 1 || size[EXPT_TP] > 1) {
        tool_say(
            world->argv,
            "expert_parallel_degree is %lld: over which ranks torchtitan folds experts depends "
            "on its release, write the view by hand",
            (long long)size[EP]);
        return TOOL_INVALID;
    }
    for (int d = 0; d <= PP; d++) {
        size[d] = size[d] ? size[d] : d == SHARD ? -1 : 1;
        others = d == SHARD || others > IMPORT_MOST ? others : others * size[d];
    }
    if (!world->world) {
        tool_say(world->argv, "the file has no world size: give --world-size");
        return TOOL_INVALID;
    }
    int status = import_share(world, "tp * cp * dp_replicate * pp", world->world, others, &rest);
    if (status < 0 && size[SHARD] > 0 && size[SHARD] != rest) {
        tool_say(world->argv,
                 "data_parallel_shard_degree is %lld, but %lld ranks leave %lld: write that, or -1",
                 (long long)size[SHARD], (long long)world->world, (long long)rest);
        return TOOL_INVALID;
    }
    size[SHARD] = rest;
    return status;
}

/* With replicas, dp is both: a view that joins them, for bridges. */
static int add_grid(import_world *world, const int64_t *size) {
    import_grid *grid = import_add_grid(world, "llm");
    import_dims *joined = &grid->views[0];
    bool both = size[REPLICATE] > 1;
    import_add_dim(&grid->base, "tp", size[TP]);
    import_add_dim(&grid->base, "cp", size[CP]);
    import_add_dim(&grid->base, both ? "dp_shard" : "dp", size[SHARD]);
    if (both) {
        import_add_dim(&grid->base, "dp_replicate", size[REPLICATE]);
    }
    import_add_dim(&grid->base, "pp", size[PP]);
    if (both) {
        snprintf(joined->name, sizeof joined->name, "joined");
        import_add_dim(joined, "tp", size[TP]);
        import_add_dim(joined, "cp", size[CP]);
        import_add_dim(joined, "dp", size[SHARD] * size[REPLICATE]);
        import_add_dim(joined, "pp", size[PP]);
        joined->shared = "pp";
        grid->nviews = 1;
    }
    return -1;
}

int import_torchtitan(import_world *world, int argc, char **argv) {
    int64_t size[NDEGREES] = {0};
    char *text = argc == 1 ? import_read(world, argv[0]) : NULL, *rest;
    int status = -1;
    if (!text) {
        return argc == 1 ? TOOL_USAGE : tool_usage(world->argv, "%d files given, must be 1", argc);
    }
    for (char *line = strtok_r(text, "\n", &rest); line && status < 0;
         line = strtok_r(NULL, "\n", &rest)) {
        status = read_line(world, size, line);
    }
    free(text);
    if (status < 0) {
        import_warn_default(world, argv[0], size, NDEGREES, "of torchtitan's degrees");
    }
    status = status < 0 ? complete_size(world, size) : status;
    return status < 0 ? add_grid(world, size) : status;
}
