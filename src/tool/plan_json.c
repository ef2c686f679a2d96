/* lierne plan --format json. The keys are stable; ranks and groups are in Megatron-LM's order. */
#include "plan.h"

#include <inttypes.h>

static void print_coords(const plan_summary *summary, const char *key, const lierne_grid *grid,
                         const char *view) {
    int coords[LIERNE_MAX_DIMS];
    int ndims = lierne_grid_get_ndims(grid, view);
    const char *comma = "";
    printf(",\"%s\":{", key);
    for (int rank = summary->first; rank < summary->end; rank++) {
        if (lierne_grid_get_coords(coords, grid, view, rank) != LIERNE_OK) {
            continue;
        }
        printf("%s\"%d\":{", comma, rank);
        for (int d = 0; d < ndims; d++) {
            printf("%s", d ? "," : "");
            tool_print_string(stdout, lierne_grid_get_dim_name(grid, view, d));
            printf(":%d", coords[d]);
        }
        printf("}");
        comma = ",";
    }
    printf("}");
}

static void print_groups(const plan_summary *summary, const char *key, const int *ranks,
                         int ngroups, int size) {
    const char *comma = "";
    printf(",\"%s\":[", key);
    for (int g = 0; g < ngroups; g++) {
        if (plan_summary_shows(summary, ranks + g * size, size)) {
            printf("%s", comma);
            tool_print_ints(stdout, ranks + g * size, size);
            comma = ",";
        }
    }
    printf("]");
}

static void print_slices(const plan_summary *summary) {
    int64_t start;
    int64_t size;
    const char *comma = "";
    printf(",\"slices\":{");
    for (int rank = summary->first; rank < summary->end; rank++) {
        if (plan_summary_slice(summary, rank, &start, &size)) {
            printf("%s\"%d\":{\"start\":%" PRId64 ",\"size\":%" PRId64 "}", comma, rank, start,
                   size);
            comma = ",";
        }
    }
    printf("}");
}

static void print_cost(const plan_summary *summary, const char *key, const plan_cost *cost) {
    printf(",\"%s\":{\"bytes\":%" PRId64 ",\"max_rank_bytes\":%" PRId64 ",\"min_bytes\":%" PRId64
           ",\"messages\":%" PRId64 ",\"max_rank_sent_bytes\":%" PRId64,
           key, cost->received_bytes, cost->max_rank_bytes, cost->min_bytes, cost->messages,
           cost->max_rank_sent);
    if (cost->nodes) {
        plan_nodes_json(cost, summary->only < 0);
    }
    if (cost->most_peers > 0) {
        printf(",\"most_peers\":%" PRId64 ",\"forwarded_bytes\":%" PRId64, cost->most_peers,
               cost->forwarded_bytes);
    }
    if (cost->direct_ns > 0) {
        printf(",\"direct_ns\":%" PRId64 ",\"balanced_ns\":%" PRId64, cost->direct_ns,
               cost->balanced_ns);
    }
    if (summary->only < 0) {
        printf(",\"bound_rank_bytes\":%" PRId64 ",\"bound_rank_sent_bytes\":%" PRId64,
               cost->bound_rank_bytes, cost->bound_rank_sent);
    }
    printf("}");
}

static void print_peers(const plan_summary *summary, int rank, const char *comma) {
    const int *to, *from;
    int nto, nfrom;
    lierne_megatron_leaders_get_peers(&to, &nto, &from, &nfrom, summary->leaders, rank);
    printf("%s\"%d\":{\"role\":\"%s\",\"send_to\":", comma, rank,
           nto     ? "sender"
           : nfrom ? "receiver"
                   : "member");
    tool_print_ints(stdout, to, nto);
    printf(",\"recv_from\":");
    tool_print_ints(stdout, from, nfrom);
    printf("}");
}

static void print_leaders(const plan_summary *summary) {
    static const char *const keys[2] = {"src_broadcast_groups", "dst_broadcast_groups"};
    const lierne_bridge_spec *spec = &summary->bridge->spec;
    const int *ranks;
    int n, size, coords[LIERNE_MAX_DIMS];
    const char *comma = "";
    for (int side = LIERNE_MEGATRON_SIDE_SRC; side <= LIERNE_MEGATRON_SIDE_DST; side++) {
        lierne_megatron_leaders_get_ranks(&ranks, &n, summary->leaders, (lierne_megatron_side)side);
        printf("%s:", side ? ",\"dst\"" : ",\"leaders\":{\"src\"");
        tool_print_ints(stdout, ranks, n);
    }
    for (int side = LIERNE_MEGATRON_SIDE_SRC; side <= LIERNE_MEGATRON_SIDE_DST; side++) {
        lierne_megatron_leaders_get_groups(&ranks, &n, &size, summary->leaders,
                                           (lierne_megatron_side)side);
        print_groups(summary, keys[side], ranks, n, size);
    }
    lierne_megatron_leaders_get_p2p_ranks(&ranks, &n, summary->leaders);
    printf(",\"p2p_group\":");
    tool_print_ints(stdout, ranks, n);
    printf(",\"map\":{");
    for (int rank = summary->first; rank < summary->end; rank++) {
        if (lierne_grid_get_coords(coords, spec->src, NULL, rank) == LIERNE_OK ||
            lierne_grid_get_coords(coords, spec->dst, NULL, rank) == LIERNE_OK) {
            print_peers(summary, rank, comma);
            comma = ",";
        }
    }
    printf("}}");
}

void plan_print_json(const plan_summary *summary) {
    const lierne_bridge_spec *spec = &summary->bridge->spec;
    const int *ranks;
    int ngroups;
    int size;
    printf("{\"bridge\":");
    tool_print_string(stdout, summary->bridge->name);
    printf(",\"direction\":\"%s\",\"scale\":%d",
           lierne_megatron_kind_name(lierne_megatron_map_get_kind(summary->map)),
           lierne_megatron_map_get_dp_ratio(summary->map));
    print_coords(summary, "src_coords", spec->src, spec->src_view);
    print_coords(summary, "dst_coords", spec->dst, spec->dst_view);
    lierne_megatron_map_get_gather_groups(&ranks, &ngroups, &size, summary->map);
    print_groups(summary, "gather_groups", ranks, ngroups, size);
    lierne_megatron_map_get_cp_groups(&ranks, &ngroups, &size, summary->map);
    print_groups(summary, "cp_groups", ranks, ngroups, size);
    print_slices(summary);
    if (summary->leaders) {
        print_leaders(summary);
    }
    printf(",\"report\":{\"algorithm\":\"%s\"", tool_bridge_algorithm(summary->bridge->method));
    print_cost(summary, "forward", &summary->cost[LIERNE_DIRECTION_FORWARD]);
    print_cost(summary, "adjoint", &summary->cost[LIERNE_DIRECTION_ADJOINT]);
    if (summary->bridge->method == TOOL_DIRECT) {
        printf(",\"routing\":\"%s\"", summary->balanced ? "balanced" : "direct");
    }
    printf(",\"groups\":%" PRId64 "}", summary->groups);
    plan_semantics_json(summary->bridge);
    if (summary->only >= 0) {
        printf(",\"route\":{\"forward\":%s,\"adjoint\":%s}",
               summary->route[LIERNE_DIRECTION_FORWARD], summary->route[LIERNE_DIRECTION_ADJOINT]);
    }
    printf("}\n");
}
