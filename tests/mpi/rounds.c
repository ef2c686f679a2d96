/* Windows of lierne/window.h: what each rank writes in a round all ranks of its node read after the
 * wait, in 10,000 reuses with ranks that run ahead and ranks that are slow; by reading from others
 * and by writing to them; all-gather and reduce-scatter in closed form. Then what must fail: bad
 * arguments, which all ranks get alike, a rank that does not come, whose name the dumps have, one
 * that gives up, no memory. */
#include "hang/case.h"
#include "lierne/hang.h"
#include "lierne/plan.h"
#include "lierne/window.h"
#include "mpi/common.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 96, ROUNDS = 10000, FEWER = 1000, SKEWED = 300 };

static lierne_status create(lierne_window **w, lierne_context *context, int64_t bytes) {
    const lierne_window_spec spec = {.size = sizeof spec, .bytes = bytes};
    lierne_status status = lierne_window_create(w, context, &spec);
    CHECK((status == LIERNE_OK) == (*w != NULL), "%s", lierne_last_error());
    CHECK(!*w || (uintptr_t)lierne_window_get_readable(*w, 0) % 256 == 0, "misaligned");
    return status;
}

static bool meet(lierne_window *w) {
    return CHECK_OK(lierne_window_notify(w, NULL)) && CHECK_OK(lierne_window_wait(w, NULL));
}

/* No two ranks, rounds and words near each other have the same value. */
static uint32_t value(int rank, int round, int word) {
    return (uint32_t)(round * 7919 + rank * 211 + word * 13);
}

/* Some ranks dawdle before they read or before they write, others after the wait: the buffers that
 * the others already write must not be the ones that they read. */
static void dawdle(int round, int where) {
    int yields = round < SKEWED && (round + test_rank) % 3 == where ? (round * 37) % 50 : 0;
    for (int i = 0; i < yields; i++) {
        sched_yield();
    }
}

/* Reads: each rank its own buffer. Else: each rank its part of everybody's. */
static void reuse(lierne_context *context, bool reads, int rounds) {
    lierne_window *w;
    if (create(&w, context, (int64_t)sizeof(uint32_t) * WORDS * test_world) != LIERNE_OK) {
        return;
    }
    int n = lierne_window_get_size(w), me = lierne_window_get_rank(w);
    const int *ranks = lierne_window_get_ranks(w);
    long wrong = 0;
    for (int round = 0; round < rounds; round++) {
        dawdle(round, 0);
        for (int p = 0; p < n; p++) {
            uint32_t *to = lierne_window_get_writable(w, reads ? me : p);
            to += (reads ? p : me) * WORDS;
            for (int i = 0; i < WORDS; i++) {
                to[i] = value(test_rank, round, i + p);
            }
        }
        dawdle(round, 1);
        if (!meet(w)) {
            break;
        }
        dawdle(round, 2);
        for (int p = 0; p < n; p++) {
            const uint32_t *from = lierne_window_get_readable(w, reads ? p : me);
            from += (reads ? me : p) * WORDS;
            for (int i = 0; i < WORDS; i++) {
                wrong += from[i] != value(ranks[p], round, i + me);
            }
        }
    }
    CHECK(wrong == 0, "%ld words are of another round or rank", wrong);
    CHECK_OK(lierne_window_destroy(w));
}

/* out[r C + i] = 100 r + i, and sums n (d C + j) + 100 n (n - 1) / 2, of ranks 0 to n - 1. */
static void closed_forms(lierne_context *context) {
    enum { C = 37 };
    lierne_window *w;
    int n = test_world;
    if (create(&w, context, (int64_t)sizeof(double) * C * n) != LIERNE_OK) {
        return;
    }
    if (CHECK(lierne_window_get_size(w) == n && lierne_window_get_rank(w) == test_rank &&
                  lierne_window_get_bytes(w) == (int64_t)sizeof(double) * C * n,
              "one node")) {
        long wrong = 0;
        double *own = lierne_window_get_writable(w, test_rank);
        CHECK((uintptr_t)own % 256 == 0 && lierne_window_get_readable(w, 0) == NULL,
              "before the first round");
        for (int i = 0; i < C * n; i++) {
            own[i] = 100 * test_rank + i;
        }
        meet(w);
        for (int j = 0; j < C; j++) {
            double sum = 0;
            for (int r = 0; r < n; r++) {
                const double *of = lierne_window_get_readable(w, r);
                wrong += of[j] != 100 * r + j;
                sum += of[test_rank * C + j];
            }
            wrong += sum != n * (test_rank * C + j) + 50.0 * n * (n - 1);
        }
        CHECK(wrong == 0, "%ld values are wrong", wrong);
    }
    CHECK_OK(lierne_window_destroy(w));
}

static void two_windows(lierne_context *context) {
    lierne_window *a, *b;
    create(&a, context, 8);
    create(&b, context, 5000);
    for (int round = 0; a && b && round < 20; round++) {
        int64_t *x = lierne_window_get_writable(a, lierne_window_get_rank(a));
        int64_t *y = lierne_window_get_writable(b, lierne_window_get_rank(b));
        *x = test_rank + round;
        *y = 1000 + test_rank + round;
        CHECK_OK(lierne_window_notify(a, NULL));
        meet(b);
        CHECK_OK(lierne_window_wait(a, NULL));
        for (int p = 0; p < lierne_window_get_size(a); p++) {
            int rank = lierne_window_get_ranks(a)[p];
            const int64_t *u = lierne_window_get_readable(a, p),
                          *v = lierne_window_get_readable(b, p);
            CHECK(*u == rank + round && *v == 1000 + rank + round, "round %d", round);
        }
    }
    CHECK_OK(lierne_window_destroy(a));
    CHECK_OK(lierne_window_destroy(b));
}

static void wrong_calls(lierne_context *context) {
    lierne_window *w = (lierne_window *)&w;
    lierne_window_spec spec = {.size = sizeof spec, .bytes = 64};
    int bad = test_world - 1;
    bool here = test_rank == bad;
    CHECK(lierne_window_create(&w, NULL, &spec) == LIERNE_ERR_INVALID && !w, "context NULL");
    test_same_error(lierne_window_create(here ? NULL : &w, context, &spec), LIERNE_ERR_INVALID,
                    "out");
    test_same_error(lierne_window_create(&w, context, here ? NULL : &spec), LIERNE_ERR_INVALID,
                    "spec");
    spec.size = here ? 3 : sizeof spec;
    test_same_error(lierne_window_create(&w, context, &spec), LIERNE_ERR_INVALID, "size");
    spec.size = sizeof spec;
    spec.bytes = here ? 0 : 64;
    test_same_error(lierne_window_create(&w, context, &spec), LIERNE_ERR_INVALID, "bytes");
    spec.bytes = here ? LIERNE_MAX_WINDOW_BYTES + 1 : 64;
    test_same_error(lierne_window_create(&w, context, &spec), LIERNE_ERR_INVALID, "bytes");
    if (test_world == 1) { /* whose memory is not shared, and so not reserved */
        return;
    }
    spec.bytes = here ? 128 : 64;
    test_same_error(lierne_window_create(&w, context, &spec), LIERNE_ERR_MISMATCH, "bytes");
    CHECK(strstr(lierne_last_error(), "bytes") != NULL, "%s", lierne_last_error());
    spec.bytes = LIERNE_MAX_WINDOW_BYTES;
    test_same_error(lierne_window_create(&w, context, &spec), LIERNE_ERR_NO_MEMORY, "too much");
}

static void wrong_order(lierne_context *context) {
    static char any;
    lierne_window *w;
    create(&w, context, 64);
    CHECK(lierne_window_wait(w, NULL) == LIERNE_ERR_INVALID, "a wait without a notify");
    CHECK(lierne_window_notify(w, &any) == LIERNE_ERR_UNSUPPORTED, "a stream");
    CHECK_OK(lierne_window_notify(w, NULL));
    CHECK(lierne_window_notify(w, NULL) == LIERNE_ERR_INVALID, "two notifies");
    CHECK(!lierne_window_get_writable(w, 0) && !lierne_window_get_readable(w, 0), "in between");
    CHECK_OK(lierne_window_wait(w, NULL));
    CHECK(!lierne_window_get_writable(w, -1) && !lierne_window_get_readable(w, test_world),
          "place");
    CHECK(lierne_window_notify(NULL, NULL) == LIERNE_ERR_INVALID &&
              lierne_window_wait(NULL, NULL) == LIERNE_ERR_INVALID &&
              lierne_window_destroy(NULL) == LIERNE_OK && lierne_window_get_size(NULL) == -1 &&
              lierne_window_get_rank(NULL) == -1 && !lierne_window_get_ranks(NULL) &&
              lierne_window_get_bytes(NULL) == -1,
          "NULL");
    CHECK(lierne_context_destroy(context) == LIERNE_ERR_INVALID &&
              strstr(lierne_last_error(), "1 windows"),
          "%s", lierne_last_error());
    CHECK_OK(lierne_window_destroy(w));
}

/* Allocation k of one rank fails, for every k until a window is created. */
static void without_memory(lierne_context *context) {
    int last = LIERNE_ERR_NO_MEMORY, k = 0;
    while (last != LIERNE_OK && ++k < 200) {
        lierne_window *w;
        size_t before = lierne_mem_live();
        lierne_mem_fail_at(test_rank == 0 ? (size_t)k : 0);
        lierne_status status = create(&w, context, 64);
        lierne_mem_fail_at(0);
        last = (int)status;
        MPI_Bcast(&last, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (last != LIERNE_OK) {
            test_same_error(status, LIERNE_ERR_NO_MEMORY, "a window without memory");
        }
        lierne_window_destroy(w);
        CHECK(lierne_mem_live() == before, "allocation %d: a leak", k);
    }
    CHECK(k > 3 && k < 200, "a window is created from allocation %d on", k);
}

/* Every wait for a round that is recorded is for rank 0. */
static void only_rank_0_is_missing(const lierne_context *context) {
    char *text = NULL;
    CHECK_OK(lierne_context_get_recorder_json(&text, context));
    for (const char *at = text; at && (at = strstr(at, "\"event\":\"wait\"")); at++) {
        const char *what = strstr(at, "\"what\":\"round\""), *end = strchr(at, '}');
        const char *peer = strstr(at, "\"peer\":");
        CHECK(!what || what > end || (peer && atoi(peer + 7) == 0), "%.120s", at);
    }
    lierne_text_destroy(text);
}

/* What rank 0 does in place of a round; the others wait for it. */
typedef void does_instead(lierne_context *context);

static void stay_away(lierne_context *context) {
    (void)context;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void give_up(lierne_context *context) {
    lierne_context_abort(context, LIERNE_ERR_NO_RESOURCE, "out of pencils");
    MPI_Barrier(MPI_COMM_WORLD);
}

static void leave(lierne_context *context) {
    lierne_context_destroy_all(context);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void fails(does_instead *instead, double timeout, lierne_status wanted, const char *text) {
    size_t before = lierne_mem_live();
    lierne_context *context = test_context(PATIENT);
    lierne_window *w;
    create(&w, context, 1 << 20);
    meet(w);
    meet(w);
    MPI_Barrier(MPI_COMM_WORLD);
    test_hurry(context, timeout);
    if (test_rank == 0) {
        instead(context);
    } else {
        double start = MPI_Wtime();
        CHECK_OK(lierne_window_notify(w, NULL));
        lierne_status status = lierne_window_wait(w, NULL);
        CHECK((status == wanted || status == LIERNE_ERR_PEER_FAILED) &&
                  strstr(lierne_last_error(), text),
              "%s: %s", lierne_status_name(status), lierne_last_error());
        only_rank_0_is_missing(context);
        CHECK(MPI_Wtime() - start < timeout + SLACK, "a wait without a deadline");
        CHECK(lierne_window_notify(w, NULL) == status && lierne_window_wait(w, NULL) == status,
              "the context is dead: %s", lierne_last_error());
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (test_rank > 0 || instead != leave) {
        lierne_window_destroy(w);
        lierne_context_destroy(context);
    }
    /* Memory that a collective call of MPI may still write is never freed: one allocation. */
    CHECK(lierne_mem_live() <= before + 1, "%zu allocations are left", lierne_mem_live() - before);
}

/* The dumps of the ranks name the round and the rank that did not come, where one waits for it. */
static void names_the_absent(void) {
    if (test_world == 1) {
        return;
    }
    char folder[] = "/tmp/lierne-rounds-XXXXXX";
    CHECK(test_rank > 0 || mkdtemp(folder), "no folder for dumps");
    MPI_Bcast(folder, sizeof folder, MPI_CHAR, 0, MPI_COMM_WORLD);
    setenv("LIERNE_DUMP_DIR", folder, 1);
    fails(stay_away, 0.3, LIERNE_ERR_TIMEOUT, "rank 0");
    unsetenv("LIERNE_DUMP_DIR");
    MPI_Barrier(MPI_COMM_WORLD);
    lierne_hang hang = {.size = sizeof hang};
    char *text = NULL;
    if (test_rank == 0 && CHECK_OK(lierne_hang_find(&hang, &text, folder))) {
        CHECK(hang.kind == LIERNE_HANG_MISSING && hang.rank == 0 && hang.waiting > 0 &&
                  hang.what == LIERNE_HANG_WHAT_ROUND && hang.number == 3 &&
                  strstr(text, "rank 0 did not begin round 3 of window") &&
                  strstr(text, "rank 0: in no call") && strstr(text, "before: round 2 of window"),
              "%s", text);
    }
    lierne_text_destroy(text);
    MPI_Barrier(MPI_COMM_WORLD);
    if (test_rank == 0) {
        hang_case_clean(folder);
    }
}

static void works(void) {
    size_t before = lierne_mem_live();
    lierne_context *context = test_context(PATIENT);
    reuse(context, true, ROUNDS);
    reuse(context, false, FEWER);
    closed_forms(context);
    two_windows(context);
    wrong_calls(context);
    wrong_order(context);
    without_memory(context);
    lierne_window *w;
    CHECK_OK(create(&w, context, 1));
    CHECK_OK(lierne_context_destroy_all(context));
    CHECK(lierne_mem_live() == before, "%zu allocations are left", lierne_mem_live() - before);
}

/* Pairs of ranks are nodes: each has a window of its own. */
static void on_nodes(void) {
    int nodes[64];
    for (int r = 0; r < test_world; r++) {
        nodes[r] = r / 2;
    }
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = PATIENT, .nodes = nodes};
    lierne_context *context;
    CHECK(test_context_create(&context, MPI_COMM_WORLD, &spec) == LIERNE_OK, "context");
    lierne_window *w;
    create(&w, context, 64);
    int first = test_rank / 2 * 2, n = first + 2 <= test_world ? 2 : 1;
    CHECK(lierne_window_get_size(w) == n && lierne_window_get_rank(w) == test_rank - first &&
              lierne_window_get_ranks(w)[n - 1] == first + n - 1,
          "two ranks of a node");
    CHECK_OK(lierne_window_destroy(w));
    reuse(context, true, FEWER);
    CHECK_OK(lierne_context_destroy(context));
}

/* Without shared memory there is no window, and all ranks get to know. */
static void without_shm(void) {
    lierne_context *context = test_context(PATIENT);
    const lierne_window_spec spec = {.size = sizeof spec, .bytes = 64};
    lierne_window *w;
    test_same_error(lierne_window_create(&w, context, &spec), LIERNE_ERR_UNSUPPORTED, "no shm");
    CHECK(strstr(lierne_last_error(), "share no memory") != NULL, "%s", lierne_last_error());
    lierne_context_destroy(context);
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    if (!test_over_shm()) {
        without_shm();
        return test_finish();
    }
    works();
    on_nodes();
    names_the_absent();
    fails(give_up, PATIENT, LIERNE_ERR_NO_RESOURCE, "out of pencils");
    fails(leave, 1, LIERNE_ERR_TIMEOUT, "rank 0");
    return test_finish();
}
