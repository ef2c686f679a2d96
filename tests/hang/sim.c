/* Seeded hangs of simulated worlds, a thread per rank: sim FIRST COUNT. Several processes
 * take turns with the seeds, because the time goes into deadlines. Ends with "N passed, N failed".
 */
#include "lierne/sim.h"
#include "hang/case.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 12 };
#define TIMEOUT 0.4 /* seconds */
#define MARGIN  5.0 /* that a busy machine may add */

typedef struct rank {
    pthread_t thread;
    const hang_case *c;
    lierne_context *context;
    double seconds;
} rank;

static void *run(void *argument) {
    rank *r = argument;
    r->seconds = hang_case_run(r->c, r->context, (hang_ways){hang_case_sleep, NULL});
    return NULL;
}

/* The most seconds that a failing call took. */
static double run_ranks(const hang_case *c, lierne_sim *sim) {
    rank ranks[HANG_MOST_RANKS] = {{0}};
    double most = 0;
    for (int r = 0; r < c->world; r++) {
        if (r != c->culprit || c->fault != FAULT_ABSENT) {
            ranks[r].c = c;
            ranks[r].context = lierne_sim_get_context(sim, r);
            if (pthread_create(&ranks[r].thread, NULL, run, &ranks[r]) != 0) {
                exit(3);
            }
        }
    }
    for (int r = 0; r < c->world; r++) {
        if (ranks[r].c) {
            pthread_join(ranks[r].thread, NULL);
            most = ranks[r].seconds > most ? ranks[r].seconds : most;
        }
    }
    return most;
}

static bool run_seed(unsigned seed, char *folder) {
    const hang_case c = hang_case_draw(seed, HANG_FAULTS, TIMEOUT);
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = c.timeout};
    lierne_sim *sim;
    char why[4096];
    if (!mkdtemp(folder) || setenv("LIERNE_DUMP_DIR", folder, 1) != 0 ||
        lierne_sim_create(&sim, c.world, &spec) != LIERNE_OK) {
        printf("seed %u: %s\n", seed, lierne_last_error());
        return false;
    }
    double most = run_ranks(&c, sim);
    bool right = hang_case_judge(&c, folder, why, sizeof why) && most < TIMEOUT + MARGIN;
    if (!right) {
        printf("seed %u: %s of rank %d of %d at step %d, %.3f s: %s\n", seed, hang_case_name(&c),
               c.culprit, c.world, c.step, most, why);
        fflush(stdout);
    }
    lierne_sim_destroy_all(sim);
    hang_case_clean(folder);
    return right;
}

/* Returns the seeds that failed. */
static int run_share(unsigned first, unsigned count, unsigned share) {
    int wrong = 0;
    for (unsigned i = share; i < count; i += PROCESSES) {
        char folder[] = "/tmp/lierne-hang-XXXXXX";
        wrong += !run_seed(first + i, folder);
    }
    return wrong;
}

int main(int argc, char **argv) {
    unsigned first = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
    unsigned count = argc > 2 ? (unsigned)atoi(argv[2]) : 48;
    int failed = 0, status;
    for (unsigned p = 0; p < PROCESSES; p++) {
        if (fork() == 0) {
            int wrong = run_share(first, count, p);
            _exit(wrong < 100 ? wrong : 100);
        }
    }
    while (wait(&status) > 0) {
        failed += WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
    printf("%d passed, %d failed\n", (int)count - failed, failed);
    return failed != 0;
}
