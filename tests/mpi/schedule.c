/* Schedules over MPI: the gate passes with isolation and cannot complete without it; a rank that
 * deviates in any field of an operation is named on every rank, before data moves, in a context
 * that stays alive. All of that with and without a progress thread, which lets a rank compute while
 * the others wait for its later operations. */
#include "lierne/schedule.h"
#include "collectives.h"
#include "lierne/collective.h"
#include "lierne/hang.h"
#include "mpi/common.h"

#include <stdio.h>
#include <string.h>

#define TIMEOUT 0.5 /* seconds, of the gate that cannot open */

enum { COUNT = 5, OPS = 3, PLANS = 5 };

/* Operation 0 is an all-reduce that rank 1 withholds until operation 1, an all-to-all, is complete;
 * operation 2 is an all-reduce behind them. Plan 3 is an all-reduce of f64, plan 4 a
 * broadcast. */
typedef struct gate {
    lierne_context *context;
    lierne_plan *plans[PLANS];
    float *in[OPS], *out[OPS];
} gate;

static lierne_context *context_new(double timeout) {
    lierne_context *context = test_context(PATIENT);
    test_hurry(context, timeout);
    return context;
}

static void create(gate *g, double timeout) {
    lierne_all_reduce_spec reduce =
        all_reduce_of(COUNT, LIERNE_DTYPE_F32, LIERNE_COLLECTIVE_ALGORITHM_AUTO);
    const lierne_all_to_all_spec exchange = all_to_all_of(1, LIERNE_DTYPE_F32);
    const lierne_broadcast_spec from_first = broadcast_of(COUNT, LIERNE_DTYPE_F32);
    g->context = context_new(timeout);
    for (int i = 0; i < PLANS; i++) {
        reduce.dtype = i == 3 ? LIERNE_DTYPE_F64 : LIERNE_DTYPE_F32;
        lierne_status status =
            i == 1   ? lierne_plan_create_all_to_all(&g->plans[i], g->context, &exchange)
            : i == 4 ? lierne_plan_create_broadcast(&g->plans[i], g->context, &from_first)
                     : lierne_plan_create_all_reduce(&g->plans[i], g->context, &reduce);
        CHECK_OK(status);
    }
    for (int i = 0; i < OPS; i++) {
        int n = i == 1 ? test_world : COUNT;
        g->in[i] = test_buffer((size_t)n * sizeof(float));
        g->out[i] = test_buffer((size_t)n * sizeof(float));
    }
}

static lierne_operation_spec operation(const gate *g, int i) {
    lierne_operation_spec o = LIERNE_OPERATION_SPEC_INIT;
    o.kind = i == 1 ? LIERNE_OPERATION_ALL_TO_ALL : LIERNE_OPERATION_ALL_REDUCE;
    o.group = 0;
    o.tag = i == 1 ? "ep" : "grad";
    o.plan = g->plans[i];
    o.held = i == 0 && test_rank == 1;
    return o;
}

/* What the schedule of one rank has otherwise. Its count is that of its plan. */
typedef enum deviation {
    NONE,
    TAG,
    KIND,
    DTYPE,
    ROOT,
    PLAN,
    DIRECTION,
    SKIPPED,
    SWAPPED,
    DEVIATIONS
} deviation;
static const char *const fields[DEVIATIONS] = {
    "",        "tag is",       "kind is",           "dtype is", "root is",
    "plan is", "direction is", "sequence of group", "kind is"};

static void add(lierne_schedule *s, const lierne_operation_spec *o) {
    int index;
    CHECK_OK(lierne_schedule_add_operation(&index, s, o));
}

/* compared: a broadcast follows, so that there is a root to compare. */
static lierne_schedule *record(const gate *g, deviation d, bool compared) {
    int all[64], index;
    lierne_schedule *s;
    lierne_schedule_group_spec spec = {
        .size = sizeof spec, .name = "world", .uid = 7, .ranks = all, .nranks = test_world};
    for (int r = 0; r < test_world; r++) {
        all[r] = test_world - 1 - r;
    }
    lierne_schedule_create(&s, test_rank);
    lierne_schedule_add_group(&index, s, &spec);
    for (int i = 0; i < OPS; i++) {
        int from = d == SWAPPED ? (i + 1) % OPS : i;
        lierne_operation_spec o = operation(g, from);
        if (i == 2) {
            o.tag = d == TAG ? "norm" : o.tag;
            o.kind = d == KIND ? LIERNE_OPERATION_PLAN : o.kind;
            o.plan = d == DTYPE ? g->plans[3] : d == PLAN ? g->plans[0] : o.plan;
            o.direction = d == DIRECTION ? LIERNE_DIRECTION_ADJOINT : o.direction;
        }
        add(s, &o);
    }
    if (compared && d != SKIPPED) {
        lierne_operation_spec o = operation(g, 4);
        o.kind = LIERNE_OPERATION_BROADCAST;
        o.root = d == ROOT;
        add(s, &o);
    }
    lierne_schedule_freeze(s);
    return s;
}

static lierne_schedule *isolate(lierne_schedule *s) {
    const lierne_isolation_spec ep = LIERNE_ISOLATION_SPEC_INIT;
    lierne_schedule *out;
    CHECK_OK(lierne_schedule_isolate(&out, s, &ep));
    lierne_schedule_destroy(s);
    return out;
}

static lierne_run_event event_of(const lierne_run *run, int i) {
    lierne_run_event e = {.size = sizeof e};
    lierne_run_get_event(&e, run, i);
    return e;
}

static void fill(gate *g) {
    for (int i = 0; i < OPS; i++) {
        for (int k = 0; k < (i == 1 ? test_world : COUNT); k++) {
            g->in[i][k] = (float)(100 * i + 10 * test_rank + k + 1);
            g->out[i][k] = -1;
        }
    }
}

static bool exact(const gate *g) {
    bool ok = true;
    for (int k = 0; k < COUNT; k++) {
        float ranks = (float)(test_world * (test_world - 1) / 2 * 10);
        ok &= g->out[0][k] == ranks + (float)(test_world * (k + 1));
        ok &= g->out[2][k] == ranks + (float)(test_world * (200 + k + 1));
    }
    for (int r = 0; r < test_world; r++) {
        ok &= g->out[1][r] == (float)(100 + 10 * r + test_rank + 1);
    }
    return ok;
}

static lierne_status pass(const gate *g, lierne_run *run, bool threaded) {
    lierne_status status = lierne_run_begin(run, (void *const *)g->out, (const void *const *)g->in);
    for (int done = 0; status == LIERNE_OK && !done;) {
        status = lierne_run_test(&done, run);
        if (test_rank == 1 && status == LIERNE_OK && !done && event_of(run, 1).ended > 0) {
            lierne_run_resume(run, 0);
        }
        if (threaded && test_rank != 1) {
            break; /* the thread goes on, and needs the processor more */
        }
    }
    lierne_status ended = lierne_run_end(run);
    return status == LIERNE_OK ? ended : status;
}

static void destroy(gate *g) {
    for (int i = 0; i < PLANS; i++) {
        lierne_plan_destroy(g->plans[i]);
    }
    CHECK_OK(lierne_context_destroy(g->context));
}

static lierne_run *commit(const gate *g, const lierne_schedule *s, bool threaded) {
    const lierne_run_spec spec = {.size = sizeof spec, .progress_thread = threaded};
    lierne_run *run;
    CHECK_OK(lierne_run_create(&run, g->context, s, &spec));
    return run;
}

static void opens(bool threaded) {
    gate g;
    create(&g, PATIENT);
    lierne_schedule *s = isolate(record(&g, NONE, false));
    lierne_run *run = commit(&g, s, threaded);
    for (int i = 0; i < 50; i++) {
        fill(&g);
        lierne_status status = pass(&g, run, threaded);
        lierne_run_event x = event_of(run, 0), y = event_of(run, 1);
        CHECK(status == LIERNE_OK && exact(&g), "step %d: %s", i,
              status ? lierne_last_error() : "wrong");
        CHECK(x.begun <= y.begun && y.begun < y.ended && x.resumed < x.ended &&
                  (test_rank != 1 || y.ended <= x.resumed),
              "the order of events in step %d", i);
    }
    CHECK(lierne_context_get_ngroups(g.context) == 1, "%d groups",
          lierne_context_get_ngroups(g.context));
    CHECK_OK(lierne_run_destroy(run));
    CHECK(lierne_context_get_ngroups(g.context) == 0, "the group is still there");
    lierne_schedule_destroy(s);
    destroy(&g);
}

/* Without isolation the all-to-all is behind what rank 1 withholds. */
static void stays_shut(bool threaded) {
    gate g;
    create(&g, TIMEOUT);
    lierne_schedule *s = record(&g, NONE, false);
    lierne_run *run = commit(&g, s, threaded);
    fill(&g);
    double start = MPI_Wtime();
    CHECK(pass(&g, run, threaded) == LIERNE_ERR_TIMEOUT, "%s", lierne_last_error());
    CHECK(MPI_Wtime() - start < TIMEOUT + SLACK, "it took %g s", MPI_Wtime() - start);
    CHECK(test_rank != 1 || strstr(lierne_last_error(), "is held"), "%s", lierne_last_error());
    CHECK(event_of(run, 0).begun > 0 && event_of(run, 1).begun == 0, "what was begun");
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_OK(lierne_run_destroy(run));
    lierne_schedule_destroy(s);
    destroy(&g);
}

static void deviates(gate *g, deviation d, int rank, double *longest) {
    lierne_run *run;
    char name[32];
    lierne_schedule *s = record(g, test_rank == rank ? d : NONE, true);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    lierne_status status = lierne_run_create(&run, g->context, s, NULL);
    double took = MPI_Wtime() - start;
    *longest = took > *longest ? took : *longest;
    test_same_error(status, LIERNE_ERR_MISMATCH, fields[d]);
    snprintf(name, sizeof name, "rank %d", rank);
    CHECK(!run && strstr(lierne_last_error(), fields[d]) && strstr(lierne_last_error(), name),
          "%s of rank %d: %s", fields[d], rank, lierne_last_error());
    lierne_schedule_destroy(s);
}

static void mismatches(void) {
    gate g;
    double longest = 0;
    create(&g, PATIENT);
    for (int d = NONE + 1; d < DEVIATIONS; d++) {
        for (int r = 0; r < test_world; r++) {
            deviates(&g, (deviation)d, r, &longest);
        }
    }
    if (test_rank == 0) {
        printf("the longest of %d mismatches took %.0f ms\n", (DEVIATIONS - 1) * test_world,
               longest * 1e3);
    }
    destroy(&g);
}

/* Whether all other ranks have said that their runs ended; looks for this long. */
static bool others_ended(double seconds) {
    int arrived = 0, there = 0;
    double start = MPI_Wtime();
    while (arrived < test_world - 1 && MPI_Wtime() - start < seconds) {
        MPI_Iprobe(MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
        if (there) {
            MPI_Recv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            arrived++;
        }
    }
    return arrived == test_world - 1;
}

/* What a caller may do beside the thread. */
static void shares(const gate *g, lierne_run *run, lierne_run *other) {
    char text[512], *json;
    int done;
    CHECK(lierne_plan_forward(g->plans[3], g->out[0], g->in[0], NULL) == LIERNE_ERR_BUSY &&
              strstr(lierne_last_error(), "lierne_run_end"),
          "%s", lierne_last_error());
    CHECK(lierne_run_begin(other, NULL, NULL) == LIERNE_ERR_BUSY, "%s", lierne_last_error());
    CHECK(lierne_run_begin(run, NULL, NULL) == LIERNE_ERR_BUSY, "%s", lierne_last_error());
    CHECK(lierne_run_destroy(run) == LIERNE_ERR_BUSY, "%s", lierne_last_error());
    CHECK_OK(lierne_context_get_status(g->context));
    CHECK_OK(lierne_context_progress(g->context));
    CHECK(lierne_context_dump(text, sizeof text, g->context) == LIERNE_OK, "dump");
    CHECK_OK(lierne_context_get_status_json(&json, g->context));
    lierne_text_destroy(json);
    CHECK_OK(lierne_run_test(&done, run));
}

/* Rank 0 computes: it begins, and makes no call of lierne until all others have ended, who need its
 * later operations. Without a thread they cannot end before it calls again, however long it waits.
 */
static void goes_on(bool threaded) {
    gate g;
    create(&g, PATIENT);
    lierne_schedule *s = record(&g, NONE, false);
    lierne_run *run = commit(&g, s, threaded && test_rank % 2 == 0);
    lierne_run *other = commit(&g, s, threaded);
    fill(&g);
    CHECK_OK(lierne_run_begin(run, (void *const *)g.out, (const void *const *)g.in));
    MPI_Barrier(MPI_COMM_WORLD); /* nothing is there yet that rank 0 could pass in its begin */
    if (test_rank == 1) {
        CHECK_OK(lierne_run_resume(run, 0));
    }
    bool ended = test_rank == 0 && others_ended(threaded ? PATIENT : 0.2);
    if (test_rank == 0 && threaded) {
        shares(&g, run, other);
    }
    CHECK(test_rank != 0 || ended == threaded, "the others have%s ended", ended ? "" : " not");
    CHECK(lierne_run_end(run) == LIERNE_OK && exact(&g), "%s", lierne_last_error());
    if (test_rank > 0) {
        MPI_Send(NULL, 0, MPI_BYTE, 0, 7, MPI_COMM_WORLD);
    } else if (!threaded) {
        CHECK(others_ended(PATIENT), "the others have not ended");
    }
    CHECK_OK(lierne_run_destroy(other));
    CHECK_OK(lierne_run_destroy(run));
    lierne_schedule_destroy(s);
    destroy(&g);
}

/* Without MPI_THREAD_MULTIPLE a thread is refused, on every rank. */
static void refuses(void) {
    const lierne_run_spec spec = {.size = sizeof spec, .progress_thread = test_rank == 1};
    gate g;
    lierne_run *run;
    create(&g, PATIENT);
    lierne_schedule *s = record(&g, NONE, false);
    test_same_error(lierne_run_create(&run, g.context, s, &spec), LIERNE_ERR_UNSUPPORTED,
                    "MPI_THREAD_MULTIPLE");
    lierne_schedule_destroy(s);
    destroy(&g);
}

/* With the argument "threads", MPI is asked for MPI_THREAD_MULTIPLE. */
int main(int argc, char **argv) {
    bool threads = argc > 1 && strcmp(argv[1], "threads") == 0;
    int provided = MPI_THREAD_SINGLE;
    if (threads) {
        provided = test_start_threads(&argc, &argv);
    } else {
        test_start(&argc, &argv);
        mismatches();
    }
    if (provided == MPI_THREAD_MULTIPLE) {
        goes_on(true);
    } else {
        refuses();
        goes_on(false);
    }
    opens(provided == MPI_THREAD_MULTIPLE);
    stays_shut(provided == MPI_THREAD_MULTIPLE);
    return test_finish();
}
