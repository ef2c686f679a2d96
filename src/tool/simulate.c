/* lierne simulate: the whole world in this process, forward and adjoint, every element checked. One
 * thread begins on all ranks and then ends on all, which the simulated transport allows. */
#include "bridge.h"
#include "reduce.h"
#include "set_file.h"
#include "verify.h"

#include <inttypes.h>
#include <stdlib.h>

static const char help[] =
    "Usage: lierne simulate FILE --bridge B [OPTION]...\n"
    "       lierne simulate --set FILE [--full] [--format FORMAT]\n"
    "Runs a bridge, forward and adjoint, for the whole world in this process, and checks\n"
    "every element. Axes are made smaller first where that changes nothing; it prints which.\n"
    "\n"
    "  -b, --bridge=B       the bridge\n"
    "  -a, --algorithm=A    direct, collective or leader (default: the file's)\n"
    "      --routing=R      auto (default), direct or balanced: who sends what\n"
    "      --max-peers=N    a rank exchanges messages with N ranks at most, by way of others\n"
    "      --links=L,B,L,B  what auto compares: latency in ns and MB/s inside a node,\n"
    "                       and to other nodes (default: the file's); a fifth number:\n"
    "                       MB/s of all ranks of a node to other nodes\n"
    "      --full           the full size of every axis\n"
    "      --format=FORMAT  text (default) or json\n"
    "      --src, --dst, --tensor, --dtype: a bridge in place of FILE and --bridge, as\n"
    "                       --src tp2,dp4 --dst tp2,cp2,dp2 --tensor b8,s1024,h1024 --dtype bf16;\n"
    "                       the first dim varies fastest, tp2,dp4@8 begins at rank 8\n"
    "      --set=FILE       a set of tensors, of a file that lists them (in docs/command.md)\n"
    "  -h, --help           show this help\n"
    "\n"
    "Exit status: 0 all right, 1 an element is wrong, FILE has errors or the bridge cannot\n"
    "be planned, 2 usage error or unreadable file.\n";

/* The check of all plans against each other follows every element of every rank; beyond this many
 * it is left out. */
#define MAX_CHECKED_ELEMENTS (INT64_C(1) << 27)

/* From this many bytes on the needed memory is printed before it is allocated. */
#define MUCH_MEMORY (INT64_C(1) << 30)

typedef struct world {
    const tool_bridge *bridge;
    lierne_bridge_spec spec; /* reduced */
    int64_t shape[LIERNE_MAX_AXES];
    const char *reasons[LIERNE_MAX_AXES];
    char **argv;
    lierne_plan **plans;
    lierne_request **requests;
    verify_rank *ranks;
    bool consistent; /* the plans were checked against each other */
    verify_count count[2];
    int64_t lhs;
    int64_t rhs;
} world;

static int world_failed(const world *w) {
    tool_failed(w->argv);
    return TOOL_INVALID;
}

static void show_progress(const world *w, const char *what, int rank) {
    tool_progress(w->argv, what, rank, w->bridge->world);
}

static int plan_ranks(world *w, lierne_sim *sim) {
    for (int r = 0; r < w->bridge->world; r++) {
        show_progress(w, "planning", r);
        lierne_context *context = lierne_sim_get_context(sim, r);
        lierne_status status =
            tool_bridge_plan(&w->plans[r], context, w->bridge->packed, &w->spec, w->bridge->method);
        if (status != LIERNE_OK) {
            return world_failed(w);
        }
    }
    return TOOL_VALID;
}

/* Bytes of all buffers, of what plans pack messages in, and of the messages of one direction, which
 * are all under way at once. */
static int64_t memory_needed(const world *w) {
    int64_t bytes = 0, sent[2] = {0};
    for (int r = 0; r < w->bridge->world; r++) {
        for (int d = LIERNE_DIRECTION_FORWARD; d <= LIERNE_DIRECTION_ADJOINT; d++) {
            lierne_report report = {.size = sizeof report};
            int64_t in, out;
            lierne_plan_get_elements(&in, &out, w->plans[r], (lierne_direction)d);
            lierne_plan_get_report(&report, w->plans[r], (lierne_direction)d);
            bytes += verify_lists(w->plans[r], (lierne_direction)d);
            bytes += (in + out) * (int64_t)lierne_dtype_size(w->spec.dtype) + report.scratch_bytes;
            sent[d] += report.sent_bytes;
        }
    }
    return bytes + (sent[0] > sent[1] ? sent[0] : sent[1]);
}

static void say_memory(const world *w) {
    int64_t bytes = memory_needed(w);
    if (bytes >= MUCH_MEMORY) {
        tool_say(w->argv, "needs about %.1f GB of memory for %d ranks", (double)bytes * 1e-9,
                 w->bridge->world);
    }
}

static int open_ranks(world *w) {
    for (int r = 0; r < w->bridge->world; r++) {
        show_progress(w, "filling buffers", r);
        if (!verify_rank_open(&w->ranks[r], &w->spec, w->bridge->packed, r)) {
            return tool_usage(w->argv, "no memory for the buffers of rank %d", r);
        }
        for (int d = LIERNE_DIRECTION_FORWARD; d <= LIERNE_DIRECTION_ADJOINT; d++) {
            if (!verify_rank_fits(&w->ranks[r], w->plans[r], (lierne_direction)d)) {
                tool_say(w->argv, "a buffer of rank %d has not the size of the closed form", r);
                return TOOL_INVALID;
            }
        }
    }
    return TOOL_VALID;
}

static int check_plans(world *w) {
    int64_t elements = 0;
    show_progress(w, "checking plans", 0);
    for (int r = 0; r < w->bridge->world; r++) {
        elements += verify_rank_elements(&w->ranks[r]);
    }
    w->consistent = elements <= MAX_CHECKED_ELEMENTS;
    if (w->consistent &&
        lierne_plan_check((const lierne_plan *const *)w->plans, w->bridge->world) != LIERNE_OK) {
        return world_failed(w);
    }
    return TOOL_VALID;
}

static const char *const names[] = {"forward", "adjoint"};
static const char *const checks[] = {"checking forward", "checking adjoint"};

static int begin_ranks(world *w, lierne_direction direction) {
    for (int r = 0; r < w->bridge->world; r++) {
        show_progress(w, names[direction], r);
        if (verify_rank_begin(&w->ranks[r], &w->requests[r], w->plans[r], direction) != LIERNE_OK) {
            return world_failed(w);
        }
    }
    return TOOL_VALID;
}

/* Ends every request that was begun, also after a failure. */
static int execute(world *w, lierne_direction direction) {
    int status = begin_ranks(w, direction);
    for (int r = 0; r < w->bridge->world; r++) {
        show_progress(w, names[direction], r);
        if (lierne_request_end(w->requests[r]) != LIERNE_OK && status == TOOL_VALID) {
            status = world_failed(w);
        }
        w->requests[r] = NULL;
    }
    for (int r = 0; r < w->bridge->world && status == TOOL_VALID; r++) {
        show_progress(w, checks[direction], r);
        verify_rank_check(&w->ranks[r], w->plans[r], direction, &w->count[direction]);
    }
    return status;
}

static void close_ranks(world *w) {
    for (int r = 0; r < w->bridge->world; r++) {
        verify_rank_close(&w->ranks[r]);
        lierne_plan_destroy(w->plans[r]);
    }
}

static int simulate(world *w, lierne_sim *sim) {
    int status = plan_ranks(w, sim);
    if (status == TOOL_VALID) {
        say_memory(w);
        status = open_ranks(w);
    }
    status = status == TOOL_VALID ? check_plans(w) : status;
    status = status == TOOL_VALID ? execute(w, LIERNE_DIRECTION_FORWARD) : status;
    status = status == TOOL_VALID ? execute(w, LIERNE_DIRECTION_ADJOINT) : status;
    for (int r = 0; r < w->bridge->world && status == TOOL_VALID; r++) {
        int64_t lhs;
        int64_t rhs;
        show_progress(w, "dot test", r);
        verify_rank_dot(&w->ranks[r], &lhs, &rhs);
        w->lhs += lhs;
        w->rhs += rhs;
    }
    tool_progress_end();
    close_ranks(w);
    return status;
}

static int simulate_world(world *w) {
    size_t n = (size_t)w->bridge->world;
    lierne_sim *sim = tool_bridge_sim(w->bridge, w->argv);
    int status = TOOL_USAGE;
    w->plans = calloc(n, sizeof *w->plans);
    w->requests = calloc(n, sizeof *w->requests);
    w->ranks = calloc(n, sizeof *w->ranks);
    if (!w->plans || !w->requests || !w->ranks) {
        tool_usage(w->argv, "no memory for %zu ranks", n);
    } else if (sim) {
        status = simulate(w, sim);
    }
    lierne_sim_destroy(sim);
    free(w->plans);
    free(w->requests);
    free(w->ranks);
    return status;
}

static void print_json(const world *w) {
    printf("{\"world\":%d", w->bridge->world);
    verify_print_json(w->count, w->lhs, w->rhs);
    printf("}\n");
}

static void print_text(const world *w) {
    printf("bridge ");
    tool_print_text(stdout, w->bridge->name);
    printf(" on %d simulated ranks, algorithm %s\n", w->bridge->world,
           tool_bridge_algorithm(w->bridge->method));
    if (w->bridge->packed && packed_hidden(w->bridge->packed) != w->shape[0]) {
        printf("  h %" PRId64 " -> %" PRId64 ": %s\n", w->shape[0],
               packed_hidden(w->bridge->packed), "every column moves as the others");
    }
    for (int axis = 0; axis < w->spec.naxes; axis++) {
        if (w->reasons[axis]) {
            printf("  %s %" PRId64 " -> %" PRId64 ": %s\n",
                   lierne_config_get_bridge_axis(w->bridge->config, w->bridge->name, axis),
                   w->bridge->spec.shape[axis], w->shape[axis], w->reasons[axis]);
        }
    }
    printf("plans    %s\n", w->consistent ? "consistent over all ranks"
                                          : "not checked against each other: too large");
    verify_print_text(w->count, w->lhs, w->rhs);
}

static int report(const world *w) {
    if (w->bridge->json) {
        print_json(w);
    } else {
        print_text(w);
    }
    return verify_is_right(w->count, w->lhs, w->rhs) ? TOOL_VALID : TOOL_INVALID;
}

static int run_bridge(tool_bridge *bridge, bool full, char **argv) {
    world w = {.bridge = bridge, .argv = argv, .spec = bridge->spec};
    const tool_packed *packed = bridge->packed;
    int status =
        tool_bridge_open_packed(bridge, packed && !full ? packed_least_hidden(packed) : 0, argv);
    status = status < 0 ? tool_bridge_exact(bridge, argv) : status;
    if (packed) {
        w.shape[0] = packed_given_hidden(packed);
    } else if (!full) {
        tool_reduce(&w.spec, w.shape, w.reasons);
    }
    status = status < 0 ? simulate_world(&w) : status;
    return status == TOOL_VALID ? report(&w) : status;
}

int tool_simulate(int argc, char **argv) {
    tool_bridge bridge = {.takes_packed = true, .checks = true};
    bool full = false;
    const tool_option options[] = {{"full", 0, NULL, &full, NULL},
                                   {"set", 0, &bridge.set, NULL, NULL}};
    int status = tool_bridge_parse(&bridge, argc, argv, help, options, 2);
    if (status < 0 && bridge.set) {
        return set_file_simulate(bridge.set, full, bridge.json, argv);
    }
    status = status < 0 ? tool_bridge_load(&bridge, argv) : status;
    status = status < 0 ? run_bridge(&bridge, full, argv) : status;
    tool_bridge_close(&bridge);
    return status;
}
