/* One of several ranks over MPI of which one or two are killed, for tests/cli/test_death.sh: those
 * that are left shrink the context, without MPI's help, until they can work in it. Not run by
 * run.sh: MPI does not end after a death.
 *
 * shrink FOLDER VICTIM MICROSECONDS [VICTIM MICROSECONDS]..., with LIERNE_TEST_NODE_RANKS=n on
 * nodes of n ranks, which agree over ports: writes its process number to FOLDER/pid.R, and to
 * FOLDER/end.R the status and the ranks that the last context had in the first one, and waits to be
 * killed. */
#include "lierne/mpi.h"
#include "lierne/node.h"
#include "node_jobs.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static void die(int signal) {
    (void)signal;
    kill(getpid(), SIGKILL);
}

/* Until a call fails, or for some rounds. */
static lierne_status work(lierne_context *context, int rounds) {
    int rank = lierne_context_get_rank(context), n = lierne_context_get_world_size(context);
    lierne_plan *plan = NULL;
    lierne_status status = job_plan(&plan, context, n);
    for (int i = 0; status == LIERNE_OK && i < rounds; i++) {
        status = job_move(plan, rank, n, i);
    }
    lierne_plan_destroy(plan);
    return status;
}

/* Ranks of the last context, as those of the first one. */
static int ranks[MOST];

static lierne_status shrink(lierne_context **context) {
    lierne_context_spec spec = {.size = sizeof spec, .timeout = 10};
    lierne_context *smaller;
    int before[MOST];
    lierne_status status = lierne_context_shrink(&smaller, *context, &spec);
    memcpy(before, ranks, sizeof ranks);
    for (int r = 0; r < lierne_context_get_world_size(smaller); r++) {
        ranks[r] = before[lierne_context_get_former_rank(smaller, r)];
    }
    *context = smaller; /* the dead one is kept: buffers of its calls stay borrowed */
    return status;
}

/* Written under another name first, so that a file that is there is complete. */
static void write_file(const char *folder, const char *kind, int rank, const char *text) {
    char name[300], hidden[320];
    snprintf(name, sizeof name, "%s/%s.%d", folder, kind, rank);
    snprintf(hidden, sizeof hidden, "%s/part.%d", folder, rank);
    FILE *file = fopen(hidden, "w");
    if (file) {
        fprintf(file, "%s\n", text);
        fclose(file);
        rename(hidden, name);
    }
}

static void finish(const char *folder, int rank, lierne_status status, int n) {
    char text[200];
    size_t used = (size_t)snprintf(text, sizeof text, "%s%.120s", lierne_status_name(status),
                                   status == LIERNE_OK ? "" : lierne_last_error());
    for (int r = 0; r < n; r++) {
        used += (size_t)snprintf(text + used, sizeof text - used, " %d", ranks[r]);
    }
    write_file(folder, "end", rank, text);
}

int main(int argc, char **argv) {
    int rank, world, victims = (argc - 2) / 2;
    lierne_context_spec spec = {.size = sizeof spec, .timeout = 10};
    lierne_context *context;
    char pid[20];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    if (getenv("LIERNE_TEST_NODE_RANKS")) {
        char node[20];
        snprintf(node, sizeof node, "%d", rank / atoi(getenv("LIERNE_TEST_NODE_RANKS")));
        setenv("LIERNE_NODE", node, 1);
        setenv("LIERNE_ADDRESS", "127.0.0.1", 1);
    }
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    write_file(argv[1], "pid", rank, pid);
    lierne_status status = lierne_context_create_mpi(&context, MPI_COMM_WORLD, &spec);
    for (int r = 0; r < world; r++) {
        ranks[r] = r;
    }
    MPI_Barrier(MPI_COMM_WORLD); /* nobody dies while others create it */
    for (int i = 2; i + 1 < argc; i += 2) {
        if (atoi(argv[i]) == rank) {
            struct itimerval timer = {.it_value.tv_usec = atoi(argv[i + 1])};
            signal(SIGALRM, die);
            setitimer(ITIMER_REAL, &timer, NULL);
        }
    }
    while (status == LIERNE_OK && lierne_context_get_world_size(context) > world - victims) {
        status = work(context, 1 << 30);
        status = status == LIERNE_ERR_IO ? status : shrink(&context);
    }
    status = status == LIERNE_OK ? work(context, 5) : status;
    finish(argv[1], rank, status, lierne_context_get_world_size(context));
    for (;;) {
        pause();
    }
}
