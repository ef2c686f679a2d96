/* lierne plan: what a bridge does, without a job. Every rank of the world is planned on a simulated
 * one and only its numbers are kept, so that thousands of ranks fit. */
#include "plan.h"
#include "place.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: lierne plan FILE --bridge B [OPTION]...\n"
    "Prints what a bridge does: mapping, groups, slices, bytes against the minimum.\n"
    "\n"
    "  -b, --bridge=B       the bridge\n"
    "  -a, --algorithm=A    direct, collective or leader (default: the file's)\n"
    "  -r, --rank=R         this rank's part only, and its routes\n"
    "      --format=FORMAT  text (default) or json\n"
    "  -h, --help           show this help\n"
    "\n"
    "Exit status: 0 printed, 1 FILE has errors or the bridge cannot be planned,\n"
    "2 usage error or unreadable file.\n";

static int64_t max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static lierne_status add_cost(plan_view *view, const lierne_plan *plan,
                              lierne_direction direction) {
    lierne_report report = {.size = sizeof report};
    plan_cost *cost = &view->cost[direction];
    lierne_status status = lierne_plan_get_report(&report, plan, direction);
    cost->received_bytes += report.received_bytes;
    cost->min_bytes += report.min_bytes;
    cost->messages += report.received_messages;
    cost->max_rank_bytes = max(cost->max_rank_bytes, report.received_bytes);
    cost->max_rank_sent = max(cost->max_rank_sent, report.sent_bytes);
    cost->stages = max(cost->stages, report.stages);
    view->communicators = max(view->communicators, report.communicators);
    return status;
}

static lierne_status keep_json(char **text, const lierne_plan *plan, lierne_direction direction) {
    const lierne_route *route;
    size_t length;
    lierne_status status = lierne_plan_get_route(&route, plan, direction);
    FILE *memory = status == LIERNE_OK ? open_memstream(text, &length) : NULL;
    if (!memory) {
        return status == LIERNE_OK ? LIERNE_NO_MEMORY : status;
    }
    plan_route_json(memory, route);
    return fclose(memory) == 0 ? LIERNE_OK : LIERNE_NO_MEMORY;
}

/* The route, as the format wants it. */
static lierne_status keep_route(plan_view *view, const lierne_plan *plan,
                                lierne_direction direction) {
    char *text;
    if (view->job->json) {
        return keep_json(&view->route[direction], plan, direction);
    }
    lierne_status status = lierne_plan_print(&text, plan, direction);
    if (status == LIERNE_OK) {
        view->route[direction] = strdup(text);
        lierne_text_destroy(text);
        status = view->route[direction] ? LIERNE_OK : LIERNE_NO_MEMORY;
    }
    return status;
}

static lierne_status add_rank(plan_view *view, const lierne_plan *plan, int rank) {
    const lierne_bridge_spec *spec = &view->job->spec;
    lierne_status status = LIERNE_OK;
    for (int d = LIERNE_FORWARD; status == LIERNE_OK && d <= LIERNE_ADJOINT; d++) {
        status = add_cost(view, plan, (lierne_direction)d);
        if (status == LIERNE_OK && view->only >= 0) {
            status = keep_route(view, plan, (lierne_direction)d);
        }
    }
    view->wide[rank - view->first] =
        max(place_samples(spec, PLACE_SOURCE, rank), place_samples(spec, PLACE_DESTINATION, rank));
    return status;
}

static int plan_ranks(plan_view *view, lierne_sim *sim, char **argv) {
    lierne_status status = LIERNE_OK;
    for (int rank = view->first; status == LIERNE_OK && rank < view->end; rank++) {
        lierne_plan *plan;
        status = tool_job_plan(&plan, lierne_sim_get_context(sim, rank), &view->job->spec,
                               view->job->method);
        if (status == LIERNE_OK) {
            status = add_rank(view, plan, rank);
        }
        if (status != LIERNE_OK) {
            tool_failed(argv);
        }
        lierne_plan_destroy(plan);
    }
    return status == LIERNE_OK ? TOOL_VALID : TOOL_FINDINGS;
}

static int plan_world(plan_view *view, char **argv) {
    lierne_sim *sim = tool_job_sim(view->job, argv);
    if (!sim) {
        return TOOL_USAGE;
    }
    view->wide = calloc((size_t)(view->end - view->first), sizeof *view->wide);
    int status = view->wide ? plan_ranks(view, sim, argv)
                            : tool_usage(argv, "no memory for %d ranks", view->end - view->first);
    lierne_sim_destroy(sim);
    return status;
}

static lierne_status query_grids(plan_view *view) {
    const lierne_bridge_spec *spec = &view->job->spec;
    lierne_status status = lierne_megatron_map_create(&view->map, spec);
    if (status == LIERNE_OK && view->job->method == TOOL_LEADER) {
        status = lierne_megatron_leaders_create(&view->leaders, spec);
    }
    return status;
}

static void close_view(plan_view *view) {
    lierne_megatron_map_destroy(view->map);
    lierne_megatron_leaders_destroy(view->leaders);
    free(view->wide);
    free(view->route[LIERNE_FORWARD]);
    free(view->route[LIERNE_ADJOINT]);
}

static int print(const tool_job *job, int only, char **argv) {
    plan_view view = {.job = job,
                      .only = only,
                      .first = only < 0 ? 0 : only,
                      .end = only < 0 ? job->world : only + 1};
    int status = TOOL_FINDINGS;
    if (query_grids(&view) == LIERNE_OK) {
        status = plan_world(&view, argv);
    } else {
        tool_failed(argv);
    }
    if (status == TOOL_VALID && job->json) {
        plan_print_json(&view);
    } else if (status == TOOL_VALID) {
        plan_print_text(&view);
    }
    close_view(&view);
    return status;
}

int tool_plan(int argc, char **argv) {
    tool_job job = {0};
    const char *rank = NULL;
    int only = -1;
    const tool_option options[] = {{"rank", 'r', &rank, NULL}};
    int status = tool_job_parse(&job, argc, argv, help, options, 1);
    status = status < 0 ? tool_job_load(&job, argv) : status;
    status = status < 0 ? tool_job_number(argv, "--rank", rank, 0, job.world - 1, &only) : status;
    status = status < 0 ? print(&job, only, argv) : status;
    tool_job_close(&job);
    return status;
}
