/* lierne place: which order of a grid's dims moves the fewest bytes. All orders are tried, since a
 * grid has few dims that are larger than 1; the others stay where they are, as their place changes
 * nothing. Of equal orders the first is the best, and that of today comes first. */
#include "advise.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: lierne place FILE --bridge B [OPTION]...\n"
    "Advises an order of the dims of a grid of a bridge, with the bytes that it saves.\n"
    "\n"
    "  -b, --bridge=B       the bridge\n"
    "      --side=SIDE      whose dims are put in order: src (default) or dst\n"
    "      --routing=R      auto (default), direct or balanced: who sends what\n"
    "      --format=FORMAT  text (default) or json\n"
    "  -h, --help           show this help\n"
    "\n"
    "Counts what ranks receive from other ranks and, where FILE has nodes, from other nodes,\n"
    "forward and adjoint, as lierne plan does with algorithm direct and the same routing. Up\n"
    "to 512 ranks it also says what any order of the grid's ranks can save at most.\n"
    "Exit status: 0 printed, 1 FILE has errors or the bridge cannot be planned,\n"
    "2 usage error or unreadable file.\n";

enum { MOST_DIMS = 7, MOST_RANKS = 512 };

/* The next permutation in lexicographic order; false after the last. */
static bool next_permutation(int *at, int n) {
    int i = n - 2, j = n - 1;
    while (i >= 0 && at[i] > at[i + 1]) {
        i--;
    }
    if (i < 0) {
        return false;
    }
    while (at[j] < at[i]) {
        j--;
    }
    for (int k = n; i < j; i++, j = --k) {
        int kept = at[i];
        at[i] = at[j];
        at[j] = kept;
    }
    return true;
}

static void keep_better(advice *a, const advise_order *order) {
    int64_t ranks = advise_bytes(order) - advise_bytes(&a->best);
    int64_t nodes = advise_between(order) - advise_between(&a->best);
    if (ranks < 0 || (ranks == 0 && nodes < 0)) {
        a->best = *order;
    }
    ranks = advise_bytes(order) - advise_bytes(&a->nearest);
    nodes = advise_between(order) - advise_between(&a->nearest);
    if (nodes < 0 || (nodes == 0 && ranks < 0)) {
        a->nearest = *order;
    }
}

/* Counts an order. One that the bridge rejects, as a zigzag may not divide in it, is left out. */
static lierne_status try_order(advice *a, const int *large, const int *permuted, int nlarge) {
    advise_order order = {.bytes = {0}};
    memcpy(order.dims, a->today.dims, sizeof order.dims);
    for (int i = 0; i < nlarge; i++) {
        order.dims[large[i]] = permuted[i];
    }
    lierne_status status = advise_count(a, &order);
    if (a->orders == 0 && status == LIERNE_OK) {
        a->today = a->best = a->nearest = order;
    }
    if (status == LIERNE_OK) {
        keep_better(a, &order);
        a->orders++;
    }
    bool rejected = status == LIERNE_ERR_INVALID || status == LIERNE_ERR_INDIVISIBLE;
    return rejected && a->orders > 0 ? LIERNE_OK : status;
}

static lierne_status try_orders(advice *a, char **argv, const int *large, int nlarge) {
    int permuted[MOST_DIMS] = {0};
    int all = 1, done = 0;
    for (int i = 0; i < nlarge; i++) {
        permuted[i] = large[i];
        all *= i + 1;
    }
    lierne_status status;
    do {
        tool_progress(argv, "counting orders", done++, all);
        status = try_order(a, large, permuted, nlarge);
    } while (status == LIERNE_OK && next_permutation(permuted, nlarge));
    tool_progress_end();
    return status;
}

static int find_large(const advice *a, int *large) {
    int n = 0;
    for (int d = 0; d < a->ndims; d++) {
        if (lierne_grid_get_dim_size(a->grid, a->view, d) > 1) {
            large[n++] = d;
        }
    }
    return n;
}

static int advise(advice *a, bool json, char **argv) {
    int large[LIERNE_MAX_DIMS];
    int nlarge = find_large(a, large);
    if (nlarge > MOST_DIMS) {
        tool_say(argv, "the %s of bridge '%s' has %d dims larger than 1, must be at most %d",
                 a->dst ? "destination" : "source", a->bridge->name, nlarge, MOST_DIMS);
        return TOOL_INVALID;
    }
    for (int d = 0; d < a->ndims; d++) {
        a->today.dims[d] = d;
    }
    lierne_status status = try_orders(a, argv, large, nlarge);
    if (status == LIERNE_OK && a->bridge->world <= MOST_RANKS) {
        status = advise_bound(a);
    }
    if (status == LIERNE_ERR_NO_MEMORY) {
        return tool_usage(argv, "no memory for %d ranks", a->bridge->world);
    }
    if (status != LIERNE_OK) {
        tool_failed(argv);
        return TOOL_INVALID;
    }
    (json ? advise_print_json : advise_print_text)(a);
    return TOOL_VALID;
}

static int advise_bridge(const tool_bridge *bridge, bool dst, bool json, char **argv) {
    const lierne_bridge_spec *spec = &bridge->spec;
    advice a = {.bridge = bridge,
                .dst = dst,
                .grid = dst ? spec->dst : spec->src,
                .view = dst ? spec->dst_view : spec->src_view,
                .nodes = lierne_config_get_nodes(bridge->config)};
    a.ndims = lierne_grid_get_ndims(a.grid, a.view);
    a.sim = tool_bridge_sim(bridge, argv);
    int status = a.sim ? advise(&a, json, argv) : TOOL_USAGE;
    lierne_sim_destroy(a.sim);
    free(a.position);
    return status;
}

int tool_place(int argc, char **argv) {
    tool_bridge bridge = {0};
    const char *side = NULL, *format = NULL;
    bool json = false;
    const tool_option options[] = {{"bridge", 'b', &bridge.name, NULL, NULL},
                                   {"side", 0, &side, NULL, "src dst"},
                                   {"routing", 0, &bridge.routing, NULL, "auto direct balanced"},
                                   {"format", 0, &format, NULL, "text json"}};
    int status = tool_parse(argc, argv, help, options, sizeof options / sizeof *options);
    status = status < 0 ? tool_json(argv, format, &json) : status;
    status = status < 0 ? tool_one_file(argc, argv, &bridge.path) : status;
    if (status < 0 && !bridge.name) {
        return tool_missing(argv, "bridge", bridge.path);
    }
    if (status < 0 && side && strcmp(side, "src") != 0 && strcmp(side, "dst") != 0) {
        return tool_usage(argv, "--side is '%s', must be src or dst", side);
    }
    status = status < 0 ? tool_bridge_routing(&bridge, argv) : status;
    status = status < 0 ? tool_bridge_load(&bridge, argv) : status;
    if (status < 0) {
        status = advise_bridge(&bridge, side && strcmp(side, "dst") == 0, json, argv);
    }
    tool_bridge_close(&bridge);
    return status;
}
