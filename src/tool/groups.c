/* lierne groups: the rank groups of a set of dims, as a process group is made of them. */
#include "tool.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: lierne groups FILE --grid G [--view V] --dims D,D... [OPTION]...\n"
    "Prints the groups of ranks that differ in the given dims only, one a line.\n"
    "\n"
    "  -g, --grid=G         the grid\n"
    "  -v, --view=V         the view (default base)\n"
    "  -d, --dims=D,D...    the dims, in any order; empty: every rank alone\n"
    "      --format=FORMAT  text (default) or json\n"
    "  -h, --help           show this help\n"
    "\n"
    "Exit status: 0 printed, 1 FILE has errors, 2 usage error or unreadable file.\n";

typedef struct question {
    const char *path, *grid, *view, *list;
    bool json;
    char *names; /* list, cut at its commas */
    const char *dims[LIERNE_MAX_DIMS];
    int ndims;
} question;

static int split(char **argv, question *q) {
    char *rest = q->names = strdup(q->list);
    if (!rest) {
        return tool_usage(argv, "no memory for --dims");
    }
    while (rest && *q->list) {
        if (q->ndims == LIERNE_MAX_DIMS) {
            return tool_usage(argv, "--dims names more than %d dims, must be at most %d",
                              LIERNE_MAX_DIMS, LIERNE_MAX_DIMS);
        }
        q->dims[q->ndims++] = strsep(&rest, ",");
    }
    return -1;
}

static void print_text(const int *ranks, int ngroups, int size) {
    for (int i = 0; i < ngroups * size; i++) {
        printf("%d%c", ranks[i], (i + 1) % size ? ' ' : '\n');
    }
}

static void print_json(const question *q, const int *ranks, int ngroups, int size) {
    printf("{\"grid\":");
    tool_print_string(stdout, q->grid);
    printf(",\"view\":");
    tool_print_string(stdout, q->view);
    printf(",\"dims\":[");
    for (int d = 0; d < q->ndims; d++) {
        printf("%s", d ? "," : "");
        tool_print_string(stdout, q->dims[d]);
    }
    printf("],\"groups\":[");
    for (int g = 0; g < ngroups; g++) {
        printf("%s", g ? "," : "");
        tool_print_ints(stdout, ranks + g * size, size);
    }
    printf("]}\n");
}

static int print_groups(char **argv, const question *q, const lierne_config *config) {
    const lierne_grid *grid = lierne_config_get_grid(config, q->grid);
    int ngroups, size, status = TOOL_VALID;
    if (!grid) {
        return tool_no_such(argv, "grid", q->grid, q->path, config);
    }
    int *ranks = calloc((size_t)lierne_grid_get_size(grid), sizeof *ranks);
    if (!ranks) {
        return tool_usage(argv, "no memory for %d ranks", lierne_grid_get_size(grid));
    }
    if (lierne_grid_get_groups(ranks, &ngroups, &size, grid, q->view, q->dims, q->ndims) !=
        LIERNE_OK) {
        status = tool_failed(argv);
    } else if (q->json) {
        print_json(q, ranks, ngroups, size);
    } else {
        print_text(ranks, ngroups, size);
    }
    free(ranks);
    return status;
}

static int parse(int argc, char **argv, question *q) {
    const char *format = NULL;
    const tool_option options[] = {
        {"grid", 'g', &q->grid, NULL, NULL},
        {"view", 'v', &q->view, NULL, NULL},
        {"dims", 'd', &q->list, NULL, NULL},
        {"format", 0, &format, NULL, "text json"},
    };
    int status = tool_parse(argc, argv, help, options, sizeof options / sizeof *options);
    status = status < 0 ? tool_json(argv, format, &q->json) : status;
    status = status < 0 ? tool_one_file(argc, argv, &q->path) : status;
    if (status < 0 && !q->grid) {
        return tool_missing(argv, "grid", q->path);
    }
    if (status < 0 && !q->list) {
        return tool_usage(argv, "--dims is missing");
    }
    return status < 0 ? split(argv, q) : status;
}

int tool_groups(int argc, char **argv) {
    question q = {.view = "base"};
    lierne_config *config = NULL;
    int status = parse(argc, argv, &q);
    status = status < 0 ? tool_load_valid(argv, q.path, NULL, &config) : status;
    if (status < 0) {
        status = print_groups(argv, &q, config);
    }
    lierne_config_destroy(config);
    free(q.names);
    return status;
}
