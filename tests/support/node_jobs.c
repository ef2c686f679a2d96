/* A rank is a process, which nothing but its report outlives. */
#include "node_jobs.h"

#include "base/base.h"
#include "layouts.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

job_report *reports;

void open_reports(void) {
    reports = process_share(2 * MOST * sizeof *reports);
}

lierne_status job_plan(lierne_plan **plan, lierne_context *context, int world) {
    const mesh dp = {.ndims = 1, .names = {"dp"}, .sizes = {world}};
    const int64_t shape[] = {world * 20000};
    const lierne_placement from = {.kind = LIERNE_PLACEMENT_SHARD},
                           to = {.kind = LIERNE_PLACEMENT_REPLICATE};
    return plan_between(plan, context, &dp, LIERNE_DTYPE_I64, 1, shape, &from, &to, 0);
}

lierne_status job_move(lierne_plan *plan, int rank, int world, int round) {
    static int64_t in[20000], out[MOST * 20000];
    for (int i = 0; i < 20000; i++) {
        in[i] = 3 * (rank * 20000 + i) + 1 + round;
    }
    memset(out, 0x5a, sizeof out);
    lierne_status status = lierne_plan_forward(plan, out, in, NULL);
    for (int i = 0; status == LIERNE_OK && i < world * 20000; i++) {
        if (out[i] != 3 * i + 1 + round) {
            return LIERNE_ERR_IO; /* no status of a call: wrong data */
        }
    }
    return status;
}

/* A rank: creates a context, moves a tensor `rounds` times, destroys the context. */
static void live(job_report *own, const lierne_node_spec *spec, int rounds) {
    lierne_context *context;
    lierne_plan *plan = NULL;
    double start = lierne_now();
    lierne_status status = lierne_context_create_node(&context, spec);
    own->step = 1;
    int rank = lierne_context_get_rank(context), world = lierne_context_get_world_size(context);
    status = status ? status : job_plan(&plan, context, world);
    for (int i = 0; status == LIERNE_OK && i < rounds; i++) {
        own->step++;
        start = lierne_now();
        status = job_move(plan, rank, world, i);
    }
    own->status = status;
    own->seconds = lierne_now() - start;
    snprintf(own->message, sizeof own->message, "%s", lierne_last_error());
    lierne_plan_destroy(plan);
    lierne_context_destroy(context);
    own->step = ENDED;
}

pid_t begin(int at, const lierne_node_spec *spec, int rounds) {
    memset(&reports[at], 0, sizeof reports[at]);
    pid_t pid = fork();
    if (pid == 0) {
        live(&reports[at], spec, rounds);
        _exit(0);
    }
    return pid;
}

lierne_node_spec spec_of(int rank, int world, const char *name,
                         const lierne_context_spec *context) {
    return (lierne_node_spec){.size = sizeof(lierne_node_spec),
                              .rank = rank,
                              .world = world,
                              .name = name,
                              .context = context};
}

void begin_job(pid_t *pids, int at, int world, const char *name, double timeout, int rounds) {
    lierne_context_spec context = {.size = sizeof context, .timeout = timeout};
    for (int r = 0; r < world; r++) {
        lierne_node_spec spec = spec_of(r, world, name, &context);
        pids[r] = begin(at + r, &spec, rounds);
    }
}

bool await(const pid_t *pids, int n) {
    bool all = true;
    for (int r = 0; r < n; r++) {
        all &= process_await(pids[r], 60, NULL);
    }
    return all;
}

const char *job_name(const char *what) {
    static char name[100];
    static int number;
    snprintf(name, sizeof name, "%s-%d-%d", what, (int)getpid(), number++);
    return name;
}
