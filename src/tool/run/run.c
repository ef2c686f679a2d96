/* Rank 0 speaks for all where all must say the same; where one rank alone fails, that one speaks.
 * Every decision to go on or to end is taken together, so that no rank waits for one that left. */
#include "run.h"

#include "lierne/mpi.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 15, MAX_ROUNDS = 100000 };

static const char help[] =
    "Usage: mpirun -n N lierne run FILE --bridge B [OPTION]...\n"
    "Runs a bridge, forward and adjoint, on as many ranks as FILE says, checks every element\n"
    "on every rank, and times it. Every rank must be able to read FILE.\n"
    "\n"
    "  -b, --bridge=B       the bridge\n"
    "  -a, --algorithm=A    direct, collective or leader (default: all that are defined)\n"
    "  -n, --rounds=N       rounds to time, at least 15 (default 15)\n"
    "      --format=FORMAT  text (default) or json\n"
    "  -h, --help           show this help\n"
    "\n"
    "Exit status: 0 all right, 1 an element is wrong, FILE has errors or the bridge cannot\n"
    "be planned, 2 usage error, unreadable file or another number of ranks.\n";

static int parse(run_state *run, int argc) {
    const char *rounds = NULL;
    const tool_option options[] = {{"rounds", 'n', &rounds, NULL}};
    int status = tool_job_parse(&run->job, argc, run->argv, help, options, 1);
    run->rounds = ROUNDS;
    return status < 0
               ? tool_job_number(run->argv, "--rounds", rounds, ROUNDS, MAX_ROUNDS, &run->rounds)
               : status;
}

static int load_silently(run_state *run) {
    tool_job *job = &run->job;
    if (lierne_config_read(&job->config, job->path) != LIERNE_OK) {
        tool_say(run->argv, "rank %d: %s", run->rank, tool_reason());
        return TOOL_USAGE;
    }
    return tool_job_find(job, run->argv);
}

static int check_world(const run_state *run) {
    const tool_job *job = &run->job;
    if (job->world == run->ranks) {
        return -1;
    }
    if (run->rank == 0) {
        tool_say(run->argv, "world_size of %s is %d, but %d rank%s started; use mpirun -n %d",
                 job->path, job->world, run->ranks, run->ranks == 1 ? "" : "s", job->world);
    }
    return TOOL_USAGE;
}

/* Rank 0 goes first: if it finds fault, nobody else needs to. */
static int prepare(run_state *run, int argc) {
    int status = run->rank == 0 ? parse(run, argc) : -1;
    status = run->rank == 0 && status < 0 ? tool_job_load(&run->job, run->argv) : status;
    status = run_worst(status);
    if (status >= 0) {
        return status;
    }
    status = run->rank == 0 ? -1 : parse(run, argc);
    status = run->rank != 0 && status < 0 ? load_silently(run) : status;
    status = status < 0 ? check_world(run) : status;
    status = run_worst(status);
    if (status < 0 && !form_is_exact(&run->job.spec)) {
        return run->rank == 0 ? tool_usage(run->argv, "u8 cannot hold the sum of so many cp ranks")
                              : TOOL_USAGE;
    }
    return status;
}

/* Whether the status says that an algorithm is not defined for these grids. */
static bool is_refusal(lierne_status status) {
    return status == LIERNE_UNSUPPORTED || status == LIERNE_MISALIGNED ||
           status == LIERNE_INDIVISIBLE || status == LIERNE_INVALID;
}

static bool plan(run_state *run, tool_algorithm algorithm) {
    run_method *method = &run->methods[algorithm];
    if (run->job.algorithm && run->job.method != algorithm) {
        return true;
    }
    lierne_status status = tool_job_plan(&method->plan, run->context, &run->job.spec, algorithm);
    if (algorithm != TOOL_DIRECT && !run->job.algorithm && is_refusal(status)) {
        snprintf(method->refusal, sizeof method->refusal, "%s", tool_reason());
        return true;
    }
    return run_all_ok(run, status);
}

static int open_buffers(run_state *run) {
    bool memory = verify_rank_open(&run->buffers, &run->job.spec, run->rank);
    bool fits = true;
    for (int a = 0; memory && a < RUN_ALGORITHMS; a++) {
        for (int d = LIERNE_FORWARD; run->methods[a].plan && d <= LIERNE_ADJOINT; d++) {
            fits =
                fits && verify_rank_fits(&run->buffers, run->methods[a].plan, (lierne_direction)d);
        }
    }
    if (!memory || !fits) {
        tool_say(run->argv, "rank %d: %s", run->rank,
                 memory ? "a buffer has another size than it must have" : "no memory for buffers");
    }
    return run_worst(memory && fits ? -1 : TOOL_FINDINGS);
}

static int report(const run_state *run) {
    if (run->rank == 0 && run->job.json) {
        run_print_json(run);
    } else if (run->rank == 0) {
        run_print_text(run);
    }
    return run_is_right(run) ? TOOL_VALID : TOOL_FINDINGS;
}

static int work(run_state *run) {
    const lierne_context_spec spec = {.size = sizeof spec,
                                      .nodes = lierne_config_get_nodes(run->job.config)};
    if (!run_all_ok(run, lierne_context_create_mpi(&run->context, MPI_COMM_WORLD, &spec))) {
        return TOOL_FINDINGS;
    }
    for (int a = 0; a < RUN_ALGORITHMS; a++) {
        if (!plan(run, (tool_algorithm)a)) {
            return TOOL_FINDINGS;
        }
    }
    int status = open_buffers(run);
    status = status < 0 ? run_verify(run) : status;
    status = status < 0 && run_is_right(run) ? run_measure(run) : status;
    return status < 0 ? report(run) : status;
}

static void close_run(run_state *run) {
    for (int a = 0; a < RUN_ALGORITHMS; a++) {
        lierne_plan_destroy(run->methods[a].plan);
        free(run->methods[a].seconds[LIERNE_FORWARD]);
        free(run->methods[a].seconds[LIERNE_ADJOINT]);
    }
    verify_rank_close(&run->buffers);
    lierne_context_destroy(run->context);
    tool_job_close(&run->job);
}

int main(int argc, char **argv) {
    char name[] = "lierne run";
    run_state run = {.argv = argv};
    argv[0] = name;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &run.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &run.ranks);
    int status = prepare(&run, argc);
    status = status < 0 ? work(&run) : status;
    close_run(&run);
    MPI_Finalize();
    return status;
}
