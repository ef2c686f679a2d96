/* lierne import: describes a job of another tool as a configuration. Sizes that such a description
 * leaves out are written out; what it leaves open (a missing world size, an order that may be meant
 * both ways) is rejected, because a guess would be a layout that is silently another one. */
#include "tool/import.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: lierne import FORMAT [OPTION]... OPERAND...\n"
    "Writes the layout of another tool as a configuration; '-' is standard input.\n"
    "\n"
    "  megatron    FILE, or -- FLAG...: Megatron-LM's flags, in a script or as they are\n"
    "  component   -- NAME=tp=4,dp=2,rank_offset=0 ...: Megatron-Bridge's components\n"
    "  torchtitan  FILE: its TOML file\n"
    "  devicemesh  pp=2,dp=4,tp=2: sizes of a DeviceMesh, the slowest dim first\n"
    "  m2n         FILE: a system of NCCL's M2N, in JSON\n"
    "\n"
    "  -w, --world-size=N   ranks of the job; megatron and torchtitan need it\n"
    "      --name=G         the grid's name, where there is one (default: llm)\n"
    "      --set=NAME=N,... variables of a script of megatron, as TP=8,PP=4; others\n"
    "                       are taken from the environment\n"
    "  -h, --help           show this help\n"
    "\n"
    "Exit status: 0 written, 1 contradictory or ambiguous, 2 usage error or unreadable file.\n";

static const struct {
    const char *name;
    import_reader *read;
} formats[] = {
    {"megatron", import_megatron},
    {"component", import_component},
    {"torchtitan", import_torchtitan},
    {"devicemesh", import_devicemesh},
    {"m2n", import_m2n},
};

static void print_dims(FILE *out, const import_dims *dims, const char *indent) {
    fprintf(out, "%s\"order\": [", indent);
    for (int d = 0; d < dims->n; d++) {
        fputs(d ? ", " : "", out);
        tool_print_string(out, dims->at[d].name);
    }
    fprintf(out, "],\n%s\"shape\": {", indent);
    for (int d = 0; d < dims->n; d++) {
        fputs(d ? ", " : "", out);
        tool_print_string(out, dims->at[d].name);
        fprintf(out, ": %" PRId64, dims->at[d].size);
    }
    fputs("}", out);
    if (dims->shared) {
        fprintf(out, ",\n%s\"shared\": [\"%s\"]", indent, dims->shared);
    }
}

static void print_views(FILE *out, const import_grid *grid) {
    fputs(grid->nviews ? ",\n      \"views\": {" : "", out);
    for (int v = 0; v < grid->nviews; v++) {
        fprintf(out, "%s\n        ", v ? "," : "");
        tool_print_string(out, grid->views[v].name);
        fputs(": {\n", out);
        print_dims(out, &grid->views[v], "          ");
        fputs("\n        }", out);
    }
    fputs(grid->nviews ? "\n      }" : "", out);
}

static void print_world(FILE *out, const import_world *world, const char *format) {
    fprintf(out, "{\n  \"comment\": \"made by lierne import %s; the first dim varies fastest\",\n",
            format);
    fprintf(out, "  \"world_size\": %" PRId64 ",\n  \"grids\": {", world->world);
    for (int g = 0; g < world->ngrids; g++) {
        const import_grid *grid = &world->grids[g];
        fprintf(out, "%s\n    ", g ? "," : "");
        tool_print_string(out, grid->name);
        fputs(": {\n", out);
        print_dims(out, &grid->base, "      ");
        if (grid->offset) {
            fprintf(out, ",\n      \"rank_offset\": %" PRId64, grid->offset);
        }
        if (grid->heads) {
            fprintf(out, ",\n      \"heads\": %" PRId64, grid->heads);
        }
        print_views(out, grid);
        fputs("\n    }", out);
    }
    fputs("\n  }\n}\n", out);
}

/* Without --world-size, the world ends where the last grid ends. */
static void complete_world(import_world *world) {
    int64_t end = 0;
    for (int g = 0; g < world->ngrids; g++) {
        int64_t last = world->grids[g].offset + import_size(&world->grids[g].base);
        end = last > end ? last : end;
    }
    world->world = world->world ? world->world : end;
}

/* Prints the text, unless the library finds errors in it. */
static int check_and_print(const import_world *world, const char *text, size_t length) {
    lierne_config *config;
    int status = tool_load_text(world->argv, text, length, false, &config);
    if (status >= 0) {
        return status;
    }
    lierne_config_destroy(config);
    fputs(text, stdout);
    return TOOL_VALID;
}

static int write_world(import_world *world, const char *format) {
    char *text;
    size_t length;
    complete_world(world);
    FILE *memory = tool_open_text(&text, &length);
    if (memory) {
        print_world(memory, world, format);
    }
    bool whole = memory && fclose(memory) == 0;
    int status = whole ? check_and_print(world, text, length)
                       : tool_usage(world->argv, "no memory for the configuration");
    free(text);
    return status;
}

static int find_format(char **argv, const char *name) {
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        if (strcmp(formats[f].name, name) == 0) {
            return (int)f;
        }
    }
    tool_usage(argv,
               "there is no format '%s', only megatron, component, torchtitan, devicemesh and m2n",
               name);
    return -1;
}

int tool_import(int argc, char **argv) {
    import_world world = {.argv = argv};
    const char *size = NULL;
    const tool_option options[] = {{"world-size", 'w', &size, NULL, NULL},
                                   {"name", 0, &world.name, NULL, NULL},
                                   {"set", 0, &world.set, NULL, NULL}};
    int status = tool_parse(argc, argv, help, options, sizeof options / sizeof *options);
    if (status < 0 && optind == argc) {
        status = tool_usage(argv, "no format given");
    }
    if (status < 0 && size) {
        status = import_number(&world, "--world-size", size, 1, &world.world);
    }
    if (status >= 0) {
        return status;
    }
    int format = find_format(argv, argv[optind]);
    if (format < 0) {
        return TOOL_USAGE;
    }
    status = formats[format].read(&world, argc - optind - 1, argv + optind + 1);
    return status < 0 ? write_world(&world, formats[format].name) : status;
}
