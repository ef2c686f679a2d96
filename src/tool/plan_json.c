/* lierne plan --format json: the keys are a promise, the order of ranks and groups is Megatron's.
 */
#include "plan.h"

#include <inttypes.h>

static void print_coords(const plan_view *view, const char *key, const lierne_grid *grid,
                         const char *of) {
    int coords[LIERNE_MAX_DIMS];
    int ndims = lierne_grid_get_ndims(grid, of);
    const char *comma = "";
    printf(",\"%s\":{", key);
    for (int rank = view->first; rank < view->end; rank++) {
        if (lierne_grid_get_coords(coords, grid, of, rank) != LIERNE_OK) {
            continue;
        }
        printf("%s\"%d\":{", comma, rank);
        for (int d = 0; d < ndims; d++) {
            printf("%s", d ? "," : "");
            tool_print_string(stdout, lierne_grid_get_dim_name(grid, of, d));
            printf(":%d", coords[d]);
        }
        printf("}");
        comma = ",";
    }
    printf("}");
}

static void print_groups(const plan_view *view, const char *key, const int *ranks, int ngroups,
                         int size) {
    const char *comma = "";
    printf(",\"%s\":[", key);
    for (int g = 0; g < ngroups; g++) {
        if (plan_view_shows(view, ranks + g * size, size)) {
            printf("%s", comma);
            tool_print_ints(stdout, ranks + g * size, size);
            comma = ",";
        }
    }
    printf("]");
}

static void print_slices(const plan_view *view) {
    int64_t start;
    int64_t size;
    const char *comma = "";
    printf(",\"slices\":{");
    for (int rank = view->first; rank < view->end; rank++) {
        if (plan_view_slice(view, rank, &start, &size)) {
            printf("%s\"%d\":{\"start\":%" PRId64 ",\"size\":%" PRId64 "}", comma, rank, start,
                   size);
            comma = ",";
        }
    }
    printf("}");
}

static void print_cost(const char *key, const plan_cost *cost) {
    printf(",\"%s\":{\"bytes\":%" PRId64 ",\"max_rank_bytes\":%" PRId64 ",\"min_bytes\":%" PRId64
           ",\"messages\":%" PRId64 ",\"max_rank_sent_bytes\":%" PRId64 "}",
           key, cost->received_bytes, cost->max_rank_bytes, cost->min_bytes, cost->messages,
           cost->max_rank_sent);
}

static void print_peers(const plan_view *view, int rank, const char *comma) {
    const int *to, *from;
    int nto, nfrom;
    lierne_megatron_leaders_get_peers(&to, &nto, &from, &nfrom, view->leaders, rank);
    printf("%s\"%d\":{\"role\":\"%s\",\"send_to\":", comma, rank,
           nto     ? "sender"
           : nfrom ? "receiver"
                   : "member");
    tool_print_ints(stdout, to, nto);
    printf(",\"recv_from\":");
    tool_print_ints(stdout, from, nfrom);
    printf("}");
}

static void print_leaders(const plan_view *view) {
    static const char *const keys[2] = {"src_broadcast_groups", "dst_broadcast_groups"};
    const lierne_bridge_spec *spec = &view->job->spec;
    const int *ranks;
    int n, size, coords[LIERNE_MAX_DIMS];
    const char *comma = "";
    for (int side = LIERNE_MEGATRON_SRC; side <= LIERNE_MEGATRON_DST; side++) {
        lierne_megatron_leaders_get_ranks(&ranks, &n, view->leaders, (lierne_megatron_side)side);
        printf("%s:", side ? ",\"dst\"" : ",\"leaders\":{\"src\"");
        tool_print_ints(stdout, ranks, n);
    }
    for (int side = LIERNE_MEGATRON_SRC; side <= LIERNE_MEGATRON_DST; side++) {
        lierne_megatron_leaders_get_groups(&ranks, &n, &size, view->leaders,
                                           (lierne_megatron_side)side);
        print_groups(view, keys[side], ranks, n, size);
    }
    lierne_megatron_leaders_get_p2p_ranks(&ranks, &n, view->leaders);
    printf(",\"p2p_group\":");
    tool_print_ints(stdout, ranks, n);
    printf(",\"map\":{");
    for (int rank = view->first; rank < view->end; rank++) {
        if (lierne_grid_get_coords(coords, spec->src, NULL, rank) == LIERNE_OK ||
            lierne_grid_get_coords(coords, spec->dst, NULL, rank) == LIERNE_OK) {
            print_peers(view, rank, comma);
            comma = ",";
        }
    }
    printf("}}");
}

void plan_print_json(const plan_view *view) {
    const lierne_bridge_spec *spec = &view->job->spec;
    const int *ranks;
    int ngroups;
    int size;
    printf("{\"bridge\":");
    tool_print_string(stdout, view->job->bridge);
    printf(",\"direction\":\"%s\",\"scale\":%d",
           lierne_megatron_kind_name(lierne_megatron_map_get_kind(view->map)),
           lierne_megatron_map_get_dp_ratio(view->map));
    print_coords(view, "src_coords", spec->src, spec->src_view);
    print_coords(view, "dst_coords", spec->dst, spec->dst_view);
    lierne_megatron_map_get_gather_groups(&ranks, &ngroups, &size, view->map);
    print_groups(view, "gather_groups", ranks, ngroups, size);
    lierne_megatron_map_get_cp_groups(&ranks, &ngroups, &size, view->map);
    print_groups(view, "cp_groups", ranks, ngroups, size);
    print_slices(view);
    if (view->leaders) {
        print_leaders(view);
    }
    printf(",\"report\":{\"algorithm\":\"%s\"", tool_job_algorithm(view->job->method));
    print_cost("forward", &view->cost[LIERNE_FORWARD]);
    print_cost("adjoint", &view->cost[LIERNE_ADJOINT]);
    printf(",\"communicators\":%" PRId64 "}", view->communicators);
    plan_semantics_json(view->job);
    if (view->only >= 0) {
        printf(",\"route\":{\"forward\":%s,\"adjoint\":%s}", view->route[LIERNE_FORWARD],
               view->route[LIERNE_ADJOINT]);
    }
    printf("}\n");
}
