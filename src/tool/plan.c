/* lierne plan: what a bridge does, without running it. Each rank is planned in a simulated world,
 * and only its numbers are kept, so that thousands of ranks fit in memory. */
#include "plan.h"
#include "place.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: lierne plan FILE --bridge B [OPTION]...\n"
    "       lierne plan --set FILE [--changed P] [--format FORMAT]\n"
    "Prints what a bridge does: mapping, groups, slices, bytes against the minimum.\n"
    "\n"
    "  -b, --bridge=B       the bridge\n"
    "  -a, --algorithm=A    direct, collective or leader (default: the file's)\n"
    "      --routing=R      auto (default), direct or balanced: who sends what\n"
    "      --max-peers=N    a rank exchanges messages with N ranks at most, by way of others\n"
    "      --links=L,B,L,B  what auto compares: latency in ns and MB/s inside a node,\n"
    "                       and to other nodes (default: the file's); a fifth number:\n"
    "                       MB/s of all ranks of a node to other nodes\n"
    "  -r, --rank=R         this rank's part only, and its routes\n"
    "      --all            also coordinates, groups and peers; long lists in full\n"
    "      --format=FORMAT  text (default) or json, which has all\n"
    "      --src, --dst, --tensor, --dtype: a bridge in place of FILE and --bridge, as\n"
    "                       --src tp2,dp4 --dst tp2,cp2,dp2 --tensor b8,s1024,h1024 --dtype bf16;\n"
    "                       the first dim varies fastest, tp2,dp4@8 begins at rank 8\n"
    "      --set=FILE       what a set of tensors moves, of a file that lists them (in\n"
    "                       docs/command.md) or names safetensors files\n"
    "      --changed=P      with --set: percent of the elements that change (default: 2)\n"
    "  -h, --help           show this help\n"
    "\n"
    "Exit status: 0 printed, 1 FILE has errors or the bridge cannot be planned,\n"
    "2 usage error or unreadable file.\n";

static int64_t max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static lierne_status keep_json(char **text, const lierne_plan *plan, lierne_direction direction) {
    const lierne_route *route;
    size_t length;
    lierne_status status = lierne_plan_get_route(&route, plan, direction);
    FILE *memory = status == LIERNE_OK ? tool_open_text(text, &length) : NULL;
    if (!memory) {
        return status == LIERNE_OK ? LIERNE_ERR_NO_MEMORY : status;
    }
    plan_route_json(memory, route);
    return fclose(memory) == 0 ? LIERNE_OK : LIERNE_ERR_NO_MEMORY;
}

/* The route, as the format wants it. */
static lierne_status keep_route(plan_summary *summary, const lierne_plan *plan,
                                lierne_direction direction) {
    char *text;
    if (summary->bridge->json) {
        return keep_json(&summary->route[direction], plan, direction);
    }
    lierne_status status = lierne_plan_print(&text, plan, direction);
    if (status == LIERNE_OK) {
        summary->route[direction] = strdup(text);
        lierne_text_destroy(text);
        status = summary->route[direction] ? LIERNE_OK : LIERNE_ERR_NO_MEMORY;
    }
    return status;
}

static lierne_status add_rank(plan_summary *summary, const lierne_plan *plan, int rank) {
    const lierne_bridge_spec *spec = &summary->bridge->spec;
    lierne_status status = LIERNE_OK;
    for (int d = LIERNE_DIRECTION_FORWARD; status == LIERNE_OK && d <= LIERNE_DIRECTION_ADJOINT;
         d++) {
        status = plan_add_cost(summary, plan, rank, (lierne_direction)d);
        if (status == LIERNE_OK) {
            status = plan_nodes_add(summary, plan, rank, (lierne_direction)d);
        }
        if (status == LIERNE_OK && summary->only >= 0) {
            status = keep_route(summary, plan, (lierne_direction)d);
        }
    }
    summary->wide[rank - summary->first] =
        max(place_samples(spec, PLACE_SOURCE, rank), place_samples(spec, PLACE_DESTINATION, rank));
    return status;
}

static int plan_ranks(plan_summary *summary, lierne_sim *sim, char **argv) {
    lierne_status status = LIERNE_OK;
    for (int rank = summary->first; status == LIERNE_OK && rank < summary->end; rank++) {
        lierne_plan *plan;
        tool_progress(argv, "planning", rank - summary->first, summary->end - summary->first);
        status = tool_bridge_plan(&plan, lierne_sim_get_context(sim, rank), NULL,
                                  &summary->bridge->spec, summary->bridge->method);
        if (status == LIERNE_OK) {
            status = add_rank(summary, plan, rank);
        }
        if (status == LIERNE_ERR_NO_MEMORY) {
            tool_say(argv, "no memory for the plan of rank %d", rank);
        } else if (status != LIERNE_OK) {
            tool_failed(argv);
        }
        lierne_plan_destroy(plan);
    }
    tool_progress_end();
    return status == LIERNE_OK ? TOOL_VALID : TOOL_INVALID;
}

static int plan_world(plan_summary *summary, char **argv) {
    lierne_sim *sim = tool_bridge_sim(summary->bridge, argv);
    if (!sim) {
        return TOOL_USAGE;
    }
    summary->wide = calloc((size_t)(summary->end - summary->first), sizeof *summary->wide);
    lierne_status nodes = plan_nodes_open(summary);
    int status = TOOL_INVALID;
    if (!summary->wide || nodes == LIERNE_ERR_NO_MEMORY) {
        status = tool_usage(argv, "no memory for %d ranks", summary->end - summary->first);
    } else if (nodes != LIERNE_OK) {
        tool_failed(argv);
    } else {
        status = plan_ranks(summary, sim, argv);
    }
    lierne_sim_destroy(sim);
    return status;
}

static lierne_status query_grids(plan_summary *summary) {
    const lierne_bridge_spec *spec = &summary->bridge->spec;
    lierne_status status = lierne_megatron_map_create(&summary->map, spec);
    if (status == LIERNE_OK && summary->bridge->method == TOOL_LEADER) {
        status = lierne_megatron_leaders_create(&summary->leaders, spec);
    }
    return status;
}

/* The bounds of both directions, which are those of all ranks. */
static lierne_status query_bounds(plan_summary *summary) {
    lierne_layout *src, *dst, *gradient;
    lierne_status status =
        lierne_layout_create_bridge(&src, &dst, &gradient, &summary->bridge->spec);
    for (int d = LIERNE_DIRECTION_FORWARD; status == LIERNE_OK && d <= LIERNE_DIRECTION_ADJOINT;
         d++) {
        plan_cost *cost = &summary->cost[d];
        status = lierne_redistribute_get_bound(&cost->bound_rank_bytes, &cost->bound_rank_sent,
                                               d ? gradient : src, d ? src : dst);
    }
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_layout_destroy(gradient);
    return status;
}

static void close_summary(plan_summary *summary) {
    lierne_megatron_map_destroy(summary->map);
    lierne_megatron_leaders_destroy(summary->leaders);
    free(summary->wide);
    plan_nodes_close(summary);
    free(summary->route[LIERNE_DIRECTION_FORWARD]);
    free(summary->route[LIERNE_DIRECTION_ADJOINT]);
}

static int print(const tool_bridge *bridge, int only, bool all, char **argv) {
    plan_summary summary = {.bridge = bridge,
                            .only = only,
                            .all = all,
                            .first = only < 0 ? 0 : only,
                            .end = only < 0 ? bridge->world : only + 1};
    int status = TOOL_INVALID;
    if (query_grids(&summary) == LIERNE_OK && (only >= 0 || query_bounds(&summary) == LIERNE_OK)) {
        status = plan_world(&summary, argv);
    } else {
        tool_failed(argv);
    }
    if (status == TOOL_VALID && bridge->json) {
        plan_print_json(&summary);
    } else if (status == TOOL_VALID) {
        plan_print_text(&summary);
    }
    close_summary(&summary);
    return status;
}

int tool_plan(int argc, char **argv) {
    tool_bridge bridge = {.takes_packed = true};
    const char *rank = NULL, *changed = NULL;
    int only = -1;
    bool all = false;
    const tool_option options[] = {{"rank", 'r', &rank, NULL, NULL},
                                   {"all", 0, NULL, &all, NULL},
                                   {"set", 0, &bridge.set, NULL, NULL},
                                   {"changed", 0, &changed, NULL, NULL}};
    int status = tool_bridge_parse(&bridge, argc, argv, help, options, 4);
    if (status < 0 && changed && !bridge.set) {
        status = tool_usage(argv, "--changed is for --set");
    }
    if (status < 0 && bridge.set) {
        return rank || all ? tool_usage(argv, "--set takes --changed and --format only")
                           : plan_print_set(bridge.set, changed, bridge.json, argv);
    }
    status = status < 0 ? tool_bridge_load(&bridge, argv) : status;
    status =
        status < 0 ? tool_bridge_number(argv, "--rank", rank, 0, bridge.world - 1, &only) : status;
    if (status < 0 && bridge.packed && only >= 0) {
        status = tool_usage(argv, "'%s' is a %s: without --rank", bridge.name,
                            packed_word(bridge.packed));
    }
    if (status < 0) {
        status =
            bridge.packed ? plan_print_packed(&bridge, all, argv) : print(&bridge, only, all, argv);
    }
    tool_bridge_close(&bridge);
    return status;
}
