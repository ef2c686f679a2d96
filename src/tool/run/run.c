/* Rank 0 prints what holds for all ranks; an error of one rank is printed by that rank. Every
 * decision to go on or to end is collective, so that no rank waits for one that has left. */
#include "tool/run.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 20, WARMUP = 1, MAX_ROUNDS = 100000 };

static const char help[] =
    "Usage: lierne run FILE --bridge B --launch N [OPTION]...\n"
    "       mpirun -n N lierne run FILE --bridge B [OPTION]...\n"
    "Runs a bridge, forward and adjoint, on as many ranks as FILE says, checks every element\n"
    "on every rank, and times it: on N processes of this node that it starts itself, without\n"
    "MPI, or on those of mpirun. Every rank must be able to read FILE.\n"
    "\n"
    "  -b, --bridge=B       the bridge\n"
    "      --minbytes=S     sizes of the tensor: the smallest, as 4096, 512K, 8M or 1G\n"
    "  -e, --maxbytes=S     the largest (default: the smallest)\n"
    "  -f, --stepfactor=N   from one to the next (default 2)\n"
    "  -l, --launch=N       start N ranks on this node\n"
    "  -a, --algorithm=A    direct, collective or leader (default: all that are defined)\n"
    "      --routing=R      auto (default), direct or balanced: who sends what\n"
    "      --max-peers=N    a rank exchanges messages with N ranks at most, by way of others\n"
    "      --links=L,B,L,B  what auto compares: latency in ns and MB/s inside a node,\n"
    "                       and to other nodes (default: the file's)\n"
    "  -n, --rounds=N       rounds to time (default 20)\n"
    "  -w, --warmup=N       rounds before that (default 1)\n"
    "      --trace=FILE     write the last calls of all ranks for Perfetto (Chrome trace JSON)\n"
    "      --format=FORMAT  text (default), json or csv\n"
    "      --src, --dst, --tensor, --dtype: a bridge in place of FILE and --bridge, as\n"
    "                       --src tp2,dp4 --dst tp2,cp2,dp2 --tensor b8,s1024,h1024 --dtype bf16;\n"
    "                       the first dim varies fastest, tp2,dp4@8 begins at rank 8\n"
    "  -h, --help           show this help\n"
    "\n"
    "Time is the median of the rounds, each from the first start to the last end over all\n"
    "ranks. algbw is the tensor's bytes over the time, busbw what the busiest rank sends or\n"
    "receives, both in 1e9 bytes per second. Other sizes are those of the last axis that is\n"
    "neither batch nor sequence, rounded to whole elements of it.\n"
    "Exit status: 0 all right, 1 an element is wrong, FILE has errors, the bridge cannot be\n"
    "planned or a rank died, 2 usage error, unreadable file or another number of ranks.\n";

static int parse(run_state *run, int argc) {
    static const char *const formats[] = {"text", "json", "csv", NULL};
    const char *rounds = NULL, *launch = NULL, *warmup = NULL;
    const char *least = NULL, *most = NULL, *factor = NULL;
    const tool_option options[] = {
        {"rounds", 'n', &rounds, NULL, NULL},  {"launch", 'l', &launch, NULL, NULL},
        {"warmup", 'w', &warmup, NULL, NULL},  {"minbytes", 0, &least, NULL, NULL},
        {"maxbytes", 'e', &most, NULL, NULL},  {"stepfactor", 'f', &factor, NULL, NULL},
        {"trace", 0, &run->trace, NULL, NULL},
    };
    run->bridge.formats = formats;
    run->bridge.takes_packed = run->bridge.checks = true;
    run->rounds = ROUNDS;
    run->warmup = WARMUP;
    int status = tool_bridge_parse(&run->bridge, argc, run->argv, help, options,
                                   sizeof options / sizeof *options);
    run->format = run->bridge.format;
    if (status < 0 && launch && !run->together->launched) {
        return tool_usage(run->argv, "--launch starts the ranks: leave it or mpirun out");
    }
    status = status < 0
                 ? tool_bridge_number(run->argv, "--rounds", rounds, 1, MAX_ROUNDS, &run->rounds)
                 : status;
    status = status < 0
                 ? tool_bridge_number(run->argv, "--warmup", warmup, 0, MAX_ROUNDS, &run->warmup)
                 : status;
    return status < 0 ? run_sweep_parse(run->argv, least, most, factor, &run->sweep) : status;
}

int run_help(int argc, char **argv) {
    run_ranks alone = {.n = 1, .launched = true};
    run_state run = {.argv = argv, .together = &alone, .ranks = 1};
    return parse(&run, argc);
}

static int load_silently(run_state *run) {
    tool_bridge *bridge = &run->bridge;
    if (tool_inline_given(&bridge->given)) {
        int status = tool_inline_load(run->argv, &bridge->given, true, &bridge->config);
        return status < 0 ? tool_bridge_find(bridge, run->argv) : status;
    }
    if (lierne_config_read(&bridge->config, bridge->path) != LIERNE_OK) {
        tool_say(run->argv, "rank %d: %s", run->rank, tool_reason());
        return TOOL_USAGE;
    }
    return tool_bridge_find(bridge, run->argv);
}

static int check_world(const run_state *run) {
    const tool_bridge *bridge = &run->bridge;
    if (bridge->world == run->ranks) {
        return -1;
    }
    if (run->rank == 0) {
        tool_say(run->argv, "world_size of %s is %d, but %d rank%s started; use %s %d",
                 bridge->path, bridge->world, run->ranks, run->ranks == 1 ? "" : "s",
                 run->together->launched ? "--launch" : "mpirun -n", bridge->world);
    }
    return TOOL_USAGE;
}

/* Rank 0 checks first: if it finds an error, the other ranks need not print it too. */
static int prepare_run(run_state *run, int argc) {
    int status = run->rank == 0 ? parse(run, argc) : -1;
    status = run->rank == 0 && status < 0 ? tool_bridge_load(&run->bridge, run->argv) : status;
    status = run->rank == 0 && status < 0
                 ? run_sweep_open(&run->sweep, run->argv, &run->bridge.spec)
                 : status;
    status = run_worst(run, status);
    if (status >= 0) {
        return status;
    }
    status = run->rank == 0 ? -1 : parse(run, argc);
    status = run->rank != 0 && status < 0 ? load_silently(run) : status;
    status = run->rank != 0 && status < 0
                 ? run_sweep_open(&run->sweep, run->argv, &run->bridge.spec)
                 : status;
    status = status < 0 ? check_world(run) : status;
    return run_worst(run, status);
}

/* Rank 0 says it for all. */
static int check_exact(run_state *run) {
    return run_worst(run, run->rank == 0 ? tool_bridge_exact(&run->bridge, run->argv) : -1);
}

/* Whether the status says that an algorithm is not defined for these grids. */
static bool is_rejection(lierne_status status) {
    return status == LIERNE_ERR_UNSUPPORTED || status == LIERNE_ERR_MISALIGNED ||
           status == LIERNE_ERR_INDIVISIBLE || status == LIERNE_ERR_INVALID;
}

static bool plan(run_state *run, tool_algorithm algorithm) {
    run_method *method = &run->methods[algorithm];
    const tool_packed *packed = run->bridge.packed;
    if ((packed && algorithm != TOOL_DIRECT) ||
        (run->bridge.algorithm && run->bridge.method != algorithm)) {
        return true;
    }
    lierne_status status =
        tool_bridge_plan(&method->plan, run->context, packed, &run->bridge.spec, algorithm);
    if (algorithm != TOOL_DIRECT && !run->bridge.algorithm && is_rejection(status)) {
        snprintf(method->rejection, sizeof method->rejection, "%s", tool_reason());
        return true;
    }
    return run_all_ok(run, status);
}

static int open_buffers(run_state *run) {
    bool memory = verify_rank_open(&run->buffers, &run->bridge.spec, run->bridge.packed, run->rank);
    bool fits = true;
    for (int a = 0; memory && a < RUN_ALGORITHMS; a++) {
        for (int d = LIERNE_DIRECTION_FORWARD;
             run->methods[a].plan && d <= LIERNE_DIRECTION_ADJOINT; d++) {
            fits =
                fits && verify_rank_fits(&run->buffers, run->methods[a].plan, (lierne_direction)d);
        }
    }
    if (!memory || !fits) {
        tool_say(run->argv, "rank %d: %s", run->rank,
                 memory ? "a buffer has not the size of the closed form" : "no memory for buffers");
    }
    return run_worst(run, memory && fits ? -1 : TOOL_INVALID);
}

static void close_size(run_state *run) {
    for (int a = 0; a < RUN_ALGORITHMS; a++) {
        lierne_plan_destroy(run->methods[a].plan);
        free(run->methods[a].seconds[LIERNE_DIRECTION_FORWARD]);
        free(run->methods[a].seconds[LIERNE_DIRECTION_ADJOINT]);
        run->methods[a] = (run_method){0};
    }
    verify_rank_close(&run->buffers);
    packed_close(&run->bridge.own_packed);
}

/* Plans, checks and times the bridge at one size. Returns -1, or an exit status. */
static int run_size(run_state *run) {
    const tool_packed *packed = run->bridge.packed;
    int64_t hidden = packed ? run->sweep.shape[!packed_axis(packed)] : 0;
    int status = run_worst(run, tool_bridge_open_packed(&run->bridge, hidden, run->argv));
    status = status < 0 ? check_exact(run) : status;
    if (status >= 0) {
        return status;
    }
    for (int a = 0; a < RUN_ALGORITHMS; a++) {
        if (!plan(run, (tool_algorithm)a)) {
            return TOOL_INVALID;
        }
    }
    status = open_buffers(run);
    status = status < 0 ? run_verify(run) : status;
    status = status < 0 && run_is_right(run) ? run_measure(run) : status;
    if (status >= 0) {
        return status;
    }
    if (run->rank == 0 && run->sizes == 0) {
        run_print_begin(run);
    }
    if (run->rank == 0) {
        run_print_size(run);
        fflush(stdout);
    }
    run->sizes++;
    return run_is_right(run) ? -1 : TOOL_INVALID;
}

static int work(run_state *run) {
    const lierne_context_spec spec = tool_bridge_context(&run->bridge);
    int status = -1;
    if (!run_all_ok(run, run->together->create(&run->context, &spec, run->together->user))) {
        return TOOL_INVALID;
    }
    while (status < 0 && run_sweep_next(&run->sweep)) {
        close_size(run);
        status = run_size(run);
    }
    if (run->rank == 0 && run->sizes > 0) {
        run_print_end(run);
    }
    status = status < 0 ? run_write_trace(run) : status;
    return status < 0 ? TOOL_VALID : status;
}

static void close_run(run_state *run) {
    close_size(run);
    lierne_context_destroy(run->context);
    tool_bridge_close(&run->bridge);
}

int run_main(int argc, char **argv, run_ranks *together) {
    run_state run = {.argv = argv,
                     .together = together,
                     .rank = together->rank,
                     .ranks = together->n};
    int status = TOOL_INVALID;
    together->all = calloc((size_t)together->n, RUN_MOST_BYTES);
    if (!together->all) {
        tool_say(argv, "rank %d: no memory", together->rank);
        return status;
    }
    status = prepare_run(&run, argc);
    status = status < 0 ? work(&run) : status;
    close_run(&run);
    free(together->all);
    return status;
}
