/* lierne export: a grid in the words of another tool. What that tool cannot say (an order, an
 * offset, another dim) is an error, because leaving it out would describe another layout. */
#include "tool.h"

#include <string.h>

static const char help[] = "Usage: lierne export FILE --grid G --to FORMAT\n"
                           "Writes a grid of a configuration for another tool.\n"
                           "\n"
                           "  -g, --grid=G      the grid\n"
                           "  -t, --to=FORMAT   megatron: Megatron-LM's flags\n"
                           "                    devicemesh: PyTorch, the slowest dim first\n"
                           "                    rankfile: of Open MPI, by the nodes of the file\n"
                           "  -h, --help        show this help\n"
                           "\n"
                           "Exit status: 0 written, 1 FILE has errors or FORMAT cannot say it, 2 "
                           "usage error or unreadable\n"
                           "file.\n";

typedef struct question {
    char **argv;
    const char *path, *name, *to;
    const lierne_config *config;
    const lierne_grid *grid;
} question;

static int cannot(const question *q, const char *why) {
    tool_say(q->argv, "grid '%s' cannot be written for %s: %s", q->name, q->to, why);
    return TOOL_INVALID;
}

static int size_of(const question *q, const char *view, const char *dim) {
    int size = lierne_grid_find_dim_size(q->grid, view, dim);
    return size < 0 ? 1 : size;
}

/* Whether the dims of a view, but those of size 1, are among `order` and in its sequence. */
static bool in_order(const question *q, const char *view, const char *const *order, int n) {
    int at = 0;
    for (int d = 0; d < lierne_grid_get_ndims(q->grid, view); d++) {
        const char *dim = lierne_grid_get_dim_name(q->grid, view, d);
        if (lierne_grid_get_dim_size(q->grid, view, d) == 1) {
            continue;
        }
        while (at < n && strcmp(order[at], dim) != 0) {
            at++;
        }
        if (at == n) {
            return false;
        }
    }
    return true;
}

static int export_expert(const question *q, bool dp_slowest) {
    static const char *const order[][4] = {{"expt_tp", "ep", "expt_dp", "pp"},
                                           {"expt_tp", "ep", "pp", "expt_dp"}};
    if (lierne_grid_get_ndims(q->grid, "expert") < 0) {
        putchar('\n');
        return TOOL_VALID;
    }
    if (!in_order(q, "expert", order[dp_slowest], 4)) {
        putchar('\n');
        return cannot(q,
                      "the dims of view 'expert' must be expt_tp, ep, expt_dp, pp in this order");
    }
    printf(" \\\n  --expert-tensor-parallel-size %d \\\n  --expert-model-parallel-size %d\n",
           size_of(q, "expert", "expt_tp"), size_of(q, "expert", "ep"));
    return TOOL_VALID;
}

static int export_megatron(const question *q) {
    static const char *const order[][4] = {{"tp", "cp", "dp", "pp"}, {"tp", "cp", "pp", "dp"}};
    bool usual = in_order(q, NULL, order[0], 4);
    if (lierne_grid_get_size(q->grid) != lierne_grid_get_world_size(q->grid)) {
        return cannot(q, "it is not on all ranks of the world");
    }
    if (!usual && !in_order(q, NULL, order[1], 4)) {
        return cannot(q, "its dims must be tp, cp, dp, pp or tp, cp, pp, dp, in this order");
    }
    printf("--tensor-model-parallel-size %d \\\n  --context-parallel-size %d \\\n"
           "  --pipeline-model-parallel-size %d%s",
           size_of(q, NULL, "tp"), size_of(q, NULL, "cp"), size_of(q, NULL, "pp"),
           usual ? "" : " \\\n  --use-tp-pp-dp-mapping");
    return export_expert(q, !usual);
}

/* numbers: sizes; otherwise names in quotes. */
static void print_slowest_first(const question *q, bool numbers) {
    int ndims = lierne_grid_get_ndims(q->grid, NULL);
    for (int d = ndims - 1; d >= 0; d--) {
        if (numbers) {
            printf("%d", lierne_grid_get_dim_size(q->grid, NULL, d));
        } else {
            tool_print_string(stdout, lierne_grid_get_dim_name(q->grid, NULL, d));
        }
        fputs(d ? ", " : ndims == 1 ? "," : "", stdout);
    }
}

static int export_devicemesh(const question *q) {
    int first = lierne_grid_get_rank_offset(q->grid), size = lierne_grid_get_size(q->grid);
    bool all = size == lierne_grid_get_world_size(q->grid);
    if (all) {
        fputs("from torch.distributed.device_mesh import init_device_mesh\n\n"
              "mesh = init_device_mesh(\"cuda\", (",
              stdout);
    } else {
        printf("import torch\nfrom torch.distributed.device_mesh import DeviceMesh\n\n"
               "ranks = torch.arange(%d, %d)\nmesh = DeviceMesh(\"cuda\", ranks.reshape((",
               first, first + size);
    }
    print_slowest_first(q, true);
    fputs(all ? "), mesh_dim_names=(" : ")), mesh_dim_names=(", stdout);
    print_slowest_first(q, false);
    fputs("))\n", stdout);
    return TOOL_VALID;
}

static int export_rankfile(const question *q) {
    const int *nodes = lierne_config_get_nodes(q->config);
    int first = lierne_grid_get_rank_offset(q->grid), size = lierne_grid_get_size(q->grid);
    if (!nodes) {
        return cannot(q, "the file has no \"nodes\"");
    }
    if (size != lierne_grid_get_world_size(q->grid)) {
        return cannot(q, "it is not on all ranks of the world");
    }
    for (int rank = first; rank < first + size; rank++) {
        int slot = 0;
        for (int before = rank - 1; before >= first && nodes[before] == nodes[rank]; before--) {
            slot++;
        }
        printf("rank %d=+n%d slot=%d\n", rank, nodes[rank], slot);
    }
    return TOOL_VALID;
}

static int export_grid(const question *q) {
    static const struct {
        const char *name;
        int (*write)(const question *);
    } formats[] = {{"megatron", export_megatron},
                   {"devicemesh", export_devicemesh},
                   {"rankfile", export_rankfile}};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        if (strcmp(formats[f].name, q->to) == 0) {
            return q->grid ? formats[f].write(q)
                           : tool_no_such(q->argv, "grid", q->name, q->path, q->config);
        }
    }
    return tool_usage(q->argv, "--to is '%s', must be megatron, devicemesh or rankfile", q->to);
}

int tool_export(int argc, char **argv) {
    question q = {.argv = argv};
    lierne_config *config = NULL;
    const tool_option options[] = {{"grid", 'g', &q.name, NULL, NULL},
                                   {"to", 't', &q.to, NULL, "megatron devicemesh rankfile"}};
    int status = tool_parse(argc, argv, help, options, sizeof options / sizeof *options);
    status = status < 0 ? tool_one_file(argc, argv, &q.path) : status;
    if (status < 0 && !q.name) {
        return tool_missing(argv, "grid", q.path);
    }
    if (status < 0 && !q.to) {
        return tool_usage(argv, "--to is missing");
    }
    status = status < 0 ? tool_load_valid(argv, q.path, NULL, &config) : status;
    if (status < 0) {
        q.config = config;
        q.grid = lierne_config_get_grid(config, q.name);
        status = export_grid(&q);
    }
    lierne_config_destroy(config);
    return status;
}
