/* Seeded hangs of real ranks: hangs [FIRST COUNT]. A context per seed; one rank does not come,
 * comes late, in another order, with another plan, skips a call, or is stopped (SIGSTOP) until a
 * rank that has given up wakes it, after `lierne hang` has looked. The culprit must be named in
 * every case. Ends with "N passed, N failed". */
#include "common.h"
#include "hang/case.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define TIMEOUT 1.0 /* seconds */
#define MARGIN  9.0 /* that a busy machine may add */

static const hang_case *current;
static int passed, failed;

/* Another rank sends SIGCONT. */
static void stop(double seconds) {
    if (current->fault == FAULT_STOPPED) {
        raise(SIGSTOP);
    } else {
        hang_case_sleep(seconds);
    }
}

static bool judge(const char *folder, double seconds) {
    char why[4096];
    bool right = hang_case_judge(current, folder, why, sizeof why) && seconds < TIMEOUT + MARGIN;
    if (!right) {
        printf("seed %u: %s of rank %d of %d at step %d, %.3f s: %s\n", current->seed,
               hang_case_name(current), current->culprit, current->world, current->step, seconds,
               why);
        fflush(stdout);
    }
    return right;
}

/* Whether this rank found nothing wrong. */
static bool run_case(int rank, const char *folder) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = PATIENT};
    const int waker = (current->culprit + 1) % current->world;
    int pids[HANG_MOST_RANKS], pid = (int)getpid();
    lierne_context *context;
    bool right = true;
    MPI_Allgather(&pid, 1, MPI_INT, pids, 1, MPI_INT, MPI_COMM_WORLD);
    lierne_status status = test_context_create(&context, MPI_COMM_WORLD, &spec);
    if (status != LIERNE_OK) {
        printf("seed %u: %s\n", current->seed, lierne_last_error());
        return false;
    }
    double seconds = hang_case_run(current, context, (hang_ways){stop, test_hurry});
    if (rank == waker) {
        right = current->fault != FAULT_STOPPED || judge(folder, seconds);
        kill(pids[current->culprit], SIGCONT);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    right = rank == 0 && current->fault != FAULT_STOPPED ? judge(folder, seconds) : right;
    lierne_context_destroy_all(context);
    return right;
}

static void run_seed(unsigned seed, int rank, int world, const char *base) {
    char folder[256];
    hang_case c = hang_case_draw(seed, FAULT_KILLED, TIMEOUT);
    c.world = world;
    c.culprit %= world;
    current = &c;
    snprintf(folder, sizeof folder, "%s/%u", base, seed);
    setenv("LIERNE_DUMP_DIR", folder, 1);
    if (rank == 0 && mkdir(folder, 0777) != 0) {
        perror(folder);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    int right = run_case(rank, folder);
    MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    passed += right;
    failed += !right;
    if (rank == 0) {
        hang_case_clean(folder);
    }
}

int main(int argc, char **argv) {
    char base[] = "/tmp/lierne-hang-XXXXXX";
    int rank, world;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    unsigned first = argc > 2 ? (unsigned)atoi(argv[1]) : 0;
    unsigned count = argc > 2 ? (unsigned)atoi(argv[2]) : 6;
    if (rank == 0 && !mkdtemp(base)) {
        perror(base);
    }
    MPI_Bcast(base, sizeof base, MPI_CHAR, 0, MPI_COMM_WORLD);
    for (unsigned i = 0; i < count; i++) {
        run_seed(first + i, rank, world, base);
    }
    if (rank == 0) {
        rmdir(base);
        printf("%d passed, %d failed\n", passed, failed);
    }
    MPI_Finalize();
    return failed != 0;
}
