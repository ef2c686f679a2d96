/* Assignments in many threads at once: each has the result that one thread alone has, and its own
 * error. A static buffer in a mode would show. */
#include "expect.h"
#include "lengths.h"
#include "lierne.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 8, RANKS = 16, ITEMS = 300, ROUNDS = 400, MODES = LIERNE_BALANCE_CONTIGUOUS + 1 };

/* Of a thread: its own items, what they give alone, and whether all rounds gave the same. */
typedef struct worker {
    int64_t cost[ITEMS], counts[RANKS];
    int32_t alone[MODES][ITEMS];
    lierne_assignment_report reports[MODES];
    pthread_barrier_t *start;
    int number;
    bool same;
} worker;

static lierne_status assign(const worker *w, int mode, int32_t *ranks,
                            lierne_assignment_report *report) {
    const lierne_items items = {.size = sizeof items,
                                .nitems = ITEMS,
                                .ncosts = 1,
                                .cost = w->cost};
    lierne_balance_spec spec = LIERNE_BALANCE_SPEC_INIT;
    lierne_assignment *a;
    spec.mode = (lierne_balance_mode)mode;
    lierne_status status = lierne_assignment_create(&a, &items, w->counts, RANKS, &spec);
    if (status == LIERNE_OK) {
        memcpy(ranks, lierne_assignment_get_ranks(a), ITEMS * sizeof *ranks);
        status = lierne_assignment_get_report(report, a);
    }
    lierne_assignment_destroy(a);
    return status;
}

/* The message of a thread names its own value. */
static bool keeps_its_error(const worker *w) {
    const lierne_items items = {.size = sizeof items, .nitems = 0, .ncosts = 1};
    lierne_balance_spec spec = LIERNE_BALANCE_SPEC_INIT;
    lierne_assignment *a;
    char text[32];
    spec.tolerance = 2000 + w->number;
    snprintf(text, sizeof text, "tolerance is %d,", spec.tolerance);
    return lierne_assignment_create(&a, &items, w->counts, 1, &spec) == LIERNE_ERR_INVALID && !a &&
           strstr(lierne_last_error(), text);
}

static void *work(void *given) {
    worker *w = given;
    pthread_barrier_wait(w->start);
    for (int round = 0; round < ROUNDS; round++) {
        int32_t ranks[ITEMS];
        lierne_assignment_report r = {.size = sizeof r};
        int mode = round % MODES;
        w->same &= keeps_its_error(w) && assign(w, mode, ranks, &r) == LIERNE_OK &&
                   memcmp(ranks, w->alone[mode], sizeof ranks) == 0 &&
                   memcmp(&r, &w->reports[mode], sizeof r) == 0;
    }
    return NULL;
}

static void prepare(worker *w, int number, pthread_barrier_t *start) {
    uint64_t seed = (uint64_t)number;
    *w = (worker){.start = start, .number = number, .same = true};
    for (int i = 0; i < ITEMS; i++) {
        w->cost[i] = draw_length("bell", &seed);
        w->counts[i % (1 + number) * RANKS / THREADS]++;
    }
    for (int mode = 0; mode < MODES; mode++) {
        w->reports[mode] = (lierne_assignment_report){.size = sizeof *w->reports};
        assert_ok(assign(w, mode, w->alone[mode], &w->reports[mode]));
    }
}

Test(samples, assignments_in_many_threads) {
    static worker workers[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t start;
    cr_assert_eq(pthread_barrier_init(&start, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        prepare(&workers[i], i, &start);
    }
    for (int i = 0; i < THREADS; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        cr_expect(workers[i].same, "thread %d", i);
    }
    pthread_barrier_destroy(&start);
}
