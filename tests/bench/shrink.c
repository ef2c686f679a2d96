/* What it takes to go on after a death: 8 processes of a node, of which one is killed while the
 * others wait for it. Times are of the slowest rank, medians over rounds: from the kill to the
 * error of the waiting call, lierne_context_shrink, and planning anew on the ranks that are left.
 *
 *   shrink [quick]
 *
 * quick is one round without times. Checks the target, 20 ms for shrinking and planning, only where
 * there is a core for each of the processes. */
#include "bench/checks.h"
#include "node_jobs.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORLD = 8, ROUNDS = 21 };

/* When what had ended on a rank, in seconds of the machine's clock. */
typedef struct times {
    volatile int waits;
    double failed, shrunk, planned;
} times;

static void live(int rank, const char *name, times *own) {
    lierne_context_spec context = {.size = sizeof context, .timeout = 20};
    lierne_node_spec spec = spec_of(rank, WORLD, name, &context);
    lierne_context *first, *smaller;
    lierne_plan *plan;
    bool good = lierne_context_create_node(&first, &spec) == LIERNE_OK &&
                job_plan(&plan, first, WORLD) == LIERNE_OK &&
                job_move(plan, rank, WORLD, 0) == LIERNE_OK;
    own->waits = 1;
    while (rank == 0) { /* the one that is killed */
        pause();
    }
    good = good && job_move(plan, rank, WORLD, 1) == LIERNE_ERR_PEER_FAILED;
    own->failed = seconds_of(CLOCK_MONOTONIC);
    good = good && lierne_context_shrink(&smaller, first, &context) == LIERNE_OK;
    own->shrunk = seconds_of(CLOCK_MONOTONIC);
    lierne_plan_destroy(plan);
    good = good && job_plan(&plan, smaller, WORLD - 1) == LIERNE_OK;
    own->planned = seconds_of(CLOCK_MONOTONIC);
    good = good && job_move(plan, rank - 1, WORLD - 1, 2) == LIERNE_OK;
    lierne_context_destroy(first);
    good = good && lierne_context_destroy_all(smaller) == LIERNE_OK;
    _exit(good ? 0 : 1);
}

/* Seconds of a round: until the error, of shrinking, of planning. */
static void play(times *all, double seconds[3]) {
    pid_t pids[WORLD];
    const char *name = job_name("shrink");
    double failed = 0, shrunk = 0, planned = 0;
    memset(all, 0, WORLD * sizeof *all);
    for (int r = 0; r < WORLD; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            live(r, name, &all[r]);
        }
    }
    for (int r = 0; r < WORLD; r++) {
        while (!all[r].waits) {
            usleep(1000);
        }
    }
    usleep(20000); /* until they wait in the call */
    double killed = seconds_of(CLOCK_MONOTONIC);
    kill(pids[0], SIGKILL);
    for (int r = 0; r < WORLD; r++) {
        int status = -1;
        CHECK(process_await(pids[r], 60, &status) && (r == 0 || status == 0), "rank %d", r);
        failed = all[r].failed > failed ? all[r].failed : failed;
        shrunk = all[r].shrunk > shrunk ? all[r].shrunk : shrunk;
        planned = all[r].planned > planned ? all[r].planned : planned;
    }
    seconds[0] = failed - killed;
    seconds[1] = shrunk - failed;
    seconds[2] = planned - shrunk;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv) {
    bool quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    int rounds = quick ? 1 : ROUNDS;
    double all[3][ROUNDS], seconds[3];
    times *shared = process_share(WORLD * sizeof *shared);
    for (int i = 0; i < rounds; i++) {
        play(shared, seconds);
        for (int k = 0; k < 3; k++) {
            all[k][i] = seconds[k];
        }
    }
    for (int k = 0; k < 3; k++) {
        qsort(all[k], (size_t)rounds, sizeof **all, ascending);
    }
    if (!quick) {
        double shrink = all[1][rounds / 2] * 1e3, plan = all[2][rounds / 2] * 1e3;
        printf("a death among %d processes: found after %.2f ms, shrunk in %.2f ms, planned in "
               "%.2f ms\n",
               WORLD, all[0][rounds / 2] * 1e3, shrink, plan);
        CHECK(sysconf(_SC_NPROCESSORS_ONLN) < WORLD || shrink + plan < 20, "%g ms", shrink + plan);
    }
    return process_counts();
}
