/* A system of NCCL's M2N: two meshes on disjoint ranks, training first. Its sizes are tp, cp, dp
 * and pp, the fastest first, with experts over tp, cp and dp. dp is what remains of num_gpus; a
 * dp_size that says otherwise is rejected, since one of the two is wrong. */
#include "tool/import.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

enum { TP, CP, FSDP, DP, PP, EP, GPUS, NSIZES };

static const char *const keys[NSIZES] = {"tp_size", "cp_size", "fsdp_size", "dp_size",
                                         "pp_size", "ep_size", "num_gpus"};

static int read_size(const import_world *world, const cJSON *mesh, int k, int64_t *size) {
    const cJSON *item = NULL, *child;
    int count = 0;
    cJSON_ArrayForEach(child, mesh) {
        if (child->string && strcmp(child->string, keys[k]) == 0) {
            item = child;
            count++;
        }
    }
    *size = 0;
    if (count > 1 || (item && !import_whole(size, item, 1, IMPORT_MOST))) {
        tool_say(world->argv, "%s of %s must be there once and a whole number from 1 to %d",
                 keys[k], mesh->string, IMPORT_MOST);
        return TOOL_INVALID;
    }
    return -1;
}

static int complete_size(const import_world *world, const char *name, int64_t *size) {
    int64_t rest, given = size[DP] > size[FSDP] ? size[DP] : size[FSDP];
    bool both = size[DP] > 1 && size[FSDP] > 1;
    for (int k = TP; k <= EP; k++) {
        size[k] = size[k] ? size[k] : 1;
    }
    if (!size[GPUS] || both) {
        tool_say(world->argv,
                 both ? "%s has dp_size and fsdp_size above 1: which is inner is not said"
                      : "%s has no num_gpus, and dp follows from it",
                 name);
        return TOOL_INVALID;
    }
    int status = import_share(world, name, size[GPUS], size[TP] * size[CP] * size[PP], &rest);
    if (status < 0 && given && given != rest) {
        tool_say(
            world->argv,
            "%s has dp %lld, but its %lld GPUs over tp * cp * pp are %lld: write dp_size %lld, or "
            "leave it out",
            name, (long long)given, (long long)size[GPUS], (long long)rest, (long long)rest);
        return TOOL_INVALID;
    }
    size[DP] = rest;
    return status;
}

static int add_expert(const import_world *world, import_grid *grid, const int64_t *size) {
    import_dims *view = &grid->views[0];
    int64_t dp;
    int status = import_share(world, "experts (ep * pp)", size[GPUS], size[EP] * size[PP], &dp);
    if (status >= 0) {
        return status;
    }
    snprintf(view->name, sizeof view->name, "expert");
    import_add_dim(view, "expt_tp", 1);
    import_add_dim(view, "ep", size[EP]);
    import_add_dim(view, "expt_dp", dp);
    import_add_dim(view, "pp", size[PP]);
    view->shared = "pp";
    grid->nviews = 1;
    return -1;
}

static int add_mesh(import_world *world, const cJSON *mesh, int64_t *offset) {
    int64_t size[NSIZES];
    int status = -1;
    for (int k = 0; k < NSIZES && status < 0; k++) {
        status = read_size(world, mesh, k, &size[k]);
    }
    status = status < 0 ? complete_size(world, mesh->string, size) : status;
    import_grid *grid = status < 0 ? import_add_grid(world, mesh->string) : NULL;
    if (!grid) {
        return status < 0 ? TOOL_INVALID : status;
    }
    import_add_dim(&grid->base, "tp", size[TP]);
    import_add_dim(&grid->base, "cp", size[CP]);
    import_add_dim(&grid->base, "dp", size[DP]);
    import_add_dim(&grid->base, "pp", size[PP]);
    grid->offset = *offset;
    *offset += size[GPUS];
    return size[EP] > 1 ? add_expert(world, grid, size) : -1;
}

int import_m2n(import_world *world, int argc, char **argv) {
    static const char *const meshes[] = {"train", "generation"};
    char *text = argc == 1 ? import_read(world, argv[0]) : NULL;
    int64_t offset = 0;
    int status = -1;
    if (!text) {
        return argc == 1 ? TOOL_USAGE : tool_usage(world->argv, "%d files given, must be 1", argc);
    }
    cJSON *all = cJSON_ParseWithOpts(text, NULL, 1);
    for (int m = 0; m < 2 && status < 0; m++) {
        const cJSON *mesh = cJSON_GetObjectItemCaseSensitive(all, meshes[m]);
        if (!cJSON_IsObject(mesh)) {
            tool_say(world->argv, "%s is not JSON with an object '%s'", argv[0], meshes[m]);
            status = TOOL_INVALID;
        } else {
            status = add_mesh(world, mesh, &offset);
        }
    }
    cJSON_Delete(all);
    free(text);
    return status;
}
