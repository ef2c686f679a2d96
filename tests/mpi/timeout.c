/* Rank 0 does not come. Whoever waits for it gets TIMEOUT at the deadline, the same error at once
 * from then on, and can still free everything. MPI itself stays healthy: the ranks meet again
 * outside of lierne after each case.
 *
 * Time is the program's own, so that a deadline is measured exactly on the busiest machine: it is
 * linked with --wrap=lierne_now, and the library reads a clock in memory that all ranks share. It
 * stands still but for rank 0, which moves it on when every rank that waits has looked at it a few
 * times since: to just before the deadline, and to just after it, when all must give up. */
#include "mpi/common.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT 0.5 /* seconds of the program's own clock */
#define STEPS   100 /* in which it passes */
#define MARGIN  5   /* steps before and after the deadline at which ranks look at the clock */
#define LOOKS   4   /* of each rank that waits before the clock moves on: more than begin a wait */
#define AT_ONCE 20  /* looks of a call that waits for nothing, at most: those of its dump */
#define MOST    64  /* ranks */

typedef struct shared_clock {
    atomic_llong steps; /* since the program began */
    atomic_llong looks[MOST];
    atomic_int waits[MOST]; /* in a call that must miss its deadline */
} shared_clock;

static shared_clock *board;
static bool ticking; /* this rank waits alone: each of its looks is MARGIN steps */

double __wrap_lierne_now(void);
double __wrap_lierne_now(void) {
    atomic_fetch_add(&board->looks[test_rank], 1);
    long long steps = atomic_fetch_add(&board->steps, ticking ? MARGIN : 0);
    return (double)steps * TIMEOUT / STEPS;
}

static void open_clock(MPI_Win *window) {
    MPI_Aint bytes = test_rank == 0 ? sizeof *board : 0;
    int unit;
    MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &board, window);
    MPI_Win_shared_query(*window, 0, &bytes, &unit, &board);
    if (test_rank == 0) {
        memset(board, 0, sizeof *board);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Until each rank that waits has looked so many times more, or has given up; returns whether any
 * waits on. */
static bool await_looks(long long most) {
    long long before[MOST];
    bool any = false;
    int flag;
    for (int r = 0; r < test_world; r++) {
        before[r] = atomic_load(&board->looks[r]);
    }
    for (int r = 0; r < test_world; r++) {
        while (atomic_load(&board->waits[r]) && atomic_load(&board->looks[r]) - before[r] < most) {
            MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
            sched_yield();
        }
        any |= atomic_load(&board->waits[r]);
    }
    return any;
}

/* On rank 0, which stays away. Ranks that wait on beyond the deadline are given time to do so. */
static void keep_time(void) {
    await_looks(LOOKS);
    atomic_fetch_add(&board->steps, STEPS - MARGIN);
    await_looks(LOOKS);
    atomic_fetch_add(&board->steps, 2 * MARGIN);
    while (await_looks(LOOKS + AT_ONCE)) {
        atomic_fetch_add(&board->steps, STEPS);
    }
}

/* Around a call that must miss its deadline, on every rank: rank 0 keeps the time meanwhile. */
static long long begin_wait(void) {
    atomic_store(&board->waits[test_rank], test_rank != 0);
    MPI_Barrier(MPI_COMM_WORLD);
    long long start = atomic_load(&board->steps);
    if (test_rank == 0) {
        keep_time();
    }
    return start;
}

static void end_wait(lierne_status status, long long start, const char *what) {
    long long took = atomic_load(&board->steps) - start;
    atomic_store(&board->waits[test_rank], 0);
    CHECK(status == LIERNE_TIMEOUT, "%s: %s (%s)", what, lierne_status_name(status),
          lierne_last_error());
    CHECK(took == STEPS + MARGIN, "%s gave up after %lld of %d steps", what, took, STEPS);
}

static long long looks(void) {
    return atomic_load(&board->looks[test_rank]);
}

static lierne_context *context_new(void) {
    lierne_context *context;
    lierne_context_spec spec = {.size = sizeof spec, .timeout = TIMEOUT};
    CHECK(lierne_context_create_mpi(&context, MPI_COMM_WORLD, &spec) == LIERNE_OK, "%s",
          lierne_last_error());
    return context;
}

/* Everything into one lane, so that every rank waits for every other. */
static lierne_status plan_all(lierne_plan **plan, lierne_context *context, int64_t seq) {
    bridge_case c = {.src = mesh_of("tcd", 1, 1, test_world),
                     .dst = mesh_of("tcd", test_world, 1, 1),
                     .size = {test_world, seq, 4},
                     .axis = {0, 1, 2},
                     .dtype = LIERNE_F32};
    return case_plan(plan, context, &c);
}

/* The error that killed a context comes again, at once. */
static void check_dead(lierne_context *context, lierne_plan *plan, void *out, const void *in) {
    char first[1024];
    lierne_plan *other;
    long long before = looks();
    snprintf(first, sizeof first, "%s", lierne_last_error());
    CHECK(strlen(first) > 10, "no message: '%s'", first);
    CHECK(plan_all(&other, context, 8) == LIERNE_TIMEOUT, "planning on a dead context");
    CHECK(strcmp(first, lierne_last_error()) == 0, "'%s', then '%s'", first, lierne_last_error());
    if (plan) {
        CHECK(lierne_adjoint(plan, out, in, NULL) == LIERNE_TIMEOUT, "adjoint on a dead context");
        CHECK(strcmp(first, lierne_last_error()) == 0, "'%s', then '%s'", first,
              lierne_last_error());
    }
    CHECK(looks() - before < AT_ONCE, "a dead context looked at the clock %lld times",
          looks() - before);
}

/* Rank 0 comes late and alone to free, which may take one more deadline. */
static void free_context(lierne_context *context) {
    long long start = atomic_load(&board->steps), before = looks();
    ticking = test_rank == 0;
    CHECK(lierne_context_destroy(context) == LIERNE_OK, "%s", lierne_last_error());
    ticking = false;
    if (test_rank == 0) {
        long long took = atomic_load(&board->steps) - start;
        CHECK(took <= STEPS + 4 * MARGIN, "freeing took %lld of %d steps", took, STEPS);
    } else {
        CHECK(looks() - before < AT_ONCE, "freeing looked at the clock %lld times",
              looks() - before);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* seq sets the size of messages: small ones leave MPI at once, large ones wait for the receiver. */
static void moving(int64_t seq) {
    size_t before = lierne_mem_live(), bytes = (size_t)seq * 16;
    lierne_context *context = context_new();
    lierne_plan *plan;
    char *in = malloc(bytes), *out = malloc(bytes * (size_t)test_world);
    memset(in, 0x3c, bytes), memset(out, 0xa5, bytes * (size_t)test_world);
    CHECK(plan_all(&plan, context, seq) == LIERNE_OK, "%s", lierne_last_error());
    long long start = begin_wait();
    if (test_rank != 0) {
        end_wait(lierne_forward(plan, out, in, NULL), start, "forward");
        check_dead(context, plan, in, out);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(lierne_plan_destroy(plan) == LIERNE_OK, "%s", lierne_last_error());
    free_context(context);
    CHECK(lierne_mem_live() == before + (test_rank == 0), "%zu allocations leaked",
          lierne_mem_live() - before);
    if (test_rank == 0) { /* elsewhere they stay borrowed */
        free(in);
        free(out);
    }
}

/* What a collective call of MPI may still write stays: one allocation, see lierne/mpi.h. */
static void planning(void) {
    size_t before = lierne_mem_live();
    lierne_context *context = context_new();
    long long start = begin_wait();
    if (test_rank != 0) {
        lierne_plan *plan;
        end_wait(plan_all(&plan, context, 8), start, "planning");
        check_dead(context, NULL, NULL, NULL);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    free_context(context);
    CHECK(lierne_mem_live() <= before + 1, "%zu allocations leaked", lierne_mem_live() - before);
}

/* No timeout at all, as time stands still: those who plan learn that rank 0 is about to leave. */
static void freeing_while_others_plan(void) {
    lierne_context *context = context_new();
    if (test_rank != 0) {
        lierne_plan *plan;
        lierne_status status = plan_all(&plan, context, 8);
        CHECK(status == LIERNE_MISMATCH && !plan, "%s", lierne_status_name(status));
        CHECK(strstr(lierne_last_error(), "rank 0 destroys") != NULL, "'%s'", lierne_last_error());
        CHECK(plan_all(&plan, context, 8) == LIERNE_MISMATCH, "planning on a dead context");
    }
    CHECK(lierne_context_destroy(context) == LIERNE_OK, "%s", lierne_last_error());
    MPI_Barrier(MPI_COMM_WORLD);
}

static void making_a_context(void) {
    size_t before = lierne_mem_live();
    lierne_context_spec spec = {.size = sizeof spec, .timeout = TIMEOUT};
    long long start = begin_wait();
    if (test_rank != 0) {
        lierne_context *context;
        end_wait(lierne_context_create_mpi(&context, MPI_COMM_WORLD, &spec), start, "init");
        CHECK(context == NULL, "a context beside the error");
        CHECK(lierne_mem_live() <= before + 2, "%zu allocations leaked",
              lierne_mem_live() - before);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    MPI_Win window;
    test_start(&argc, &argv);
    open_clock(&window);
    moving(8);
    moving(100000);
    planning();
    freeing_while_others_plan();
    making_a_context();
    MPI_Win_free(&window);
    return test_finish();
}
