/* lierne balance: all modes of an assignment side by side, before a step is written for one. The
 * items are read from a table, in which those of a rank need not be side by side: homes are what
 * lierne_assignment_create wants in order, so items are sorted by rank here, stably. */
#include "tool/balance_input.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: lierne balance FILE [OPTION]...\n"
    "Assigns items (samples, images) to ranks, so that all ranks compute as much.\n"
    "\n"
    "FILE has a line per item, numbers with commas or blanks between them: the rank that has\n"
    "it, its cost, and its rows where they are another number. A first line of words is a\n"
    "heading, and lines that begin with # are comments. Or it is JSON: {\"ranks\": P,\n"
    "\"home_items\": items of each rank, \"cost\": [...], \"rows\": [...]}, or {\"ranks\": P,\n"
    "\"formula\": {\"lengths\": bell, bimodal, octave, uniform or equal, \"items\": N, \"seed\": "
    "S,\n"
    "\"cost\": rows, square or mixed, \"home\": even or front}}.\n"
    "\n"
    "  -n, --ranks=N           ranks; without it the highest rank of FILE and one more\n"
    "      --tolerance=T       of shed, in 1/1024 of the lower bound: 0 to 1024, 20 without it\n"
    "      --max-items=N       cap of the items of a rank\n"
    "      --max-rows=N        cap of the rows of a rank\n"
    "      --min-items=N       least items of a rank\n"
    "      --equal-items       each rank has as many items, one more or less\n"
    "      --node-ranks=N      ranks of a node\n"
    "  -m, --mode=MODE         print the rank of each item, by shed, lpt, kk or contiguous\n"
    "      --simulate          move the rows of --mode, or shed, and their gradients in this\n"
    "                          process, and check every one\n"
    "      --format=FORMAT     text (default), json, or svg: a picture of the loads before and\n"
    "                          after, and of who sends rows to whom; of --mode, or shed\n"
    "  -h, --help              show this help\n"
    "\n"
    "Exit status: 0 printed, 1 no mode keeps the caps or a row is wrong, 2 usage error or\n"
    "unreadable file.\n";

static const char *const modes[] = {"shed", "lpt", "kk", "contiguous"};
enum { NMODES = sizeof modes / sizeof *modes };
enum { TEXT, JSON, SVG }; /* formats */

static int compare_entries(const void *a, const void *b) {
    const balance_entry *x = a, *y = b;
    int order = (x->rank > y->rank) - (x->rank < y->rank);
    return order ? order : (x->line > y->line) - (x->line < y->line);
}

/* What lierne_assignment_create takes. */
typedef struct input {
    lierne_items items;
    int64_t *cost, *rows, *counts;
    int *nodes;
    int nranks;
    bool simulates;
    lierne_balance_spec spec;
} input;

static bool fill_input(input *in, balance_table *t, int64_t node_ranks) {
    if (t->n > 0) {
        qsort(t->at, (size_t)t->n, sizeof *t->at, compare_entries);
    }
    in->cost = calloc((size_t)t->n + 1, sizeof *in->cost);
    in->rows = calloc((size_t)t->n + 1, sizeof *in->rows);
    in->counts = calloc((size_t)in->nranks, sizeof *in->counts);
    in->nodes = calloc((size_t)in->nranks, sizeof *in->nodes);
    if (!in->cost || !in->rows || !in->counts || !in->nodes) {
        return false;
    }
    for (int64_t i = 0; i < t->n; i++) {
        in->cost[i] = t->at[i].cost;
        in->rows[i] = t->at[i].rows;
        in->counts[t->at[i].rank]++;
    }
    for (int p = 0; node_ranks > 0 && p < in->nranks; p++) {
        in->nodes[p] = (int)(p / node_ranks);
    }
    in->spec.nodes = node_ranks > 0 ? in->nodes : NULL;
    in->items = (lierne_items){sizeof in->items, t->n, 1, in->cost, in->rows, NULL, NULL};
    return true;
}

/* One mode; ms: how long it took. NULL: it has no assignment. */
static lierne_assignment *assign(input *in, int mode, double *ms) {
    lierne_assignment *a = NULL;
    double start = tool_now();
    in->spec.mode = (lierne_balance_mode)mode;
    if (lierne_assignment_create(&a, &in->items, in->counts, in->nranks, &in->spec) ==
        LIERNE_ERR_NO_MEMORY) {
        tool_lack_memory();
    }
    *ms = (tool_now() - start) * 1e3;
    return a;
}

static void print_row(const input *in, int mode, const lierne_assignment *a, double ms) {
    lierne_assignment_report r = {.size = sizeof r};
    int64_t rows = 0;
    for (int64_t i = 0; i < in->items.nitems; i++) {
        rows += in->rows[i];
    }
    lierne_assignment_get_report(&r, a);
    printf("%-10s  %8.4f  %11lld  %11lld  %6.2f %%  %8lld  %9d  %10lld  %8.2f\n", modes[mode],
           r.lower_bound ? (double)r.max_load / (double)r.lower_bound : 1.0,
           (long long)r.moved_items, (long long)r.moved_rows,
           rows ? 100.0 * (double)r.moved_rows / (double)rows : 0.0, (long long)r.messages,
           r.most_peers, (long long)r.node_rows, ms);
}

static void print_object(int mode, const lierne_assignment *a) {
    lierne_assignment_report r = {.size = sizeof r};
    lierne_assignment_get_report(&r, a);
    printf("{\"mode\": \"%s\", \"step\": %d, \"lower_bound\": %lld, \"threshold\": %lld, "
           "\"max_load\": %lld, \"moved_items\": %lld, \"moved_rows\": %lld, \"node_rows\": %lld, "
           "\"messages\": %lld, \"most_peers\": %d}",
           modes[mode], r.step, (long long)r.lower_bound, (long long)r.threshold,
           (long long)r.max_load, (long long)r.moved_items, (long long)r.moved_rows,
           (long long)r.node_rows, (long long)r.messages, r.most_peers);
}

/* Returns how many modes have an assignment; what a mode refuses is said on standard error. */
static int print_modes(input *in, char **argv, bool json) {
    int printed = 0;
    printf(json ? "["
                : "mode        max / LB  items moved   rows moved            messages      peers  "
                  " node rows        ms\n");
    for (int mode = 0; mode < NMODES; mode++) {
        double ms;
        lierne_assignment *a = assign(in, mode, &ms);
        if (!a) {
            tool_say(argv, "%s: %s", modes[mode], tool_reason());
        } else if (json) {
            printf(printed ? ",\n " : "");
            print_object(mode, a);
        } else {
            print_row(in, mode, a, ms);
        }
        printed += a != NULL;
        lierne_assignment_destroy(a);
    }
    printf(json ? "]\n" : "");
    return printed;
}

/* A rank per item, in the order of the file. */
static int print_ranks(input *in, char **argv, const balance_table *t, int mode, bool json) {
    double ms;
    lierne_assignment *a = assign(in, mode, &ms);
    const int32_t *ranks = lierne_assignment_get_ranks(a);
    int *printed = calloc((size_t)t->n + 1, sizeof *printed);
    if (!a || !printed) {
        tool_say(argv, "%s: %s", modes[mode], a ? "no memory" : tool_reason());
    }
    for (int64_t i = 0; a && printed && i < t->n; i++) {
        printed[t->at[i].line] = ranks[i];
    }
    for (int64_t i = 0; a && printed && !json && i < t->n; i++) {
        printf("%d\n", printed[i]);
    }
    if (a && printed && json) {
        tool_print_ints(stdout, printed, (int)t->n);
        printf("\n");
    }
    int status = a && printed ? TOOL_VALID : TOOL_INVALID;
    free(printed);
    lierne_assignment_destroy(a);
    return status;
}

/* Options that are numbers; *to stays without one. Returns -1 to go on. */
static int read_option(char **argv, const char *name, const char *text, int64_t *to) {
    int64_t number;
    if (!text) {
        return -1;
    }
    if (!balance_parse_number(&number, text)) {
        return tool_usage(argv, "--%s is '%s', must be a number, at least 0", name, text);
    }
    *to = number;
    return -1;
}

/* A picture, or a simulation, of one mode. */
static int show(input *in, char **argv, int mode, int format) {
    double ms;
    char title[96];
    lierne_assignment *a = assign(in, mode, &ms);
    int status = TOOL_VALID;
    if (!a) {
        tool_say(argv, "%s: %s", modes[mode], tool_reason());
        return TOOL_INVALID;
    }
    snprintf(title, sizeof title, "%s: %lld items on %d ranks", modes[mode],
             (long long)in->items.nitems, in->nranks);
    if (format != SVG) {
        status =
            balance_simulate(argv, &in->items, in->counts, in->nranks, a, title, format == JSON);
    } else if (!balance_draw(&in->items, in->counts, in->nranks, in->spec.nodes, a, title)) {
        status = tool_usage(argv, "no memory for the picture");
    }
    lierne_assignment_destroy(a);
    return status;
}

static int print(input *in, char **argv, const balance_table *t, int mode, int format) {
    if (format == SVG || in->simulates) {
        return show(in, argv, mode < 0 ? LIERNE_BALANCE_SHED : mode, format);
    }
    return mode >= 0 ? print_ranks(in, argv, t, mode, format == JSON)
           : print_modes(in, argv, format == JSON) > 0 ? TOOL_VALID
                                                       : TOOL_INVALID;
}

static int run(input *in, char **argv, const char *path, const int64_t *numbers, int mode,
               int format) {
    balance_table t = {.highest = -1};
    int status = balance_read(&t, argv, path);
    int64_t nranks = numbers[0] > 0 ? numbers[0] : t.nranks > 0 ? t.nranks : t.highest + 1;
    if (status < 0 && (t.highest >= nranks || nranks > LIERNE_MAX_RANKS)) {
        tool_say(argv, "%s has an item of rank %lld, and there are %lld ranks, must be at most %d",
                 path, (long long)t.highest, (long long)nranks, LIERNE_MAX_RANKS);
        status = TOOL_USAGE;
    }
    in->nranks = nranks > 0 ? (int)nranks : 1;
    if (status < 0 && !fill_input(in, &t, numbers[1])) {
        tool_say(argv, "no memory for %lld items", (long long)t.n);
        status = TOOL_USAGE;
    }
    if (status < 0) {
        status = print(in, argv, &t, mode, format);
    }
    free(in->cost);
    free(in->rows);
    free(in->counts);
    free(in->nodes);
    free(t.at);
    return status;
}

int tool_balance(int argc, char **argv) {
    static const char *const names[] = {"ranks",     "node-ranks", "tolerance",
                                        "max-items", "max-rows",   "min-items"};
    const char *texts[6] = {NULL}, *mode = NULL, *format = NULL, *path;
    int64_t numbers[6] = {0, 0, LIERNE_DEFAULT_TOLERANCE, 0, 0, 0};
    bool equal = false, simulates = false;
    const tool_option options[] = {
        {"ranks", 'n', &texts[0], NULL, NULL},
        {"node-ranks", 0, &texts[1], NULL, NULL},
        {"tolerance", 0, &texts[2], NULL, NULL},
        {"max-items", 0, &texts[3], NULL, NULL},
        {"max-rows", 0, &texts[4], NULL, NULL},
        {"min-items", 0, &texts[5], NULL, NULL},
        {"equal-items", 0, NULL, &equal, NULL},
        {"simulate", 0, NULL, &simulates, NULL},
        {"mode", 'm', &mode, NULL, "shed lpt kk contiguous"},
        {"format", 0, &format, NULL, "text json svg"},
    };
    static const char *const formats[] = {"text", "json", "svg", NULL};
    int kind, index = -1,
              status = tool_parse(argc, argv, help, options, sizeof options / sizeof *options);
    for (int i = 0; status < 0 && i < 6; i++) {
        status = read_option(argv, names[i], texts[i], &numbers[i]);
    }
    status = status < 0 ? tool_format(argv, format, formats, &kind) : status;
    status = status < 0 ? tool_one_file(argc, argv, &path) : status;
    for (int i = 0; status < 0 && mode && i < NMODES; i++) {
        index = strcmp(mode, modes[i]) == 0 ? i : index;
    }
    if (status < 0 && mode && index < 0) {
        status = tool_usage(argv, "--mode is '%s', must be shed, lpt, kk or contiguous", mode);
    }
    if (status < 0 && simulates && kind == SVG) {
        status = tool_usage(argv, "--simulate prints text or json, not svg");
    }
    if (status >= 0) {
        return status;
    }
    input in = {.spec = LIERNE_BALANCE_SPEC_INIT};
    in.spec.tolerance = numbers[2] > 1024 ? 1025 : (int)numbers[2];
    in.spec.max_items = numbers[3], in.spec.max_rows = numbers[4], in.spec.min_items = numbers[5];
    in.spec.equal_items = equal;
    in.simulates = simulates;
    return run(&in, argv, path, numbers, index, kind);
}
