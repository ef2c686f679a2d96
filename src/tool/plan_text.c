/* lierne plan as text: for a reader who wants to know whether this is the intended mapping, and
 * what it costs. */
#include "plan.h"

#include <inttypes.h>

enum {
    COLUMNS = 96,
    MOST_RANKS = 64,
    MOST_GROUPS = 64,
    MOST_LISTED = 64,
    MOST_MEMBERS = 32,
    FEW_MEMBERS = 8
};

/* Of a list with n entries: those that are printed. */
static int shown(const plan_summary *summary, int n, int most) {
    return summary->all || n <= most ? n : most;
}

static void print_left_out(int all, int printed, const char *what) {
    if (all > printed) {
        printf("%s... %d more (--all)\n", what, all - printed);
    }
}

void plan_print_grid(const char *name, const lierne_grid *grid, const char *view) {
    int first = lierne_grid_get_rank_offset(grid);
    printf("  ");
    tool_print_padded(name, -10);
    if (view) {
        printf(" view ");
        tool_print_text(stdout, view);
        printf(":");
    }
    for (int d = 0; d < lierne_grid_get_ndims(grid, view); d++) {
        printf(" ");
        tool_print_text(stdout, lierne_grid_get_dim_name(grid, view, d));
        printf(" %d,", lierne_grid_get_dim_size(grid, view, d));
    }
    printf(" ranks %d to %d\n", first, first + lierne_grid_get_size(grid) - 1);
}

static void print_tensor(const plan_summary *summary) {
    const lierne_bridge_spec *spec = &summary->bridge->spec;
    int64_t bytes = (int64_t)lierne_dtype_size(spec->dtype);
    printf("  %-10s", "tensor");
    for (int a = 0; a < spec->naxes; a++) {
        const char *name =
            lierne_config_get_bridge_axis(summary->bridge->config, summary->bridge->name, a);
        printf(" %s %" PRId64 ",", name, spec->shape[a]);
        bytes *= spec->shape[a];
    }
    printf(" %s: %" PRId64 " bytes\n", lierne_dtype_name(spec->dtype), bytes);
    if (spec->rows_per_sample) {
        printf("  %-10s %" PRId64 " of each sample, by %s\n", "rows", spec->rows_per_sample,
               spec->row_order == LIERNE_ROW_ORDER_SAMPLE_MAJOR ? "sample" : "sequence");
    }
    printf("  %-10s %s, stored %s\n", "gradient", tool_bridge_owner(spec->gradient_owner),
           spec->gradient_storage == LIERNE_STORAGE_COMPACT ? "compact" : "full");
    if (spec->output == LIERNE_BRIDGE_OUTPUT_SHARDED) {
        printf("  %-10s sharded: own rows, stored as the gradient\n", "output");
    }
}

static void print_mapping(const plan_summary *summary) {
    const int *ranks;
    int count;
    lierne_megatron_kind kind = lierne_megatron_map_get_kind(summary->map);
    const char *rejection = lierne_megatron_map_get_rejection(summary->map);
    printf("direction %s, dp ratio %d\n", lierne_megatron_kind_name(kind),
           lierne_megatron_map_get_dp_ratio(summary->map));
    if (*rejection) {
        printf("Megatron-LM's colocated bridge rejects this pair of grids: ");
        tool_print_text(stdout, rejection);
        printf("\n");
    }
    lierne_megatron_map_get_misaligned(&ranks, &count, summary->map);
    if (count > 0) {
        printf("On %d rank%s the dp ranks are misaligned; Megatron-LM delivers another dp rank's "
               "samples there:\n  ",
               count, count == 1 ? "" : "s");
        tool_print_ints(stdout, ranks, shown(summary, count, MOST_LISTED));
        printf("\n");
        print_left_out(count, shown(summary, count, MOST_LISTED), "  ");
    }
}

static void print_dims(const lierne_grid *grid, const char *view) {
    for (int d = 0; d < lierne_grid_get_ndims(grid, view); d++) {
        printf(" ");
        tool_print_padded(lierne_grid_get_dim_name(grid, view, d), 4);
    }
}

static void print_coords(const lierne_grid *grid, const char *view, int rank) {
    int coords[LIERNE_MAX_DIMS];
    bool inside = lierne_grid_get_coords(coords, grid, view, rank) == LIERNE_OK;
    for (int d = 0; d < lierne_grid_get_ndims(grid, view); d++) {
        int width = tool_text_columns(lierne_grid_get_dim_name(grid, view, d));
        width = width < 4 ? 4 : width;
        if (inside) {
            printf(" %*d", width, coords[d]);
        } else {
            printf(" %*s", width, "-");
        }
    }
}

static void print_table(const plan_summary *summary, const char *src, const char *dst) {
    const lierne_bridge_spec *spec = &summary->bridge->spec;
    int64_t start;
    int64_t size;
    printf("\n%sCoordinates on ", tool_paint(stdout, TOOL_HEAD));
    tool_print_text(stdout, src);
    printf(" | on ");
    tool_print_text(stdout, dst);
    printf(" | slice: the samples that this rank keeps%s\n%6s", tool_paint(stdout, TOOL_PLAIN),
           "rank");
    print_dims(spec->src, spec->src_view);
    printf("  |");
    print_dims(spec->dst, spec->dst_view);
    printf("  |  slice\n");
    int end = summary->first + shown(summary, summary->end - summary->first, MOST_RANKS);
    for (int rank = summary->first; rank < end; rank++) {
        printf("%6d", rank);
        print_coords(spec->src, spec->src_view, rank);
        printf("  |");
        print_coords(spec->dst, spec->dst_view, rank);
        if (plan_summary_slice(summary, rank, &start, &size)) {
            printf("  |  %" PRId64 " to %" PRId64 " of %" PRId64 "\n", start, start + size,
                   summary->wide[rank - summary->first]);
        } else {
            printf("  |  -\n");
        }
    }
    print_left_out(summary->end, end, "   ");
}

/* Prints a group on this line, or on the next one if it does not fit; returns the new column. */
static int print_group(const plan_summary *summary, const int *ranks, int size, int column) {
    int listed = summary->all || size <= MOST_MEMBERS ? size : FEW_MEMBERS;
    char rest[40] = "";
    int width = 2; /* a blank and a bracket; the other bracket takes the last comma's place */
    for (int i = 0; i < listed; i++) {
        width += snprintf(NULL, 0, "%d,", ranks[i]);
    }
    if (listed < size) {
        width += snprintf(rest, sizeof rest, "... %d more (--all)", size - listed);
    }
    if (column > 1 && column + width > tool_width(COLUMNS)) {
        printf("\n ");
        column = 1;
    }
    printf(" ");
    tool_print_ints(stdout, ranks, listed);
    printf("%s", rest);
    return column + width;
}

static void print_groups(const plan_summary *summary, const char *title, const int *ranks,
                         int ngroups, int size) {
    if (ngroups == 0) {
        printf("%s: none\n", title);
        return;
    }
    printf("%s: %d of %d rank%s\n ", title, ngroups, size, size == 1 ? "" : "s");
    int column = 1, printed = 0, matching = 0;
    for (int g = 0; g < ngroups; g++) {
        if (plan_summary_shows(summary, ranks + g * size, size) &&
            (++matching <= MOST_GROUPS || summary->all)) {
            column = print_group(summary, ranks + g * size, size, column);
            printed++;
        }
    }
    printf("\n");
    print_left_out(matching, printed, "  ");
}

static void print_all_groups(const plan_summary *summary) {
    const int *ranks;
    int ngroups;
    int size;
    printf("\n");
    lierne_megatron_map_get_gather_groups(&ranks, &ngroups, &size, summary->map);
    print_groups(summary, "gather groups", ranks, ngroups, size);
    lierne_megatron_map_get_cp_groups(&ranks, &ngroups, &size, summary->map);
    print_groups(summary, "cp groups", ranks, ngroups, size);
}

static void print_crossings(const plan_summary *summary, const int *leaders, int n) {
    const int *to, *from;
    int nto, nfrom;
    for (int i = 0; i < n; i++) {
        lierne_megatron_leaders_get_peers(&to, &nto, &from, &nfrom, summary->leaders, leaders[i]);
        if (plan_summary_shows(summary, &leaders[i], 1) || plan_summary_shows(summary, to, nto)) {
            printf("  %d -> ", leaders[i]);
            tool_print_ints(stdout, to, nto);
            printf("\n");
        }
    }
}

static void print_leaders(const plan_summary *summary) {
    const int *ranks;
    int n;
    int size;
    lierne_megatron_leaders_get_groups(&ranks, &n, &size, summary->leaders,
                                       LIERNE_MEGATRON_SIDE_SRC);
    print_groups(summary, "broadcast groups of the source", ranks, n, size);
    lierne_megatron_leaders_get_groups(&ranks, &n, &size, summary->leaders,
                                       LIERNE_MEGATRON_SIDE_DST);
    print_groups(summary, "broadcast groups of the destination", ranks, n, size);
    lierne_megatron_leaders_get_p2p_ranks(&ranks, &n, summary->leaders);
    printf("leaders: ");
    tool_print_ints(stdout, ranks, n);
    printf("; forward\n");
    lierne_megatron_leaders_get_ranks(&ranks, &n, summary->leaders, LIERNE_MEGATRON_SIDE_SRC);
    print_crossings(summary, ranks, n);
}

/* A number of bytes and the bound of it, which is known of all ranks only. */
static void print_most(int64_t bytes, int64_t bound, bool one) {
    printf(" %16" PRId64, bytes);
    if (!one) {
        printf(" %14" PRId64, bound);
    }
}

static void print_cost(const char *name, const plan_cost *cost, bool one) {
    printf("%-8s %16" PRId64 " %16" PRId64, name, cost->received_bytes, cost->min_bytes);
    if (!one) {
        print_most(cost->max_rank_bytes, cost->bound_rank_bytes, one);
    }
    print_most(cost->max_rank_sent, cost->bound_rank_sent, one);
    printf(" %9" PRId64 " %6" PRId64 "\n", cost->messages, cost->stages);
}

void plan_print_peers(int direction, const plan_cost *cost) {
    if (cost->most_peers > 0) {
        printf("%s: at most %" PRId64 " peers of a rank; %" PRId64 " bytes received are sent on\n",
               direction ? "adjoint" : "forward", cost->most_peers, cost->forwarded_bytes);
    }
}

static void print_costs(const plan_summary *summary) {
    const char *algorithm = tool_bridge_algorithm(summary->bridge->method);
    const char *on = tool_paint(stdout, TOOL_HEAD);
    bool one = summary->only >= 0;
    if (one) {
        printf("\n%sBytes of one execution, rank %d, algorithm %s", on, summary->only, algorithm);
    } else {
        printf("\n%sBytes of one execution, all ranks together, algorithm %s", on, algorithm);
    }
    printf("%s%s\n", summary->balanced ? ", balanced" : "", tool_paint(stdout, TOOL_PLAIN));
    if (one) {
        printf("%-8s %16s %16s %16s %9s %6s\n", "", "received", "share of minimum", "sent",
               "messages", "stages");
    } else {
        printf("%-8s %16s %16s %16s %14s %16s %14s %9s %6s\n", "", "received", "minimum",
               "most on a rank", "its bound", "most sent by one", "its bound", "messages",
               "stages");
    }
    print_cost("forward", &summary->cost[LIERNE_DIRECTION_FORWARD], one);
    print_cost("adjoint", &summary->cost[LIERNE_DIRECTION_ADJOINT], one);
    for (int d = LIERNE_DIRECTION_FORWARD; d <= LIERNE_DIRECTION_ADJOINT; d++) {
        const plan_cost *cost = &summary->cost[d];
        if (cost->nodes) {
            plan_nodes_text(d ? "adjoint" : "forward", cost, !one);
        }
        plan_print_peers(d, cost);
        if (cost->direct_ns > 0) {
            printf("%s by the links: direct %.1f us, balanced %.1f us\n", d ? "adjoint" : "forward",
                   (double)cost->direct_ns / 1e3, (double)cost->balanced_ns / 1e3);
        }
    }
    printf("groups of the plan: %" PRId64 " on a rank\n", summary->groups);
}

void plan_print_text(const plan_summary *summary) {
    const tool_bridge *bridge = summary->bridge;
    const char *src = lierne_config_get_bridge_src(bridge->config, bridge->name);
    const char *dst = lierne_config_get_bridge_dst(bridge->config, bridge->name);
    printf("bridge ");
    tool_print_text(stdout, bridge->name);
    printf(": ");
    tool_print_text(stdout, src);
    printf(" -> ");
    tool_print_text(stdout, dst);
    printf(", world of %d rank%s\n", bridge->world, bridge->world == 1 ? "" : "s");
    plan_print_grid(src, bridge->spec.src, bridge->spec.src_view);
    plan_print_grid(dst, bridge->spec.dst, bridge->spec.dst_view);
    print_tensor(summary);
    print_mapping(summary);
    print_table(summary, src, dst);
    print_all_groups(summary);
    if (summary->leaders) {
        print_leaders(summary);
    }
    print_costs(summary);
    plan_semantics_text(bridge);
    if (summary->only >= 0) {
        for (int d = LIERNE_DIRECTION_FORWARD; d <= LIERNE_DIRECTION_ADJOINT; d++) {
            printf("\n%s%s route of rank %d%s\n", tool_paint(stdout, TOOL_HEAD),
                   d ? "adjoint" : "forward", summary->only, tool_paint(stdout, TOOL_PLAIN));
            plan_route_text(summary->route[d], summary->all);
        }
    }
}
