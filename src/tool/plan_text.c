/* lierne plan as text: for a reader who wants to know whether this is the intended mapping, and
 * what it costs. */
#include "plan.h"

#include <inttypes.h>
#include <string.h>

enum { COLUMNS = 80, MOST_LISTED = 64, MOST_MEMBERS = 32, FEW_MEMBERS = 8 };

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
    char text[TOOL_BYTES];
    const lierne_bridge_spec *spec = &summary->bridge->spec;
    int64_t bytes = (int64_t)lierne_dtype_size(spec->dtype);
    printf("  %-10s", "tensor");
    for (int a = 0; a < spec->naxes; a++) {
        const char *name =
            lierne_config_get_bridge_axis(summary->bridge->config, summary->bridge->name, a);
        printf(" %s %" PRId64 ",", name, spec->shape[a]);
        bytes *= spec->shape[a];
    }
    printf(" %s: %s\n", lierne_dtype_name(spec->dtype), tool_bytes(text, bytes));
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

/* A sentence in lines that fit, each indented; a word that does not fit has a line of its own. */
static void print_wrapped(const char *text) {
    char word[1024];
    int column = 0;
    for (size_t length; *text; text += length + strspn(text + length, " ")) {
        length = strcspn(text, " ");
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        int width = tool_text_columns(word);
        bool fits = column == 0 || column + 1 + width <= tool_width(COLUMNS);
        printf("%s", column == 0 ? "  " : fits ? " " : "\n  ");
        tool_print_text(stdout, word);
        column = fits && column ? column + 1 + width : 2 + width;
    }
    printf("\n");
}

/* A list of ranks in lines that fit, each indented. */
static void print_ranks(const int *ranks, int count) {
    int column = printf("  [");
    for (int i = 0; i < count; i++) {
        int width = snprintf(NULL, 0, "%d,", ranks[i]);
        if (column + width > tool_width(COLUMNS)) {
            column = printf("\n   ") - 1;
        }
        printf("%d%s", ranks[i], i + 1 < count ? "," : "]\n");
        column += width;
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
        printf("Megatron-LM's colocated bridge rejects this pair of grids:\n");
        print_wrapped(rejection);
    }
    lierne_megatron_map_get_misaligned(&ranks, &count, summary->map);
    if (count > 0) {
        printf("On %d rank%s the dp ranks are misaligned; Megatron-LM delivers samples of\n"
               "another dp rank there:\n",
               count, count == 1 ? "" : "s");
        print_ranks(ranks, shown(summary, count, MOST_LISTED));
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
    printf(" | slice: samples that the rank keeps%s\n%6s", tool_paint(stdout, TOOL_PLAIN), "rank");
    print_dims(spec->src, spec->src_view);
    printf("  |");
    print_dims(spec->dst, spec->dst_view);
    printf("  |  slice\n");
    for (int rank = summary->first; rank < summary->end; rank++) {
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
    int column = 1;
    for (int g = 0; g < ngroups; g++) {
        if (plan_summary_shows(summary, ranks + g * size, size)) {
            column = print_group(summary, ranks + g * size, size, column);
        }
    }
    if (column == 1) {
        printf(" rank %d is in none", summary->only);
    }
    printf("\n");
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

static void print_costs(const plan_summary *summary) {
    bool one = summary->only >= 0;
    printf("\n%sOne execution, ", tool_paint(stdout, TOOL_HEAD));
    printf(one ? "rank %d" : "all ranks together", summary->only);
    printf(", algorithm %s%s%s\n", tool_bridge_algorithm(summary->bridge->method),
           summary->balanced ? ", balanced" : "", tool_paint(stdout, TOOL_PLAIN));
    plan_print_costs(summary, !one);
    if (summary->cost[LIERNE_DIRECTION_FORWARD].nodes) {
        (one ? plan_nodes_text_rank : plan_nodes_text)(summary->cost);
    }
    if (summary->groups > 0) {
        printf("groups of the plan: %" PRId64 " on a rank\n", summary->groups);
    }
}

/* Lists that most readers do not need. */
static void print_lists(const plan_summary *summary, const char *src, const char *dst) {
    print_table(summary, src, dst);
    print_all_groups(summary);
    if (summary->leaders) {
        print_leaders(summary);
    }
}

/* In two lines where one is too long. */
static void print_title(const tool_bridge *bridge, const char *src, const char *dst) {
    int columns = tool_text_columns(bridge->name) + tool_text_columns(src) + tool_text_columns(dst);
    printf("bridge ");
    tool_print_text(stdout, bridge->name);
    printf(": ");
    tool_print_text(stdout, src);
    printf(" -> ");
    tool_print_text(stdout, dst);
    printf(",%sworld of %d rank%s\n", columns > COLUMNS - 40 ? "\n  " : " ", bridge->world,
           bridge->world == 1 ? "" : "s");
}

void plan_print_text(const plan_summary *summary) {
    const tool_bridge *bridge = summary->bridge;
    const char *src = lierne_config_get_bridge_src(bridge->config, bridge->name);
    const char *dst = lierne_config_get_bridge_dst(bridge->config, bridge->name);
    print_title(bridge, src, dst);
    plan_print_grid(src, bridge->spec.src, bridge->spec.src_view);
    plan_print_grid(dst, bridge->spec.dst, bridge->spec.dst_view);
    print_tensor(summary);
    print_costs(summary);
    printf("\n");
    print_mapping(summary);
    if (summary->all || summary->only >= 0) {
        print_lists(summary, src, dst);
    } else {
        printf("Coordinates, groups and peers of all ranks: --all; of one: --rank\n");
    }
    plan_semantics_text(bridge);
    if (summary->only >= 0) {
        for (int d = LIERNE_DIRECTION_FORWARD; d <= LIERNE_DIRECTION_ADJOINT; d++) {
            printf("\n%s%s route of rank %d%s\n", tool_paint(stdout, TOOL_HEAD),
                   d ? "adjoint" : "forward", summary->only, tool_paint(stdout, TOOL_PLAIN));
            plan_route_text(summary->route[d], summary->all);
        }
    }
}
