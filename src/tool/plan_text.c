/* lierne plan as text, for a person who asks: is this the mapping that I meant, and what does it
 * cost. */
#include "plan.h"

#include <inttypes.h>

enum { COLUMNS = 96 };

static void print_grid(const char *name, const lierne_grid *grid, const char *of) {
    int first = lierne_grid_get_offset(grid);
    printf("  ");
    tool_print_padded(name, -10);
    if (of) {
        printf(" view ");
        tool_print_text(stdout, of);
        printf(":");
    }
    for (int d = 0; d < lierne_grid_get_ndims(grid, of); d++) {
        printf(" ");
        tool_print_text(stdout, lierne_grid_get_dim_name(grid, of, d));
        printf(" %d,", lierne_grid_get_dim_size(grid, of, d));
    }
    printf(" ranks %d to %d\n", first, first + lierne_grid_get_size(grid) - 1);
}

static void print_tensor(const plan_view *view) {
    const lierne_bridge_spec *spec = &view->job->spec;
    int64_t bytes = (int64_t)lierne_dtype_size(spec->dtype);
    printf("  %-10s", "tensor");
    for (int a = 0; a < spec->naxes; a++) {
        const char *name = lierne_config_get_bridge_axis(view->job->config, view->job->bridge, a);
        printf(" %s %" PRId64 ",", name, spec->shape[a]);
        bytes *= spec->shape[a];
    }
    printf(" %s: %" PRId64 " bytes\n", lierne_dtype_name(spec->dtype), bytes);
    if (spec->rows_per_sample) {
        printf("  %-10s %" PRId64 " of each sample, by %s\n", "rows", spec->rows_per_sample,
               spec->row_order == LIERNE_SAMPLE_MAJOR ? "sample" : "sequence");
    }
    printf("  %-10s %s, stored %s\n", "gradient", tool_job_owner(spec->gradient_owner),
           spec->gradient_storage == LIERNE_COMPACT ? "compact" : "full");
    if (spec->output == LIERNE_OUTPUT_SHARDED) {
        printf("  %-10s own rows, stored as the gradient\n", "deliver");
    }
}

static void print_mapping(const plan_view *view) {
    const int *ranks;
    int count;
    lierne_megatron_kind kind = lierne_megatron_map_get_kind(view->map);
    const char *refusal = lierne_megatron_map_get_rejection(view->map);
    printf("direction %s, scale %d\n", lierne_megatron_kind_name(kind),
           lierne_megatron_map_get_dp_ratio(view->map));
    if (*refusal) {
        printf("Megatron-LM's colocated bridge refuses this pair of grids: ");
        tool_print_text(stdout, refusal);
        printf("\n");
    }
    lierne_megatron_map_get_misaligned(&ranks, &count, view->map);
    if (count > 0) {
        printf("On %d rank%s the data lanes do not line up; Megatron-LM delivers another lane's "
               "samples there:\n  ",
               count, count == 1 ? "" : "s");
        tool_print_ints(stdout, ranks, count);
        printf("\n");
    }
}

static void print_dims(const lierne_grid *grid, const char *of) {
    for (int d = 0; d < lierne_grid_get_ndims(grid, of); d++) {
        printf(" ");
        tool_print_padded(lierne_grid_get_dim_name(grid, of, d), 4);
    }
}

static void print_coords(const lierne_grid *grid, const char *of, int rank) {
    int coords[LIERNE_MAX_DIMS];
    bool inside = lierne_grid_get_coords(coords, grid, of, rank) == LIERNE_OK;
    for (int d = 0; d < lierne_grid_get_ndims(grid, of); d++) {
        int width = tool_text_columns(lierne_grid_get_dim_name(grid, of, d));
        width = width < 4 ? 4 : width;
        if (inside) {
            printf(" %*d", width, coords[d]);
        } else {
            printf(" %*s", width, "-");
        }
    }
}

static void print_table(const plan_view *view, const char *src, const char *dst) {
    const lierne_bridge_spec *spec = &view->job->spec;
    int64_t start;
    int64_t size;
    printf("\nCoordinates on ");
    tool_print_text(stdout, src);
    printf(" | on ");
    tool_print_text(stdout, dst);
    printf(" | slice: samples of the wider lane that the rank keeps\n%6s", "rank");
    print_dims(spec->src, spec->src_view);
    printf("  |");
    print_dims(spec->dst, spec->dst_view);
    printf("  |  slice\n");
    for (int rank = view->first; rank < view->end; rank++) {
        printf("%6d", rank);
        print_coords(spec->src, spec->src_view, rank);
        printf("  |");
        print_coords(spec->dst, spec->dst_view, rank);
        if (plan_view_slice(view, rank, &start, &size)) {
            printf("  |  %" PRId64 " to %" PRId64 " of %" PRId64 "\n", start, start + size,
                   view->wide[rank - view->first]);
        } else {
            printf("  |  -\n");
        }
    }
}

/* Prints a group behind what stands in the line, or on the next one; returns the new column. */
static int print_group(const int *ranks, int size, int column) {
    int width = 2; /* a blank and a bracket; the other bracket takes the last comma's place */
    for (int i = 0; i < size; i++) {
        width += snprintf(NULL, 0, "%d,", ranks[i]);
    }
    if (column > 1 && column + width > COLUMNS) {
        printf("\n ");
        column = 1;
    }
    printf(" ");
    tool_print_ints(stdout, ranks, size);
    return column + width;
}

static void print_groups(const plan_view *view, const char *title, const int *ranks, int ngroups,
                         int size) {
    if (ngroups == 0) {
        printf("%s: none\n", title);
        return;
    }
    printf("%s: %d of %d rank%s\n ", title, ngroups, size, size == 1 ? "" : "s");
    int column = 1;
    for (int g = 0; g < ngroups; g++) {
        if (plan_view_shows(view, ranks + g * size, size)) {
            column = print_group(ranks + g * size, size, column);
        }
    }
    printf("\n");
}

static void print_all_groups(const plan_view *view) {
    const int *ranks;
    int ngroups;
    int size;
    printf("\n");
    lierne_megatron_map_get_gather_groups(&ranks, &ngroups, &size, view->map);
    print_groups(view, "gather groups", ranks, ngroups, size);
    lierne_megatron_map_get_cp_groups(&ranks, &ngroups, &size, view->map);
    print_groups(view, "cp groups", ranks, ngroups, size);
}

static void print_crossings(const plan_view *view, const int *leaders, int n) {
    const int *to, *from;
    int nto, nfrom;
    for (int i = 0; i < n; i++) {
        lierne_megatron_leaders_get_peers(&to, &nto, &from, &nfrom, view->leaders, leaders[i]);
        if (plan_view_shows(view, &leaders[i], 1) || plan_view_shows(view, to, nto)) {
            printf("  %d -> ", leaders[i]);
            tool_print_ints(stdout, to, nto);
            printf("\n");
        }
    }
}

static void print_leaders(const plan_view *view) {
    const int *ranks;
    int n;
    int size;
    lierne_megatron_leaders_get_groups(&ranks, &n, &size, view->leaders, LIERNE_MEGATRON_SRC);
    print_groups(view, "broadcast groups of the source", ranks, n, size);
    lierne_megatron_leaders_get_groups(&ranks, &n, &size, view->leaders, LIERNE_MEGATRON_DST);
    print_groups(view, "broadcast groups of the destination", ranks, n, size);
    lierne_megatron_leaders_get_p2p_ranks(&ranks, &n, view->leaders);
    printf("leaders: ");
    tool_print_ints(stdout, ranks, n);
    printf("; forward\n");
    lierne_megatron_leaders_get_ranks(&ranks, &n, view->leaders, LIERNE_MEGATRON_SRC);
    print_crossings(view, ranks, n);
}

static void print_cost(const char *name, const plan_cost *cost) {
    printf("%-8s %16" PRId64 " %16" PRId64 " %14" PRId64 " %16" PRId64 " %9" PRId64 " %6" PRId64
           "\n",
           name, cost->received_bytes, cost->min_bytes, cost->max_rank_bytes, cost->max_rank_sent,
           cost->messages, cost->stages);
}

static void print_costs(const plan_view *view) {
    const char *algorithm = tool_job_algorithm(view->job->method);
    bool one = view->only >= 0;
    if (one) {
        printf("\nBytes of one execution, rank %d, algorithm %s\n", view->only, algorithm);
    } else {
        printf("\nBytes of one execution, all ranks together, algorithm %s\n", algorithm);
    }
    printf("%-8s %16s %16s %14s %16s %9s %6s\n", "", "received",
           one ? "share of minimum" : "minimum", "most on a rank",
           one ? "sent" : "most sent by one", "messages", "stages");
    print_cost("forward", &view->cost[LIERNE_FORWARD]);
    print_cost("adjoint", &view->cost[LIERNE_ADJOINT]);
    printf("communicators beside the context's own: %" PRId64 " on a rank\n", view->communicators);
}

void plan_print_text(const plan_view *view) {
    const tool_job *job = view->job;
    const char *src = lierne_config_get_bridge_src(job->config, job->bridge);
    const char *dst = lierne_config_get_bridge_dst(job->config, job->bridge);
    printf("bridge ");
    tool_print_text(stdout, job->bridge);
    printf(": ");
    tool_print_text(stdout, src);
    printf(" -> ");
    tool_print_text(stdout, dst);
    printf(", world of %d rank%s\n", job->world, job->world == 1 ? "" : "s");
    print_grid(src, job->spec.src, job->spec.src_view);
    print_grid(dst, job->spec.dst, job->spec.dst_view);
    print_tensor(view);
    print_mapping(view);
    print_table(view, src, dst);
    print_all_groups(view);
    if (view->leaders) {
        print_leaders(view);
    }
    print_costs(view);
    plan_semantics_text(job);
    if (view->only >= 0) {
        printf("\nforward route of rank %d\n%s", view->only, view->route[LIERNE_FORWARD]);
        printf("\nadjoint route of rank %d\n%s", view->only, view->route[LIERNE_ADJOINT]);
    }
}
