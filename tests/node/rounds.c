/* Ranks of a node as processes that meet in a window (lierne/window.h) round after round, until one
 * of them is killed or stopped. The others get an error that names it, and destroy everything: they
 * wait for nobody, and nothing of theirs is left. Ends with "N passed, N failed". */
#include "base/base.h"
#include "lierne.h"
#include "lierne/node.h"
#include "processes.h"

#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 4, WORDS = 1000, LONG = 60 };

/* What a rank tells the test, in memory that all processes share. */
typedef struct report {
    atomic_int rounds;
    lierne_status status, destroyed;
    long wrong;
    size_t left;
    double seconds; /* of the last round, and of destroying everything after it */
    char message[1024];
} report;

static report *reports;

#define CHECK_RANK(ok, what, r)                                                                    \
    CHECK(ok, "%s: %s after %d rounds and %g s: %s", what, lierne_status_name((r)->status),        \
          atomic_load(&(r)->rounds), (r)->seconds, (r)->message)

/* Round k: word i of rank r is 5 i + r + k. */
static lierne_status meet(lierne_window *w, int round, long *wrong) {
    int *own = lierne_window_get_writable(w, lierne_window_get_rank(w));
    for (int i = 0; i < WORDS; i++) {
        own[i] = 5 * i + lierne_window_get_rank(w) + round;
    }
    lierne_status status = lierne_window_notify(w, NULL);
    status = status == LIERNE_OK ? lierne_window_wait(w, NULL) : status;
    for (int r = 0; r < RANKS && status == LIERNE_OK; r++) {
        const int *theirs = lierne_window_get_readable(w, r);
        for (int i = 0; i < WORDS; i++) {
            *wrong += theirs[i] != 5 * i + r + round;
        }
    }
    return status;
}

static lierne_status create(lierne_context **context, lierne_window **w, int rank, const char *name,
                            double timeout) {
    const lierne_context_spec context_spec = {.size = sizeof context_spec, .timeout = timeout};
    const lierne_node_spec spec = {
        .size = sizeof spec, .rank = rank, .world = RANKS, .name = name, .context = &context_spec};
    const lierne_window_spec window_spec = {.size = sizeof window_spec,
                                            .bytes = (int64_t)sizeof(int) * WORDS};
    lierne_status status = lierne_context_create_node(context, &spec);
    return status == LIERNE_OK ? lierne_window_create(w, *context, &window_spec) : status;
}

/* Rounds until an error, at most some of them; a rank that leaves them destroys nothing. */
static void live(report *own, int rank, const char *name, double timeout, int most, bool leaves) {
    lierne_context *context = NULL;
    lierne_window *w = NULL;
    double start = lierne_now();
    lierne_status status = create(&context, &w, rank, name, timeout);
    while (status == LIERNE_OK && atomic_load(&own->rounds) < most) {
        start = lierne_now();
        status = meet(w, atomic_fetch_add(&own->rounds, 1), &own->wrong);
    }
    own->status = status;
    snprintf(own->message, sizeof own->message, "%s", lierne_last_error());
    if (leaves) {
        _exit(0);
    }
    own->destroyed = lierne_window_destroy(w);
    if (status == LIERNE_OK) {
        snprintf(own->message, sizeof own->message, "%s", lierne_last_error());
    }
    lierne_context_destroy(context);
    own->seconds = lierne_now() - start;
    own->left = lierne_mem_live();
}

static void pass(useconds_t microseconds) {
    const struct timespec nap = {.tv_nsec = (long)microseconds * 1000};
    nanosleep(&nap, NULL);
}

/* leaver: the rank that leaves after `most` rounds, or -1. */
static void begin(pid_t *pids, const char *what, int number, double timeout, int most, int leaver) {
    char name[64];
    snprintf(name, sizeof name, "rounds-%s-%d-%d", what, (int)getpid(), number);
    memset(reports, 0, RANKS * sizeof *reports);
    for (int r = 0; r < RANKS; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            live(&reports[r], r, name, timeout, most, r == leaver);
            _exit(0);
        }
    }
}

/* In some rounds the signal comes when ranks are between a notify and its wait. */
static void interrupt(int number, int signal_number, double timeout, const char *text) {
    pid_t pids[RANKS];
    int victim = number % RANKS;
    char named[64];
    snprintf(named, sizeof named, text, victim);
    begin(pids, signal_number == SIGKILL ? "killed" : "stopped", number, timeout, INT_MAX, -1);
    for (double end = lierne_now() + LONG;
         atomic_load(&reports[victim].rounds) < 200 && lierne_now() < end;) {
        pass(500);
    }
    pass((useconds_t)(rand() % 5000));
    kill(pids[victim], signal_number);
    bool said = false;
    for (int r = 0; r < RANKS; r++) {
        const report *own = &reports[r];
        if (r != victim) {
            CHECK_RANK(process_await(pids[r], LONG, NULL), "a rank hangs", own);
            CHECK_RANK(own->status == LIERNE_ERR_PEER_FAILED || own->status == LIERNE_ERR_TIMEOUT,
                       "a status", own);
            CHECK_RANK(own->wrong == 0, "a word of another round", own);
            CHECK_RANK(own->destroyed == LIERNE_OK && own->left == 0, "destroying", own);
            CHECK_RANK(own->seconds < timeout + 5, "a wait without a deadline", own);
            said |= strstr(own->message, named) != NULL;
        }
    }
    CHECK_RANK(said, named, &reports[(victim + 1) % RANKS]);
    kill(pids[victim], SIGKILL);
    waitpid(pids[victim], NULL, 0);
}

/* A rank dies before it destroys its window: the others do not wait for it, and are told. */
static void leave_early(void) {
    static const char name[] = "lierne_window_destroy: ";
    pid_t pids[RANKS];
    begin(pids, "left", 0, 20, 3, RANKS - 1);
    for (int r = 0; r < RANKS; r++) {
        const report *own = &reports[r];
        CHECK_RANK(process_await(pids[r], LONG, NULL), "a rank hangs", own);
        CHECK_RANK(own->status == LIERNE_OK && own->wrong == 0, "rounds before it", own);
        if (r < RANKS - 1) {
            CHECK_RANK(own->destroyed == LIERNE_ERR_PEER_FAILED && own->left == 0, "destroying",
                       own);
            CHECK_RANK(strncmp(own->message, name, strlen(name)) == 0 &&
                           strstr(own->message, "rank 3"),
                       "what destroying says", own);
        }
    }
}

/* In the second round rank 0 notifies and ends at once, and rank 2 is late. */
static void come(report *own, int rank, const char *name) {
    lierne_context *context = NULL;
    lierne_window *w = NULL;
    own->status = create(&context, &w, rank, name, 20);
    own->status = own->status == LIERNE_OK ? meet(w, 0, &own->wrong) : own->status;
    if (own->status == LIERNE_OK) {
        pass(rank == 2 ? 300000 : 0);
        own->status = lierne_window_notify(w, NULL);
    }
    if (own->status == LIERNE_OK && rank > 0) {
        own->status = lierne_window_wait(w, NULL);
    }
    snprintf(own->message, sizeof own->message, "%s", lierne_last_error());
}

/* A rank that has come and then ended is no error to those that wait for another one. */
static void end_early(void) {
    char name[64];
    pid_t pids[RANKS];
    snprintf(name, sizeof name, "rounds-early-%d", (int)getpid());
    memset(reports, 0, RANKS * sizeof *reports);
    for (int r = 0; r < RANKS; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            come(&reports[r], r, name);
            _exit(0);
        }
    }
    for (int r = 0; r < RANKS; r++) {
        CHECK_RANK(process_await(pids[r], LONG, NULL), "a rank hangs", &reports[r]);
        CHECK_RANK(reports[r].status == LIERNE_OK, "a round that all came to", &reports[r]);
    }
}

int main(void) {
    srand(11);
    reports = process_share(RANKS * sizeof *reports);
    for (int i = 0; i < 8; i++) {
        interrupt(i, SIGKILL, 20, "rank %d");
    }
    for (int i = 0; i < 2; i++) {
        interrupt(i, SIGSTOP, 0.5, "have not notified within 0.5 s: rank %d");
    }
    leave_early();
    end_early();
    return process_counts();
}
