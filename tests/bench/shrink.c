/* What it takes to go on after a death. Processes of a node, of which one is killed while the
 * others wait for it: times of the slowest rank, medians over rounds, from the kill to the error of
 * the waiting call, of lierne_context_shrink, and of lierne_plan_recreate on the ranks that are
 * left; and what both take of a rank's processor, which is all that many processes on few cores can
 * show. Then a simulated world of 1,024 ranks, of which a node of 8 is lost: what agreeing on who
 * is left, with a thread for each rank, and planning take of a rank's processor.
 *
 *   shrink [quick | simulated]
 *
 * quick is one round on few ranks, simulated the last part alone. Checks the targets: 20 ms for
 * shrinking and planning on 8 processes, only where each has a core, and 100 ms of the processor
 * for each of 1,024 ranks. */
#include "bench/checks.h"
#include "layouts.h"
#include "lierne.h"
#include "lierne/sim.h"
#include "node_jobs.h"
#include "runtime/control/processes.h"
#include "runtime/control/survivors.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORLD = 8, MANY = 128, ROUNDS = 21, ELEMENTS = 160000 };
enum { FAILED, SHRUNK, PLANNED, CPU, FIGURES };

/* When what had ended on a rank, in seconds of the machine's clock; and of its processor's. */
typedef struct times {
    volatile int waits;
    double at[FIGURES];
} times;

static int64_t in[ELEMENTS], out[ELEMENTS];

static lierne_status recreate(lierne_plan **plan, lierne_context *context, const lierne_plan *old) {
    int world = lierne_context_get_world_size(context);
    const mesh dp = {.ndims = 1, .names = {"dp"}, .sizes = {world}};
    lierne_grid *grid = mesh_grid(&dp, world);
    const lierne_recreate_spec spec = {.size = sizeof spec, .src = grid, .dst = grid};
    lierne_status status = lierne_plan_recreate(plan, context, old, &spec);
    lierne_grid_destroy(grid);
    return status;
}

/* Every rank gets all of a tensor. */
static lierne_status plan_first(lierne_plan **plan, lierne_context *context) {
    const mesh dp = {.ndims = 1,
                     .names = {"dp"},
                     .sizes = {lierne_context_get_world_size(context)}};
    const lierne_placement from = {.kind = LIERNE_PLACEMENT_SHARD}, to = {0};
    const int64_t n = ELEMENTS;
    return plan_between(plan, context, &dp, LIERNE_DTYPE_I64, 1, &n, &from, &to, 0);
}

static void live(int rank, int world, const char *name, times *own) {
    lierne_context_spec context = {.size = sizeof context, .timeout = 60};
    lierne_node_spec spec = spec_of(rank, world, name, &context);
    lierne_context *first, *smaller;
    lierne_plan *old, *plan;
    bool good = lierne_context_create_node(&first, &spec) == LIERNE_OK &&
                plan_first(&old, first) == LIERNE_OK &&
                lierne_plan_forward(old, out, in, NULL) == LIERNE_OK;
    own->waits = 1;
    while (rank == 0) { /* the one that is killed */
        pause();
    }
    good = good && lierne_plan_forward(old, out, in, NULL) == LIERNE_ERR_PEER_FAILED;
    own->at[FAILED] = seconds_of(CLOCK_MONOTONIC);
    double cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    good = good && lierne_context_shrink(&smaller, first, &context) == LIERNE_OK;
    own->at[SHRUNK] = seconds_of(CLOCK_MONOTONIC);
    good = good && recreate(&plan, smaller, old) == LIERNE_OK;
    own->at[PLANNED] = seconds_of(CLOCK_MONOTONIC);
    own->at[CPU] = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    good = good && lierne_plan_forward(plan, out, in, NULL) == LIERNE_OK;
    lierne_plan_destroy(old);
    lierne_context_destroy(first);
    good = good && lierne_context_destroy_all(smaller) == LIERNE_OK;
    _exit(good ? 0 : 1);
}

/* Seconds of a round: until the error, of shrinking, of planning; of the busiest rank's processor.
 */
static void play(times *all, int world, double seconds[FIGURES]) {
    pid_t pids[MANY] = {0};
    const char *name = job_name("shrink");
    double last[FIGURES] = {0};
    memset(all, 0, (size_t)world * sizeof *all);
    for (int r = 0; r < world; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            live(r, world, name, &all[r]);
        }
    }
    for (int r = 0; r < world; r++) {
        while (!all[r].waits) {
            usleep(1000);
        }
    }
    usleep(20000); /* until they wait in the call */
    double killed = seconds_of(CLOCK_MONOTONIC);
    kill(pids[0], SIGKILL);
    for (int r = 0; r < world; r++) {
        int status = -1;
        CHECK(process_await(pids[r], 60, &status) && (r == 0 || status == 0), "rank %d", r);
        for (int k = 0; k < FIGURES; k++) {
            last[k] = all[r].at[k] > last[k] ? all[r].at[k] : last[k];
        }
    }
    seconds[FAILED] = last[FAILED] - killed;
    seconds[SHRUNK] = last[SHRUNK] - last[FAILED];
    seconds[PLANNED] = last[PLANNED] - last[SHRUNK];
    seconds[CPU] = last[CPU];
}

/* Medians of rounds, in milliseconds. */
static void measure(times *shared, int world, int rounds, double ms[FIGURES]) {
    static double all[FIGURES][ROUNDS];
    for (int i = 0; i < rounds; i++) {
        double seconds[FIGURES];
        play(shared, world, seconds);
        for (int k = 0; k < FIGURES; k++) {
            all[k][i] = seconds[k];
        }
    }
    for (int k = 0; k < FIGURES; k++) {
        qsort(all[k], (size_t)rounds, sizeof **all, ascending);
        ms[k] = all[k][rounds / 2] * 1e3;
    }
}

static void print(int world, const double ms[FIGURES]) {
    printf("a death among %d processes: found after %.2f ms, shrunk in %.2f ms, planned in %.2f "
           "ms; %.2f ms of the busiest rank's processor for both\n",
           world, ms[FAILED], ms[SHRUNK], ms[PLANNED], ms[CPU]);
}

/* --- a simulated world --- */

enum { LOST = 8, FIRST_LOST = 16, MOST_RANKS = 1024 };

/* The ranks of one node, the third of 8 each. */
static bool is_lost(int rank) {
    return rank >= FIRST_LOST && rank < FIRST_LOST + LOST;
}

/* Weights of a model, cut by tp and dp, go to an engine that cuts them by tp alone. */
static lierne_layout *weights(int tp, int dp, bool cut) {
    const mesh dims = {.ndims = 2, .names = {"tp", "dp"}, .sizes = {tp, dp}};
    const int64_t shape[2] = {8192, 8192};
    lierne_placement p[2] = {{.kind = LIERNE_PLACEMENT_SHARD, .axis = 1}, {0}};
    p[1].kind = cut ? LIERNE_PLACEMENT_SHARD : LIERNE_PLACEMENT_REPLICATE;
    return layout_over(&dims, tp * dp, LIERNE_DTYPE_BF16, 2, shape, p);
}

/* A rank of the world that is left: what is lost and survives, a plan of that, the old plan again.
 */
static bool go_on(lierne_context *context, const lierne_plan *old, const lierne_layout *before,
                  const int *former, int world) {
    const mesh dims = {.ndims = 2, .names = {"tp", "dp"}, .sizes = {8, world / 8}};
    lierne_grid *grid = mesh_grid(&dims, world);
    const lierne_recreate_spec again = {.size = sizeof again, .src = grid, .dst = grid};
    lierne_layout *left = NULL, *shares = weights(8, world / 8, true);
    lierne_plan *plan = NULL, *moves = NULL;
    lierne_box boxes[64];
    size_t count;
    bool good = lierne_plan_recreate(&plan, context, old, &again) == LIERNE_OK &&
                lierne_layout_find_lost(boxes, 64, &count, before, former, world) == LIERNE_OK &&
                lierne_layout_create_surviving(&left, before, former, world) == LIERNE_OK;
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = left, .dst = shares};
    good = good && lierne_plan_create_redistribute(&moves, context, &spec) == LIERNE_OK;
    lierne_plan_destroy(moves);
    lierne_plan_destroy(plan);
    lierne_layout_destroy(left);
    lierne_layout_destroy(shares);
    lierne_grid_destroy(grid);
    return good;
}

/* Milliseconds of the processor per rank. */
static double simulate(int world) {
    int former[MOST_RANKS], n = 0;
    lierne_sim *first, *second;
    lierne_plan *old = NULL, *plan;
    lierne_layout *before = weights(8, world / 8, true), *all = weights(8, world / 8, false);
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = before, .dst = all};
    for (int r = 0; r < world; r++) {
        former[n] = r;
        n += !is_lost(r);
    }
    bool good = lierne_sim_create(&first, world, NULL) == LIERNE_OK &&
                lierne_sim_create(&second, n, NULL) == LIERNE_OK;
    for (int r = 0; r < world && good; r++) {
        good = lierne_plan_create_redistribute(&plan, lierne_sim_get_context(first, r), &spec) ==
               LIERNE_OK;
        old = r == 0 ? plan : old;
    }
    double start = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    for (int r = 0; r < n && good; r++) {
        good = go_on(lierne_sim_get_context(second, r), old, before, former, n);
    }
    double seconds = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - start;
    CHECK(good, "%d ranks: %s", world, lierne_last_error());
    lierne_sim_destroy_all(first);
    lierne_sim_destroy_all(second);
    lierne_layout_destroy(before);
    lierne_layout_destroy(all);
    return seconds / n * 1e3;
}

/* A rank that is left agrees with the others, on memory that they share. */
typedef struct agreement {
    lierne_survivors survivors;
    pthread_t thread;
    double seconds; /* of the processor */
    bool good;
} agreement;

static void *agree(void *own) {
    agreement *a = own;
    lierne_survivors *s = &a->survivors;
    double start = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    a->good = lierne_survivors_begin(s, 60) == LIERNE_OK && lierne_survivors_list(s) == LIERNE_OK &&
              s->count == s->world - LOST && s->list[FIRST_LOST] == FIRST_LOST + LOST &&
              lierne_survivors_decide(s, LIERNE_OK) == LIERNE_OK;
    a->seconds = seconds_of(CLOCK_THREAD_CPUTIME_ID) - start;
    lierne_survivors_end(s);
    return NULL;
}

/* Milliseconds of the busiest rank's processor. A rank looks for the ends of all other processes,
 * of which those that are lost have ended. */
static double simulate_agreement(int world) {
    static agreement all[MOST_RANKS];
    static int flag[MOST_RANKS], watches[MOST_RANKS];
    const lierne_members members = {.world = world, .count = world};
    int opened = lierne_abort_flags_open(world, 0), own = (int)syscall(SYS_pidfd_open, getpid(), 0);
    lierne_abort_flags *flags = lierne_abort_flags_map((uint64_t)getpid(), opened, world, 0, 0);
    double most = 0;
    CHECK(flags && own >= 0, "flags of %d ranks", world);
    for (int r = 0; r < world; r++) {
        flag[r] = r;
        watches[r] = is_lost(r) ? LIERNE_ENDED : own;
        all[r].survivors = (lierne_survivors){.flags = flags,
                                              .flag = flag,
                                              .watches = watches,
                                              .members = &members,
                                              .rank = r,
                                              .world = world};
    }
    for (int r = 0; r < world; r++) {
        CHECK(is_lost(r) || pthread_create(&all[r].thread, NULL, agree, &all[r]) == 0, "rank %d",
              r);
    }
    for (int r = 0; r < world; r++) {
        CHECK(is_lost(r) || (pthread_join(all[r].thread, NULL) == 0 && all[r].good), "rank %d", r);
        most = all[r].seconds > most ? all[r].seconds : most;
    }
    lierne_abort_flags_unmap(flags);
    close(opened);
    close(own);
    return most * 1e3;
}

static void measure_simulated(int world) {
    double planned = simulate(world), agreed = simulate_agreement(world);
    printf("%d of %d simulated ranks are lost: %.2f ms of the busiest rank's processor to agree on "
           "who is left, %.2f ms of each to plan again, to find what is lost and to plan what "
           "survives\n",
           LOST, world, agreed, planned);
    CHECK(agreed + planned < 100, "%g ms", agreed + planned);
}

static void measure_processes(void) {
    times *shared = process_share(MANY * sizeof *shared);
    double ms[FIGURES];
    measure(shared, WORLD, ROUNDS, ms);
    print(WORLD, ms);
    CHECK(sysconf(_SC_NPROCESSORS_ONLN) < WORLD || ms[SHRUNK] + ms[PLANNED] < 20, "%g ms",
          ms[SHRUNK] + ms[PLANNED]);
    for (int world = 32; world <= MANY; world *= 2) {
        measure(shared, world, 3, ms);
        print(world, ms);
    }
}

int main(int argc, char **argv) {
    const char *part = argc > 1 ? argv[1] : "";
    if (strcmp(part, "quick") == 0) {
        double ms[FIGURES];
        measure(process_share(WORLD * sizeof(times)), WORLD, 1, ms);
        simulate(64);
        simulate_agreement(64);
        return process_counts();
    }
    if (strcmp(part, "simulated") != 0) {
        measure_processes();
    }
    measure_simulated(MOST_RANKS);
    return process_counts();
}
