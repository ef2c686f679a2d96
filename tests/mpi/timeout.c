/* Rank 0 does not call. Ranks that wait for it get TIMEOUT at the deadline, then the same error at
 * once, and can still destroy everything. MPI itself keeps working: the ranks synchronise outside
 * of lierne after each case.
 *
 * The program has a clock of its own, so that deadlines are exact on a busy machine: it is linked
 * with --wrap=lierne_now, and the library reads a clock in memory that all ranks share. Only rank 0
 * advances it, when every waiting rank has read it a few times since the last step: to just before
 * the deadline, and to just after it, when all must give up. */
#include "mpi/common.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define TIMEOUT 0.5 /* seconds of the program's own clock */
#define STEPS   100 /* in which it passes */
#define MARGIN  5   /* steps before and after the deadline at which ranks read the clock */
#define READS   4 /* of each waiting rank before the clock advances: more than a wait starts with */
#define AT_ONCE 20 /* reads of a call that does not wait, at most: those of its dump */
#define MOST    64 /* ranks */

typedef struct shared_clock {
    atomic_llong steps; /* since the program began */
    atomic_llong reads[MOST];
    atomic_int waits[MOST]; /* the rank is in a call that must miss its deadline */
} shared_clock;

static shared_clock *shared;
static bool ticking; /* this rank waits alone: each of its reads advances MARGIN steps */

double __wrap_lierne_now(void);
double __wrap_lierne_now(void) {
    atomic_fetch_add(&shared->reads[test_rank], 1);
    long long steps = atomic_fetch_add(&shared->steps, ticking ? MARGIN : 0);
    return (double)steps * TIMEOUT / STEPS;
}

static void open_clock(MPI_Win *window) {
    MPI_Aint bytes = test_rank == 0 ? sizeof *shared : 0;
    int unit;
    MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &shared, window);
    MPI_Win_shared_query(*window, 0, &bytes, &unit, &shared);
    if (test_rank == 0) {
        memset(shared, 0, sizeof *shared);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Waits until each waiting rank has read the clock `most` times more or has given up; returns
 * whether any still waits. */
static bool await_reads(long long most) {
    long long before[MOST];
    bool any = false;
    int flag;
    for (int r = 0; r < test_world; r++) {
        before[r] = atomic_load(&shared->reads[r]);
    }
    for (int r = 0; r < test_world; r++) {
        while (atomic_load(&shared->waits[r]) &&
               atomic_load(&shared->reads[r]) - before[r] < most) {
            MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
            sched_yield();
        }
        any |= atomic_load(&shared->waits[r]);
    }
    return any;
}

/* On rank 0, which does not call. Advances the clock further while ranks wait past the deadline. */
static void keep_time(void) {
    await_reads(READS);
    atomic_fetch_add(&shared->steps, STEPS - MARGIN);
    await_reads(READS);
    atomic_fetch_add(&shared->steps, 2 * MARGIN);
    while (await_reads(READS + AT_ONCE)) {
        atomic_fetch_add(&shared->steps, STEPS);
    }
}

/* Called on every rank before a call that must miss its deadline; rank 0 keeps time meanwhile. */
static long long begin_wait(void) {
    atomic_store(&shared->waits[test_rank], test_rank != 0);
    MPI_Barrier(MPI_COMM_WORLD);
    long long start = atomic_load(&shared->steps);
    if (test_rank == 0) {
        keep_time();
    }
    return start;
}

static void end_wait(lierne_status status, long long start, const char *what) {
    long long took = atomic_load(&shared->steps) - start;
    atomic_store(&shared->waits[test_rank], 0);
    CHECK(status == LIERNE_ERR_TIMEOUT, "%s: %s (%s)", what, lierne_status_name(status),
          lierne_last_error());
    CHECK(took == STEPS + MARGIN, "%s gave up after %lld of %d steps", what, took, STEPS);
}

static long long reads(void) {
    return atomic_load(&shared->reads[test_rank]);
}

/* All dp ranks into one, so that every rank waits for every other. */
static lierne_status plan_all(lierne_plan **plan, lierne_context *context, int64_t seq) {
    bridge_case c = case_of_samples(test_world, 4, mesh_of("tcd", test_world, 1, 1));
    c.sequence = seq;
    return case_plan(plan, context, &c);
}

/* Further calls on a dead context return its error at once, with their own names before it. */
static void check_dead(lierne_context *context, lierne_plan *plan, void *out, const void *in) {
    char text[1024];
    const char *first = text;
    lierne_plan *other;
    long long before = reads();
    snprintf(text, sizeof text, "%s", lierne_last_error());
    first = strstr(text, ": ") ? strstr(text, ": ") + 2 : text;
    CHECK(strlen(first) > 10, "no message: '%s'", first);
    CHECK(plan_all(&other, context, 8) == LIERNE_ERR_TIMEOUT, "planning on a dead context");
    CHECK(strstr(lierne_last_error(), first), "'%s', then '%s'", first, lierne_last_error());
    if (plan) {
        CHECK(lierne_plan_adjoint(plan, out, in, NULL) == LIERNE_ERR_TIMEOUT,
              "adjoint on a dead context");
        CHECK(strstr(lierne_last_error(), first), "'%s', then '%s'", first, lierne_last_error());
    }
    CHECK(reads() - before < AT_ONCE, "a dead context read the clock %lld times", reads() - before);
}

/* Rank 0 destroys its context late and alone, which may take one more deadline. */
static void free_context(lierne_context *context) {
    long long start = atomic_load(&shared->steps), before = reads();
    ticking = test_rank == 0;
    CHECK_OK(lierne_context_destroy(context));
    ticking = false;
    if (test_rank == 0) {
        long long took = atomic_load(&shared->steps) - start;
        CHECK(took <= STEPS + 4 * MARGIN, "destroying took %lld of %d steps", took, STEPS);
    } else {
        CHECK(reads() - before < AT_ONCE, "destroying read the clock %lld times", reads() - before);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* seq sets the size of messages: MPI sends short ones at once, long ones wait for the receiver. */
static void executing(int64_t seq) {
    size_t before = lierne_mem_live(), bytes = (size_t)seq * 16;
    lierne_context *context = test_context(TIMEOUT);
    lierne_plan *plan;
    char *in = test_buffer(bytes), *out = test_buffer(bytes * (size_t)test_world);
    memset(in, 0x3c, bytes), memset(out, 0xa5, bytes * (size_t)test_world);
    CHECK_OK(plan_all(&plan, context, seq));
    long long start = begin_wait();
    if (test_rank != 0) {
        end_wait(lierne_plan_forward(plan, out, in, NULL), start, "forward");
        check_dead(context, plan, in, out);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_OK(lierne_plan_destroy(plan));
    free_context(context);
    CHECK(lierne_mem_live() == before + (test_rank == 0), "%zu allocations leaked",
          lierne_mem_live() - before);
}

/* Memory that a collective call of MPI may still write is never freed: one allocation, as
 * lierne/mpi.h says. */
static void planning(void) {
    size_t before = lierne_mem_live();
    lierne_context *context = test_context(TIMEOUT);
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

/* No timeout, as the clock does not advance: ranks that plan learn that rank 0 destroys. */
static void destroying_while_others_plan(void) {
    lierne_context *context = test_context(TIMEOUT);
    if (test_rank != 0) {
        lierne_plan *plan;
        lierne_status status = plan_all(&plan, context, 8);
        CHECK(status == LIERNE_ERR_MISMATCH && !plan, "%s", lierne_status_name(status));
        CHECK(strstr(lierne_last_error(), "rank 0 destroys") != NULL, "'%s'", lierne_last_error());
        CHECK(plan_all(&plan, context, 8) == LIERNE_ERR_MISMATCH, "planning on a dead context");
    }
    CHECK_OK(lierne_context_destroy(context));
    MPI_Barrier(MPI_COMM_WORLD);
}

static void creating_a_context(void) {
    size_t before = lierne_mem_live();
    lierne_context_spec spec = {.size = sizeof spec, .timeout = TIMEOUT};
    long long start = begin_wait();
    if (test_rank != 0) {
        lierne_context *context;
        end_wait(test_context_create(&context, MPI_COMM_WORLD, &spec), start, "creating");
        CHECK(context == NULL, "a context despite the error");
        CHECK(lierne_mem_live() <= before + 2, "%zu allocations leaked",
              lierne_mem_live() - before);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    MPI_Win window;
    test_start(&argc, &argv);
    open_clock(&window);
    executing(8);
    executing(100000);
    planning();
    destroying_while_others_plan();
    creating_a_context();
    MPI_Win_free(&window);
    return test_finish();
}
